//! The writers: write the parts of an object to their files.

use crate::sink::file_lock::FileLocks;
use crate::sink::files::Space;
use crate::sink::small_batch::NewSmall;
use crate::sink::tasks::fenced;
use crate::target_pools::Worker;
use crossbeam_channel::Sender;
use dray_core::maps::HashMap;
use dray_core::{BufferId, ByteRange, End, Error, ErrorKind, FileIndex, Result};
use dray_link::extent::Extent;
use dray_link::link::SinkEvent;
use dray_link::open_file::OpenFile;
use dray_link::pool::Pool;
use dray_session::sink::{BlockKey, Input, WritePart};
use std::borrow::Cow;
use std::sync::Arc;

pub(super) struct WriteJobPart {
    pub(super) part: WritePart,
    /// The prepared partial file; `None` for a small file, and for a file that was closed in the
    /// meantime.
    pub(super) open: Option<Arc<OpenFile>>,
}

pub(super) struct WriteJob {
    pub(super) block: BlockKey,
    pub(super) buffer: Option<BufferId>,
    pub(super) parts: Vec<WriteJobPart>,
}

impl WriteJob {
    /// Returns the index of the file to lock. Returns `None` if the store can execute several
    /// writes to the file at a time.
    fn in_turn(&self) -> Option<FileIndex> {
        match self.parts.as_slice() {
            [
                WriteJobPart {
                    part,
                    open: Some(open),
                },
                ..,
            ] if open.takes_one_writer => Some(part.file),
            _ => None,
        }
    }
}

/// Writes until the executor has ended, or until the target has too many writers. All writers of
/// one target use the same file locks.
pub(super) fn run(
    jobs: &Worker<WriteJob>,
    turns: &FileLocks<FileIndex, WriteJob>,
    pool: &Pool,
    space: &Space,
    events: &Sender<SinkEvent>,
) {
    while let Some(job) = jobs.next() {
        let Some(file) = job.in_turn() else {
            if !jobs.work(|| do_one(&job, pool, space, events)) {
                return;
            }
            continue;
        };
        let mut next = turns.begin(file, job);
        while let Some(job) = next {
            if !jobs.work(|| do_one(&job, pool, space, events)) {
                return;
            }
            next = turns.next(&file);
        }
    }
}

/// Writes one object and reports the result. Returns false if the executor has ended.
fn do_one(job: &WriteJob, pool: &Pool, space: &Space, events: &Sender<SinkEvent>) -> bool {
    let input = match space.check_lease_often() {
        Err(error) => Input::LeaseLost(error),
        Ok(()) => {
            let mut buffer = job.buffer.and_then(|id| pool.buffer(id));
            let extent = buffer.as_mut().and_then(|buffer| buffer.extent.take());
            let bytes = buffer.as_ref().map_or(&[][..], |buffer| buffer.bytes());
            let results = match shared(&job.parts, extent.as_ref(), space) {
                Some(Err(error)) => vec![Err(error)],
                Some(Ok(true)) => vec![Ok(())],
                Some(Ok(false)) | None => write(&job.parts, bytes, space),
            };
            drop(buffer);
            let results: Result<_> = results.into_iter().map(fenced).collect();
            let written = |results| Input::Written(job.block, results);
            results.map_or_else(Input::LeaseLost, written)
        }
    };
    events.send(SinkEvent::Input(input)).is_ok()
}

/// Fills a range of a partial file by sharing blocks with the source file. Returns `None` if the
/// object is not one range of one large file, and `Some(Ok(false))` if the range must be written.
fn shared(parts: &[WriteJobPart], extent: Option<&Extent>, space: &Space) -> Option<Result<bool>> {
    match (parts, extent) {
        (
            [
                WriteJobPart {
                    part,
                    open: Some(open),
                },
            ],
            Some(extent),
        ) if part.small.is_none() && !part.hole => Some(space.share(open, part.range, extent)),
        _ => None,
    }
}

/// One part of a large file, or all parts of one small file, with the data. The data is `None` if
/// the payload is too short.
type Piece<'a> = (&'a [WriteJobPart], Option<&'a [u8]>);

fn cut<'a>(parts: &'a [WriteJobPart], bytes: &'a [u8]) -> Vec<Piece<'a>> {
    let mut rest = bytes;
    let of_one_small = |before: &WriteJobPart, after: &WriteJobPart| {
        before.part.small.is_some() && before.part.file == after.part.file
    };
    let cut = parts.chunk_by(of_one_small).map(|piece| {
        let data = piece.iter().filter(|part| !part.part.hole);
        let length = data.map(|part| part.part.range.length as usize).sum();
        let found = rest.split_at_checked(length);
        if let Some((_, behind)) = found {
            rest = behind;
        }
        (piece, found.map(|(data, _)| data))
    });
    cut.collect()
}

fn write(parts: &[WriteJobPart], bytes: &[u8], space: &Space) -> Vec<Result<()>> {
    let pieces = cut(parts, bytes);
    let mut together = match space.takes_many() {
        true => write_together(&pieces, space),
        false => HashMap::default(),
    };
    let mut results = Vec::with_capacity(parts.len());
    for (number, (piece, data)) in pieces.into_iter().enumerate() {
        let result = match (together.remove(&number), data) {
            (Some(result), _) => result,
            (None, Some(data)) => write_piece(piece, data, space),
            (None, None) => Err(defect(
                "the parts of the object are longer than its payload",
            )),
        };
        results.extend(std::iter::repeat_n(result, piece.len()));
    }
    results
}

/// Writes the small files among the pieces in one batch. The result maps the index of each piece to
/// its outcome.
fn write_together(pieces: &[Piece<'_>], space: &Space) -> HashMap<usize, Result<()>> {
    let small = pieces
        .iter()
        .enumerate()
        .filter_map(|(number, (piece, data))| {
            let (WriteJobPart { part, .. }, data) = (piece.first()?, (*data)?);
            let (path, metadata) = part.small.as_ref()?;
            let (content, holes) = match piece.len() == 1 && !part.hole {
                true => (Cow::Borrowed(data), Vec::new()),
                // If the parts of a small file are not contiguous, leave the file to the write of a
                // single file, which reports the error.
                false => gather(piece, data)
                    .map(|(content, holes)| (Cow::Owned(content), holes))
                    .ok()?,
            };
            let new = NewSmall {
                path,
                content,
                holes,
                metadata,
            };
            Some((number, new))
        });
    let (numbers, files): (Vec<usize>, Vec<NewSmall<'_>>) = small.unzip();
    let written = space.write_small_many(&files);
    numbers.into_iter().zip(written).collect()
}

/// Writes one part of a large file, or all parts of one small file.
fn write_piece(piece: &[WriteJobPart], data: &[u8], space: &Space) -> Result<()> {
    let [WriteJobPart { part, open }, others @ ..] = piece else {
        return Ok(());
    };
    match (&part.small, open) {
        (Some((path, metadata)), _) if others.is_empty() && !part.hole => {
            space.write_small(path, data, &[], metadata)
        }
        (Some((path, metadata)), _) => {
            let (content, holes) = gather(piece, data)?;
            space.write_small(path, &content, &holes, metadata)
        }
        (None, Some(open)) if part.hole => space.punch(open, part.range),
        (None, Some(open)) => space.write_at(open, part.range.offset, data),
        (None, None) => Err(
            Error::new(ErrorKind::Cancelled, End::Sink, "write the object")
                .cause("the file was closed before the write"),
        ),
    }
}

/// Assembles the content of a small file from data and holes. Returns the content and the ranges of
/// the holes.
fn gather(piece: &[WriteJobPart], mut data: &[u8]) -> Result<(Vec<u8>, Vec<ByteRange>)> {
    let mut content = Vec::new();
    let mut holes: Vec<ByteRange> = Vec::new();
    for WriteJobPart { part, .. } in piece {
        if part.range.offset != content.len() as u64 {
            return Err(defect("the parts of a small file are not contiguous"));
        }
        let length = part.range.length as usize;
        if part.hole {
            content.resize(content.len() + length, 0);
            match holes.last_mut() {
                Some(last) if last.end() == part.range.offset => last.length += part.range.length,
                _ => holes.push(part.range),
            }
        } else if let Some((own, behind)) = data.split_at_checked(length) {
            content.extend_from_slice(own);
            data = behind;
        }
    }
    Ok((content, holes))
}

fn defect(cause: &str) -> Error {
    Error::new(ErrorKind::Internal, End::Sink, "write the object").cause(cause)
}
