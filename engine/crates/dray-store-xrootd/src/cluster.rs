//! The replicas of files in a cluster, if the store's URL names the manager of the cluster. For the
//! file that the URL names, the store uses all replicas. For other files, it uses one replica that
//! has the listed state.
//!
//! A file below a folder is never read from several servers, because no program compares its
//! checksum. Only a checksum shows that two replicas of the same size are equal.

use crate::checksum;
use crate::client::{RemoteState, client};
use crate::files::Files;
use crate::located::Located;
use dray_core::{ErrorKind, Layout, RelPath, Result, TargetId};
use dray_store::{ReadState, Target, TargetMap, Targets};
use std::sync::{Arc, OnceLock};

/// Minimum size in bytes of a file that is read from several servers. A smaller file is read from
/// the server that the manager chooses. The query for the servers of a file takes one or two round
/// trips, and a login at each further server takes four or more. Six round trips of 50 ms each take
/// 0.3 s. In this time, one server at one gigabit per second sends more than half of such a file.
const BYTES_MIN: u64 = 64 << 20;

/// Maximum number of servers from which one file is read. Further servers are not used. Each server
/// costs connections and reader threads. The value is estimated, not measured.
const REPLICAS_MAX: usize = 8;

/// Maximum number of servers of a folder that are asked for one file. Further servers are not
/// asked. The value is estimated, not measured.
const SERVERS_MAX: usize = 64;

/// Rate in bytes per second that determines the maximum wait for a manager. A manager without
/// recent information about a file makes clients wait until its servers answer. This takes five
/// seconds by default (`cms.delay lookup`). dray waits at most as long as the file's bytes would
/// take at this rate. The wait is then a small part of the whole transfer.
const BYTES_PER_SECOND_OF_WAITING: u64 = 1 << 30;
/// Maximum wait for a manager in seconds.
const WAIT_SECONDS_MAX: u64 = 10;

/// Maximum seconds for a query of a file's state. The query is sent to all servers concurrently.
const LOOK_SECONDS: u32 = 5;

/// The server of a store, and the result of the search for replicas. The server may be the manager
/// of a cluster.
pub(crate) struct Cluster {
    pub(crate) files: Files,
    /// True if the file that the URL names may be read from several servers.
    may_locate: bool,
    targets: Targets,
    /// Replicas of the file that the URL names. The field is set at the first query, and does not
    /// change later. A copy that began with several servers must not continue with only the server
    /// that the manager chooses: the modification time of its replica may differ from the time that
    /// the copy uses.
    located: OnceLock<Option<Arc<Located>>>,
    /// True if the server is the manager of a cluster.
    is_cluster: OnceLock<bool>,
}

/// Returns true if the role of a server is to redirect clients to other servers.
fn is_manager(role: &str) -> bool {
    role.contains("manager") || role.contains("supervisor")
}

/// Returns the maximum number of seconds that a manager may take to find a file of this size.
fn wait_seconds(bytes: u64) -> u32 {
    let seconds = (bytes / BYTES_PER_SECOND_OF_WAITING).clamp(1, WAIT_SECONDS_MAX);
    u32::try_from(seconds).unwrap_or(1)
}

/// Layout with one target: for a file on one server, and for a file in a cluster without known
/// replicas.
pub(crate) const fn whole() -> Layout {
    Layout::Single(TargetId(0))
}

impl Cluster {
    pub(crate) fn new(files: Files, may_locate: bool) -> Self {
        let server = [(RelPath::root(), files.url.server())];
        Self {
            targets: Targets::new(TargetMap::new(server)),
            files,
            may_locate,
            located: OnceLock::new(),
            is_cluster: OnceLock::new(),
        }
    }

    pub(crate) fn targets(&self) -> Vec<Target> {
        self.targets.all()
    }

    /// Returns the storage target for a server of the cluster.
    fn target(&self, server: &str) -> TargetId {
        self.targets
            .named(&self.files.url.with_host(server).server())
    }

    /// Returns true if the file that the URL names is read from several servers.
    pub(crate) fn is_from_several(&self) -> bool {
        matches!(self.located.get(), Some(Some(_)))
    }

    /// Returns the state and the layout of the file at `path`. If several replicas are known, they
    /// determine both. Otherwise the state is `found`, which the server sent.
    ///
    /// # Errors
    /// An error if the replicas found earlier have changed, or if no server of a replica answers.
    pub(crate) fn examine(
        &self,
        path: &RelPath,
        found: RemoteState,
    ) -> Result<(RemoteState, Layout)> {
        let is_known = self.located.get().is_some();
        let Some(located) = self.locate(path, &found) else {
            return Ok((found, whole()));
        };
        if is_known {
            // Check the replicas, but keep the state from the start of the copy. If the oldest
            // replica has been deleted since then, the remaining replicas would give another time.
            self.stand(path, &located)?;
        }
        let found = RemoteState {
            size: located.size,
            modified: located.modified,
            ..found
        };
        let servers = located.replicas.iter();
        let targets = servers.map(|replica| self.target(&replica.server));
        let layout = Located::layout(targets.collect());
        Ok((found, layout))
    }

    /// Returns the replicas of the file at `path`, if several are known.
    pub(crate) fn located(&self, path: &RelPath) -> Option<Arc<Located>> {
        let known = self.located.get().cloned().flatten();
        known.filter(|_| path == self.files.url.path())
    }

    /// Finds the replicas once. If the search fails, the file is read from the server that the
    /// manager chooses, because the failure does not concern the file itself.
    fn locate(&self, path: &RelPath, found: &RemoteState) -> Option<Arc<Located>> {
        let is_large = found.size >= BYTES_MIN && !found.is_folder && !found.is_special;
        if !self.may_locate || !is_large || path != self.files.url.path() {
            return None;
        }
        let find = || self.find(path, found).ok().flatten().map(Arc::new);
        self.located.get_or_init(find).clone()
    }

    fn find(&self, path: &RelPath, found: &RemoteState) -> Result<Option<Located>> {
        let located = Located::of(found, self.found_at_each(path, found.size)?);
        let Some(located) = located.filter(|located| located.replicas.len() > 1) else {
            return Ok(None);
        };
        Ok(self.has_sums(&located).then_some(located))
    }

    /// Returns a server whose replica has the listed state. Returns `None` if no replica has this
    /// state, or if the server of this store is not a manager. Fails if a server that may have the
    /// replica does not answer.
    pub(crate) fn server_that_has(
        &self,
        path: &RelPath,
        listed: &ReadState,
    ) -> Result<Option<String>> {
        if !self.is_cluster()? {
            return Ok(None);
        }
        // Ask for the servers of the file, and then for the servers of its folder. A manager
        // without recent information about a file names only the servers that answer first. It has
        // recent information about the folder, because the folder was listed.
        let mut silent = None;
        for asked in [Some(path.clone()), path.parent()].into_iter().flatten() {
            for (server, found) in self.found_where(&asked, path, listed.size, SERVERS_MAX)? {
                match found {
                    Ok(found) if found.is(listed) => return Ok(Some(server)),
                    Err(error) if error.kind != ErrorKind::NotFound => silent = Some(error),
                    _ => {}
                }
            }
        }
        // Fail if a server did not answer, because that server may have the replica.
        silent.map_or(Ok(None), Err)
    }

    /// Returns the state of the file on each of its servers. Returns an empty list if the server is
    /// not a manager. `bytes` is the size of the file.
    fn found_at_each(&self, path: &RelPath, bytes: u64) -> Result<Vec<(String, RemoteState)>> {
        if !self.is_cluster()? {
            return Ok(Vec::new());
        }
        let answers = self
            .found_where(path, path, bytes, REPLICAS_MAX)?
            .into_iter();
        let answered = answers.filter_map(|(server, found)| Some((server, found.ok()?)));
        Ok(answered.collect())
    }

    /// Asks the servers that have the path `asked` for the state of the file at `path`. Asks at
    /// most `most` servers, in the order of their names. Returns the answer of each server, or an
    /// error for a server that did not answer.
    fn found_where(
        &self,
        asked: &RelPath,
        path: &RelPath,
        bytes: u64,
        most: usize,
    ) -> Result<Vec<(String, Result<RemoteState>)>> {
        let (manager, asked) = (self.files.url.login(0), self.files.asked(asked)?);
        let mut servers = client()?.locate(&manager, &asked, wait_seconds(bytes))?;
        servers.sort();
        servers.dedup();
        servers.truncate(most);
        let answers = self.answers_of_each(path, servers.iter().map(String::as_str))?;
        Ok(servers.into_iter().zip(answers).collect())
    }

    /// Returns true if the server redirects clients to other servers. A failed query is repeated at
    /// the next call.
    fn is_cluster(&self) -> Result<bool> {
        if let Some(known) = self.is_cluster.get() {
            return Ok(*known);
        }
        let is_cluster = is_manager(&client()?.config(&self.files.url.login(0), "role")?);
        Ok(*self.is_cluster.get_or_init(|| is_cluster))
    }

    /// Returns true if the first server of the file offers checksums that dray supports. Data read
    /// from several servers is compared with such a checksum.
    fn has_sums(&self, located: &Located) -> bool {
        let first = located
            .replicas
            .first()
            .map(|replica| replica.server.as_str());
        let asked = first.zip(client().ok()).map(|(server, client)| {
            client.config(&self.files.url.with_host(server).login(0), "chksum")
        });
        let said = asked.and_then(Result::ok).unwrap_or_default();
        checksum::NAMES.iter().any(|name| said.contains(name))
    }

    /// Checks that the replicas have not changed since they were found.
    fn stand(&self, path: &RelPath, located: &Located) -> Result<()> {
        let servers = located
            .replicas
            .iter()
            .map(|replica| replica.server.as_str());
        let answers = self.look_at_each(path, servers)?;
        let (kind, cause, remedy) = match located.still_stands(&answers) {
            Some(true) => return Ok(()),
            Some(false) => (
                ErrorKind::SourceChanged,
                "the size or modification time of a replica changed after the copy began",
                "run the same command again when no program writes to the file",
            ),
            None => (
                ErrorKind::TimedOut,
                "no server that holds the file answers",
                "check the servers and the network, then run the same command again",
            ),
        };
        let error = self
            .files
            .error(kind, "read the attributes of the file", path);
        Err(error.cause(cause).remedy(remedy))
    }

    /// Returns the state of the file on each server; `None` for a server that does not answer.
    fn look_at_each<'a>(
        &self,
        path: &RelPath,
        servers: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<Option<RemoteState>>> {
        let answers = self.answers_of_each(path, servers)?;
        Ok(answers.into_iter().map(Result::ok).collect())
    }

    fn answers_of_each<'a>(
        &self,
        path: &RelPath,
        servers: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<Result<RemoteState>>> {
        let logins: Vec<String> = servers
            .map(|server| self.files.url.with_host(server).login(0))
            .collect();
        let path = self.files.asked(path)?;
        let asked = logins.iter().map(|login| (login.as_str(), path.clone()));
        client()?.look_each(asked, LOOK_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::{is_manager, wait_seconds};

    #[test]
    fn managers_and_supervisors_count_as_clusters() {
        for role in ["manager", "meta manager", "supervisor\n"] {
            assert!(is_manager(role), "{role}");
        }
        for role in ["server", "none", "proxy server", "role", ""] {
            assert!(!is_manager(role), "{role}");
        }
    }

    #[test]
    fn the_wait_for_a_manager_grows_with_the_size() {
        assert_eq!(
            [0, 64 << 20, 5 << 30, 1 << 50].map(wait_seconds),
            [1, 1, 5, 10]
        );
    }
}
