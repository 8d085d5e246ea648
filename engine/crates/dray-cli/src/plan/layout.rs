//! `dray plan --layout`: shows the source target and the sink target of each range of a file.

use crate::output;
use crate::units::human;
use dray_core::layout::Runs;
use dray_core::{ByteRange, Layout, RangeSet, RelPath, TargetId};
use dray_store::Store;
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;

/// The names of a store's targets. A store may find further targets while it lists files.
pub(super) struct Names {
    store: Arc<dyn Store>,
    known: RefCell<BTreeMap<TargetId, String>>,
}

impl Names {
    pub(super) fn of(store: &Arc<dyn Store>) -> Self {
        Self {
            store: Arc::clone(store),
            known: RefCell::default(),
        }
    }

    pub(super) fn name(&self, target: TargetId) -> String {
        if let Some(name) = self.known.borrow().get(&target) {
            return name.clone();
        }
        let targets = self.store.targets().into_iter();
        let mut known = self.known.borrow_mut();
        known.extend(targets.map(|target| (target.id, target.name)));
        let name = known.get(&target).cloned();
        name.unwrap_or_else(|| target.to_string())
    }
}

/// A range of a file on one target of each end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) range: ByteRange,
    pub(super) source: TargetId,
    pub(super) sink: TargetId,
}

/// Iterator over the ranges of a file, each with its source target and its sink target.
/// Neighbouring ranges with the same two targets are joined.
pub(super) struct Placing<'a> {
    source: Peekable<Runs<'a>>,
    sink: Peekable<Runs<'a>>,
    next: Option<Placed>,
}

impl<'a> Placing<'a> {
    pub(super) fn of(source: &'a Layout, sink: &'a Layout, range: ByteRange) -> Self {
        Self {
            source: source.runs(range).peekable(),
            sink: sink.runs(range).peekable(),
            next: None,
        }
    }

    /// Returns the next range that ends at a border of either end, or at the end of the file.
    fn piece(&mut self) -> Option<Placed> {
        let (source, sink) = (*self.source.peek()?, *self.sink.peek()?);
        let range = source.0.intersection(&sink.0);
        if source.0.end() == range.end() {
            self.source.next();
        }
        if sink.0.end() == range.end() {
            self.sink.next();
        }
        Some(Placed {
            range,
            source: source.1,
            sink: sink.1,
        })
    }
}

impl Iterator for Placing<'_> {
    type Item = Placed;

    fn next(&mut self) -> Option<Placed> {
        let mut found = self.next.take().or_else(|| self.piece())?;
        while let Some(piece) = self.piece() {
            if (piece.source, piece.sink) != (found.source, found.sink) {
                self.next = Some(piece);
                break;
            }
            found.range = ByteRange::between(found.range.offset, piece.range.end());
        }
        Some(found)
    }
}

/// Prints the ranges of a file that must be sent: for each range one line of text or one JSON
/// object.
pub(super) fn show(
    path: &RelPath,
    wanted: &RangeSet,
    (source, from): (&Layout, &Names),
    (sink, to): (&Layout, &Names),
    is_json: bool,
) {
    for run in wanted.iter() {
        for placed in Placing::of(source, sink, run) {
            let range = placed.range;
            let (source, sink) = (from.name(placed.source), to.name(placed.sink));
            if is_json {
                let line = json!({
                    "event": "range",
                    "path": path.to_string(),
                    "offset": range.offset,
                    "length": range.length,
                    "source_target": source,
                    "sink_target": sink,
                });
                output::result(&line.to_string());
            } else {
                let bytes = human(range.length);
                let offset = range.offset;
                output::result(&format!(
                    "        {offset:>16} {bytes:>10}  {source} -> {sink}"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Placed, Placing};
    use dray_core::{ByteRange, Layout, TargetId};

    #[test]
    fn ranges_end_at_borders_of_either_end_and_are_joined() {
        let source = Layout::Striped {
            stripe_bytes: 4,
            targets: [0, 0, 1].map(TargetId).to_vec(),
        };
        let sink = Layout::of_stripes(6, [5, 5, 7].map(TargetId));
        let placed: Vec<Placed> = Placing::of(&source, &sink, ByteRange::between(2, 17)).collect();
        let expected = [(2, 8, 0, 5), (8, 12, 1, 5), (12, 17, 0, 7)];
        let expected = expected.map(|(from, to, source, sink)| Placed {
            range: ByteRange::between(from, to),
            source: TargetId(source),
            sink: TargetId(sink),
        });
        assert_eq!(placed, expected);
    }
}
