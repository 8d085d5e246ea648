//! Lists folders of a server with one PROPFIND request for each folder.

use crate::dav::DavEntry;
use crate::server::{Server, or_unknown};
use dray_core::{End, Error, ErrorKind, Layout, Name, RelPath, Result, TargetId};
use dray_store::{EntryState, FolderEntries, FolderLister, FolderSource, ListOptions};
use std::sync::Arc;

/// Name of the operation in errors.
const OPERATION: &str = "list";

/// Lists the folders of a server.
pub(crate) struct Folders(Arc<Server>);

/// Lists the folder or the file at `top`.
///
/// # Errors
/// Errors of the server; [`ErrorKind::NotADirectory`] if the options request the contents of `top`
/// and `top` is a file.
pub(crate) fn list(
    server: Arc<Server>,
    top: &RelPath,
    options: &ListOptions,
) -> Result<FolderLister<Folders>> {
    let folders = Folders(server);
    // A read-only server has no files of dray's own, so the list is empty.
    if options.own {
        return Ok(FolderLister::from_contents(
            top,
            Vec::new(),
            options,
            folders,
        ));
    }
    // Request the contents directly. The answer also shows if `top` is a folder, so one request
    // suffices.
    if options.contents || top.is_root() {
        let contents = folders.contents(top)?;
        return Ok(FolderLister::from_contents(top, contents, options, folders));
    }
    let found = folders.0.look(top, OPERATION)?;
    FolderLister::from_top(top, found, options, folders)
}

impl Folders {
    fn contents(&self, folder: &RelPath) -> Result<Vec<(Result<Name>, DavEntry)>> {
        let Some(mut found) = self.0.propfind(folder, "1", OPERATION)? else {
            let fault = Error::new(ErrorKind::Unsupported, self.0.end, OPERATION);
            return Err(fault
                .file(folder)
                .cause("the server does not list folders (the method PROPFIND of WebDAV)")
                .remedy("copy the files of the folder one by one"));
        };
        let is_folder = |found: &DavEntry| found.path == *folder && found.is_folder;
        if !found.iter().any(is_folder) {
            let fault = Error::new(ErrorKind::NotADirectory, self.0.end, OPERATION);
            return Err(fault
                .file(folder)
                .cause("the server reports that the path is not a folder")
                .remedy("write the address without a slash at the end"));
        }
        // Some servers also list other entries. Keep only the entries of this folder.
        found.retain(|found| found.path.parent().as_ref() == Some(folder));
        found.sort_by(|one, other| one.path.cmp(&other.path));
        found.dedup_by(|one, other| one.path == other.path);
        let named = found
            .into_iter()
            .filter_map(|found| Some((Ok(found.path.name()?), found)));
        Ok(named.collect())
    }
}

impl FolderSource for Folders {
    type Entry = DavEntry;

    fn end(&self) -> End {
        self.0.end
    }

    fn entries(&mut self, folder: &RelPath) -> Result<FolderEntries<DavEntry>> {
        Ok(FolderEntries {
            entries: self.contents(folder)?,
            error: None,
        })
    }

    fn is_folder(entry: &DavEntry) -> bool {
        entry.is_folder
    }

    fn state(&mut self, path: &RelPath, mut found: DavEntry) -> Result<EntryState> {
        if !found.is_folder {
            if found.size.is_none() || found.modified.is_none() {
                found = self.0.look(path, OPERATION)?;
            }
            let known = self.0.as_file(found.clone(), OPERATION)?;
            self.0.remember(path, known);
        }
        Ok(EntryState {
            size: found.size.unwrap_or_default(),
            modified: or_unknown(found.modified),
            layout: Layout::Single(TargetId(0)),
            identity: found.tag.unwrap_or_default().into_bytes(),
        })
    }
}
