//! The section `[trust]`: files of authorities, revocation lists and issuers' keys that are fetched
//! from other hosts.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Minimum interval between two updates in seconds, so that a wrong value does not burden the
/// servers of authorities.
const INTERVAL_MIN: u64 = 60;

/// Files that are fetched from other hosts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustUpdate {
    /// Folder that receives the files. Default: the folder `trust` in the folder `state`.
    pub folder: Option<PathBuf>,
    /// Seconds between two updates by the endpoint. Default: the endpoint makes no updates.
    pub interval_seconds: Option<u64>,
    /// Folder with authorities and files `HASH.crl_url`, as the IGTF publishes them. The revocation
    /// lists at these URLs are fetched.
    pub crl_urls: Option<PathBuf>,
    /// Further files.
    #[serde(default)]
    pub source: Vec<TrustSource>,
}

/// One file that is fetched.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustSource {
    /// Name of the file in the folder.
    pub name: String,
    /// Content of the file.
    pub kind: TrustKind,
    /// `https://`, `http://` (revocation lists only) or `file:///` URL of the file.
    pub url: String,
    /// Authorities of the server's certificate: a file or a folder. Default: the system's.
    pub ca: Option<PathBuf>,
}

/// Content of a fetched file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrustKind {
    /// Certificates of authorities, in PEM form.
    Authorities,
    /// A revocation list, in PEM or DER form.
    Crl,
    /// The public keys of a token issuer, as a JWK set.
    Jwks,
}

impl TrustKind {
    /// Returns the name in the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Authorities => "authorities",
            Self::Crl => "crl",
            Self::Jwks => "jwks",
        }
    }
}

impl TrustUpdate {
    /// Returns the folder that receives the files. `state` is the folder of the endpoint's state.
    #[must_use]
    pub fn folder(&self, state: &Path) -> PathBuf {
        let named = self.folder.clone();
        named.unwrap_or_else(|| state.join("trust"))
    }

    /// Checks the values. An error consists of the wrong key and the cause.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        if self
            .interval_seconds
            .is_some_and(|interval| interval < INTERVAL_MIN)
        {
            let cause = format!("`interval_seconds` of [trust] must be at least {INTERVAL_MIN}");
            return Err(("interval_seconds", cause));
        }
        let mut names = BTreeSet::new();
        for source in &self.source {
            let name = &source.name;
            if !names.insert(name) {
                let cause = format!("two [[trust.source]] have the name {name:?}");
                return Err(("name", cause));
            }
            let ending = match source.kind {
                TrustKind::Authorities => ".pem",
                TrustKind::Crl => ".crl",
                TrustKind::Jwks => ".jwks",
            };
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if name.starts_with('.') || !name.bytes().all(is_plain) || !name.ends_with(ending) {
                let cause = format!(
                    "the name {name:?} of a [[trust.source]] of kind {:?} must be a file name of \
                        letters, digits, `.`, `_` and `-` that ends in {ending:?}",
                    source.kind.word()
                );
                return Err(("name", cause));
            }
            check_url(source)?;
        }
        Ok(())
    }
}

fn check_url(source: &TrustSource) -> Result<(), (&'static str, String)> {
    let url = &source.url;
    if url.starts_with("https://") || url.starts_with("file:///") {
        return Ok(());
    }
    let cause = match (url.starts_with("http://"), source.kind) {
        // The signature protects a revocation list.
        (true, TrustKind::Crl) => return Ok(()),
        (true, kind) => format!(
            "{url} is not encrypted, so an attacker could replace the file: use an https:// URL \
                for a [[trust.source]] of kind {:?}",
            kind.word()
        ),
        (false, _) => format!("{url:?} is neither an https://, an http:// nor a file:/// URL"),
    };
    Err(("url", cause))
}
