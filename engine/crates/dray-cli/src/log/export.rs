//! `dray log export`: the JSON form of a log, as docs/design/object-log.md defines it. Another
//! program can compare it with its own reading of the log.

use dray_core::path::escape;
use dray_core::{ByteRange, RelPath, Sums};
use dray_log::{Damage, LoggedFile, Recovery};
use serde_json::{Value, json};

/// Returns the JSON form of a log.
pub(super) fn log(recovery: &Recovery) -> Value {
    let (header, tenure) = (&recovery.header, &recovery.tenure);
    let files = recovery.files.iter();
    let files = files.map(|(path, logged)| file(path, logged, header.form.has_sums));
    json!({
        "claims": header.claims,
        "owner": hex(&header.owner),
        "nonce": header.nonce,
        "software": header.software,
        "next_file": header.next_file.0,
        "form": header.form,
        "tenure": {
            "epoch": tenure.epoch,
            "holder": tenure.holder,
            "transfer": tenure.transfer.as_str(),
            "boot_id": hex(tenure.boot_id.as_bytes()),
            "durability": tenure.durability,
        },
        "files": files.collect::<Vec<_>>(),
        "torn_bytes": recovery.torn_bytes,
        "damage": recovery.damage.as_ref().map(damage),
    })
}

fn file(path: &RelPath, file: &LoggedFile, has_sums: bool) -> Value {
    let run = |(range, sums): (ByteRange, Sums)| match has_sums {
        true => json!([range.offset, range.length, sums.crc32c, sums.adler32]),
        false => json!([range.offset, range.length]),
    };
    json!({
        "path": escape(path.as_bytes()),
        "number": file.number.0,
        "size": file.key.size,
        "demanded": file.key.demanded.map(|demanded| demanded.to_string()),
        "modified": [file.key.modified.seconds, file.key.modified.nanoseconds],
        "precision_nanoseconds": file.key.precision_nanoseconds,
        "identity": hex(&file.key.identity),
        "object_bytes": file.object_bytes,
        "partial": {
            "name": escape(file.partial.name.as_bytes()),
            "device": file.partial.device,
            "inode": file.partial.inode,
            "born": file.partial.born,
        },
        "is_weak": file.is_weak,
        "is_doubtful": file.is_doubtful,
        "done": file.done.iter().map(run).collect::<Vec<_>>(),
    })
}

fn damage(damage: &Damage) -> Value {
    let places = damage.places.iter();
    json!({
        "places": places.map(|place| [place.offset, place.length]).collect::<Vec<_>>(),
        "count": damage.count,
        "files_forgotten": damage.files_forgotten,
        "files_kept": damage.files_kept,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
