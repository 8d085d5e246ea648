//! The writers: put the parts of an object where they belong.

use crate::link::SinkEvent;
use crate::pool::Pool;
use crate::sink::files::Space;
use crate::sink::handles::OpenFile;
use crossbeam_channel::{Receiver, Sender};
use dray_core::{BufferId, End, Error, ErrorKind, Result};
use dray_session::sink::{BlockKey, Input, WritePart};
use std::sync::Arc;

pub(super) struct WriteJobPart {
    pub(super) part: WritePart,
    /// The prepared partial file; none for a small file, or one that was closed meanwhile.
    pub(super) open: Option<Arc<OpenFile>>,
}

pub(super) struct WriteJob {
    pub(super) block: BlockKey,
    pub(super) buffer: Option<BufferId>,
    pub(super) parts: Vec<WriteJobPart>,
}

/// Writes until the conductor is gone.
pub(super) fn run(
    jobs: &Receiver<WriteJob>,
    pool: &Pool,
    space: &Space,
    events: &Sender<SinkEvent>,
) {
    for job in jobs {
        if let Err(error) = space.check_lease() {
            let _ = events.send(SinkEvent::Input(Input::LeaseLost(error)));
            continue;
        }
        let buffer = job.buffer.and_then(|id| pool.buffer(id));
        let bytes = buffer.as_ref().map_or(&[][..], |buffer| buffer.bytes());
        let results = write(&job.parts, bytes, space);
        drop(buffer);
        let input = Input::Written(job.block, results);
        if events.send(SinkEvent::Input(input)).is_err() {
            return;
        }
    }
}

fn write(parts: &[WriteJobPart], bytes: &[u8], space: &Space) -> Vec<Result<()>> {
    let mut used = 0usize;
    let mut results = Vec::with_capacity(parts.len());
    for WriteJobPart { part, open } in parts {
        let length = if part.hole {
            0
        } else {
            part.range.length as usize
        };
        let data = bytes.get(used..used + length);
        used += length;
        results.push(match data {
            Some(data) => write_part(part, open.as_ref(), data, space),
            None => Err(
                Error::new(ErrorKind::Internal, End::Sink, "write the object")
                    .cause("its parts are longer than its payload"),
            ),
        });
    }
    results
}

fn write_part(
    part: &WritePart,
    open: Option<&Arc<OpenFile>>,
    data: &[u8],
    space: &Space,
) -> Result<()> {
    match (&part.small, open) {
        (Some((path, metadata)), _) => space.write_small(path, data, metadata),
        (None, Some(open)) if part.hole => space.punch(open, part.range),
        (None, Some(open)) => space.write_at(open, part.range.offset, data),
        (None, None) => Err(
            Error::new(ErrorKind::Cancelled, End::Sink, "write the object")
                .cause("its file was closed meanwhile"),
        ),
    }
}
