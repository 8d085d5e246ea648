//! Parses arbitrary bytes as the place of a GlusterFS file. No input may cause a panic. The
//! resulting name is never longer than the input.
#![no_main]

use dray_store::gluster::part_of;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(part) = part_of(data) {
        assert!(!part.is_empty() && part.len() <= data.len());
    }
});
