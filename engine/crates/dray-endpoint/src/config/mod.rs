//! What an administrator writes: one TOML file.
//!
//! Purpose: the file as types that cannot be wrong: sizes with units, names that are names, rules
//! that name roots there are. Each key is explained in the example ([`EXAMPLE`]), which is tested
//! to be read.
//!
//! Not for: opening anything. A folder that does not exist is met by whoever opens it.
//!
//! Invariant owned here: a key that nobody knows is refused, with its file and line.

mod limits;
mod read;
mod values;

pub use limits::{History, Janitor, Limits, Metrics, Retry, Scheduling, Share, Tickets};
pub use values::{
    Address, Owners, Rate, RootName, Size, TargetFolder, TargetLimit, ThreadsOf, Tier,
};

use dray_api::{Side, Streams};
use dray_auth::Mapping;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A configuration with every key in it and what it is for; as shipped.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Everything about one endpoint.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The host's name as others write it in URLs.
    pub name: String,
    /// Other names that mean this endpoint.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Folder of the queue, the manifests and what else must survive a restart.
    pub state: PathBuf,
    /// Folder of the host's key; that of the state when left out.
    pub identity: Option<PathBuf>,
    /// Where TLS and sessions are listened for.
    #[serde(default = "default_listen")]
    pub listen: Vec<Address>,
    /// Plain HTTP, for local callers.
    #[serde(default)]
    pub listen_plain: ListenPlain,
    /// Certificates.
    #[serde(default)]
    pub tls: Tls,
    /// What is exported.
    #[serde(default)]
    pub root: Vec<Root>,
    /// Whose tokens are believed.
    #[serde(default)]
    pub issuer: Vec<Issuer>,
    /// This endpoint's own tokens.
    pub issuer_local: Option<IssuerLocal>,
    /// Which principal is which owner; the first rule that fits counts.
    #[serde(default)]
    pub map: Mapping,
    /// Owners who see and change all transfers.
    #[serde(default)]
    pub administrators: Vec<String>,
    /// Bounds.
    #[serde(default)]
    pub limits: Limits,
    /// Bytes per second of the whole endpoint.
    pub rate: Option<Rate>,
    /// Data connections of transfers whose request says nothing of them.
    #[serde(default = "default_streams")]
    pub streams: Streams,
    /// How the rate is shared.
    #[serde(default)]
    pub share: Vec<Share>,
    /// Which transfers run, and which are held meanwhile.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// Tickets for other endpoints.
    #[serde(default)]
    pub tickets: Tickets,
    /// How long ended transfers are remembered.
    #[serde(default)]
    pub history: History,
    /// What is done with partial files that nobody goes on with.
    #[serde(default)]
    pub janitor: Janitor,
    /// Who may read the counters.
    #[serde(default)]
    pub metrics: Metrics,
    /// Where it is written down who did what.
    pub audit: Option<Audit>,
    /// What a request gets that says nothing of trying again.
    #[serde(default)]
    pub retry: Retry,
    /// Whether files are read and written as the owner's account.
    #[serde(default)]
    pub setuid: bool,
    /// Accounts with lower numbers are the system's own and refused.
    #[serde(default = "default_setuid_min")]
    pub setuid_min: u32,
    /// Whether data may run outside of TLS when a transfer asks for it.
    #[serde(default)]
    pub clear_data: bool,
    /// Where others reach this endpoint, `HOST:PORT`, where that is not its name and port.
    pub advertise: Option<Address>,
    /// Where it listens; known once it does.
    #[serde(skip)]
    own_addresses: Vec<SocketAddr>,
}

/// Plain HTTP.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenPlain {
    /// Where it is spoken; loopback unless somebody knows better.
    #[serde(default)]
    pub addresses: Vec<Address>,
}

/// Certificates of the control API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Certificate chain in PEM form. Without one the host's own key stands in.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// Whose client certificates are believed: a file or a folder.
    pub client_ca: Option<PathBuf>,
    /// Revocation lists: a file or a folder, read anew.
    pub crl: Option<PathBuf>,
    /// Whose certificates other endpoints may show instead of a pinned key: a file or a folder.
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
    /// In its place the URL of a folder of another store: `root://HOST//PATH`, or
    /// `https://HOST/PATH`.
    pub store: Option<String>,
    /// Who may read; a token must allow it as well. Left out: tokens by their scopes alone, and
    /// nobody by a certificate.
    pub read: Option<Owners>,
    /// Who may write; the same.
    pub write: Option<Owners>,
    /// Who may stage; the same.
    pub stage: Option<Owners>,
    /// Whether nobody may change anything in it, whatever token he has.
    #[serde(default)]
    pub read_only: bool,
    /// Which side of staging it is.
    pub tier: Option<Tier>,
    /// Folders that lie on a storage target of their own.
    #[serde(default)]
    pub targets: Vec<TargetFolder>,
    /// What a storage target gives at the most.
    #[serde(default)]
    pub limit_targets: Vec<TargetLimit>,
    /// Readers, or writers, of each of its storage targets.
    #[serde(default)]
    pub threads: ThreadsOf,
    /// Whether large files are read and written past the page cache, where its file system lets that.
    #[serde(default)]
    pub direct_io: bool,
    /// Whether the space of large files is taken when they begin, where its file system can do that.
    #[serde(default)]
    pub preallocate: bool,
    /// Bytes per second that all transfers together may read from it and write to it.
    pub rate: Option<Rate>,
}

impl Config {
    /// What the configuration gives a peer (`HOST` or `HOST:PORT`).
    #[must_use]
    pub fn share_of_peer(&self, peer: &str) -> Option<&Share> {
        self.share.iter().find(|share| share.is_of_peer(peer))
    }

    /// What the configuration gives an owner.
    #[must_use]
    pub fn share_of_owner(&self, owner: &str) -> Option<&Share> {
        let mut shares = self.share.iter();
        shares.find(|share| share.owner.as_deref() == Some(owner))
    }
}

/// Somebody who issues tokens.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// `iss` of its tokens.
    pub url: String,
    /// `aud` that mean this endpoint.
    pub audiences: Vec<String>,
    /// Its public keys: a file, or a URL. Left out: found by way of its `url`.
    pub keys: Option<String>,
    /// Whose certificate the server of the keys has: a file. Left out: the system's authorities.
    pub ca: Option<PathBuf>,
    /// The API path that its scopes' paths begin at.
    #[serde(default = "default_base")]
    pub base: String,
    /// Whether its tokens follow the WLCG profile 1.0.
    #[serde(default = "yes")]
    pub wlcg: bool,
    /// How long its keys are believed before they are asked for again.
    #[serde(default = "default_cache_seconds")]
    pub cache_seconds: u64,
    /// For how much longer while it cannot be asked.
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

/// Where it is written down who did what.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// One JSON object a line is added to it.
    pub file: PathBuf,
}

impl Config {
    /// Folder of the host's key.
    #[must_use]
    pub fn identity_folder(&self) -> &std::path::Path {
        self.identity.as_deref().unwrap_or(&self.state)
    }

    /// Notes where it listens: URLs of these addresses, and of its names at these ports, are local.
    pub fn listens_at(&mut self, addresses: &[SocketAddr]) {
        self.own_addresses = addresses.to_vec();
    }

    /// Parses the URL of a side of a transfer as this endpoint sees it.
    ///
    /// # Errors
    /// As [`Side::parse`].
    pub fn side(&self, url: &str) -> dray_core::Result<Side> {
        Side::parse(url, |address| self.is_own(address))
    }

    /// Whether `HOST:PORT` of a URL is this endpoint.
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

    /// Where others reach it.
    #[must_use]
    pub fn advertised(&self, addresses: &[SocketAddr]) -> String {
        if let Some(address) = &self.advertise {
            return address.as_str().to_owned();
        }
        match addresses.first() {
            // An endpoint that only this host can reach is reached as it listens.
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
    // Half a day: key rotations overlap for longer, and an issuer may be away for a night (guess).
    12 * 3600
}
