//! Logs of other transfers around a destination: in the destination folder, in the folders above it
//! up to the exported root, and in the folders below it. For each file, this module finds the logs
//! in which the file is open, and checks which of these logs are held.
//!
//! The module `other_logs` handles collisions of partial names, and `adopt` adopts files.

use super::find_logs::{LeaseState, look_at_lease};
use super::lease::held;
use super::lease_watch::since_boot;
use super::log_file::StoredLog;
use super::log_place::{LogPlace, folders_above, log_folder, reachable};
use super::request::DestinationRequest;
use dray_core::{Error, ErrorKind, Name, RelPath, Result};
use dray_log::layout;
use dray_log::neighbours::{Follower, NeighbourFile};
use dray_store::{ControlMode, FileKind, FileState, Store};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of remembered logs of other transfers. If there are more logs, the first logs by
/// name are remembered, and the unfinished files of the remaining logs are sent again. Two writers
/// still never share a partial file, because partial files are created exclusively. The value is
/// estimated, not measured.
const LOGS_MAX: usize = 256;

/// Maximum number of remembered unfinished files of one log. The value is estimated, not measured.
const FILES_MAX: usize = 1 << 16;

/// Time for which a list of logs counts as current in a store where each query is a network round
/// trip. The list may lack the log of a transfer that begins within this time, but that transfer
/// finds our log.
const REMOTE_FRESH: Duration = Duration::from_secs(1);

/// Time for which a list of logs counts as current in a local store, where a query costs a system
/// call. Only `look_soon`, which precedes the beginning of a file, uses it.
const LOCAL_FRESH: Duration = Duration::from_millis(20);

/// Store of a log: the destination's store, or the store of the exported root above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum At {
    Destination,
    Above,
}

/// Location of a log.
type Key = (At, RelPath);

struct Neighbour {
    state: FileState,
    /// Reader of the log; `None` for a log that cannot be read, because it is empty, damaged or of
    /// another version.
    follower: Option<Follower>,
}

/// A log in which a file is open.
pub(super) struct Speaker {
    key: Key,
    /// Location of the log. Its `prefix` is the path of the destination relative to the log's top
    /// folder.
    pub(super) place: LogPlace,
    /// Path of the file as the log names it.
    pub(super) path: RelPath,
    pub(super) spoken: NeighbourFile,
    /// Owner of the log.
    pub(super) owner: Vec<u8>,
}

impl Speaker {
    /// Returns the log's path in its store.
    pub(super) const fn log(&self) -> &RelPath {
        &self.key.1
    }

    /// Returns an identifier of the log.
    pub(super) fn id(&self) -> (bool, RelPath) {
        (self.key.0 == At::Above, self.key.1.clone())
    }
}

/// The logs of other transfers that this transfer has read.
pub(super) struct Neighbours {
    store: Arc<dyn Store>,
    /// The store of the exported root, and the path of the destination in it.
    above: Option<(Arc<dyn Store>, RelPath)>,
    /// Path of this transfer's own log, which is not a neighbour.
    own: Option<RelPath>,
    words: String,
    known: HashMap<Key, Neighbour>,
    listed: HashMap<Key, (Duration, Vec<Name>)>,
    looked: HashSet<Key>,
    /// Folders that have no logs of other transfers, with the time of the query.
    alone: HashMap<RelPath, Duration>,
}

impl Neighbours {
    /// Returns the neighbours of the destination of `request`. `own` is the path of the transfer's
    /// own log, or `None` if the transfer has no log.
    pub(super) fn new(request: &DestinationRequest, own: Option<RelPath>) -> Self {
        Self {
            store: Arc::clone(&request.store),
            above: request.above.clone(),
            own,
            words: request.words.clone(),
            known: HashMap::new(),
            listed: HashMap::new(),
            looked: HashSet::new(),
            alone: HashMap::new(),
        }
    }

    fn store(&self, at: At) -> &Arc<dyn Store> {
        match (at, &self.above) {
            (At::Above, Some((above, _))) => above,
            _ => &self.store,
        }
    }

    /// Discards the results of earlier queries. In a remote store, keeps results that are younger
    /// than [`REMOTE_FRESH`].
    pub(super) fn look_again(&mut self) {
        self.look_after(Duration::ZERO, None);
    }

    /// Does the same as [`Self::look_again`], but keeps lists of logs whose queries began after
    /// `asked`. So threads that wait for a slow query share its result.
    pub(super) fn look_again_since(&mut self, asked: Duration) {
        self.look_after(Duration::ZERO, Some(asked));
    }

    /// Does the same as [`Self::look_again`], but keeps recent lists of logs. The caller is about
    /// to begin a file. Recent lists are sufficient, because the logs are read again after the file
    /// was begun.
    pub(super) fn look_soon(&mut self) {
        self.look_after(LOCAL_FRESH, None);
    }

    fn look_after(&mut self, fresh: Duration, asked: Option<Duration>) {
        let is_remote = !self.store.capabilities().late_calls.is_zero();
        // After the own record, only a list that began after it shows every other writer.
        let fresh = match (is_remote, asked) {
            (true, None) => REMOTE_FRESH,
            _ => fresh,
        };
        let now = since_boot();
        let is_usable = |since: Duration| {
            now.saturating_sub(since) < fresh || asked.is_some_and(|asked| since >= asked)
        };
        self.listed.retain(|_, (since, _)| is_usable(*since));
        self.alone.retain(|_, since| is_usable(*since));
        self.looked.clear();
    }

    /// Returns the logs in which the file at `path` is open, as of the last [`Self::look_again`].
    /// This transfer made the folders for which `is_fresh` returns true, so they contain no older
    /// log and are not searched.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) fn speaking_of(
        &mut self,
        path: &RelPath,
        is_fresh: &dyn Fn(&RelPath) -> bool,
    ) -> Result<Vec<Speaker>> {
        let folder = path.parent().unwrap_or_else(RelPath::root);
        if self.alone.contains_key(&folder) {
            return Ok(Vec::new());
        }
        let mut tops = Vec::new();
        for (top, seen) in folders_above(path)? {
            if !is_fresh(&top) {
                tops.push((At::Destination, top, seen, RelPath::root()));
            }
        }
        if let Some((_, destination)) = &self.above {
            for (top, seen) in folders_above(destination)? {
                let path = seen.join_path(path)?;
                tops.push((At::Above, top, path, seen));
            }
        }
        // A result is as old as the oldest list that it relies on.
        let mut since = since_boot();
        let (mut found, mut logs) = (Vec::new(), 0);
        for (at, top, seen, prefix) in tops {
            let (listed, count) = self.speaking_in(at, &top, &seen, &prefix, &mut found)?;
            since = since.min(listed);
            logs += count;
        }
        if logs == 0 {
            self.alone.insert(folder, since);
        }
        Ok(found)
    }

    /// Adds to `found` the logs of one folder that have the file at `path` open. Returns the time
    /// at which the folder was listed, and the number of other transfers' logs in that folder.
    fn speaking_in(
        &mut self,
        at: At,
        top: &RelPath,
        path: &RelPath,
        prefix: &RelPath,
        found: &mut Vec<Speaker>,
    ) -> Result<(Duration, usize)> {
        let folder = log_folder(top)?;
        let mut logs = 0;
        let (since, names) = self.logs_in(at, &folder)?;
        for log in names {
            let key = (at, folder.join(&log)?);
            if at == At::Destination && self.own.as_ref() == Some(&key.1) {
                continue;
            }
            logs += 1;
            self.read(&key)?;
            let follower = self.known.get(&key).and_then(|one| one.follower.as_ref());
            let Some((follower, spoken)) = follower.and_then(|one| Some((one, one.file(path)?)))
            else {
                continue;
            };
            found.push(Speaker {
                place: LogPlace {
                    store: Arc::clone(self.store(at)),
                    folder: folder.clone(),
                    log,
                    prefix: prefix.clone(),
                },
                path: path.clone(),
                spoken: spoken.clone(),
                owner: follower.header().owner.clone(),
                key,
            });
        }
        Ok((since, logs))
    }

    /// Returns the names of the logs in one folder, and the time just before the folder was listed.
    fn logs_in(&mut self, at: At, folder: &RelPath) -> Result<(Duration, Vec<Name>)> {
        let key = (at, folder.clone());
        if let Some(listed) = self.listed.get(&key) {
            return Ok(listed.clone());
        }
        let since = since_boot();
        let names = reachable(self.store(at).list_control(folder))?.unwrap_or_default();
        let mut names: Vec<Name> = names
            .into_iter()
            .filter(|name| layout::lease_of_log(name).is_some())
            .collect();
        names.sort_unstable();
        names.truncate(LOGS_MAX);
        self.listed.insert(key, (since, names.clone()));
        Ok((since, names))
    }

    /// Reads the records that were appended to a log since the last read.
    fn read(&mut self, key: &Key) -> Result<()> {
        if !self.looked.insert(key.clone()) {
            return Ok(());
        }
        let store = Arc::clone(self.store(key.0));
        let state = reachable(store.stat(&key.1))?.flatten();
        let Some(state) = state.filter(|state| state.kind == FileKind::File) else {
            self.known.remove(key);
            return Ok(());
        };
        let known = self.known.get(key);
        if known.is_some_and(|known| known.state == state) {
            return Ok(());
        }
        let opened = reachable(store.open_control(&key.1, ControlMode::ReadOnly))?;
        let Some(file) = opened else {
            self.known.remove(key);
            return Ok(());
        };
        let mut file = StoredLog::new(file, &store, &key.1);
        let known = self.known.remove(key).and_then(|one| one.follower);
        let follower = match known {
            Some(mut follower) => match follower.follow(&mut file, FILES_MAX) {
                Ok(true) => Some(follower),
                _ => begin(&mut file),
            },
            None => begin(&mut file),
        };
        if self.known.len() < LOGS_MAX {
            let neighbour = Neighbour { state, follower };
            self.known.insert(key.clone(), neighbour);
        }
        Ok(())
    }

    /// Returns an error if the transfer that holds the log of `speaker` is writing the file at
    /// `path`. The log lists this file as open. Returns `None` if no transfer holds the log, or if
    /// the partial file no longer exists.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) fn refusal(&self, speaker: &Speaker, path: &RelPath) -> Result<Option<Error>> {
        let Some(error) = holder(&speaker.place, &self.words)? else {
            return Ok(None);
        };
        // The writer may already have published the file, although its log still lists the file as
        // open: the record FileEnd follows later. So check whether the partial file still exists.
        let folder = path.parent().unwrap_or_else(RelPath::root);
        let partial = folder.join(&speaker.spoken.partial.name)?;
        let there = self.store.stat(&partial)?;
        let is_there = there.is_some_and(|there| there.inode == speaker.spoken.partial.inode);
        Ok(is_there.then(|| error.file(path)))
    }

    /// Returns the maximum object size in bytes of the unfinished files of `owner` in the
    /// destination, as recorded in the logs there and in the folders above it. This transfer may
    /// adopt these files.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) fn object_bytes_max(&mut self, owner: &[u8]) -> Result<u64> {
        let mut tops = vec![(At::Destination, RelPath::root(), RelPath::root())];
        if let Some((_, destination)) = &self.above {
            for (top, seen) in folders_above(destination)? {
                tops.push((At::Above, top, seen));
            }
        }
        let mut most = 0;
        for (at, top, prefix) in tops {
            let folder = log_folder(&top)?;
            for log in self.logs_in(at, &folder)?.1 {
                let key = (at, folder.join(&log)?);
                self.read(&key)?;
                let follower = self.known.get(&key).and_then(|one| one.follower.as_ref());
                let ours = follower.filter(|one| one.header().owner == owner);
                let files = ours.into_iter().flat_map(Follower::files);
                let here = files.filter(|file| file.path.starts_with(&prefix));
                most = here
                    .map(|file| file.object_bytes)
                    .max()
                    .unwrap_or(0)
                    .max(most);
            }
        }
        Ok(most)
    }

    /// Returns true if the destination folder itself contains logs of other transfers.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) fn has_any(&mut self) -> Result<bool> {
        let folder = log_folder(&RelPath::root())?;
        let (_, logs) = self.logs_in(At::Destination, &folder)?;
        let own = self.own.as_ref().and_then(RelPath::name);
        Ok(logs.iter().any(|log| own.as_ref() != Some(log)))
    }

    /// Returns the id of another transfer of `owner` that has unfinished files and exactly these
    /// claims. Only logs in the destination folder itself are considered.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) fn same_claims(
        &mut self,
        owner: &[u8],
        claims: &[RelPath],
    ) -> Result<Option<dray_core::TransferId>> {
        let folder = log_folder(&RelPath::root())?;
        let wanted: HashSet<&RelPath> = claims.iter().collect();
        for log in self.logs_in(At::Destination, &folder)?.1 {
            let key = (At::Destination, folder.join(&log)?);
            if self.own.as_ref() == Some(&key.1) {
                continue;
            }
            self.read(&key)?;
            let follower = self.known.get(&key).and_then(|one| one.follower.as_ref());
            let Some(follower) = follower else { continue };
            let header = follower.header();
            let is_same = header.claims.iter().collect::<HashSet<_>>() == wanted;
            if is_same && header.owner == owner && follower.files().next().is_some() {
                return Ok(Some(follower.tenure().transfer.clone()));
            }
        }
        Ok(None)
    }
}

/// Reads a log from its beginning. Returns `None` if the log cannot be read.
fn begin(file: &mut StoredLog) -> Option<Follower> {
    let mut follower = Follower::begin(file).ok()??;
    let is_read = follower.follow(file, FILES_MAX).ok()?;
    is_read.then_some(follower)
}

/// Returns an error that names the holder of a log, or `None` if the log has no holder.
///
/// # Errors
/// Errors of the store.
pub(super) fn holder(at: &LogPlace, words: &str) -> Result<Option<Error>> {
    let Some(lease) = layout::lease_of_log(&at.log) else {
        return Ok(None);
    };
    let lease = at.folder.join(&lease)?;
    match reachable(look_at_lease(at.store.as_ref(), &lease)) {
        Ok(Some(LeaseState::Held(file))) => Ok(Some(held(file.as_ref(), words))),
        Ok(_) => Ok(None),
        // A newer program wrote this lease, and may be active.
        Err(error) if error.kind == ErrorKind::LogVersion => Ok(Some(
            Error::new(ErrorKind::LeaseHeld, error.end, "write to the destination")
                .cause(format!(
                    "a transfer of a newer version of dray may be writing to {words}"
                ))
                .remedy("wait until the other transfer ends, or cancel the other transfer"),
        )),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_core::options::Options;
    use dray_core::{End, TransferId};
    use dray_store::{PosixOptions, PosixStore};

    #[test]
    fn a_list_serves_only_threads_that_asked_before_it_began() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = PosixStore::open(folder.path(), End::Sink, PosixOptions::default());
        let request = DestinationRequest {
            store: Arc::new(store.expect("opens")),
            above: None,
            claims: Vec::new(),
            transfer: TransferId::new("test").expect("an id"),
            owner: Vec::new(),
            durability: Options::default().durability,
            log: None,
            words: "the destination".to_owned(),
        };
        let mut neighbours = Neighbours::new(&request, None);
        let early = since_boot();
        neighbours.look_again_since(early);
        assert!(!neighbours.has_any().expect("listed"));
        std::fs::create_dir(folder.path().join(".dray-log")).expect("made");
        std::fs::write(folder.path().join(".dray-log/0123456789abcdef.log"), "").expect("made");
        neighbours.look_again_since(early);
        assert!(!neighbours.has_any().expect("not listed again"));
        neighbours.look_again_since(since_boot());
        assert!(neighbours.has_any().expect("listed again"));
    }
}
