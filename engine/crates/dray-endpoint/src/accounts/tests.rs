use super::{Accounts, asking};
use dray_config::Config;
use dray_config::roots::Roots;
use dray_core::options::{Durability, Links};
use dray_core::{ErrorKind, RelPath, Result, TransferId};
use dray_open::export::Within;
use dray_runtime::account::{self, Account};
use dray_store::{ListOptions, ReadPurpose};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

pub(crate) const ALICE: u32 = 54_321;
const BOB: u32 = 54_322;

/// Made-up accounts of Alice and Bob.
pub(crate) struct Made;

impl account::Accounts for Made {
    fn find(&self, name: &str) -> Result<Option<Account>> {
        let account = |uid| Account {
            uid,
            gid: uid,
            groups: vec![uid],
        };
        Ok(match name {
            "alice" => Some(account(ALICE)),
            "bob" => Some(account(BOB)),
            _ => None,
        })
    }
}

/// Returns true if this process may act as other accounts. Panics if DRAY_TEST_ACCOUNTS is set and
/// the process may not: the tests would otherwise pass without a check.
pub(crate) fn may_act() -> bool {
    let may = account::check_rights().is_ok();
    assert!(
        may || std::env::var_os("DRAY_TEST_ACCOUNTS").is_none(),
        "DRAY_TEST_ACCOUNTS is set, and this process may not act as another account"
    );
    if !may {
        eprintln!("left out: acting as another account, which this process may not");
    }
    may
}

fn config(at: &Path, more: &str) -> Config {
    let at = at.display();
    let text = format!(
        "name = \"here\"\nstate = \"{at}\"\n{more}\n\
         [[root]]\nname = \"data\"\npath = \"{at}/data\"\n"
    );
    Config::parse("test", &text).expect("a configuration")
}

pub(crate) fn make(at: &Path, owner: u32, mode: u32) {
    fs::create_dir_all(at).expect("made");
    chown(at, Some(owner), Some(owner)).expect("its owner");
    fs::set_permissions(at, Permissions::from_mode(mode)).expect("its mode");
}

#[test]
fn an_endpoint_that_may_not_change_accounts_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(Accounts::open(&config(folder.path(), "")).is_ok());
    let opened = Accounts::open(&config(folder.path(), "setuid = true"));
    let Err(error) = opened else {
        assert!(account::check_rights().is_ok());
        return;
    };
    assert_eq!(error.kind, ErrorKind::PermissionDenied);
    let words = error.to_string();
    assert!(
        words.contains("setuid = true") && words.contains("as root"),
        "{words}"
    );
}

#[test]
fn without_setuid_a_session_acts_as_the_endpoint() {
    let folder = tempfile::tempdir().expect("a folder");
    let accounts = Accounts::open(&config(folder.path(), "")).expect("opens");
    assert_eq!(accounts.enter("nobody that anybody knows"), Ok(()));
    let here = std::thread::current().id();
    let there = accounts.act_as("x", || Ok(std::thread::current().id()));
    assert_eq!(there, Ok(here));
}

#[test]
fn a_panic_of_either_thread_reaches_the_caller_and_ends_every_wait() {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for asks in [true, false] {
            let ended = std::panic::catch_unwind(|| {
                asking(
                    || Ok(()),
                    |ask: &mut dyn FnMut(u32) -> Result<u32>| match asks {
                        true => ask(1),
                        false => panic!("at work"),
                    },
                    |_| panic!("no answer"),
                )
            });
            tell.send(ended.is_err()).expect("waited for");
        }
    });
    for _ in 0..2 {
        let ended = told.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(ended, Ok(true), "it hangs");
    }
}

#[test]
fn a_session_has_the_access_of_its_account_and_owns_its_new_files() {
    let accounts = Accounts::made(Box::new(Made));
    let stranger = accounts.act_as("mallory", || Ok(()));
    let stranger = stranger.expect_err("no account");
    assert_eq!(stranger.kind, ErrorKind::PermissionDenied);
    assert!(
        stranger.cause.contains("which this host does not have"),
        "{stranger}"
    );
    if !may_act() {
        let error = accounts.act_as("alice", || Ok(())).expect_err("no right");
        assert!(error.to_string().contains("CAP_SETUID"), "{error}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its mode");
    let data = folder.path().join("data");
    make(&data, 0, 0o755);
    make(&data.join("alice"), ALICE, 0o700);
    make(&data.join("alice/open"), ALICE, 0o755);
    fs::write(data.join("alice/open/file"), b"hers").expect("a file");
    let roots = Roots::open(&config(folder.path(), "")).expect("opens");
    let root = roots.named("data").expect("the root");
    let within = |owner: &str| Within {
        folder: b"alice/open/in/deep".to_vec(),
        claims: Vec::new(),
        transfer: TransferId::new("t").expect("an id"),
        owner: owner.as_bytes().to_vec(),
        durability: Durability::File,
        stripes: None,
    };
    let path = RelPath::parse(b"alice/open/file").expect("a path");
    let reads = || {
        let root = accounts.root(root)?;
        let mut opened = root
            .export
            .roots(&[b"alice/open/file".to_vec()], Links::Refuse, None)?;
        let source = opened.remove(0);
        source
            .store
            .open_read(&source.path, ReadPurpose::Transfer)
            .map(|_| ())
    };
    // The endpoint and Alice have just opened the folder.
    let store = root.export.store();
    assert!(store.open_read(&path, ReadPurpose::Transfer).is_ok());
    assert!(
        store
            .list(&RelPath::root(), &ListOptions::default())
            .is_ok()
    );
    assert_eq!(accounts.act_as("alice", reads), Ok(()));
    let made = accounts.act_as("alice", || {
        let (destination, _) = accounts.root(root)?.export.destination(within("alice"))?;
        let deep = data.join("alice/open/in/deep");
        let owners = [deep.clone(), deep.join(".dray-log")].map(|at| {
            let state = fs::metadata(at).expect("it is there");
            (state.uid(), state.gid())
        });
        drop(destination);
        Ok(owners)
    });
    assert_eq!(made, Ok([(ALICE, ALICE); 2]));
    // Bob may not enter the parent folder, although others have the folder below open.
    let kind = |result: Result<()>| result.map_err(|error| error.kind);
    assert_eq!(
        kind(accounts.act_as("bob", reads)),
        Err(ErrorKind::PermissionDenied)
    );
    let wrote = accounts.act_as("bob", || {
        accounts
            .root(root)?
            .export
            .destination(within("bob"))
            .map(|_| ())
    });
    assert_eq!(kind(wrote), Err(ErrorKind::PermissionDenied));
    assert_eq!(
        reads().map_err(|error| error.kind),
        Ok(()),
        "this thread is who it was"
    );
}
