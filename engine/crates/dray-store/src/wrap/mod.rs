//! Stores around stores, with the same trait: limit, trace, chaos.
//!
//! All three are a [`Hook`] in the one forwarding store [`Around`]: a hook hears of each call before
//! and after, and may hold it up, fail it, cut it short or spoil its bytes. Their order is decided
//! in [`wrap`] and nowhere else.

mod around;
pub mod chaos;
pub mod limit;
pub mod trace;

pub use around::{Around, Call, Hook, Operation};

use crate::store::Store;
use chaos::ChaosOptions;
use limit::LimitOptions;
use std::sync::Arc;
use trace::TraceSink;

/// What to put around a store.
#[derive(Clone, Default)]
pub struct WrapOptions {
    /// Bytes per second.
    pub limit: Option<LimitOptions>,
    /// Faults.
    pub chaos: Option<ChaosOptions>,
    /// Where to tell what was called.
    pub trace: Option<TraceSink>,
}

/// Puts wrappers around a store. From the inside out: chaos (faults are the storage's), limit
/// (a call that fails has used its share too), trace (tells what the caller saw, waiting included).
#[must_use]
pub fn wrap(store: Arc<dyn Store>, options: WrapOptions) -> Arc<dyn Store> {
    let mut store = store;
    if let Some(chaos) = options.chaos {
        store = Arc::new(Around::new(store, chaos::Chaos::new(chaos)));
    }
    if let Some(limit) = options.limit {
        let limit = limit::Limit::new(limit, Arc::clone(&store));
        store = Arc::new(Around::new(store, limit));
    }
    if let Some(trace) = options.trace {
        store = Arc::new(Around::new(store, trace::Trace::new(trace)));
    }
    store
}
