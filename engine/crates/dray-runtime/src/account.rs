//! Changes a thread to another account of this host. Afterwards the thread has only the permissions
//! of that account.
//!
//! Only the calling thread changes, and the threads that it starts later. Other threads of the
//! process keep their user. The change is permanent.
//!
//! The change covers the effective user (and with it the file system user), the effective group,
//! the supplementary groups, and the capabilities. All capabilities are dropped. The *real* user
//! remains the user of the process. Otherwise processes of the account could send signals to the
//! thread, and a SIGKILL to one thread ends the whole process.
//!
//! Invariant of this module: after [`become_account`] has succeeded, the thread has no capability
//! and its user is not an administrator. After an error the thread is in an intermediate state, and
//! the caller must end it without further work.

use dray_core::{End, Error, ErrorKind, Result};
use rustix::fs::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::ffi::CString;

/// Lowest user number of a personal account in common distributions. Debian, RHEL and SUSE reserve
/// lower numbers for the system (`UID_MIN` in `login.defs`).
pub const UID_MIN_DEFAULT: u32 = 1_000;

/// An account of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// User number.
    pub uid: u32,
    /// Primary group number.
    pub gid: u32,
    /// Numbers of all groups of the account.
    pub groups: Vec<u32>,
}

/// Looks up accounts.
pub trait Accounts: Send + Sync {
    /// Returns the account called `name`, or `None` if it does not exist.
    ///
    /// # Errors
    /// If the look-up itself fails.
    fn find(&self, name: &str) -> Result<Option<Account>>;
}

/// The accounts of this host, from all sources that the host is configured to use (NSS).
#[derive(Debug, Clone, Copy, Default)]
pub struct HostAccounts;

impl Accounts for HostAccounts {
    fn find(&self, name: &str) -> Result<Option<Account>> {
        let failed = |errno: nix::errno::Errno| {
            Error::new(ErrorKind::Io, End::Here, "find the account")
                .cause(format!("{name:?}: {errno}"))
                .remedy("check that `getent passwd` works on this host")
        };
        // An account name cannot contain a zero byte.
        let Ok(in_c) = CString::new(name) else {
            return Ok(None);
        };
        let Some(user) = nix::unistd::User::from_name(name).map_err(failed)? else {
            return Ok(None);
        };
        let groups = nix::unistd::getgrouplist(&in_c, user.gid).map_err(failed)?;
        Ok(Some(Account {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: groups.iter().map(|group| group.as_raw()).collect(),
        }))
    }
}

/// Checks that this process has the capabilities to change its threads to other accounts.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] names the missing capabilities.
pub fn check_rights() -> Result<()> {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let has = rustix::thread::capabilities(None).map(|sets| sets.effective);
    if has.is_ok_and(|has| has.contains(needed)) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::PermissionDenied,
        End::Here,
        "act as other accounts",
    )
    .cause("the endpoint's process lacks CAP_SETUID and CAP_SETGID")
    .remedy("start the endpoint as root, or give its process CAP_SETUID and CAP_SETGID"))
}

/// Changes the calling thread permanently to the account `name`. Refuses accounts with a user
/// number below `uid_min`, and accounts of administrators.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if the account does not exist or may not be used, or if this
/// process lacks the capabilities. After an error the caller must end the thread without further
/// work.
pub fn become_account(name: &str, uid_min: u32, accounts: &dyn Accounts) -> Result<()> {
    let account = accounts.find(name)?.ok_or_else(|| {
        refused(format!(
            "the caller is mapped to the account {name:?}, which this host does not have"
        ))
    })?;
    if account.uid == 0 || account.gid == 0 {
        return Err(refused(format!(
            "the account {name:?} has the user id or group id 0 of the administrator"
        )));
    }
    // The system calls read these two numbers as "leave unchanged".
    if account.uid == u32::MAX || account.gid == u32::MAX {
        return Err(refused(format!(
            "the account {name:?} has no user id or no group id"
        )));
    }
    if account.uid < uid_min {
        let uid = account.uid;
        let cause = format!(
            "the account {name:?} has the user id {uid}, below {uid_min}: it is a system \
                account"
        );
        return Err(refused(cause));
    }
    check_rights()?;
    enter(&account).map_err(|errno| {
        Error::new(
            ErrorKind::PermissionDenied,
            End::Here,
            format!("act as the account {name:?}"),
        )
        .cause(errno.to_string())
        .remedy("check that the host permits the endpoint's process to change users")
    })
}

fn refused(cause: String) -> Error {
    Error::new(
        ErrorKind::PermissionDenied,
        End::Here,
        "act as the owner's account",
    )
    .cause(cause)
    .remedy("correct the rule that maps the caller to the account, or create the account")
}

/// Sets the groups before the user: the change of user can drop the capability to set groups.
fn enter(account: &Account) -> rustix::io::Result<()> {
    let groups: Vec<Gid> = account
        .groups
        .iter()
        .map(|group| Gid::from_raw(*group))
        .collect();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(None, gid, None)?;
    rustix::thread::set_thread_res_uid(None, uid, None)?;
    // The change of user drops the capabilities only if the thread ran as root. A process of
    // another user may have been given individual capabilities, which this call drops.
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)?;
    let now = rustix::thread::capabilities(None)?;
    let is_done = now.effective.is_empty()
        && now.permitted.is_empty()
        && rustix::process::geteuid() == uid
        && rustix::process::getegid() == gid;
    match is_done {
        true => Ok(()),
        false => Err(rustix::io::Errno::PERM),
    }
}

#[cfg(test)]
mod tests;
