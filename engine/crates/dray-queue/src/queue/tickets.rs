//! The tickets that this endpoint issued. The database stores only the SHA-256 of each secret.

use super::actor::Actor;
use super::sqlite::sql;
use super::{Effects, Queue, next_seq, read_cursor};
use dray_api::Direction;
use dray_api::RateWish;
use dray_api::Timestamp;
use dray_core::options::Overwrite;
use dray_core::{End, Error, ErrorKind, Result};
use rusqlite::{Connection, OptionalExtension};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A ticket as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketRow {
    /// The ticket's id.
    pub id: String,
    /// Id of its transfer.
    pub transfer: String,
    /// Direction of the transfer.
    pub direction: Direction,
    /// API paths that the ticket permits.
    pub paths: Vec<String>,
    /// The permitted replacement of existing files.
    pub overwrite: Overwrite,
    /// Owner whose rights the ticket has.
    pub owner: String,
    /// Name of the principal that requested the ticket.
    pub principal: String,
    /// Fingerprint of the key of the only peer that may use the ticket.
    pub peer_key: String,
    /// Time at which the ticket was issued.
    pub issued_at: Timestamp,
    /// End of the ticket's validity.
    pub expires_at: Timestamp,
    /// Time until which the ticket can be renewed.
    pub renewable_until: Timestamp,
    /// True if the ticket was revoked.
    pub is_revoked: bool,
    /// Requested rates of the ticket's sessions at this endpoint.
    pub wish: RateWish,
    /// Claim on the space of a tier.
    pub claim: Option<TicketClaim>,
}

/// The claim of a ticket on the space of a tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketClaim {
    /// Name of the tier.
    pub tier: String,
    /// Claimed bytes.
    pub bytes: u64,
    /// True after the tier has admitted the claim.
    pub is_admitted: bool,
    /// True after the transfer has ended.
    pub is_ended: bool,
}

/// Start of a statement that reads tickets.
const SELECT: &str = "SELECT * FROM tickets LEFT JOIN ticket_claims ON ticket = id";

/// The table of tickets.
#[derive(Debug, Clone, Copy)]
pub struct TicketTable<'q>(&'q Queue);

fn word(value: &impl Serialize) -> Result<String> {
    Ok(super::sqlite::json(value)?.trim_matches('"').to_owned())
}

fn read_word<T: DeserializeOwned>(text: String) -> rusqlite::Result<T> {
    serde_json::from_value(serde_json::Value::String(text)).map_err(from_sql)
}

fn from_sql(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<TicketRow> {
    let moment = |column: &str| row.get(column).map(Timestamp::from_ms);
    let paths: String = row.get("paths")?;
    Ok(TicketRow {
        id: row.get("id")?,
        transfer: row.get("transfer")?,
        direction: read_word(row.get("direction")?)?,
        paths: serde_json::from_str(&paths).map_err(from_sql)?,
        overwrite: read_word(row.get("overwrite")?)?,
        owner: row.get("owner")?,
        principal: row.get("principal")?,
        peer_key: row.get("peer_key")?,
        issued_at: moment("issued_at")?,
        expires_at: moment("expires_at")?,
        renewable_until: moment("renewable_until")?,
        is_revoked: row.get("revoked")?,
        wish: RateWish {
            weight: row.get("weight")?,
            rate_min: row.get("rate_min")?,
            rate_max: row.get("rate_max")?,
            ..RateWish::default()
        },
        claim: match row.get::<_, Option<String>>("claim_tier")? {
            Some(tier) => Some(TicketClaim {
                tier,
                bytes: row.get("claim_bytes")?,
                is_admitted: row.get("claim_admitted")?,
                is_ended: row.get("claim_ended")?,
            }),
            None => None,
        },
    })
}

/// Refuses a further ticket if the owner has the maximum number of tickets.
fn check_room(connection: &Connection, owner: &str, per_owner: u64) -> Result<()> {
    let kept: u64 = connection
        .prepare_cached("SELECT COUNT(*) FROM tickets WHERE owner = ?1")
        .and_then(|mut statement| statement.query_row([owner], |row| row.get(0)))
        .map_err(sql("count the tickets"))?;
    match kept < per_owner {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Busy, End::Here, "create the ticket")
            .cause(format!(
                "{owner} already has {kept} tickets, which is the limit"
            ))
            .remedy(
                "ask the administrator for a higher `tickets.per_owner` or a shorter \
                `tickets.lifetime_max`",
            )),
    }
}

impl Queue {
    /// Returns the table of tickets.
    #[must_use]
    pub const fn tickets(&self) -> TicketTable<'_> {
        TicketTable(self)
    }
}

impl TicketTable<'_> {
    /// Stores a new ticket.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if the owner has the maximum number of tickets. Errors of the database.
    pub fn insert(&self, ticket: &TicketRow, secret_sha256: [u8; 32]) -> Result<()> {
        let ticket = ticket.clone();
        let per_owner = self.0.settings.tickets_of_owner;
        self.0.write(move |connection, _: &mut Effects| {
            check_room(connection, &ticket.owner, per_owner)?;
            let values = rusqlite::params![
                ticket.id,
                next_seq(connection)?,
                secret_sha256,
                ticket.transfer,
                word(&ticket.direction)?,
                super::sqlite::json(&ticket.paths)?,
                word(&ticket.overwrite)?,
                ticket.owner,
                ticket.principal,
                ticket.peer_key,
                ticket.issued_at.as_ms(),
                ticket.expires_at.as_ms(),
                ticket.renewable_until.as_ms(),
                ticket.is_revoked,
                ticket.wish.weight,
                ticket.wish.rate_min,
                ticket.wish.rate_max,
            ];
            connection
                .execute(
                    "INSERT INTO tickets (id, seq, secret_sha256, transfer, direction, paths,
                     overwrite, owner, principal, peer_key, issued_at, expires_at,
                     renewable_until, revoked, weight, rate_min, rate_max)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
                     ?16, ?17)",
                    values,
                )
                .map_err(sql("store the ticket"))?;
            if let Some(claim) = &ticket.claim {
                connection
                    .execute(
                        "INSERT INTO ticket_claims (ticket, claim_tier, claim_bytes,
                         claim_admitted, claim_ended) VALUES (?1, ?2, ?3, ?4, ?5)",
                        (
                            &ticket.id,
                            &claim.tier,
                            claim.bytes,
                            claim.is_admitted,
                            claim.is_ended,
                        ),
                    )
                    .map_err(sql("store the space reservation of the ticket"))?;
            }
            Ok(())
        })
    }

    /// Returns the valid tickets that have a claim on `tier`, and whose transfer has not ended. The
    /// oldest ticket comes first.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn with_claims(&self, tier: &str, now: Timestamp) -> Result<Vec<TicketRow>> {
        let failed = sql("list the space reservations of tickets");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(&format!(
                    "{SELECT} WHERE claim_tier = ?1 AND claim_ended = 0 AND revoked = 0
                     AND expires_at > ?2 ORDER BY seq"
                ))
                .map_err(&failed)?;
            let rows = statement.query_map((tier, now.as_ms()), read);
            let rows = rows.map_err(&failed)?;
            rows.collect::<rusqlite::Result<_>>().map_err(&failed)
        })
    }

    /// Admits the claims of tickets.
    ///
    /// # Errors
    /// Errors of the database. No claim is admitted then.
    pub fn admit(&self, ids: Vec<String>) -> Result<()> {
        self.set_claims(
            ids,
            "UPDATE ticket_claims SET claim_admitted = 1 WHERE ticket = ?1",
        )
    }

    /// Ends the claim of a ticket, because the ticket's transfer has ended.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn end_claim(&self, id: &str) -> Result<()> {
        let statement = "UPDATE ticket_claims SET claim_ended = 1 WHERE ticket = ?1";
        self.set_claims(vec![id.to_owned()], statement)
    }

    fn set_claims(&self, ids: Vec<String>, statement: &'static str) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.0.write(move |connection, _| {
            for id in &ids {
                connection
                    .prepare_cached(statement)
                    .and_then(|mut statement| statement.execute([id]))
                    .map_err(sql("change the space reservation of a ticket"))?;
            }
            Ok(())
        })
    }

    /// Returns the ticket with this secret.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn by_secret(&self, secret_sha256: [u8; 32]) -> Result<Option<TicketRow>> {
        self.0.read(|connection| {
            one(
                connection,
                &format!("{SELECT} WHERE secret_sha256 = ?1"),
                [secret_sha256.as_slice()],
            )
        })
    }

    /// Returns the ticket with this id.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn by_id(&self, id: &str) -> Result<Option<TicketRow>> {
        self.0
            .read(|connection| one(connection, &format!("{SELECT} WHERE id = ?1"), [id]))
    }

    /// Returns a page of the tickets that `caller` may see, newest first, and the cursor of the
    /// next page.
    ///
    /// # Errors
    /// `InvalidRequest` for an invalid cursor.
    pub fn list(
        &self,
        caller: &Actor,
        transfer: Option<&str>,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<TicketRow>, Option<String>)> {
        let before = read_cursor(cursor)?;
        let owner = (!caller.is_administrator).then_some(caller.owner.as_str());
        let failed = sql("list the tickets");
        let mut rows: Vec<(TicketRow, i64)> = self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(&format!(
                    "{SELECT} WHERE seq < ?1 AND (?2 IS NULL OR owner = ?2)
                     AND (?3 IS NULL OR transfer = ?3) ORDER BY seq DESC LIMIT ?4"
                ))
                .map_err(&failed)?;
            let rows = statement
                .query_map((before, owner, transfer, u64::from(limit) + 1), |row| {
                    Ok((read(row)?, row.get("seq")?))
                })
                .map_err(&failed)?;
            rows.collect::<rusqlite::Result<_>>().map_err(&failed)
        })?;
        let has_more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next = rows
            .last()
            .filter(|_| has_more)
            .map(|(_, seq)| seq.to_string());
        Ok((rows.into_iter().map(|(row, _)| row).collect(), next))
    }

    /// Returns true if a ticket of this transfer is still valid, so that another endpoint may use
    /// it.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_awaited(&self, transfer: &str, now: Timestamp) -> Result<bool> {
        self.0.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM tickets WHERE transfer = ?1 AND revoked = 0
                     AND expires_at > ?2)",
                )
                .and_then(|mut statement| {
                    statement.query_row((transfer, now.as_ms()), |row| row.get(0))
                })
                .map_err(sql("look up a ticket"))
        })
    }

    /// Extends a ticket until `expires_at`. Returns false if the ticket does not exist or was
    /// revoked.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn renew(&self, id: &str, expires_at: Timestamp) -> Result<bool> {
        let id = id.to_owned();
        self.0.write(move |connection, _| {
            let changed = connection
                .execute(
                    "UPDATE tickets SET expires_at = ?2 WHERE id = ?1 AND revoked = 0",
                    (id, expires_at.as_ms()),
                )
                .map_err(sql("renew the ticket"))?;
            Ok(changed == 1)
        })
    }

    /// Sets the weight and the requested rates of a ticket's sessions. Returns true if the ticket
    /// exists.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn set_wish(&self, id: &str, wish: RateWish) -> Result<bool> {
        let id = id.to_owned();
        self.0.write(move |connection, _| {
            let changed = connection
                .execute(
                    "UPDATE tickets SET weight = ?2, rate_min = ?3, rate_max = ?4 WHERE id = ?1",
                    (id, wish.weight, wish.rate_min, wish.rate_max),
                )
                .map_err(sql("change the ticket"))?;
            Ok(changed == 1)
        })
    }

    /// Revokes a ticket. Returns true if the ticket exists.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn revoke(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.0.write(move |connection, _| {
            let changed = connection
                .execute("UPDATE tickets SET revoked = 1 WHERE id = ?1", [id])
                .map_err(sql("revoke the ticket"))?;
            Ok(changed == 1)
        })
    }

    /// Deletes tickets whose validity and renewal both ended before `before`. Returns the number of
    /// deleted tickets.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn prune(&self, before: Timestamp) -> Result<usize> {
        self.0.write(move |connection, _| {
            connection
                .execute(
                    "DELETE FROM tickets WHERE renewable_until < ?1 AND expires_at < ?1",
                    [before.as_ms()],
                )
                .map_err(sql("delete old tickets"))
        })
    }
}

fn one(
    connection: &Connection,
    statement: &str,
    values: impl rusqlite::Params,
) -> Result<Option<TicketRow>> {
    connection
        .prepare_cached(statement)
        .and_then(|mut statement| statement.query_row(values, read).optional())
        .map_err(sql("look up the ticket"))
}
