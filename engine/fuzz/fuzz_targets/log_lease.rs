//! Parses arbitrary bytes as a lease file. No input may cause a panic. If a parsed record is
//! encoded and parsed again, the result is the same record.
#![no_main]

use dray_log::lease::{LEASE_BYTES, SLOT_BYTES, is_fenced, newest, next_epoch};
use libfuzzer_sys::fuzz_target;

fn seal(slot: &mut [u8]) {
    slot[12..16].fill(0);
    let crc = crc32c::crc32c(slot);
    slot[12..16].copy_from_slice(&crc.to_le_bytes());
}

fuzz_target!(|data: &[u8]| {
    let _ = newest(data);
    let mut file = data.to_vec();
    file.resize(LEASE_BYTES, 0);
    file.chunks_mut(SLOT_BYTES).for_each(seal);
    let Ok(Some(record)) = newest(&file) else {
        return;
    };
    let slot = record.encode().expect("what was read fits");
    assert_eq!(newest(&slot), Ok(Some(record.clone())));
    assert!(!is_fenced(&record, Some(&record)));
    if let Ok(epoch) = next_epoch(Some(&record), None) {
        assert!(epoch > record.epoch);
    }
});
