//! The places of logins that wait for a provider.
//!
//! Invariant owned here: the logins of one client address never have more than a quarter of the
//! places.

use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;

/// Maximum number of logins for which the endpoint waits for a provider at the same time. Everybody
/// may start a login.
pub(super) const WAITING_MAX: usize = 16;

/// Maximum number of these logins from one client address.
pub(super) const WAITING_PER_ADDRESS_MAX: usize = WAITING_MAX / 4;

/// Number of the upper bits of an IPv6 address that count as one client: a site can give a host a
/// whole network of this size (RFC 6177).
const IPV6_BITS: u32 = 64;

/// The places. The keys are client addresses.
#[derive(Default)]
pub(super) struct Waiting(Mutex<HashMap<IpAddr, usize>>);

/// The place of one login. Dropping this value frees the place.
pub(super) struct Turn<'w> {
    waiting: &'w Waiting,
    client: IpAddr,
}

/// Returns the address that counts for a client.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX << (128 - IPV6_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
        address => address,
    }
}

impl Waiting {
    /// Takes a place for a login from `address`.
    ///
    /// # Errors
    /// `Busy` if no place is free, or if other logins from the address have a quarter of the places.
    pub(super) fn turn(&self, address: IpAddr) -> Result<Turn<'_>> {
        let client = client_of(address);
        let mut waiting = self.0.lock_unpoisoned();
        let own = waiting.get(&client).copied().unwrap_or(0);
        let all: usize = waiting.values().sum();
        let cause = if own >= WAITING_PER_ADDRESS_MAX {
            format!(
                "the endpoint waits for the providers of {own} other logins from the address of \
                    this browser, which is the limit"
            )
        } else if all >= WAITING_MAX {
            format!(
                "the endpoint waits for the providers of {WAITING_MAX} other logins, which is the \
                    limit"
            )
        } else {
            waiting.insert(client, own + 1);
            return Ok(Turn {
                waiting: self,
                client,
            });
        };
        Err(Error::new(ErrorKind::Busy, End::Here, "log in")
            .cause(cause)
            .remedy("try again in a few seconds"))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiting.0.lock_unpoisoned();
        match waiting.get_mut(&self.client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(waiting.remove(&self.client)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{WAITING_MAX, WAITING_PER_ADDRESS_MAX, Waiting};
    use std::net::IpAddr;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn one_address_does_not_take_the_places_of_others() {
        let waiting = Waiting::default();
        let turn = |text: &str| waiting.turn(address(text));
        let refused = |text: &str| turn(text).err().expect("full").cause;
        let take = || turn("192.0.2.1").expect("free");
        let mut held: Vec<_> = (0..WAITING_PER_ADDRESS_MAX).map(|_| take()).collect();
        assert!(refused("192.0.2.1").contains("from the address of this browser"));
        // The same address in the form of IPv6.
        assert!(refused("::ffff:192.0.2.1").contains("from the address of this browser"));
        for host in 0..WAITING_MAX - WAITING_PER_ADDRESS_MAX {
            held.push(turn(&format!("198.51.100.{host}")).expect("free"));
        }
        assert!(refused("203.0.113.1").contains("16 other logins"));
        drop(held);
        assert!(waiting.0.lock().expect("whole").is_empty());
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_count_together() {
        let waiting = Waiting::default();
        let turn = |text: &str| waiting.turn(address(text));
        let held: Vec<_> = (0..WAITING_PER_ADDRESS_MAX)
            .map(|host| turn(&format!("2001:db8:0:1::{host:x}")).expect("free"))
            .collect();
        assert!(turn("2001:db8:0:1:ffff::1").is_err());
        assert!(turn("2001:db8:0:2::1").is_ok());
        drop(held);
    }
}
