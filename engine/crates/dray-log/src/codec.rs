//! Encodes the bodies of records as bytes and decodes them. The decoder rejects a body that is too
//! long or too short, or that contains an invalid value. A false count in a body cannot cause a
//! large allocation.

use crate::frame::FLAG_NO_SUMS;
use crate::input::Input;
use crate::positions;
use crate::record::{
    BootId, Checkpoint, Ending, FileBegin, FileNumber, Header, OBJECTS_PER_RECORD_MAX, Objects,
    PartialFile, Positions, Record, TEXT_BYTES_MAX, Tenure,
};
use dray_core::log_form::TRANSACTION_FILES_MAX;
use dray_core::options::Durability;
use dray_core::{
    ByteRange, Checksum, ContentKey, End, Error, ErrorKind, LogForm, LogMechanism, LogMethod,
    ModifiedTime, Name, Result, Sums, TransferId,
};
use std::num::{NonZeroU32, NonZeroU64};

/// Maximum number of claims of a log. The log of a transfer with more claims covers the whole
/// destination tree.
pub const CLAIMS_MAX: usize = 1024;
/// Maximum length of a header in bytes. A log with many long claims may reach this limit before it
/// reaches [`CLAIMS_MAX`].
pub const HEADER_BYTES_MAX: usize = 1 << 20;
/// Maximum length of the name of an owner in bytes.
pub const OWNER_BYTES_MAX: usize = 1024;
/// Maximum length in bytes of the identity of a source version. Entity tags and version ids are far
/// shorter.
pub const IDENTITY_BYTES_MAX: usize = 4096;
/// Maximum length in bytes of the body of a record. The header is the longest record.
pub(crate) const BODY_BYTES_MAX: usize = HEADER_BYTES_MAX;

pub(crate) mod kind {
    pub(crate) const HEADER: u8 = 1;
    pub(crate) const FILE_BEGIN: u8 = 2;
    pub(crate) const OBJECTS: u8 = 3;
    pub(crate) const RANGE: u8 = 4;
    pub(crate) const FILE_END: u8 = 5;
    pub(crate) const TENURE: u8 = 6;
    pub(crate) const CHECKPOINT: u8 = 7;
    pub(crate) const COMMIT: u8 = 8;
    pub(crate) const FILE_SYNCED: u8 = 9;
    pub(crate) const FILE_DOUBTFUL: u8 = 10;
    pub(crate) const POSITIONS: u8 = 11;
}

impl Record {
    pub(crate) const fn kind(&self) -> u8 {
        match self {
            Self::Header(_) => kind::HEADER,
            Self::FileBegin(..) => kind::FILE_BEGIN,
            Self::Objects(_) => kind::OBJECTS,
            Self::Range(..) => kind::RANGE,
            Self::FileEnd(..) => kind::FILE_END,
            Self::Tenure(_) => kind::TENURE,
            Self::Checkpoint(_) => kind::CHECKPOINT,
            Self::Commit { .. } => kind::COMMIT,
            Self::FileSynced(_) => kind::FILE_SYNCED,
            Self::FileDoubtful(_) => kind::FILE_DOUBTFUL,
            Self::Positions(_) => kind::POSITIONS,
        }
    }

    /// Encodes the record's body as bytes. A record of ranges contains the sums of its ranges only
    /// if `flags` has no [`FLAG_NO_SUMS`].
    pub(crate) fn encode(&self, flags: u8) -> Vec<u8> {
        let has_sums = flags & FLAG_NO_SUMS == 0;
        let mut out = Vec::new();
        match self {
            Self::Header(header) => put_header(&mut out, header),
            Self::FileBegin(number, begin) => put_file_begin(&mut out, *number, begin),
            Self::Objects(run) => put_objects(&mut out, run, has_sums),
            Self::Range(number, range, sums) => {
                put_u32(&mut out, number.0);
                put_u32(&mut out, 0);
                put_u64(&mut out, range.offset);
                put_u64(&mut out, range.length);
                put_all_sums(&mut out, [sums], has_sums);
            }
            Self::FileEnd(number, ending) => {
                put_u32(&mut out, number.0);
                put_u32(&mut out, ending_code(*ending));
            }
            Self::Tenure(tenure) => put_tenure(&mut out, tenure),
            Self::Checkpoint(checkpoint) => put_checkpoint(&mut out, checkpoint, has_sums),
            Self::Commit { durable_before } => put_u64(&mut out, *durable_before),
            Self::Positions(positions) => put_positions(&mut out, positions, has_sums),
            Self::FileSynced(number) | Self::FileDoubtful(number) => {
                put_u32(&mut out, number.0);
                put_u32(&mut out, 0);
            }
        }
        out
    }

    /// Decodes the body of a record of the given kind, whose head has `flags`; `None` if the body
    /// is not valid. Ranges without sums get the sums of no bytes, [`Sums::EMPTY`].
    pub(crate) fn decode(kind: u8, flags: u8, body: &[u8]) -> Option<Self> {
        let has_sums = flags & FLAG_NO_SUMS == 0;
        let mut input = Input(body);
        let record = match kind {
            kind::HEADER => Self::Header(Box::new(take_header(&mut input)?)),
            kind::FILE_BEGIN => {
                let (number, begin) = take_file_begin(&mut input)?;
                Self::FileBegin(number, begin)
            }
            kind::OBJECTS => Self::Objects(take_objects(&mut input, has_sums)?),
            kind::RANGE => {
                let number = FileNumber(input.u32()?);
                input.u32()?;
                let range = ByteRange::new(input.u64()?, input.u64()?)?;
                Self::Range(number, range, take_sums(&mut input, has_sums)?)
            }
            kind::FILE_END => {
                let number = FileNumber(input.u32()?);
                Self::FileEnd(number, ending_from(input.u32()?)?)
            }
            kind::TENURE => Self::Tenure(take_tenure(&mut input)?),
            kind::CHECKPOINT => Self::Checkpoint(take_checkpoint(&mut input, has_sums)?),
            kind::COMMIT => Self::Commit {
                durable_before: input.u64()?,
            },
            kind::FILE_SYNCED => {
                let number = FileNumber(input.u32()?);
                input.u32()?;
                Self::FileSynced(number)
            }
            kind::FILE_DOUBTFUL => {
                let number = FileNumber(input.u32()?);
                input.u32()?;
                Self::FileDoubtful(number)
            }
            kind::POSITIONS => Self::Positions(take_positions(&mut input, has_sums)?),
            _ => return None,
        };
        input.0.is_empty().then_some(record)
    }
}

/// Checks that a header respects the limits of the format.
///
/// # Errors
/// [`ErrorKind::LimitExceeded`] with the name of the exceeded limit.
pub(crate) fn check_header(header: &Header) -> Result<()> {
    let bytes: usize = header.claims.iter().map(|c| c.as_bytes().len() + 4).sum();
    if header.claims.len() > CLAIMS_MAX || bytes > HEADER_BYTES_MAX - 8192 {
        return Err(limit(format!(
            "{} destination paths with {bytes} bytes in total",
            header.claims.len()
        ))
        .remedy("submit the transfer with fewer or shorter paths, or copy the whole folder"));
    }
    if header.owner.len() > OWNER_BYTES_MAX {
        return Err(limit(format!(
            "the owner's name has {} bytes",
            header.owner.len()
        )));
    }
    if header.software.len() > TEXT_BYTES_MAX {
        return Err(limit(
            "the name of the program that writes the log".to_owned(),
        ));
    }
    check_tenure(&header.tenure)
}

/// Checks that a tenure respects the limits of the format.
///
/// # Errors
/// The errors of [`check_header`].
pub(crate) fn check_tenure(tenure: &Tenure) -> Result<()> {
    if tenure.holder.len() > TEXT_BYTES_MAX {
        return Err(limit(
            "the name of the program that holds the lease".to_owned(),
        ));
    }
    Ok(())
}

/// Checks that the record of a file respects the limits of the format.
///
/// # Errors
/// The errors of [`check_header`].
pub(crate) fn check_file_begin(begin: &FileBegin) -> Result<()> {
    if begin.key.identity.len() > IDENTITY_BYTES_MAX {
        return Err(limit("the identifiers of the source file".to_owned()).file(&begin.path));
    }
    if begin.key.modified.nanoseconds > 999_999_999 || begin.path.is_root() {
        return Err(
            Error::new(ErrorKind::Internal, End::Sink, "record a file in the log")
                .file(&begin.path)
                .cause(
                    "the file has no name, or its modification time has 10^9 nanoseconds or more",
                ),
        );
    }
    Ok(())
}

fn limit(what: String) -> Error {
    Error::new(
        ErrorKind::LimitExceeded,
        End::Sink,
        "write to the object log",
    )
    .cause(format!("over the limits of the log format: {what}"))
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("invariant: the caller has checked the lengths");
    put_u32(out, length);
    out.extend_from_slice(bytes);
}

fn put_all_sums<'a>(out: &mut Vec<u8>, all: impl IntoIterator<Item = &'a Sums>, has_sums: bool) {
    for sums in all.into_iter().filter(|_| has_sums) {
        put_u32(out, sums.crc32c);
        put_u32(out, sums.adler32);
    }
}

fn take_sums(input: &mut Input<'_>, has_sums: bool) -> Option<Sums> {
    match has_sums {
        true => input.sums(),
        false => Some(Sums::EMPTY),
    }
}

fn put_tenure(out: &mut Vec<u8>, tenure: &Tenure) {
    put_u64(out, tenure.epoch);
    put_u32(
        out,
        match tenure.durability {
            Durability::None => 0,
            Durability::File => 1,
            Durability::Object => 2,
        },
    );
    put_bytes(out, tenure.boot_id.as_bytes());
    put_bytes(out, tenure.transfer.as_str().as_bytes());
    put_bytes(out, tenure.holder.as_bytes());
}

fn put_header(out: &mut Vec<u8>, header: &Header) {
    put_u64(out, header.nonce);
    put_u32(out, header.next_file.0);
    put_bytes(out, header.software.as_bytes());
    put_bytes(out, &header.owner);
    let count = u32::try_from(header.claims.len())
        .expect("invariant: the caller has checked the lengths of the claims");
    put_u32(out, count);
    for claim in &header.claims {
        put_bytes(out, claim.as_bytes());
    }
    put_tenure(out, &header.tenure);
    put_form(out, header);
}

/// Writes the form of a log. The header of a log of the default form ends before it, because older
/// programs read such a header.
fn put_form(out: &mut Vec<u8>, header: &Header) {
    if header.form == LogForm::default() {
        return;
    }
    let (mechanism, files) = match header.form.mechanism {
        LogMechanism::File => (1, 1),
        LogMechanism::Transaction(files) => (2, files.get()),
        LogMechanism::Universal => (3, 0),
    };
    put_u32(out, mechanism);
    put_u32(out, positions::code(header.form.method));
    put_u32(out, files);
    put_u32(out, u32::from(header.part.is_some()));
    put_u32(out, header.part.unwrap_or(0));
    put_u64(out, header.id);
    put_u64(out, header.boot_epoch);
    let options = options_of(&header.form);
    if options != 0 {
        put_u32(out, options);
    }
}

/// Option of a log without sums.
const OPTION_NO_SUMS: u32 = 1;
/// Option of a log that is written asynchronously.
const OPTION_ASYNC: u32 = 2;

const fn options_of(form: &LogForm) -> u32 {
    let no_sums = if form.has_sums { 0 } else { OPTION_NO_SUMS };
    no_sums | if form.is_async { OPTION_ASYNC } else { 0 }
}

fn put_file_begin(out: &mut Vec<u8>, number: FileNumber, begin: &FileBegin) {
    put_u32(out, number.0);
    put_u64(out, begin.object_bytes.get());
    put_u64(out, begin.key.size);
    let (algorithm, value) = match begin.key.demanded {
        None => (0, 0),
        Some(Checksum::Crc32c(value)) => (1, value),
        Some(Checksum::Adler32(value)) => (2, value),
    };
    put_u32(out, algorithm);
    put_u32(out, value);
    put_u64(out, begin.key.modified.seconds.cast_unsigned());
    put_u32(out, begin.key.modified.nanoseconds);
    put_u32(out, begin.key.precision_nanoseconds);
    put_bytes(out, &begin.key.identity);
    put_bytes(out, begin.path.as_bytes());
    put_bytes(out, begin.partial.name.as_bytes());
    put_u64(out, begin.partial.device);
    put_u64(out, begin.partial.inode);
    put_u64(out, begin.partial.born);
}

fn put_objects(out: &mut Vec<u8>, run: &Objects, has_sums: bool) {
    put_u32(out, run.number.0);
    put_u32(out, run.sums.len() as u32);
    put_u64(out, run.first);
    put_all_sums(out, &run.sums, has_sums);
}

fn put_positions(out: &mut Vec<u8>, positions: &Positions, has_sums: bool) {
    put_u32(out, positions.number.0);
    put_u32(out, positions::code(positions.method));
    put_u32(out, positions.objects.len() as u32);
    let numbers = positions.objects.iter().map(|(number, _)| *number);
    put_bytes(out, &positions::encode(positions.method, numbers));
    let sums = positions.objects.iter().map(|(_, sums)| sums);
    put_all_sums(out, sums, has_sums);
}

fn put_checkpoint(out: &mut Vec<u8>, checkpoint: &Checkpoint, has_sums: bool) {
    put_u32(out, checkpoint.number.0);
    put_u32(out, checkpoint.objects.len() as u32);
    put_u64(out, checkpoint.first);
    for eight in checkpoint.objects.chunks(8) {
        let bits = eight.iter().enumerate();
        out.push(bits.fold(0, |byte, (bit, sums)| {
            byte | (u8::from(sums.is_some()) << bit)
        }));
    }
    put_all_sums(out, checkpoint.objects.iter().flatten(), has_sums);
}

const fn ending_code(ending: Ending) -> u32 {
    match ending {
        Ending::Published => 1,
        Ending::Dropped => 2,
    }
}

const fn ending_from(code: u32) -> Option<Ending> {
    match code {
        1 => Some(Ending::Published),
        2 => Some(Ending::Dropped),
        _ => None,
    }
}

fn take_tenure(input: &mut Input<'_>) -> Option<Tenure> {
    Some(Tenure {
        epoch: input.u64()?,
        durability: match input.u32()? {
            0 => Durability::None,
            1 => Durability::File,
            2 => Durability::Object,
            _ => return None,
        },
        boot_id: BootId::new(input.bytes(*BootId::LENGTH.end())?).ok()?,
        transfer: TransferId::new(input.text(TransferId::LENGTH_MAX)?).ok()?,
        holder: input.text(TEXT_BYTES_MAX)?,
    })
}

fn take_header(input: &mut Input<'_>) -> Option<Header> {
    let nonce = input.u64()?;
    let next_file = FileNumber(input.u32()?);
    let software = input.text(TEXT_BYTES_MAX)?;
    let owner = input.bytes(OWNER_BYTES_MAX)?.to_vec();
    let count = usize::try_from(input.u32()?).ok()?;
    if count > CLAIMS_MAX {
        return None;
    }
    let claims = (0..count)
        .map(|_| input.path())
        .collect::<Option<Vec<_>>>()?;
    let tenure = take_tenure(input)?;
    let header = Header {
        next_file,
        ..Header::new(claims, owner, nonce, software, tenure)
    };
    match input.0.is_empty() {
        true => Some(header),
        false => take_form(input, header),
    }
}

fn take_form(input: &mut Input<'_>, header: Header) -> Option<Header> {
    let (mechanism, method, files) = (input.u32()?, input.u32()?, input.u32()?);
    let mechanism = match (mechanism, NonZeroU32::new(files)) {
        (1, Some(NonZeroU32::MIN)) => LogMechanism::File,
        (2, Some(files)) if files.get() <= TRANSACTION_FILES_MAX => {
            LogMechanism::Transaction(files)
        }
        (3, None) => LogMechanism::Universal,
        _ => return None,
    };
    let method = positions::method(method)?;
    let part = match (input.u32()?, input.u32()?) {
        (0, 0) => None,
        (1, part) if mechanism != LogMechanism::Universal => Some(part),
        _ => return None,
    };
    let id = input.u64()?;
    let boot_epoch = input.u64()?;
    // Logs with sums that are written synchronously have no field for options.
    let options = match input.0.is_empty() {
        true => 0,
        false => input.u32().filter(|options| *options != 0)?,
    };
    if boot_epoch > header.tenure.epoch || options & !(OPTION_NO_SUMS | OPTION_ASYNC) != 0 {
        return None;
    }
    let form = LogForm {
        mechanism,
        method,
        has_sums: options & OPTION_NO_SUMS == 0,
        is_async: options & OPTION_ASYNC != 0,
    };
    // A log of the default form has a header without these fields.
    (form != LogForm::default()).then_some(Header {
        form,
        id,
        part,
        boot_epoch,
        ..header
    })
}

fn take_file_begin(input: &mut Input<'_>) -> Option<(FileNumber, FileBegin)> {
    let number = FileNumber(input.u32()?);
    let object_bytes = NonZeroU64::new(input.u64()?)?;
    let size = input.u64()?;
    let demanded = match (input.u32()?, input.u32()?) {
        (0, 0) => None,
        (1, value) => Some(Checksum::Crc32c(value)),
        (2, value) => Some(Checksum::Adler32(value)),
        _ => return None,
    };
    let modified = ModifiedTime {
        seconds: input.u64()?.cast_signed(),
        nanoseconds: input.u32()?,
    };
    let key = ContentKey {
        size,
        demanded,
        modified,
        precision_nanoseconds: input.u32()?,
        identity: input.bytes(IDENTITY_BYTES_MAX)?.to_vec(),
    };
    let begin = FileBegin {
        key,
        object_bytes,
        path: input.path()?,
        partial: PartialFile {
            name: Name::new(input.bytes(dray_core::path::NAME_LENGTH_MAX)?).ok()?,
            device: input.u64()?,
            inode: input.u64()?,
            born: input.u64()?,
        },
    };
    check_file_begin(&begin).ok()?;
    Some((number, begin))
}

fn take_objects(input: &mut Input<'_>, has_sums: bool) -> Option<Objects> {
    let number = FileNumber(input.u32()?);
    let count = usize::try_from(input.u32()?).ok()?;
    let first = input.u64()?;
    if !(1..=OBJECTS_PER_RECORD_MAX).contains(&count) {
        return None;
    }
    let sums = (0..count)
        .map(|_| take_sums(input, has_sums))
        .collect::<Option<Vec<_>>>()?;
    Some(Objects {
        number,
        first,
        sums,
    })
}

fn take_positions(input: &mut Input<'_>, has_sums: bool) -> Option<Positions> {
    let number = FileNumber(input.u32()?);
    let method = positions::method(input.u32()?).filter(|one| *one != LogMethod::Ranges)?;
    let count = usize::try_from(input.u32()?).ok()?;
    if !(1..=OBJECTS_PER_RECORD_MAX).contains(&count) {
        return None;
    }
    let bytes = input.bytes(positions::POSITIONS_BYTES_MAX)?;
    let numbers = positions::decode(method, bytes, count)?;
    let objects = numbers
        .into_iter()
        .map(|object| Some((object, take_sums(input, has_sums)?)))
        .collect::<Option<Vec<_>>>()?;
    Some(Positions {
        number,
        method,
        objects,
    })
}

fn take_checkpoint(input: &mut Input<'_>, has_sums: bool) -> Option<Checkpoint> {
    let number = FileNumber(input.u32()?);
    let count = usize::try_from(input.u32()?).ok()?;
    let first = input.u64()?;
    if !(1..=OBJECTS_PER_RECORD_MAX).contains(&count) {
        return None;
    }
    let bits = input.take(count.div_ceil(8))?;
    let is_set = |index: usize| bits[index / 8] >> (index % 8) & 1 == 1;
    if (count..bits.len() * 8).any(is_set) {
        return None;
    }
    let mut objects = Vec::with_capacity(count);
    for index in 0..count {
        objects.push(if is_set(index) {
            Some(take_sums(input, has_sums)?)
        } else {
            None
        });
    }
    Some(Checkpoint {
        number,
        first,
        objects,
    })
}
