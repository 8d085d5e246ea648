//! Lists and queries that return many transfers.

use super::actor::Actor;
use super::row::{Row, SELECT};
use super::sqlite::sql;
use super::{Queue, read_cursor};
use dray_api::Timestamp;
use dray_api::{State, TransferList, TransferOrNull, TransferQuery};
use dray_core::{End, Error, ErrorKind, Result};
use rusqlite::types::{Value, ValueRef};
use std::collections::{BTreeMap, BTreeSet};

/// Size in bytes at which a page of transfers ends. Only the columns in [`LONG`] count. A thousand
/// transfers of usual size have 2 MiB.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Maximum size in bytes of an answer that is not divided into pages.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The columns of a row that may be long.
const LONG: [&str; 5] = ["request", "error", "failures", "notices", "counters"];

/// Returns the approximate size of a row in bytes.
fn bytes_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<usize> {
    let mut bytes = 0;
    for column in LONG {
        bytes += match row.get_ref(column)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            _ => 0,
        };
    }
    Ok(bytes)
}

/// Reads the first rows of `found`: at least one row, at most `limit` rows, and at most `bytes_max`
/// bytes. Returns true if there are more rows.
fn page(
    mut found: rusqlite::Rows<'_>,
    limit: usize,
    bytes_max: usize,
) -> rusqlite::Result<(Vec<Row>, bool)> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(row) = found.next()? {
        bytes += bytes_of(row)?;
        if rows.len() == limit || (bytes > bytes_max && !rows.is_empty()) {
            return Ok((rows, true));
        }
        rows.push(Row::read(row)?);
    }
    Ok((rows, false))
}

fn too_large() -> Error {
    Error::new(ErrorKind::LimitExceeded, End::Here, "answer")
        .cause(format!(
            "the answer would have more than {ANSWER_BYTES_MAX} bytes"
        ))
        .remedy("ask for fewer ids in one call")
}

/// Conditions of an SQL query, and the values for their question marks.
#[derive(Default)]
struct Conditions {
    text: String,
    values: Vec<Value>,
}

impl Conditions {
    /// Adds a condition. Each `?` in the condition takes one of the values.
    fn and(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        self.text.push_str(if self.text.is_empty() {
            " WHERE "
        } else {
            " AND "
        });
        self.text.push_str(condition);
        self.values.extend(values);
    }
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

impl Queue {
    /// Returns the transfers that `caller` may see and that match `query`, newest first. The cursor
    /// is the sequence number of the last transfer in a page, so new submissions do not shift the
    /// pages.
    ///
    /// # Errors
    /// `InvalidRequest` for an invalid cursor.
    pub fn list(&self, caller: &Actor, query: &TransferQuery) -> Result<TransferList> {
        let conditions = conditions(caller, query)?;
        // Read one row more than the page has, to find out whether there is a next page.
        let statement = format!(
            "{SELECT}{} ORDER BY t.seq DESC LIMIT {}",
            conditions.text,
            u64::from(query.limit) + 1
        );
        let failed = sql("list the transfers");
        let (rows, has_more) = self.read(|connection| {
            let mut statement = connection.prepare_cached(&statement).map_err(&failed)?;
            let values = rusqlite::params_from_iter(conditions.values);
            let found = statement.query(values).map_err(&failed)?;
            page(found, query.limit as usize, PAGE_BYTES_MAX).map_err(&failed)
        })?;
        let next = rows.last().filter(|_| has_more);
        let next = next.map(|row| row.seq.to_string());
        let transfers = rows.into_iter().map(|row| self.view(row)).collect();
        Ok(TransferList { transfers, next })
    }

    /// Returns a map from each of the ids to its transfer. The value is null if there is no such
    /// transfer, or if `caller` may not see the transfer. The call counts as a query of these
    /// transfers, so their `bound_seconds` start again.
    ///
    /// # Errors
    /// `LimitExceeded` if the transfers together exceed the maximum size of an answer.
    pub fn query(
        &self,
        caller: &Actor,
        ids: &[String],
    ) -> Result<BTreeMap<String, TransferOrNull>> {
        // Remove repeated ids.
        let ids: BTreeSet<&String> = ids.iter().collect();
        let failed = sql("look up the transfers");
        let rows: Vec<Option<Row>> = self.read(|connection| {
            let statement = format!("{SELECT} WHERE t.id = ?1");
            let mut statement = connection.prepare_cached(&statement).map_err(&failed)?;
            let mut bytes = 0;
            let mut find = |id: &&String| {
                let mut found = statement.query([id]).map_err(&failed)?;
                let Some(row) = found.next().map_err(&failed)? else {
                    return Ok(None);
                };
                let owner: String = row.get("owner").map_err(&failed)?;
                if !caller.sees(&owner) {
                    return Ok(None);
                }
                bytes += bytes_of(row).map_err(&failed)?;
                if bytes > ANSWER_BYTES_MAX {
                    return Err(too_large());
                }
                Row::read(row).map(Some).map_err(&failed)
            };
            ids.iter().map(&mut find).collect()
        })?;
        let seen = rows.into_iter().zip(ids).map(|(row, id)| {
            let transfer = row.map(|row| self.view(row));
            if let Some(transfer) = &transfer {
                self.asked_for(transfer);
            }
            (id.clone(), TransferOrNull(transfer))
        });
        Ok(seen.collect())
    }

    /// Returns the number of transfers in each state.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn count_by_state(&self) -> Result<Vec<(State, u64)>> {
        let failed = sql("count the transfers");
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT COUNT(*) FROM transfers WHERE state = ?1")
                .map_err(&failed)?;
            let mut count = |state: State| {
                let count = statement.query_row([state.word()], |row| row.get(0));
                count.map(|count| (state, count)).map_err(&failed)
            };
            State::ALL.into_iter().map(&mut count).collect()
        })
    }
}

fn conditions(caller: &Actor, query: &TransferQuery) -> Result<Conditions> {
    let mut all = Conditions::default();
    all.and(
        "t.seq < ?",
        [Value::Integer(read_cursor(query.cursor.as_deref())?)],
    );
    if !caller.is_administrator {
        all.and("t.owner = ?", [text(&caller.owner)]);
    }
    if let Some(owner) = &query.owner {
        all.and("t.owner = ?", [text(owner)]);
    }
    if !query.state.is_empty() {
        let means = |state: &State| query.state.iter().any(|word| word.means(*state));
        let words: Vec<_> = State::ALL
            .iter()
            .filter(|state| means(state))
            .map(|state| format!("'{}'", state.word()))
            .collect();
        all.and(&format!("t.state IN ({})", words.join(", ")), []);
    }
    if let Some(activity) = &query.activity {
        all.and("t.activity = ?", [text(activity)]);
    }
    if let Some(class) = query.class {
        let class = super::sqlite::json(&class)?;
        all.and("t.class = ?", [text(class.trim_matches('"'))]);
    }
    for label in &query.label {
        let (key, value) = label.split_once(':').unwrap_or((label, ""));
        all.and(
            "EXISTS (SELECT 1 FROM labels l WHERE l.transfer = t.id AND l.key = ? AND l.value = ?)",
            [text(key), text(value)],
        );
    }
    for (column, prefix) in [
        ("source_url", &query.source),
        ("destination_url", &query.destination),
    ] {
        if let Some(prefix) = prefix {
            let length = i64::try_from(prefix.chars().count()).unwrap_or(i64::MAX);
            let condition = format!("substr(t.{column}, 1, ?) = ?");
            all.and(&condition, [Value::Integer(length), text(prefix)]);
        }
    }
    let ms = |moment: Timestamp| [Value::Integer(moment.as_ms())];
    if let Some(after) = query.submitted_after {
        all.and("t.submitted_at > ?", ms(after));
    }
    if let Some(before) = query.submitted_before {
        all.and("t.submitted_at < ?", ms(before));
    }
    Ok(all)
}
