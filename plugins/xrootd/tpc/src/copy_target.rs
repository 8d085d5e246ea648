//! The destination of a third-party copy.

use crate::config::Config;
use dray_core::{Checksum, End, Error, ErrorKind, Name, Result};
use dray_open::locations;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The destination of a copy, and the configuration of the copy.
pub(crate) struct CopyTarget<'a> {
    /// Path of the destination as the server names it.
    pub(crate) destination: &'a Path,
    /// Folder that the server exports.
    pub(crate) local_root: Option<&'a Path>,
    /// True if the server hides the placeholder of this copy, an empty file that the server creates
    /// with the destination name. A visible file with this name then belongs to a user.
    pub(crate) hides_placeholder: bool,
    /// True if the copy may replace a file that got the destination name during the copy. Always
    /// true for `root://`, because the server does not report if the client requested a new file.
    pub(crate) may_replace: bool,
    /// Checksum that the client of the copy requires; `None` if the client gave none.
    pub(crate) demanded: Option<Checksum>,
    pub(crate) config: &'a Config,
}

impl CopyTarget<'_> {
    /// Returns the folder of the destination, with all symbolic links resolved, and the name of the
    /// file in this folder.
    pub(crate) fn place(path: &Path) -> Result<(PathBuf, Name)> {
        let error = || {
            Error::new(ErrorKind::InvalidRequest, End::Sink, "write the file")
                .cause("the destination is not the path of a file")
        };
        let (folder, name) = path.parent().zip(path.file_name()).ok_or_else(error)?;
        let name = Name::new(name.as_bytes())?;
        locations::refuse_reserved(name.as_bytes())?;
        let folder = folder
            .canonicalize()
            .map_err(|found| error().cause(found.to_string()))?;
        Ok((folder, name))
    }
}
