//! Copies from XRootD servers whose files a dray endpoint serves too. The data is read from the
//! endpoint with dray's own protocol.
//!
//! The source server still decides if the file may be read. So one byte of the file is first read
//! from that server, with the copy's key, the delegated credentials or the client's parameters. The
//! size and time of the file must equal those at the endpoint. An equal size and time do not prove
//! the permission to read, because servers also send them to clients that may only list files.

use crate::config::CONNECTIONS;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_net::{Dial, Fingerprint, Token};
use dray_runtime::drive::StreamCount;
use dray_store::{ReadPurpose, Readable};
use serde::Deserialize;
use std::io::Read;
use std::path::PathBuf;

/// Maximum size of a token file in bytes.
const TOKEN_BYTES_MAX: u64 = 1 << 16;

/// A dray endpoint that serves the same files as an XRootD server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Endpoint {
    /// Every `HOST:PORT` by which clients may refer to the XRootD server, also with IP addresses.
    servers: Vec<String>,
    /// Address of the endpoint: `HOST:PORT`.
    address: String,
    /// Prefix that the endpoint adds to the paths of the XRootD server.
    #[serde(default)]
    prefix: String,
    /// Fingerprint of the endpoint's key, `sha256:...`.
    peer_key: String,
    /// File that contains the token for the endpoint.
    token_file: PathBuf,
    /// Number of data connections.
    #[serde(default = "streams")]
    streams: u16,
    /// True if data is sent without TLS. The endpoint must permit this.
    #[serde(default)]
    clear_data: bool,
}

const fn streams() -> u16 {
    CONNECTIONS
}

/// Access to one file at a dray endpoint.
pub(crate) struct EndpointAccess {
    /// Address and credentials of the endpoint.
    pub(crate) dial: Dial,
    /// Path of the file at the endpoint.
    pub(crate) path: Vec<u8>,
    /// Number of data connections to request.
    pub(crate) streams: StreamCount,
    /// True if data is sent without TLS.
    pub(crate) clear_data: bool,
}

/// Normalises an address. For example, `[::ffff:10.0.0.1]:1094` becomes `10.0.0.1:1094`.
fn plain(server: &str) -> String {
    let mapped = server.strip_prefix("[::ffff:");
    let plain = mapped.and_then(|rest| rest.split_once(']'));
    match plain {
        Some((address, port)) if address.contains('.') => format!("{address}{port}"),
        _ => server.to_ascii_lowercase(),
    }
}

impl Endpoint {
    /// Returns true if the endpoint serves the files of the server `HOST:PORT`.
    pub(crate) fn serves(&self, server: &str) -> bool {
        let wanted = plain(server);
        self.servers.iter().any(|server| plain(server) == wanted)
    }

    /// Returns the access to a file at the endpoint. First reads one byte of the file from
    /// `server`, to check that the caller may read the file.
    ///
    /// # Errors
    /// An error if the server does not permit the read, or if the key or token is invalid or cannot
    /// be read.
    pub(crate) fn way(&self, server: &impl Readable, path: &RelPath) -> Result<EndpointAccess> {
        read_first_byte(server, path)?;
        Ok(EndpointAccess {
            dial: self.dial()?,
            path: self.path(path),
            streams: StreamCount::Fixed(self.streams),
            clear_data: self.clear_data,
        })
    }

    fn path(&self, path: &RelPath) -> Vec<u8> {
        let prefix = self.prefix.trim_matches('/');
        match prefix.is_empty() {
            true => path.as_bytes().to_vec(),
            false => [prefix.as_bytes(), b"/", path.as_bytes()].concat(),
        }
    }

    fn dial(&self) -> Result<Dial> {
        let key: Fingerprint = self.peer_key.parse()?;
        let unreadable = |error: std::io::Error| {
            let place = self.token_file.display();
            Error::new(ErrorKind::PermissionDenied, End::Here, "read the token")
                .cause(format!("{place}: {error}"))
                .remedy("give the user of the XRootD server read access to the file")
        };
        let mut token = Vec::new();
        let opened = std::fs::File::open(&self.token_file).map_err(unreadable)?;
        let read = opened.take(TOKEN_BYTES_MAX).read_to_end(&mut token);
        read.map_err(unreadable)?;
        let mut dial = Dial::new(&self.address, key, Token::new(token.trim_ascii())?);
        // Permit a source that stores nothing, because this process stores the data.
        dial.may_keep_nothing = true;
        Ok(dial)
    }
}

fn read_first_byte(server: &impl Readable, path: &RelPath) -> Result<()> {
    let reader = server.open_read(path, ReadPurpose::Transfer)?;
    match reader.read_at(0, &mut [0])? {
        0 => Err(
            Error::new(ErrorKind::SourceChanged, End::Source, "read the file")
                .file(path)
                .cause("the file is empty"),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, plain};
    use dray_core::RelPath;
    use dray_store_xrootd::Url;

    #[test]
    fn a_server_is_known_by_its_names_and_addresses() {
        let text = "servers = [\"10.0.0.1:1094\", \"Source.example:1094\"]\naddress = \"h:1\"\n\
                    prefix = \"/data/\"\npeer_key = \"x\"\ntoken_file = \"t\"";
        let endpoint: Endpoint = toml::from_str(text).expect("good");
        for (url, serves) in [
            ("root://[::ffff:10.0.0.1]:1094//a", true),
            ("root://u@source.example:1094//a", true),
            ("root://10.0.0.1:1095//a", false),
            ("root://[::1]:1094//a", false),
        ] {
            let server = Url::parse(url).expect("good").host().to_owned();
            assert_eq!(endpoint.serves(&server), serves, "{url}");
        }
        assert_eq!(plain("[::1]:1094"), "[::1]:1094");
        let path = RelPath::parse(b"d/f").expect("good");
        assert_eq!(endpoint.path(&path), b"data/d/f");
    }
}
