//! Runs the conformance suite of read-only stores on a server of this host:
//! `gridftp_conformance gsiftp://HOST:PORT FOLDER`. The server must serve FOLDER, an absolute path,
//! under the same path. Each case makes its files in a new subfolder of FOLDER, and this program
//! does not delete the subfolders.

use dray_core::End;
use dray_store::conformance::{self, Item};
use dray_store::{ReadOnly, Store};
use dray_store_gridftp::{GridFtpStore, Url};
use std::error::Error;
use std::ffi::OsStr;
use std::fs::{File, create_dir_all};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, folder] = words.as_slice() else {
        return Err("gridftp_conformance gsiftp://HOST:PORT FOLDER".into());
    };
    let folder = PathBuf::from(folder);
    let cases = AtomicU32::new(0);
    let report = conformance::run_read_only(&|items: &[Item]| -> Arc<dyn Store> {
        let case = cases.fetch_add(1, Ordering::Relaxed);
        let root = folder.join(format!("case{case}"));
        make(&root, items).expect("a folder that this process may write");
        let url = format!("{url}{}", root.display());
        let url = Url::parse(url.as_bytes()).expect("a URL").expect("gsiftp");
        let store = GridFtpStore::open(&url, End::Source).expect("the client library");
        Arc::new(ReadOnly(store))
    });
    writeln!(std::io::stdout(), "{report}")?;
    Ok(match report.is_passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Creates the items below a new folder.
fn make(root: &Path, items: &[Item]) -> std::io::Result<()> {
    create_dir_all(root)?;
    for item in items {
        let path = root.join(OsStr::from_bytes(item.path.as_bytes()));
        let Some(bytes) = &item.bytes else {
            create_dir_all(&path)?;
            continue;
        };
        create_dir_all(path.parent().unwrap_or(root))?;
        let mut file = File::create(&path)?;
        file.write_all(bytes)?;
        let seconds = u64::try_from(item.modified_seconds).unwrap_or(0);
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))?;
    }
    Ok(())
}
