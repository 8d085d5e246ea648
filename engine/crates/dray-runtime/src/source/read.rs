//! The readers: fill a buffer, compute its checksums while the bytes are in the processor's cache,
//! and detect holes and changed files.

use crate::target_pools::Worker;
use crossbeam_channel::Sender;
use dray_core::checksum::Summer;
use dray_core::lock::LockExt;
use dray_core::{BlockId, BufferId, ByteRange, End, Error, ErrorKind, Result};
use dray_link::extent::Extent;
use dray_link::link::SourceEvent;
use dray_link::origin::Origin;
use dray_link::pool::{PIECE_BYTES, Pool};
use dray_session::source::{Input, ReadOutcome, ReadPart};
use dray_store::{InodeState, Noted, ReadHandle, ReadState};
use dray_wire::message::{Segment, SegmentKind};
use std::sync::Arc;

/// Maximum number of segments of an object, if both ends agreed on that many. The last segment
/// contains all remaining bytes of the object, with holes as zeros.
const SEGMENTS_MAX: usize = 1024;

/// Minimum size in bytes of a hole that gets a segment. The zeros of a shorter hole are sent as
/// data.
const HOLE_MIN: u64 = 16 * 1024;

pub(super) struct ReadJobPart {
    pub(super) origin: Arc<Origin>,
    pub(super) part: ReadPart,
}

pub(super) struct ReadJob {
    pub(super) block: BlockId,
    pub(super) buffer: BufferId,
    pub(super) parts: Vec<ReadJobPart>,
}

/// Executes read jobs in one reader thread. Returns when the executor has ended, or when the target
/// has too many readers. `segments_agreed` is the maximum number of segments of a block to which
/// both ends agreed.
pub(super) fn run(
    jobs: &Worker<ReadJob>,
    pool: &Pool,
    segments_agreed: usize,
    events: &Sender<SourceEvent>,
) {
    let segments_max = SEGMENTS_MAX.min(segments_agreed);
    while let Some(job) = jobs.next() {
        let mut outcome = jobs.work(|| match pool.buffer(job.buffer) {
            Some(mut buffer) => {
                let (outcome, extent) = read(&job.parts, buffer.bytes_mut(), segments_max);
                buffer.extent = extent;
                outcome
            }
            None => ReadOutcome::default(),
        });
        outcome.enough = jobs.enough();
        let input = Input::ReadDone {
            block: job.block,
            outcome,
        };
        if events.send(SourceEvent::Input(input)).is_err() {
            return;
        }
    }
}

fn read(
    parts: &[ReadJobPart],
    buffer: &mut [u8],
    segments_max: usize,
) -> (ReadOutcome, Option<Extent>) {
    let mut outcome = ReadOutcome::default();
    let mut extent = None;
    let mut used = 0;
    // In a pack of several files, each file has a single segment.
    let segments_max = if parts.len() == 1 { segments_max } else { 1 };
    for ReadJobPart { origin, part } in parts {
        let room = buffer.get_mut(used..).unwrap_or_default();
        match read_part(origin, part, room, segments_max) {
            Ok(PartRead::Segments(segments, lies)) => {
                extent = lies.filter(|_| parts.len() == 1);
                used += segments
                    .iter()
                    .filter(|segment| segment.kind != SegmentKind::Hole)
                    .map(|segment| segment.range.length as usize)
                    .sum::<usize>();
                outcome.segments.extend(segments);
            }
            Ok(PartRead::HoleUntil(end)) => outcome.hole_until = Some(end),
            Err(error) => {
                let error = error.at(End::Source);
                let error = error.file_copied_as(&part.path, &origin.top);
                outcome.failed.push((part.file, error));
            }
        }
    }
    (outcome, extent)
}

enum PartRead {
    /// The segments that were read. If the part is a single run of data whose blocks a copy may
    /// share, also the location of this run in the source file.
    Segments(Vec<Segment>, Option<Extent>),
    HoleUntil(u64),
}

fn read_part(
    origin: &Origin,
    part: &ReadPart,
    buffer: &mut [u8],
    segments_max: usize,
) -> Result<PartRead> {
    origin.with_handle(is_whole(part), |handle| {
        read_from(handle, origin, part, buffer, segments_max)
    })
}

/// Returns true if the part covers its whole file.
const fn is_whole(part: &ReadPart) -> bool {
    part.range.length == part.size
}

fn read_from(
    handle: &Arc<dyn ReadHandle>,
    origin: &Origin,
    part: &ReadPart,
    buffer: &mut [u8],
    segments_max: usize,
) -> Result<PartRead> {
    note_before(handle.as_ref(), origin)?;
    let mut segments = Vec::with_capacity(1);
    let mut used = 0usize;
    let mut at = part.range.offset;
    while at < part.range.end() {
        let rest = ByteRange::between(at, part.range.end());
        // Stop looking for holes when only one segment is left for the remaining bytes.
        let look_for_holes = segments.len() + 2 <= segments_max;
        let (data, hole) = next_run(handle.as_ref(), origin, part, rest, look_for_holes)?;
        if let Some(end) = hole {
            let whole_part = at == part.range.offset && end >= part.range.end();
            if whole_part {
                check_unchanged(handle.as_ref(), origin, part)?;
                return Ok(PartRead::HoleUntil(end.min(part.size)));
            }
            let range = ByteRange::between(at, end.min(part.range.end()));
            segments.push(Segment {
                file: part.file,
                range,
                kind: SegmentKind::Hole,
            });
            at = range.end();
            continue;
        }
        let length = data.length as usize;
        let Some(room) = buffer.get_mut(used..used + length) else {
            return Err(
                Error::new(ErrorKind::Internal, End::Source, "read the file")
                    .cause("the object is larger than its buffer"),
            );
        };
        let mut summer = Summer::new();
        fill(
            handle.as_ref(),
            origin.offset + data.offset,
            room,
            &mut summer,
        )?;
        let kind = SegmentKind::Data(summer.finish());
        segments.push(Segment {
            file: part.file,
            range: data,
            kind,
        });
        used += length;
        at = data.end();
    }
    let state = check_unchanged(handle.as_ref(), origin, part)?;
    let extent = match segments.as_slice() {
        // A part that covers its whole file is read with a handle that only this read uses. Such a
        // handle was not prepared for sharing ([`ReadHandle::settle`]), so the blocks of its file
        // cannot be shared.
        [run] if origin.is_shared && !is_whole(part) && run.kind != SegmentKind::Hole => {
            Extent::of(handle, origin.offset + run.range.offset, state)
        }
        _ => None,
    };
    Ok(PartRead::Segments(segments, extent))
}

/// Finds the next run in `rest`: either data, or a hole that ends at the returned offset.
fn next_run(
    handle: &dyn ReadHandle,
    origin: &Origin,
    part: &ReadPart,
    rest: ByteRange,
    look_for_holes: bool,
) -> Result<(ByteRange, Option<u64>)> {
    if !part.sparse || !look_for_holes {
        return Ok((rest, None));
    }
    let found = handle.next_data(origin.offset + rest.offset)?;
    let start = found.map_or(part.size, |run| run.offset.saturating_sub(origin.offset));
    if start >= rest.end() || start - rest.offset >= HOLE_MIN {
        return Ok((rest, Some(start)));
    }
    // The run is data, up to the next hole of at least `HOLE_MIN` bytes.
    let mut end = found.map_or(rest.end(), |run| run.end().saturating_sub(origin.offset));
    while end < rest.end() {
        let next = handle.next_data(origin.offset + end)?;
        let next_start = next.map_or(part.size, |run| run.offset.saturating_sub(origin.offset));
        if next_start.min(rest.end()) - end >= HOLE_MIN {
            break;
        }
        end = next.map_or(rest.end(), |run| run.end().saturating_sub(origin.offset));
    }
    Ok((ByteRange::between(rest.offset, end.min(rest.end())), None))
}

fn fill(
    handle: &dyn ReadHandle,
    offset: u64,
    buffer: &mut [u8],
    summer: &mut Summer,
) -> Result<()> {
    let mut at = offset;
    let piece_bytes = match handle.is_direct() {
        true => buffer.len().max(1),
        false => PIECE_BYTES,
    };
    for piece in buffer.chunks_mut(piece_bytes) {
        let mut filled = 0;
        while filled < piece.len() {
            let got = handle.read_at(at + filled as u64, &mut piece[filled..])?;
            if got == 0 {
                return Err(
                    Error::new(ErrorKind::ShortRead, End::Source, "read the file")
                        .cause(format!("the file ends at byte {}", at + filled as u64))
                        .remedy(
                            "run the same command again when no program writes to the file; \
                                exclude files that report a wrong size, as in /sys (--exclude)",
                        ),
                );
            }
            filled += got;
        }
        summer.update(piece);
        at += piece.len() as u64;
    }
    Ok(())
}

/// Records the state of the file before its first read. Each later read compares the file with this
/// record.
fn note_before(handle: &dyn ReadHandle, origin: &Origin) -> Result<()> {
    let mut noted = origin.noted.lock_unpoisoned();
    if noted.is_none() {
        *noted = handle.noted()?;
    }
    Ok(())
}

/// Returns true if a program may have changed the content and then restored the modification time.
fn is_rewritten(handle: &dyn ReadHandle, origin: &Origin, now: Option<InodeState>) -> Result<bool> {
    let mut noted = origin.noted.lock_unpoisoned();
    let (Some(before), Some(inode)) = (*noted, now) else {
        return Ok(false);
    };
    if !inode.may_differ_from(&before.inode) {
        *noted = Some(Noted { inode, ..before });
        return Ok(false);
    }
    let now = handle.noted()?;
    if now.is_none_or(|now| now.attributes == before.attributes) {
        return Ok(true);
    }
    *noted = now;
    Ok(false)
}

fn check_unchanged(handle: &dyn ReadHandle, origin: &Origin, part: &ReadPart) -> Result<ReadState> {
    let (now, inode) = handle.full_state()?;
    let is_listed = now.size == origin.listed.size && now.modified == part.modified;
    if is_listed && !is_rewritten(handle, origin, inode)? {
        return Ok(now);
    }
    let cause = if is_listed {
        "the inode of the file changed during the read, although the modification time did not"
            .to_owned()
    } else if now.size == origin.listed.size {
        "the modification time of the file changed after it was listed".to_owned()
    } else {
        format!(
            "the file now has {} bytes, but had {} bytes when it was listed",
            now.size, origin.listed.size
        )
    };
    Err(
        Error::new(ErrorKind::SourceChanged, End::Source, "read the file")
            .cause(cause)
            .remedy("run the same command again when no program writes to the file"),
    )
}
