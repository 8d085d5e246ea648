//! Logs of other transfers that may name a partial file. They lie in the folders around the file,
//! up to the exported root. A log elsewhere cannot name the file.

use super::find_logs::{LeaseState, look_at_lease};
use super::log_file::StoredLog;
use super::log_place::{folders_above, log_folder};
use super::request::DestinationRequest;
use dray_core::{ErrorKind, Name, RelPath, Result};
use dray_log::recover;
use dray_store::{ControlMode, FileState, Store};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Maximum number of logs whose content is remembered. Further logs are read again for each query.
/// The value is estimated, not measured.
const KNOWN_MAX: usize = 64;

/// Key of a partial file: the folder of the file, and the name of the file in that folder.
pub(super) type PartialKey = (RelPath, Name);

/// Store of a log: the destination's store, or the store of the exported root above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Destination,
    Above,
}

/// Content of a log without a holder. It is valid until a transfer takes the log's lease.
struct LogContent {
    epoch: u64,
    /// State of the log file when it was read. If a new log has replaced the old log, the epochs
    /// begin again with low numbers, so the epoch alone does not identify the content.
    file: Option<FileState>,
    /// Partial files that the log names, relative to the log's top folder.
    partials: HashSet<PartialKey>,
}

/// The logs of other transfers around a destination.
pub(super) struct OtherLogs {
    store: Arc<dyn Store>,
    /// The store of the exported root, and the path of the destination in it.
    above: Option<(Arc<dyn Store>, RelPath)>,
    /// This transfer's own log; `None` for a sweep, which is no transfer.
    own: Option<(At, RelPath)>,
    known: HashMap<(At, RelPath), LogContent>,
    /// True if the last result of [`OtherLogs::speak_of`] was true only because a log could not be
    /// read.
    is_unread: bool,
}

impl OtherLogs {
    /// Returns the logs around the destination of `request`. The transfer's own log is `log` in
    /// `log_store`.
    pub(super) fn new(
        request: &DestinationRequest,
        log_store: &Arc<dyn Store>,
        log: RelPath,
    ) -> Self {
        let at = match Arc::ptr_eq(log_store, &request.store) {
            true => At::Destination,
            false => At::Above,
        };
        Self {
            store: Arc::clone(&request.store),
            above: request.above.clone(),
            own: Some((at, log)),
            known: HashMap::new(),
            is_unread: false,
        }
    }

    /// Returns the logs around any path below the root of `store`. If `above` is known, the logs
    /// above the root are included.
    pub(super) fn all(store: &Arc<dyn Store>, above: Option<&(Arc<dyn Store>, RelPath)>) -> Self {
        Self {
            store: Arc::clone(store),
            above: above.cloned(),
            own: None,
            known: HashMap::new(),
            is_unread: false,
        }
    }

    /// Returns the name of this transfer's own log.
    pub(super) fn own_name(&self) -> Option<Name> {
        self.own.as_ref().and_then(|(_, log)| log.name())
    }

    /// Returns true if another log names the partial file, or may be about to name it. In both
    /// cases the file must not be removed.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) fn speak_of(&mut self, (folder, name): &PartialKey) -> Result<bool> {
        self.is_unread = false;
        let mut tops = vec![(At::Destination, folder.clone(), RelPath::root())];
        let nearer = folders_above(folder)?.into_iter();
        tops.extend(nearer.map(|(top, seen)| (At::Destination, top, seen)));
        if let Some((_, destination)) = &self.above {
            for (top, seen) in folders_above(destination)? {
                tops.push((At::Above, top, seen.join_path(folder)?));
            }
        }
        for (at, top, seen) in tops {
            if self.any_in(at, &top, &(seen, name.clone()))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true if the last call of [`Self::speak_of`] returned true only because a log could
    /// not be read.
    pub(super) const fn is_unread(&self) -> bool {
        self.is_unread
    }

    const fn unread(&mut self) -> bool {
        self.is_unread = true;
        true
    }

    fn any_in(&mut self, at: At, top: &RelPath, place: &PartialKey) -> Result<bool> {
        let store = match (at, &self.above) {
            (At::Above, Some((above, _))) => Arc::clone(above),
            _ => Arc::clone(&self.store),
        };
        let folder = log_folder(top)?;
        let names = match store.list_control(&folder) {
            Ok(names) => names,
            // This user may not read the folder of logs. A log in that folder may name the file.
            Err(error) if error.kind == ErrorKind::PermissionDenied => return Ok(self.unread()),
            // One of several disks has a file where another disk has the folder.
            Err(error) if error.kind == ErrorKind::NotADirectory => return Ok(false),
            // One of several disks has a link where another disk has the folder. No log is used
            // through a link. A transfer reports such a link.
            Err(error) if error.kind == ErrorKind::PathEscapes && self.own.is_none() => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        for name in names {
            let Some(lease) = dray_log::layout::lease_of_log(&name) else {
                continue;
            };
            let log = (at, folder.join(&name)?);
            if self.own.as_ref() != Some(&log)
                && self.speaks(&store, log, &folder.join(&lease)?, place)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn speaks(
        &mut self,
        store: &Arc<dyn Store>,
        log: (At, RelPath),
        lease: &RelPath,
        place: &PartialKey,
    ) -> Result<bool> {
        // The holder of a log may have made a partial file that the log does not name yet.
        let epoch = match look_at_lease(store.as_ref(), lease) {
            Ok(LeaseState::Free(epoch)) => epoch,
            Ok(LeaseState::Held(_)) => return Ok(true),
            Err(error) if error.kind == ErrorKind::PermissionDenied => return Ok(self.unread()),
            Err(error) => return Err(error),
        };
        let state = store.stat(&log.1)?;
        let is_same = |known: &&LogContent| known.epoch == epoch && known.file == state;
        if let Some(known) = self.known.get(&log).filter(is_same) {
            return Ok(known.partials.contains(place));
        }
        let file = match store.open_control(&log.1, ControlMode::ReadOnly) {
            Ok(file) => file,
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(false),
            Err(error) if error.kind == ErrorKind::PermissionDenied => return Ok(self.unread()),
            Err(error) => return Err(error),
        };
        let recovery = match recover(&mut StoredLog::new(file, store, &log.1)) {
            Ok(Some(recovery)) => recovery,
            Ok(None) => return Ok(false),
            // A log of another version, or a damaged log, may name any file.
            Err(_) => return Ok(self.unread()),
        };
        let partials: HashSet<PartialKey> = recovery
            .files
            .iter()
            .map(|(path, file)| {
                let folder = path.parent().unwrap_or_else(RelPath::root);
                (folder, file.partial.name.clone())
            })
            .collect();
        let speaks = partials.contains(place);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let known = LogContent {
            epoch,
            file: state,
            partials,
        };
        self.known.insert(log, known);
        Ok(speaks)
    }
}

#[cfg(test)]
mod tests {
    use super::OtherLogs;
    use crate::sink::files::Space;
    use crate::sink::{Destination, DestinationRequest};
    use dray_core::options::Options;
    use dray_core::{ContentKey, End, ModifiedTime, Name, RelPath, TransferId};
    use dray_store::{PosixOptions, PosixStore, Store};
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a good path")
    }

    fn request(store: &Arc<dyn Store>, claim: &str) -> DestinationRequest {
        DestinationRequest {
            store: Arc::clone(store),
            above: None,
            claims: vec![path(claim)],
            transfer: TransferId::new("test").expect("an id"),
            owner: b"uid:0".to_vec(),
            durability: Options::default().durability,
            log: None,
            words: "the destination".to_owned(),
        }
    }

    /// Makes a transfer that begins one file and then breaks off. Returns the name of its partial
    /// file.
    fn broken_off(store: &Arc<dyn Store>, file: &str) -> Name {
        let destination = Destination::open(request(store, "theirs")).expect("free");
        let space = Space::new(destination, Options::default(), 1 << 20);
        let key = ContentKey {
            size: 5,
            demanded: None,
            modified: ModifiedTime::default(),
            precision_nanoseconds: 1,
            identity: Vec::new(),
        };
        let begun = space
            .prepare(&path(file), key, 5, false, None)
            .expect("begun");
        space.log(&[]).expect("committed");
        begun.0.name.clone()
    }

    fn remove_logs(at: &Path) {
        fs::remove_dir_all(at.join(".dray-log")).expect("removed");
    }

    #[test]
    fn a_log_that_was_created_again_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("theirs")).expect("a folder");
        let store = PosixStore::open(folder.path(), End::Sink, PosixOptions::default());
        let store: Arc<dyn Store> = Arc::new(store.expect("opens"));
        let own = path(".dray-log/own.log");
        let mut others = OtherLogs::new(&request(&store, "ours"), &store, own);
        let first = (path("theirs"), broken_off(&store, "theirs/first"));
        assert!(others.speak_of(&first).expect("read"));
        remove_logs(folder.path());
        let second = (path("theirs"), broken_off(&store, "theirs/second"));
        assert!(
            others.speak_of(&second).expect("read"),
            "the epoch is the same"
        );
        assert!(!others.speak_of(&first).expect("read"));
    }
}
