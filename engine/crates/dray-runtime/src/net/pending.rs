//! Connections that have not proved themselves. There is room for so many; a newcomer to a full room
//! takes the place of the one that has been there longest, so that holding places costs the holder
//! his own and not those who come after.

use super::socket::shut;
use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Places {
    next: u64,
    held: VecDeque<(u64, Arc<TcpStream>)>,
}

/// See the module's head.
pub(super) struct Pending {
    max: usize,
    places: Mutex<Places>,
}

/// A place, given back when dropped.
pub(super) struct Place<'a> {
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

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in.
    pub(super) fn admit(&self, stream: &Arc<TcpStream>) -> Place<'_> {
        let mut places = self.places();
        while places.held.len() >= self.max {
            if let Some((_, oldest)) = places.held.pop_front() {
                shut(&oldest);
            }
        }
        let number = places.next;
        places.next += 1;
        places.held.push_back((number, Arc::clone(stream)));
        Place {
            pending: self,
            number,
        }
    }

    /// Ends them all.
    pub(super) fn cut(&self) {
        for (_, stream) in self.places().held.drain(..) {
            shut(&stream);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let number = self.number;
        self.pending
            .places()
            .held
            .retain(|(held, _)| *held != number);
    }
}
