//! A web server as the source of a transfer: one store for all that is read from it.

use crate::locations::{Sources, own_name, usage};
use crate::prepare::Targets;
use dray_core::{Checksum, End, Name, Result};
use dray_runtime::source::Root;
use dray_store::{ReadOnly, Store};
use dray_store_http::{Credentials, HttpStore, HttpUrl};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// What a copy of `url` is called; `first` is what is read beside it.
pub(crate) fn name(
    url: &HttpUrl,
    first: Option<&HttpUrl>,
    recursive: bool,
) -> Result<Option<Name>> {
    if let Some(first) = first
        && (!first.origin.is(&url.origin) || first.query != url.query)
    {
        let cause = format!("sources of two servers, {first} and {url}");
        return Err(usage(cause, "copy from one server at a time"));
    }
    let last = url.path.name().filter(|_| !url.is_folder);
    match last {
        None if !recursive => {
            let cause = format!("{url} means a folder's contents");
            Err(usage(cause, "add --recursive (-r)"))
        }
        Some(name) => own_name(name.as_bytes()).map(Some),
        None => Ok(None),
    }
}

/// Refuses an address of a web server as a destination.
///
/// # Errors
/// [`dray_core::ErrorKind::InvalidRequest`] says what can be done.
pub(crate) fn refuse_destination(destination: &OsStr) -> Result<()> {
    let Some(url) = HttpUrl::read(destination.as_bytes())? else {
        return Ok(());
    };
    let cause = format!("{url}: dray cp reads from web servers and does not write to them");
    let remedy = "name a folder, or an endpoint (dray://HOST/PATH)";
    Err(usage(cause, remedy))
}

/// The store of a server, with the credentials that the environment gives.
fn open(url: &HttpUrl) -> Result<HttpStore> {
    let credentials = Credentials::from_environment(|name| std::env::var_os(name))?;
    Ok(HttpStore::new(url, credentials, End::Source))
}

/// What to read of one server; nothing is asked yet.
///
/// # Errors
/// For credentials that are none.
pub fn roots(urls: &[HttpUrl], targets: &Targets) -> Result<Vec<Root>> {
    let Some(first) = urls.first() else {
        return Ok(Vec::new());
    };
    let store: Arc<dyn Store> = targets.limit(Arc::new(ReadOnly(open(first)?)));
    let root = |url: &HttpUrl| Root {
        store: Arc::clone(&store),
        path: url.path.clone(),
        top: format!("{}/", url.origin).into(),
        name: None,
        contents: url.is_folder,
    };
    Ok(urls.iter().map(root).collect())
}

/// Whether it is one file of such a server, which may know its checksum.
pub(crate) fn may_offer(sources: &Sources) -> bool {
    matches!(sources, Sources::Web(urls) if matches!(urls.as_slice(), [url] if !url.is_folder))
}

/// The checksum that a server gives for the one file that is read from it.
///
/// # Errors
/// When it cannot be asked, which is no fault of the copy: reading the file will tell.
pub fn checksum(sources: &Sources) -> Result<Option<Checksum>> {
    match sources {
        Sources::Web(urls) => match urls.as_slice() {
            [url] if !url.is_folder => open(url)?.checksum(&url.path, &|| false),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}
