//! Lists the folders of a server.

use crate::facts::{Facts, Kind};
use crate::read::modified;
use crate::server::Server;
use crate::url::REFUSED;
use dray_core::{End, Error, ErrorKind, Layout, RelPath, Result, TargetId};
use dray_store::{EntryState, FolderEntries, FolderLister, FolderSource, ListOptions};
use std::sync::Arc;

/// Name of the operation in errors.
const OPERATION: &str = "list";

/// The folders of a server.
pub(crate) struct Folders(Arc<Server>);

/// Lists the folder or the file at `top`.
///
/// # Errors
/// Errors of the server; [`ErrorKind::NotADirectory`] if the options request the contents of `top`
/// and `top` is a file.
pub(crate) fn list(
    server: &Arc<Server>,
    top: &RelPath,
    options: &ListOptions,
) -> Result<FolderLister<Folders>> {
    let folders = Folders(Arc::clone(server));
    // A read-only server has no files of dray's own, so the list is empty.
    if options.own {
        let none = Vec::new();
        return Ok(FolderLister::from_contents(top, none, options, folders));
    }
    let mut found = server.look(top, OPERATION)?;
    // The user has named this link, so dray lists its target.
    found.is_link = false;
    FolderLister::from_top(top, found, options, folders)
}

impl Folders {
    fn refused(&self, path: &RelPath, cause: &str, remedy: &str) -> Error {
        let error = Error::new(ErrorKind::Unsupported, self.0.end, OPERATION);
        error.file(path).cause(cause).remedy(remedy)
    }
}

impl FolderSource for Folders {
    type Entry = Facts;

    fn end(&self) -> End {
        self.0.end
    }

    fn entries(&mut self, folder: &RelPath) -> Result<FolderEntries<Facts>> {
        self.0.entries(folder, OPERATION)
    }

    fn is_folder(entry: &Facts) -> bool {
        // A link to a folder is not entered, because it may lead to a folder above.
        entry.kind == Kind::Folder && !entry.is_link
    }

    fn state(&mut self, path: &RelPath, found: Facts) -> Result<EntryState> {
        if path.as_bytes().iter().any(|byte| REFUSED.contains(byte)) {
            return Err(self.refused(
                path,
                "GridFTP cannot transport a name with a line break",
                "rename the file on the server",
            ));
        }
        match (found.kind, found.is_link) {
            (Kind::File, _) | (Kind::Folder, false) => {}
            (Kind::Folder, true) => {
                return Err(self.refused(
                    path,
                    "the entry is a symbolic link to a folder",
                    "copy the folder to which the link points",
                ));
            }
            (Kind::Special | Kind::Dot, _) => {
                return Err(self.refused(path, "the entry is neither a file nor a folder", ""));
            }
        }
        Ok(EntryState {
            size: found.size,
            modified: modified(&found),
            layout: Layout::Single(TargetId(0)),
            identity: found.unique,
        })
    }
}
