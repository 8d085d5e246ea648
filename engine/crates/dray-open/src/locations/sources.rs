//! Interprets the SRC arguments.

use super::{
    LocalSource, Remote, Sources, Written, own_name, own_path, remote, resolve, shown, usage,
};
use crate::registry::Registry;
use crate::store_kind::Location;
use dray_core::options::Links;
use dray_core::url::encode;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The sources of a command, with their names.
pub(super) struct ReadSources {
    pub(super) sources: Sources,
    /// Names that the sources get at the destination; `None` if only a folder's contents are
    /// copied.
    names: Vec<Option<Name>>,
}

impl ReadSources {
    /// Parses the sources.
    pub(super) fn of(
        sources: &[OsString],
        written: &Written<'_>,
        registry: &Registry,
    ) -> Result<Self> {
        let recursive = written.recursive;
        let mut local = Vec::new();
        let mut far: Option<(String, Vec<Vec<u8>>)> = None;
        let mut stored: Vec<Arc<dyn Location>> = Vec::new();
        let mut names: Vec<Option<Name>> = Vec::new();
        for source in sources {
            if let Some(location) = registry.parse(source.as_bytes())? {
                names.push(stored_name(&*location, &stored, sources.len(), recursive)?);
                stored.push(location);
                continue;
            }
            let name = match remote(source)? {
                None => {
                    let (read, name) = local_source(source, written)?;
                    local.push(read);
                    name
                }
                Some(Remote { address, path }) => {
                    let name = remote_name(&path, recursive)?;
                    match &mut far {
                        Some((host, paths)) if *host == address => paths.push(path),
                        Some((host, _)) => {
                            let cause = format!(
                                "the sources are on two hosts, {host} and \
                                {address}"
                            );
                            return Err(usage(cause, "copy from one host at a time"));
                        }
                        None => far = Some((address, vec![path])),
                    }
                    name
                }
            };
            names.push(name);
        }
        for (index, name) in names.iter().enumerate() {
            if let Some(twice) = name.as_ref().filter(|_| names[..index].contains(name)) {
                let cause = format!(
                    "two sources have the name {twice}, so they would replace each other at the \
                        destination"
                );
                return Err(usage(
                    cause,
                    "copy each source with a separate command and under a different name",
                ));
            }
        }
        let sources = match (local.is_empty(), far, stored.is_empty()) {
            (false, None, true) => Sources::Local(local),
            (true, Some((host, paths)), true) => Sources::Remote(host, paths),
            (true, None, false) => Sources::Stored(stored),
            _ => {
                return Err(usage(
                    "some sources are on this host, and some sources are on another host",
                    "copy from one host at a time",
                ));
            }
        };
        Ok(Self { sources, names })
    }

    /// Returns the names that the sources get in the destination folder. Returns an empty list if
    /// the names are unknown in advance.
    pub(super) fn claims(&self) -> Result<Vec<RelPath>> {
        let mut claims = Vec::with_capacity(self.names.len());
        for name in &self.names {
            match name {
                Some(name) => claims.push(RelPath::root().join(name)?),
                // The contents of a folder may have any names.
                None => return Ok(Vec::new()),
            }
        }
        Ok(claims)
    }
}

/// Returns the name that `location` gets at the destination, or `None` if only the contents of the
/// folder are copied. `stored` contains the sources before this one. `count` is the number of all
/// sources.
fn stored_name(
    location: &dyn Location,
    stored: &[Arc<dyn Location>],
    count: usize,
    recursive: bool,
) -> Result<Option<Name>> {
    location.refuse_as_source()?;
    let store = location.shared_store();
    if count > 1 && store.is_none() {
        let cause = format!("a copy from {} cannot have other sources", location.words());
        return Err(usage(cause, "copy each source with a separate command"));
    }
    if let Some(first) = stored.first()
        && first.shared_store() != store
    {
        let (first, other) = (first.words(), location.words());
        let cause = format!("the sources are on two servers, {first} and {other}");
        return Err(usage(cause, "copy from one server at a time"));
    }
    match location.path().name().filter(|_| !location.is_folder()) {
        None if !recursive => {
            let cause = format!(
                "{} ends with a slash, so it means the contents of a folder",
                location.words()
            );
            Err(usage(cause, "add --recursive (-r)"))
        }
        Some(name) => own_name(name.as_bytes()).map(Some),
        None => Ok(None),
    }
}

fn local_source(source: &OsStr, written: &Written<'_>) -> Result<(LocalSource, Option<Name>)> {
    let source = &*own_path(source)?;
    let words = shown(Path::new(source));
    if source.is_empty() {
        return Err(usage(
            "one of the SRC arguments is empty",
            "give a file or a folder as SRC",
        ));
    }
    let typed = Path::new(source);
    let contents = source.as_bytes().ends_with(b"/");
    let last = source.as_bytes().rsplit(|b| *b == b'/').next();
    let mut path = if contents || matches!(last, Some(b"." | b"..")) {
        resolve(typed)?
    } else {
        match typed.file_name() {
            Some(name) => resolve(typed.parent().unwrap_or(Path::new("")))?.join(name),
            None => resolve(typed)?,
        }
    };
    // Use the name of the link, and not the name of its target.
    let typed_name = path.file_name().map(OsStr::to_owned);
    if !contents && written.links != Links::Refuse && path.is_symlink() {
        path = followed(&path, &words)?;
    }
    let follows = if contents {
        path.metadata()
    } else {
        path.symlink_metadata()
    };
    if follows.is_ok_and(|state| state.is_dir()) && !written.recursive {
        let cause = format!("{words} is a folder");
        return Err(usage(
            cause,
            "add --recursive (-r) to copy the folder with its contents",
        ));
    }
    let name = match (contents, typed_name) {
        (true, _) => None,
        (false, Some(name)) => Some(own_name(name.as_bytes())?),
        (false, None) => {
            let cause = format!("{words} does not end with a name");
            return Err(usage(
                cause,
                format!("write {words}/ to copy the contents of the folder"),
            ));
        }
    };
    Ok((
        LocalSource {
            words,
            path,
            name: name.clone(),
            contents,
        },
        name,
    ))
}

/// Resolves a symbolic link that the user named as a source. If the link itself were copied, the
/// copy could point to another file at the destination, or to no file.
fn followed(link: &Path, words: &str) -> Result<PathBuf> {
    let error = |kind, cause: String| {
        Error::new(kind, End::Source, "read")
            .cause(cause)
            .remedy("give a file or a folder as SRC")
    };
    let state = link.metadata().map_err(|found| {
        let cause = format!("{words} is a broken symbolic link: {found}");
        error(found.kind().into(), cause)
    })?;
    let kind = state.file_type();
    if !(kind.is_file() || kind.is_dir()) {
        let what = match (kind.is_fifo(), kind.is_socket()) {
            (true, _) => "a pipe",
            (_, true) => "a socket",
            _ => "a device",
        };
        let cause = format!("{words} leads to {what}, whose bytes cannot be read twice");
        return Err(error(ErrorKind::Unsupported, cause)
            .remedy("save the data in a regular file, and copy the regular file"));
    }
    link.canonicalize().map_err(|found| {
        let cause = format!("{words} is a symbolic link that cannot be resolved: {found}");
        error(found.kind().into(), cause)
    })
}

fn remote_name(path: &[u8], recursive: bool) -> Result<Option<Name>> {
    let last = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    if last.is_empty() {
        if !recursive {
            let cause = format!(
                "/{} ends with a slash, so it means the contents of a folder",
                encode(path)
            );
            return Err(usage(cause, "add --recursive (-r)"));
        }
        return Ok(None);
    }
    own_name(last).map(Some)
}
