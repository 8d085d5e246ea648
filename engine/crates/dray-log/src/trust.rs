//! Decides which ranges of a log are still valid. The decision depends on the state of the partial
//! files. The functions do no I/O. A range that may be invalid is sent again.

use crate::record::{BootId, Header, LoggedFile, PartialFile};
use crate::recover::Recovery;
use dray_core::content::ContentKey;
use dray_core::options::Durability;
use dray_core::path::escape;
use dray_core::{End, Error, ErrorKind, RelPath, SummedRanges};
use std::num::NonZeroU64;

/// The sink that resumes a transfer.
#[derive(Debug, Clone, Copy)]
pub struct Sink<'a> {
    /// Name of the log for messages.
    pub log: &'a str,
    /// Owner of the request, from the endpoint's owner mapping.
    pub owner: &'a [u8],
    /// Current boot of this host.
    pub boot_id: &'a BootId,
    /// Durability that done ranges must have.
    pub durability: Durability,
}

/// The partial file that the sink found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundPartial {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Creation time (see [`crate::PartialFile::born`]); 0 if unknown.
    pub born: u64,
    /// Size in bytes.
    pub size: u64,
}

impl PartialFile {
    /// Returns true if `found` is the partial file that `self` records. Device numbers may change
    /// at a boot, and may differ between the hosts of a shared file system. So the device numbers
    /// are compared only if `is_same_boot` is true.
    #[must_use]
    pub fn is(&self, found: &FoundPartial, is_same_boot: bool) -> bool {
        found.inode == self.inode
            && (!is_same_boot || found.device == self.device)
            && (found.born == 0 || self.born == 0 || found.born == self.born)
    }
}

/// State of a file from which a resume continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    /// Ranges that the source need not send, with their sums.
    pub done: SummedRanges,
    /// Object size that the resume must use.
    pub object_bytes: NonZeroU64,
    /// True if the partial file must be synced before the ranges in `done` count as durable. The
    /// sink then records the sync with [`crate::ObjectLog::file_synced`].
    pub must_sync: bool,
    /// True if a write or a sync of the partial file failed. The sink must copy the ranges in
    /// `done` to another partial file before it writes more data.
    pub is_doubtful: bool,
}

/// Action of a resume for a file that is in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Continue the file from this state.
    Trusted(Trusted),
    /// Begin the file again, because none of its recorded ranges is valid. The error contains the
    /// reason. The sink first ends the file as dropped in the log and commits the log. It then
    /// deletes the partial file, if there is one, and begins the file again.
    StartOver(Error),
    /// Leave the file unchanged and report it as failed. Contains the reason.
    Refused(Error),
}

/// Checks that `sink` may change the files of the log.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if the log belongs to another owner.
pub fn check_owner(recovery: &Recovery, sink: &Sink<'_>) -> Result<(), Error> {
    check_owner_in(&recovery.header, sink)
}

/// Checks the owner like [`check_owner`], but needs only the header of the log. A sink calls this
/// function before it takes the lease.
///
/// # Errors
/// The errors of [`check_owner`].
pub fn check_owner_in(header: &Header, sink: &Sink<'_>) -> Result<(), Error> {
    if header.owner == sink.owner {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::PermissionDenied,
        End::Sink,
        "resume from the object log",
    )
    .cause(format!(
        "{} belongs to {}, but this transfer runs for {}",
        sink.log,
        escape(&header.owner),
        escape(sink.owner)
    ))
    .remedy(
        "run the transfer as the owner of the partial data, or ask the owner to remove the \
        partial data",
    ))
}

/// Decides which ranges of the file at `path` are valid. `found` is the partial file that exists
/// now. `wanted` is the identity of the content that the file must get.
#[must_use]
pub fn judge(
    recovery: &Recovery,
    path: &RelPath,
    file: &LoggedFile,
    sink: &Sink<'_>,
    found: Option<&FoundPartial>,
    wanted: &ContentKey,
) -> Verdict {
    if let Err(error) = check_owner(recovery, sink) {
        return Verdict::Refused(error.file(path));
    }
    let is_same_boot = recovery.tenure.boot_id == *sink.boot_id;
    let doubt = content(file, sink, wanted)
        .or_else(|| partial(file, sink, found, is_same_boot))
        .or_else(|| boot(file, sink, is_same_boot))
        .or_else(|| unproven(recovery, file, sink, is_same_boot));
    match doubt {
        Some(error) => Verdict::StartOver(error.file(path)),
        None => Verdict::Trusted(Trusted {
            done: file.done.clone(),
            object_bytes: file.object_bytes,
            must_sync: file.is_weak && sink.durability != Durability::None,
            is_doubtful: file.is_doubtful,
        }),
    }
}

fn doubt(kind: ErrorKind, cause: String) -> Error {
    Error::new(kind, End::Sink, "resume the file")
        .cause(cause)
        .remedy("starting over without the partial file")
}

fn content(file: &LoggedFile, sink: &Sink<'_>, wanted: &ContentKey) -> Option<Error> {
    if file.key.same_content(wanted) {
        return None;
    }
    Some(doubt(
        ErrorKind::SourceChanged,
        format!(
            "{} describes a source file with {}, but the source file now has {}",
            sink.log,
            in_words(&file.key),
            in_words(wanted)
        ),
    ))
}

fn in_words(key: &ContentKey) -> String {
    let mut words = format!(
        "{} bytes and the modification time {}.{:09}",
        key.size, key.modified.seconds, key.modified.nanoseconds
    );
    if let Some(demanded) = key.demanded {
        words.push_str(&format!(" and the demanded checksum {demanded}"));
    }
    if !key.identity.is_empty() {
        words.push_str(&format!(
            " and the version or entity tag {}",
            escape(&key.identity)
        ));
    }
    words
}

fn partial(
    file: &LoggedFile,
    sink: &Sink<'_>,
    found: Option<&FoundPartial>,
    is_same_boot: bool,
) -> Option<Error> {
    let (log, name) = (sink.log, &file.partial.name);
    let Some(found) = found else {
        return Some(doubt(
            ErrorKind::NotFound,
            format!("{log} names the partial file {name}, which does not exist"),
        ));
    };
    if !file.partial.is(found, is_same_boot) {
        return Some(doubt(
            ErrorKind::NotFound,
            format!("{name} is not the partial file that {log} describes"),
        ));
    }
    let needed = file.done.iter().last().map_or(0, |(range, _)| range.end());
    (found.size < needed).then(|| {
        doubt(
            ErrorKind::ShortRead,
            format!(
                "{log} lists {needed} bytes of the partial file {name}, but the partial file has \
                    only {} bytes",
                found.size
            ),
        )
    })
}

fn boot(file: &LoggedFile, sink: &Sink<'_>, is_same_boot: bool) -> Option<Error> {
    (file.is_weak && !is_same_boot).then(|| {
        doubt(
            ErrorKind::Other,
            format!(
                "{} was written with durability none, and the host has restarted since",
                sink.log
            ),
        )
    })
}

/// Returns the reason why the ranges of a log without sums are not valid. Nothing shows that the
/// storage still has the bytes of such a range after a restart, on another host, or after a failed
/// write.
fn unproven(
    recovery: &Recovery,
    file: &LoggedFile,
    sink: &Sink<'_>,
    is_same_boot: bool,
) -> Option<Error> {
    let why = match (file.is_doubtful, is_same_boot) {
        (true, _) => "a write to the partial file has failed",
        (_, false) => "the host has restarted since, or another host wrote the log",
        (false, true) => return None,
    };
    let has_proof = recovery.header.form.has_sums || file.done.is_empty();
    (!has_proof).then(|| {
        doubt(
            ErrorKind::Other,
            format!(
                "{} has the form {} and so no checksums, and {why}",
                sink.log, recovery.header.form
            ),
        )
    })
}

#[cfg(test)]
mod tests;
