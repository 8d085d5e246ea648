//! Selects the valid replicas of a file in a cluster, and derives the size and time of the file
//! from them. The functions do no I/O.
//!
//! Invariant: the size and time of a file depend on all its existing replicas, and not on the
//! replica that was asked or read.

use crate::client::RemoteState;
use dray_core::{Layout, ModifiedTime, TargetId};

/// Number of consecutive bytes of a file that are read from one replica. The next bytes are read
/// from the next replica. The number is larger than most objects. The smallest file that is read
/// from several servers (64 MiB) has eight parts, one for each of at most eight servers. The value
/// is estimated, not measured.
pub(crate) const STRIPE_BYTES: u64 = 8 << 20;

/// A valid replica of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replica {
    /// Server of the replica, as host and port.
    pub(crate) server: String,
    /// Modification time of the replica by the clock of its server.
    pub(crate) modified: ModifiedTime,
}

/// A file with replicas on several servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) size: u64,
    /// Modification time to report for the file.
    pub(crate) modified: ModifiedTime,
    /// Replicas sorted by the name of the server; never empty.
    pub(crate) replicas: Vec<Replica>,
}

impl Located {
    /// Selects the valid replicas. `manager` is the state that the manager sent, which is the state
    /// of an arbitrary replica. A replica is valid if it has the most frequent size. If several
    /// sizes are equally frequent, the size in `manager` wins if it is one of them, and otherwise
    /// the largest. Returns `None` if no replica is valid.
    ///
    /// Modification times are not compared, because each replica has the time at which it was
    /// created. The reported time is the oldest of these times, because a replica that is created
    /// later does not change the oldest time.
    pub(crate) fn of(manager: &RemoteState, found: Vec<(String, RemoteState)>) -> Option<Self> {
        let files = found.into_iter();
        let mut files: Vec<_> = files
            .filter(|(_, found)| !found.is_folder && !found.is_special)
            .collect();
        files.sort_by(|one, other| one.0.cmp(&other.0));
        files.dedup_by(|one, other| one.0 == other.0);
        let sizes: Vec<u64> = files.iter().map(|(_, found)| found.size).collect();
        let size = usual_size(&sizes, Some(manager.size))?;
        let replicas = files.into_iter().filter(|(_, found)| found.size == size);
        let replicas: Vec<Replica> = replicas
            .map(|(server, found)| Replica {
                server,
                modified: found.modified,
            })
            .collect();
        let modified = replicas
            .iter()
            .map(|replica| replica.modified)
            .min_by_key(key)?;
        Some(Self {
            size,
            modified,
            replicas,
        })
    }

    /// Returns the index of the replica that is assigned to the byte at `offset`. The result agrees
    /// with [`Self::layout`].
    pub(crate) fn meant(&self, offset: u64) -> usize {
        let count = self.replicas.len().max(1) as u64;
        usize::try_from(offset / STRIPE_BYTES % count).unwrap_or(0)
    }

    /// Returns the assignment of byte ranges to targets. `targets` is in the order of the replicas.
    pub(crate) fn layout(targets: Vec<TargetId>) -> Layout {
        match targets.as_slice() {
            [one] => Layout::Single(*one),
            _ => Layout::Striped {
                stripe_bytes: STRIPE_BYTES,
                targets,
            },
        }
    }

    /// Returns true if no replica whose server has answered has changed since the file was located.
    /// Returns `None` if no server has answered.
    pub(crate) fn still_stands(&self, answers: &[Option<RemoteState>]) -> Option<bool> {
        let pairs = self.replicas.iter().zip(answers);
        let mut answered = pairs
            .filter_map(|(replica, found)| Some((replica, (*found)?)))
            .map(|(replica, found)| found.size == self.size && found.modified == replica.modified);
        answered
            .next()
            .map(|is_same| is_same && answered.all(|is_same| is_same))
    }
}

/// Returns the state to list for a name that several servers have. This is the state with the
/// oldest time among the entries with the most frequent size. The result does not depend on the
/// order of the answers. Returns `None` for an empty list.
pub(crate) fn listed(found: &[RemoteState]) -> Option<RemoteState> {
    // Count special entries only if there are no other entries.
    let said: Vec<&RemoteState> = found.iter().filter(|found| !found.is_special).collect();
    if said.is_empty() {
        return found.first().copied();
    }
    let sizes: Vec<u64> = said.iter().map(|found| found.size).collect();
    let size = usual_size(&sizes, None)?;
    let usual = said.into_iter().filter(|found| found.size == size);
    usual.min_by_key(|found| key(&found.modified)).copied()
}

/// Returns the most frequent size. If several sizes are equally frequent, returns the manager's
/// size `told` if it is one of them, and otherwise the largest.
fn usual_size(sizes: &[u64], told: Option<u64>) -> Option<u64> {
    let count = |size: u64| sizes.iter().filter(|other| **other == size).count();
    let weight = |size: &u64| (count(*size), Some(*size) == told, *size);
    sizes.iter().copied().max_by_key(weight)
}

const fn key(time: &ModifiedTime) -> (i64, u32) {
    (time.seconds, time.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::{Located, STRIPE_BYTES, listed};
    use crate::client::RemoteState;
    use dray_core::{ModifiedTime, TargetId};

    fn file(size: u64, seconds: i64) -> RemoteState {
        RemoteState {
            size,
            modified: ModifiedTime {
                seconds,
                nanoseconds: 0,
            },
            is_folder: false,
            is_special: false,
            id: 1,
        }
    }

    fn named(found: &[(&str, RemoteState)]) -> Vec<(String, RemoteState)> {
        found
            .iter()
            .map(|(name, found)| ((*name).to_owned(), *found))
            .collect()
    }

    #[test]
    fn a_file_is_the_same_whichever_replica_was_asked() {
        let (a, b, c) = (("a", file(9, 30)), ("b", file(9, 20)), ("c", file(9, 40)));
        let first = Located::of(&a.1, named(&[a, b, c])).expect("a file");
        assert_eq!((first.size, first.modified.seconds), (9, 20));
        let again = Located::of(&c.1, named(&[c, a, b, a])).expect("a file");
        assert_eq!(first, again);
    }

    #[test]
    fn another_size_is_left_out() {
        let (a, b, c) = (("a", file(9, 30)), ("b", file(7, 20)), ("c", file(9, 40)));
        let located = Located::of(&b.1, named(&[a, b, c])).expect("a file");
        assert_eq!((located.size, located.modified.seconds), (9, 30));
        let servers: Vec<_> = located
            .replicas
            .iter()
            .map(|one| one.server.as_str())
            .collect();
        assert_eq!(servers, ["a", "c"]);
        let even =
            |manager: RemoteState| Located::of(&manager, named(&[a, b])).expect("a file").size;
        assert_eq!((even(a.1), even(b.1)), (9, 7), "the manager's word decides");
        let folder = RemoteState {
            is_folder: true,
            ..file(0, 1)
        };
        assert_eq!(Located::of(&folder, named(&[("a", folder)])), None);
        assert_eq!(Located::of(&a.1, Vec::new()), None);
    }

    #[test]
    fn a_listing_tells_the_same_whichever_server_came_first() {
        let (a, b, c) = (file(9, 30), file(9, 20), file(7, 10));
        for order in [[a, b, c], [c, a, b], [b, c, a]] {
            assert_eq!(listed(&order), Some(b));
        }
        assert_eq!(listed(&[c]), Some(c));
        let mute = RemoteState {
            is_special: true,
            ..file(0, 0)
        };
        assert_eq!(listed(&[mute, a, mute]), Some(a), "who says nothing");
        assert_eq!(listed(&[mute, mute]), Some(mute));
        assert_eq!(listed(&[]), None);
    }

    #[test]
    fn the_layout_matches_the_replica_that_is_read() {
        let files = [("a", file(9, 1)), ("b", file(9, 2)), ("c", file(9, 3))];
        let located = Located::of(&files[0].1, named(&files)).expect("a file");
        let layout = Located::layout(vec![TargetId(0), TargetId(1), TargetId(2)]);
        for offset in [0, STRIPE_BYTES - 1, STRIPE_BYTES, 5 * STRIPE_BYTES + 7] {
            assert_eq!(layout.target_at(offset).0 as usize, located.meant(offset));
        }
    }

    #[test]
    fn a_file_stands_while_those_that_answer_say_the_same() {
        let files = [("a", file(9, 1)), ("b", file(9, 2))];
        let located = Located::of(&files[0].1, named(&files)).expect("a file");
        let (a, b) = (Some(files[0].1), Some(files[1].1));
        assert_eq!(located.still_stands(&[a, b]), Some(true));
        assert_eq!(
            located.still_stands(&[None, b]),
            Some(true),
            "one is silent"
        );
        assert_eq!(located.still_stands(&[None, None]), None);
        assert_eq!(located.still_stands(&[a, Some(file(9, 5))]), Some(false));
        assert_eq!(located.still_stands(&[Some(file(8, 1)), b]), Some(false));
    }
}
