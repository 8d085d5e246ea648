//! A store that reads files of a GridFTP server.

use crate::facts::Kind;
use crate::list::list;
use crate::read::{GridFtpFile, modified};
use crate::server::Server;
use crate::url::{REFUSED, SCHEME, Url};
use dray_core::path::PATH_LENGTH_MAX;
use dray_core::{Checksum, End, Error, ErrorKind, RelPath, Result};
use dray_store::{
    Capabilities, FileKind, FileState, ListOptions, Lister, ReadHandle, ReadPurpose, Readable,
    Target, TargetMap, Targets,
};
use std::sync::Arc;

/// The files below a folder of a GridFTP server. Wrap this store in [`dray_store::ReadOnly`].
#[derive(Clone)]
pub struct GridFtpStore {
    server: Arc<Server>,
    targets: Arc<Targets>,
}

impl GridFtpStore {
    /// Creates a store of the files below the folder `root`. Loads the client library, and sends no
    /// request.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the client library cannot be loaded.
    pub fn open(root: &Url, end: End) -> Result<Self> {
        let name = format!("{SCHEME}{}", root.server);
        Ok(Self {
            server: Arc::new(Server::new(root.clone(), end)?),
            targets: Arc::new(Targets::new(TargetMap::new([(RelPath::root(), name)]))),
        })
    }

    /// Returns the server's Adler-32 checksum of a file. The server reads the whole file before it
    /// answers. Returns `None` if the server does not compute this checksum.
    ///
    /// # Errors
    /// Errors of the server.
    pub fn checksum(&self, path: &RelPath) -> Result<Option<Checksum>> {
        self.server.checksum(path)
    }
}

impl Readable for GridFtpStore {
    fn kind(&self) -> &'static str {
        "a GridFTP server"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            path_bytes_max: PATH_LENGTH_MAX,
            refused_name_bytes: REFUSED,
            ..Capabilities::MINIMAL
        }
    }

    fn targets(&self) -> Vec<Target> {
        self.targets.all()
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        Ok(Box::new(list(&self.server, top, options)?))
    }

    fn open_read(&self, path: &RelPath, _purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        let operation = "open the file";
        let found = self.server.look(path, operation)?;
        let wrong = match found.kind {
            Kind::File => {
                let server = Arc::clone(&self.server);
                return Ok(Box::new(GridFtpFile::new(server, path.clone(), found)));
            }
            Kind::Folder => ErrorKind::IsADirectory,
            Kind::Special | Kind::Dot => ErrorKind::Unsupported,
        };
        let error = Error::new(wrong, self.server.end, operation).file(path);
        Err(error.cause("the path does not name a regular file"))
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        let found = match self.server.look(path, "read the attributes of the file") {
            Ok(found) => found,
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (kind, mode) = match found.kind {
            Kind::Folder => (FileKind::Directory, 0o755),
            Kind::File => (FileKind::File, 0o644),
            Kind::Special | Kind::Dot => (FileKind::Special, 0o644),
        };
        Ok(Some(FileState {
            kind,
            size: found.size,
            modified: modified(&found),
            mode,
            inode: 0,
            device: 0,
        }))
    }
}
