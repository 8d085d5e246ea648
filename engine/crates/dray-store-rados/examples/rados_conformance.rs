//! Runs the conformance suite of stores in a folder of a pool: `rados_conformance rados://POOL/FOLDER`.
//! Each case uses its own folder there, which is not deleted. Further arguments are the names of
//! cases to leave out.

use dray_core::{End, RelPath};
use dray_store::{Store, conformance};
use dray_store_rados::{RadosStore, Url};
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = "rados_conformance rados://POOL/FOLDER [CASE LEFT OUT]...";
    let (url, left_out) = words.split_first().ok_or(usage)?;
    let left_out: Vec<&str> = left_out.iter().map(String::as_str).collect();
    let url = Url::parse(url.as_bytes())?;
    let cases = AtomicU32::new(0);
    let make = || -> Arc<dyn Store> {
        let case = cases.fetch_add(1, Ordering::Relaxed);
        let folder = format!("{}/case{case}", url.path);
        let folder = RelPath::parse(folder.as_bytes()).expect("a good path");
        let store = RadosStore::open(url.with_path(&folder), End::Sink).expect("a cluster");
        store.make_root().expect("a folder");
        Arc::new(store)
    };
    let report = conformance::run_without(&make, &left_out);
    writeln!(std::io::stdout(), "{report}")?;
    Ok(match report.is_passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
