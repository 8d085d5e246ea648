//! Interprets SRC and DST. Their meaning depends only on their spelling, and not on the present
//! content of the destination. So a repeated command has the same meaning as the first command.

mod sources;

use crate::null::Null;
use crate::registry::Registry;
use crate::store_kind::Location;
use dray_core::options::Links;
use dray_core::url;
pub use dray_core::url::{PORT, with_port};
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result, plan};
use sources::ReadSources;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The paths of a copy command as the user typed them.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// All SRC arguments.
    pub sources: &'a [OsString],
    /// The DST argument.
    pub destination: &'a OsStr,
    /// True if folders are copied with all their contents.
    pub recursive: bool,
    /// Treatment of symbolic links.
    pub links: Links,
    /// True if an option applies to a single file only, such as a byte range or a checksum.
    pub about_one_file: bool,
    /// True if either side may be a null end ([`Null`]).
    pub may_be_null: bool,
}

/// URL scheme of a path on this host.
const FILE_SCHEME: &[u8] = b"file://";

/// A host, and a path below the root that the host serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Address of the host, `host:port`.
    pub address: String,
    /// Bytes of the path, without the slash that separates it from the host.
    pub path: Vec<u8>,
}

/// One file or folder to read on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSource {
    /// The path as the user typed it.
    pub words: String,
    /// Absolute path with all links resolved. If links are refused, the last name is not resolved.
    pub path: PathBuf,
    /// Last name of the typed path, which is also the name at the destination. `None` if only the
    /// folder's contents are read.
    pub name: Option<Name>,
    /// True if the contents of the folder are read without the folder itself.
    pub contents: bool,
}

/// The sources of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sources {
    /// Files and folders of this host.
    Local(Vec<LocalSource>),
    /// Paths on another host: its `host:port`, and the paths.
    Remote(String, Vec<Vec<u8>>),
    /// Files and folders of one store of the [`Registry`].
    Stored(Vec<Arc<dyn Location>>),
}

impl Sources {
    /// Returns true if a server of another kind than dray serves the sources.
    #[must_use]
    pub fn are_served(&self) -> bool {
        match self {
            Self::Stored(stored) => stored
                .iter()
                .all(|one| !one.keeps_nothing() && one.folders().is_empty()),
            Self::Local(_) | Self::Remote(..) => false,
        }
    }

    /// Returns true if the bytes of the sources are generated instead of stored.
    #[must_use]
    pub fn keep_nothing(&self) -> bool {
        matches!(self, Self::Stored(stored) if stored.iter().any(|one| one.keeps_nothing()))
    }

    /// Returns the text for these sources from which a transfer id is derived.
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::Stored(stored) => match stored.first() {
                Some(first) => first.identity_of_all(stored),
                None => String::new(),
            },
            Self::Local(_) | Self::Remote(..) => format!("{self:?}"),
        }
    }
}

/// The destination folder of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Folder {
    /// Absolute path of a folder on this host. Links are resolved as far as the path exists.
    Local(PathBuf),
    /// A folder of another host.
    Remote(Remote),
    /// A folder of a store of the [`Registry`].
    Stored(Arc<dyn Location>),
    /// A null end on another host: its `host:port`. The copy is refused if that host stores its
    /// data.
    RemoteNull(String),
}

impl Folder {
    /// Returns true if data that is written to this destination is discarded.
    #[must_use]
    pub fn keeps_nothing(&self) -> bool {
        match self {
            Self::Stored(location) => location.keeps_nothing(),
            Self::RemoteNull(_) => true,
            Self::Local(_) | Self::Remote(_) => false,
        }
    }

    /// Returns the text for this folder from which a transfer id is derived.
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::Stored(location) => location.identity(End::Sink),
            Self::Local(_) | Self::Remote(_) | Self::RemoteNull(_) => format!("{self:?}"),
        }
    }
}

/// The sources and the destination of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The sources.
    pub sources: Sources,
    /// The destination folder.
    pub folder: Folder,
    /// New name of a single file, if the command sets one.
    pub rename: Option<Name>,
    /// Entries of the folder that will be written; empty for the whole folder.
    pub claims: Vec<RelPath>,
    /// DST as the user typed it.
    pub words: String,
}

impl Places {
    /// Returns true if files of this host are copied to a folder of this host.
    #[must_use]
    pub const fn are_local(&self) -> bool {
        matches!(
            (&self.sources, &self.folder),
            (Sources::Local(_), Folder::Local(_))
        )
    }

    /// Returns the object size of a copy in bytes: the requested size, otherwise the largest of the
    /// default size and the sizes that suit the storage systems of this copy.
    #[must_use]
    pub fn object_bytes(&self, asked: Option<u64>) -> u64 {
        let sources = match &self.sources {
            Sources::Stored(stored) => stored.as_slice(),
            Sources::Local(_) | Sources::Remote(..) => &[],
        };
        let folder = match &self.folder {
            Folder::Stored(location) => Some(location),
            Folder::Local(_) | Folder::Remote(_) | Folder::RemoteNull(_) => None,
        };
        let all = sources.iter().chain(folder);
        plan::object_bytes(asked, all.filter_map(|one| one.object_bytes()))
    }

    /// Parses the paths of a command.
    ///
    /// # Errors
    /// If the paths cannot be combined. The remedy in the error shows a valid form.
    pub fn read(written: &Written<'_>) -> Result<Self> {
        Self::read_with(written, &Registry::default())
    }

    /// Does the same as [`Self::read`], with the stores of `registry`.
    ///
    /// # Errors
    /// The errors of [`Self::read`].
    pub fn read_with(written: &Written<'_>, registry: &Registry) -> Result<Self> {
        let registry = &match written.may_be_null {
            true => registry.clone(),
            false => registry.keeping(),
        };
        let (sources, destination) = (written.sources, written.destination);
        if sources.is_empty() {
            return Err(usage(
                "the command has no SRC or no DST",
                "give both SRC and DST",
            ));
        }
        let single = sources.len() == 1 && !written.recursive;
        if written.about_one_file && !single {
            return Err(usage(
                "--range and --checksum need a single file",
                "give one file, without --recursive",
            ));
        }
        for path in sources.iter().map(OsString::as_os_str).chain([destination]) {
            refuse_unknown_scheme(path, registry)?;
        }
        let read = ReadSources::of(sources, written, registry)?;
        let is_folder = !single || is_folder_by_spelling(destination);
        let words = words(destination);
        let is_null = |path: &[u8]| null_destination(written, path);
        let (folder, rename) = match remote(destination)? {
            None => match registry.parse(destination.as_bytes())? {
                Some(location) => stored_destination(&location, !single)?,
                None => local_destination(destination, is_folder)?,
            },
            Some(remote) if is_null(&remote.path)? => (Folder::RemoteNull(remote.address), None),
            Some(remote) => remote_destination(remote, is_folder)?,
        };
        if let (Sources::Remote(..), Folder::Remote(_) | Folder::RemoteNull(_)) =
            (&read.sources, &folder)
        {
            return Err(usage(
                "both the source and the destination are on remote hosts",
                "to copy between two remote hosts, run an endpoint on each host and use the \
                    dray:// URLs of the endpoints",
            ));
        }
        let claims = match &rename {
            Some(name) => vec![RelPath::root().join(name)?],
            None => read.claims()?,
        };
        let places = Self {
            sources: read.sources,
            folder,
            rename,
            claims,
            words,
        };
        places.refuse_itself()?;
        Ok(places)
    }

    /// Refuses a copy onto itself. A folder that is copied into itself would grow forever, and
    /// copying a file onto itself is a mistake.
    fn refuse_itself(&self) -> Result<()> {
        let (Sources::Local(sources), Folder::Local(folder)) = (&self.sources, &self.folder) else {
            return Ok(());
        };
        for source in sources {
            let Ok(state) = source.path.symlink_metadata() else {
                continue;
            };
            if state.is_symlink() {
                continue;
            }
            let real = source.path.canonicalize();
            let real = real.unwrap_or_else(|_| source.path.clone());
            let name = self.rename.as_ref().or(source.name.as_ref());
            let target = match name.filter(|_| !source.contents) {
                Some(name) => folder.join(OsStr::from_bytes(name.as_bytes())),
                None => folder.clone(),
            };
            if target == real {
                let cause = format!(
                    "source {} and destination {} are the same file or folder",
                    source.words, self.words
                );
                return Err(usage(cause, "choose another destination"));
            }
            if target.starts_with(&real) {
                let cause = format!(
                    "the destination {} is inside {}, which is a source of the \
                    copy",
                    self.words, source.words
                );
                return Err(usage(cause, "choose a destination outside the source"));
            }
        }
        Ok(())
    }
}

/// Returns a source or destination for messages, in a form that the same command accepts again.
pub(crate) fn words(typed: &OsStr) -> String {
    match typed.as_bytes().windows(3).any(|part| part == b"://") {
        true => url::shown(typed.as_bytes()),
        false => shown(Path::new(typed)),
    }
}

pub(crate) fn usage(cause: impl Into<String>, remedy: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run the command")
        .cause(cause)
        .remedy(remedy)
}

/// Refuses a path that looks like a URL with an unknown scheme. Otherwise the copy would write into
/// a local folder of that name and succeed.
fn refuse_unknown_scheme(path: &OsStr, registry: &Registry) -> Result<()> {
    let bytes = path.as_bytes();
    let Some(end) = bytes.windows(3).position(|part| part == b"://") else {
        return Ok(());
    };
    let scheme = bytes.get(..end).unwrap_or_default();
    let is_scheme = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    let is_known = url::Url::is_meant(bytes) || bytes.starts_with(FILE_SCHEME);
    // If the URL belongs to a known store, the store's own parser reports its mistakes.
    if !is_scheme || is_known || !matches!(registry.parse(bytes), Ok(None)) {
        return Ok(());
    }
    let (words, scheme) = (url::shown(bytes), url::shown(scheme));
    Err(usage(
        format!("{words}: dray does not support the scheme {scheme}://"),
        format!(
            "write a path, a dray:// URL or {}; a source can also be {}; if {words} is a local \
                path, write ./{words}",
            registry.schemes(true),
            registry.schemes(false),
        ),
    ))
}

fn null_destination(written: &Written<'_>, path: &[u8]) -> Result<bool> {
    if !written.may_be_null {
        return Ok(false);
    }
    match Null::read(path)? {
        Some(null) if null.has_files() => Err(usage(
            "a null destination cannot have a size",
            "write the null destination as null:",
        )),
        other => Ok(other.is_some()),
    }
}

/// Splits the URL of a destination in a store into the folder and the new name of a single file, if
/// the URL contains one.
fn stored_destination(
    location: &Arc<dyn Location>,
    is_folder: bool,
) -> Result<(Folder, Option<Name>)> {
    location.writable()?;
    let path = location.path();
    refuse_reserved(path.as_bytes())?;
    let name = path.name().filter(|_| !is_folder && !location.is_folder());
    let Some(name) = name else {
        return Ok((Folder::Stored(Arc::clone(location)), None));
    };
    let folder = location.with_path(&path.parent().unwrap_or_else(RelPath::root));
    Ok((Folder::Stored(folder), Some(own_name(name.as_bytes())?)))
}

/// Returns true if the spelling of a path can only mean a folder.
fn is_folder_by_spelling(path: &OsStr) -> bool {
    let last = path.as_bytes().rsplit(|b| *b == b'/').next();
    matches!(last, Some(b"" | b"." | b".."))
}

/// Checks a name that a copy will create at the destination.
pub(crate) fn own_name(bytes: &[u8]) -> Result<Name> {
    let name = Name::new(bytes)?;
    if name.is_reserved() {
        let cause = format!("{name}: names that begin with .dray- are reserved");
        return Err(usage(cause, "choose another name"));
    }
    Ok(name)
}

fn local_destination(typed: &OsStr, is_folder: bool) -> Result<(Folder, Option<Name>)> {
    let typed = &*own_path(typed)?;
    if typed.is_empty() {
        return Err(usage("DST is empty", "name a file or a folder"));
    }
    let path = Path::new(typed);
    if is_folder {
        let folder = resolve(path)?;
        refuse_reserved(folder.as_os_str().as_bytes())?;
        refuse_file(&folder)?;
        return Ok((Folder::Local(folder), None));
    }
    let Some(name) = path.file_name() else {
        return Err(usage(
            "DST has no file name",
            "end DST with a slash if DST is a folder",
        ));
    };
    let folder = resolve(path.parent().unwrap_or(Path::new("")))?;
    refuse_reserved(folder.as_os_str().as_bytes())?;
    refuse_file(&folder)?;
    Ok((Folder::Local(folder), Some(own_name(name.as_bytes())?)))
}

/// Refuses a path that contains a folder with a reserved name. Copies skip such folders, so data in
/// them could not be copied again.
///
/// # Errors
/// [`ErrorKind::InvalidRequest`] if a component of `path` is a reserved name.
pub fn refuse_reserved(path: &[u8]) -> Result<()> {
    let names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
    for name in names.filter(|name| !matches!(*name, b"." | b"..")) {
        own_name(name)?;
    }
    Ok(())
}

fn refuse_file(folder: &Path) -> Result<()> {
    if folder.metadata().is_ok_and(|state| !state.is_dir()) {
        let words = shown(folder);
        return Err(
            Error::new(ErrorKind::NotADirectory, End::Sink, "open the destination")
                .cause(format!("{words} is not a folder"))
                .remedy("choose another destination"),
        );
    }
    Ok(())
}

fn remote_destination(mut remote: Remote, is_folder: bool) -> Result<(Folder, Option<Name>)> {
    // Remove the prefix `./`. A user writes it before a file name that begins with `null:`, which
    // would otherwise mean a null end (an end without storage).
    if remote.path.starts_with(b"./") {
        remote.path.drain(..2);
    }
    let path = &remote.path;
    refuse_reserved(path)?;
    if is_folder || is_folder_by_spelling(OsStr::from_bytes(path)) {
        return Ok((Folder::Remote(remote), None));
    }
    let slash = path.iter().rposition(|b| *b == b'/');
    let name = own_name(&path[slash.map_or(0, |slash| slash + 1)..])?;
    let folder = Remote {
        path: path[..slash.unwrap_or(0)].to_vec(),
        address: remote.address,
    };
    Ok((Folder::Remote(folder), Some(name)))
}

/// Parses `dray://host[:port]/path`. Returns `None` for a path on this host.
fn remote(text: &OsStr) -> Result<Option<Remote>> {
    if !url::Url::is_meant(text.as_bytes()) {
        return Ok(None);
    }
    let read = url::Url::parse(text.as_bytes()).map_err(|why| {
        usage(
            format!("{}: {why}", url::shown(text.as_bytes())),
            "write the URL as dray://HOST[:PORT]/PATH",
        )
    })?;
    Ok(Some(Remote {
        address: read.address,
        path: read.path,
    }))
}

/// Returns the path on this host that the user typed. The user may also type the URL
/// `file:///PATH`, in which `%HH` stands for a byte. Messages use such a URL for a path that
/// contains line breaks or control characters.
///
/// # Errors
/// If the URL is malformed, or names another host.
pub fn own_path(typed: &OsStr) -> Result<Cow<'_, OsStr>> {
    let Some(rest) = typed.as_bytes().strip_prefix(FILE_SCHEME) else {
        return Ok(Cow::Borrowed(typed));
    };
    let bad = |why: &str| {
        usage(
            format!("{}: {why}", url::shown(typed.as_bytes())),
            "write the URL as file:///PATH, or write the path alone",
        )
    };
    if !rest.starts_with(b"/") {
        return Err(bad("the file: URL contains a host name"));
    }
    Ok(Cow::Owned(OsString::from_vec(
        url::decode(rest).map_err(bad)?,
    )))
}

/// Returns a path on this host in a form that every command accepts. The form is the plain path or,
/// if the path contains line breaks or control characters, a `file:` URL.
#[must_use]
pub fn shown(path: &Path) -> String {
    let is_plain = |text: &&str| !text.chars().any(url::drives_terminal);
    if let Some(text) = path.to_str().filter(is_plain) {
        return text.to_owned();
    }
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    format!("file://{}", url::encode(whole.as_os_str().as_bytes()))
}

/// Returns an absolute path with all links resolved. The part of the path that does not exist is
/// kept as it is.
fn resolve(path: &Path) -> Result<PathBuf> {
    let failed = |error: &std::io::Error| {
        let words = shown(path);
        Error::new(ErrorKind::NotFound, End::Here, "find the folder")
            .cause(format!("{words}: {error}"))
            .remedy("choose an existing folder")
    };
    let mut done = match path.has_root() {
        true => PathBuf::from("/"),
        false => std::env::current_dir()
            .and_then(|here| here.canonicalize())
            .map_err(|error| failed(&error))?,
    };
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            // All links before this part are resolved, so removing the last name gives the right
            // parent folder.
            Component::ParentDir => {
                done.pop();
            }
            Component::Normal(name) => {
                let next = done.join(name);
                done = match next.canonicalize() {
                    Ok(real) => real,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => next,
                    // The link cannot be resolved, because of a cycle or a missing permission.
                    // Opening the path later reports the error.
                    Err(_) => next,
                };
            }
        }
    }
    Ok(done)
}

/// Converts an absolute path to a path in the store at `/`.
pub fn from_top(path: &Path) -> Result<RelPath> {
    let bytes = path.as_os_str().as_bytes();
    RelPath::parse(bytes.strip_prefix(b"/").unwrap_or(bytes))
}

/// Parses the arguments of `--target DIR=NAME`, and makes the folders absolute.
pub fn targets(given: &[OsString]) -> Result<Vec<(PathBuf, String)>> {
    let read = |text: &OsString| {
        let bytes = text.as_bytes();
        let cut = bytes.iter().rposition(|b| *b == b'=');
        let name = cut.and_then(|cut| std::str::from_utf8(&bytes[cut + 1..]).ok());
        match (cut, name) {
            (Some(cut), Some(name)) if cut > 0 && !name.is_empty() => {
                let folder = OsString::from_vec(bytes[..cut].to_vec());
                Ok((resolve(Path::new(&folder))?, name.to_owned()))
            }
            _ => {
                let cause = format!(
                    "--target {} does not name both a folder and a target",
                    url::shown(bytes)
                );
                Err(usage(cause, "write --target as DIR=NAME"))
            }
        }
    };
    given.iter().map(read).collect()
}

#[cfg(test)]
mod tests;
