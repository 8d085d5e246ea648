//! `dray log sweep`: removes the partial data of interrupted copies, on a host without an endpoint.

use crate::args::SweepArgs;
use crate::exit::{Exit, Stop};
use crate::output;
use crate::units::{age_in_words, count, human};
use dray_core::path::escape;
use dray_core::url::encode;
use dray_core::{Error, ErrorKind};
use dray_open::swept;
use dray_runtime::sweep::{PartialData, PartialKind, Removed, WalkEvent, WalkRoot, remove, walk};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::time::SystemTime;

/// Number of removed and kept items.
#[derive(Default)]
struct Sum {
    removed: u64,
    bytes: u64,
    in_use: u64,
    younger: u64,
    failed: u64,
}

/// Runs `dray log sweep`.
pub(crate) fn run(arguments: &SweepArgs) -> Result<Exit, Stop> {
    let place = swept::open(arguments.path.as_os_str())?;
    let now = SystemTime::now();
    let mut sum = Sum::default();
    walk(&place, now, &mut |met| {
        match met {
            WalkEvent::Folder => {}
            WalkEvent::PartialData(found) if found.is_held => sum.in_use += 1,
            WalkEvent::Young(_) => sum.younger += 1,
            WalkEvent::PartialData(found) if found.age(now) < arguments.older_than => {
                sum.younger += 1
            }
            WalkEvent::PartialData(found) => sweep(&place, &found, now, arguments, &mut sum),
            WalkEvent::Unreadable(error) => sum.fail(&error),
        }
        ControlFlow::Continue(())
    })?;
    sum.tell(arguments);
    Ok(match sum.failed {
        0 => Exit::Safe,
        _ => Exit::SomeFailed,
    })
}

fn sweep(
    place: &WalkRoot,
    found: &PartialData,
    now: SystemTime,
    arguments: &SweepArgs,
    sum: &mut Sum,
) {
    if arguments.dry_run {
        sum.removed += 1;
        sum.bytes = sum.bytes.saturating_add(found.bytes);
        tell(found, now, arguments);
        return;
    }
    match remove(place, found, now) {
        Ok(Removed::All { bytes, .. }) => {
            sum.removed += 1;
            sum.bytes = sum.bytes.saturating_add(bytes);
            tell(found, now, arguments);
        }
        Ok(Removed::Left) => sum.in_use += 1,
        Err(error) if error.kind == ErrorKind::LeaseHeld => sum.in_use += 1,
        Err(error) => sum.fail(&error),
    }
}

impl Sum {
    fn fail(&mut self, error: &Error) {
        self.failed += 1;
        crate::output::complain(error);
    }

    fn tell(&self, arguments: &SweepArgs) {
        let done = match arguments.dry_run {
            true => "would remove",
            false => "removed",
        };
        if arguments.json {
            let line = json!({
                "event": "sum",
                "dry_run": arguments.dry_run,
                "removed": self.removed,
                "bytes": self.bytes,
                "in_use": self.in_use,
                "younger": self.younger,
                "failed": self.failed,
            });
            return output::result(&line.to_string());
        }
        output::result(&format!(
            "{done} {} ({} in total); kept {} in use and {} younger than {}",
            count(self.removed, "leftover"),
            human(self.bytes),
            self.in_use,
            self.younger,
            age_in_words(arguments.older_than),
        ));
    }
}

fn tell(found: &PartialData, now: SystemTime, arguments: &SweepArgs) {
    let owner = found.owner.as_deref().map(escape);
    if arguments.json {
        let line = json!({
            "event": "removed",
            "dry_run": arguments.dry_run,
            "what": found.what.name(),
            "disk": found.disk.as_deref(),
            "path": found.path.to_string(),
            "owner": owner,
            "transfer": found.transfer.as_ref().map_or(Value::Null, |id| json!(id.as_str())),
            "files": found.files,
            "bytes": found.bytes,
            "age_seconds": found.age(now).as_secs(),
        });
        return output::result(&line.to_string());
    }
    let whose = match (&owner, &found.transfer) {
        (Some(owner), Some(transfer)) => format!(", of {owner}, transfer {transfer}"),
        (None, Some(transfer)) => format!(", transfer {transfer}"),
        (Some(owner), None) => format!(", of {owner}"),
        (None, None) => String::new(),
    };
    let what = match found.what {
        PartialKind::Log => format!("log, {}", count(found.files, "partial file")),
        PartialKind::Remnant => "leftover files of a log".to_owned(),
        PartialKind::Partial => "partial file without a log".to_owned(),
    };
    let disk = found.disk.as_deref();
    let disk = disk.map_or_else(String::new, |disk| format!("{}/", encode(disk.as_bytes())));
    output::result(&format!(
        "{}{disk}{}: {what}, {}{whose}, untouched for {}",
        if arguments.dry_run {
            "would remove "
        } else {
            "removed "
        },
        found.path,
        human(found.bytes),
        age_in_words(found.age(now)),
    ));
}
