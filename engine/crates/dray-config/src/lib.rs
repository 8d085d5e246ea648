//! The endpoint's configuration: one TOML file, written by an administrator.
//!
//! Purpose: converts the file to types that can only hold valid values, such as sizes with units,
//! valid names, and rules that name existing roots. The example ([`EXAMPLE`]) explains each key,
//! and a test parses it.
//!
//! Non-goals: applying the limits and rules. Except in [`roots`], this crate opens no folder, so it
//! does not detect a missing folder.
//!
//! Invariant of this crate: an unknown key is refused, and the error names the file and the line.

mod limits;
mod login;
mod peers;
#[cfg(test)]
mod policy_list;
mod read;
pub mod roots;
mod telemetry;
mod tiers;
mod trust;
mod values;

pub use limits::{
    History, Janitor, Limits, Listings, Metrics, Receipts, Retry, Scheduling, Share, Tape, Tickets,
    Ui,
};
pub use login::{Grant, Login};
pub use peers::Peer;
pub use telemetry::Telemetry;
pub use tiers::{
    BypassKeys, Completion, ManagedTier, Template, TierPolicyName, Values, VictimOrder,
};
pub use trust::{TrustKind, TrustSource, TrustUpdate};
pub use values::{
    Address, Owners, Rate, RootName, Size, TargetFolder, TargetLimit, ThreadsOf, Tier,
};

use dray_api::{Request, Route, Streams};
use dray_auth::Mapping;
use dray_core::{LogForm, StripeChoice};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The example configuration, which explains every key.
pub const EXAMPLE: &str = include_str!("example.toml");

/// The configuration of one endpoint.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of this host in the URLs that other hosts use.
    pub name: String,
    /// Further names of this endpoint in URLs.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Folder of the queue, the lists of files, and all other state that must survive a restart.
    pub state: PathBuf,
    /// Folder of the host's key. Default: the folder `state`.
    pub identity: Option<PathBuf>,
    /// Addresses to listen on, for TLS and for sessions.
    #[serde(default = "default_listen")]
    pub listen: Vec<Address>,
    /// Addresses for plain HTTP, for callers on this host.
    #[serde(default)]
    pub listen_plain: ListenPlain,
    /// Certificates of the control API.
    #[serde(default)]
    pub tls: Tls,
    /// Files of authorities, revocation lists and issuers' keys that are fetched.
    #[serde(default)]
    pub trust: TrustUpdate,
    /// The exported roots.
    #[serde(default)]
    pub root: Vec<Root>,
    /// The tiers: fast roots whose data the endpoint copies to a slow root.
    #[serde(default)]
    pub tier: Vec<ManagedTier>,
    /// The WLCG tape API.
    #[serde(default)]
    pub tape: Tape,
    /// Issuers of accepted tokens.
    #[serde(default)]
    pub issuer: Vec<Issuer>,
    /// Key for tokens that this endpoint issues itself.
    pub issuer_local: Option<IssuerLocal>,
    /// Rules that map principals to owners; the first matching rule applies.
    #[serde(default)]
    pub map: Mapping,
    /// Owners who may see and change all transfers.
    #[serde(default)]
    pub administrators: Vec<String>,
    /// Limits of the endpoint.
    #[serde(default)]
    pub limits: Limits,
    /// Rate of the whole endpoint in bytes per second.
    pub rate: Option<Rate>,
    /// Number of data connections of a transfer whose request sets no number.
    #[serde(default = "default_streams")]
    pub streams: Streams,
    /// Other endpoints that callers can reach through this endpoint.
    #[serde(default)]
    pub peer: Vec<Peer>,
    /// Shares of the endpoint's rate.
    #[serde(default)]
    pub share: Vec<Share>,
    /// Rules that decide which transfers run and which are held.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// Tickets that the endpoint issues for other endpoints.
    #[serde(default)]
    pub tickets: Tickets,
    /// Retention of ended transfers.
    #[serde(default)]
    pub history: History,
    /// Receipts of ended transfers.
    #[serde(default)]
    pub receipts: Receipts,
    /// Checkpoints of listings.
    #[serde(default)]
    pub listings: Listings,
    /// Removal of abandoned partial files.
    #[serde(default)]
    pub janitor: Janitor,
    /// Access to the metrics.
    #[serde(default)]
    pub metrics: Metrics,
    /// The export of spans.
    #[serde(default)]
    pub telemetry: Telemetry,
    /// The web console.
    #[serde(default)]
    pub ui: Ui,
    /// The audit log.
    pub audit: Option<Audit>,
    /// Retries of a transfer whose request does not set them.
    #[serde(default)]
    pub retry: Retry,
    /// True if files are read and written under the account of their owner.
    #[serde(default)]
    pub setuid: bool,
    /// Lowest accepted account number. Accounts with lower numbers belong to the system.
    #[serde(default = "default_setuid_min")]
    pub setuid_min: u32,
    /// True if file contents may be sent outside TLS, when a transfer requests that.
    #[serde(default)]
    pub clear_data: bool,
    /// Address `HOST:PORT` at which other hosts reach this endpoint. Default: `name`, with the port
    /// of the first address in `listen`.
    pub advertise: Option<Address>,
    /// Addresses on which the endpoint listens. Empty before the endpoint listens.
    #[serde(skip)]
    own_addresses: Vec<SocketAddr>,
}

/// Settings of plain HTTP.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenPlain {
    /// Addresses to listen on. They must be loopback addresses, unless the network is trusted.
    #[serde(default)]
    pub addresses: Vec<Address>,
}

/// Certificates of the control API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// File with the certificate chain in PEM form. A changed file is read again. Default: a
    /// certificate of the host's own key.
    pub certificate: Option<PathBuf>,
    /// File with the private key of the certificate.
    pub key: Option<PathBuf>,
    /// Authorities whose client certificates are accepted: a file or a folder.
    pub client_ca: Option<PathBuf>,
    /// Revocation lists: a file or a folder. Changed files are read again.
    pub crl: Option<PathBuf>,
    /// Authorities of other endpoints: a file or a folder. An endpoint with a certificate of such
    /// an authority needs no pinned key.
    pub peers_ca: Option<PathBuf>,
}

/// One exported folder.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// Name of the root, which is the first part of an API path.
    pub name: RootName,
    /// Folder on this host.
    pub path: Option<PathBuf>,
    /// Folders on this host, one on each disk, in place of `path`. Each file is in one of these
    /// folders.
    #[serde(default)]
    pub dirs: Vec<PathBuf>,
    /// URL of a folder on a storage server, in place of `path`: `root://HOST//PATH`,
    /// `rados://POOL/PATH`, `https://HOST/PATH` or `gsiftp://HOST/PATH`.
    pub store: Option<String>,
    /// Owners who may read. A token must permit it as well. Default: the scopes of a token decide
    /// alone, and a certificate gives no access.
    pub read: Option<Owners>,
    /// Owners who may write. Same default as `read`.
    pub write: Option<Owners>,
    /// Owners who may stage. Same default as `read`.
    pub stage: Option<Owners>,
    /// True if no caller may change anything in the root, even with a token that permits it.
    #[serde(default)]
    pub read_only: bool,
    /// Tier of the root in staging.
    pub tier: Option<Tier>,
    /// Folders that lie on other storage targets than the root.
    #[serde(default)]
    pub targets: Vec<TargetFolder>,
    /// Maximum rates of the root's storage targets.
    #[serde(default)]
    pub limit_targets: Vec<TargetLimit>,
    /// Number of readers, and of writers, of each storage target of the root.
    #[serde(default)]
    pub threads: ThreadsOf,
    /// True if large files are read and written without the page cache, where the file system
    /// supports that.
    #[serde(default)]
    pub direct_io: bool,
    /// True if the space of a large file is allocated before its first write, where the file system
    /// supports that.
    #[serde(default)]
    pub preallocate: bool,
    /// True if transfers that read the root record their listings, and continue them after an
    /// interruption.
    #[serde(default)]
    pub listing_checkpoint: bool,
    /// Lustre stripes of new files: `"source"`, `"COUNT"` or `"COUNT:SIZE"`.
    pub stripe: Option<StripeChoice>,
    /// Form of the object logs of transfers to the root: `"MECHANISM:METHOD"`, also with `":nosums"`
    /// and `":async"`.
    pub log: Option<LogForm>,
    /// Maximum bytes per second that all transfers together read from the root and write to it.
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
    /// Value of `iss` in the issuer's tokens.
    pub url: String,
    /// Values of `aud` that name this endpoint.
    pub audiences: Vec<String>,
    /// Public keys of the issuer: a file or a URL. Default: the URL in the discovery document at
    /// `url`.
    pub keys: Option<String>,
    /// File with the authorities of the key server's certificate. Default: the system's
    /// authorities.
    pub ca: Option<PathBuf>,
    /// API path to which the paths in scopes are relative.
    #[serde(default = "default_base")]
    pub base: String,
    /// True if the issuer's tokens follow the WLCG profile 1.0.
    #[serde(default = "yes")]
    pub wlcg: bool,
    /// Age in seconds at which the keys are fetched again.
    #[serde(default = "default_cache_seconds")]
    pub cache_seconds: u64,
    /// Additional seconds for which the keys are used while the issuer is unreachable.
    #[serde(default = "default_cache_seconds")]
    pub stale_seconds: u64,
}

/// Key for tokens that this endpoint issues itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerLocal {
    /// File of the key with which `dray token mint` signs.
    pub key: PathBuf,
}

/// The audit log.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// File to which the endpoint appends one JSON object per line.
    pub file: PathBuf,
}

impl Config {
    /// Returns the folder of the host's key.
    #[must_use]
    pub fn identity_folder(&self) -> &std::path::Path {
        self.identity.as_deref().unwrap_or(&self.state)
    }

    /// Returns the folder of the receipts and of the key that signs them.
    #[must_use]
    pub fn receipts_folder(&self) -> PathBuf {
        let folder = self.receipts.folder.clone();
        folder.unwrap_or_else(|| self.state.join("receipts"))
    }

    /// Sets the addresses on which the endpoint listens. A URL means this endpoint if it contains
    /// one of these addresses. A URL also means this endpoint if it contains a name of the endpoint
    /// and the port of one of these addresses.
    pub fn listens_at(&mut self, addresses: &[SocketAddr]) {
        self.own_addresses = addresses.to_vec();
    }

    /// Resolves the URLs of a request with the present names and addresses of this endpoint.
    ///
    /// # Errors
    /// The errors of [`Route::parse`].
    pub fn route(&self, request: &Request) -> dray_core::Result<Route> {
        Route::parse(request, |address| self.is_own(address))
    }

    /// Returns true if `HOST:PORT` of a URL names this endpoint.
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

    /// Returns the address at which other hosts reach this endpoint.
    #[must_use]
    pub fn advertised(&self, addresses: &[SocketAddr]) -> String {
        if let Some(address) = &self.advertise {
            return address.as_str().to_owned();
        }
        match addresses.first() {
            // An endpoint on a loopback address is reachable only from this host, under that
            // address.
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
    // Half a day, for two reasons. When an issuer changes its key, the old and the new key are both
    // valid for more than half a day. And the endpoint can verify tokens if an issuer is
    // unreachable for a night. The value is estimated, not measured.
    12 * 3600
}
