//! The IP addresses to which requests may be sent.
//!
//! The client of a third-party copy chooses the URL of the other end, and this host sends the
//! requests. Without a policy, a client could read services that only this host can reach, for
//! example the metadata service of a cloud (`169.254.169.254`). The policy is applied to the
//! addresses after the name is resolved, and again after each redirect. So a name that resolves to
//! another address later does not bypass the policy.

use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// A set of IP addresses, as written in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressSet {
    /// `local`: the loopback, unspecified and link-local addresses.
    Local,
    /// `private`: the addresses for private networks (RFC 1918, RFC 4193).
    Private,
    /// A network such as `192.0.2.0/24`, or a single address.
    Network(IpNet),
}

impl AddressSet {
    fn contains(&self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::Network(network), address) => network.contains(&address),
            (Self::Local, IpAddr::V4(v4)) => {
                v4.is_loopback() || v4.is_unspecified() || v4.is_link_local()
            }
            (Self::Local, IpAddr::V6(v6)) => {
                v6.is_loopback() || v6.is_unspecified() || v6.is_unicast_link_local()
            }
            (Self::Private, IpAddr::V4(v4)) => v4.is_private(),
            (Self::Private, IpAddr::V6(v6)) => v6.is_unique_local(),
        }
    }
}

impl FromStr for AddressSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let single = |text: &str| text.parse::<IpAddr>().ok().map(IpNet::from);
        match text {
            "local" => Ok(Self::Local),
            "private" => Ok(Self::Private),
            network => (network.parse().ok().or_else(|| single(network)))
                .filter(|network: &IpNet| network.addr() == network.addr().to_canonical())
                .map(Self::Network)
                .ok_or_else(|| {
                    format!(
                        "{text:?} is not `local`, `private`, an address or a network such as \
                            192.0.2.0/24"
                    )
                }),
        }
    }
}

/// The addresses to which requests may be sent. An address is denied if a set in `deny` contains
/// the address and no set in `allow` does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Exceptions to `deny`.
    pub allow: Vec<AddressSet>,
    /// Denied addresses. If the list is empty, all addresses are permitted.
    pub deny: Vec<AddressSet>,
}

impl AddressPolicy {
    fn permits(&self, address: IpAddr) -> bool {
        // An IPv4 address that is written as an IPv6 address reaches the same host.
        let address = address.to_canonical();
        let is_permitted = |address: IpAddr| {
            let is_in = |sets: &[AddressSet]| sets.iter().any(|set| set.contains(address));
            !is_in(&self.deny) || is_in(&self.allow)
        };
        is_permitted(address) && translated(address).is_none_or(is_permitted)
    }
}

/// Returns the IPv4 address to which a NAT64 gateway translates an address (RFC 6052,
/// `64:ff9b::/96`).
fn translated(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    match v6.octets() {
        [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => Some([a, b, c, d].into()),
        _ => None,
    }
}

/// A denied address. It is the cause inside an error of the HTTP library.
#[derive(Debug)]
pub(crate) struct Denied(IpAddr);

impl Denied {
    /// Returns the denied address in an error of the HTTP library, if there is one.
    pub(crate) fn in_error(error: &ureq::Error) -> Option<&Self> {
        match error {
            ureq::Error::Io(error) => error.get_ref()?.downcast_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the address {} is denied by the settings of this host",
            self.0
        )
    }
}

impl std::error::Error for Denied {}

/// Resolves names, and removes the denied addresses.
#[derive(Debug, Default)]
pub(crate) struct PermittedAddresses {
    inner: DefaultResolver,
    policy: AddressPolicy,
}

impl PermittedAddresses {
    pub(crate) const fn new(inner: DefaultResolver, policy: AddressPolicy) -> Self {
        Self { inner, policy }
    }
}

impl Resolver for PermittedAddresses {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        // The administrator of this host has chosen the proxy, and the proxy connects to the server.
        let proxy = config.proxy();
        if proxy.is_some_and(|proxy| proxy.uri().authority() == uri.authority()) {
            return Ok(found);
        }
        let mut permitted = self.inner.empty();
        let is_permitted = |one: &&SocketAddr| self.policy.permits(one.ip());
        for address in found.iter().filter(is_permitted) {
            permitted.push(*address);
        }
        match (permitted.is_empty(), found.first()) {
            (true, Some(denied)) => Err(ureq::Error::Io(std::io::Error::new(
                std::io::ErrorKind::PermissionDenied,
                Denied(denied.ip()),
            ))),
            _ => Ok(permitted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressPolicy, AddressSet};

    fn sets(words: &[&str]) -> Vec<AddressSet> {
        let read = |word: &&str| word.parse().expect("an address set");
        words.iter().map(read).collect()
    }

    fn permits(allow: &[&str], deny: &[&str], address: &str) -> bool {
        let (allow, deny) = (sets(allow), sets(deny));
        AddressPolicy { allow, deny }.permits(address.parse().expect("an address"))
    }

    #[test]
    fn local_addresses_are_denied_in_all_notations() {
        for address in [
            "127.0.0.1",
            "127.8.9.1",
            "::1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(!permits(&[], &["local"], address), "{address}");
            assert!(permits(&[], &["private"], address), "{address}");
            assert!(permits(&[], &[], address), "{address}");
        }
    }

    #[test]
    fn private_addresses_are_a_set_of_their_own() {
        for address in ["10.1.2.3", "172.31.0.1", "192.168.0.1", "fd00::1"] {
            assert!(!permits(&[], &["private"], address), "{address}");
            assert!(permits(&[], &["local"], address), "{address}");
        }
        assert!(permits(&[], &["local", "private"], "172.32.0.1"));
    }

    #[test]
    fn allow_lists_the_exceptions_of_deny() {
        let (allow, deny) = (&["192.168.7.0/24", "fd00::5"], &["local", "private"]);
        assert!(permits(allow, deny, "192.168.7.9"));
        assert!(!permits(allow, deny, "192.168.8.9"));
        assert!(permits(allow, deny, "fd00::5"));
        assert!(!permits(allow, deny, "fd00::6"));
        assert!(!permits(&["192.0.2.7"], &["0.0.0.0/0"], "192.0.2.8"));
    }

    #[test]
    fn a_malformed_set_is_refused() {
        for text in [
            "",
            "localhost",
            "10.0.0.0/33",
            "10.0.0",
            "Local",
            "::ffff:10.0.0.0/104",
        ] {
            let error = text.parse::<AddressSet>().expect_err(text);
            assert!(error.contains("is not `local`, `private`"), "{error}");
        }
    }
}
