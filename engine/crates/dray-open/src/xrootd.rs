//! An XRootD server as the source or the sink of a transfer.

use crate::locations::{Folder, Places, Sources, own_name, refuse_reserved};
use crate::prepare::{Targets, refuse_early};
use dray_core::options::{Durability, Options};
use dray_core::{Checksum, End, Error, ErrorKind, Name, RelPath, Result, TransferId};
use dray_runtime::sink::{Destination, DestinationRequest};
use dray_runtime::source::Root;
use dray_store::{Capabilities, ReadOnly, Store};
pub use dray_store_xrootd::end_process;
use dray_store_xrootd::{SinkOptions, Url, XrootdOptions, XrootdSink, XrootdStore};
use dray_wire::message::Selection;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Whose a log at such a server is. A number of a user here says nothing there: whom the server lets open the
/// log, by its credentials, goes on with it.
pub const OWNER: &[u8] = b"xrootd";

/// A file or folder of an XRootD server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XrootdSource {
    /// Server and path.
    pub url: Url,
    /// A folder's contents, not the folder itself.
    pub contents: bool,
}

fn usage(cause: impl Into<String>, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "do as told")
        .cause(cause)
        .remedy(remedy)
}

impl XrootdSource {
    /// The one that is read, if it is one: it comes alone.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] for a URL that is none, or one beside other sources.
    pub fn read(sources: &[OsString]) -> Result<Option<Self>> {
        let is_url = |source: &&OsString| Url::is_meant(source.as_bytes());
        let Some(source) = sources.iter().find(is_url) else {
            return Ok(None);
        };
        if sources.len() > 1 {
            let cause = "a file of an XRootD server beside other sources";
            return Err(usage(cause, "copy them one by one"));
        }
        let (url, contents) = read(source)?;
        Ok(Some(Self { url, contents }))
    }

    /// What a copy of it is called; none for a folder's contents.
    #[must_use]
    pub fn name(&self) -> Option<Name> {
        self.url.path().name().filter(|_| !self.contents)
    }

    /// What to read.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when the XRootD client cannot be loaded.
    pub fn roots(&self, targets: &Targets) -> Result<Vec<Root>> {
        Ok(self.open(targets, false)?.0)
    }

    /// What to read, from all servers of a cluster that have the one file: for who compares the whole
    /// with a checksum, and must where [`XrootdStore::is_from_several`] says so.
    ///
    /// # Errors
    /// As [`Self::roots`].
    pub(crate) fn replicas(&self, targets: &Targets) -> Result<(Vec<Root>, XrootdStore)> {
        self.open(targets, true)
    }

    fn open(&self, targets: &Targets, replicas: bool) -> Result<(Vec<Root>, XrootdStore)> {
        let options = XrootdOptions {
            replicas,
            ..XrootdOptions::default()
        };
        let opened = XrootdStore::open(self.url.clone(), End::Source, options)?;
        let store: Arc<dyn Store> = targets.limit(Arc::new(ReadOnly(opened.clone())));
        let root = Root {
            store,
            path: self.url.path().clone(),
            top: format!("root://{}//", self.url.server()).into(),
            name: None,
            contents: self.contents,
        };
        Ok((vec![root], opened))
    }
}

/// Reads a URL; and whether a slash at its end says that it is a folder.
fn read(typed: &OsStr) -> Result<(Url, bool)> {
    let text = typed.to_str();
    let text = text.ok_or_else(|| usage("a URL that is no text", "write it in UTF-8"))?;
    let url = Url::parse(text)?;
    let place = text.split_once('?').map_or(text, |(place, _)| place);
    let is_folder = place.ends_with('/') || url.path().is_root();
    Ok((url, is_folder))
}

/// What a URL means as a destination: the folder, and the one file's new name if it has one.
pub(crate) fn destination(typed: &OsStr, is_folder: bool) -> Result<(Folder, Option<Name>)> {
    let (url, is_spelt_folder) = read(typed)?;
    if url.has_key() {
        let cause = "the key of a third-party copy opens a source";
        return Err(usage(cause, "leave it out of the destination"));
    }
    refuse_reserved(url.path().as_bytes())?;
    let name = url.path().name().filter(|_| !is_folder && !is_spelt_folder);
    let Some(name) = name else {
        return Ok((Folder::Xrootd(url), None));
    };
    let folder = url.path().parent().unwrap_or_else(RelPath::root);
    let name = own_name(name.as_bytes())?;
    Ok((Folder::Xrootd(url.with_path(&folder)), Some(name)))
}

/// Opens a folder of a server to write to, with its log and lease, and says what the server can do.
///
/// # Errors
/// [`ErrorKind::InvalidRequest`] for what cannot be promised of a server; [`ErrorKind::IsADirectory`] when
/// a folder stands where the one file should; as [`XrootdSink::open`] and [`Destination::open`].
pub(crate) fn open_destination(
    url: &Url,
    places: &Places,
    targets: &Targets,
    (transfer, selection): (&TransferId, &Selection),
    options: &Options,
) -> Result<(Destination, Capabilities)> {
    if options.durability == Durability::None {
        return Err(usage(
            "without durability a server that began anew would be taken for one that did not",
            "leave --durability none out",
        ));
    }
    if options.xattrs {
        return Err(usage(
            "an XRootD server keeps no extended attributes of files",
            "leave --xattrs out",
        ));
    }
    let sink = XrootdSink::open(url.clone(), SinkOptions::default())?;
    sink.make_root()?;
    // Logs of whole trees lie in the folders above.
    let above = sink.elsewhere(&RelPath::root(), SinkOptions::default())?;
    let store: Arc<dyn Store> = targets.limit(Arc::new(sink));
    if let Some(name) = &places.rename {
        let stands = store.stat(&RelPath::root().join(name)?)?;
        let stands = stands.map(|state| state.kind);
        refuse_early(stands, name, format!("{url}/{name}"), places, options)?;
    }
    let can = store.capabilities();
    let request = DestinationRequest {
        store,
        above: Some((Arc::new(above), url.path().clone())),
        claims: places.claims.clone(),
        transfer: transfer.clone(),
        owner: OWNER.to_vec(),
        durability: options.durability,
        // The URL's parameters may be secret.
        words: url.to_string(),
    };
    let destination = Destination::open_for(request, selection)?;
    Ok((destination, can))
}

/// Whether it is one file of such a server, which may know its checksum.
pub(crate) const fn may_offer(sources: &Sources) -> bool {
    matches!(
        sources,
        Sources::Xrootd(XrootdSource {
            contents: false,
            ..
        })
    )
}

/// The checksum that a server gives for the one file that is read from it.
///
/// # Errors
/// When it cannot be asked, which is no fault of the copy: reading the file will tell.
pub fn checksum(sources: &Sources) -> Result<Option<Checksum>> {
    match sources {
        Sources::Xrootd(XrootdSource {
            url,
            contents: false,
        }) => dray_store_xrootd::checksum(url, url.path()),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::destination;
    use crate::locations::Folder;
    use std::ffi::OsStr;

    /// The folder's path at the server, and the file's new name.
    fn read(typed: &str, is_folder: bool) -> Option<(String, Option<String>)> {
        match destination(OsStr::new(typed), is_folder).ok()? {
            (Folder::Xrootd(url), name) => {
                Some((url.path().to_string(), name.map(|name| name.to_string())))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_destination_is_a_folder_by_how_it_is_written() {
        let folder = |path: &str| Some((path.to_owned(), None));
        let file = |path: &str, name: &str| Some((path.to_owned(), Some(name.to_owned())));
        assert_eq!(read("root://h//d/f", false), file("d", "f"));
        assert_eq!(read("root://h//d/f?authz=x/", false), file("d", "f"));
        assert_eq!(read("root://h//d/f", true), folder("d/f"));
        assert_eq!(read("root://h//d/f/", false), folder("d/f"));
        let at_root = read("root://h//f", false).expect("good");
        assert_eq!(at_root.1.as_deref(), Some("f"));
        for refused in [
            "root://h//d/.dray-log/x",
            "root://h//d/.dray-x",
            "root://h//d/f?tpc.key=1",
        ] {
            assert_eq!(read(refused, false), None, "{refused}");
        }
    }
}
