//! Recovers an object log from arbitrary bytes. No input may cause a panic, unbounded memory use,
//! or a range outside its file. The recovered state must survive a resume and a compaction
//! unchanged.
//!
//! A fuzzer cannot guess a CRC. So the target writes the right CRC into every record that the
//! lengths in the log lead to. It then repeats the test with one damaged record. The second-to-last
//! byte of the input chooses this record.
#![no_main]

use dray_log::{MemoryFile, ObjectLog, Recovery, Tenure, UniversalLog, recover};
use libfuzzer_sys::fuzz_target;

const PRELUDE_BYTES: usize = 16;
const HEAD_BYTES: usize = 16;

fn put(bytes: &mut [u8], at: usize, crc: u32) {
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn seal(log: &mut [u8], spared: usize) {
    if log.len() < PRELUDE_BYTES {
        return;
    }
    let crc = crc32c::crc32c(&log[..12]);
    put(log, 12, crc);
    let (mut at, mut nonce, mut count) = (PRELUDE_BYTES, [0u8; 8], 0);
    while log.len() - at >= HEAD_BYTES {
        let length = u32::from_le_bytes([log[at], log[at + 1], log[at + 2], log[at + 3]]) as usize;
        let Some(body) = log.get(at + HEAD_BYTES..at.saturating_add(HEAD_BYTES + length)) else {
            return;
        };
        let crc = crc32c::crc32c(body);
        let header_nonce = body.first_chunk::<8>().copied();
        if count != spared {
            put(log, at + 8, crc);
            let bound = [&nonce[..], &(at as u64).to_le_bytes(), &log[at..at + 12]].concat();
            put(log, at + 12, crc32c::crc32c(&bound));
        }
        if count == 0 {
            nonce = header_nonce.unwrap_or_default();
        }
        count += 1;
        at += (HEAD_BYTES + length).next_multiple_of(8);
        if at > log.len() {
            return;
        }
    }
}

fn check(found: &Recovery) {
    for file in found.files.values() {
        for (range, _) in file.done.iter() {
            assert!(!range.is_empty() && range.end() <= file.key.size);
        }
    }
}

fn same_files(one: &Recovery, other: &Recovery) {
    assert!(other.damage.is_none() && other.torn_bytes == 0);
    let ones = one
        .files
        .iter()
        .map(|(path, file)| (path, file.number, &file.done));
    let others = other
        .files
        .iter()
        .map(|(path, file)| (path, file.number, &file.done));
    assert!(ones.eq(others));
}

fn go_on(bytes: Vec<u8>) {
    let mut file = MemoryFile::with_bytes(bytes);
    let Ok(Some(found)) = recover(&mut file) else {
        return;
    };
    check(&found);
    let Some(epoch) = found.tenure.epoch.checked_add(1) else {
        return;
    };
    let tenure = Tenure {
        epoch,
        ..found.tenure.clone()
    };
    let before = found.clone();
    let log = UniversalLog::resume(file, found, tenure.clone()).expect("memory never fails");
    let mut file = log.into_file();
    let again = recover(&mut file).expect("ours").expect("made");
    same_files(&before, &again);
    let Some(epoch) = epoch.checked_add(1) else {
        return;
    };
    let tenure = Tenure { epoch, ..tenure };
    let mut log = UniversalLog::resume(file, again, tenure).expect("memory never fails");
    log.compact().expect("memory never fails");
    let bytes = log.bytes();
    let compacted = recover(&mut log.into_file()).expect("ours").expect("made");
    assert_eq!(compacted.log_bytes(), bytes);
    same_files(&before, &compacted);
}

fuzz_target!(|data: &[u8]| {
    let _ = recover(&mut MemoryFile::with_bytes(data.to_vec()));
    let Some((log, choice)) = data.split_last_chunk::<2>() else {
        return;
    };
    for spared in [usize::MAX, usize::from(choice[0])] {
        let mut sealed = log.to_vec();
        seal(&mut sealed, spared);
        go_on(sealed);
    }
});
