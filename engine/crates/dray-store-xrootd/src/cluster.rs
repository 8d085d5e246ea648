//! The replicas of a file, where a store's URL names a cluster's manager: of the one file that the URL
//! names all of them, of others the one that was listed.
//!
//! Non-goals: a file of a folder from several servers. Nothing compares its checksum, and only a checksum
//! tells that two replicas of one size are one file.

use crate::checksum;
use crate::client::{Found, client};
use crate::located::Located;
use crate::store::{Authorised, XrootdStore};
use dray_core::{ErrorKind, Layout, RelPath, Result};
use dray_store::ReadState;
use std::sync::{Arc, OnceLock};

/// A smaller file is read as the manager says. To ask for its servers is a round trip or two, and to log
/// in at each further one takes four and more: at a gigabit, and 50 ms there and back, one server has
/// given it out by then.
const BYTES_MIN: u64 = 64 << 20;

/// Servers of one file that are read at the most: each costs connections and readers (guess, revisit).
const REPLICAS_MAX: usize = 8;

/// Servers of a folder that are asked for one file at the most (guess, revisit).
const SERVERS_MAX: usize = 64;

/// A manager that has not heard of a file lately lets who asks wait for its servers' answers: five
/// seconds by default (`cms.delay lookup`). It is waited for as long as so many bytes may take at a
/// gigabyte per second, which is next to nothing of the whole file's time.
const BYTES_PER_SECOND_OF_WAITING: u64 = 1 << 30;
const WAIT_SECONDS_MAX: u64 = 10;

/// How long servers may take to say what they have, all at once.
const LOOK_SECONDS: u32 = 5;

/// What was found out about the file.
#[derive(Default)]
pub(crate) struct Cluster {
    /// Set once, when it is first asked, and for good: a copy that came from several servers must not
    /// become one from whatever the manager says, which has another time.
    located: OnceLock<Option<Arc<Located>>>,
    /// Whether it is a cluster at all.
    is_cluster: OnceLock<bool>,
}

/// Whether a server says that it sends clients to others.
fn is_manager(role: &str) -> bool {
    role.contains("manager") || role.contains("supervisor")
}

/// How long a manager may think about a file of so many bytes.
fn wait_seconds(bytes: u64) -> u32 {
    let seconds = (bytes / BYTES_PER_SECOND_OF_WAITING).clamp(1, WAIT_SECONDS_MAX);
    u32::try_from(seconds).unwrap_or(1)
}

impl XrootdStore {
    /// Whether the file is read from several servers: then only a checksum of the whole tells that it is
    /// one file, and has to be compared. Not before the file was listed or looked at.
    #[must_use]
    pub fn is_from_several(&self) -> bool {
        matches!(self.cluster().located.get(), Some(Some(_)))
    }

    /// What the file at `path` is, and where it lies: its replicas, where several count, else as
    /// the server has said.
    ///
    /// # Errors
    /// When replicas were found before, and are others now, or none of their servers answers.
    pub(crate) fn examine(&self, path: &RelPath, found: Found) -> Result<(Found, Layout)> {
        let is_known = self.cluster().located.get().is_some();
        let Some(located) = self.locate(path, &found) else {
            return Ok((found, Self::whole()));
        };
        if is_known {
            // As it was when the copy began, though the oldest replica may be gone by now.
            self.stand(path, &located)?;
        }
        let found = Found {
            size: located.size,
            modified: located.modified,
            ..found
        };
        let servers = located.replicas.iter();
        let targets = servers.map(|replica| self.target(&replica.server));
        let layout = Located::layout(targets.collect());
        Ok((found, layout))
    }

    /// The replicas of the file at `path`, if they are known and several.
    pub(crate) fn located(&self, path: &RelPath) -> Option<Arc<Located>> {
        let known = self.cluster().located.get().cloned().flatten();
        known.filter(|_| path == self.url().path())
    }

    /// Finds the replicas, once. Whatever fails here is no fault of the file's: it is read as the manager
    /// says.
    fn locate(&self, path: &RelPath, found: &Found) -> Option<Arc<Located>> {
        let options = self.options();
        let may_be = options.replicas && options.authorised == Authorised::Always;
        let is_large = found.size >= BYTES_MIN && !found.is_folder && !found.is_special;
        if !may_be || !is_large || path != self.url().path() {
            return None;
        }
        let find = || self.find(path, found).ok().flatten().map(Arc::new);
        self.cluster().located.get_or_init(find).clone()
    }

    fn find(&self, path: &RelPath, found: &Found) -> Result<Option<Located>> {
        let located = Located::of(found, self.found_at_each(path, found.size)?);
        let Some(located) = located.filter(|located| located.replicas.len() > 1) else {
            return Ok(None);
        };
        Ok(self.has_sums(&located).then_some(located))
    }

    /// A server whose replica is the one that was listed; none where there is none, or no cluster. An
    /// error: who may have it does not answer.
    pub(crate) fn server_that_has(
        &self,
        path: &RelPath,
        listed: &ReadState,
    ) -> Result<Option<String>> {
        if !self.is_cluster()? {
            return Ok(None);
        }
        // A manager that has not heard of a file lately names those first that answer it first; who has
        // its folder it knows, because that was listed.
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
        // One that does not answer may be the one that has it.
        silent.map_or(Ok(None), Err)
    }

    /// What the servers of a file say of it, of so many bytes; nothing where there is no cluster.
    fn found_at_each(&self, path: &RelPath, bytes: u64) -> Result<Vec<(String, Found)>> {
        if !self.is_cluster()? {
            return Ok(Vec::new());
        }
        let answers = self
            .found_where(path, path, bytes, REPLICAS_MAX)?
            .into_iter();
        let answered = answers.filter_map(|(server, found)| Some((server, found.ok()?)));
        Ok(answered.collect())
    }

    /// What the servers that have `asked`, the first so many by name, say of the file at `path`, and those
    /// that do not answer.
    fn found_where(
        &self,
        asked: &RelPath,
        path: &RelPath,
        bytes: u64,
        most: usize,
    ) -> Result<Vec<(String, Result<Found>)>> {
        let (manager, asked) = (self.url().login(0), self.asked(asked)?);
        let mut servers = client()?.locate(&manager, &asked, wait_seconds(bytes))?;
        servers.sort();
        servers.dedup();
        servers.truncate(most);
        let answers = self.answers_of_each(path, servers.iter().map(String::as_str))?;
        Ok(servers.into_iter().zip(answers).collect())
    }

    /// Whether the server sends its clients to others. An answer that fails is not remembered.
    fn is_cluster(&self) -> Result<bool> {
        if let Some(known) = self.cluster().is_cluster.get() {
            return Ok(*known);
        }
        let is_cluster = is_manager(&client()?.config(&self.url().login(0), "role")?);
        Ok(*self.cluster().is_cluster.get_or_init(|| is_cluster))
    }

    /// Whether a server of the file's tells checksums: what was read from several is compared with one.
    fn has_sums(&self, located: &Located) -> bool {
        let first = located
            .replicas
            .first()
            .map(|replica| replica.server.as_str());
        let asked = first.zip(client().ok()).map(|(server, client)| {
            client.config(&self.url().with_host(server).login(0), "chksum")
        });
        let said = asked.and_then(Result::ok).unwrap_or_default();
        checksum::NAMES.iter().any(|name| said.contains(name))
    }

    /// Whether the replicas are still what they were.
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
                "size or modification time of a replica are others than when the copy began",
                "run the same command again once the file is left alone",
            ),
            None => (
                ErrorKind::TimedOut,
                "none of the servers that have it answers",
                "look at the servers and the network, then run the same command again",
            ),
        };
        let error = self.error(kind, "look at the file", path);
        Err(error.cause(cause).remedy(remedy))
    }

    /// What each server says of the file; none of one that does not answer.
    fn look_at_each<'a>(
        &self,
        path: &RelPath,
        servers: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<Option<Found>>> {
        let answers = self.answers_of_each(path, servers)?;
        Ok(answers.into_iter().map(Result::ok).collect())
    }

    fn answers_of_each<'a>(
        &self,
        path: &RelPath,
        servers: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<Result<Found>>> {
        let logins: Vec<String> = servers
            .map(|server| self.url().with_host(server).login(0))
            .collect();
        client()?.look_each(&logins, &self.asked(path)?, LOOK_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::{is_manager, wait_seconds};

    #[test]
    fn who_sends_clients_elsewhere_is_asked_where() {
        for role in ["manager", "meta manager", "supervisor\n"] {
            assert!(is_manager(role), "{role}");
        }
        for role in ["server", "none", "proxy server", "role", ""] {
            assert!(!is_manager(role), "{role}");
        }
    }

    #[test]
    fn a_manager_is_waited_for_by_what_the_file_takes_anyway() {
        assert_eq!(
            [0, 64 << 20, 5 << 30, 1 << 50].map(wait_seconds),
            [1, 1, 5, 10]
        );
    }
}
