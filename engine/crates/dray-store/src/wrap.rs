//! Stores around stores, with the same trait: limit, trace, chaos.
//!
//! All three are a [`Hook`] in the one forwarding store [`Around`]. A hook is informed before and
//! after each call, and may delay it, fail it, shorten it or corrupt its bytes. Only [`wrap`]
//! decides their order.

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

/// Wrappers for a store.
#[derive(Clone, Default)]
pub struct WrapOptions {
    /// Rate limits in bytes per second.
    pub limit: Option<LimitOptions>,
    /// Deliberate faults.
    pub chaos: Option<ChaosOptions>,
    /// Receiver of the trace.
    pub trace: Option<TraceSink>,
}

/// Puts wrappers around a store. From the inside out: chaos (faults belong to the storage), limit
/// (a failed call has used its share too), trace (reports what the caller saw, including waits).
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
