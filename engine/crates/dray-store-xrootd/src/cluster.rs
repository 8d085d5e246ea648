//! The replicas of a file, if a store's URL names a cluster's manager: all replicas of the file
//! that the URL names, and for other files the listed one.
//!
//! Non-goals: reading a file of a folder from several servers. No program compares its checksum,
//! and only a checksum shows that two replicas of one size are equal.

use crate::checksum;
use crate::client::{RemoteState, client};
use crate::files::Files;
use crate::located::Located;
use dray_core::{ErrorKind, Layout, RelPath, Result, TargetId};
use dray_store::{ReadState, Target, TargetMap, Targets};
use std::sync::{Arc, OnceLock};

/// Smaller files are read from the server that the manager chooses. A query for a file's servers
/// costs a round trip or two, and a login at each further one takes four or more: at one gigabit
/// and a round-trip time of 50 ms one server has sent the file by then.
const BYTES_MIN: u64 = 64 << 20;

/// Maximum number of servers to read one file from: each costs connections and readers (guess,
/// revisit).
const REPLICAS_MAX: usize = 8;

/// Maximum number of a folder's servers that are queried for one file (guess, revisit).
const SERVERS_MAX: usize = 64;

/// A manager that has no recent information about a file makes clients wait for its servers'
/// answers: five seconds by default (`cms.delay lookup`). dray waits as long as the file's bytes
/// take at this rate, which is a negligible part of the whole transfer.
const BYTES_PER_SECOND_OF_WAITING: u64 = 1 << 30;
const WAIT_SECONDS_MAX: u64 = 10;

/// Maximum seconds for the servers to answer a query of a file's state, sent to all concurrently.
const LOOK_SECONDS: u32 = 5;

/// The server of a store, which may be a cluster's manager, and the result of the search for
/// replicas.
pub(crate) struct Cluster {
    pub(crate) files: Files,
    /// True if the file that the URL names may be read from several servers.
    may_locate: bool,
    targets: Targets,
    /// Set once, at the first query, and for good: a copy from several servers must not become one
    /// from the server that the manager chooses, which has another time.
    located: OnceLock<Option<Arc<Located>>>,
    /// True if the server is a cluster's manager.
    is_cluster: OnceLock<bool>,
}

/// Returns true if a server's role is to redirect clients to others.
fn is_manager(role: &str) -> bool {
    role.contains("manager") || role.contains("supervisor")
}

/// Returns the maximum seconds a manager may take to find a file of this size.
fn wait_seconds(bytes: u64) -> u32 {
    let seconds = (bytes / BYTES_PER_SECOND_OF_WAITING).clamp(1, WAIT_SECONDS_MAX);
    u32::try_from(seconds).unwrap_or(1)
}

/// Layout of a file on one server, and of a cluster's file without located replicas: one target.
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

    /// Returns the storage target of a server of the cluster.
    fn target(&self, server: &str) -> TargetId {
        self.targets
            .named(&self.files.url.with_host(server).server())
    }

    /// Returns true if the file is read from several servers.
    pub(crate) fn is_from_several(&self) -> bool {
        matches!(self.located.get(), Some(Some(_)))
    }

    /// Returns the state and the layout of the file at `path`: those of its replicas, if there are
    /// several, else those that the server sent.
    ///
    /// # Errors
    /// If replicas were found before and have changed, or if none of their servers answers.
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
            // Keep the state at the start of the copy, although the oldest replica may be gone by
            // now.
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

    /// Finds the replicas, once. A failure here is not the file's fault: it is then read from the
    /// server that the manager chooses.
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

    /// Returns a server whose replica has the listed state; `None` without such a replica, or
    /// without a cluster. Fails if a server that may have it does not answer.
    pub(crate) fn server_that_has(
        &self,
        path: &RelPath,
        listed: &ReadState,
    ) -> Result<Option<String>> {
        if !self.is_cluster()? {
            return Ok(None);
        }
        // A manager without recent information about a file names only the servers that answer
        // first. It knows the servers of the file's folder, because that was listed.
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
        // A server that does not answer may have the replica.
        silent.map_or(Ok(None), Err)
    }

    /// Returns the file's state on each of its servers; empty without a cluster. `bytes` is the
    /// file's size.
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

    /// Returns the state of the file at `path` on the servers that have `asked` (the first `most`
    /// by name), including those that do not answer.
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

    /// Returns true if the server redirects its clients to others. A failed query is not
    /// remembered.
    fn is_cluster(&self) -> Result<bool> {
        if let Some(known) = self.is_cluster.get() {
            return Ok(*known);
        }
        let is_cluster = is_manager(&client()?.config(&self.files.url.login(0), "role")?);
        Ok(*self.is_cluster.get_or_init(|| is_cluster))
    }

    /// Returns true if a server of the file offers checksums: data read from several servers is
    /// compared with one.
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

    /// Checks that the replicas have not changed.
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
                "no server that has it answers",
                "check the servers and the network, then run the same command again",
            ),
        };
        let error = self.files.error(kind, "look at the file", path);
        Err(error.cause(cause).remedy(remedy))
    }

    /// Returns the file's state on each server; `None` for a server that does not answer.
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
