//! A store that forwards every call to another store and calls a hook for it.

mod control;
mod partial;

use crate::store::{ControlFile, Lister, Partial, ReadHandle, Store};
use crate::types::{
    Attributes, Capabilities, ControlMode, FileState, FolderVersion, FreeSpace, Holding,
    InodeState, ListOptions, Listed, MadeDir, Noted, PartialId, PartialRequest, Publish,
    ReadPurpose, ReadState, SyncItem, Target,
};
use dray_core::{ByteRange, Error, Layout, Metadata, Name, RelPath, Result, Sums};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// The method that is called.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Operation { $($(#[$doc])* $name,)* }

        impl Operation {
            /// All operations of a store and its handles.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the name of the operation in a trace.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

// Faults are drawn from the number of the operation. Add an operation at the end, so that a seed keeps
// its faults.
operations! {
    /// [`Store::layout`].
    Layout = "layout";
    /// [`Store::free_space`].
    FreeSpace = "free_space";
    /// [`Store::list`].
    List = "list";
    /// One item of a listing.
    ListNext = "list_next";
    /// [`Store::open_read`].
    OpenRead = "open_read";
    /// [`ReadHandle::read_at`].
    Read = "read";
    /// [`ReadHandle::state`].
    ReadState = "read_state";
    /// [`ReadHandle::next_data`].
    NextData = "next_data";
    /// [`Store::stat`].
    Stat = "stat";
    /// [`Store::known_sums`].
    KnownSums = "known_sums";
    /// [`Store::make_dir`].
    MakeDir = "make_dir";
    /// [`Store::set_directory`].
    SetDirectory = "set_directory";
    /// [`Store::make_symlink`].
    MakeSymlink = "make_symlink";
    /// [`Store::set_file`].
    SetFile = "set_file";
    /// [`Store::begin`].
    Begin = "begin";
    /// [`Partial::write_at`].
    Write = "write";
    /// [`Partial::punch_hole`].
    PunchHole = "punch_hole";
    /// [`Partial::read_at`].
    ReadBack = "read_back";
    /// [`Partial::set_len`].
    SetLen = "set_len";
    /// [`Partial::sync`].
    Sync = "sync";
    /// [`Partial::publish`] and [`Store::publish_small`].
    Publish = "publish";
    /// [`Partial::abort`] and [`Store::discard`].
    Discard = "discard";
    /// [`Store::write_small`].
    WriteSmall = "write_small";
    /// [`Store::sync_each`]. The path of the call is that of the first item.
    SyncEach = "sync_each";
    /// [`Store::remove`].
    Remove = "remove";
    /// [`Store::open_control`].
    OpenControl = "open_control";
    /// [`Store::remove_control`].
    RemoveControl = "remove_control";
    /// [`Store::list_control`].
    ListControl = "list_control";
    /// [`Store::folder_version`].
    FolderVersion = "folder_version";
    /// [`ControlFile::read_at`] and [`ControlFile::len`].
    ControlRead = "control_read";
    /// [`ControlFile::write_at`] and [`ControlFile::append`].
    ControlWrite = "control_write";
    /// [`ControlFile::sync`].
    ControlSync = "control_sync";
    /// [`ControlFile::truncate`].
    ControlTruncate = "control_truncate";
    /// [`ControlFile::replace`].
    ControlReplace = "control_replace";
    /// [`ControlFile::try_lock`] and [`ControlFile::unlock`].
    ControlLock = "control_lock";
}

/// A call of a store, as a hook sees it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The method that is called.
    pub operation: Operation,
    /// File or folder that the call uses.
    pub path: &'a RelPath,
    /// Byte range of the call; empty if the call moves no bytes.
    pub range: ByteRange,
    /// Layout of the file; `None` if it is not known without another call.
    pub layout: Option<&'a Layout>,
}

/// Functions that are called before and after each call of a store.
pub trait Hook: Send + Sync + 'static {
    /// True if the layout of each opened file must be looked up for the hook.
    const WANTS_LAYOUT: bool = false;

    /// True if the hook may delay a call for longer than the call of the store takes. Then several
    /// concurrent writes to one file are useful, even if the store executes only one write to a
    /// file at a time.
    const DELAYS: bool = false;

    /// Called before the call of the store. The function may wait.
    ///
    /// # Errors
    /// The call fails with this error, and the store is not called.
    fn before(&self, _call: &Call<'_>) -> Result<()> {
        Ok(())
    }

    /// Returns the maximum number of bytes that a read may return; at least 1.
    fn read_limit(&self, _call: &Call<'_>) -> usize {
        usize::MAX
    }

    /// Called after a read. `bytes` are the bytes read, and the hook may change them.
    fn read_done(&self, _call: &Call<'_>, _bytes: &mut [u8]) {}

    /// Returns the bytes to write instead of `bytes`.
    fn to_write<'a>(&self, _call: &Call<'_>, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(bytes)
    }

    /// Returns metadata to use when a file is published, or `None` to use the metadata of the
    /// caller. The function may wait. At this call the file is complete and its checksums are
    /// known. This is the last call that can refuse the file.
    ///
    /// # Errors
    /// The file is not published, and the call fails with this error.
    fn to_publish(
        &self,
        _call: &Call<'_>,
        _attributes: &Attributes<'_>,
    ) -> Result<Option<Metadata>> {
        Ok(None)
    }

    /// True if [`Hook::after`] must be called.
    const WANTS_AFTER: bool = false;

    /// Called after the call of the store.
    fn after(&self, _call: &Call<'_>, _error: Option<&Error>, _started: Instant, _took: Duration) {}
}

/// A store that calls a hook for each of its calls.
pub struct Around<H> {
    inner: Arc<dyn Store>,
    hook: Arc<H>,
}

impl<H: Hook> Around<H> {
    /// Wraps `inner` with `hook`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, hook: H) -> Self {
        Self {
            inner,
            hook: Arc::new(hook),
        }
    }

    fn call<T>(
        &self,
        operation: Operation,
        path: &RelPath,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.call_bytes(operation, path, 0, work)
    }

    fn call_bytes<T>(
        &self,
        operation: Operation,
        path: &RelPath,
        length: usize,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let wants_layout = H::WANTS_LAYOUT && length > 0;
        let layout = wants_layout.then(|| self.inner.layout(path).ok()).flatten();
        let call = Call {
            operation,
            path,
            range: ByteRange::between(0, length as u64),
            layout: layout.as_ref(),
        };
        around(&*self.hook, &call, work)
    }

    fn begin_by(
        &self,
        path: &RelPath,
        begin: impl FnOnce() -> Result<Box<dyn Partial>>,
    ) -> Result<Box<dyn Partial>> {
        let mut handle = self.handle(path, self.call(Operation::Begin, path, begin)?);
        handle.layout = handle.inner.layout().or(handle.layout);
        Ok(Box::new(handle))
    }

    fn handle<T: ?Sized>(&self, path: &RelPath, inner: Box<T>) -> Handle<T, H> {
        let layout = H::WANTS_LAYOUT.then(|| self.inner.layout(path).ok());
        let layout = layout.flatten();
        Handle {
            inner,
            hook: Arc::clone(&self.hook),
            path: path.clone(),
            layout,
        }
    }
}

fn around<T, H: Hook>(hook: &H, call: &Call<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    if !H::WANTS_AFTER {
        return hook.before(call).and_then(|()| work());
    }
    let started = Instant::now();
    let result = hook.before(call).and_then(|()| work());
    hook.after(call, result.as_ref().err(), started, started.elapsed());
    result
}

impl<H: Hook> Store for Around<H> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn targets(&self) -> Vec<Target> {
        self.inner.targets()
    }

    fn layout(&self, path: &RelPath) -> Result<Layout> {
        self.call(Operation::Layout, path, || self.inner.layout(path))
    }

    fn layout_for(&self, path: &RelPath, size: u64) -> Result<Layout> {
        self.call(Operation::Layout, path, || {
            self.inner.layout_for(path, size)
        })
    }

    fn free_space(&self, path: &RelPath) -> Result<FreeSpace> {
        self.call(Operation::FreeSpace, path, || self.inner.free_space(path))
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        let inner = self.call(Operation::List, top, || self.inner.list(top, options))?;
        Ok(Box::new(AroundLister {
            inner,
            hook: Arc::clone(&self.hook),
            top: top.clone(),
        }))
    }

    fn folder_version(&self, path: &RelPath) -> Result<Option<FolderVersion>> {
        let ask = || self.inner.folder_version(path);
        self.call(Operation::FolderVersion, path, ask)
    }

    fn open_read(&self, path: &RelPath, purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        let open = || self.inner.open_read(path, purpose);
        let inner = self.call(Operation::OpenRead, path, open)?;
        Ok(Box::new(self.handle(path, inner)))
    }

    fn open_listed(&self, path: &RelPath, listed: &ReadState) -> Result<Box<dyn ReadHandle>> {
        let open = || self.inner.open_listed(path, listed);
        let inner = self.call(Operation::OpenRead, path, open)?;
        Ok(Box::new(self.handle(path, inner)))
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        self.call(Operation::Stat, path, || self.inner.stat(path))
    }

    fn check_place(&self) -> Result<()> {
        self.inner.check_place()
    }

    fn born(&self, path: &RelPath) -> Result<u64> {
        self.call(Operation::Stat, path, || self.inner.born(path))
    }

    fn holding(&self, path: &RelPath) -> Result<Option<Holding>> {
        self.call(Operation::Stat, path, || self.inner.holding(path))
    }

    fn gather_lost(&self, before: SystemTime) -> Result<u64> {
        let gather = || self.inner.gather_lost(before);
        self.call(Operation::List, &RelPath::root(), gather)
    }

    fn known_sums(&self, path: &RelPath) -> Result<Option<Sums>> {
        self.call(Operation::KnownSums, path, || self.inner.known_sums(path))
    }

    fn confirms(&self, path: &RelPath, sums: &Sums) -> Result<bool> {
        let ask = || self.inner.confirms(path, sums);
        self.call(Operation::KnownSums, path, ask)
    }

    fn make_dir(&self, path: &RelPath) -> Result<MadeDir> {
        self.call(Operation::MakeDir, path, || self.inner.make_dir(path))
    }

    fn set_directory(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let set = || self.inner.set_directory(path, metadata);
        self.call(Operation::SetDirectory, path, set)
    }

    fn set_file(&self, path: &RelPath, metadata: &Metadata) -> Result<bool> {
        let set = || self.inner.set_file(path, metadata);
        self.call(Operation::SetFile, path, set)
    }

    fn make_symlink(
        &self,
        path: &RelPath,
        partial: &Name,
        text: &[u8],
        metadata: &Metadata,
        how: Publish,
    ) -> Result<()> {
        let make = || self.inner.make_symlink(path, partial, text, metadata, how);
        self.call(Operation::MakeSymlink, path, make)
    }

    fn begin(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
    ) -> Result<Box<dyn Partial>> {
        self.begin_by(path, || self.inner.begin(path, size_bytes, request))
    }

    fn begin_striped(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
        stripes: &[u8],
    ) -> Result<Box<dyn Partial>> {
        let inner = &self.inner;
        self.begin_by(path, || {
            inner.begin_striped(path, size_bytes, request, stripes)
        })
    }

    fn write_small(
        &self,
        path: &RelPath,
        partial: &Name,
        bytes: &[u8],
        holes: &[ByteRange],
        attributes: &Attributes<'_>,
    ) -> Result<PartialId> {
        let call = Call {
            operation: Operation::WriteSmall,
            path,
            range: ByteRange {
                offset: 0,
                length: bytes.len() as u64,
            },
            layout: None,
        };
        let bytes = self.hook.to_write(&call, bytes);
        let others = self.hook.to_publish(&call, attributes)?;
        let attributes = attributes.with(others.as_ref());
        self.call_bytes(Operation::WriteSmall, path, bytes.len(), || {
            self.inner
                .write_small(path, partial, &bytes, holes, &attributes)
        })
    }

    fn publish_small(
        &self,
        path: &RelPath,
        partial: &Name,
        id: PartialId,
        how: Publish,
    ) -> Result<()> {
        let publish = || self.inner.publish_small(path, partial, id, how);
        self.call(Operation::Publish, path, publish)
    }

    fn discard(&self, path: &RelPath, partial: &Name, only: Option<PartialId>) -> Result<()> {
        let discard = || self.inner.discard(path, partial, only);
        self.call(Operation::Discard, path, discard)
    }

    fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        match items.first().map(SyncItem::path) {
            Some(path) => self.call(Operation::SyncEach, path, || self.inner.sync_each(items)),
            None => Ok(Vec::new()),
        }
    }

    fn remove(&self, path: &RelPath) -> Result<()> {
        self.call(Operation::Remove, path, || self.inner.remove(path))
    }

    fn open_control(&self, path: &RelPath, mode: ControlMode) -> Result<Box<dyn ControlFile>> {
        let open = || self.inner.open_control(path, mode);
        let inner = self.call(Operation::OpenControl, path, open)?;
        Ok(Box::new(Handle {
            inner,
            hook: Arc::clone(&self.hook),
            path: path.clone(),
            layout: None,
        }))
    }

    fn remove_control(&self, path: &RelPath) -> Result<()> {
        let remove = || self.inner.remove_control(path);
        self.call(Operation::RemoveControl, path, remove)
    }

    fn list_control(&self, folder: &RelPath) -> Result<Vec<Name>> {
        let list = || self.inner.list_control(folder);
        self.call(Operation::ListControl, folder, list)
    }
}

struct AroundLister<H> {
    inner: Box<dyn Lister>,
    hook: Arc<H>,
    top: RelPath,
}

impl<H: Hook> Iterator for AroundLister<H> {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        let call = Call {
            operation: Operation::ListNext,
            path: &self.top,
            range: ByteRange::between(0, 0),
            layout: None,
        };
        let mut has_ended = false;
        let item = around(&*self.hook, &call, || {
            let item = self.inner.next();
            has_ended = item.is_none();
            item.transpose()
        });
        if has_ended { None } else { item.transpose() }
    }
}

impl<H: Hook> Lister for AroundLister<H> {
    fn skip_folder(&mut self) {
        self.inner.skip_folder();
    }

    fn failed_at_folder(&self) -> bool {
        self.inner.failed_at_folder()
    }
}

/// An open file of a wrapped store.
struct Handle<T: ?Sized, H> {
    inner: Box<T>,
    hook: Arc<H>,
    path: RelPath,
    layout: Option<Layout>,
}

impl<T: ?Sized, H: Hook> Handle<T, H> {
    fn describe(&self, operation: Operation, offset: u64, length: u64) -> Call<'_> {
        Call {
            operation,
            path: &self.path,
            range: ByteRange { offset, length },
            layout: self.layout.as_ref(),
        }
    }

    fn call<R>(&self, operation: Operation, work: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let call = self.describe(operation, 0, 0);
        around(&*self.hook, &call, || work(&self.inner))
    }

    fn read(
        &self,
        operation: Operation,
        offset: u64,
        buffer: &mut [u8],
        work: impl FnOnce(&T, &mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        let call = self.describe(operation, offset, buffer.len() as u64);
        let wanted = buffer.len().min(self.hook.read_limit(&call).max(1));
        let buffer = &mut buffer[..wanted];
        let call = self.describe(operation, offset, wanted as u64);
        around(&*self.hook, &call, || {
            let count = work(&self.inner, buffer)?;
            self.hook.read_done(&call, &mut buffer[..count]);
            Ok(count)
        })
    }

    fn write(
        &self,
        operation: Operation,
        offset: u64,
        bytes: &[u8],
        work: impl FnOnce(&T, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let call = self.describe(operation, offset, bytes.len() as u64);
        let bytes = self.hook.to_write(&call, bytes);
        around(&*self.hook, &call, || work(&self.inner, &bytes))
    }
}

impl<H: Hook> ReadHandle for Handle<dyn ReadHandle, H> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read(Operation::Read, offset, buffer, |inner, buffer| {
            inner.read_at(offset, buffer)
        })
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn state(&self) -> Result<ReadState> {
        self.call(Operation::ReadState, |inner| inner.state())
    }

    fn full_state(&self) -> Result<(ReadState, Option<InodeState>)> {
        self.call(Operation::ReadState, |inner| inner.full_state())
    }

    fn noted(&self) -> Result<Option<Noted>> {
        self.call(Operation::ReadState, |inner| inner.noted())
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        self.call(Operation::NextData, |inner| inner.next_data(offset))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        self.call(Operation::KnownSums, |inner| inner.known_sums())
    }
}
