//! Authentication of an endpoint's callers, permissions on paths, and tickets.
//!
//! Purpose: the types that the endpoint uses, which are a [`Principal`], an [`Action`], and the
//! trait [`Access`]; [`Authenticator`], which implements the trait; the rights of a ticket
//! ([`tickets`]).
//!
//! Non-goals: verifying signatures (dray-auth), storing tickets, HTTP.
//!
//! Invariant owned here: nothing is allowed by default.

mod authenticator;
mod keyring;
mod keys;
pub mod tickets;

pub use authenticator::{Authenticator, own_issuer, own_url};
pub use keys::{authorities, certificates};

use dray_api::api_path::ApiPath;
use dray_core::Result;
use rustls::pki_types::CertificateDer;
use std::pin::Pin;
use std::time::{SystemTime, UNIX_EPOCH};

/// The result of a call that may wait for a remote service (an issuer's keys).
pub type Future<'a, T> = Pin<Box<dyn std::future::Future<Output = T> + Send + 'a>>;

/// The credentials that a caller presents.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// A bearer token.
    pub bearer: Option<&'a str>,
    /// The client certificate of the TLS connection and its chain, the certificate first; empty
    /// without a certificate. TLS has proved that the caller holds its key, not that the
    /// certificate is trusted.
    pub certificates: &'a [CertificateDer<'static>],
}

// A debug line must not carry a token into a log.
impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("bearer", &self.bearer.map(|_| "..."))
            .field("certificates", &self.certificates.len())
            .finish()
    }
}

/// The rights that come with a principal's credential, in addition to the rules of the roots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rights {
    /// All rights that the rules give its owner.
    Rules,
    /// The rights that these scopes of a token give.
    Scopes(dray_auth::Scopes),
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// `sub@iss` of a token, or the subject of a certificate.
    pub name: String,
    /// The owner of the transfers that it submits.
    pub owner: String,
    /// True if it may see and change all transfers.
    pub is_administrator: bool,
    /// The rights that come with its credential.
    pub rights: Rights,
}

impl Principal {
    /// Returns true if the principal may see and change transfers of `owner`.
    #[must_use]
    pub fn sees(&self, owner: &str) -> bool {
        self.is_administrator || self.owner == owner
    }
}

/// An action on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read, list, stat, checksum.
    Read,
    /// Write a file that does not exist, or into a folder.
    Create,
    /// Make an empty folder. The right to write a path includes that of making the folders that
    /// lead to it, without the right to write into those.
    MakeFolder,
    /// Replace, rename, remove.
    Modify,
    /// Stage.
    Stage,
}

/// Authenticates callers and checks permissions.
pub trait Access: Send + Sync {
    /// Returns the principal of these credentials.
    ///
    /// # Errors
    /// `Unauthorized` without credentials, or if they are not accepted.
    fn authenticate<'a>(&'a self, credentials: Credentials<'a>) -> Future<'a, Result<Principal>>;

    /// Checks that `principal` may do `action` on `path`.
    ///
    /// # Errors
    /// `PermissionDenied`, which names the missing scope or the rule.
    fn allow(&self, principal: &Principal, action: Action, path: &ApiPath) -> Result<()>;

    /// Checks that an earlier request or ticket of `principal`, as `owner`, may still do `action`
    /// on `path`. The scopes of the credential were checked at the request; this call checks the
    /// present configuration.
    ///
    /// # Errors
    /// As [`Access::allow`]; `NotFound` if the root was removed.
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
