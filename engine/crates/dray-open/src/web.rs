//! Web servers, which can only be sources.

use crate::store_kind::{Location, OpenedSource, StoreKind};
use dray_core::{Checksum, End, RelPath, Result};
use dray_store::ReadOnly;
use dray_store_http::{Credentials, HttpStore, HttpUrl};
use std::sync::Arc;

/// Text before the URLs in the text from which a transfer id is derived.
const IDENTITY_START: &str = "Web([";
/// Text after these URLs.
const IDENTITY_END: &str = "])";

/// The kind of store of servers that speak HTTP or WebDAV.
pub(crate) struct WebServers;

impl StoreKind for WebServers {
    fn scheme(&self) -> &'static str {
        "http://"
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn parse(&self, typed: &[u8]) -> Result<Option<Arc<dyn Location>>> {
        let url = HttpUrl::read(typed)?;
        Ok(url.map(|url| -> Arc<dyn Location> { Arc::new(WebLocation(url)) }))
    }
}

#[derive(Debug)]
struct WebLocation(HttpUrl);

impl WebLocation {
    /// Opens the server's store, with the credentials from the environment variables.
    fn open(&self) -> Result<HttpStore> {
        let credentials = Credentials::from_environment(|name| std::env::var_os(name))?;
        Ok(HttpStore::new(&self.0, credentials, End::Source))
    }
}

impl Location for WebLocation {
    fn words(&self) -> String {
        self.0.to_string()
    }

    fn path(&self) -> RelPath {
        self.0.path.clone()
    }

    fn is_folder(&self) -> bool {
        self.0.is_folder
    }

    fn top(&self) -> String {
        format!("{}/", self.0.origin)
    }

    fn with_path(&self, path: &RelPath) -> Arc<dyn Location> {
        Arc::new(Self(HttpUrl {
            path: path.clone(),
            ..self.0.clone()
        }))
    }

    fn identity(&self, _end: End) -> String {
        format!("{IDENTITY_START}{:?}{IDENTITY_END}", self.0)
    }

    fn identity_of_all(&self, sources: &[Arc<dyn Location>]) -> String {
        let inner = sources.iter().map(|one| {
            let whole = one.identity(End::Source);
            let inner = whole.strip_prefix(IDENTITY_START);
            let inner = inner.and_then(|rest| rest.strip_suffix(IDENTITY_END));
            inner.unwrap_or(&whole).to_owned()
        });
        let inner: Vec<String> = inner.collect();
        format!("{IDENTITY_START}{}{IDENTITY_END}", inner.join(", "))
    }

    fn shared_store(&self) -> Option<String> {
        let HttpUrl { origin, query, .. } = &self.0;
        Some(format!(
            "{} {} {query:?}",
            origin.is_secure,
            origin.server()
        ))
    }

    fn open_source(&self, _is_compared: bool) -> Result<OpenedSource> {
        Ok(OpenedSource::of(Arc::new(ReadOnly(self.open()?))))
    }

    fn offers_checksum(&self) -> bool {
        true
    }

    fn checksum(&self) -> Result<Option<Checksum>> {
        self.open()?.checksum(&self.0.path, &|| false)
    }
}
