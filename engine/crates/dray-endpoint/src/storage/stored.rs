//! The same operations as in [`super`], for a root that is not a single folder of this host. They
//! use the interface `Store`.
//!
//! Each request for a page of a listing reads the folder again, and holds only that page in memory.

use super::{Given, PageOf, in_plain_words};
use dray_api::Timestamp;
use dray_api::api_path::{self, ApiPath};
use dray_api::{Entry, EntryList, EntryType, SpaceAnswer};
use dray_config::roots::Root;
use dray_core::{End, EntryKind, Error, ErrorKind, RelPath, Result};
use dray_store::{FileKind, FileState, ListOptions, Listed, StoreExt, SyncItem};
use std::collections::BTreeMap;

/// Maximum depth of folders that one call removes. The value is estimated, not measured.
const DEPTH_MAX: usize = 128;

/// Same as [`super::stat`], for a root that is not a single folder.
pub(super) fn stat(root: &Root, path: &ApiPath) -> Result<Entry> {
    let state = root.store().stat(&path.path).map_err(in_plain_words)?;
    let state = state.ok_or_else(|| missing("read the attributes of the file", &path.path))?;
    Ok(entry(path, &state))
}

fn missing(operation: &str, path: &RelPath) -> Error {
    let error = Error::new(ErrorKind::NotFound, End::Here, operation);
    error
        .file(path)
        .cause("the storage system has no such file or folder")
}

fn entry(path: &ApiPath, state: &FileState) -> Entry {
    let ms = state.modified.seconds.saturating_mul(1000);
    let name = path.path.name();
    Entry {
        path: path.text(),
        name: name.map_or_else(
            || path.root.clone(),
            |name| api_path::encode(name.as_bytes()),
        ),
        kind: match state.kind {
            FileKind::File => EntryType::File,
            FileKind::Directory => EntryType::Directory,
            FileKind::Symlink => EntryType::Symlink,
            FileKind::Special => EntryType::Other,
        },
        size: state.size,
        modified_at: Timestamp::from_ms(
            ms.saturating_add(i64::from(state.modified.nanoseconds / 1_000_000)),
        ),
        mode: format!("{:04o}", state.mode & 0o7777),
        link: None,
    }
}

fn state_of(listed: &Listed) -> FileState {
    let (kind, size) = match listed.kind {
        EntryKind::File { size, .. } => (FileKind::File, size),
        EntryKind::Symlink { .. } => (FileKind::Symlink, 0),
        _ => (FileKind::Directory, 0),
    };
    FileState {
        kind,
        size,
        modified: listed.metadata.modified,
        mode: listed.metadata.mode,
        inode: 0,
        device: 0,
    }
}

/// Same as [`super::list`], for a root that is not a single folder.
pub(super) fn list(
    root: &Root,
    path: &ApiPath,
    page: PageOf<'_>,
    given: &Given,
) -> Result<EntryList> {
    let after = page.cursor.map(api_path::decode).transpose()?;
    let limit = page.limit as usize;
    let mut found: BTreeMap<Vec<u8>, FileState> = BTreeMap::new();
    let mut has_more = false;
    let of_users = ListOptions {
        contents: true,
        ..ListOptions::default()
    };
    children(root, &path.path, &of_users, given, &mut |listed| {
        let name = listed.name.as_bytes();
        if after.as_deref().is_some_and(|after| name <= after) {
            return Ok(());
        }
        found.insert(name.to_vec(), state_of(listed));
        if found.len() > limit {
            found.pop_last();
            has_more = true;
        }
        Ok(())
    })?;
    let last = found.last_key_value().filter(|_| has_more);
    let next = last.map(|(name, _)| api_path::encode(name));
    let below = |(name, state): (&Vec<u8>, &FileState)| {
        let name = dray_core::Name::new(name)?;
        Ok(entry(&path.with(path.path.join(&name)?), state))
    };
    let entries = found.iter().map(below).collect::<Result<_>>()?;
    Ok(EntryList { entries, next })
}

/// Calls `met` with each entry of a folder. If an entry cannot be listed, the call fails.
fn children(
    root: &Root,
    folder: &RelPath,
    options: &ListOptions,
    given: &Given,
    met: &mut dyn FnMut(&Listed) -> Result<()>,
) -> Result<()> {
    let mut listed = root.store().list(folder, options).map_err(in_plain_words)?;
    while let Some(item) = listed.next() {
        given.check("list the folder")?;
        let item = item.map_err(in_plain_words)?;
        if item.kind == EntryKind::Directory {
            listed.skip_folder();
        }
        met(&item)?;
    }
    Ok(())
}

/// Same as [`super::remove`], for a root that is not a single folder.
pub(super) fn remove(root: &Root, path: &ApiPath, recursive: bool, given: &Given) -> Result<u64> {
    let (store, at) = (root.store(), &path.path);
    let Some(parent) = at.parent() else {
        let error = Error::new(ErrorKind::InvalidRequest, End::Here, "remove");
        return Err(error
            .cause("the path is a root, not an entry inside a root")
            .remedy("give the path of an entry inside the root"));
    };
    let state = store.stat(at).map_err(in_plain_words)?;
    let state = state.ok_or_else(|| missing("remove", at))?;
    let removed = match state.kind {
        FileKind::Directory if recursive => remove_folder(root, at, given, 0)?,
        _ => {
            store.remove(at).map_err(|error| match error.kind {
                ErrorKind::AlreadyExists => error.at(End::Here).remedy(
                    "set \"recursive\": true \
                    to remove the contents too",
                ),
                _ => in_plain_words(error),
            })?;
            1
        }
    };
    store.sync_all(&[SyncItem::Folder(&parent)])?;
    Ok(removed)
}

fn remove_folder(root: &Root, folder: &RelPath, given: &Given, depth: usize) -> Result<u64> {
    if depth == DEPTH_MAX {
        let error = Error::new(ErrorKind::LimitExceeded, End::Here, "remove");
        return Err(error
            .file(folder)
            .cause(format!(
                "the folder has more than {DEPTH_MAX} nested folders"
            ))
            .remedy("remove the inner folders first"));
    }
    let mut inside = Vec::new();
    // dray's own partial files are removed with the folder too, and are not counted.
    for own in [false, true] {
        let options = ListOptions {
            contents: true,
            own,
            ..ListOptions::default()
        };
        children(root, folder, &options, given, &mut |listed| {
            if own == listed.name.is_reserved() {
                let is_folder = listed.kind == EntryKind::Directory;
                inside.push((folder.join(&listed.name)?, is_folder, own));
            }
            Ok(())
        })?;
    }
    let mut removed = 0;
    for (path, is_folder, own) in inside {
        given.check("remove")?;
        removed += match is_folder {
            true => remove_folder(root, &path, given, depth + 1)?,
            false => {
                root.store().remove(&path).map_err(in_plain_words)?;
                u64::from(!own)
            }
        };
    }
    root.store().remove(folder).map_err(in_plain_words)?;
    Ok(removed + u64::from(!folder.name().is_some_and(|name| name.is_reserved())))
}

/// Same as [`super::space`], for a root that is not a single folder.
pub(super) fn space(root: &Root, path: &ApiPath) -> Result<SpaceAnswer> {
    let space = root
        .store()
        .free_space(&path.path)
        .map_err(in_plain_words)?;
    if space.total_bytes == 0 {
        let error = Error::new(ErrorKind::Unsupported, End::Here, "read the free space");
        return Err(error
            .cause("the storage system does not report its free space")
            .remedy("use the storage system's own tools for this operation"));
    }
    Ok(SpaceAnswer {
        total: space.total_bytes,
        free: space.free_bytes,
        available: space.free_bytes,
    })
}

/// Returns the error of a call that only works on a folder of this host.
pub(super) fn unsupported(root: &Root, operation: &str) -> Error {
    let error = Error::new(ErrorKind::Unsupported, End::Here, operation);
    error
        .cause(format!(
            "the storage system of the root {} does not support this operation",
            root.name()
        ))
        .remedy("copy the file to its new name with a transfer, and remove the old file")
}
