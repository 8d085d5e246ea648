//! Who a caller is, and what may be done to which path.
//!
//! Here are the words: a [`Principal`], an [`Action`], and the trait [`Access`] that the API asks.
//! Who believes tokens and certificates stands behind the trait.
//!
//! Invariant owned here: nothing is allowed by default.

mod authenticator;
mod keyring;
mod keys;

pub use authenticator::{Authenticator, own_issuer, own_url};
pub use keys::{authorities, certificates};
#[cfg(test)]
pub(crate) mod testing;

use dray_api::api_path::ApiPath;
use dray_core::Result;
use rustls::pki_types::CertificateDer;
use std::pin::Pin;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a call gets that may have to wait for somebody (an issuer's keys).
pub type Future<'a, T> = Pin<Box<dyn std::future::Future<Output = T> + Send + 'a>>;

/// What a caller shows.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// A bearer token.
    pub bearer: Option<&'a str>,
    /// The client certificate of the TLS connection and its chain, the certificate first; empty
    /// without one. That its key is the caller's is proved; whether it is believed is not.
    pub certificates: &'a [CertificateDer<'static>],
}

// A token must not get into a log by way of a debug line.
impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("bearer", &self.bearer.map(|_| "..."))
            .field("certificates", &self.certificates.len())
            .finish()
    }
}

/// What a principal's credential lets it do, beside the rules of the roots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rights {
    /// What the rules allow its owner.
    Rules,
    /// What these scopes of a token say.
    Scopes(dray_auth::Scopes),
}

/// Who a caller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// `sub@iss` of a token, or the subject of a certificate.
    pub name: String,
    /// Whose transfers are whose.
    pub owner: String,
    /// Whether it sees and changes all transfers.
    pub is_administrator: bool,
    /// What its credential lets it do.
    pub rights: Rights,
}

impl Principal {
    /// Whether it may see and change what belongs to `owner`.
    #[must_use]
    pub fn sees(&self, owner: &str) -> bool {
        self.is_administrator || self.owner == owner
    }
}

/// What is done to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read, list, stat, checksum.
    Read,
    /// Write what is not there yet: a file, or into a folder.
    Create,
    /// Make an empty folder. Who may write a path may make the folders that lead to it, without
    /// being allowed to write into those.
    MakeFolder,
    /// Replace, rename, remove.
    Modify,
    /// Stage.
    Stage,
}

/// Who decides.
pub trait Access: Send + Sync {
    /// Who shows these credentials.
    ///
    /// # Errors
    /// `Unauthorized` without credentials, or with ones that are not believed.
    fn authenticate<'a>(&'a self, credentials: Credentials<'a>) -> Future<'a, Result<Principal>>;

    /// Whether `principal` may do this to `path`.
    ///
    /// # Errors
    /// `PermissionDenied` says which scope, or which rule, was needed.
    fn allow(&self, principal: &Principal, action: Action, path: &ApiPath) -> Result<()>;

    /// Whether what `principal` submitted, or got a ticket for, as `owner` some time ago may still do
    /// this to `path`: what its credential allowed was asked then, what the configuration says is
    /// asked now.
    ///
    /// # Errors
    /// As [`Access::allow`]; `NotFound` when the root is gone.
    fn still_allow(
        &self,
        owner: &str,
        principal: &str,
        action: Action,
        path: &ApiPath,
    ) -> Result<()>;
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
