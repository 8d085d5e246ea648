//! The places of a session: its destination folder, and its paths in the form of the protocol.

use dray_api::{ApiPath, Request};
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};

/// The destination folder of a session, and the names that the session writes in it.
pub(super) struct Destination {
    pub(super) folder: RelPath,
    pub(super) rename: Option<Name>,
    pub(super) claims: Vec<RelPath>,
}

/// Interprets the destination as `dray cp` does. If the request copies into a folder, or if the URL
/// ends with a slash, the destination is a folder. Otherwise it is the new name of the single file.
pub(super) fn destination(
    request: &Request,
    sources: &[&ApiPath],
    to: &ApiPath,
) -> Result<Destination> {
    let is_about_one = request.content.is_some() || request.selection.range.is_some();
    if is_about_one && request.selection.recursive {
        return Err(
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the request")
                .cause("`content` and `range` apply to a single file, but the request is recursive")
                .remedy("omit `recursive`, or omit `content` and `range`"),
        );
    }
    if request.is_into_folder() || to.is_folder {
        // If a source is a folder, nothing is claimed, because the names in it are not known yet.
        let claims = match sources.iter().any(|source| source.is_folder) {
            true => Vec::new(),
            false => {
                let names = sources.iter().filter_map(|source| source.path.name());
                let claim = |name: Name| RelPath::root().join(&name);
                names.map(claim).collect::<Result<_>>()?
            }
        };
        return Ok(Destination {
            folder: to.path.clone(),
            rename: None,
            claims,
        });
    }
    let name = to.path.name().ok_or_else(|| {
        Error::new(ErrorKind::InvalidRequest, End::Here, "read the destination")
            .cause("the destination is the root itself")
            .remedy("end the destination with a slash to copy the files into the root")
    })?;
    Ok(Destination {
        folder: to.path.parent().unwrap_or_else(RelPath::root),
        claims: vec![RelPath::root().join(&name)?],
        rename: Some(name),
    })
}

/// Returns a path in the form that sessions between endpoints use.
pub(super) fn session_path(root: &str, path: &RelPath, is_folder: bool) -> Vec<u8> {
    let mut bytes = format!("/{root}").into_bytes();
    if !path.is_root() {
        bytes.push(b'/');
        bytes.extend_from_slice(path.as_bytes());
    }
    with_slash(&bytes, is_folder)
}

pub(super) fn with_slash(path: &[u8], is_folder: bool) -> Vec<u8> {
    let mut path = path.to_vec();
    if is_folder && !path.is_empty() {
        path.push(b'/');
    }
    path
}
