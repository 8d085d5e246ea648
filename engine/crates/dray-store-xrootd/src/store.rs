//! A store that reads the files of one server or cluster.

use crate::client::client;
use crate::cluster::Cluster;
use crate::files::Files;
use crate::list::Folders;
use crate::read::{Handle, How, RemoteReader};
use crate::replicas::{ReplicaHandle, ReplicaReader};
use crate::url::Url;
use dray_core::path::PATH_LENGTH_MAX;
use dray_core::{End, ErrorKind, RelPath, Result};
use dray_store::{
    Capabilities, FileKind, FileState, FolderLister, ListOptions, Lister, ReadHandle, ReadPurpose,
    ReadState, Readable, Target,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of times that the authorisation permits opening a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorised {
    /// Any number of times: the reader has credentials, or needs none.
    #[default]
    Always,
    /// Only once, as with the key of a third-party copy.
    Once,
}

/// Options for reading from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XrootdOptions {
    /// Number of times that a file may be opened.
    pub authorised: Authorised,
    /// Maximum number of connections for a file that several threads read.
    pub connections: u32,
    /// True if the server must send a checksum with each page of 4 KiB. The URL may request this
    /// too.
    pub pages: bool,
    /// True if the caller compares a checksum of the whole file before it publishes a copy for which
    /// [`XrootdStore::is_from_several`] or [`XrootdStore::has_new_time`] is true. The store then
    /// reads a large file from all servers of a cluster that have it, although only the checksum
    /// shows that the replicas are equal. The store also continues to read a file whose
    /// modification time changes, because some servers change the time when a client reads the file
    /// (XrdCeph).
    pub is_compared: bool,
}

impl Default for XrootdOptions {
    fn default() -> Self {
        Self {
            authorised: Authorised::Always,
            connections: 4,
            pages: false,
            is_compared: false,
        }
    }
}

/// The files of a server. Paths start at the server's root.
#[derive(Clone)]
pub struct XrootdStore {
    options: XrootdOptions,
    /// The open file, if only one opening is permitted.
    one: Option<Arc<RemoteReader>>,
    /// The server, and the replicas of the file that the URL names, if the server is the manager of
    /// a cluster.
    cluster: Arc<Cluster>,
    /// True if the server has sent another modification time of the file that the URL names.
    new_time: Arc<AtomicBool>,
}

impl XrootdStore {
    /// Creates a store for the server of `url`. With [`Authorised::Once`], this function opens the
    /// file that the URL names, and the store contains only this file. Otherwise this function
    /// sends no request.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the client library cannot be loaded; errors of opening the
    /// file.
    pub fn open(url: Url, end: End, options: XrootdOptions) -> Result<Self> {
        client()?;
        let options = XrootdOptions {
            pages: options.pages || url.pages(),
            ..options
        };
        let may_locate = options.is_compared && options.authorised == Authorised::Always;
        let mut store = Self {
            options,
            one: None,
            cluster: Arc::new(Cluster::new(Files { url, end }, may_locate)),
            new_time: Arc::default(),
        };
        if options.authorised == Authorised::Once {
            let path = store.url().path().clone();
            store.one = Some(Arc::new(store.reader(&path, true)?));
        }
        Ok(store)
    }

    /// Asks the server, or all servers of the file's replicas, for the size and time of a file. A
    /// caller calls this function before it publishes a copy.
    ///
    /// # Errors
    /// Errors of the server.
    pub fn state_now(&self, path: &RelPath) -> Result<ReadState> {
        let found = match &self.one {
            Some(one) => one.found(true),
            None => self
                .files()
                .look(path)
                .and_then(|found| Ok(self.cluster.examine(path, found)?.0)),
        };
        let found = found.map_err(|error| error.file(path))?;
        Ok(ReadState {
            size: found.size,
            modified: found.modified,
        })
    }

    /// Sends a question about the file at `path` to a plug-in of the server. The request uses an
    /// open file, so the plug-in knows that this client is allowed to read the file.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the server has no such plug-in; errors of opening the file,
    /// and errors of the server.
    pub fn ask(&self, path: &RelPath, question: &str, wait: Duration) -> Result<String> {
        let answer = match &self.one {
            Some(one) => one.ask(question, wait),
            None => self.reader(path, false)?.ask(question, wait),
        };
        answer.map_err(|error| error.file(path).at(self.files().end))
    }

    /// Returns true if the file is read from several servers. The caller must then compare a
    /// checksum of the whole file. The result is valid after the file was listed or its state was
    /// requested.
    #[must_use]
    pub fn is_from_several(&self) -> bool {
        self.cluster.is_from_several()
    }

    /// Returns true if the server has reported a new modification time of the file, but the same
    /// size, after the copy began. The caller must then request the checksum of the file again and
    /// compare it.
    #[must_use]
    pub fn has_new_time(&self) -> bool {
        self.new_time.load(Ordering::SeqCst)
    }

    /// Returns the URL of the store.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.files().url
    }

    pub(crate) fn files(&self) -> &Files {
        &self.cluster.files
    }

    fn reader(&self, path: &RelPath, is_once: bool) -> Result<RemoteReader> {
        self.reader_at(self.url(), path, is_once)
    }

    fn reader_at(&self, url: &Url, path: &RelPath, is_once: bool) -> Result<RemoteReader> {
        let is_compared = self.options.is_compared && path == self.url().path();
        let how = How {
            new_time: is_compared.then(|| Arc::clone(&self.new_time)),
            ..self.how(is_once)
        };
        let opened = RemoteReader::open(url, path, how);
        opened.map_err(|error| error.file(path).at(self.files().end))
    }

    const fn how(&self, is_once: bool) -> How {
        How {
            connections: self.options.connections,
            pages: self.options.pages,
            is_once,
            seconds: None,
            new_time: None,
        }
    }
}

impl Readable for XrootdStore {
    fn kind(&self) -> &'static str {
        "an XRootD server"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            path_bytes_max: PATH_LENGTH_MAX,
            ..Capabilities::MINIMAL
        }
    }

    fn targets(&self) -> Vec<Target> {
        self.cluster.targets()
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        let found = match &self.one {
            Some(one) if top == self.url().path() => one.found(false),
            Some(_) => Err(self.files().error(ErrorKind::NotFound, "list", top)),
            None => self.files().look(top),
        };
        let found = found.map_err(|error| error.file(top).at(self.files().end))?;
        let folders = Folders(Arc::clone(&self.cluster));
        Ok(Box::new(FolderLister::from_top(
            top, found, options, folders,
        )?))
    }

    fn open_read(&self, path: &RelPath, _purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        if let Some(one) = &self.one {
            if path != self.url().path() {
                return Err(self
                    .files()
                    .error(ErrorKind::NotFound, "open the file", path));
            }
            return Ok(Box::new(Handle(Arc::clone(one))));
        }
        if let Some(located) = self.cluster.located(path) {
            let reader = ReplicaReader::new(self.url(), path, located, self.how(false));
            return Ok(Box::new(ReplicaHandle(reader)));
        }
        Ok(Box::new(Handle(Arc::new(self.reader(path, false)?))))
    }

    fn open_listed(&self, path: &RelPath, listed: &ReadState) -> Result<Box<dyn ReadHandle>> {
        if self.one.is_some() || self.cluster.located(path).is_some() {
            return self.open_read(path, ReadPurpose::Transfer);
        }
        let reader = self.reader(path, false)?;
        if reader.opened().is(listed) {
            return Ok(Box::new(Handle(Arc::new(reader))));
        }
        // The manager of a cluster may choose another server than the one that was listed.
        let server = self.cluster.server_that_has(path, listed);
        let reader = match server.map_err(|error| error.file(path).at(self.files().end))? {
            Some(server) => self.reader_at(&self.url().with_host(&server), path, false)?,
            None => {
                // If the reader does not accept the new time, it reports the change.
                reader.assume(listed);
                reader
            }
        };
        Ok(Box::new(Handle(Arc::new(reader))))
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        let found = match self.files().look(path) {
            Ok(found) => found,
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.file(path).at(self.files().end)),
        };
        let kind = match (found.is_folder, found.is_special) {
            (true, _) => FileKind::Directory,
            (false, true) => FileKind::Special,
            (false, false) => FileKind::File,
        };
        Ok(Some(FileState {
            kind,
            size: found.size,
            modified: found.modified,
            mode: if found.is_folder { 0o755 } else { 0o644 },
            inode: 0,
            device: 0,
        }))
    }
}
