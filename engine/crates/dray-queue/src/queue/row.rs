//! A row of the table of transfers, and its conversion to the API's type `Transfer`.

use super::live::{Counters, FAILURES_MAX, Run};
use super::space::SpaceClaim;
use super::sqlite::{json, sql};
use super::states::{Standing, Wish};
use crate::clock;
use crate::promises::View;
use dray_api::Timestamp;
use dray_api::{
    ErrorParts, PathError, Place, ProfileAnswer, Rates, ReceiptReference, Request, Route,
    StageWord, State, Transfer,
};
use dray_core::rate::Class;
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use rusqlite::{Connection, OptionalExtension};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// The columns that [`Row::read`] reads, including the counters and the receipt.
pub(super) const SELECT: &str = "SELECT t.*, c.body AS counters, r.id AS receipt, \
    r.sequence AS receipt_sequence FROM transfers t LEFT JOIN counters c ON c.transfer = t.id \
    LEFT JOIN receipts r ON r.run = t.seq";

/// Every column, in the order of the values in [`Row::write`].
const COLUMNS: [&str; 34] = [
    "id",
    "seq",
    "owner",
    "principal",
    "state",
    "wish",
    "version",
    "attempt",
    "tries",
    "tries_without_progress",
    "source",
    "essence",
    "request",
    "tickets",
    "class",
    "activity",
    "source_url",
    "destination_url",
    "not_before",
    "bound_seconds",
    "submitted_at",
    "started_at",
    "ended_at",
    "next_try_at",
    "error",
    "failures",
    "notices",
    "priority",
    "deadline",
    "held_until",
    "number",
    "purged",
    "route",
    "claim",
];

// Use an upsert. REPLACE would first delete the existing row, and with it the labels and counters
// of the transfer.
static UPSERT: LazyLock<String> = LazyLock::new(|| {
    let values: Vec<_> = (1..=COLUMNS.len()).map(|at| format!("?{at}")).collect();
    let sets: Vec<_> = COLUMNS[1..]
        .iter()
        .map(|column| format!("{column} = excluded.{column}"))
        .collect();
    format!(
        "INSERT INTO transfers ({}) VALUES ({}) ON CONFLICT (id) DO UPDATE SET {}",
        COLUMNS.join(", "),
        values.join(", "),
        sets.join(", ")
    )
});

/// The ticket of a place in the request, with the key and the address that belong to the ticket.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Secret {
    pub(super) ticket: Option<String>,
    pub(super) key: Option<String>,
    pub(super) address: Option<String>,
}

/// A transfer as it is stored.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) seq: i64,
    /// The value of `seq` when the id was new. No other transfer ever has this number. `None` in
    /// rows of older versions.
    pub(super) number: Option<i64>,
    pub(super) owner: String,
    pub(super) principal: String,
    pub(super) standing: Standing,
    pub(super) version: u64,
    pub(super) attempt: u32,
    pub(super) tries: u32,
    pub(super) tries_without_progress: u32,
    pub(super) source: u32,
    pub(super) essence: String,
    /// The request with later changes and without tickets.
    pub(super) request: Request,
    pub(super) secrets: Vec<Secret>,
    /// The parsed sources and destination, as they were resolved at the submission. `None` only if
    /// an older version wrote the row, the transfer has ended, and this version cannot read the
    /// URLs of the request.
    pub(super) route: Option<Route>,
    /// Claim on the space of a tier, if the destination is in a fast root.
    pub(super) claim: Option<SpaceClaim>,
    pub(super) submitted_at: Timestamp,
    pub(super) started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) next_try_at: Option<Timestamp>,
    pub(super) error: Option<ErrorParts>,
    pub(super) failures: Vec<PathError>,
    pub(super) notices: Vec<String>,
    /// True after a purge has removed the partial data.
    pub(super) is_purged: bool,
    pub(super) counters: Counters,
    /// Receipt of the attempt. [`Row::write`] does not write it.
    pub(super) receipt: Option<ReceiptReference>,
}

pub(super) fn unjson<T: DeserializeOwned>(text: &str) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    })
}

pub(super) fn class(word: &str) -> rusqlite::Result<Class> {
    unjson(&format!("\"{word}\""))
}

fn unknown(word: &str) -> rusqlite::Error {
    let error = format!("this version of dray does not support the value {word:?}");
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, error.into())
}

fn moment(row: &rusqlite::Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_ms))
}

impl Row {
    /// Returns the row of a new transfer. Its owner, principal, essence, secrets and route are
    /// empty.
    pub(super) fn queued(id: &TransferId, seq: i64, request: Request, now: Timestamp) -> Self {
        Self {
            id: id.to_string(),
            seq,
            number: Some(seq),
            owner: String::new(),
            principal: String::new(),
            standing: Standing::of(State::Queued),
            version: 1,
            attempt: 1,
            tries: 0,
            tries_without_progress: 0,
            source: 0,
            essence: String::new(),
            request,
            secrets: Vec::new(),
            route: None,
            claim: None,
            submitted_at: now,
            started_at: None,
            ended_at: None,
            next_try_at: None,
            error: None,
            failures: Vec::new(),
            notices: Vec::new(),
            is_purged: false,
            counters: Counters::default(),
            receipt: None,
        }
    }

    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let text = |column: &str| row.get::<_, String>(column);
        let state = text("state")?;
        let wish: Option<String> = row.get("wish")?;
        let wish = wish
            .map(|word| Wish::from_word(&word).ok_or_else(|| unknown(&word)))
            .transpose()?;
        let error: Option<String> = row.get("error")?;
        let counters: Option<String> = row.get("counters")?;
        let route: Option<String> = row.get("route")?;
        let claim: Option<String> = row.get("claim")?;
        let receipt: Option<String> = row.get("receipt")?;
        let sequence: Option<u64> = row.get("receipt_sequence")?;
        Ok(Self {
            id: text("id")?,
            seq: row.get("seq")?,
            number: row.get("number")?,
            owner: text("owner")?,
            principal: text("principal")?,
            standing: Standing {
                state: State::from_word(&state).ok_or_else(|| unknown(&state))?,
                wish,
            },
            version: row.get("version")?,
            attempt: row.get("attempt")?,
            tries: row.get("tries")?,
            tries_without_progress: row.get("tries_without_progress")?,
            source: row.get("source")?,
            essence: text("essence")?,
            request: unjson(&text("request")?)?,
            secrets: unjson(&text("tickets")?)?,
            route: route.map(|text| unjson(&text)).transpose()?,
            claim: claim.map(|text| unjson(&text)).transpose()?,
            submitted_at: Timestamp::from_ms(row.get("submitted_at")?),
            started_at: moment(row, "started_at")?,
            ended_at: moment(row, "ended_at")?,
            next_try_at: moment(row, "next_try_at")?,
            error: error.map(|text| unjson(&text)).transpose()?,
            failures: unjson(&text("failures")?)?,
            notices: unjson(&text("notices")?)?,
            is_purged: row.get("purged")?,
            counters: counters.map_or(Ok(Counters::default()), |text| unjson(&text))?,
            receipt: (receipt.zip(sequence))
                .map(|(id, sequence)| ReceiptReference { id, sequence }),
        })
    }

    pub(super) fn find(connection: &Connection, id: &str) -> Result<Option<Self>> {
        connection
            .prepare_cached(&format!("{SELECT} WHERE t.id = ?1"))
            .and_then(|mut statement| statement.query_row([id], Self::read).optional())
            .map_err(sql("look up the transfer"))
    }

    /// Writes the whole row and replaces the old one. Labels are stored separately.
    pub(super) fn write(&self, connection: &Connection) -> Result<()> {
        let request = &self.request;
        let first = request
            .sources
            .first()
            .map_or("", |place| place.url.as_str());
        let class = json(&request.class())?;
        let ms = |moment: Option<Timestamp>| moment.map(Timestamp::as_ms);
        connection
            .prepare_cached(&UPSERT)
            .and_then(|mut statement| {
                statement.execute(rusqlite::params![
                    self.id,
                    self.seq,
                    self.owner,
                    self.principal,
                    self.standing.state.word(),
                    self.standing.wish.map(Wish::word),
                    self.version,
                    self.attempt,
                    self.tries,
                    self.tries_without_progress,
                    self.source,
                    self.essence,
                    json(request).map_err(to_sql)?,
                    json(&self.secrets).map_err(to_sql)?,
                    class.trim_matches('"'),
                    request.activity,
                    first,
                    request.destination.url,
                    ms(request.not_before),
                    request.bound_seconds,
                    self.submitted_at.as_ms(),
                    ms(self.started_at),
                    ms(self.ended_at),
                    ms(self.next_try_at),
                    self.error.as_ref().map(json).transpose().map_err(to_sql)?,
                    json(&self.failures).map_err(to_sql)?,
                    json(&self.notices).map_err(to_sql)?,
                    request.priority,
                    ms(request.deadline),
                    ms(self.held_until(clock::now())),
                    self.number,
                    self.is_purged,
                    self.route.as_ref().map(json).transpose().map_err(to_sql)?,
                    self.claim.as_ref().map(json).transpose().map_err(to_sql)?,
                ])
            })
            .map_err(sql("store the transfer"))?;
        super::live::write(connection, &self.id, &self.counters)
    }

    /// Returns true if the transfer waits for space on a tier.
    pub(super) fn awaits_space(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| !claim.is_admitted)
    }

    /// Returns the time before which a queued transfer must not start: its `not_before`, if it is
    /// in the future. While the transfer waits for space on a tier, the time is infinite.
    fn held_until(&self, now: Timestamp) -> Option<Timestamp> {
        let is_queued = self.standing.state == State::Queued;
        if is_queued && self.awaits_space() {
            return Some(Timestamp::from_ms(i64::MAX));
        }
        self.request.not_before.filter(|at| is_queued && *at > now)
    }

    /// Adds a notice. If there are too many notices, drops the oldest one.
    pub(super) fn note(&mut self, notice: String) {
        // Keep a repeated notice only once, as the newest one.
        self.notices.retain(|known| *known != notice);
        self.notices.push(notice);
        let over = self.notices.len().saturating_sub(FAILURES_MAX);
        self.notices.drain(..over);
    }

    pub(super) fn note_all(&mut self, notices: impl IntoIterator<Item = String>) {
        notices.into_iter().for_each(|notice| self.note(notice));
    }

    /// Replaces the stored labels.
    pub(super) fn write_labels(&self, connection: &Connection) -> Result<()> {
        let failed = sql("store the labels");
        connection
            .prepare_cached("DELETE FROM labels WHERE transfer = ?1")
            .and_then(|mut statement| statement.execute([&self.id]))
            .map_err(&failed)?;
        for (key, value) in &self.request.labels {
            connection
                .prepare_cached("INSERT INTO labels VALUES (?1, ?2, ?3)")
                .and_then(|mut statement| statement.execute((&self.id, key, value)))
                .map_err(&failed)?;
        }
        Ok(())
    }

    /// Returns the request with its tickets, for a session.
    pub(super) fn whole_request(&self) -> Request {
        let mut request = self.request.clone();
        for (place, secret) in request.places_mut().zip(&self.secrets) {
            put(place, secret);
        }
        request
    }

    /// Returns the route. Each transfer that has not ended has a route.
    ///
    /// # Errors
    /// `InvalidRequest` for a row of an older version whose URLs this version cannot read.
    pub(super) fn route(&self) -> Result<&Route> {
        self.route.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "run the transfer")
                .cause(
                    "an older version of dray stored the transfer, and this version cannot \
                    read the URLs of the transfer",
                )
                .remedy("submit the transfer again")
        })
    }

    /// Returns the transfer as callers see it. `run` contains the newer values of a running
    /// transfer.
    pub(super) fn view(self, run: Option<&Run>, promise: View, now: Timestamp) -> Transfer {
        // Ignore `run` after the end of the transfer: the transfer stays in memory for a moment
        // longer.
        let run = run.filter(|_| self.standing.state == State::Active);
        let counters = run.map_or(self.counters, |run| run.counters);
        let rate = match run {
            Some(run) => run.rates(),
            None => Rates {
                now: None,
                mean: mean(&counters, self.started_at, self.ended_at),
                granted: None,
                planned: None,
                reason: None,
            },
        };
        let rate = Rates {
            planned: promise.planned,
            reason: promise.reason,
            ..rate
        };
        Transfer {
            trace_id: self.request.trace().map(|trace| trace.trace_id()),
            id: self.id,
            attempt: self.attempt,
            tries: self.tries,
            state: self.standing.state,
            version: self.version,
            attached: false,
            owner: self.owner,
            request: self.request,
            submitted_at: self.submitted_at,
            started_at: self.started_at,
            ended_at: self.ended_at,
            next_try_at: self.next_try_at,
            files: counters.files,
            bytes: counters.bytes,
            objects: counters.objects,
            profile: ProfileAnswer::from(&counters.profile),
            bottleneck: counters.profile.bottleneck().map(StageWord::from),
            rate,
            rate_limit: run.and_then(Run::limit),
            streams: run.and_then(Run::streams),
            held: run.is_some_and(|run| run.is_held),
            eta: run.and_then(|run| run.eta(now)),
            silent_seconds: run.and_then(Run::silent_seconds),
            interrupted_since: (counters.interrupted_since)
                .filter(|_| !self.standing.state.is_terminal()),
            promised: promise.is_promised,
            eta_between: None,
            miss: promise.miss,
            purged: self.is_purged && self.standing.state == State::Cancelled,
            error: self.error,
            failures: run.map_or(self.failures, |run| run.failures.clone()),
            source: self.source,
            space: None,
            notices: run.map_or(self.notices, |run| run.notices.iter().cloned().collect()),
            receipt: self.receipt,
        }
    }
}

/// Returns the rows of a statement that begins with [`SELECT`].
pub(super) fn rows(
    connection: &Connection,
    statement: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<Row>> {
    let failed = sql("read the queue");
    let mut statement = connection.prepare_cached(statement).map_err(&failed)?;
    let rows = statement.query_map(values, Row::read).map_err(&failed)?;
    rows.collect::<rusqlite::Result<_>>().map_err(&failed)
}

pub(super) fn to_sql(error: Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

fn put(place: &mut Place, secret: &Secret) {
    place.ticket.clone_from(&secret.ticket);
    place.key.clone_from(&secret.key);
    place.address.clone_from(&secret.address);
}

/// Removes the tickets from a request and returns them, place by place.
pub(super) fn secrets(request: &mut Request) -> Vec<Secret> {
    request
        .places_mut()
        .map(|place| Secret {
            ticket: place.ticket.take(),
            // The key and the address are not secret, so they also stay in the request.
            key: place.key.clone(),
            address: place.address.clone(),
        })
        .collect()
}

fn mean(counters: &Counters, started: Option<Timestamp>, ended: Option<Timestamp>) -> Option<u64> {
    let seconds = ended?.since(started?).as_secs_f64();
    (seconds > 0.0).then(|| (counters.bytes.sent as f64 / seconds) as u64)
}
