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
                    "{}: names that begin with .dray- are dray's own",
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
mod tests {
    use super::{
        covers, fnv, is_partial_name, lease_name, lease_of_log, log_folder_name, log_name, log_of,
        partial_name, partial_name_at_turn, partial_name_of_log, request_mark,
    };
    use dray_core::{Name, RelPath, TransferId};

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a good path")
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a good name")
    }

    #[test]
    fn hash_is_fnv_1a() {
        // Test vectors published by the authors of the hash.
        assert_eq!(fnv(super::FNV_BASIS, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(super::FNV_BASIS, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(super::FNV_BASIS, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn names_are_fixed_for_ever() {
        let id = |text: &str| TransferId::new(text).expect("an id");
        let log_name = |claims: &[RelPath]| log_name(claims, &id("run-1"));
        let lease_name = |claims: &[RelPath]| lease_name(claims, &id("run-1"));
        let none = log_name(&[]).expect("a name");
        assert_eq!(none, name("28c62ca582b0a0bb.log"));
        let another = super::log_name(&[], &id("run-2")).expect("a name");
        assert_ne!(none, another, "another transfer has another log");
        let one = [path("run1")];
        let two = [path("run2"), path("run1"), path("run1")];
        assert_eq!(
            log_name(&two).expect("a name"),
            log_name(&[path("run1"), path("run2")]).expect("a name")
        );
        assert_ne!(log_name(&one).expect("a name"), none);
        assert_eq!(
            lease_of_log(&log_name(&one).expect("a name")),
            Some(lease_name(&one).expect("a name"))
        );
        for other in ["0.log", "cbf29ce48422232X.log", "cbf29ce484222325.lease"] {
            assert_eq!(lease_of_log(&name(other)), None, "{other}");
        }
        assert_eq!(
            partial_name(&name("foobar")).expect("a name"),
            name(".dray-85944171f73967e8.part")
        );
        assert!(log_folder_name().expect("a name").is_reserved());
    }

    #[test]
    fn what_lies_in_a_log_folder_belongs_to_a_log_by_its_name() {
        let log = name("cbf29ce484222325.log");
        for own in ["cbf29ce484222325.lease", "cbf29ce484222325.log.next"] {
            assert_eq!(log_of(&name(own)), Some(log.clone()), "{own}");
        }
        assert_eq!(log_of(&log), Some(log.clone()));
        for other in ["cbf29ce484222325", "cbf29ce48422232.log", "a.log", ".log"] {
            assert_eq!(log_of(&name(other)), None, "{other}");
        }
        assert!(is_partial_name(&partial_name(&name("a")).expect("a name")));
        for other in [
            ".dray-log",
            ".dray-.part",
            ".dray-85944171f73967e8",
            "a.part",
        ] {
            assert!(!is_partial_name(&name(other)), "{other}");
        }
    }

    #[test]
    fn partial_names_are_ours_and_short() {
        let longest = name(&"x".repeat(255));
        let partial = partial_name(&longest).expect("a name");
        assert!(partial.is_reserved() && partial.as_bytes().len() < 32);
        assert_ne!(
            partial_name_at_turn(&longest, 1).expect("a name"),
            partial_name_at_turn(&longest, 2).expect("a name")
        );
        assert!(partial_name(&partial).is_err());
    }

    #[test]
    fn names_of_a_log_are_no_other_logs() {
        let (one, other) = (name("1.log"), name("2.log"));
        let of = |turn, log| partial_name_of_log(&name("a"), turn, log).expect("a name");
        assert!(is_partial_name(&of(0, &one)));
        assert_ne!(of(0, &one), of(0, &other));
        assert_ne!(of(0, &one), of(1, &one));
        assert!(partial_name_of_log(&name(".dray-x"), 0, &one).is_err());
    }

    #[test]
    fn a_request_is_told_from_others_by_names_and_patterns() {
        let words = |text: &str| vec![text.to_owned()];
        let (run, other) = ([path("run")], [path("other")]);
        assert_eq!(
            request_mark(&[], &words("a*"), &[]),
            0,
            "names are not known"
        );
        let plain = request_mark(&run, &[], &[]);
        assert_ne!(plain, 0);
        assert_eq!(plain, request_mark(&run, &[], &[]));
        let marks = [
            request_mark(&other, &[], &[]),
            request_mark(&run, &words("a*"), &[]),
            request_mark(&run, &words("b*"), &[]),
            request_mark(&run, &[], &words("a*")),
        ];
        for (at, mark) in marks.iter().enumerate() {
            assert_ne!(*mark, plain);
            assert!(!marks[..at].contains(mark));
        }
    }

    #[test]
    fn claims_cover_whole_names_only() {
        let claims = [path("run1"), path("other/deep")];
        for (covered, text) in [
            (true, "run1"),
            (true, "run1/a"),
            (false, "run10"),
            (false, "other"),
            (true, "other/deep/x/y"),
        ] {
            assert_eq!(covers(&claims, &path(text)), covered, "{text}");
        }
        assert!(covers(&[], &path("anything")));
    }
}
