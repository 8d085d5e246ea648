//! Wrappers around a store that are stores themselves: limit, trace, chaos.
//!
//! Each wrapper is a [`Hook`] in the forwarding store [`Around`]. A hook is called before and after
//! each call of the store. The hook can delay the call, make it fail, shorten a read or change the
//! bytes. [`wrap`] determines the order of the wrappers.

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

/// Wrappers to put around a store.
#[derive(Clone, Default)]
pub struct WrapOptions {
    /// Rate limits in bytes per second.
    pub limit: Option<LimitOptions>,
    /// Deliberate faults to inject.
    pub chaos: Option<ChaosOptions>,
    /// Receiver of the trace.
    pub trace: Option<TraceSink>,
}

/// Puts wrappers around a store. Chaos is the innermost wrapper, because the faults are those of
/// the storage. Limit is in the middle, because a call that fails through chaos uses its share of
/// the rate too. Trace is the outermost wrapper, so its times include the waits that the caller
/// sees.
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
