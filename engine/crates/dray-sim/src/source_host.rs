//! The host of the source. It lists and reads files, and holds the buffers.

use crate::workload::{Source, SourceFile, Tree};
use dray_core::{BufferId, ByteRange, End, Error, ErrorKind, FileIndex, Result, Sums};
use dray_session::source::{Input, Listed, ReadOutcome, ReadPart};
use dray_wire::message::{Segment, SegmentKind};
use std::collections::{BTreeSet, VecDeque};

/// Failures that the next read returns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trouble {
    /// The read fails with a temporary error.
    pub error: bool,
    /// The read returns fewer bytes than requested.
    pub short: bool,
}

/// The source's host.
#[derive(Debug)]
pub struct SourceHost {
    listing: VecDeque<Listed>,
    /// Contents of the buffers of the pool.
    pub buffers: Vec<Vec<u8>>,
    /// Buffers that the machine is using.
    pub in_use: BTreeSet<BufferId>,
    /// Failures to return.
    pub trouble: Trouble,
    segments_max: usize,
}

impl SourceHost {
    /// Creates a host that lists the present tree.
    #[must_use]
    pub fn new(tree: &Tree, buffers: u32, segments_max: u32) -> Self {
        Self {
            listing: tree.list().into(),
            buffers: vec![Vec::new(); buffers as usize],
            in_use: BTreeSet::new(),
            trouble: Trouble::default(),
            segments_max: segments_max as usize,
        }
    }

    /// Returns the next `max` entries of the listing.
    pub fn list(&mut self, max: u32) -> Input {
        let count = self.listing.len().min(max as usize);
        Input::Listed {
            entries: self.listing.drain(..count).collect(),
            failed: Vec::new(),
            finished: self.listing.is_empty(),
        }
    }

    /// Reads the parts into a buffer.
    pub fn read(&mut self, tree: &Tree, buffer: BufferId, parts: &[ReadPart]) -> ReadOutcome {
        let mut outcome = ReadOutcome::default();
        let mut bytes = Vec::new();
        let spare = self.segments_max / parts.len().max(1);
        for part in parts {
            match self.read_part(tree, part) {
                Err(error) => outcome.failed.push((part.file, error)),
                Ok(file) => {
                    if let (true, 1, Some(hole)) = (
                        part.sparse,
                        parts.len(),
                        file.holes.run_from(part.range.offset),
                    ) && hole.offset <= part.range.offset
                        && hole.end() >= part.range.end()
                    {
                        outcome.hole_until = Some(hole.end());
                    }
                    let segments = segments(file, part, spare);
                    for segment in segments {
                        if segment.kind != SegmentKind::Hole {
                            bytes.extend_from_slice(content(&file.bytes, segment.range));
                        }
                        outcome.segments.push(segment);
                    }
                }
            }
        }
        self.buffers[buffer.0 as usize] = bytes;
        outcome
    }

    fn read_part<'t>(&mut self, tree: &'t Tree, part: &ReadPart) -> Result<&'t SourceFile> {
        let failed = |kind| {
            Err(Error::new(kind, End::Source, "read the file")
                .file(&part.path)
                .cause("simulated"))
        };
        if std::mem::take(&mut self.trouble.error) {
            return failed(ErrorKind::Io);
        }
        if std::mem::take(&mut self.trouble.short) {
            return failed(ErrorKind::ShortRead);
        }
        match tree.entries.get(&part.path) {
            Some(Source::File(file))
                if file.bytes.len() as u64 == part.size && file.modified == part.modified =>
            {
                Ok(file)
            }
            Some(_) => failed(ErrorKind::SourceChanged),
            None => failed(ErrorKind::NotFound),
        }
    }
}

fn content(bytes: &[u8], range: ByteRange) -> &[u8] {
    &bytes[range.offset as usize..range.end() as usize]
}

/// Returns the data and holes of a part in order. If there are too many segments, holes are sent as
/// data.
fn segments(file: &SourceFile, part: &ReadPart, segments_max: usize) -> Vec<Segment> {
    let index: FileIndex = part.file;
    let data = |range: ByteRange| Segment {
        file: index,
        range,
        kind: SegmentKind::Data(Sums::of(content(&file.bytes, range))),
    };
    let mut found = Vec::new();
    let mut at = part.range.offset;
    while part.sparse && at < part.range.end() {
        let Some(hole) = file.holes.run_from(at) else {
            break;
        };
        let hole = hole.intersection(&part.range);
        if hole.is_empty() {
            break;
        }
        if hole.offset > at {
            found.push(data(ByteRange::between(at, hole.offset)));
        }
        found.push(Segment {
            file: index,
            range: hole,
            kind: SegmentKind::Hole,
        });
        at = hole.end();
    }
    if at < part.range.end() {
        found.push(data(ByteRange::between(at, part.range.end())));
    }
    if found.len() > segments_max.max(1) {
        return vec![data(part.range)];
    }
    found
}
