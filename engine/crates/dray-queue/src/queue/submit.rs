//! Submits requests. The result of a submission is a new transfer, a new attempt, a reference to a
//! running transfer, or a conflict.

use super::quota::{Limits, Quota};
use super::refused::Refused;
use super::row::{self, Row};
use super::space::SpaceClaim;
use super::sqlite::{json, sql};
use super::staged::{self, StagedRow};
use super::states::{Command, next};
use super::write::{renew, told};
use super::{Effects, Queue, Whom, next_seq, promised};
use crate::clock;
use crate::promises::asks_promise;
use dray_api::Timestamp;
use dray_api::{Request, Route, Transfer};
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use rusqlite::Connection;
use std::time::Instant;

/// A request and its submitter. The request is already checked and has an id, and access to its
/// paths is permitted.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The request.
    pub request: Request,
    /// The parsed sources and destination of the request.
    pub route: Route,
    /// Owner of the transfer.
    pub owner: String,
    /// Name of the principal that submits the request.
    pub principal: String,
    /// Claim on the space of a tier, if the destination is in a fast root.
    pub claim: Option<SpaceClaim>,
}

/// The result of a submission.
#[derive(Debug, Clone)]
pub struct Submitted {
    /// True for a new transfer or a new attempt. False if the same request was already running.
    pub is_new: bool,
    /// The transfer.
    pub transfer: Transfer,
}

impl Queue {
    /// Submits one request.
    ///
    /// # Errors
    /// `AlreadyExists` if the id belongs to a different request or to another owner. `Busy` if the
    /// endpoint is full. `NotAdmitted` if the deadline or the rate cannot be promised.
    pub fn submit(&self, submission: Submission) -> std::result::Result<Submitted, Refused> {
        let mut results = self.submit_all(vec![Ok(submission)], false)?;
        results.pop().unwrap_or_else(|| Err(internal().into()))
    }

    /// Submits many requests. An error in `submissions` stands for a request that the caller has
    /// refused; it keeps its index in the results. With `atomic`, either all requests are submitted
    /// or none: if any request is refused, all other requests fail with `Cancelled`.
    ///
    /// # Errors
    /// Errors of the database. No request is submitted then.
    pub fn submit_all(
        &self,
        submissions: Vec<Result<Submission>>,
        atomic: bool,
    ) -> Result<Vec<std::result::Result<Submitted, Refused>>> {
        let limits = self.settings.limits();
        let taken = self.write(move |connection, effects| {
            take_all(connection, effects, submissions, atomic, limits)
        })?;
        let mut taken = taken;
        for at in 0..taken.len() {
            if let Err(refused) = &mut taken[at] {
                let untold = refused.untold.as_mut();
                let places = untold.map(|untold| std::mem::take(&mut untold.places));
                let of_set = self.explain(refused);
                // Move the refusal to the request of the set that cannot be promised.
                let place = places.and_then(|places| places.get(of_set).copied());
                taken.swap(at, place.unwrap_or(at));
            }
        }
        let viewed = taken.into_iter().map(|taken| {
            let (row, is_new) = taken?;
            let mut transfer = self.view(row);
            transfer.attached = !is_new;
            self.asked_for(&transfer);
            Ok(Submitted { is_new, transfer })
        });
        Ok(viewed.collect())
    }
}

/// The name of the operation in errors about the quota.
pub(super) const SUBMIT: &str = "submit the transfer";

pub(super) fn internal() -> Error {
    Error::new(ErrorKind::Internal, End::Here, SUBMIT)
}

pub(super) type Taken = std::result::Result<(Row, bool), Refused>;

fn take_all(
    connection: &Connection,
    effects: &mut Effects,
    submissions: Vec<Result<Submission>>,
    atomic: bool,
    limits: Limits,
) -> Result<Vec<Taken>> {
    let failed = sql("submit the transfers");
    let mut quota = Quota::count(connection, limits, SUBMIT)?;
    let now = clock::now();
    connection
        .execute_batch("SAVEPOINT batch")
        .map_err(&failed)?;
    let mut own = Effects::new(&effects.promises, effects.keeps_receipts);
    let promising = match atomic {
        true => Promising::Together,
        false => Promising::Alone,
    };
    let mut taken: Vec<Taken> = submissions
        .into_iter()
        .map(|submission| {
            let parts = (submission?, None);
            take(connection, &mut own, parts, &mut quota, promising, now)
        })
        .collect();
    if atomic && taken.iter().all(Result::is_ok) {
        promise_all(connection, &own, &mut taken, now);
    }
    if atomic && taken.iter().any(Result::is_err) {
        connection
            .execute_batch("ROLLBACK TO batch")
            .map_err(&failed)?;
        // The broker keeps offers for the refused transfers under their sequence numbers. Use up
        // these sequence numbers: a later transfer with one of these numbers would get the offer of
        // a refused transfer.
        for _ in &taken {
            next_seq(connection)?;
        }
        if effects.promises.is_touched() {
            promised::load(connection, &effects.promises)?;
        }
        for one in taken.iter_mut().filter(|one| one.is_ok()) {
            let error = Error::new(ErrorKind::Cancelled, End::Here, "submit the transfer")
                .cause("another request of the batch was refused")
                .remedy(
                    "submit the batch again without the refused request, or with \
                        `\"atomic\": false`",
                );
            *one = Err(error.into());
        }
    } else {
        effects.events.append(&mut own.events);
        effects.is_woken |= own.is_woken;
    }
    connection.execute_batch("RELEASE batch").map_err(&failed)?;
    Ok(taken)
}

/// Asks for the promises of all new transfers of a batch as one set.
fn promise_all(connection: &Connection, effects: &Effects, taken: &mut [Taken], now: Timestamp) {
    let (places, mut rows): (Vec<usize>, Vec<&mut Row>) = (taken.iter_mut().enumerate())
        .filter_map(|(at, one)| match one {
            Ok((row, true)) => Some((at, row)),
            _ => None,
        })
        .unzip();
    let asking: Vec<&Row> = rows.iter().map(|row| &**row).collect();
    let promised = promised::take_set(connection, &effects.promises, &asking, now)
        .map_err(|refused| refused.into_refused());
    let written = promised.and_then(|noted| {
        let noted = rows.iter_mut().zip(noted);
        let mut noted = noted.filter(|(_, notices)| !notices.is_empty());
        noted.try_for_each(|(row, notices)| {
            row.note_all(notices);
            row.write(connection).map_err(Refused::from)
        })
    });
    if let Err(mut refused) = written {
        let first = places.first().copied().unwrap_or(0);
        if let Some(untold) = &mut refused.untold {
            untold.places = places;
        }
        taken[first] = Err(refused);
    }
}

/// Says whether a request gets its promise alone, or together with the other requests of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promising {
    Alone,
    Together,
}

/// Submits one request and its staged copy. A refused request changes no row.
pub(super) fn take(
    connection: &Connection,
    effects: &mut Effects,
    parts: (Submission, Option<&StagedRow>),
    quota: &mut Quota,
    promising: Promising,
    now: Timestamp,
) -> Taken {
    let failed = sql("submit the transfer");
    connection
        .execute_batch("SAVEPOINT taken")
        .map_err(&failed)?;
    let taken = take_one(connection, effects, parts, quota, promising, now);
    let end = match &taken {
        Ok(_) => "RELEASE taken",
        Err(_) => "ROLLBACK TO taken; RELEASE taken",
    };
    connection.execute_batch(end).map_err(&failed)?;
    if taken.is_err() {
        // The broker keeps an offer for the refused transfer under its sequence number. Use up the
        // number, so that no other transfer gets it.
        next_seq(connection)?;
    }
    taken
}

fn take_one(
    connection: &Connection,
    effects: &mut Effects,
    (submission, staged): (Submission, Option<&StagedRow>),
    quota: &mut Quota,
    promising: Promising,
    now: Timestamp,
) -> Taken {
    let Submission {
        mut request,
        route,
        owner,
        principal,
        claim,
    } = submission;
    let id = request.id.clone().ok_or_else(internal)?;
    let secrets = row::secrets(&mut request);
    let essence = json(&request.clone().essence())?;
    let Some(mut found) = Row::find(connection, id.as_str())? else {
        staged::check_reuse(connection, id.as_str(), &owner, staged)?;
        let seq = next_seq(connection)?;
        quota.take(connection, &owner)?;
        let row = Row {
            owner,
            principal,
            essence,
            secrets,
            route: Some(route),
            claim,
            ..Row::queued(&id, seq, request, now)
        };
        let owner = row.owner.clone();
        let kept = keep_new(connection, effects, row, promising, now);
        return kept.inspect_err(|_| quota.give_back(&owner));
    };
    if found.owner != owner {
        // The error does not reveal the state of another owner's transfer.
        return Err(conflict(&id, "the transfer id is in use", "choose another id").into());
    }
    if found.standing.state.is_terminal() {
        // A new attempt may have another request, for example with other sources. That is safe,
        // because the sink's log, and not this table, records the durable data.
        if !is_same(&found.essence, &essence) || staged.is_some() {
            staged::check_reuse(connection, id.as_str(), &owner, staged)?;
        }
        // A retry is a conflict while partial data is being removed.
        next(found.standing, Command::Retry)?;
        found.essence = essence;
        found.request = request;
        found.route = Some(route);
        found.claim = claim;
        found.principal = principal;
        found.secrets = secrets;
        renew(connection, &mut found, now)?;
        // Take the quota last, so that a request that is refused above uses no quota.
        quota.take(connection, &owner)?;
        let kept = keep_new(connection, effects, found, promising, now);
        return kept.inspect_err(|_| quota.give_back(&owner));
    }
    if found.standing.is_leaving() {
        // The transfer is being cancelled. A caller that attached to it would wait for a transfer
        // that never finishes, so refuse the request.
        next(found.standing, Command::Retry)?;
    }
    if !is_same(&found.essence, &essence) {
        return Err(conflict(
            &id,
            "an earlier transfer with this id and another request has not ended",
            "choose another id, or cancel the earlier transfer first",
        )
        .into());
    }
    // The request is the same. Store its newer tickets.
    for (kept, given) in found.secrets.iter_mut().zip(secrets) {
        // A caller that only watches sends no tickets. Keep the stored tickets then.
        if given.ticket.is_some() {
            *kept = given;
        }
    }
    for (kept, secret) in found.request.places_mut().zip(&found.secrets) {
        kept.key.clone_from(&secret.key);
        kept.address.clone_from(&secret.address);
    }
    found.write(connection)?;
    Ok((found, false))
}

fn keep_new(
    connection: &Connection,
    effects: &mut Effects,
    mut row: Row,
    promising: Promising,
    now: Timestamp,
) -> Taken {
    if promising == Promising::Alone && asks_promise(&row.request) {
        // A refused request must leave the other requests of its batch unchanged.
        let failed = sql("submit the transfer");
        connection.execute_batch("SAVEPOINT one").map_err(&failed)?;
        let kept = row
            .write(connection)
            .map_err(Refused::from)
            .and_then(|()| promised::take(connection, &effects.promises, &row, now));
        let end = match &kept {
            Ok(_) => "RELEASE one",
            Err(_) => "ROLLBACK TO one; RELEASE one",
        };
        connection.execute_batch(end).map_err(&failed)?;
        if kept.as_ref().is_err_and(|refused| refused.untold.is_none()) {
            promised::load(connection, &effects.promises)?;
        }
        row.note_all(kept?);
    }
    row.write(connection)?;
    row.write_labels(connection)?;
    told(effects, &row, now);
    effects.is_woken = true;
    Ok((row, true))
}

/// Returns true if two requests are equal. Compares the parsed JSON, because an older version may
/// have written the fields in another order.
fn is_same(kept: &str, given: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    kept == given || read(kept).is_some_and(|kept| Some(kept) == read(given))
}

fn conflict(id: &TransferId, cause: &str, remedy: &str) -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        End::Here,
        format!("submit transfer {id}"),
    )
    .cause(cause)
    .remedy(remedy)
}

/// Returns the time since a caller last asked about a transfer.
pub(super) fn unasked(queue: &Queue, id: &str, owner: &str) -> std::time::Duration {
    let asked = queue
        .asked
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let whom = [Whom::Transfer(id.to_owned()), Whom::Owner(owner.to_owned())];
    if whom.iter().any(|whom| asked.open.contains_key(whom)) {
        return std::time::Duration::ZERO;
    }
    let last = [asked.transfers.get(id), asked.owners.get(owner)];
    let last = last.into_iter().flatten().max().copied();
    // If no caller has asked yet, count from the start of the endpoint. No caller could ask before.
    let last: Instant = last.unwrap_or(queue.opened);
    last.elapsed()
}
