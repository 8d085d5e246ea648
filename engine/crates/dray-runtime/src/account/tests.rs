use super::{Account, Accounts, HostAccounts, UID_MIN_DEFAULT, become_account, check_rights};
use dray_core::{ErrorKind, Result};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const UID: u32 = 54_321;
const GID: u32 = 54_322;
const TEAM: u32 = 54_323;

/// Fake accounts that exist on no host.
struct Made;

impl Accounts for Made {
    fn find(&self, name: &str) -> Result<Option<Account>> {
        let account = |uid, gid| Account {
            uid,
            gid,
            groups: vec![gid, TEAM],
        };
        Ok(match name {
            "alice" => Some(account(UID, GID)),
            "toor" => Some(account(0, GID)),
            "wheel" => Some(account(UID, 0)),
            "daemon" => Some(account(999, GID)),
            "none" => Some(account(u32::MAX, GID)),
            _ => None,
        })
    }
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

fn refusal(name: &str) -> String {
    on_a_thread(|| {
        let error = become_account(name, UID_MIN_DEFAULT, &Made).expect_err(name);
        assert_eq!(error.kind, ErrorKind::PermissionDenied);
        error.to_string()
    })
}

#[test]
fn administrators_the_systems_own_and_strangers_are_refused() {
    assert!(refusal("toor").contains("administrator"));
    assert!(refusal("wheel").contains("administrator"));
    assert!(refusal("daemon").contains("below 1000"));
    assert!(refusal("none").contains("no user id"));
    let unknown = refusal("mallory");
    assert!(
        unknown.contains("does not have") && unknown.contains("mallory"),
        "{unknown}"
    );
}

#[test]
fn the_hosts_accounts_are_found_by_name() {
    let root = HostAccounts
        .find("root")
        .expect("asked")
        .expect("every host has it");
    assert_eq!((root.uid, root.gid), (0, 0));
    for nobody in ["no-such-account-here", "", "a\0b"] {
        assert_eq!(
            HostAccounts.find(nobody).expect("asked"),
            None,
            "{nobody:?}"
        );
    }
}

fn write(at: &Path, mode: u32, group: u32) {
    fs::write(at, b"secret").expect("a file");
    fs::set_permissions(at, fs::Permissions::from_mode(mode)).expect("its mode");
    std::os::unix::fs::chown(at, Some(0), Some(group)).expect("its group");
}

#[test]
fn a_thread_acts_as_the_account_and_no_other_does() {
    if check_rights().is_err() {
        // Without the capabilities, this test can only check the refusal.
        assert!(refusal("alice").contains("CAP_SETUID"));
        let is_said = std::env::var_os("DRAY_TEST_ACCOUNTS").is_some();
        assert!(!is_said, "DRAY_TEST_ACCOUNTS is set, and this may not");
        eprintln!("left out: acting as another account, which this process may not");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("open");
    let at = |name: &str| folder.path().join(name);
    write(&at("roots"), 0o600, 0);
    write(&at("of-group-zero"), 0o640, 0);
    write(&at("teams"), 0o640, TEAM);
    let looks = |own: &str| {
        let denied = |result: std::io::Result<_>| {
            result.is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
        };
        assert!(
            denied(fs::read(at("roots"))),
            "no capability over files is left"
        );
        assert!(
            denied(fs::read(at("of-group-zero"))),
            "nor a group of before"
        );
        assert!(denied(
            std::os::unix::fs::chown(at("teams"), Some(UID), None).map(|()| vec![])
        ));
        assert_eq!(fs::read(at("teams")).expect("a member may"), b"secret");
        fs::write(at(own), b"mine").expect("may write there");
        let made = fs::metadata(at(own)).expect("a state");
        assert_eq!((made.uid(), made.gid()), (UID, GID));
        // System calls that stores need still work.
        assert!(fs::read_to_string("/proc/self/status").is_ok());
        let open = fs::File::open(at(own)).expect("opens");
        let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        assert_eq!(fs::read(again).expect("one's own"), b"mine");
    };
    on_a_thread(|| {
        become_account("alice", UID_MIN_DEFAULT, &Made).expect("may");
        looks("own");
        on_a_thread(|| looks("inherited"));
        let error = become_account("alice", UID_MIN_DEFAULT, &Made).expect_err("no way on");
        assert_eq!(error.kind, ErrorKind::PermissionDenied);
    });
    assert_eq!(fs::read(at("roots")).expect("still who it was"), b"secret");
    on_a_thread(|| assert_eq!(fs::read(at("roots")).expect("so is a new one"), b"secret"));
    // Only the user of the process may send signals to its threads.
    on_a_thread(|| {
        become_account("alice", UID_MIN_DEFAULT, &Made).expect("may");
        let status = fs::read_to_string("/proc/thread-self/status").expect("its state");
        let uids = status
            .lines()
            .find(|line| line.starts_with("Uid:"))
            .expect("users");
        assert_eq!(uids, format!("Uid:\t0\t{UID}\t0\t{UID}"));
    });
}
