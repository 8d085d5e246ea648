//! Runs the conformance suite of stores in a folder of a mounted file system: `posix_conformance
//! FOLDER`. Each case uses its own folder there, which is not deleted. Further arguments are the
//! names of cases to leave out.

use dray_core::End;
use dray_store::{PosixOptions, PosixStore, Store, conformance};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = "posix_conformance FOLDER [CASE LEFT OUT]...";
    let (folder, left_out) = words.split_first().ok_or(usage)?;
    let left_out: Vec<&str> = left_out.iter().map(String::as_str).collect();
    let cases = AtomicU32::new(0);
    let make = || -> Arc<dyn Store> {
        let case = cases.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(folder).join(format!("case{case}"));
        let options = PosixOptions {
            create: true,
            ..PosixOptions::default()
        };
        Arc::new(PosixStore::open(&folder, End::Sink, options).expect("a folder"))
    };
    let report = conformance::run_without(&make, &left_out);
    writeln!(std::io::stdout(), "{report}")?;
    Ok(match report.is_passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
