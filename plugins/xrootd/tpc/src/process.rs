//! Sets up the process, and watches the server that started it.

use dray_core::{End, Error, ErrorKind, Result};
use dray_link::threads::refused;
use dray_runtime::handle::Handle;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, getegid, geteuid, getpid, getppid, setresgid, setresuid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use std::io::stdin;
use std::thread::Builder;
use std::time::Duration;

/// Interval between checks of the server, in seconds.
const LOOK_SECONDS: i64 = 1;

/// Time that a copy may take to end by itself after its server has ended; its durable data is
/// already logged.
const GRACE: Duration = Duration::from_secs(5);

/// Drops inherited properties that a copy must not have: another user's rights, blocked signals.
///
/// # Errors
/// If the system does not permit changing the user.
pub(crate) fn settle() -> Result<()> {
    // A server that was started as root, and changed its user, passes root on as the real user:
    // programs that check the real user would take this for root's process.
    let (user, group) = (geteuid(), getegid());
    let let_go = setresgid(group, group, group).and_then(|()| setresuid(user, user, user));
    let_go.map_err(|error| {
        Error::new(
            ErrorKind::PermissionDenied,
            End::Here,
            "drop all rights but the server's user",
        )
        .cause(error.desc())
    })?;
    let unblocked = SigSet::empty().thread_set_mask();
    unblocked.map_err(|error| {
        Error::new(ErrorKind::Internal, End::Here, "take signals").cause(error.desc())
    })
}

/// Returns the process that started this one.
pub(crate) fn server() -> Pid {
    getppid()
}

/// Stops the copy when the server has ended: nobody would receive its result, and another server
/// may start the same copy. Runs until the process ends. `server` is the result of [`server`],
/// called before any operation that may take long.
///
/// # Errors
/// If the system cannot start a thread.
pub(crate) fn watch_server(server: Pid, handle: Handle) -> Result<()> {
    let watching = Builder::new().spawn(move || {
        while getppid() == server && !is_hung_up() {}
        handle.cancel(false);
        std::thread::sleep(GRACE);
        // Nobody reads the exit code. A normal exit would first join XrdCl's threads, which may
        // wait for a server that never answers, and the lease would stay held.
        let _ = kill(getpid(), Signal::SIGKILL);
    });
    watching.map(drop).map_err(|error| refused(&error))
}

/// Waits a while for the other end of a pipe or socket at the standard input to close. The server
/// keeps it open while it lives; a manual start may have any standard input.
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
    // Ignore errors: they do not mean that the server has ended, which the parent process id shows
    // too.
    let _ = poll(&mut ends, Some(&wait));
    ends.iter()
        .any(|end| end.revents().contains(PollFlags::HUP))
}

/// Returns the number that identifies this process's copy.
pub(crate) fn number() -> i32 {
    getpid().as_raw()
}
