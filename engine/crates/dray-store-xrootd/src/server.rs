//! The server to which a sink writes: paths below the destination folder, and requests.

use crate::checksum;
use crate::client::{Alone, Client, Mode, RemoteFile, RemoteState, client};
use crate::note::{self, ATTRIBUTE, BIRTH};
use crate::url::{Url, asked};
use dray_core::connections::{Direction, Flow, Rule};
use dray_core::lock::LockExt;
use dray_core::{Checksum, End, Error, ErrorKind, ModifiedTime, RelPath, Result, Sums};
use dray_store::connections::{ConnectionOptions, Connections};
use dray_store::{FileNote, PartialId};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Mutex;

/// Kind of calls that write. A thread waits for the answer to each call before its next call.
pub(crate) const WRITES: Flow = Flow {
    direction: Direction::Write,
    waits: true,
};

/// Maximum number of concurrent calls on one connection. The client sends the requests of these
/// calls one after the other. The value is estimated, not measured.
const DEPTH: u32 = 16;

/// Maximum number of times that dray asks a server for the checksum of one file. The client waits
/// half an hour for each answer, but a server may need hours to read the file. The value is
/// estimated, not measured.
const QUESTIONS_MAX: u32 = 16;

/// Bytes that the sink rejects in names. The client treats a question mark as the end of a path. A
/// folder with a name that contains a line break could not be listed by any client.
pub(crate) const REFUSED_NAME_BYTES: &[u8] = b"?\n";

/// Maximum length of a name in bytes. A server (seen with version 5.5) lists a name of 255 bytes
/// without its last byte, so no client could find the file.
pub(crate) const NAME_BYTES_MAX: usize = 254;

/// Default mode of a file. A store without modes lists this mode for files.
pub(crate) const FILE_MODE: u32 = 0o644;
/// Mode of dray's own files and of incomplete files. Only their owner can access them.
pub(crate) const OWN_MODE: u32 = 0o600;
/// Default mode of a folder.
pub(crate) const FOLDER_MODE: u32 = 0o755;

/// A server and the destination folder on it.
pub(crate) struct Server {
    url: Url,
    base: RelPath,
    /// Assigns writes to logins of the client. Each login has its own connection.
    pub(crate) logins: Connections<usize>,
    /// Number of logins.
    pub(crate) connections: usize,
    pub(crate) pages: bool,
    /// Algorithm of the server's checksums; `None` if dray does not support it.
    algorithm: Option<&'static str>,
    /// Server that has the files, as host and port.
    data_server: Mutex<Option<String>>,
    /// True after the server has refused a second writer.
    pub(crate) has_locks: Mutex<bool>,
}

/// Returns the error for a URL that does not refer to a single server.
fn not_one(url: &Url, what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, End::Sink, "write to the server")
        .cause(format!("{} {what}", url.server()))
        .remedy(
            "use one data server of the cluster: `xrdfs HOST locate '*'` lists the data \
            servers",
        )
}

/// Refuses managers and proxies. A manager puts each file on any server, and a proxy stores its
/// files on another server. But a file, its partial file and its log must be on the same server,
/// and synced data must be on that server.
fn check_role(url: &Url, role: &str) -> Result<()> {
    match role.trim() {
        "server" | "none" => Ok(()),
        role if role.contains("manager") || role.contains("supervisor") => Err(not_one(
            url,
            "is the manager of a cluster and stores no files",
        )),
        role => Err(not_one(
            url,
            &format!("reports the role {role:?}, which stores no files"),
        )),
    }
}

/// Refuses a name that refers to several hosts. Each login resolves the name again and may use
/// another host, so one host would sync data that another host has. A name may refer to both an
/// IPv4 address and an IPv6 address of one host.
fn check_name(url: &Url) -> Result<()> {
    let found = (url.host_name(), 0).to_socket_addrs();
    // Ignore a name that does not resolve here. The XRootD client has just connected to this name,
    // so the client itself can resolve it.
    let found: HashSet<IpAddr> = found.into_iter().flatten().map(|at| at.ip()).collect();
    check_addresses(url, &found)
}

fn check_addresses(url: &Url, found: &HashSet<IpAddr>) -> Result<()> {
    let of_v4 = found.iter().filter(|address| address.is_ipv4()).count();
    if of_v4 > 1 || found.len() - of_v4 > 1 {
        return Err(not_one(
            url,
            "has several addresses, which may belong to several servers",
        ));
    }
    Ok(())
}

/// Rejects names that the server or the client cannot handle.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for names that contain one of [`REFUSED_NAME_BYTES`];
/// [`ErrorKind::NameTooLong`] for names longer than [`NAME_BYTES_MAX`].
fn check_names(path: &RelPath) -> Result<()> {
    let bytes = path.as_bytes();
    let refused = bytes.iter().find(|byte| REFUSED_NAME_BYTES.contains(byte));
    let mut names = bytes.split(|byte| *byte == b'/');
    let (kind, cause) = match refused {
        Some(b'\n') => (
            ErrorKind::Unsupported,
            "an XRootD server cannot list a name with a line break",
        ),
        Some(_) => (
            ErrorKind::Unsupported,
            "the XRootD client does not accept a name with a question mark",
        ),
        None if names.any(|name| name.len() > NAME_BYTES_MAX) => (
            ErrorKind::NameTooLong,
            "the name is longer than the 254 bytes that an XRootD server can list",
        ),
        None => return Ok(()),
    };
    let error = Server::error(kind, "name the file", path).cause(cause);
    Err(error.remedy("rename the file at the source, or exclude it with --exclude"))
}

impl Server {
    /// Opens the server and folder of `url`. Asks the server for its role.
    pub(crate) fn open(url: Url, connections: usize, pages: bool) -> Result<Self> {
        let client = client()?;
        let role = client.config(&url.login(0), "role")?;
        check_role(&url, &role)?;
        check_name(&url)?;
        let offered = client.config(&url.login(0), "chksum").unwrap_or_default();
        let algorithm = checksum::NAMES.iter().find(|name| offered.contains(**name));
        let options = ConnectionOptions {
            most: connections,
            depth: DEPTH,
            rule: Rule::Automatic,
        };
        Ok(Self {
            base: url.path().clone(),
            pages: pages || url.pages(),
            url,
            // The client connects at the first call, so this function need not connect.
            logins: Connections::new(&options, Ok),
            connections: connections.max(1),
            algorithm: algorithm.copied(),
            data_server: Mutex::default(),
            has_locks: Mutex::default(),
        })
    }

    pub(crate) const fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn client() -> Result<&'static Client> {
        client()
    }

    pub(crate) fn login(&self) -> String {
        self.url.login(0)
    }

    pub(crate) const fn has_checksums(&self) -> bool {
        self.algorithm.is_some()
    }

    /// Returns the error for a missing answer of the client.
    pub(crate) fn unanswered() -> Error {
        Error::new(ErrorKind::Internal, End::Sink, "write the files").cause(
            "the server sent no \
            answer",
        )
    }

    /// Returns the path relative to the server's root.
    ///
    /// # Errors
    /// The errors of [`check_names`].
    pub(crate) fn full(&self, path: &RelPath) -> Result<RelPath> {
        check_names(path)?;
        self.base.join_path(path)
    }

    /// Returns the URL of a path for one of the logins.
    pub(crate) fn at(&self, path: &RelPath, login: usize) -> Result<Vec<u8>> {
        self.url.at(&self.full(path)?, login)
    }

    /// Returns a path in the form of the server's file system requests.
    pub(crate) fn asked(&self, path: &RelPath) -> Result<Vec<u8>> {
        self.with(path, None)
    }

    fn with(&self, path: &RelPath, question: Option<&str>) -> Result<Vec<u8>> {
        asked(&self.full(path)?, [question, Some(self.url.cgi())])
    }

    /// Returns an error for a path of this sink.
    pub(crate) fn error(kind: ErrorKind, operation: &str, path: &RelPath) -> Error {
        Error::new(kind, End::Sink, operation).file(path)
    }

    /// Adds a path of this sink to the error of a client call.
    pub(crate) fn about<T>(path: &RelPath, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.file(path).at(End::Sink))
    }

    pub(crate) fn open_file(&self, path: &RelPath, login: usize, how: Mode) -> Result<RemoteFile> {
        let opened = self
            .at(path, login)
            .and_then(|url| client()?.open(&url, how));
        Self::about(path, opened.and_then(|file| self.check_server(file)))
    }

    /// Checks that an opened file is on the same server as the first opened file.
    fn check_server(&self, file: RemoteFile) -> Result<RemoteFile> {
        let server = file.server()?;
        let mut known = self.data_server.lock_unpoisoned();
        match known.as_ref() {
            Some(known) if *known != server => Err(not_one(
                &self.url,
                &format!("stores files at {known} and at {server}"),
            )),
            _ => {
                *known = Some(server);
                Ok(file)
            }
        }
    }

    /// Opens a file for writing, exclusively.
    pub(crate) fn open_alone(&self, path: &RelPath) -> Result<Alone> {
        let opened = self.at(path, 0).and_then(|url| client()?.open_alone(&url));
        Self::about(path, opened).and_then(|alone| match alone {
            Alone::Opened(file) => self.check_server(file).map(Alone::Opened),
            locked @ Alone::Locked(_) => Ok(locked),
        })
    }

    /// Returns the state of the entry at a path.
    pub(crate) fn look(&self, path: &RelPath) -> Result<Option<RemoteState>> {
        let asked = self.asked(path)?;
        match client()?.look(&self.login(), &asked) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.file(path).at(End::Sink)),
        }
    }

    /// Returns the note of an existing file, if the note is valid. A server without extended
    /// attributes has no notes.
    pub(crate) fn note(&self, path: &RelPath, found: &RemoteState) -> Result<Option<FileNote>> {
        let asked = self.asked(path)?;
        match client()?.attribute(&self.login(), &asked, ATTRIBUTE) {
            Ok(value) => Ok(note::read(&value, found.size, found.modified.seconds)),
            Err(error) if is_lost(&error) => Err(error.file(path).at(End::Sink)),
            Err(_) => Ok(None),
        }
    }

    /// Sets the note about the source of a file. The note contains the file's size and time at the
    /// server.
    pub(crate) fn set_note(
        &self,
        path: &RelPath,
        found: &RemoteState,
        (modified, sums): (ModifiedTime, Option<Sums>),
    ) -> Result<()> {
        let note = FileNote {
            size: found.size,
            modified,
            sums,
        };
        let text = format!("{} {}", note::text(&note), found.modified.seconds);
        let asked = self.asked(path)?;
        match client()?.set_attribute(&self.login(), &asked, ATTRIBUTE, &text) {
            Err(error) if is_lost(&error) => Err(error.file(path).at(End::Sink)),
            // Ignore a server without extended attributes. The file stays, but a later run cannot
            // adopt the file, and sends all of it again.
            _ => Ok(()),
        }
    }

    /// Returns the request for a file's checksum; `None` if the server computes no checksums.
    fn question(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        let name = self.algorithm.map(|name| format!("cks.type={name}"));
        name.map(|name| self.with(path, Some(&name))).transpose()
    }

    /// Requests the server's checksum of a file and compares it with `sums`. Returns false if the
    /// server has no checksum of an algorithm that dray supports.
    ///
    /// # Errors
    /// [`ErrorKind::ChecksumMismatch`] if the checksums differ.
    pub(crate) fn compare(&self, path: &RelPath, sums: &Sums) -> Result<bool> {
        let Some(question) = self.question(path)? else {
            return Ok(false);
        };
        let mut questions = 1;
        loop {
            match client()?.checksum(&self.login(), &question) {
                Ok(answer) => return compare_answer(path, &answer, sums),
                // The server does not support the algorithm, so no checksum is compared.
                Err(error) if checksum::is_unknown(error.kind) => return Ok(false),
                // The server is still reading the file. Ask again, because the client waits only
                // half an hour for each answer.
                Err(error) if error.kind == ErrorKind::TimedOut && questions < QUESTIONS_MAX => {
                    questions += 1;
                }
                Err(error) => return Err(error.file(path).at(End::Sink)),
            }
        }
    }

    /// Returns the identity of a file for the object log. It leaves out the number of the file
    /// system, because the number changes when the server's host restarts.
    pub(crate) const fn id(found: &RemoteState) -> PartialId {
        id_of(found.id)
    }

    /// Returns the number of the file system that contains a file. The number is valid until the
    /// server's host restarts.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "only the lower half is used"
    )]
    pub(crate) const fn device(found: &RemoteState) -> u32 {
        found.id as u32
    }

    /// Returns true if the file `found` has the identity `id`. Returns false if the server sends no
    /// file numbers.
    pub(crate) fn is_that(found: &RemoteState, id: PartialId) -> bool {
        let inode = Self::id(found).inode;
        inode != 0 && inode == id.inode
    }

    /// Returns the random number that dray stored with a file when it created the file. Returns 0
    /// if the file has no such number, or if the server has no extended attributes.
    pub(crate) fn birth(&self, path: &RelPath) -> Result<u64> {
        let asked = self.asked(path)?;
        match client()?.attribute(&self.login(), &asked, BIRTH) {
            Ok(value) => {
                let digits = std::str::from_utf8(&value).unwrap_or_default();
                Ok(u64::from_str_radix(digits, 16).unwrap_or(0))
            }
            Err(error) if is_lost(&error) => Err(error.file(path).at(End::Sink)),
            Err(_) => Ok(0),
        }
    }

    /// Stores a random number with a new file, so that a later file with the same file number is
    /// not mistaken for this file.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the server has no file numbers.
    pub(crate) fn mark(&self, path: &RelPath, found: &RemoteState) -> Result<PartialId> {
        let id = Self::id(found);
        if id.inode == 0 {
            let error = Self::error(ErrorKind::Unsupported, "create the partial file", path);
            return Err(error
                .cause("the server reports no id of the file")
                .remedy("use a server that reports file ids"));
        }
        let birth = random().max(1);
        let asked = self.asked(path)?;
        let marked =
            client()?.set_attribute(&self.login(), &asked, BIRTH, &format!("{birth:016x}"));
        match marked {
            Ok(()) => Ok(PartialId { born: birth, ..id }),
            Err(error) if is_lost(&error) => Err(error.file(path).at(End::Sink)),
            Err(_) => Ok(id),
        }
    }

    /// Returns true if the file at `path` has the random number of `id`, or if `id` has no such
    /// number.
    pub(crate) fn has_mark(&self, path: &RelPath, id: PartialId) -> Result<bool> {
        Ok(id.born == 0 || self.birth(path)? == id.born)
    }
}

/// Returns a different number at each call. Not suitable for secrets.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

pub(crate) fn folder_of(path: &RelPath) -> RelPath {
    path.parent().unwrap_or_else(RelPath::root)
}

/// Returns the identity for a file number of the server. The upper half of the number is the inode,
/// and the lower half is the number of the file system.
pub(crate) const fn id_of(number: u64) -> PartialId {
    PartialId {
        inode: number >> 32,
        device: 0,
        born: 0,
    }
}

/// Returns the file number for an identity. Its lower half, the number of the file system, is 0.
/// The whole number is 0 if the inode is unknown.
pub(crate) const fn number_of(id: PartialId) -> u64 {
    id.inode << 32
}

/// Returns true if the error means that the connection to the server was lost.
pub(crate) const fn is_lost(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut)
}

/// Compares a server's answer, such as "adler32 37dc018b", with the checksums of the written data.
/// Returns false if dray does not support the algorithm of the answer.
fn compare_answer(path: &RelPath, answer: &str, sums: &Sums) -> Result<bool> {
    let Some(known) = checksum::read(answer) else {
        return Ok(false);
    };
    if known.matches(sums) {
        return Ok(true);
    }
    let ours: Checksum = known.same_algorithm(sums);
    let cause = format!(
        "the destination's server computed the checksum {known}, but the sent bytes have the \
            checksum {ours}"
    );
    Err(
        Server::error(ErrorKind::ChecksumMismatch, "write the file", path)
            .cause(cause)
            .remedy("run the same command again; if the error remains, check the server's storage"),
    )
}

#[cfg(test)]
mod tests {
    use super::{check_addresses, check_role};
    use crate::url::Url;
    use std::net::IpAddr;

    #[test]
    fn only_one_server_of_files_is_written_to() {
        let url = Url::parse("root://host//d").expect("a good URL");
        for role in ["server", "none\n"] {
            check_role(&url, role).expect("keeps files");
        }
        for role in ["manager", "proxy server", "supervisor", "role", ""] {
            assert!(check_role(&url, role).is_err(), "{role}");
        }
        let is_one = |addresses: &[&str]| {
            let found = addresses.iter().map(|text| text.parse::<IpAddr>());
            let found = found.collect::<Result<_, _>>().expect("addresses");
            check_addresses(&url, &found).is_ok()
        };
        assert!(is_one(&["127.0.0.1", "::1"]));
        assert!(is_one(&["127.0.0.1"]));
        assert!(!is_one(&["192.0.2.1", "192.0.2.2"]));
        assert!(!is_one(&["2001:db8::1", "192.0.2.1", "2001:db8::2"]));
    }
}
