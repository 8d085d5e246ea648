//! Opens the folder or the store that a sweep searches for abandoned partial data.

use crate::locations::own_path;
use crate::registry::Registry;
use crate::store_kind::{Location, OpenedSink, Writable};
use dray_core::{End, Error, ErrorKind, Result};
use dray_runtime::sweep::WalkRoot;
use dray_store::FileKind;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Opens a folder of this host, or a folder that the URL of a store names.
///
/// # Errors
/// [`ErrorKind::InvalidRequest`] if a sweep cannot search this kind of store. [`ErrorKind::NotFound`]
/// if the folder does not exist. Errors of the store.
pub fn open(typed: &OsStr) -> Result<WalkRoot> {
    let location = Registry::default().keeping().parse(typed.as_bytes())?;
    let Some(location) = location else {
        return WalkRoot::open(Path::new(&*own_path(typed)?));
    };
    let writable = location
        .writable()
        .ok()
        .filter(|one| Writable::is_swept(*one));
    let failed =
        |kind, cause: String| Error::new(kind, End::Here, "search for partial data").cause(cause);
    let words = location.words();
    let Some(writable) = writable else {
        let cause =
            format!("{words}: dray cannot search this storage system for abandoned partial files");
        return Err(failed(ErrorKind::InvalidRequest, cause).remedy(
            "give a folder of this host, or a disks:// or rados:// URL; if an endpoint ran the \
                transfer, cancel the transfer with --purge",
        ));
    };
    // The next call would make a missing folder.
    let source = location.open_source(false)?.store;
    let found = source.stat(&location.path())?.map(|state| state.kind);
    if found != Some(FileKind::Directory) {
        let cause = format!("{words} is not an existing folder");
        return Err(failed(ErrorKind::NotFound, cause).remedy("check the URL"));
    }
    walk_root(location.as_ref(), || {
        let OpenedSink { store, above, .. } = writable.open_sink()?;
        Ok(WalkRoot::in_store(store, above))
    })
}

/// Returns the folders that a sweep of `location` walks. If the location is on several disks, opens
/// each disk as a store of its own, because the store of all disks shows only the logs of the first
/// disk. Otherwise calls `open`.
pub(crate) fn walk_root(
    location: &dyn Location,
    open: impl FnOnce() -> Result<WalkRoot>,
) -> Result<WalkRoot> {
    let dirs = location.folders();
    match dirs.is_empty() {
        true => open(),
        false => WalkRoot::of_disks(&dirs, &location.path()),
    }
}
