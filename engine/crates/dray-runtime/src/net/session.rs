//! The passive end's sessions: how many there are, and which stream belongs to which.

use super::hub::Hub;
use super::join::{proof_holds, random};
use dray_core::{End, Error, ErrorKind, Result};
use dray_wire::codec::Challenge;
use dray_wire::message::Join;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Sessions that have ended and are remembered, at the most (guess, revisit).
const ENDED_MAX: usize = 1024;

type Ticket = [u8; 16];

/// What a ticket stands for.
struct Session {
    hub: Arc<Hub>,
    key: [u8; 32],
    clear_data: bool,
}

/// A session that was there until a moment ago.
struct Ended {
    at: Instant,
    ticket: Ticket,
    key: [u8; 32],
}

/// What a stream asks to join.
pub(super) enum Found {
    Session(Arc<Hub>),
    /// One that has just ended: the stream was under way.
    Ended,
    /// Nothing that it has the key of; without a word on why not.
    Nothing,
}

#[derive(Default)]
struct Table {
    reserved: usize,
    is_stopping: bool,
    by_ticket: HashMap<Ticket, Session>,
    /// In the order in which they ended.
    ended: VecDeque<Ended>,
}

/// All sessions of a listener.
pub(super) struct Sessions {
    max: usize,
    /// How long one that has ended is remembered: as long as a stream of it may take to join.
    remembers: Duration,
    table: Mutex<Table>,
}

/// Room for one session; given back when dropped, and nobody joins by its ticket any more.
pub(super) struct Seat<'a> {
    sessions: &'a Sessions,
    ticket: Option<Ticket>,
}

impl Sessions {
    pub(super) fn new(max: usize, remembers: Duration) -> Self {
        Self {
            max,
            remembers,
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

    /// The session a stream may join.
    pub(super) fn find(&self, join: &Join, challenge: &Challenge, is_clear: bool) -> Found {
        let (found, key) = {
            let table = self.table();
            let is_meant =
                |ended: &&Ended| ended.ticket == join.ticket && ended.at.elapsed() < self.remembers;
            match table.by_ticket.get(&join.ticket) {
                Some(session) if session.clear_data != is_clear => return Found::Nothing,
                Some(session) => (Found::Session(Arc::clone(&session.hub)), session.key),
                None => match table.ended.iter().find(is_meant) {
                    Some(ended) => (Found::Ended, ended.key),
                    None => return Found::Nothing,
                },
            }
        };
        match proof_holds(&key, join, challenge) {
            true => found,
            false => Found::Nothing,
        }
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
        let Some(ticket) = self.ticket else {
            return;
        };
        let Some(session) = table.by_ticket.remove(&ticket) else {
            return;
        };
        let remembers = self.sessions.remembers;
        let is_old = |ended: &Ended| ended.at.elapsed() >= remembers;
        while table.ended.len() >= ENDED_MAX || table.ended.front().is_some_and(is_old) {
            table.ended.pop_front();
        }
        table.ended.push_back(Ended {
            at: Instant::now(),
            ticket,
            key: session.key,
        });
    }
}
