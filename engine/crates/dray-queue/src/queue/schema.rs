//! The database: its tables, the migration steps between versions, and the functions that open it.

use super::damage;
use super::sqlite::sql;
use dray_core::{End, Error, ErrorKind, Result};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// Cache size of each of the five connections. SQLite reads a negative number as KiB. With SQLite's
/// default of 2 MiB, the caches grow for days, which looks like a memory leak. The system's page
/// cache contains the database anyway.
const CACHE_KIB: i64 = -512;

/// Maximum time to wait while another program, such as a backup or an administrator's shell, locks
/// the database.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Migration steps: each step converts the tables of one version to the next version. A step in a
/// released version of dray never changes.
const STEPS: &[&str] = &[
    "
CREATE TABLE transfers (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    principal TEXT NOT NULL,
    state TEXT NOT NULL,
    wish TEXT,
    version INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    barren INTEGER NOT NULL,
    source INTEGER NOT NULL,
    essence TEXT NOT NULL,
    request TEXT NOT NULL,
    tickets TEXT NOT NULL,
    class TEXT NOT NULL,
    activity TEXT,
    source_url TEXT NOT NULL,
    destination_url TEXT NOT NULL,
    not_before INTEGER,
    bound_seconds INTEGER,
    submitted_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    next_try_at INTEGER,
    error TEXT,
    failures TEXT NOT NULL,
    notices TEXT NOT NULL
) STRICT;
CREATE INDEX transfers_owner ON transfers (owner, seq);
CREATE INDEX transfers_state ON transfers (state, seq);
CREATE INDEX transfers_ended ON transfers (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX transfers_bound ON transfers (state) WHERE bound_seconds IS NOT NULL;

CREATE TABLE counters (
    transfer TEXT PRIMARY KEY REFERENCES transfers (id) ON DELETE CASCADE,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE labels (
    transfer TEXT NOT NULL REFERENCES transfers (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (transfer, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_value ON labels (key, value, transfer);

CREATE TABLE tickets (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL UNIQUE,
    secret_sha256 BLOB NOT NULL UNIQUE,
    transfer TEXT NOT NULL,
    direction TEXT NOT NULL,
    paths TEXT NOT NULL,
    overwrite TEXT NOT NULL,
    owner TEXT NOT NULL,
    principal TEXT NOT NULL,
    peer_key TEXT NOT NULL,
    issued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    renewable_until INTEGER NOT NULL,
    revoked INTEGER NOT NULL
) STRICT;
CREATE INDEX tickets_owner ON tickets (owner, seq);
CREATE INDEX tickets_end ON tickets (renewable_until);

CREATE TABLE staging (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    direction TEXT NOT NULL,
    request TEXT NOT NULL,
    application TEXT,
    fast_path TEXT NOT NULL,
    slow_path TEXT NOT NULL,
    pinned_until INTEGER,
    evicted_at INTEGER
) STRICT;
CREATE INDEX staging_owner ON staging (owner, seq);
CREATE INDEX staging_fast ON staging (fast_path);

CREATE TABLE numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO numbers VALUES ('seq', 0);
",
    "
ALTER TABLE tickets ADD COLUMN weight INTEGER NOT NULL DEFAULT 100;
ALTER TABLE tickets ADD COLUMN rate_min INTEGER;
ALTER TABLE tickets ADD COLUMN rate_max INTEGER;
",
    // Adds columns and an index to choose the next transfer; the index has the order in which rows
    // are read. Adds two indexes for queries that each round of the dispatcher makes.
    "
ALTER TABLE transfers ADD COLUMN priority INTEGER NOT NULL DEFAULT 3;
ALTER TABLE transfers ADD COLUMN deadline INTEGER;
ALTER TABLE transfers ADD COLUMN held_until INTEGER;
UPDATE transfers SET
    priority = COALESCE(json_extract(request, '$.priority'), 3),
    deadline = CAST(ROUND((julianday(json_extract(request, '$.deadline')) - 2440587.5)
        * 86400000) AS INTEGER),
    held_until = CASE WHEN state = 'queued' THEN not_before END;
CREATE INDEX transfers_line
    ON transfers (class, priority, owner, deadline IS NULL, deadline, seq)
    WHERE state = 'queued' AND held_until IS NULL;
CREATE INDEX transfers_held ON transfers (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX transfers_purge ON transfers (seq) WHERE state = 'cancelled' AND wish IS NOT NULL;
",
    // Stores the arrival time, size and lifetime of a staged copy in the row of the copy, because
    // the transfer of the copy may be deleted before the copy. A copy without a transfer gets the
    // time of this migration as its arrival time.
    "
ALTER TABLE staging ADD COLUMN staged_at INTEGER;
ALTER TABLE staging ADD COLUMN expires_at INTEGER;
ALTER TABLE staging ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE staging SET staged_at = CASE
    WHEN EXISTS (SELECT 1 FROM transfers t WHERE t.id = staging.id)
    THEN (SELECT ended_at FROM transfers t WHERE t.id = staging.id AND t.state = 'done')
    ELSE unixepoch() * 1000 END;
UPDATE staging SET
    expires_at = staged_at + json_extract(request, '$.lifetime_seconds') * 1000,
    pinned_until = COALESCE(pinned_until,
        staged_at + json_extract(request, '$.pin_seconds') * 1000),
    bytes = COALESCE((SELECT json_extract(body, '$.bytes.durable') FROM counters c
        WHERE c.transfer = staging.id), 0);
CREATE INDEX staging_expires ON staging (expires_at)
    WHERE expires_at IS NOT NULL AND evicted_at IS NULL;
CREATE INDEX staging_evicted ON staging (evicted_at) WHERE evicted_at IS NOT NULL;
",
    // Adds a number to each transfer. The number is part of the name of the folder for the
    // transfer's lists of files. No other transfer ever has this number, even with the same id.
    // Rows of older versions have no number.
    "
ALTER TABLE transfers ADD COLUMN number INTEGER;
",
    // Adds the promises, and the capacity that was measured when they were made.
    "
CREATE TABLE promises (
    transfer TEXT PRIMARY KEY REFERENCES transfers (id) ON DELETE CASCADE,
    key INTEGER NOT NULL UNIQUE,
    bytes INTEGER,
    deadline INTEGER,
    rate_min INTEGER,
    resources TEXT NOT NULL,
    decided_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE capacities (
    resource TEXT PRIMARY KEY,
    rate INTEGER NOT NULL,
    measured_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
",
    // A policy lets groups of waiting transfers, called lines, take turns. There are three kinds of
    // lines, with one index each. A line of one owner and one label `activity` starts with the
    // earliest deadline. A line of one owner, and a line of one owner and one pair of endpoints,
    // start with the oldest transfer. The fourth index finds the oldest of all waiting transfers.
    "
ALTER TABLE transfers ADD COLUMN line TEXT GENERATED ALWAYS AS
    (owner || char(31) || COALESCE(activity, '')) VIRTUAL;
ALTER TABLE transfers ADD COLUMN source_host TEXT GENERATED ALWAYS AS
    (CASE instr(source_url, '://') WHEN 0 THEN '' ELSE
        substr(source_url, instr(source_url, '://') + 3,
            instr(substr(source_url || '/', instr(source_url, '://') + 3), '/') - 1) END) VIRTUAL;
ALTER TABLE transfers ADD COLUMN destination_host TEXT GENERATED ALWAYS AS
    (CASE instr(destination_url, '://') WHEN 0 THEN '' ELSE
        substr(destination_url, instr(destination_url, '://') + 3,
            instr(substr(destination_url || '/', instr(destination_url, '://') + 3), '/') - 1) END)
    VIRTUAL;
ALTER TABLE transfers ADD COLUMN pair TEXT GENERATED ALWAYS AS
    (source_host || char(31) || destination_host || char(31) || owner) VIRTUAL;
DROP INDEX transfers_line;
CREATE INDEX transfers_line
    ON transfers (class, priority, line, deadline IS NULL, deadline, seq)
    WHERE state = 'queued' AND held_until IS NULL;
CREATE INDEX transfers_age ON transfers (class, priority, owner, seq)
    WHERE state = 'queued' AND held_until IS NULL;
CREATE INDEX transfers_pair ON transfers (class, pair, seq)
    WHERE state = 'queued' AND held_until IS NULL;
CREATE INDEX transfers_oldest ON transfers (seq)
    WHERE state = 'queued' AND held_until IS NULL;
",
    // Adds two indexes. Each submission uses the first index to count the owner's transfers that
    // have not ended. The second index finds the tickets of a transfer.
    "
CREATE INDEX transfers_live ON transfers (owner) WHERE ended_at IS NULL;
CREATE INDEX tickets_transfer ON tickets (transfer, seq);
",
    // Adds an index of the ended transfers whose tickets are not deleted yet.
    "
CREATE INDEX transfers_secrets ON transfers (ended_at)
    WHERE ended_at IS NOT NULL AND wish IS NULL AND instr(tickets, '\"ticket\":\"drt_') > 0;
",
    // In older versions, the first of several sources was the source, and the others were replicas.
    // This step moves the replicas to their own field. It also escapes question marks and number
    // signs in paths, which older versions did not escape.
    "
UPDATE transfers SET request = json_set(request,
        '$.replicas', (SELECT json_group_array(json(value)) FROM json_each(request, '$.sources')
            WHERE key > 0),
        '$.sources', json_array(json_extract(request, '$.sources[0]')))
    WHERE json_array_length(request, '$.sources') > 1;
UPDATE transfers SET essence = json_set(essence,
        '$.replicas', (SELECT json_group_array(json(value)) FROM json_each(essence, '$.sources')
            WHERE key > 0),
        '$.sources', json_array(json_extract(essence, '$.sources[0]')))
    WHERE json_valid(essence) AND json_array_length(essence, '$.sources') > 1;
UPDATE transfers SET
    source_url = replace(replace(source_url, '?', '%3F'), '#', '%23'),
    destination_url = replace(replace(destination_url, '?', '%3F'), '#', '%23'),
    request = json_set(request,
        '$.sources', (SELECT json_group_array(json_set(value, '$.url',
            replace(replace(json_extract(value, '$.url'), '?', '%3F'), '#', '%23')))
            FROM json_each(request, '$.sources')),
        '$.destination.url',
        replace(replace(json_extract(request, '$.destination.url'), '?', '%3F'), '#', '%23'))
    WHERE instr(source_url || destination_url, '?') + instr(source_url || destination_url, '#') > 0;
UPDATE tickets SET paths = replace(replace(paths, '?', '%3F'), '#', '%23');
UPDATE staging SET
    fast_path = replace(replace(fast_path, '?', '%3F'), '#', '%23'),
    slow_path = replace(replace(slow_path, '?', '%3F'), '#', '%23');
",
    // Adds a column for completed purges. Older versions recorded a purge only as a notice.
    "
ALTER TABLE transfers ADD COLUMN purged INTEGER NOT NULL DEFAULT 0;
UPDATE transfers SET purged = 1 WHERE state = 'cancelled' AND json_valid(notices)
    AND json_extract(notices, '$[#-1]') LIKE 'purged: %';
",
    // Adds the parsed sources and destination of each transfer. The module `routes` fills the
    // column of older rows, because SQL does not know the endpoint's names.
    "
ALTER TABLE transfers ADD COLUMN route TEXT;
CREATE INDEX transfers_unresolved ON transfers (seq) WHERE route IS NULL;
",
    // Adds the versions of applications on tiers, and the observed restarts. Also marks staged
    // copies without a transfer, whose fast copy existed at the time of the request.
    "
CREATE TABLE tier_versions (
    tier TEXT NOT NULL,
    application TEXT NOT NULL,
    version INTEGER NOT NULL,
    owner TEXT NOT NULL,
    fast_path TEXT NOT NULL,
    slow_path TEXT NOT NULL,
    is_folder INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    stamp TEXT NOT NULL,
    state TEXT NOT NULL,
    written_at INTEGER NOT NULL,
    demoted_at INTEGER,
    used_at INTEGER NOT NULL,
    mtbf_seconds INTEGER,
    nodes INTEGER,
    period_seconds INTEGER,
    transfer TEXT,
    error TEXT,
    PRIMARY KEY (tier, application, version)
) STRICT, WITHOUT ROWID;
CREATE TABLE tier_restarts (
    tier TEXT NOT NULL,
    application TEXT NOT NULL,
    since INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (tier, application)
) STRICT, WITHOUT ROWID;
ALTER TABLE staging ADD COLUMN hit INTEGER NOT NULL DEFAULT 0;
",
    // Renames a column to the name of its field in `Row`. Adds the number of restarts that found
    // their fast copy. Adds replicas of versions on the other roots of a replication group, claims
    // of transfers on the space of a tier, write jobs of tiers, and requests of the tape API with
    // their files.
    "
ALTER TABLE transfers RENAME COLUMN barren TO tries_without_progress;
ALTER TABLE tier_restarts ADD COLUMN hits INTEGER NOT NULL DEFAULT 0;
UPDATE tier_restarts SET hits = MIN(count, (SELECT COUNT(*) FROM staging
    WHERE staging.hit = 1 AND staging.application = tier_restarts.application));
CREATE TABLE tier_replicas (
    tier TEXT NOT NULL,
    application TEXT NOT NULL,
    version INTEGER NOT NULL,
    root TEXT NOT NULL,
    path TEXT NOT NULL,
    stamp TEXT NOT NULL,
    transfer TEXT,
    replicated_at INTEGER,
    error TEXT,
    PRIMARY KEY (tier, application, version, root)
) STRICT, WITHOUT ROWID;
ALTER TABLE transfers ADD COLUMN claim TEXT;
CREATE INDEX transfers_claims ON transfers (seq) WHERE claim IS NOT NULL AND ended_at IS NULL;
CREATE TABLE tier_writes (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL UNIQUE,
    tier TEXT NOT NULL,
    application TEXT NOT NULL,
    version INTEGER NOT NULL,
    owner TEXT NOT NULL,
    fast_path TEXT NOT NULL,
    slow_path TEXT NOT NULL,
    placement TEXT NOT NULL,
    state TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    files INTEGER,
    period_seconds INTEGER,
    mtbf_seconds INTEGER,
    nodes INTEGER,
    lease_seconds INTEGER NOT NULL,
    submitted_at INTEGER NOT NULL,
    granted_at INTEGER,
    expires_at INTEGER,
    ended_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX tier_writes_live ON tier_writes (tier, seq) WHERE ended_at IS NULL;
CREATE INDEX tier_writes_ended ON tier_writes (ended_at) WHERE ended_at IS NOT NULL;
CREATE TABLE tape_requests (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    principal TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE TABLE tape_files (
    request TEXT NOT NULL REFERENCES tape_requests (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    copy TEXT NOT NULL UNIQUE,
    slow_path TEXT NOT NULL,
    fast_path TEXT NOT NULL,
    activity TEXT,
    priority INTEGER,
    lifetime_seconds INTEGER NOT NULL,
    state TEXT NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    error TEXT,
    PRIMARY KEY (request, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX tape_files_path ON tape_files (path);
CREATE INDEX tape_files_live ON tape_files (state) WHERE finished_at IS NULL;
",
    // Adds the claims of tickets on the space of tiers.
    "
CREATE TABLE ticket_claims (
    ticket TEXT PRIMARY KEY REFERENCES tickets (id) ON DELETE CASCADE,
    claim_tier TEXT NOT NULL,
    claim_bytes INTEGER NOT NULL,
    claim_admitted INTEGER NOT NULL,
    claim_ended INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
",
    // Adds the receipts, the ended attempts whose receipt is not written yet, and the sessions that
    // broke off. `run` is the value of `seq` of an attempt, which no other attempt ever has.
    "
CREATE TABLE receipts (
    sequence INTEGER PRIMARY KEY,
    run INTEGER NOT NULL UNIQUE,
    id TEXT NOT NULL,
    issued_at INTEGER NOT NULL
) STRICT;
CREATE TABLE receipts_due (
    run INTEGER PRIMARY KEY,
    folder TEXT NOT NULL,
    ended TEXT NOT NULL
) STRICT;
CREATE TABLE breaks (
    run INTEGER NOT NULL,
    try INTEGER NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (run, try)
) STRICT, WITHOUT ROWID;
",
    // Adds the index of the next tries, which the queue reads in each tick.
    "
CREATE INDEX transfers_next_try ON transfers (next_try_at) WHERE state = 'waiting';
",
];

/// Opens the database for writing. Creates it, or migrates it to the newest version, if necessary.
pub(super) fn open(path: &Path) -> Result<Connection> {
    let failed = damage::opening(path);
    let mut connection = Connection::open(path).map_err(&failed)?;
    set_up(&connection).map_err(&failed)?;
    let version: usize = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(&failed)?;
    if version > STEPS.len() {
        return Err(
            Error::new(ErrorKind::LogVersion, End::Here, "open the queue")
                .cause(format!(
                    "{} has version {version}, but this program supports versions up to {}",
                    path.display(),
                    STEPS.len()
                ))
                .remedy("run the newer version of dray that wrote the file"),
        );
    }
    damage::look_at_pages(&connection, path)?;
    let transaction = connection.transaction().map_err(&failed)?;
    for step in &STEPS[version..] {
        transaction.execute_batch(step).map_err(&failed)?;
    }
    transaction
        .pragma_update(None, "user_version", STEPS.len())
        .map_err(&failed)?;
    transaction.commit().map_err(&failed)?;
    let model = tables().map_err(&failed)?;
    damage::look_at_rows(&connection, &model, path)?;
    damage::note_made(path)?;
    Ok(connection)
}

/// Opens for writing a database that this process has already opened before.
pub(super) fn open_again(path: &Path) -> Result<Connection> {
    let failed = sql("open the queue again");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(&failed)?;
    set_up(&connection).map_err(&failed)?;
    Ok(connection)
}

fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_WAIT)?;
    connection.pragma_update(None, "cache_size", CACHE_KIB)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;",
    )
}

/// Returns an in-memory database with the empty tables of the newest version.
fn tables() -> rusqlite::Result<Connection> {
    let connection = Connection::open_in_memory()?;
    for step in STEPS {
        connection.execute_batch(step)?;
    }
    Ok(connection)
}

/// Opens a connection for reading only.
pub(super) fn open_reader(path: &Path) -> Result<Connection> {
    let failed = sql("open the queue to read");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(&failed)?;
    connection.busy_timeout(BUSY_WAIT).map_err(&failed)?;
    connection
        .pragma_update(None, "cache_size", CACHE_KIB)
        .map_err(&failed)?;
    Ok(connection)
}

#[cfg(test)]
mod tests;
