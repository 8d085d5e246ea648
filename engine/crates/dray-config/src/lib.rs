//! The endpoint's configuration: one TOML file, written by an administrator.
//!
//! Purpose: the file as types that hold only valid values: sizes with units, valid names, rules
//! that name existing roots. The example ([`EXAMPLE`]) explains each key; a test parses it.
//!
//! Non-goals: applying limits and rules. A missing folder is an error of the code that opens it
//! ([`roots`]).
//!
//! Invariant owned here: an unknown key is refused, with its file and line.

mod limits;
#[cfg(test)]
mod policy_list;
mod read;
pub mod roots;
mod values;

pub use limits::{History, Janitor, Limits, Metrics, Retry, Scheduling, Share, Tickets};
pub use values::{
    Address, Owners, Rate, RootName, Size, TargetFolder, TargetLimit, ThreadsOf, Tier,
};

use dray_api::{Request, Route, Streams};
use dray_auth::Mapping;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A configuration with every key and its explanation, as shipped.
pub const EXAMPLE: &str = include_str!("example.toml");

/// The configuration of one endpoint.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The host's name as others write it in URLs.
    pub name: String,
    /// Other names that mean this endpoint.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Folder of the queue, the manifests and all other state that must survive a restart.
    pub state: PathBuf,
    /// Folder of the host's key. Default: the state folder.
    pub identity: Option<PathBuf>,
    /// Addresses for TLS and sessions.
    #[serde(default = "default_listen")]
    pub listen: Vec<Address>,
    /// Plain HTTP, for local callers.
    #[serde(default)]
    pub listen_plain: ListenPlain,
    /// Certificates.
    #[serde(default)]
    pub tls: Tls,
    /// The exported roots.
    #[serde(default)]
    pub root: Vec<Root>,
    /// Issuers whose tokens are accepted.
    #[serde(default)]
    pub issuer: Vec<Issuer>,
    /// This endpoint's own tokens.
    pub issuer_local: Option<IssuerLocal>,
    /// Rules that map principals to owners; the first matching rule applies.
    #[serde(default)]
    pub map: Mapping,
    /// Owners who may see and change all transfers.
    #[serde(default)]
    pub administrators: Vec<String>,
    /// Limits.
    #[serde(default)]
    pub limits: Limits,
    /// Bytes per second of the whole endpoint.
    pub rate: Option<Rate>,
    /// Data connections of a transfer whose request does not set them.
    #[serde(default = "default_streams")]
    pub streams: Streams,
    /// Shares of the rate.
    #[serde(default)]
    pub share: Vec<Share>,
    /// Rules that decide which transfers run, and which are held meanwhile.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// Tickets that the endpoint issues for other endpoints.
    #[serde(default)]
    pub tickets: Tickets,
    /// Retention of ended transfers.
    #[serde(default)]
    pub history: History,
    /// Removal of abandoned partial files.
    #[serde(default)]
    pub janitor: Janitor,
    /// Access to the counters.
    #[serde(default)]
    pub metrics: Metrics,
    /// The audit log.
    pub audit: Option<Audit>,
    /// Retries of a request that does not set them.
    #[serde(default)]
    pub retry: Retry,
    /// True if files are read and written as the owner's account.
    #[serde(default)]
    pub setuid: bool,
    /// Lowest accepted account number. Accounts with lower numbers belong to the system.
    #[serde(default = "default_setuid_min")]
    pub setuid_min: u32,
    /// True if data may travel outside of TLS when a transfer asks for it.
    #[serde(default)]
    pub clear_data: bool,
    /// Address `HOST:PORT` at which others reach this endpoint, if it is not its name and port.
    pub advertise: Option<Address>,
    /// The addresses on which it listens; empty until it does.
    #[serde(skip)]
    own_addresses: Vec<SocketAddr>,
}

/// Plain HTTP.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenPlain {
    /// Its addresses. Loopback only, unless the network is trusted.
    #[serde(default)]
    pub addresses: Vec<Address>,
}

/// Certificates of the control API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Certificate chain in PEM form. Default: the host's own key.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// Authorities of accepted client certificates: a file or a folder.
    pub client_ca: Option<PathBuf>,
    /// Revocation lists: a file or a folder, read again when it changes.
    pub crl: Option<PathBuf>,
    /// Authorities of certificates that other endpoints may present instead of a pinned key: a file
    /// or a folder.
    pub peers_ca: Option<PathBuf>,
}

/// One exported folder.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// First part of an API path.
    pub name: RootName,
    /// The folder of this host.
    pub path: Option<PathBuf>,
    /// Instead of `path`, the URL of a folder of another store: `root://HOST//PATH`, or
    /// `https://HOST/PATH`.
    pub store: Option<String>,
    /// Owners who may read; a token must allow it as well. Default: tokens by their scopes alone,
    /// no access by a certificate.
    pub read: Option<Owners>,
    /// Owners who may write; the same default.
    pub write: Option<Owners>,
    /// Owners who may stage; the same default.
    pub stage: Option<Owners>,
    /// True if no caller may change anything in it, whatever the token allows.
    #[serde(default)]
    pub read_only: bool,
    /// Its side of staging.
    pub tier: Option<Tier>,
    /// Folders that are on a storage target of their own.
    #[serde(default)]
    pub targets: Vec<TargetFolder>,
    /// Maximum rates of its storage targets.
    #[serde(default)]
    pub limit_targets: Vec<TargetLimit>,
    /// Number of readers, or writers, of each of its storage targets.
    #[serde(default)]
    pub threads: ThreadsOf,
    /// True if large files are read and written past the page cache, where the file system supports
    /// it.
    #[serde(default)]
    pub direct_io: bool,
    /// True if the space of a large file is allocated at its start, where the file system supports
    /// it.
    #[serde(default)]
    pub preallocate: bool,
    /// Maximum bytes per second that all transfers together read from it and write to it.
    pub rate: Option<Rate>,
}

impl Config {
    /// Returns the configured share of a peer (`HOST` or `HOST:PORT`).
    #[must_use]
    pub fn share_of_peer(&self, peer: &str) -> Option<&Share> {
        self.share.iter().find(|share| share.is_of_peer(peer))
    }

    /// Returns the configured share of an owner.
    #[must_use]
    pub fn share_of_owner(&self, owner: &str) -> Option<&Share> {
        let mut shares = self.share.iter();
        shares.find(|share| share.owner.as_deref() == Some(owner))
    }
}

/// An issuer of tokens.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// `iss` of its tokens.
    pub url: String,
    /// Values of `aud` that mean this endpoint.
    pub audiences: Vec<String>,
    /// Its public keys: a file, or a URL. Default: found by the discovery document at its `url`.
    pub keys: Option<String>,
    /// File of the authorities of the server that serves the keys. Default: the system's
    /// authorities.
    pub ca: Option<PathBuf>,
    /// API path at which the paths of its scopes begin.
    #[serde(default = "default_base")]
    pub base: String,
    /// True if its tokens follow the WLCG profile 1.0.
    #[serde(default = "yes")]
    pub wlcg: bool,
    /// Seconds for which its keys are used before they are fetched again.
    #[serde(default = "default_cache_seconds")]
    pub cache_seconds: u64,
    /// Additional seconds for which they are used while the issuer is unreachable.
    #[serde(default = "default_cache_seconds")]
    pub stale_seconds: u64,
}

/// This endpoint's own tokens.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerLocal {
    /// The file of the key that `dray token mint` signs with.
    pub key: PathBuf,
}

/// The audit log.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// File to which one JSON object per line is appended.
    pub file: PathBuf,
}

impl Config {
    /// Returns the folder of the host's key.
    #[must_use]
    pub fn identity_folder(&self) -> &std::path::Path {
        self.identity.as_deref().unwrap_or(&self.state)
    }

    /// Sets the addresses on which the endpoint listens: URLs of these addresses, and of its names
    /// at these ports, are local.
    pub fn listens_at(&mut self, addresses: &[SocketAddr]) {
        self.own_addresses = addresses.to_vec();
    }

    /// Resolves the URLs of a request as this endpoint sees them now.
    ///
    /// # Errors
    /// As [`Route::parse`].
    pub fn route(&self, request: &Request) -> dray_core::Result<Route> {
        Route::parse(request, |address| self.is_own(address))
    }

    /// Returns true if `HOST:PORT` of a URL is this endpoint.
    #[must_use]
    pub fn is_own(&self, address: &str) -> bool {
        let advertised = self.advertise.as_ref().map(Address::as_str);
        if advertised.is_some_and(|own| own.eq_ignore_ascii_case(address)) {
            return true;
        }
        let Some((host, port)) = address.rsplit_once(':') else {
            return false;
        };
        let own = &self.own_addresses;
        let is_own_port = own.is_empty() || own.iter().any(|at| at.port().to_string() == port);
        let mut names = std::iter::once(&self.name).chain(&self.aliases);
        let is_own_name = names.any(|name| name.eq_ignore_ascii_case(host));
        let is_own_address = own.iter().any(|at| at.to_string() == address);
        (is_own_name && is_own_port) || is_own_address
    }

    /// Returns the address at which others reach the endpoint.
    #[must_use]
    pub fn advertised(&self, addresses: &[SocketAddr]) -> String {
        if let Some(address) = &self.advertise {
            return address.as_str().to_owned();
        }
        match addresses.first() {
            // An endpoint on loopback is reachable only from this host, by the address on which it
            // listens.
            Some(at) if at.ip().is_loopback() => at.to_string(),
            Some(at) => format!("{}:{}", self.name, at.port()),
            None => self.name.clone(),
        }
    }
}

fn default_listen() -> Vec<Address> {
    vec![Address::loopback()]
}

fn default_base() -> String {
    "/".to_owned()
}

const fn default_setuid_min() -> u32 {
    dray_runtime::account::UID_MIN_DEFAULT
}

const fn default_streams() -> Streams {
    Streams::USUAL
}

const fn yes() -> bool {
    true
}

const fn default_cache_seconds() -> u64 {
    // Half a day: key rotations overlap for longer, and an issuer may be down for a night (guess).
    12 * 3600
}
