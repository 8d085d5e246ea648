//! The process as the server starts it, and as it should be.

use dray_core::{End, Error, ErrorKind, Result};
use dray_runtime::drive::Handle;
use dray_runtime::threads::refused;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, getegid, geteuid, getpid, getppid, setresgid, setresuid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use std::io::stdin;
use std::thread::Builder;
use std::time::Duration;

/// How often the server is looked for.
const LOOK_SECONDS: i64 = 1;

/// What a copy may take to end by itself once its server is gone; what is safe is safe before.
const GRACE: Duration = Duration::from_secs(5);

/// Gives up what the server passes on and a copy must not have: another user's rights, blocked
/// signals.
///
/// # Errors
/// When the system does not let go of the user.
pub(crate) fn settle() -> Result<()> {
    // A server that was started as root, and became another, passes on root as the real user: what
    // looks at that one would take this for root's process.
    let (user, group) = (geteuid(), getegid());
    let let_go = setresgid(group, group, group).and_then(|()| setresuid(user, user, user));
    let_go.map_err(|error| {
        Error::new(
            ErrorKind::PermissionDenied,
            End::Here,
            "be the server's user alone",
        )
        .cause(error.desc())
    })?;
    let unblocked = SigSet::empty().thread_set_mask();
    unblocked.map_err(|error| {
        Error::new(ErrorKind::Internal, End::Here, "take signals").cause(error.desc())
    })
}

/// Who has started this.
pub(crate) fn server() -> Pid {
    getppid()
}

/// Stops the copy when the server is gone: nobody would hear of its end, and another server may be told
/// to do the same copy. Ends with the process.
/// `server` is who has started this, asked of [`server`] before anything that may take long.
///
/// # Errors
/// When the system gives no thread.
pub(crate) fn watch_server(server: Pid, handle: Handle) -> Result<()> {
    let watching = Builder::new().spawn(move || {
        while getppid() == server && !is_hung_up() {}
        handle.cancel(false);
        std::thread::sleep(GRACE);
        // Nobody reads the code. An exit would first join XrdCl's threads, which may wait for a server
        // that never answers, and the lease would stay taken.
        let _ = kill(getpid(), Signal::SIGKILL);
    });
    watching.map(drop).map_err(|error| refused(&error))
}

/// Waits a while for the other end of a pipe or socket at the standard input to be closed. The server
/// holds it for as long as it lives; who starts this by hand may have anything there.
fn is_hung_up() -> bool {
    let input = stdin();
    let is_pipe = fstat(&input).is_ok_and(|state| {
        let kind = FileType::from_raw_mode(state.st_mode);
        matches!(kind, FileType::Fifo | FileType::Socket)
    });
    let mut ends = Vec::new();
    if is_pipe {
        ends.push(PollFd::new(&input, PollFlags::empty()));
    }
    let wait = Timespec {
        tv_sec: LOOK_SECONDS,
        tv_nsec: 0,
    };
    // An error says nothing of the server; its death is seen by the other sign.
    let _ = poll(&mut ends, Some(&wait));
    ends.iter()
        .any(|end| end.revents().contains(PollFlags::HUP))
}

/// Names this process's copy.
pub(crate) fn number() -> i32 {
    getpid().as_raw()
}
