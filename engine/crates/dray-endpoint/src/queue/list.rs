//! Looking at many transfers at once.

use super::row::{Row, SELECT};
use super::schema::sql;
use super::{Queue, read_cursor};
use crate::access::Principal;
use crate::api::types::{State, TransferList, TransferOrNull, TransferQuery};
use crate::moment::Moment;
use dray_core::Result;
use rusqlite::types::Value;
use std::collections::BTreeMap;

/// Conditions of a query and their values.
#[derive(Default)]
struct Conditions {
    text: String,
    values: Vec<Value>,
}

impl Conditions {
    /// Adds one; each `?` of it takes one of the values.
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
    /// The transfers that `caller` may see and asked for, newest first. The cursor is the place of
    /// the last one: what is submitted meanwhile moves nothing.
    ///
    /// # Errors
    /// `InvalidRequest` for a cursor that is none.
    pub fn list(&self, caller: &Principal, query: &TransferQuery) -> Result<TransferList> {
        let conditions = conditions(caller, query)?;
        // One more tells whether there is a next page.
        let statement = format!(
            "{SELECT}{} ORDER BY t.seq DESC LIMIT {}",
            conditions.text,
            u64::from(query.limit) + 1
        );
        let failed = sql("list the transfers");
        let mut rows: Vec<Row> = self.read(|connection| {
            let mut statement = connection.prepare_cached(&statement).map_err(&failed)?;
            let values = rusqlite::params_from_iter(conditions.values);
            let rows = statement.query_map(values, Row::read).map_err(&failed)?;
            rows.collect::<rusqlite::Result<_>>().map_err(&failed)
        })?;
        let limit = query.limit as usize;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more);
        let next = next.map(|row| row.seq.to_string());
        let transfers = rows.into_iter().map(|row| self.view(row)).collect();
        Ok(TransferList { transfers, next })
    }

    /// Each of these ids with its transfer, if there is one that `caller` may see. Counts as asking
    /// for them.
    ///
    /// # Errors
    /// Of the database.
    pub fn query(
        &self,
        caller: &Principal,
        ids: &[String],
    ) -> Result<BTreeMap<String, TransferOrNull>> {
        let rows: Vec<Option<Row>> = self.read(|connection| {
            let find = |id: &String| Row::find(connection, id);
            ids.iter().map(find).collect()
        })?;
        let seen = rows.into_iter().zip(ids).map(|(row, id)| {
            let row = row.filter(|row| caller.sees(&row.owner));
            let transfer = row.map(|row| self.view(row));
            if let Some(transfer) = &transfer {
                self.asked_for(transfer);
            }
            (id.clone(), TransferOrNull(transfer))
        });
        Ok(seen.collect())
    }

    /// How many there are in each state.
    ///
    /// # Errors
    /// Of the database.
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

fn conditions(caller: &Principal, query: &TransferQuery) -> Result<Conditions> {
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
        let class = super::row::json(&class)?;
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
    let ms = |moment: Moment| [Value::Integer(moment.as_ms())];
    if let Some(after) = query.submitted_after {
        all.and("t.submitted_at > ?", ms(after));
    }
    if let Some(before) = query.submitted_before {
        all.and("t.submitted_at < ?", ms(before));
    }
    Ok(all)
}
