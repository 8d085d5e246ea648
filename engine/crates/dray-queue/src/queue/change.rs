//! Changes that callers make: pause, resume, cancel, retry, patch, delete.

use super::actor::Actor;
use super::quota::Quota;
use super::refused::Refused;
use super::row::Row;
use super::states::{Command, Standing, Step, next};
use super::submit::Submission;
use super::write::{renew, told};
use super::{Effects, Queue, not_found, promised, receipts};
use crate::clock;
use crate::promises::asks_promise;
use dray_api::Timestamp;
use dray_api::{Check, Patch, Request, State, Transfer};
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use rusqlite::Connection;

impl Queue {
    /// Cancels a transfer. With `purge`, its partial data is removed as well.
    ///
    /// # Errors
    /// `NotFound` if the transfer does not exist. `AlreadyExists` if it has ended in another state
    /// than `cancelled`. With `purge`, a transfer that ended as incomplete or failed is accepted
    /// too.
    pub fn cancel(&self, caller: &Actor, id: &str, purge: bool) -> Result<Transfer> {
        self.change(caller, id, Command::Cancel { purge })
    }

    /// Cancels a transfer if the transfer still has the version that the caller has seen. If the
    /// transfer is already cancelled, or is being cancelled, the version does not matter and the
    /// call succeeds.
    ///
    /// # Errors
    /// The errors of [`Queue::cancel`]. `AlreadyExists` if the transfer has another version.
    pub fn cancel_as_seen(
        &self,
        caller: &Actor,
        id: &str,
        purge: bool,
        version: u64,
    ) -> Result<Transfer> {
        self.change_if(caller, id, Command::Cancel { purge }, move |_, row| {
            let standing = row.standing;
            let is_over = standing.state == State::Cancelled || standing.is_leaving();
            if is_over || row.version == version {
                return Ok(());
            }
            Err(Error::new(
                ErrorKind::AlreadyExists,
                End::Here,
                format!("cancel transfer {}", row.id),
            )
            .cause(format!(
                "the version of the transfer is {}, not {version}: the transfer has changed",
                row.version
            ))
            .remedy(
                "read the transfer again, and cancel the new version if you still want to cancel \
                    the transfer",
            ))
        })
    }

    /// Pauses a transfer.
    ///
    /// # Errors
    /// The errors of [`Queue::cancel`].
    pub fn pause(&self, caller: &Actor, id: &str) -> Result<Transfer> {
        self.change(caller, id, Command::Pause)
    }

    /// Resumes a transfer.
    ///
    /// # Errors
    /// The errors of [`Queue::cancel`].
    pub fn resume(&self, caller: &Actor, id: &str) -> Result<Transfer> {
        self.change(caller, id, Command::Resume)
    }

    /// Starts a new attempt of a transfer that has ended. The URLs of its request are resolved
    /// again.
    ///
    /// # Errors
    /// The errors of [`Queue::cancel`]. `Busy` if the queue is full. Also `Busy` if the id was
    /// submitted with other URLs since the caller read the request and made `submission` from it.
    pub fn retry(&self, caller: &Actor, id: &str, submission: Submission) -> Result<Transfer> {
        let limits = self.settings.limits();
        self.change_if(caller, id, Command::Retry, move |connection, row| {
            if !row.standing.state.is_terminal() {
                return Ok(());
            }
            if !urls(&row.request).eq(urls(&submission.request)) {
                let operation = "try the transfer again";
                return Err(Error::new(ErrorKind::Busy, End::Here, operation)
                    .cause("another request changed the URLs of the transfer at the same time")
                    .remedy("read the transfer with GET, then send the retry request again"));
            }
            row.route = Some(submission.route);
            row.claim = submission.claim;
            Quota::count(connection, limits, "try the transfer again")?.take(connection, &row.owner)
        })
    }

    /// Changes parameters of a transfer, such as deadline, rates, class and weight.
    ///
    /// # Errors
    /// The errors of [`Queue::cancel`]. `InvalidRequest` if the parameters contradict each other.
    /// `NotAdmitted` if the changed request cannot be promised; then nothing changes.
    pub fn patch(
        &self,
        caller: &Actor,
        id: &str,
        patch: &Patch,
    ) -> std::result::Result<Transfer, Refused> {
        let (caller, id, patch) = (caller.clone(), id.to_owned(), patch.clone());
        let row = self.write(move |connection, effects| {
            let mut row = find(connection, &caller, &id)?;
            next(row.standing, Command::Patch)?;
            let request = patch.apply(row.request.clone());
            request.check()?;
            if request == row.request {
                return Ok(Ok((row, Vec::new())));
            }
            let now = clock::now();
            let asks_else = asks_else(&row.request, &request);
            row.request = request;
            row.version += 1;
            let promises = &effects.promises;
            let mut noted = Vec::new();
            if asks_else && row.standing.state != State::Paused {
                match promised::change(connection, promises, &row, now) {
                    Ok(notices) => noted = notices,
                    Err(refused) if refused.untold.is_none() => return Err(refused.error),
                    Err(refused) => return Ok(Err(refused)),
                }
            } else {
                promises.weigh(promised::key(&row), row.request.class(), row.request.weight);
            }
            // The notices of a running transfer are in memory, with its counters. The row gets them
            // at the end of the session.
            if row.standing.state != State::Active {
                row.note_all(std::mem::take(&mut noted));
            }
            row.write(connection)?;
            row.write_labels(connection)?;
            told(effects, &row, now);
            effects.is_woken = true;
            if row.standing.state == State::Active {
                effects.changes.push(TransferId::new(row.id.as_str())?);
            }
            Ok(Ok((row, noted)))
        })?;
        let (row, noted) = row.map_err(|mut refused: Refused| {
            self.explain(&mut refused);
            refused
        })?;
        self.remember(&row);
        self.follow_patch(&row, &noted)?;
        Ok(self.view(row))
    }

    /// Asks for a promise of a running transfer whose files are listed. The size of such a transfer
    /// is in memory before it is stored in the transfer's row.
    fn follow_patch(&self, row: &Row, noted: &[String]) -> Result<()> {
        if row.standing.state != State::Active {
            return Ok(());
        }
        let id = TransferId::new(row.id.as_str())?;
        for notice in noted {
            self.noticed(&id, notice);
        }
        let is_open = asks_promise(&row.request) && !self.promises.is_promised(&row.id);
        let counted = self.counted(&id).unwrap_or_default();
        if is_open && counted.files.listing_done && !row.counters.files.listing_done {
            self.listed(&id, counted.bytes.listed)?;
        }
        Ok(())
    }

    /// Deletes a transfer that has ended, with its list of files. Returns the last state of the
    /// transfer.
    ///
    /// # Errors
    /// The errors of [`Queue::cancel`].
    pub fn delete(&self, caller: &Actor, id: &str) -> Result<Transfer> {
        let (caller, wanted) = (caller.clone(), id.to_owned());
        let row = self.write(move |connection, _| {
            let row = find(connection, &caller, &wanted)?;
            next(row.standing, Command::Delete)?;
            forget(connection, &row)?;
            Ok(row)
        })?;
        // Remove the lists of files after the row, and outside the transaction. No other transfer
        // ever uses this folder.
        self.remove_lists(&row);
        Ok(self.view(row))
    }

    fn change(&self, caller: &Actor, id: &str, command: Command) -> Result<Transfer> {
        self.change_if(caller, id, command, |_, _| Ok(()))
    }

    fn change_if(
        &self,
        caller: &Actor,
        id: &str,
        command: Command,
        may: impl FnOnce(&Connection, &mut Row) -> Result<()> + Send + 'static,
    ) -> Result<Transfer> {
        let (caller, id) = (caller.clone(), id.to_owned());
        let row = self.write(move |connection, effects| {
            let mut row = find(connection, &caller, &id)?;
            may(connection, &mut row)?;
            apply(connection, effects, &mut row, command, clock::now())?;
            Ok(row)
        })?;
        self.remember(&row);
        let transfer = self.view(row);
        self.asked_for(&transfer);
        Ok(transfer)
    }

    /// Updates the version in memory. A running transfer reports this version with its progress.
    fn remember(&self, row: &Row) {
        if let Some(run) = self.live.lock().get_mut(&row.id) {
            run.version = run.version.max(row.version);
        }
    }
}

/// Returns true if the change affects the promise. Class and weight only affect the division of
/// spare rate.
fn asks_else(old: &Request, new: &Request) -> bool {
    let asked = |request: &Request| (request.deadline, request.rate_min, request.rate_max);
    asked(old) != asked(new)
}

fn find(connection: &Connection, caller: &Actor, id: &str) -> Result<Row> {
    let row = Row::find(connection, id)?.filter(|row| caller.sees(&row.owner));
    row.ok_or_else(|| not_found(id))
}

pub(super) fn forget(connection: &Connection, row: &Row) -> Result<()> {
    let failed = super::sqlite::sql("delete the transfer");
    super::staged::forget_with(connection, &row.id)?;
    connection
        .prepare_cached("DELETE FROM transfers WHERE id = ?1")
        .and_then(|mut statement| statement.execute([&row.id]))
        .map_err(failed)?;
    Ok(())
}

/// Applies a command to a transfer, and collects the events. Returns true if anything changed.
pub(super) fn apply(
    connection: &Connection,
    effects: &mut Effects,
    row: &mut Row,
    command: Command,
    now: Timestamp,
) -> Result<bool> {
    let Step::To(to) = next(row.standing, command)? else {
        return Ok(false);
    };
    let from = row.standing.state;
    let id = TransferId::new(row.id.as_str())?;
    if command == Command::Retry {
        renew(connection, row, now)?;
        row.write(connection)?;
        // A retry cannot lower the demands of its request. So a retry that gets no promise is not
        // refused: the transfer continues without a promise.
        row.note_all(promised::ask_again(
            connection,
            &effects.promises,
            row,
            now,
        )?);
        effects.is_woken = true;
    } else {
        step(effects, row, to, &id, now);
        promised::follow(connection, &effects.promises, row, from, now)?;
    }
    row.write(connection)?;
    if row.standing.state.is_terminal() && !from.is_terminal() {
        receipts::ended(connection, row, effects.keeps_receipts)?;
    }
    if row.standing.state == State::Done {
        super::staged::arrived(connection, row, now)?;
    }
    told(effects, row, now);
    Ok(true)
}

fn step(effects: &mut Effects, row: &mut Row, to: Standing, id: &TransferId, now: Timestamp) {
    let from = std::mem::replace(&mut row.standing, to);
    row.version += 1;
    if to.state != State::Waiting {
        row.next_try_at = None;
    }
    if to.state.is_terminal() {
        row.ended_at.get_or_insert(now);
        let is_new = !from.state.is_terminal();
        effects.ended.extend(is_new.then_some(to.state));
    }
    match (from.state, to.state, to.wish) {
        (State::Active, State::Active, Some(wish)) => effects.stops.push((id.clone(), wish)),
        (_, State::Cancelled, Some(_)) => effects.has_purges = true,
        (_, State::Queued, _) => effects.is_woken = true,
        _ => {}
    }
    // The session has ended, so another transfer can have its slot. Wake the dispatcher.
    effects.is_woken |= from.state == State::Active && to.state != State::Active;
}

/// Returns the URLs of a request: the sources, then the destination.
fn urls(request: &Request) -> impl Iterator<Item = &str> {
    let places = request.origin_places().chain([&request.destination]);
    places.map(|place| place.url.as_str())
}
