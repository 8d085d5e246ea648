//! Any bytes as the place of a GlusterFS file: no panic, and a bounded name.
#![no_main]

use dray_store::gluster::part_of;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(part) = part_of(data) {
        assert!(!part.is_empty() && part.len() <= data.len());
    }
});
