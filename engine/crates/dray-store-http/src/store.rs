//! A store that reads files of a web server.

use crate::address_policy::AddressPolicy;
use crate::credentials::Credentials;
use crate::list::list;
use crate::read::HttpFile;
use crate::server::{Server, or_unknown};
use crate::url::HttpUrl;
use dray_core::path::PATH_LENGTH_MAX;
use dray_core::{Checksum, End, ErrorKind, RelPath, Result};
use dray_store::{
    Capabilities, FileKind, FileState, ListOptions, Lister, ReadHandle, ReadPurpose, ReadState,
    Readable, Target, TargetMap, Targets,
};
use std::sync::Arc;

/// The files of a web server. Paths start at the server's root. To use the files as a
/// [`dray_store::Store`], wrap this structure in [`dray_store::ReadOnly`].
#[derive(Clone)]
pub struct HttpStore {
    server: Arc<Server>,
    targets: Arc<Targets>,
}

impl HttpStore {
    /// Creates a store for the server of `url`. The query of the URL is part of every request. This
    /// function sends no request.
    #[must_use]
    pub fn new(url: &HttpUrl, credentials: Credentials, end: End) -> Self {
        Self::with_addresses(url, credentials, end, AddressPolicy::default())
    }

    /// Creates a store as [`Self::new`]. The store sends requests only to the addresses that the
    /// policy permits. The policy does not apply to requests through a proxy of the environment,
    /// because the proxy resolves the name and connects to the server.
    #[must_use]
    pub fn with_addresses(
        url: &HttpUrl,
        credentials: Credentials,
        end: End,
        addresses: AddressPolicy,
    ) -> Self {
        let name = url.origin.to_string();
        Self {
            server: Arc::new(Server::new(url, credentials, end, addresses)),
            targets: Arc::new(Targets::new(TargetMap::new([(RelPath::root(), name)]))),
        }
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Asks the server for the current size and time of a file.
    ///
    /// # Errors
    /// Errors of the server; `Unsupported` if changes of the file cannot be detected.
    pub fn state_now(&self, path: &RelPath) -> Result<ReadState> {
        let found = self.server.look(path, "read the attributes of the file")?;
        let known = self
            .server
            .as_file(found, "read the attributes of the file")?;
        Ok(ReadState {
            size: known.size,
            modified: or_unknown(known.modified),
        })
    }

    /// Returns the server's checksum of a whole file; `None` if dray does not support its
    /// algorithm. A server without a stored checksum reads the file before it answers. If a request
    /// times out because of this, it is repeated while `waits` returns true.
    ///
    /// # Errors
    /// Errors of the server.
    pub fn checksum(&self, path: &RelPath, waits: &dyn Fn() -> bool) -> Result<Option<Checksum>> {
        self.server.digest(path, waits)
    }
}

impl Readable for HttpStore {
    fn kind(&self) -> &'static str {
        "a web server"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            path_bytes_max: PATH_LENGTH_MAX,
            ..Capabilities::MINIMAL
        }
    }

    fn targets(&self) -> Vec<Target> {
        self.targets.all()
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        Ok(Box::new(list(Arc::clone(&self.server), top, options)?))
    }

    fn open_read(&self, path: &RelPath, _purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        let server = Arc::clone(&self.server);
        let known = match server.recall(path) {
            Some(known) => known,
            None => {
                let found = server.look(path, "open the file")?;
                server.as_file(found, "open the file")?
            }
        };
        Ok(Box::new(HttpFile::new(server, path.clone(), known)))
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        let found = match self.server.look(path, "read the attributes of the file") {
            Ok(found) => found,
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (kind, mode) = match found.is_folder {
            true => (FileKind::Directory, 0o755),
            false => (FileKind::File, 0o644),
        };
        Ok(Some(FileState {
            kind,
            size: found.size.unwrap_or_default(),
            modified: or_unknown(found.modified),
            mode,
            inode: 0,
            device: 0,
        }))
    }
}
