//! Measures the time per byte to compute the two checksums of an object, CRC-32C and Adler-32, for
//! several stride lengths. A stride is the number of bytes that one algorithm sums before the other
//! algorithm sums the same bytes. The CRC is measured with two libraries: the library that dray
//! uses, and the library that the tests use.
//!
//! ```text
//! cargo run --release -p dray-core --example sums
//! ```
#![expect(clippy::print_stdout, reason = "a program")]

use crc_fast::{CrcAlgorithm, Digest};
use simd_adler32::Adler32;
use std::hint::black_box;
use std::time::Instant;

/// Number of bytes that dray reads or receives in one call. They fit in the processor's cache.
const PIECE_BYTES: usize = 256 << 10;
const PIECES: usize = 4096;
const GB: f64 = 1e9;

fn main() {
    let piece: Vec<u8> = (0..PIECE_BYTES).map(|at| ((at * 31) >> 3) as u8).collect();
    println!("stride KiB, s/GB of crc32c and adler32, s/GB of crc-fast and adler32");
    for stride in [16, 64, 256] {
        let bytes = stride << 10;
        let mut other = 0;
        let by_other = seconds(&piece, bytes, |part| {
            other = crc32c::crc32c_append(other, part);
        });
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        let by_fast = seconds(&piece, bytes, |part| digest.update(part));
        assert_eq!(digest.finalize() as u32, other, "both sum the same");
        println!("{stride:3} {by_other:.4} {by_fast:.4}");
    }
}

/// Returns the seconds per GB for the crc function `crc` and adler32 in alternation.
fn seconds(piece: &[u8], stride: usize, mut crc: impl FnMut(&[u8])) -> f64 {
    let mut adler = Adler32::new();
    let began = Instant::now();
    for _ in 0..PIECES {
        for part in piece.chunks(stride) {
            crc(part);
            adler.write(part);
        }
    }
    let took = began.elapsed().as_secs_f64();
    black_box(adler.finish());
    took / (PIECE_BYTES * PIECES) as f64 * GB
}
