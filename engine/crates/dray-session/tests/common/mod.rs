//! A sink for tests of several machines.

use dray_core::options::Options;
use dray_sched::tuner::threads::ThreadCount;
use dray_session::sink;
use std::time::Duration;

/// Returns the configuration of a passive sink with `buffers` buffers. Each buffer holds an object
/// of the size in `options`.
pub(crate) fn sink_config(options: Options, buffers: u32) -> sink::Config {
    sink::Config {
        demanded: None,
        required: std::collections::BTreeMap::new(),
        identity: Vec::new(),
        buffers,
        buffer_bytes: options.object_bytes,
        writers: ThreadCount::Fixed(4),
        live_entries_max: 4,
        claims: Vec::new(),
        precision_nanoseconds: 1,
        ordered_window: None,
        holes: true,
        sync_group_bytes: 64,
        unsafe_bytes_max: 64,
        sync_interval: Duration::from_millis(1),
        syncs_apart: false,
        writes_durably: false,
        attempt: 1,
        is_driver: false,
        options,
    }
}
