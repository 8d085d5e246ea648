//! A store for backends that can only read. All write calls fail.

use crate::store::{ControlFile, Lister, Partial, ReadHandle, Store};
use crate::types::{
    Attributes, Capabilities, ControlMode, FileState, FolderVersion, FreeSpace, ListOptions,
    MadeDir, PartialId, PartialRequest, Publish, ReadPurpose, ReadState, SyncItem, Target,
};
use dray_core::{
    ByteRange, End, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result, Sums, TargetId,
};

/// The methods of [`Store`] that read. A backend without write support implements this trait.
pub trait Readable: Send + Sync {
    /// Name of the backend in error messages, such as "a web server".
    fn kind(&self) -> &'static str;

    /// Returns the capabilities of this store, as [`Store::capabilities`] does. The caller ignores
    /// the capabilities for writing.
    fn capabilities(&self) -> Capabilities;

    /// Returns the storage targets of this store.
    fn targets(&self) -> Vec<Target>;

    /// As [`Store::layout`].
    ///
    /// # Errors
    /// The errors of [`Store::layout`].
    fn layout(&self, path: &RelPath) -> Result<Layout> {
        let _ = path;
        Ok(Layout::Single(TargetId(0)))
    }

    /// As [`Store::list`].
    ///
    /// # Errors
    /// The errors of [`Store::list`].
    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>>;

    /// As [`Store::open_read`].
    ///
    /// # Errors
    /// The errors of [`Store::open_read`].
    fn open_read(&self, path: &RelPath, purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>>;

    /// As [`Store::open_listed`].
    ///
    /// # Errors
    /// The errors of [`Store::open_listed`].
    fn open_listed(&self, path: &RelPath, listed: &ReadState) -> Result<Box<dyn ReadHandle>> {
        let _ = listed;
        self.open_read(path, ReadPurpose::Transfer)
    }

    /// As [`Store::folder_version`].
    ///
    /// # Errors
    /// The errors of [`Store::folder_version`].
    fn folder_version(&self, path: &RelPath) -> Result<Option<FolderVersion>> {
        let _ = path;
        Ok(None)
    }

    /// As [`Store::stat`].
    ///
    /// # Errors
    /// The errors of [`Store::stat`].
    fn stat(&self, path: &RelPath) -> Result<Option<FileState>>;
}

/// Makes a store of a [`Readable`]. Every write call fails with `ReadOnly`.
#[derive(Debug)]
pub struct ReadOnly<R>(pub R);

impl<R: Readable> ReadOnly<R> {
    fn refuse<T>(&self, operation: &str, path: &RelPath) -> Result<T> {
        Err(Error::new(ErrorKind::ReadOnly, End::Sink, operation)
            .file(path)
            .cause(format!(
                "dray can read from {}, but cannot write to it",
                self.0.kind()
            ))
            .remedy("choose another destination"))
    }
}

impl<R: Readable> Store for ReadOnly<R> {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn targets(&self) -> Vec<Target> {
        self.0.targets()
    }

    fn layout(&self, path: &RelPath) -> Result<Layout> {
        self.0.layout(path)
    }

    fn free_space(&self, _path: &RelPath) -> Result<FreeSpace> {
        Ok(FreeSpace {
            free_bytes: 0,
            total_bytes: 0,
        })
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        self.0.list(top, options)
    }

    fn open_read(&self, path: &RelPath, purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        self.0.open_read(path, purpose)
    }

    fn open_listed(&self, path: &RelPath, listed: &ReadState) -> Result<Box<dyn ReadHandle>> {
        self.0.open_listed(path, listed)
    }

    fn folder_version(&self, path: &RelPath) -> Result<Option<FolderVersion>> {
        self.0.folder_version(path)
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        self.0.stat(path)
    }

    fn known_sums(&self, _path: &RelPath) -> Result<Option<Sums>> {
        Ok(None)
    }

    fn make_dir(&self, path: &RelPath) -> Result<MadeDir> {
        self.refuse("create the folder", path)
    }

    fn set_directory(&self, path: &RelPath, _metadata: &Metadata) -> Result<()> {
        self.refuse("set the folder's attributes", path)
    }

    fn make_symlink(
        &self,
        path: &RelPath,
        _partial: &Name,
        _text: &[u8],
        _metadata: &Metadata,
        _how: Publish,
    ) -> Result<()> {
        self.refuse("create the link", path)
    }

    fn begin(
        &self,
        path: &RelPath,
        _size_bytes: u64,
        _request: &PartialRequest,
    ) -> Result<Box<dyn Partial>> {
        self.refuse("write the file", path)
    }

    fn write_small(
        &self,
        path: &RelPath,
        _partial: &Name,
        _bytes: &[u8],
        _holes: &[ByteRange],
        _attributes: &Attributes<'_>,
    ) -> Result<PartialId> {
        self.refuse("write the file", path)
    }

    fn publish_small(
        &self,
        path: &RelPath,
        _partial: &Name,
        _id: PartialId,
        _how: Publish,
    ) -> Result<()> {
        self.refuse("publish the file", path)
    }

    fn discard(&self, path: &RelPath, _partial: &Name, _only: Option<PartialId>) -> Result<()> {
        self.refuse("remove the partial file", path)
    }

    fn sync_each(&self, _items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        self.refuse("make files durable", &RelPath::root())
    }

    fn remove(&self, path: &RelPath) -> Result<()> {
        self.refuse("remove the file", path)
    }

    fn open_control(&self, path: &RelPath, _mode: ControlMode) -> Result<Box<dyn ControlFile>> {
        self.refuse("open the control file", path)
    }

    fn remove_control(&self, path: &RelPath) -> Result<()> {
        self.refuse("remove the control file", path)
    }

    fn list_control(&self, _folder: &RelPath) -> Result<Vec<Name>> {
        Ok(Vec::new())
    }
}
