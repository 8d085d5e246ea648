//! Configuration file of a site for all its copies.

use crate::endpoint::Endpoint;
use dray_core::options::ResumeMode;
use dray_core::{End, Error, ErrorKind, Result};
use dray_store_http::{AddressPolicy, AddressSet};
use serde::Deserialize;
use std::path::Path;

/// Environment variable with the path of the configuration file.
const VARIABLE: &str = "DRAY_XROOTD_CONFIG";

/// Maximum size of a configuration file in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Says if a copy is compared with the checksum of the source server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compare {
    /// Compare if the server has a checksum.
    #[default]
    Offered,
    /// Compare. The copy fails if the server has no checksum.
    Required,
    /// Do not compare.
    Never,
}

/// The configuration. Every field is optional.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Total size in bytes of the buffers of one copy.
    pub(crate) pool_bytes: u64,
    /// Size of an object in bytes. [`Config::object_bytes`] supplies the default.
    pub(crate) object_bytes: Option<u64>,
    /// Maximum number of concurrent reads.
    pub(crate) readers: u32,
    /// Number of data connections. [`Config::connections`] supplies the default.
    pub(crate) connections: Option<u32>,
    /// Maximum rate of one copy in bytes per second.
    pub(crate) rate: Option<u64>,
    /// True if the server must send a checksum with each page of 4 KiB.
    pub(crate) pages: bool,
    /// Says if a copy is compared with the checksum of the source server.
    pub(crate) compare: Compare,
    /// Says if ranges that an earlier copy made durable are read back and verified.
    pub(crate) resume: ResumeMode,
    /// Maximum seconds that a complete copy waits for the checksum of the source server.
    pub(crate) compare_seconds: u32,
    /// True if the copy gets the modification time of the source. XRootD's own copies have the time
    /// of the copy, so that the cleanup of a site does not treat them as old files.
    pub(crate) keep_time: bool,
    /// True if the source server is asked for a dray endpoint beside it.
    pub(crate) ask_source: bool,
    /// IP addresses that the web server at the other end of an HTTP copy must not have: `local`,
    /// `private`, networks and single addresses. The client of the copy chooses that server.
    pub(crate) deny_addresses: Vec<String>,
    /// Exceptions of `deny_addresses`.
    pub(crate) allow_addresses: Vec<String>,
    /// The dray endpoints of known sources. A copy does not ask the XRootD servers of these sources
    /// for an endpoint.
    pub(crate) endpoint: Vec<Endpoint>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pool_bytes: 128 << 20,
            object_bytes: None,
            readers: 16,
            connections: None,
            rate: None,
            pages: false,
            compare: Compare::default(),
            resume: ResumeMode::default(),
            compare_seconds: 1800,
            keep_time: false,
            ask_source: true,
            // As in XRootD 6 (`tpc.deny local`).
            deny_addresses: vec!["local".to_owned()],
            allow_addresses: Vec::new(),
            endpoint: Vec::new(),
        }
    }
}

/// Default number of data connections if one login serves them all. With the kernel's usual send
/// buffer of 4 MiB, one connection moves about 75 MB/s at a round-trip time of 50 ms. On a short
/// path, further connections reduce the throughput by a tenth (measured by `bench tpc`: compare its
/// tools `dray-1`, which uses one connection, and `dray`).
pub(crate) const CONNECTIONS: u16 = 8;

/// Default number of data connections if each connection has its own login. A login with delegated
/// credentials takes a large part of a second of processor time at each end.
const CONNECTIONS_LOGGED_IN: u16 = 4;

/// Number of logins for the connections to a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logins {
    /// One login for all connections: data connections of one handle, or streams of one session.
    One,
    /// A separate login for each connection.
    Each,
}

/// Server from which the source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The XRootD server of the source.
    Server,
    /// A dray endpoint beside the XRootD server.
    Dray,
}

impl Config {
    /// Returns the object size in bytes. The default depends on the server that reads the source.
    /// An XRootD server gets one request for each object, so objects are large. A dray endpoint
    /// sends objects without requests, and small objects stay in the processor's cache on the way
    /// from the socket to the file.
    pub(crate) fn object_bytes(&self, reads: Reads) -> u64 {
        self.object_bytes.unwrap_or(match reads {
            Reads::Server => 4 << 20,
            Reads::Dray => dray_core::plan::OBJECT_BYTES_DEFAULT,
        })
    }

    /// Returns the number of connections to a source. The default depends on the logins.
    pub(crate) fn connections(&self, logins: Logins) -> u32 {
        let usual = match logins {
            Logins::One => CONNECTIONS,
            Logins::Each => CONNECTIONS_LOGGED_IN,
        };
        self.connections.unwrap_or(usual.into())
    }

    /// Returns the configured dray endpoint for a server, given as `HOST:PORT`.
    pub(crate) fn endpoint_of(&self, server: &str) -> Option<&Endpoint> {
        let mut named = self.endpoint.iter();
        named.find(|endpoint| endpoint.serves(server))
    }

    /// Returns the addresses to which HTTP copies may send requests.
    ///
    /// # Errors
    /// A text that names the invalid setting and value.
    pub(crate) fn addresses(&self) -> Result<AddressPolicy, String> {
        let read = |name: &str, words: &[String]| -> Result<Vec<AddressSet>, String> {
            let one = |word: &String| word.parse().map_err(|why| format!("{name}: {why}"));
            words.iter().map(one).collect()
        };
        Ok(AddressPolicy {
            allow: read("allow_addresses", &self.allow_addresses)?,
            deny: read("deny_addresses", &self.deny_addresses)?,
        })
    }

    /// Reads the configuration file `named`, or the file that the environment variable [`VARIABLE`]
    /// names. Returns the defaults if neither is set.
    ///
    /// # Errors
    /// `NotFound` and other errors of reading the file; `InvalidRequest` with the position of an
    /// invalid setting.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self> {
        let from_environment = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        let from_environment = from_environment.as_deref().map(Path::new);
        match named.or(from_environment) {
            Some(path) => Self::read(path),
            None => Ok(Self::default()),
        }
    }

    fn read(path: &Path) -> Result<Self> {
        let place = path.display();
        let refused = |kind, cause: String| {
            Error::new(kind, End::Here, format!("read the configuration {place}")).cause(cause)
        };
        let unreadable = |error: std::io::Error| refused(error.kind().into(), error.to_string());
        if path.metadata().map_err(unreadable)?.len() > BYTES_MAX {
            let cause = "the file is too large for a configuration file".to_owned();
            return Err(refused(ErrorKind::LimitExceeded, cause));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text).map_err(|cause| refused(ErrorKind::InvalidRequest, cause))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            format!("line {line}: {}", error.message())
        })?;
        let bounds = [
            ("pool_bytes", Some(config.pool_bytes), 1 << 20, 1 << 40),
            ("readers", Some(config.readers.into()), 1, 256),
            (
                "compare_seconds",
                Some(config.compare_seconds.into()),
                1,
                86_400,
            ),
            ("connections", config.connections.map(u64::from), 1, 64),
            (
                "object_bytes",
                config.object_bytes,
                dray_core::plan::OBJECT_BYTES_MIN,
                dray_core::plan::OBJECT_BYTES_MAX,
            ),
        ];
        for (name, value, least, most) in bounds {
            if let Some(value) = value
                && !(least..=most).contains(&value)
            {
                return Err(format!("{name} is {value}; {least} to {most} are allowed"));
            }
        }
        config.addresses()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::{CONNECTIONS, Compare, Config, Logins, Reads};

    #[test]
    fn connections_that_log_in_one_by_one_are_fewer_unless_somebody_says() {
        let usual = Config::default();
        assert_eq!(usual.connections(Logins::One), u32::from(CONNECTIONS));
        assert!(usual.connections(Logins::Each) < usual.connections(Logins::One));
        let said = Config::parse("connections = 6").expect("good");
        for logins in [Logins::One, Logins::Each] {
            assert_eq!(said.connections(logins), 6);
        }
    }

    #[test]
    fn defaults_apply_and_errors_name_the_setting() {
        let config = Config::parse("readers = 3\ncompare = \"required\"\n").expect("good");
        assert_eq!((config.readers, config.compare), (3, Compare::Required));
        assert!(config.object_bytes(Reads::Dray) < config.object_bytes(Reads::Server));
        for (text, said) in [
            ("\nreadres = 3\n", "line 2"),
            ("readers = 0", "readers is 0"),
            ("object_bytes = 1", "object_bytes is 1"),
            ("deny_addresses = ['lokal']", "deny_addresses: \"lokal\""),
            ("allow_addresses = ['10.0.0.0/33']", "allow_addresses: "),
        ] {
            let error = Config::parse(text).expect_err("bad");
            assert!(error.contains(said), "{error}");
        }
    }
}
