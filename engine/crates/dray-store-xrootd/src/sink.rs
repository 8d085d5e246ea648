//! A store that writes to a folder on a server.

use crate::barrier::Barriers;
use crate::client::{Mode, RemoteFile};
use crate::cluster::whole;
use crate::control::RemoteControl;
use crate::partial::{Open, Partials, RemotePartial, open_same};
use crate::server::{
    FILE_MODE, FOLDER_MODE, NAME_BYTES_MAX, OWN_MODE, REFUSED_NAME_BYTES, Server, folder_of,
};
use crate::small::{self, beside};
use crate::store::{XrootdOptions, XrootdStore};
use crate::sync::SyncGroup;
use crate::url::Url;
use dray_core::lock::LockExt;
use dray_core::{ByteRange, End, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result, Sums};
use dray_store::{
    CONTROL_NAMES_MAX, Capabilities, ControlFile, ControlMode, FileKind, FileNote, FileState,
    FreeSpace, ListOptions, Lister, MadeDir, Partial, PartialId, PartialRequest, Publish,
    ReadHandle, ReadPurpose, ReadState, Readable, SmallFile, SmallName, Store, SyncItem, Target,
    unsupported,
};
use std::sync::Arc;
use std::time::Duration;

/// Options for writing to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkOptions {
    /// Maximum number of connections.
    pub connections: usize,
    /// True if each page of 4 KiB is sent with a checksum, which the server compares.
    pub pages: bool,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self {
            connections: 4,
            pages: false,
        }
    }
}

/// Maximum time after the loss of a lease during which a rename of the former holder can still take
/// effect. The client gives up a rename after `CHANGE_SECONDS` (plugins/xrootd/xrdcl/common.hh),
/// and checks this limit every 15 seconds. Until then it may repeat the rename after a lost
/// connection, although the lease was lost with the connection. The value is the sum of this limit,
/// the interval of the checks, and two seconds as a reserve.
const LATE_CALLS: Duration = Duration::from_secs(15 + 15 + 2);

/// A folder on a server, open for writing.
pub struct XrootdSink {
    server: Arc<Server>,
    partials: Arc<Partials>,
    barriers: Arc<Barriers>,
    /// A store that reads from the root of the same server.
    reader: XrootdStore,
}

impl XrootdSink {
    /// Opens the folder of `url`. Asks the server for its role. The folder need not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the client library cannot be loaded, or if the server only
    /// redirects clients; errors of the server.
    pub fn open(url: Url, options: SinkOptions) -> Result<Self> {
        let reader = XrootdStore::open(url.clone(), End::Sink, XrootdOptions::default())?;
        let server = Server::open(url, options.connections, options.pages);
        let server = Arc::new(server.map_err(|error| error.at(End::Sink))?);
        Ok(Self {
            partials: Arc::default(),
            barriers: Arc::new(Barriers::new(Arc::clone(&server))),
            server,
            reader,
        })
    }

    /// Opens another folder of the same server.
    ///
    /// # Errors
    /// The errors of [`XrootdSink::open`].
    pub fn elsewhere(&self, folder: &RelPath, options: SinkOptions) -> Result<Self> {
        Self::open(self.server.url().with_path(folder), options)
    }

    /// Creates the folder and its missing parents.
    ///
    /// # Errors
    /// [`ErrorKind::NotADirectory`] if the path is another kind of entry; errors of the server.
    pub fn make_root(&self) -> Result<()> {
        let root = RelPath::root();
        match self.server.look(&root)? {
            Some(found) if found.is_folder => return Ok(()),
            Some(_) => {
                return Err(not_a_folder(
                    "open the destination",
                    &self.server.full(&root)?,
                ));
            }
            None => {}
        }
        let asked = self.server.asked(&root)?;
        let made = Server::client()?.make_dir(&self.server.login(), &asked, FOLDER_MODE, true);
        Server::about(&self.server.full(&root)?, made)
    }

    fn note_of(&self, path: &RelPath) -> Result<Option<FileNote>> {
        match self.server.look(path)? {
            Some(found) if !found.is_folder => self.server.note(path, &found),
            Some(_) => Ok(None),
            None => Err(Server::error(
                ErrorKind::NotFound,
                "read the stored checksums of the file",
                path,
            )),
        }
    }

    /// Opens the file that has the name `path` now, for reading. A server shares one handle between
    /// all readers of a name. So while another client still reads a replaced file, a new reader of
    /// the name gets the replaced file too. A client that opens the name for writing gets another
    /// handle. So the second attempt opens the file for writing, if the first attempt got a
    /// replaced file.
    fn open_named(&self, path: &RelPath) -> Result<RemoteFile> {
        for how in [Mode::ReadShared, Mode::UpdateShared] {
            let file = self.server.open_file(path, 0, how)?;
            let opened = Server::about(path, file.state(false))?;
            if opened.is_folder {
                let error = Server::error(ErrorKind::IsADirectory, "open the file", path);
                return Err(error.cause("a folder with this name exists"));
            }
            let named = self.server.look(path)?;
            if named.is_some_and(|named| Server::id(&named) == Server::id(&opened)) {
                return Ok(file);
            }
        }
        Err(Server::error(ErrorKind::Busy, "open the file", path)
            .cause("other clients still have the replaced file open")
            .remedy("run the same command again when no client has the replaced file open"))
    }
}

impl Drop for XrootdSink {
    fn drop(&mut self) {
        // Break the cycle of references: the map holds each `Open`, and each `Open` refers to the
        // map.
        self.partials.dirty.lock_unpoisoned().clear();
    }
}

fn not_a_folder(operation: &str, path: &RelPath) -> Error {
    Server::error(ErrorKind::NotADirectory, operation, path)
        .cause("another entry with this name exists")
        .remedy("move the existing entry away, or choose another destination")
}

impl Store for XrootdSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_write: true,
            atomic_rename: true,
            publish_replace: true,
            can_hold_log: true,
            compares_sums: self.server.has_checksums(),
            takes_many: true,
            refused_name_bytes: REFUSED_NAME_BYTES,
            name_bytes_max: NAME_BYTES_MAX,
            late_calls: LATE_CALLS,
            ..Capabilities::MINIMAL
        }
    }

    fn targets(&self) -> Vec<Target> {
        self.reader.targets()
    }

    fn layout(&self, _path: &RelPath) -> Result<Layout> {
        Ok(whole())
    }

    fn free_space(&self, path: &RelPath) -> Result<FreeSpace> {
        let asked = self.server.asked(path)?;
        let said = Server::client()?.space(&self.server.login(), &asked);
        let said = Server::about(path, said)?;
        let number = |name: &str| {
            let mut pairs = said.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(key, _)| *key == name)
                .and_then(|(_, value)| value.parse().ok())
        };
        Ok(FreeSpace {
            free_bytes: number("oss.free").unwrap_or(0),
            total_bytes: number("oss.space").unwrap_or(0),
        })
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        let options = ListOptions {
            contents: options.contents || top.is_root(),
            ..*options
        };
        self.reader.list(&self.server.full(top)?, &options)
    }

    fn open_read(&self, path: &RelPath, _purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        Ok(Box::new(Reading {
            file: self.open_named(path)?,
            path: path.clone(),
        }))
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        let Some(found) = self.server.look(path)? else {
            return Ok(None);
        };
        let kind = match (found.is_folder, found.is_special) {
            (true, _) => FileKind::Directory,
            (false, true) => FileKind::Special,
            (false, false) => FileKind::File,
        };
        let is_ours = path.name().is_some_and(|name| name.is_reserved());
        let note = match kind {
            FileKind::File if !is_ours => self.server.note(path, &found)?,
            _ => None,
        };
        let id = Server::id(&found);
        Ok(Some(FileState {
            kind,
            size: found.size,
            modified: note.map_or(found.modified, |note| note.modified),
            mode: if found.is_folder {
                FOLDER_MODE
            } else {
                FILE_MODE
            },
            inode: id.inode,
            device: id.device,
        }))
    }

    fn born(&self, path: &RelPath) -> Result<u64> {
        self.server.birth(path)
    }

    fn known_sums(&self, path: &RelPath) -> Result<Option<Sums>> {
        Ok(self.note_of(path)?.and_then(|note| note.sums))
    }

    fn confirms(&self, path: &RelPath, sums: &Sums) -> Result<bool> {
        self.server.compare(path, sums)
    }

    fn make_dir(&self, path: &RelPath) -> Result<MadeDir> {
        // Check if the folder exists, because a server also reports success for an existing folder.
        match self.server.look(path)? {
            Some(found) if found.is_folder => return Ok(MadeDir::Existed),
            Some(_) => return Err(not_a_folder("create the folder", path)),
            None => {}
        }
        let asked = self.server.asked(path)?;
        let made = Server::client()?.make_dir(&self.server.login(), &asked, FOLDER_MODE, false);
        Server::about(path, made).map(|()| MadeDir::Created)
    }

    fn set_directory(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        // The server's own user must always have access.
        let mode = (metadata.mode & 0o777) | 0o700;
        if mode == FOLDER_MODE {
            return Ok(());
        }
        let asked = self.server.asked(path)?;
        let set = Server::client()?.set_mode(&self.server.login(), &asked, mode);
        Server::about(path, set)
    }

    fn make_symlink(
        &self,
        path: &RelPath,
        _partial: &Name,
        _text: &[u8],
        _metadata: &Metadata,
        _how: Publish,
    ) -> Result<()> {
        let cause = "the XRootD protocol has no symbolic links";
        Err(unsupported(End::Sink, "create the link", path, cause)
            .remedy("copy the targets of links with --links follow, or exclude links"))
    }

    fn begin(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
    ) -> Result<Box<dyn Partial>> {
        self.server.full(path)?;
        let partial = beside(path, &request.name)?;
        if let Some(id) = request.reuse {
            // If this process has the file open with writes that are not durable yet, return that
            // open file.
            if let Some(open) = self.partials.dirty.lock_unpoisoned().get(&partial)
                && open.id().is(&id)
            {
                return Ok(Box::new(RemotePartial(Arc::clone(open))));
            }
            let file = open_same(&self.server, path, &partial, id, 0)?;
            let open = Open::new(
                (&self.server, &self.partials),
                (path, &partial),
                (id, size_bytes),
                file,
            );
            return Ok(Box::new(RemotePartial(open)));
        }
        let made = self.server.open_file(&partial, 0, Mode::New(OWN_MODE));
        let file = made.map_err(|error| error.file(path))?;
        let found = Server::about(path, file.state(false))?;
        let id = self
            .server
            .mark(&partial, &found)
            .map_err(|error| error.file(path))?;
        let open = Open::new(
            (&self.server, &self.partials),
            (path, &partial),
            (id, 0),
            file,
        );
        let begun = RemotePartial(open);
        if size_bytes > 0
            && let Err(error) = begun.set_len(size_bytes)
        {
            // Delete the new partial file, because no other process knows of it.
            let _ = begun.abort();
            return Err(error);
        }
        Ok(Box::new(begun))
    }

    fn write_small_each(&self, files: &[SmallFile<'_>]) -> Vec<Result<PartialId>> {
        small::write(&self.server, &self.partials, files)
    }

    fn publish_small_each(&self, files: &[SmallName<'_>]) -> Vec<Result<()>> {
        small::publish(&self.server, &self.partials, files)
    }

    fn discard(&self, path: &RelPath, partial: &Name, only: Option<PartialId>) -> Result<()> {
        let at = beside(path, partial)?;
        self.server.discard(path, &at, only)?;
        self.partials.dirty.lock_unpoisoned().remove(&at);
        self.partials.clean.lock_unpoisoned().remove(&at);
        Ok(())
    }

    fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        let group = SyncGroup {
            server: &self.server,
            partials: &self.partials,
            barriers: &self.barriers,
        };
        group.sync_each(items)
    }

    fn remove(&self, path: &RelPath) -> Result<()> {
        let asked = self.server.asked(path)?;
        let (client, login) = (Server::client()?, self.server.login());
        let removed = match client.remove(&login, &asked, false) {
            Err(error) if error.kind == ErrorKind::IsADirectory => {
                client.remove(&login, &asked, true)
            }
            other => other,
        };
        Server::about(path, removed)
    }

    fn open_control(&self, path: &RelPath, mode: ControlMode) -> Result<Box<dyn ControlFile>> {
        Ok(Box::new(RemoteControl::open(
            (&self.server, &self.barriers),
            path,
            mode,
        )?))
    }

    fn remove_control(&self, path: &RelPath) -> Result<()> {
        self.remove(path)?;
        self.barriers.settle_names([&folder_of(path)]).map(|_| ())
    }

    fn list_control(&self, folder: &RelPath) -> Result<Vec<Name>> {
        let full = self.server.full(folder)?;
        let (entries, error) = match self.reader.files().control_entries(&full) {
            Ok(listed) => listed,
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Server::about(folder, Err(error)),
        };
        if let Some(error) = error {
            return Server::about(folder, Err(error));
        }
        if entries.len() > CONTROL_NAMES_MAX {
            return Err(
                Server::error(ErrorKind::LimitExceeded, "list the folder", folder).cause(format!(
                    "the folder has more than {CONTROL_NAMES_MAX} names"
                )),
            );
        }
        // Skip invalid names, because they cannot belong to a log.
        Ok(entries
            .into_iter()
            .filter_map(|(name, _)| name.ok())
            .collect())
    }
}

/// A file that is open to be read back.
struct Reading {
    file: RemoteFile,
    path: RelPath,
}

impl ReadHandle for Reading {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        Server::about(&self.path, self.file.read(offset, buffer, false))
    }

    fn state(&self) -> Result<ReadState> {
        let found = Server::about(&self.path, self.file.state(true))?;
        Ok(ReadState {
            size: found.size,
            modified: found.modified,
        })
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let size = self.state()?.size;
        Ok((offset < size).then(|| ByteRange::between(offset, size)))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        Ok(None)
    }
}
