//! Authentication of an endpoint's callers, permissions on paths, and tickets.
//!
//! Purpose:
//! - the types of an access decision: [`Principal`], [`Action`] and the trait [`Access`];
//! - [`Authenticator`], which implements the trait;
//! - the rights of a ticket ([`tickets`]);
//! - logins of users, and their sessions ([`login`]);
//! - the update of authorities, revocation lists and issuers' keys ([`trust`]).
//!
//! Non-goals: verifying signatures (dray-auth), storing tickets, HTTP.
//!
//! Invariant of this crate: nothing is allowed by default.

mod authenticator;
mod authority_files;
mod keyring;
mod keys;
pub mod login;
pub mod tickets;
pub mod trust;

pub use authenticator::{Authenticator, own_issuer, own_url};
pub use keys::{authorities, certificates};

use dray_api::api_path::ApiPath;
use dray_core::Result;
use rustls::pki_types::CertificateDer;
use std::pin::Pin;
use std::time::{SystemTime, UNIX_EPOCH};

/// The result of a call that may wait for a remote service, such as an issuer's key server.
pub type Future<'a, T> = Pin<Box<dyn std::future::Future<Output = T> + Send + 'a>>;

/// The credentials that a caller presents.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// A bearer token.
    pub bearer: Option<&'a str>,
    /// The client certificate of the TLS connection, followed by its chain. Empty if the caller has
    /// no certificate. TLS has proved that the caller has the private key. TLS has not checked that
    /// the certificate is trusted.
    pub certificates: &'a [CertificateDer<'static>],
}

// Debug output must not contain the token, because it may be logged.
impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("bearer", &self.bearer.map(|_| "..."))
            .field("certificates", &self.certificates.len())
            .finish()
    }
}

/// The rights of the credential that a principal used. The rules of the roots apply in addition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rights {
    /// All rights that the rules give to the owner.
    Rules,
    /// Only the rights in these scopes of a token.
    Scopes(dray_auth::Scopes),
    /// Only the rights in these scopes, which the configuration grants to the user of a login.
    Granted(dray_auth::Scopes),
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Name of the principal: `sub@iss` of a token, or the subject of a certificate.
    pub name: String,
    /// Owner of the transfers that the principal submits.
    pub owner: String,
    /// True if the principal may see and change all transfers.
    pub is_administrator: bool,
    /// Rights of the credential that the principal used.
    pub rights: Rights,
}

impl Principal {
    /// Returns true if the principal may see and change transfers of `owner`.
    #[must_use]
    pub fn sees(&self, owner: &str) -> bool {
        self.is_administrator || self.owner == owner
    }
}

/// An action on a path that needs permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read, list, stat, checksum.
    Read,
    /// Write a file that does not exist yet, or write into a folder.
    Create,
    /// Make an empty folder. A principal that may write to a path may also make the folders above
    /// that path. The principal may make these folders even if it may not write files into them.
    MakeFolder,
    /// Replace, rename, remove.
    Modify,
    /// Stage.
    Stage,
}

/// Authenticates callers and checks permissions.
pub trait Access: Send + Sync {
    /// Returns the principal that these credentials prove.
    ///
    /// # Errors
    /// `Unauthorized` if there are no credentials, or if they are not accepted.
    fn authenticate<'a>(&'a self, credentials: Credentials<'a>) -> Future<'a, Result<Principal>>;

    /// Checks that `principal` may do `action` on `path`.
    ///
    /// # Errors
    /// `PermissionDenied`; the error names the missing scope or the rule.
    fn allow(&self, principal: &Principal, action: Action, path: &ApiPath) -> Result<()>;

    /// Checks that `principal` may still do `action` on `path`. Earlier, `principal` submitted a
    /// request or got a ticket, which belongs to `owner`. The scopes of the credential were checked
    /// at that time. This call checks only the present configuration.
    ///
    /// # Errors
    /// The errors of [`Access::allow`]. `NotFound` if the root was removed.
    fn still_allow(
        &self,
        owner: &str,
        principal: &str,
        action: Action,
        path: &ApiPath,
    ) -> Result<()>;
}

/// Principal of the transfers that the endpoint submits by itself. No caller has this name: the
/// principal of a token contains `@`, and the principal of a certificate begins with `/`.
pub const OWN_PRINCIPAL: &str = "endpoint";

/// Returns the present time in seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
