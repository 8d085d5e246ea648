//! The sessions of a passive end. This module limits their number and finds the session of a
//! joining stream.

use super::hub::Hub;
use super::join::{proof_holds, random};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_wire::codec::Challenge;
use dray_wire::message::Join;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum number of recently ended sessions in the table; beyond it, the oldest is removed. The
/// value is estimated, not measured.
const ENDED_MAX: usize = 1024;

type Ticket = [u8; 16];

/// A running session, found by its ticket.
struct Session {
    hub: Arc<Hub>,
    key: [u8; 32],
    clear_data: bool,
}

/// A session that has ended recently.
struct Ended {
    at: Instant,
    ticket: Ticket,
    key: [u8; 32],
}

/// Result of the search for the session of a joining stream.
pub(super) enum JoinTarget {
    Session(Arc<Hub>),
    /// The session has just ended; the stream was still connecting.
    Ended,
    /// No session matches. The ticket is unknown, or the proof is wrong, or the security differs;
    /// the dialler does not learn which of these reasons applies.
    Nothing,
}

#[derive(Default)]
struct Table {
    reserved: usize,
    is_stopping: bool,
    by_ticket: HashMap<Ticket, Session>,
    /// Recently ended sessions, in the order in which they ended.
    ended: VecDeque<Ended>,
}

pub(super) struct Sessions {
    max: usize,
    /// Time for which an ended session stays in the table: as long as a stream may take to join.
    remembers: Duration,
    table: Mutex<Table>,
}

/// A session slot. Dropping this value frees the slot. Streams can then no longer join with the
/// ticket of the slot.
pub(super) struct SessionSlot<'a> {
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
        self.table.lock_unpoisoned()
    }

    /// Reserves a session slot. The listener calls this before it opens files for the session.
    ///
    /// # Errors
    /// [`ErrorKind::NoPlace`] if all slots are in use, `Busy` if the listener is stopping.
    pub(super) fn reserve(&self) -> Result<SessionSlot<'_>> {
        let mut table = self.table();
        let refused = |kind, cause: String| {
            Err(Error::new(kind, End::Network, "begin a session")
                .cause(cause)
                .remedy("run the same command again later"))
        };
        if table.is_stopping {
            let cause = "the server at the other host is stopping".to_owned();
            return refused(ErrorKind::Busy, cause);
        }
        if table.reserved >= self.max {
            let cause = format!(
                "the other host is running {} sessions, which is the limit",
                self.max
            );
            return refused(ErrorKind::NoPlace, cause);
        }
        table.reserved += 1;
        Ok(SessionSlot {
            sessions: self,
            ticket: None,
        })
    }

    /// Finds the session that a stream may join, and verifies the proof.
    pub(super) fn find(&self, join: &Join, challenge: &Challenge, is_clear: bool) -> JoinTarget {
        let (found, key) = {
            let table = self.table();
            let is_meant =
                |ended: &&Ended| ended.ticket == join.ticket && ended.at.elapsed() < self.remembers;
            match table.by_ticket.get(&join.ticket) {
                Some(session) if session.clear_data != is_clear => return JoinTarget::Nothing,
                Some(session) => (JoinTarget::Session(Arc::clone(&session.hub)), session.key),
                None => match table.ended.iter().find(is_meant) {
                    Some(ended) => (JoinTarget::Ended, ended.key),
                    None => return JoinTarget::Nothing,
                },
            }
        };
        match proof_holds(&key, join, challenge) {
            true => found,
            false => JoinTarget::Nothing,
        }
    }

    /// Stops accepting sessions, and asks running sessions to stop and keep their durable data.
    pub(super) fn stop(&self) {
        let mut table = self.table();
        table.is_stopping = true;
        table
            .by_ticket
            .values()
            .for_each(|session| session.hub.announce_stop());
    }

    pub(super) fn cut(&self) {
        let hubs: Vec<_> = {
            let table = self.table();
            let hubs = table.by_ticket.values().map(|session| &session.hub);
            hubs.map(Arc::clone).collect()
        };
        hubs.iter().for_each(|hub| hub.cut());
    }
}

impl SessionSlot<'_> {
    /// Registers the session under a new ticket and key.
    pub(super) fn register(
        &mut self,
        hub: &Arc<Hub>,
        clear_data: bool,
    ) -> Result<(Ticket, [u8; 32])> {
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
            // The listener was stopped while this session was being prepared. `stop` did not find
            // this session in the table, so end it here.
            hub.announce_stop();
        }
        Ok((ticket, key))
    }
}

impl Drop for SessionSlot<'_> {
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
