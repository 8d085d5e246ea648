//! The store that reads one server's files.

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
use std::time::Duration;

/// Number of openings that a reader's authorisation permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorised {
    /// Any number: with credentials, or if none are needed.
    #[default]
    Always,
    /// One opening, as with the key of a third-party copy.
    Once,
}

/// Options for reading from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XrootdOptions {
    /// Number of permitted openings.
    pub authorised: Authorised,
    /// Maximum number of connections for a file with several readers.
    pub connections: u32,
    /// Requests a checksum with each page of 4 KiB; the URL may request it too.
    pub pages: bool,
    /// Reads a large file from all servers of a cluster that have it. Only a checksum of the whole
    /// shows that their replicas are equal. Set it only if the caller compares one before it
    /// publishes the copy, where [`XrootdStore::is_from_several`] is true.
    pub replicas: bool,
}

impl Default for XrootdOptions {
    fn default() -> Self {
        Self {
            authorised: Authorised::Always,
            connections: 4,
            pages: false,
            replicas: false,
        }
    }
}

/// A server's files, from its root.
#[derive(Clone)]
pub struct XrootdStore {
    options: XrootdOptions,
    /// The one file, if it may be opened only once.
    one: Option<Arc<RemoteReader>>,
    /// The server, and the replicas of the file at the URL's path if a cluster has it.
    cluster: Arc<Cluster>,
}

impl XrootdStore {
    /// Returns a store of the server that `url` names. With [`Authorised::Once`] it holds the one
    /// file at that path, which is opened now; otherwise no request is sent yet.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the XRootD client cannot be loaded; errors of the opening.
    pub fn open(url: Url, end: End, options: XrootdOptions) -> Result<Self> {
        client()?;
        let options = XrootdOptions {
            pages: options.pages || url.pages(),
            ..options
        };
        let may_locate = options.replicas && options.authorised == Authorised::Always;
        let mut store = Self {
            options,
            one: None,
            cluster: Arc::new(Cluster::new(Files { url, end }, may_locate)),
        };
        if options.authorised == Authorised::Once {
            let path = store.url().path().clone();
            store.one = Some(Arc::new(store.reader(&path, true)?));
        }
        Ok(store)
    }

    /// Queries size and time of a file at the server, or at all its servers; called before a copy
    /// is published.
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

    /// Sends the server a question about the file at `path` for one of its plug-ins. The request
    /// uses an open file, so the plug-in knows that the server permits this reader to read it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the server has no such plug-in; errors of the opening, and of
    /// the server.
    pub fn ask(&self, path: &RelPath, question: &str, wait: Duration) -> Result<String> {
        let answer = match &self.one {
            Some(one) => one.ask(question, wait),
            None => self.reader(path, false)?.ask(question, wait),
        };
        answer.map_err(|error| error.file(path).at(self.files().end))
    }

    /// Returns true if the file is read from several servers: then only a checksum of the whole
    /// shows that it is one file, and has to be compared. Valid after the file was listed or
    /// queried.
    #[must_use]
    pub fn is_from_several(&self) -> bool {
        self.cluster.is_from_several()
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
        let opened = RemoteReader::open(url, path, self.how(is_once));
        opened.map_err(|error| error.file(path).at(self.files().end))
    }

    const fn how(&self, is_once: bool) -> How {
        How {
            connections: self.options.connections,
            pages: self.options.pages,
            is_once,
            seconds: None,
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
        // A cluster's manager may have chosen another server than the listing came from. If no
        // server has the listed version, the reader reports the change.
        let server = self.cluster.server_that_has(path, listed);
        let reader = match server.map_err(|error| error.file(path).at(self.files().end))? {
            Some(server) => self.reader_at(&self.url().with_host(&server), path, false)?,
            None => reader,
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
