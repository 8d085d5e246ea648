//! The passive end's sessions: how many there are, and which stream belongs to which.

use super::hub::Hub;
use super::join::{proof_holds, random};
use dray_core::{End, Error, ErrorKind, Result};
use dray_wire::codec::Challenge;
use dray_wire::message::Join;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Ticket = [u8; 16];

/// What a ticket stands for.
struct Session {
    hub: Arc<Hub>,
    key: [u8; 32],
    clear_data: bool,
}

#[derive(Default)]
struct Table {
    reserved: usize,
    is_stopping: bool,
    by_ticket: HashMap<Ticket, Session>,
}

/// All sessions of a listener.
pub(super) struct Sessions {
    max: usize,
    table: Mutex<Table>,
}

/// Room for one session; given back, and its ticket forgotten, when dropped.
pub(super) struct Seat<'a> {
    sessions: &'a Sessions,
    ticket: Option<Ticket>,
}

impl Sessions {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            table: Mutex::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves room before anything is opened for a session.
    ///
    /// # Errors
    /// [`ErrorKind::NoPlace`] when there is none, `Busy` when the end is about to stop.
    pub(super) fn reserve(&self) -> Result<Seat<'_>> {
        let mut table = self.table();
        let refused = |kind, cause: String| {
            Err(Error::new(kind, End::Network, "begin a session")
                .cause(cause)
                .remedy("run the same command again later"))
        };
        if table.is_stopping {
            let cause = "the other end is about to stop".to_owned();
            return refused(ErrorKind::Busy, cause);
        }
        if table.reserved >= self.max {
            let cause = format!("the other end has {} sessions already", self.max);
            return refused(ErrorKind::NoPlace, cause);
        }
        table.reserved += 1;
        Ok(Seat {
            sessions: self,
            ticket: None,
        })
    }

    /// The session a stream may join; `None` without a word on why not.
    pub(super) fn find(
        &self,
        join: &Join,
        challenge: &Challenge,
        is_clear: bool,
    ) -> Option<Arc<Hub>> {
        let (hub, key, clear_data) = {
            let table = self.table();
            let session = table.by_ticket.get(&join.ticket)?;
            (Arc::clone(&session.hub), session.key, session.clear_data)
        };
        (clear_data == is_clear && proof_holds(&key, join, challenge)).then_some(hub)
    }

    /// Takes no more sessions and asks those that run to stop, keeping what is safe.
    pub(super) fn stop(&self) {
        let mut table = self.table();
        table.is_stopping = true;
        table
            .by_ticket
            .values()
            .for_each(|session| session.hub.leave());
    }

    /// Ends the connections of all sessions.
    pub(super) fn cut(&self) {
        let hubs: Vec<_> = {
            let table = self.table();
            let hubs = table.by_ticket.values().map(|session| &session.hub);
            hubs.map(Arc::clone).collect()
        };
        hubs.iter().for_each(|hub| hub.cut());
    }
}

impl Seat<'_> {
    /// Gives the session its ticket and key.
    pub(super) fn seat(&mut self, hub: &Arc<Hub>, clear_data: bool) -> Result<(Ticket, [u8; 32])> {
        let (ticket, key) = (random()?, random()?);
        let session = Session {
            hub: Arc::clone(hub),
            key,
            clear_data,
        };
        let mut table = self.sessions.table();
        table.by_ticket.insert(ticket, session);
        self.ticket = Some(ticket);
        if table.is_stopping {
            // The stop came while the session was prepared, and did not see it.
            hub.leave();
        }
        Ok((ticket, key))
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut table = self.sessions.table();
        table.reserved -= 1;
        if let Some(ticket) = self.ticket {
            table.by_ticket.remove(&ticket);
        }
    }
}
