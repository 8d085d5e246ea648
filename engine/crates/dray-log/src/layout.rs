//! Names and places of logs, leases and partial files. Pure names; the runtime searches for the
//! files.
//!
//! For a destination folder `top` (for a single file: its folder) a transfer's log is
//! `top/.dray-log/<16 hex>.log`, its lease `top/.dray-log/<16 hex>.lease`; the partial file of
//! `folder/name` is `folder/.dray-<16 hex>.part`. All begin with dray's reserved prefix, so they
//! are never sent and never accepted from a manifest.

use dray_core::path::escape;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result, TransferId};

/// Folder beneath a destination's top folder that holds logs and leases.
pub const LOG_FOLDER: &[u8] = b".dray-log";

/// Offset basis and prime of the 64-bit FNV-1a hash (Fowler, Noll and Vo). A name needs spread, not
/// secrecy: the header determines the claims of a log, and the log the owner of a partial file.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns the folder's name.
///
/// # Errors
/// No error in practice: the name is a constant that [`Name`] accepts.
pub fn log_folder_name() -> Result<Name> {
    Name::new(LOG_FOLDER)
}

/// Returns the name of the log of `transfer` for `claims`. No two transfers share a log, and a
/// transfer that runs again finds its own log. Order and repetition of the claims do not matter.
///
/// # Errors
/// No error in practice, as above.
pub fn log_name(claims: &[RelPath], transfer: &TransferId) -> Result<Name> {
    Name::new(format!("{:016x}.log", log_hash(claims, transfer)).as_bytes())
}

/// Returns the name of the lease of the log of `transfer` for `claims`.
///
/// # Errors
/// No error in practice, as above.
pub fn lease_name(claims: &[RelPath], transfer: &TransferId) -> Result<Name> {
    Name::new(format!("{:016x}.lease", log_hash(claims, transfer)).as_bytes())
}

/// Returns the identifier of a request: equal for two transfers that name the same files at the
/// same place with the same patterns. 0 if the names are not known beforehand (the contents of a
/// folder).
#[must_use]
pub fn request_mark(claims: &[RelPath], include: &[String], exclude: &[String]) -> u64 {
    if claims.is_empty() {
        return 0;
    }
    let mut hash = claims_hash(claims);
    for patterns in [include, exclude] {
        let mut sorted: Vec<&String> = patterns.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        hash = fnv(hash, &[0, 0xfe]);
        for pattern in sorted {
            hash = fnv(fnv(hash, pattern.as_bytes()), &[0]);
        }
    }
    hash.max(1)
}

/// Returns the name of the lease for the log named `log`; `None` if `log` is not the name of a log.
#[must_use]
pub fn lease_of_log(log: &Name) -> Option<Name> {
    let hex = hex_of(log.as_bytes().strip_suffix(b".log")?)?;
    Name::new(&[hex, b".lease"].concat()).ok()
}

/// Returns the name of the log to which a file of the log folder belongs: the log itself, its
/// lease, or the replacement that a holder had begun to write before it died; `None` for any other
/// name.
#[must_use]
pub fn log_of(file: &Name) -> Option<Name> {
    let bytes = file.as_bytes();
    let endings: [&[u8]; 3] = [b".log", b".lease", b".log.next"];
    let hex = endings.iter().find_map(|end| bytes.strip_suffix(*end))?;
    Name::new(&[hex_of(hex)?, b".log"].concat()).ok()
}

/// Returns true if a partial file may have this name.
#[must_use]
pub fn is_partial_name(name: &Name) -> bool {
    let hex = name.as_bytes().strip_prefix(b".dray-");
    let hex = hex.and_then(|rest| rest.strip_suffix(b".part"));
    hex.and_then(hex_of).is_some()
}

fn hex_of(bytes: &[u8]) -> Option<&[u8]> {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (bytes.len() == 16 && bytes.iter().all(is_hex)).then_some(bytes)
}

/// Returns the name of the partial file of a file that will be called `final_name`. Every writer of
/// that file computes the same name, whatever its log, so that two writers meet at the file.
///
/// # Errors
/// [`ErrorKind::InvalidName`] if the final name is dray's own.
pub fn partial_name(final_name: &Name) -> Result<Name> {
    partial_name_at_turn(final_name, 0)
}

/// Returns the name to use if the name of the turn before is the partial file of *another* final
/// name (two names with one hash; a hostile manifest can construct some).
///
/// # Errors
/// Those of [`partial_name`].
pub fn partial_name_at_turn(final_name: &Name, turn: u32) -> Result<Name> {
    if final_name.is_reserved() {
        return Err(
            Error::new(ErrorKind::InvalidName, End::Sink, "name a partial file")
                .cause(format!(
                    "{}: names that begin with .dray- are reserved",
                    escape(final_name.as_bytes())
                ))
                .remedy("rename it, or leave it out with --exclude"),
        );
    }
    let mut hash = fnv(FNV_BASIS, final_name.as_bytes());
    if turn > 0 {
        // A name contains no zero byte, so no name's turn 0 is another's turn 1 by design.
        hash = fnv(fnv(hash, &[0]), &turn.to_le_bytes());
    }
    Name::new(format!(".dray-{hash:016x}.part").as_bytes())
}

/// Returns the name to use if the names of all turns are in use: no other log gives it to any file.
///
/// # Errors
/// Those of [`partial_name`].
pub fn partial_name_of_log(final_name: &Name, turn: u32, log: &Name) -> Result<Name> {
    // Rejects dray's own names.
    partial_name(final_name)?;
    let hash = fnv(fnv(FNV_BASIS, final_name.as_bytes()), &[0]);
    let hash = fnv(fnv(hash, &turn.to_le_bytes()), log.as_bytes());
    Name::new(format!(".dray-{hash:016x}.part").as_bytes())
}

/// Returns true if a log with these claims covers `path` (relative to the log's top folder).
#[must_use]
pub fn covers(claims: &[RelPath], path: &RelPath) -> bool {
    claims.is_empty() || claims.iter().any(|claim| path.starts_with(claim))
}

/// Returns FNV-1a 64 over the sorted, distinct claims, a zero byte after each.
fn claims_hash(claims: &[RelPath]) -> u64 {
    let mut sorted: Vec<&[u8]> = claims.iter().map(RelPath::as_bytes).collect();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
        .into_iter()
        .fold(FNV_BASIS, |hash, claim| fnv(fnv(hash, claim), &[0]))
}

/// Continues the hash over bytes that end no claim, and over the transfer id.
fn log_hash(claims: &[RelPath], transfer: &TransferId) -> u64 {
    let hash = fnv(claims_hash(claims), &[0, 0xff]);
    fnv(hash, transfer.as_str().as_bytes())
}

fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
    })
}

#[cfg(test)]
mod tests;
