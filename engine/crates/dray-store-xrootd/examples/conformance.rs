//! Runs the conformance suite of stores in a folder of a real server: `conformance
//! root://HOST//FOLDER`. Each case uses its own folder there, which is not deleted. Further
//! arguments are the names of cases to leave out.

use dray_store::{Store, conformance};
use dray_store_xrootd::{SinkOptions, Url, XrootdSink};
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = "conformance root://HOST//FOLDER [CASE LEFT OUT]...";
    let (url, left_out) = words.split_first().ok_or(usage)?;
    let left_out: Vec<&str> = left_out.iter().map(String::as_str).collect();
    let cases = AtomicU32::new(0);
    let make = || -> Arc<dyn Store> {
        let case = cases.fetch_add(1, Ordering::Relaxed);
        let url = Url::parse(&format!("{url}/case{case}")).expect("a good URL");
        let sink = XrootdSink::open(url, SinkOptions::default()).expect("a server");
        sink.make_root().expect("a folder");
        Arc::new(sink)
    };
    let report = conformance::run_without(&make, &left_out);
    writeln!(std::io::stdout(), "{report}")?;
    Ok(match report.is_passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
