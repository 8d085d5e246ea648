//! Checkpoints of the listings of transfers, in the state folder of the endpoint.

use dray_api::Side;
use dray_config::Config;
use dray_config::roots::Roots;
use dray_queue::SessionInput;
use dray_runtime::listing::{self, Checkpoint, CheckpointOptions, SweepBounds};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::SystemTime;

/// Name of the folder of the checkpoints in the state folder.
const FOLDER: &str = "listings";

/// Opens the checkpoint of a transfer, if the transfer lists a root of this endpoint that records its
/// listings. If the file cannot be opened, the session lists the source from the beginning.
pub(super) fn open(
    config: &Config,
    roots: &Roots,
    input: &SessionInput,
) -> Option<Arc<Checkpoint>> {
    let origin = input.route.origin(input.source as usize);
    let is_recorded = origin.iter().any(|side| match side {
        Side::Local(path) => roots.find(path).is_ok_and(|root| root.records_listings),
        Side::Remote { .. } => false,
    });
    if !is_recorded || !input.request.selection.recursive {
        return None;
    }
    let folder = config.state.join(FOLDER);
    if let Err(error) = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
    {
        tracing::warn!("cannot create {}: {error}", folder.display());
        return None;
    }
    let path = folder.join(format!("{}.{}", input.id, listing::EXTENSION));
    let bounds = SweepBounds {
        count_max: config.listings.keep_count,
        bytes_max: config.listings.keep_bytes.0,
    };
    listing::sweep(&folder, &path, bounds, SystemTime::now());
    let usual = CheckpointOptions::default();
    let options = CheckpointOptions {
        bytes_max: usual.bytes_max.min(bounds.bytes_max),
        ..usual
    };
    match Checkpoint::open(&path, key(input).as_bytes(), options) {
        Ok(checkpoint) => Some(Arc::new(checkpoint)),
        Err(error) => {
            tracing::warn!("{error}");
            None
        }
    }
}

/// Returns all that determines the listing. A new attempt lists the source from the beginning. The
/// time of its submission tells it from the attempt of a deleted transfer with the same id, and the
/// owner is part of the key because another owner may not see the same folders.
fn key(input: &SessionInput) -> String {
    let request = &input.request;
    let urls: Vec<&str> = request
        .origin(input.source as usize)
        .iter()
        .map(|place| place.url.as_str())
        .collect();
    format!(
        "{}\0{}\0{}\0{}\0{urls:?}\0{:?}\0{:?}\0{}",
        input.id,
        input.attempt,
        input.submitted_at,
        input.owner,
        request.selection,
        request.include(),
        request.xattrs
    )
}
