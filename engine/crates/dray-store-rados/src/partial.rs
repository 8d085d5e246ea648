//! Partial files.
//!
//! The state object of a partial file has the bytes of the first object and all attributes. The
//! further objects of a *direct* partial file already have their final names. A reader does not see
//! them, because a file exists only if its first object exists. If a file of several objects has
//! the final name, or if another partial file has claimed the final name, the further objects are
//! *staged* in the state namespace, and publishing copies them.

use crate::errors::{Answer, Errno};
use crate::files::{Files, Found, folder_of};
use crate::guard::guarded;
use crate::layout::{OBJECT_SIZE, SIZE, STRIPE_COUNT, STRIPE_UNIT};
use crate::made::{Before, Made};
use crate::names::{self, State};
use crate::note::{GENERATION, Generation};
use crate::pool::{Action, Got, Job, Pool, Query, Step};
use crate::read::split;
use crate::url::FileLayout;
use dray_core::{ByteRange, Error, ErrorKind, Layout, ModifiedTime, Name, RelPath, Result, Sums};
use dray_store::{Attributes, Partial, PartialId, Publish, ReadHandle, ReadState};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Attribute of a state object: the full name of the final file.
pub(crate) const FINAL: &CStr = c"dray.final";
/// Attribute of a state object, with the value [`DIRECT`] or `staged`.
pub(crate) const PLACE: &CStr = c"dray.place";
pub(crate) const DIRECT: &[u8] = b"direct";
pub(crate) const STAGED: &[u8] = b"staged";
/// Attribute of a state object that is about to replace a file of several objects: the number of
/// these objects as decimal text, a space, and their generation.
pub(crate) const OLD: &CStr = c"dray.old";
/// Attribute of a claim: the full name of the partial file that holds the claim.
pub(crate) const HOLDER: &CStr = c"dray.holder";

/// Number of operations that a loop over the objects of a file starts together.
pub(crate) const BATCH: usize = 64;

/// Number of zeros in one write, in bytes.
const ZEROS_BYTES: u64 = 1 << 20;

const WRITE: &str = "write the file";

/// The fixed properties of a partial file.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) path: RelPath,
    /// Full name of the final file.
    pub(crate) full: Vec<u8>,
    /// Full name of the partial file.
    pub(crate) partial: Vec<u8>,
    pub(crate) generation: Generation,
    pub(crate) layout: FileLayout,
    pub(crate) is_direct: bool,
}

impl Part {
    /// Returns the state object.
    pub(crate) fn state(&self) -> CString {
        State::Partial.object(&self.partial)
    }

    /// Returns the name that an object other than the first has while the file is partial.
    pub(crate) fn object(&self, number: u64) -> CString {
        match self.is_direct {
            true => names::object(&self.full, number),
            false => names::staged(&self.partial, number),
        }
    }

    /// Returns the namespace of [`Self::object`].
    pub(crate) fn pool<'a>(&self, files: &'a Files) -> &'a Pool {
        match self.is_direct {
            true => &files.data,
            false => &files.state,
        }
    }

    pub(crate) fn id(&self, files: &Files) -> PartialId {
        id(files, self.generation)
    }
}

/// Returns the identity of the file with this generation.
pub(crate) fn id(files: &Files, generation: Generation) -> PartialId {
    PartialId {
        inode: generation.0,
        device: u64::try_from(files.data.number).unwrap_or(0),
        born: 0,
    }
}

/// A partial file open for writing.
pub(crate) struct RadosPartial {
    files: Arc<Files>,
    part: Part,
    size: AtomicU64,
    made: Made,
}

/// Returns the texts of the attributes of libradosstriper, in the order size, object size, stripe
/// unit, stripe count.
pub(crate) fn striper_texts(layout: &FileLayout, size: u64) -> [String; 4] {
    [
        size,
        layout.object_size,
        layout.stripe_unit,
        layout.stripe_count,
    ]
    .map(|one| one.to_string())
}

/// Returns the steps that set the attributes of libradosstriper.
pub(crate) fn striper_steps(texts: &[String; 4]) -> [Step<'_>; 4] {
    let names = [SIZE, OBJECT_SIZE, STRIPE_UNIT, STRIPE_COUNT];
    let mut pairs = names.into_iter().zip(texts);
    std::array::from_fn(|_| match pairs.next() {
        Some((name, text)) => Step::Set(name, text.as_bytes()),
        None => Step::Touch,
    })
}

impl Files {
    /// Returns the full name of the partial file `partial` of the file at `path`.
    pub(crate) fn beside(&self, path: &RelPath, partial: &Name) -> Result<Vec<u8>> {
        self.full(&folder_of(path).join(partial)?)
    }

    /// Creates a partial file.
    pub(crate) fn create(
        self: &Arc<Self>,
        path: &RelPath,
        partial: &Name,
        size: u64,
    ) -> Result<RadosPartial> {
        const OPERATION: &str = "create the partial file";
        let mut part = Part {
            path: path.clone(),
            full: self.full(path)?,
            partial: self.beside(path, partial)?,
            generation: Generation::random(),
            layout: self.url.layout,
            is_direct: false,
        };
        self.need_folder(path, OPERATION)?;
        if part.layout.objects(size) > 1 {
            let old = self.firsts(&[&part.full]).pop().unwrap_or(Ok(None));
            let old = self.about(old, OPERATION, path)?;
            let is_free =
                old.is_none_or(|old| Found::of(&old).is_some_and(|old| old.objects() == 1));
            part.is_direct = is_free && self.claim(&part)?;
        }
        let (generation, texts) = (part.generation.text(), striper_texts(&part.layout, size));
        let mut steps = vec![
            Step::CreateNew,
            Step::Truncate(part.layout.object_bytes(size, 0)),
            Step::Set(GENERATION, generation.as_bytes()),
            Step::Set(FINAL, &part.full),
            Step::Set(PLACE, if part.is_direct { DIRECT } else { STAGED }),
        ];
        steps.extend(striper_steps(&texts));
        let made = self.state.one(Job::write(part.state(), steps));
        if made.is_err() && part.is_direct {
            self.release_claim(&part);
        }
        self.about(made, OPERATION, path)?;
        Ok(RadosPartial::new(self, part, size))
    }

    /// Opens a partial file of an earlier run.
    pub(crate) fn reopen(
        self: &Arc<Self>,
        path: &RelPath,
        partial: &Name,
        id: PartialId,
    ) -> Result<RadosPartial> {
        const OPERATION: &str = "resume the file";
        let full = self.beside(path, partial)?;
        let got = self.state.one(Job::look(State::Partial.object(&full)));
        let got = self.about(got, OPERATION, path)?;
        let (part, size) = self.part_of(&got, path, full)?;
        if !part.id(self).is(&id) {
            return Err(self
                .error(ErrorKind::NotFound, OPERATION, path)
                .cause("another file already has the name of the partial file"));
        }
        Ok(RadosPartial::new(self, part, size))
    }

    /// Parses the attributes of a state object. Returns the partial file and its size.
    pub(crate) fn part_of(
        &self,
        got: &Got,
        path: &RelPath,
        partial: Vec<u8>,
    ) -> Result<(Part, u64)> {
        let found = Found::of(got);
        let (Some(found), Some(full)) = (found, got.attribute(FINAL)) else {
            return Err(self
                .error(ErrorKind::Io, "open the partial file", path)
                .cause("the partial file lacks some of its attributes"));
        };
        let generation = found.generation.unwrap_or(Generation(0));
        let part = Part {
            path: path.clone(),
            full: full.to_vec(),
            partial,
            generation,
            layout: found.layout,
            is_direct: got.attribute(PLACE) == Some(DIRECT),
        };
        Ok((part, found.size))
    }

    /// Claims the final name for the further objects of `part`. Returns false if another partial
    /// file that still exists holds the claim.
    pub(crate) fn claim(&self, part: &Part) -> Result<bool> {
        let object = State::Claim.object(&part.full);
        let generation = part.generation.text();
        let set = [
            Step::Set(GENERATION, generation.as_bytes()),
            Step::Set(HOLDER, &part.partial),
        ];
        let made = [&[Step::CreateNew], &set[..]].concat();
        match self.state.one(Job::write(object.clone(), made)) {
            Err(Errno::EXISTS) => {}
            made => return self.about(made, WRITE, &part.path).map(|_| true),
        }
        let Some(claim) = self.about(
            crate::files::absent(self.state.one(Job::look(object.clone()))),
            WRITE,
            &part.path,
        )?
        else {
            return Ok(false);
        };
        let of = claim.attribute(GENERATION).unwrap_or_default();
        if of == generation.as_bytes() {
            return Ok(true);
        }
        let holder = State::Partial.object(claim.attribute(HOLDER).unwrap_or_default());
        let query = Query {
            equals: Some((GENERATION, of)),
            ..Query::default()
        };
        match self.state.one(Job::read(holder, query)) {
            Ok(_) => return Ok(false),
            Err(Errno::NOT_FOUND | Errno::CANCELED) => {}
            Err(errno) => return Err(errno.at(self.end, WRITE, &part.path)),
        }
        // The holder does not exist any more, so take the claim, unless another writer is faster.
        let taken = [&[Step::Equals(GENERATION, of)], &set[..]].concat();
        match self.state.one(Job::write(object, taken)) {
            Err(Errno::CANCELED | Errno::NOT_FOUND) => Ok(false),
            taken => self.about(taken, WRITE, &part.path).map(|_| true),
        }
    }

    /// Deletes the claim on the file of `part`, if `part` holds the claim. If the deletion fails, the
    /// claim stays without a holder, and the next writer takes over the claim.
    pub(crate) fn release_claim(&self, part: &Part) {
        let generation = part.generation.text();
        let steps = vec![
            Step::Equals(GENERATION, generation.as_bytes()),
            Step::Remove,
        ];
        let _ = self
            .state
            .one(Job::write(State::Claim.object(&part.full), steps));
    }

    /// Writes to an object that has another generation, and gives the object the generation of
    /// `part`. Such an object is left from an abandoned transfer, or belongs to another transfer.
    /// If `part` is direct, fails unless `part` holds the claim.
    fn take_over(&self, part: &Part, number: u64, writes: &[Step<'_>]) -> Answer<Got> {
        let claim = State::Claim.object(&part.full);
        let generation = part.generation.text();
        let query = Query {
            equals: Some((GENERATION, generation.as_bytes())),
            ..Query::default()
        };
        if part.is_direct {
            self.state.one(Job::read(claim, query))?;
        }
        let object = part.object(number);
        let pool = part.pool(self);
        let got = pool.one(Job::look(object.clone()))?;
        let before = got.attribute(GENERATION).unwrap_or_default();
        let mut steps = match before.is_empty() {
            true => vec![Step::Exists],
            false => vec![Step::Equals(GENERATION, before)],
        };
        if before != generation.as_bytes() {
            steps.extend([
                Step::Remove,
                Step::Touch,
                Step::Set(GENERATION, generation.as_bytes()),
            ]);
        }
        steps.extend_from_slice(writes);
        pool.one(Job::write(object, steps))
    }
}

impl RadosPartial {
    fn new(files: &Arc<Files>, part: Part, size: u64) -> Self {
        Self {
            files: Arc::clone(files),
            part,
            size: AtomicU64::new(size),
            made: Made::default(),
        }
    }

    fn gone(&self) -> Error {
        self.files
            .error(ErrorKind::NotFound, WRITE, &self.part.path)
            .cause("the partial file was removed or replaced")
            .remedy("run the same command again")
    }

    fn error(&self, errno: Errno) -> Error {
        match errno {
            Errno::CANCELED | Errno::NOT_FOUND => self.gone(),
            _ => self.files.failed(errno, WRITE, &self.part.path),
        }
    }

    /// Executes writes, given for each object with the offsets in it.
    fn write(&self, writes: &BTreeMap<u64, Vec<Step<'_>>>) -> Result<()> {
        let generation = self.part.generation.text();
        let (mut now, mut later) = (Vec::new(), Vec::new());
        for (number, steps) in writes.iter().filter(|(number, _)| **number > 0) {
            match self.made.begin(*number) {
                Before::Begun => later.push((*number, steps)),
                before => now.push((*number, steps.as_slice(), before)),
            }
        }
        self.write_further(&now)?;
        for (number, steps) in later {
            let before = self.made.wait(number);
            self.write_further(&[(number, steps, before)])?;
        }
        if let Some(steps) = writes.get(&0) {
            let steps = guarded(Before::Made, steps, generation.as_bytes());
            let state = self.part.state();
            let osd = self.files.state_osd(&state);
            self.files
                .state
                .one(Job::write(state, steps).on(osd))
                .map_err(|errno| self.error(errno))?;
        }
        Ok(())
    }

    /// Writes to further objects, and creates those that are [`Before::Missing`].
    fn write_further(&self, writes: &[(u64, &[Step<'_>], Before)]) -> Result<()> {
        let generation = self.part.generation.text();
        let jobs = writes.iter().map(|(number, steps, before)| {
            self.job(*number, guarded(*before, steps, generation.as_bytes()))
        });
        let answers = self.part.pool(&self.files).run(jobs.collect());
        let mut result = Ok(());
        for ((number, steps, before), answer) in writes.iter().zip(answers) {
            let answer = match (answer, before) {
                // The object is left from an earlier run.
                (Err(Errno::EXISTS), Before::Missing) => {
                    let steps = guarded(Before::Made, steps, generation.as_bytes());
                    self.part.pool(&self.files).one(self.job(*number, steps))
                }
                (answer, _) => answer,
            };
            let answer = match answer {
                Err(Errno::CANCELED) => self.files.take_over(&self.part, *number, steps),
                other => other,
            };
            if *before == Before::Missing {
                self.made.end(*number, answer.is_ok());
            }
            result = result.and(answer.map(drop));
        }
        result.map_err(|errno| self.error(errno))
    }

    fn job<'a>(&self, number: u64, steps: Vec<Step<'a>>) -> Job<'a> {
        let object = self.part.object(number);
        let osd = match self.part.is_direct {
            true => self.files.osd(&object),
            false => self.files.state_osd(&object),
        };
        Job::write(object, steps).on(osd)
    }
}

/// A partial file open for reading. A sink reads back the data of an earlier run.
pub(crate) struct PartialReader {
    partial: RadosPartial,
    state: ReadState,
}

impl Files {
    /// Opens the partial file at its own path for reading. Returns `None` if it does not exist.
    pub(crate) fn read_partial(
        self: &Arc<Self>,
        path: &RelPath,
        modified: ModifiedTime,
    ) -> Result<Option<PartialReader>> {
        let full = self.full(path)?;
        let got = self.about(self.state_of(&full), "open the partial file", path)?;
        let Some(got) = got else {
            return Ok(None);
        };
        let (part, size) = self.part_of(&got, path, full)?;
        Ok(Some(PartialReader {
            partial: RadosPartial::new(self, part, size),
            state: ReadState { size, modified },
        }))
    }
}

impl ReadHandle for PartialReader {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.partial.read_at(offset, buffer)
    }

    fn state(&self) -> Result<ReadState> {
        Ok(self.state)
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let size = self.state.size;
        Ok((offset < size).then(|| ByteRange::between(offset, size)))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        Ok(None)
    }
}

impl Partial for RadosPartial {
    fn id(&self) -> PartialId {
        self.part.id(&self.files)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if bytes.is_empty() {
            return Ok(());
        }
        let mut writes: BTreeMap<u64, Vec<Step<'_>>> = BTreeMap::new();
        for piece in self.part.layout.pieces(ByteRange::between(offset, end)) {
            let start = usize::try_from(piece.range.offset - offset).unwrap_or(usize::MAX);
            let length = usize::try_from(piece.range.length).unwrap_or(usize::MAX);
            let data = bytes
                .get(start..start.saturating_add(length))
                .unwrap_or_default();
            let step = Step::Write(piece.offset, data);
            writes.entry(piece.object).or_default().push(step);
        }
        self.write(&writes)?;
        self.size.fetch_max(end, Ordering::SeqCst);
        Ok(())
    }

    fn layout(&self) -> Option<Layout> {
        let size = self.size.load(Ordering::SeqCst);
        Some(self.files.layout_of_part(&self.part, size))
    }

    fn punch_hole(&self, range: ByteRange) -> Result<()> {
        let zeros = vec![0; usize::try_from(range.length.min(ZEROS_BYTES)).unwrap_or(0)];
        let mut at = range.offset;
        while at < range.end() {
            let length = (range.end() - at).min(ZEROS_BYTES);
            self.write_at(at, &zeros[..usize::try_from(length).unwrap_or(zeros.len())])?;
            at += length;
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let size = self.size.load(Ordering::SeqCst);
        let end = size.min(offset.saturating_add(buffer.len() as u64));
        if offset >= end {
            return Ok(0);
        }
        let count = usize::try_from(end - offset).unwrap_or(usize::MAX);
        // Bytes that were not written are zeros, and the library fills only bytes that exist.
        buffer[..count].fill(0);
        let pieces = self.part.layout.pieces(ByteRange::between(offset, end));
        let parts = split(buffer, pieces.iter().map(|piece| piece.range.length));
        let generation = self.part.generation.text();
        for (piece, part) in pieces.iter().zip(parts) {
            let query = Query {
                equals: Some((GENERATION, generation.as_bytes())),
                data: Some((piece.offset, part)),
                ..Query::default()
            };
            let (pool, object) = match piece.object {
                0 => (&*self.files.state, self.part.state()),
                number => (self.part.pool(&self.files), self.part.object(number)),
            };
            let job = Job {
                object,
                osd: None,
                action: Action::Read(query),
                time: None,
            };
            match pool.one(job) {
                Ok(_) => {}
                Err(Errno::NOT_FOUND | Errno::CANCELED) if piece.object > 0 => {}
                Err(errno) => return Err(self.error(errno)),
            }
        }
        Ok(count)
    }

    fn set_len(&self, size_bytes: u64) -> Result<()> {
        let before = self.size.load(Ordering::SeqCst);
        let layout = &self.part.layout;
        let mut writes: BTreeMap<u64, Vec<Step<'_>>> = BTreeMap::new();
        for number in 1..layout.objects(before).min(layout.objects(size_bytes)) {
            let length = layout.object_bytes(size_bytes, number);
            if length < layout.object_bytes(before, number) {
                writes.insert(number, vec![Step::Truncate(length)]);
            }
        }
        let texts = striper_texts(layout, size_bytes);
        let mut first = vec![Step::Truncate(layout.object_bytes(size_bytes, 0))];
        first.extend(striper_steps(&texts));
        writes.insert(0, first);
        self.write(&writes)?;
        let beyond = layout.objects(size_bytes)..layout.objects(before);
        self.files.remove_objects(&self.part, beyond.clone())?;
        self.made.forget(&beyond);
        self.size.store(size_bytes, Ordering::SeqCst);
        Ok(())
    }

    /// Does nothing, because an answered write is durable. Publishing checks that all objects exist.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn publish(&self, how: Publish, attributes: &Attributes<'_>) -> Result<()> {
        let size = self.size.load(Ordering::SeqCst);
        self.files.publish(&self.part, size, how, Some(attributes))
    }

    fn abort(&self) -> Result<()> {
        self.files
            .discard_part(&self.part, self.size.load(Ordering::SeqCst))
    }
}
