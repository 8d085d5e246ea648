//! The set of connections that have not proved their identity. The number of these connections is
//! limited.
//!
//! If the set is full, a new connection evicts a connection of the holder with the most
//! connections. A holder is an IPv4 address or an IPv6 network. So a flood of connections from one
//! holder evicts that holder's own connections, and other callers are not affected. Of the chosen
//! holder's connections, one that only waits for a JOIN is evicted first, because the driver can
//! make such a connection again. If there is none, the holder's oldest connection is evicted.

use super::socket::shut;
use dray_core::lock::LockExt;
use std::collections::HashMap;
use std::net::{IpAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

/// Address from which a connection was made. For IPv6 this is the /64 prefix, because a network
/// usually has a whole prefix.
type Holder = Option<IpAddr>;

struct PendingConnection {
    number: u64,
    holder: Holder,
    stream: Arc<TcpStream>,
    /// True if only the JOIN message is missing.
    awaits_join: bool,
}

#[derive(Default)]
struct PendingTable {
    next: u64,
    /// Pending connections in the order of their arrival.
    held: Vec<PendingConnection>,
}

impl PendingTable {
    /// Evicts a connection of the holder with the most connections. If several holders have this
    /// number of connections, chooses the holder of the oldest connection among them. `newcomer` is
    /// the holder of the new connection, which is counted too.
    fn show_one_out(&mut self, newcomer: Holder) {
        let mut counts: HashMap<Holder, usize> = HashMap::from([(newcomer, 1)]);
        for held in &self.held {
            *counts.entry(held.holder).or_default() += 1;
        }
        let of = |held: &PendingConnection| counts.get(&held.holder).copied();
        let most = self.held.iter().filter_map(of).max();
        let Some(oldest) = self.held.iter().position(|held| of(held) == most) else {
            return;
        };
        let holder = self.held.get(oldest).and_then(|held| held.holder);
        let can_wait = |held: &PendingConnection| held.holder == holder && held.awaits_join;
        let at = self.held.iter().position(can_wait).unwrap_or(oldest);
        shut(&self.held.remove(at).stream);
    }
}

fn holder_of(stream: &TcpStream) -> Holder {
    let address = stream.peer_addr().ok()?.ip().to_canonical();
    Some(match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(whole) => IpAddr::V6((whole.to_bits() & !u128::from(u64::MAX)).into()),
    })
}

/// A limited set of connections that have not proved their identity. The module documentation
/// describes which connections are evicted.
pub(super) struct Pending {
    max: usize,
    places: Mutex<PendingTable>,
}

/// Entry of one connection in [`Pending`], removed on drop.
pub(super) struct PendingSlot<'a> {
    pending: &'a Pending,
    number: u64,
}

impl Pending {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            places: Mutex::default(),
        }
    }

    fn places(&self) -> MutexGuard<'_, PendingTable> {
        self.places.lock_unpoisoned()
    }

    /// Adds a connection to the set. Evicts other connections while the set is full.
    pub(super) fn admit(&self, stream: &Arc<TcpStream>) -> PendingSlot<'_> {
        let holder = holder_of(stream);
        let mut places = self.places();
        while places.held.len() >= self.max {
            places.show_one_out(holder);
        }
        let number = places.next;
        places.next += 1;
        places.held.push(PendingConnection {
            number,
            holder,
            stream: Arc::clone(stream),
            awaits_join: false,
        });
        PendingSlot {
            pending: self,
            number,
        }
    }

    pub(super) fn cut(&self) {
        for held in self.places().held.drain(..) {
            shut(&held.stream);
        }
    }
}

impl PendingSlot<'_> {
    /// Returns true if this connection has not been evicted.
    pub(super) fn is_held(&self) -> bool {
        let own = |held: &PendingConnection| held.number == self.number;
        self.pending.places().held.iter().any(own)
    }

    /// Records that the listener has sent its challenge, so only the JOIN message is missing.
    pub(super) fn awaits_join(&self) {
        let mut places = self.pending.places();
        let own = |held: &&mut PendingConnection| held.number == self.number;
        if let Some(held) = places.held.iter_mut().find(own) {
            held.awaits_join = true;
        }
    }
}

impl Drop for PendingSlot<'_> {
    fn drop(&mut self) {
        let number = self.number;
        self.pending
            .places()
            .held
            .retain(|held| held.number != number);
    }
}

#[cfg(test)]
mod tests {
    use super::{Pending, holder_of};
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::time::Duration;

    /// Connects from the loopback address `from`. Returns the dialling end and the listener's end.
    fn dial(listener: &TcpListener, from: &str) -> (TcpStream, Arc<TcpStream>) {
        let local: std::net::SocketAddr = format!("{from}:0").parse().expect("an address");
        let to = listener.local_addr().expect("bound");
        let kind = rustix::net::SocketType::STREAM;
        let socket = rustix::net::socket(rustix::net::AddressFamily::INET, kind, None);
        let socket = socket.expect("a socket");
        rustix::net::bind(&socket, &local).expect("bound");
        rustix::net::connect(&socket, &to).expect("connected");
        let (accepted, _) = listener.accept().expect("accepted");
        (TcpStream::from(socket), Arc::new(accepted))
    }

    fn is_open(stream: &mut TcpStream) -> bool {
        let soon = Some(Duration::from_millis(50));
        stream.set_read_timeout(soon).expect("set");
        let wait = stream.read(&mut [0]);
        wait.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    #[test]
    fn a_new_connection_evicts_one_of_the_largest_holder() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let pending = Pending::new(4);
        let (mut honest, accepted) = dial(&listener, "127.0.0.2");
        let _place = pending.admit(&accepted);
        // The flood makes more connections than the set admits; the set evicts only the flood's own
        // connections.
        let flood: Vec<_> = (0..8).map(|_| dial(&listener, "127.0.0.3")).collect();
        let _places: Vec<_> = flood.iter().map(|(_, it)| pending.admit(it)).collect();
        assert!(is_open(&mut honest), "it came first, and holds one place");
        let mut open: Vec<bool> = Vec::new();
        for (mut far, _) in flood {
            open.push(is_open(&mut far));
        }
        assert_eq!(open, [false, false, false, false, false, true, true, true]);
        let (mut late, accepted) = dial(&listener, "127.0.0.4");
        let _place = pending.admit(&accepted);
        assert!(is_open(&mut late) && is_open(&mut honest));
    }

    #[test]
    fn the_largest_holder_first_loses_connections_that_await_a_join() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let pending = Pending::new(4);
        let (mut honest, accepted) = dial(&listener, "127.0.0.2");
        let own = pending.admit(&accepted);
        own.awaits_join();
        let many: Vec<_> = (0..6).map(|_| dial(&listener, "127.0.0.3")).collect();
        let mut places = Vec::new();
        for (at, (_, accepted)) in many.iter().enumerate() {
            let place = pending.admit(accepted);
            if [1, 2].contains(&at) {
                place.awaits_join();
            }
            places.push(place);
        }
        // This call must have no effect on the set: the connection was evicted before.
        places[1].awaits_join();
        let mut open: Vec<bool> = Vec::new();
        for (mut far, _) in many {
            open.push(is_open(&mut far));
        }
        assert_eq!(open, [false, false, false, true, true, true]);
        assert!(is_open(&mut honest), "it is no part of that");
    }

    #[test]
    fn among_equal_holders_the_oldest_connection_is_evicted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let pending = Pending::new(2);
        let mut open = Vec::new();
        let made: Vec<_> = (2..5)
            .map(|last| dial(&listener, &format!("127.0.0.{last}")))
            .collect();
        let _places: Vec<_> = made.iter().map(|(_, it)| pending.admit(it)).collect();
        for (mut far, _) in made {
            open.push(is_open(&mut far));
        }
        assert_eq!(open, [false, true, true]);
    }

    #[test]
    fn holder_is_an_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let (_far, near) = dial(&listener, "127.0.0.9");
        assert_eq!(holder_of(&near), "127.0.0.9".parse().ok());
    }
}
