//! Prepares the process, and watches the server that started it.

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

/// Time that a copy has to end after its server has ended. Durable data is already in the log by
/// then.
const GRACE: Duration = Duration::from_secs(5);

/// Drops inherited properties that a copy must not have: the rights of another user, and blocked
/// signals.
///
/// # Errors
/// An error if the system does not permit changing the user.
pub(crate) fn settle() -> Result<()> {
    // Set the real user too. A server that was started as root and has changed its effective user
    // still has root as its real user. Programs that check the real user would treat this process
    // as a process of root.
    let (user, group) = (geteuid(), getegid());
    let let_go = setresgid(group, group, group).and_then(|()| setresuid(user, user, user));
    let_go.map_err(|error| {
        Error::new(
            ErrorKind::PermissionDenied,
            End::Here,
            "give up all rights except those of the server's user",
        )
        .cause(error.desc())
    })?;
    let unblocked = SigSet::empty().thread_set_mask();
    unblocked.map_err(|error| {
        Error::new(ErrorKind::Internal, End::Here, "install the signal handler").cause(error.desc())
    })
}

/// Returns the id of the process that started this process.
pub(crate) fn server() -> Pid {
    getppid()
}

/// Stops the copy when the server has ended, because no process would then receive the result, and
/// another server may start the same copy. The watching thread runs until this process ends.
/// `server` is the result of [`server`]. The caller must call [`server`] before any operation that
/// may take long, because the parent process changes when the server ends.
///
/// # Errors
/// An error if the system cannot start a thread.
pub(crate) fn watch_server(server: Pid, handle: Handle) -> Result<()> {
    let watching = Builder::new().spawn(move || {
        while getppid() == server && !is_hung_up() {}
        handle.cancel(false);
        std::thread::sleep(GRACE);
        // Kill this process, because a normal exit would first join the threads of XrdCl. These
        // threads may wait for a server that never answers, and the lease would stay held. No
        // process reads the exit code.
        let _ = kill(getpid(), Signal::SIGKILL);
    });
    watching.map(drop).map_err(|error| refused(&error))
}

/// Returns true if the standard input is a pipe or a socket, and its other end is closed or is
/// closed within [`LOOK_SECONDS`]. The server keeps its end open as long as the server runs. If a
/// user starts this program, standard input can be any file.
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
    // Ignore errors, because they do not mean that the server has ended. If the server ends, the id
    // of the parent process changes too.
    let _ = poll(&mut ends, Some(&wait));
    ends.iter()
        .any(|end| end.revents().contains(PollFlags::HUP))
}

/// Returns the process id, which identifies the copy of this process.
pub(crate) fn number() -> i32 {
    getpid().as_raw()
}
