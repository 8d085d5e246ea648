//! Destinations of unit tests.

use super::files::Space;
use super::{Destination, DestinationRequest};
use dray_core::options::Options;
use dray_core::{ContentKey, End, ModifiedTime, RelPath, TransferId};
use dray_store::{PosixOptions, PosixStore, Store};
use std::path::Path;
use std::sync::Arc;

pub(super) fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

pub(super) fn store(folder: &Path) -> Arc<dyn Store> {
    let store = PosixStore::open(folder, End::Sink, PosixOptions::default());
    Arc::new(store.expect("opens"))
}

/// Returns the space of the transfer `transfer` into the root of `store`. `above` is the store of a
/// folder above, with the path of the destination in it.
pub(super) fn space(
    store: Arc<dyn Store>,
    above: Option<(Arc<dyn Store>, RelPath)>,
    transfer: &str,
) -> Space {
    let options = Options::default();
    let destination = Destination::open(DestinationRequest {
        store,
        above,
        claims: Vec::new(),
        transfer: TransferId::new(transfer).expect("an id"),
        owner: b"uid:0".to_vec(),
        durability: options.durability,
        log: None,
        words: "the destination".to_owned(),
    });
    Space::new(destination.expect("free"), options, 1 << 20)
}

/// Returns the key of a file of 5 bytes.
pub(super) fn key() -> ContentKey {
    ContentKey {
        size: 5,
        demanded: None,
        modified: ModifiedTime::default(),
        precision_nanoseconds: 1,
        identity: Vec::new(),
    }
}
