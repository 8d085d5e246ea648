//! Other endpoints that callers can reach through this endpoint.

use super::Config;
use super::values::{Address, RootName};
use dray_core::Fingerprint;
use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeSet;

/// Another endpoint that callers can reach through this endpoint.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Name of the endpoint in API paths and in the web console. It has the form of a root's name.
    pub name: RootName,
    /// Address `HOST:PORT` of the endpoint, as in its URLs.
    pub address: Address,
    /// Fingerprint of the endpoint's key. Default: the endpoint needs a certificate of an authority
    /// of `tls.peers_ca`, or of the system's authorities.
    #[serde(default, deserialize_with = "fingerprint")]
    pub key: Option<Fingerprint>,
}

fn fingerprint<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Fingerprint>, D::Error> {
    let text = String::deserialize(from)?;
    let key = text.parse().map_err(|_| {
        de::Error::custom(format!(
            "{text:?} is not the fingerprint of a key: write sha256: and 64 hexadecimal digits"
        ))
    });
    key.map(Some)
}

impl Config {
    /// Checks that each peer has a name of its own.
    pub(super) fn check_peers(&self) -> Result<(), (&'static str, String)> {
        let mut names = BTreeSet::new();
        for Peer { name, .. } in &self.peer {
            if !names.insert(name.as_str()) {
                return Err(("peer", format!("two peers have the name {name}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    fn read(peers: &str) -> Result<Config, String> {
        let text = format!(
            "name = \"a\"\nstate = \"/s\"\n[[root]]\nname = \"data\"\npath = \"/d\"\n{peers}"
        );
        Config::parse("test", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_peer_has_a_name_of_its_own_and_a_valid_key() {
        let key = format!("key = \"sha256:{}\"\n", "0a".repeat(32));
        let peer = |more: &str| format!("[[peer]]\nname = \"b\"\naddress = \"b.example\"\n{more}");
        let config = read(&peer(&key)).expect("good");
        assert_eq!(config.peer[0].address.as_str(), "b.example:4735");
        assert!(read(&peer("")).is_ok_and(|config| config.peer[0].key.is_none()));
        let cause = read(&peer("key = \"sha256:0\"\n")).expect_err("no fingerprint");
        assert!(cause.contains("is not the fingerprint"), "{cause}");
        let twice = read(&(peer(&key) + &peer(&key))).expect_err("twice");
        assert!(twice.contains("two peers have the name b"), "{twice}");
    }
}
