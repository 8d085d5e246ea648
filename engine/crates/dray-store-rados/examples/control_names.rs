//! Creates and deletes control files of one folder from several threads. Each thread opens its own
//! store and uses its own file names. Usage: `control_names rados://POOL/FOLDER`. Checks that a
//! listing of the folder always contains every existing control file, although the threads delete
//! the folder whenever it is empty.

use dray_core::{End, ErrorKind, Name, RelPath};
use dray_store::{ControlMode, Store};
use dray_store_rados::{RadosStore, Url};
use std::error::Error;
use std::io::Write;

const THREADS: u32 = 6;
const ROUNDS: u32 = 40;

fn main() -> Result<(), Box<dyn Error>> {
    let word = std::env::args().nth(1);
    let url = Url::parse(word.ok_or("control_names rados://POOL/FOLDER")?.as_bytes())?;
    RadosStore::open(url.clone(), End::Sink)?.make_root()?;
    check_appends(&RadosStore::open(url.clone(), End::Sink)?)?;
    let ended: Vec<dray_core::Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let url = url.clone();
                scope.spawn(move || rounds(&RadosStore::open(url, End::Sink)?, number))
            })
            .collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    ended.into_iter().collect::<dray_core::Result<Vec<()>>>()?;
    let store = RadosStore::open(url, End::Sink)?;
    let left = store.list_control(&folder()?)?;
    writeln!(std::io::stdout(), "{} names left", left.len())?;
    Ok(())
}

fn folder() -> dray_core::Result<RelPath> {
    RelPath::parse(b".dray-log")
}

/// Checks that an append fails after another client has changed the file.
fn check_appends(store: &RadosStore) -> dray_core::Result<()> {
    let path = RelPath::parse(b".dray-log/appends.log")?;
    let one = store.open_control(&path, ControlMode::Create)?;
    let other = store.open_control(&path, ControlMode::Existing)?;
    one.append(b"one")?;
    one.append(b"two")?;
    assert_eq!(one.len()?, 6, "both records");
    other.append(b"other")?;
    let error = one.append(b"three").expect_err("the file has changed");
    assert_eq!(error.kind, ErrorKind::LeaseLost, "{error}");
    assert_eq!(other.len()?, 11, "nothing is overwritten");
    store.remove_control(&path)
}

fn rounds(store: &RadosStore, number: u32) -> dray_core::Result<()> {
    let folder = folder()?;
    for round in 0..ROUNDS {
        let name = Name::new(format!("{number:08}{round:08}.log").as_bytes())?;
        let path = folder.join(&name)?;
        let file = store.open_control(&path, ControlMode::CreateNew)?;
        for _ in 0..3 {
            assert!(
                store.list_control(&folder)?.contains(&name),
                "the folder does not list {path}"
            );
            file.append(b"record")?;
        }
        store.remove_control(&path)?;
        match store.remove(&folder) {
            Err(error) if error.kind != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
