//! Names of logs, leases and partial files. This module only computes the names. The runtime opens
//! the files.
//!
//! The log of a transfer to the destination folder `top` is `top/.dray-log/<16 hex>.log`, and its
//! lease is `top/.dray-log/<16 hex>.lease`. Its part logs are
//! `top/.dray-log/<16 hex>.<8 hex>.objects`. For a single file, `top` is the folder of that file.
//! The partial file of `folder/name` is `folder/.dray-<16 hex>.part`, or
//! `folder/.dray-<16 hex>.disks.part` if the destination is on several disks. All these names start
//! with dray's reserved prefix. A source never sends such names, and a sink never accepts them in a
//! manifest.

use dray_core::path::escape;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result, TransferId};

/// Name of the folder that contains logs and leases. It is in the top folder of a destination.
pub const LOG_FOLDER: &[u8] = b".dray-log";

/// Beginning of the name of a partial file.
const PREFIX: &[u8] = b".dray-";
/// End of the name of a partial file in one folder.
const PART: &[u8] = b".part";
/// End of the name of a partial file in a store with several disks.
const DISKS_PART: &[u8] = b".disks.part";

/// End of the name of a part log.
const PART_LOG: &[u8] = b".objects";

/// Offset basis of the 64-bit FNV-1a hash (Fowler, Noll and Vo). A weak hash suffices for names,
/// because the header of a log contains its claims, and the log contains the final path of each
/// partial file.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns the name of the log folder.
///
/// # Errors
/// No error occurs, because the name is a constant that is valid as a [`Name`].
pub fn log_folder_name() -> Result<Name> {
    Name::new(LOG_FOLDER)
}

/// Returns the name of the log of `transfer` for `claims`. Each transfer has its own log, and a
/// rerun of the transfer gets the same name. The order of claims and repeated claims do not change
/// the name.
///
/// # Errors
/// No error occurs, because the name is always valid as a [`Name`].
pub fn log_name(claims: &[RelPath], transfer: &TransferId) -> Result<Name> {
    Name::new(format!("{:016x}.log", log_hash(claims, transfer)).as_bytes())
}

/// Returns the name of the lease of the log of `transfer` for `claims`.
///
/// # Errors
/// No error occurs, because the name is always valid as a [`Name`].
pub fn lease_name(claims: &[RelPath], transfer: &TransferId) -> Result<Name> {
    Name::new(format!("{:016x}.lease", log_hash(claims, transfer)).as_bytes())
}

/// Returns a number that identifies a request. Two transfers have the same number if their claims
/// and their patterns are equal. The number is 0 if the claims are unknown in advance, as for the
/// contents of a folder.
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

/// Returns the name of the log to which a file in the log folder belongs. `file` may be the log
/// itself, its lease, one of its part logs, or a replacement that a holder did not finish. Returns
/// `None` for any other name.
#[must_use]
pub fn log_of(file: &Name) -> Option<Name> {
    let bytes = file.as_bytes();
    let endings: [&[u8]; 3] = [b".log", b".lease", b".log.next"];
    let part = bytes.strip_suffix(b".next").unwrap_or(bytes);
    let hex = match split_part(part) {
        Some((hex, _)) => hex,
        None => hex_of(endings.iter().find_map(|end| bytes.strip_suffix(*end))?)?,
    };
    Name::new(&[hex, b".log"].concat()).ok()
}

/// Returns the name of the lease of the log to which a file in the log folder belongs. See
/// [`log_of`].
#[must_use]
pub fn lease_beside(file: &Name) -> Option<Name> {
    lease_of_log(&log_of(file)?)
}

/// Returns the name of the part log with the number `part` of the log named `log`; `None` if `log`
/// is not the name of a log.
#[must_use]
pub fn part_of_log(log: &Name, part: u32) -> Option<Name> {
    let hex = hex_of(log.as_bytes().strip_suffix(b".log")?)?;
    Name::new(&[hex, format!(".{part:08x}").as_bytes(), PART_LOG].concat()).ok()
}

/// Returns the number of a part log of the log named `log`; `None` for the name of another file.
#[must_use]
pub fn part_number(log: &Name, file: &Name) -> Option<u32> {
    let (hex, part) = split_part(file.as_bytes())?;
    let own = hex_of(log.as_bytes().strip_suffix(b".log")?)?;
    (own == hex).then_some(part)
}

/// Returns true if `file` is a part log of the log named `log`, or a replacement of a part log that
/// a holder did not finish.
#[must_use]
pub fn is_of_part(log: &Name, file: &Name) -> bool {
    let bytes = file.as_bytes();
    let part = split_part(bytes.strip_suffix(b".next").unwrap_or(bytes));
    part.is_some() && log_of(file).as_ref() == Some(log)
}

/// Splits the name of a part log into the digits of its log and its number.
fn split_part(file: &[u8]) -> Option<(&[u8], u32)> {
    let rest = file.strip_suffix(PART_LOG)?;
    let (hex, digits) = rest.split_at_checked(16)?;
    let digits = std::str::from_utf8(digits.strip_prefix(b".")?).ok()?;
    let is_plain = digits.len() == 8 && !digits.bytes().any(|byte| byte.is_ascii_uppercase());
    let part = u32::from_str_radix(digits, 16).ok()?;
    (is_plain && !digits.starts_with('+')).then_some((hex_of(hex)?, part))
}

/// Returns true if `name` has the form of the name of a partial file.
#[must_use]
pub fn is_partial_name(name: &Name) -> bool {
    hex_before(name, PART).is_some() || is_on_disks(name)
}

/// Returns true if `name` has the form of the name of a partial file in a store with several disks.
#[must_use]
pub fn is_on_disks(name: &Name) -> bool {
    hex_before(name, DISKS_PART).is_some()
}

/// Converts the name of a partial file to the name that the file gets in a store with several
/// disks. A transfer that uses one of the disks as a plain folder never makes a file of such a
/// name. It cannot see the logs that name these files, because these logs are on the first disk.
///
/// # Errors
/// [`ErrorKind::InvalidName`] if `partial` does not have the form `.dray-<16 hex>.part`.
pub fn on_disks(partial: &Name) -> Result<Name> {
    let hex = hex_before(partial, PART).ok_or_else(|| {
        Error::new(ErrorKind::InvalidName, End::Sink, "name a partial file").cause(format!(
            "{} is not the name of a partial file",
            escape(partial.as_bytes())
        ))
    })?;
    Name::new(&[PREFIX, hex, DISKS_PART].concat())
}

/// Returns the digits of a partial name that ends with `end`.
fn hex_before<'a>(name: &'a Name, end: &[u8]) -> Option<&'a [u8]> {
    let rest = name.as_bytes().strip_prefix(PREFIX)?;
    rest.strip_suffix(end).and_then(hex_of)
}

fn hex_of(bytes: &[u8]) -> Option<&[u8]> {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (bytes.len() == 16 && bytes.iter().all(is_hex)).then_some(bytes)
}

/// Returns the name of the partial file of the file `final_name`. The name does not depend on the
/// log. So two writers of the same file compute the same name and detect each other.
///
/// # Errors
/// [`ErrorKind::InvalidName`] if the final name is one of dray's own names.
pub fn partial_name(final_name: &Name) -> Result<Name> {
    partial_name_at_turn(final_name, 0)
}

/// Returns the alternative partial name with the number `turn`. A writer uses this name if the
/// previous name is already the partial file of *another* final name. This happens if two names
/// have the same hash, and a hostile manifest can construct such names.
///
/// # Errors
/// The errors of [`partial_name`].
pub fn partial_name_at_turn(final_name: &Name, turn: u32) -> Result<Name> {
    if final_name.is_reserved() {
        return Err(
            Error::new(ErrorKind::InvalidName, End::Sink, "name a partial file")
                .cause(format!(
                    "{}: names that begin with .dray- are reserved",
                    escape(final_name.as_bytes())
                ))
                .remedy("rename the file, or exclude it with --exclude"),
        );
    }
    let mut hash = fnv(FNV_BASIS, final_name.as_bytes());
    if turn > 0 {
        // A final name contains no zero byte, so the input of the hash differs for different names
        // and turns.
        hash = fnv(fnv(hash, &[0]), &turn.to_le_bytes());
    }
    Name::new(format!(".dray-{hash:016x}.part").as_bytes())
}

/// Returns a partial name that depends on `log`, so that no other log computes the same name. A
/// writer uses it if all names from [`partial_name_at_turn`] are taken.
///
/// # Errors
/// The errors of [`partial_name`].
pub fn partial_name_of_log(final_name: &Name, turn: u32, log: &Name) -> Result<Name> {
    // Reject final names that are dray's own names.
    partial_name(final_name)?;
    let hash = fnv(fnv(FNV_BASIS, final_name.as_bytes()), &[0]);
    let hash = fnv(fnv(hash, &turn.to_le_bytes()), log.as_bytes());
    Name::new(format!(".dray-{hash:016x}.part").as_bytes())
}

/// Returns true if a log with these claims covers `path`, which is relative to the log's top
/// folder.
#[must_use]
pub fn covers(claims: &[RelPath], path: &RelPath) -> bool {
    claims.is_empty() || claims.iter().any(|claim| path.starts_with(claim))
}

/// Returns the 64-bit FNV-1a hash of the claims, sorted, without repetitions, and each followed by
/// a zero byte.
fn claims_hash(claims: &[RelPath]) -> u64 {
    let mut sorted: Vec<&[u8]> = claims.iter().map(RelPath::as_bytes).collect();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
        .into_iter()
        .fold(FNV_BASIS, |hash, claim| fnv(fnv(hash, claim), &[0]))
}

/// Extends the hash of the claims with a separator and the transfer id.
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
