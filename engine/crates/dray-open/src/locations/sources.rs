//! What SRC means.

use super::{
    LocalSource, Remote, Sources, Written, own_name, own_path, remote, resolve, shown, usage,
};
use crate::null::Null;
use crate::web;
use crate::xrootd::XrootdSource;
use dray_core::options::Links;
use dray_core::url::encode;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use dray_store_http::HttpUrl;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// What is read, as it was written.
pub(super) struct ReadSources {
    pub(super) sources: Sources,
    /// Base names; none for a folder's contents.
    names: Vec<Option<Name>>,
}

impl ReadSources {
    /// Reads them; a null end and an XRootD server come alone.
    pub(super) fn of(sources: &[OsString], written: &Written<'_>) -> Result<Self> {
        match (null(sources, written)?, XrootdSource::read(sources)?) {
            (Some(null), _) => read_null(null, written.recursive),
            (None, Some(source)) => read_xrootd(source, written.recursive),
            (None, None) => read_sources(sources, written),
        }
    }

    /// The names that the destination's folder gets from them; none where it may be any.
    pub(super) fn claims(&self) -> Result<Vec<RelPath>> {
        let mut claims = Vec::with_capacity(self.names.len());
        for name in &self.names {
            match name {
                Some(name) => claims.push(RelPath::root().join(name)?),
                // Contents may bear any name.
                None => return Ok(Vec::new()),
            }
        }
        Ok(claims)
    }
}

/// The null end that is read, if it is one: it comes alone.
fn null(sources: &[OsString], written: &Written<'_>) -> Result<Option<Null>> {
    if !written.may_be_null {
        return Ok(None);
    }
    for source in sources {
        if let Some(null) = Null::read(source.as_bytes())? {
            return match sources.len() {
                1 => Ok(Some(null)),
                _ => Err(usage("a null end beside other sources", "name it alone")),
            };
        }
    }
    Ok(None)
}

fn read_null(null: Null, recursive: bool) -> Result<ReadSources> {
    if !null.has_files() {
        return Err(usage(
            "null: has no bytes to copy",
            "write null:SIZE, as null:4GiB",
        ));
    }
    if null.is_many() && !recursive {
        let cause = "a null end of several files is a folder";
        return Err(usage(cause, "add --recursive (-r)"));
    }
    let name = match null.is_many() {
        true => None,
        false => Some(Null::name()?),
    };
    Ok(ReadSources {
        sources: Sources::Null(null),
        names: vec![name],
    })
}

fn read_xrootd(source: XrootdSource, recursive: bool) -> Result<ReadSources> {
    let name = match source.name() {
        None if !recursive => {
            let cause = format!("{} means a folder's contents", source.url);
            return Err(usage(cause, "add --recursive (-r)"));
        }
        Some(name) => Some(own_name(name.as_bytes())?),
        None => None,
    };
    Ok(ReadSources {
        sources: Sources::Xrootd(source),
        names: vec![name],
    })
}

fn read_sources(sources: &[OsString], written: &Written<'_>) -> Result<ReadSources> {
    let recursive = written.recursive;
    let mut local = Vec::new();
    let mut far: Option<(String, Vec<Vec<u8>>)> = None;
    let mut web: Vec<HttpUrl> = Vec::new();
    let mut names: Vec<Option<Name>> = Vec::new();
    for source in sources {
        if let Some(url) = HttpUrl::read(source.as_bytes())? {
            names.push(web::name(&url, web.first(), recursive)?);
            web.push(url);
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
                        let cause = format!("sources on two hosts, {host} and {address}");
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
            let cause = format!("two sources are called {twice}: one would replace the other");
            return Err(usage(cause, "copy them one by one, under different names"));
        }
    }
    let sources = match (local.is_empty(), far, web.is_empty()) {
        (false, None, true) => Sources::Local(local),
        (true, Some((host, paths)), true) => Sources::Remote(host, paths),
        (true, None, false) => Sources::Web(web),
        _ => {
            return Err(usage(
                "some sources are on this host and some on another",
                "copy from one host at a time",
            ));
        }
    };
    Ok(ReadSources { sources, names })
}

fn local_source(source: &OsStr, written: &Written<'_>) -> Result<(LocalSource, Option<Name>)> {
    let source = &*own_path(source)?;
    let words = shown(Path::new(source));
    if source.is_empty() {
        return Err(usage("a SRC is empty", "name a file or a folder"));
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
    // The link's own name, not its target's.
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
            "add --recursive (-r) to copy it with everything in it",
        ));
    }
    let name = match (contents, typed_name) {
        (true, _) => None,
        (false, Some(name)) => Some(own_name(name.as_bytes())?),
        (false, None) => {
            let cause = format!("{words} has no name of its own");
            return Err(usage(cause, format!("write {words}/ for its contents")));
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

/// Resolves a link that was named as a source. A copy of the link itself would have another target
/// at the destination, or none.
fn followed(link: &Path, words: &str) -> Result<PathBuf> {
    let error = |kind, cause: String| {
        Error::new(kind, End::Source, "read")
            .cause(cause)
            .remedy("name a file or a folder")
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
        return Err(
            error(ErrorKind::Unsupported, cause).remedy("save them in a file, and copy the file")
        );
    }
    link.canonicalize().map_err(|found| {
        let cause = format!("{words} leads to a file without a name: {found}");
        error(found.kind().into(), cause)
    })
}

fn remote_name(path: &[u8], recursive: bool) -> Result<Option<Name>> {
    let last = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    if last.is_empty() {
        if !recursive {
            let cause = format!("/{} means a folder's contents", encode(path));
            return Err(usage(cause, "add --recursive (-r)"));
        }
        return Ok(None);
    }
    own_name(last).map(Some)
}
