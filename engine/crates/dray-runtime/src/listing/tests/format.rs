//! The bytes of a checkpoint: a golden file that another program has made from the design page, and
//! random records and damages. A failure names the seed.

use crate::listing::load::{Loaded, load};
use crate::listing::records::{self, Record};
use dray_core::RelPath;
use std::fs::{self, File};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Made from docs/design/listing-checkpoint.md by a program that shares no code with dray.
const GOLDEN: &str = "\
    445241594c495354010000003a4694cb0c000000223733820100f15365000000006b657913000000\
    d8ad353102070000000100000003000000766572612f620c000000dd80d3750307000000656e7472\
    696573080000000a40f60f0407000000656e640400000064f3493905612f62";

const CREATED: u64 = 1_700_000_000;

/// A generator of random numbers (SplitMix64, Steele et al. 2014).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| self.next() as u8).collect()
    }
}

fn read(bytes: &[u8]) -> Result<Loaded, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("listing");
    fs::write(&path, bytes).expect("written");
    let now: SystemTime = UNIX_EPOCH + Duration::from_secs(CREATED + 10);
    let file = File::open(path).expect("opened");
    load(&file, b"key", Duration::from_secs(60), now)
}

#[test]
fn the_bytes_are_those_of_the_golden_file() {
    let mut bytes = records::prelude();
    for record in [
        Record::Header {
            created: CREATED,
            key: b"key",
        },
        Record::Folder {
            folder: 7,
            root: 1,
            path: b"a/b",
            version: b"ver",
        },
        Record::Entries {
            folder: 7,
            frames: b"entries",
        },
        Record::End {
            folder: 7,
            frames: b"end",
        },
        Record::Forget { path: b"a/b" },
    ] {
        records::put(&record, bytes.len() as u64, &mut bytes);
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN);
    let path = RelPath::parse(b"a/b").expect("a path");
    let known = |bytes: &[u8]| read(bytes).expect("good").find(1, &path);
    assert!(known(&bytes).is_none(), "the folder is forgotten");
    let forget = bytes.len() - 12;
    let known = known(&bytes[..forget]).expect("the folder");
    assert_eq!(known.version, b"ver");
    let chunk = known.chunks[0];
    let at = chunk.offset as usize;
    assert_eq!(&bytes[at..at + chunk.length as usize], b"entries");
}

#[test]
fn random_records_are_read_as_they_were_written() {
    for seed in 0..200 {
        let mut chance = Chance(seed);
        let mut bytes = Vec::new();
        for _ in 0..20 {
            let (one, two) = (chance.bytes(300), chance.bytes(300));
            let (folder, root) = (chance.next() as u32, chance.next() as u32);
            let record = match chance.below(5) {
                0 => Record::Header {
                    created: chance.next(),
                    key: &one,
                },
                1 => Record::Folder {
                    folder,
                    root,
                    path: &one,
                    version: &two,
                },
                2 => Record::Entries {
                    folder,
                    frames: &one,
                },
                3 => Record::End {
                    folder,
                    frames: &one,
                },
                _ => Record::Forget { path: &one },
            };
            let at = bytes.len();
            records::put(&record, at as u64, &mut bytes);
            let mut head = [0; records::HEAD_BYTES];
            head.copy_from_slice(&bytes[at..at + records::HEAD_BYTES]);
            let body = &bytes[at + records::HEAD_BYTES..];
            assert!(records::is_whole(head, at as u64, body), "seed {seed}");
            assert!(!records::is_whole(head, at as u64 + 1, body), "seed {seed}");
            assert_eq!(records::parse(body), Some(record), "seed {seed}");
        }
    }
}

#[test]
fn no_bytes_make_the_reader_panic_or_believe_too_much() {
    let digits = GOLDEN.as_bytes().chunks_exact(2);
    let golden: Vec<u8> = digits
        .map(|pair| {
            let text = std::str::from_utf8(pair).expect("digits");
            u8::from_str_radix(text, 16).expect("digits")
        })
        .collect();
    for seed in 0..2_000 {
        let mut chance = Chance(seed);
        let mut bytes = golden.clone();
        match chance.below(4) {
            0 => bytes = chance.bytes(300),
            1 => bytes.extend(chance.bytes(100)),
            2 => bytes.truncate(chance.below(golden.len())),
            _ => {
                for _ in 0..=chance.below(4) {
                    let at = chance.below(golden.len());
                    bytes[at] = chance.next() as u8;
                }
            }
        }
        if let Ok(loaded) = read(&bytes) {
            assert!(loaded.length <= golden.len() as u64, "seed {seed}");
            let whole = usize::try_from(loaded.length).expect("short");
            assert_eq!(bytes[..whole], golden[..whole], "seed {seed}");
        }
    }
}
