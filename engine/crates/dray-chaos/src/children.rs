//! The processes that a run has started, and the signals that it sends to them.
//!
//! Each program runs in a process group of its own. A signal goes to the whole group, so it also
//! reaches the program behind a wrapper such as `env` or `sh -c`. Ctrl-C on a terminal reaches only
//! `dray chaos`, which then kills the groups. If the first process of a group ends, the others are
//! killed too: a program whose wrapper has ended must not outlive the run.

use crate::agent::SOCKET_VARIABLE;
use crate::clock::{self, Clock};
use crate::hub::Hub;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

/// The running processes of a run. Clones share the processes.
#[derive(Debug, Clone, Default)]
pub struct Children {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    running: BTreeMap<u64, Child>,
    is_closed: bool,
}

/// The files of the output of a process.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    /// Standard output.
    pub(crate) out: PathBuf,
    /// Standard error.
    pub(crate) log: PathBuf,
    /// Socket from which the process gets storage faults.
    pub(crate) socket: Option<PathBuf>,
    /// Environment variables that load libfaketime.
    pub(crate) clock: Vec<(&'static str, OsString)>,
}

impl Output {
    /// Names the two files of the process `name` in a folder.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        Self {
            out: folder.join(format!("{name}.out")),
            log: folder.join(format!("{name}.log")),
            socket: None,
            clock: Vec::new(),
        }
    }

    /// Gives the process the socket of a hub.
    pub(crate) fn with_faults(self, hub: Option<&Hub>) -> Self {
        let socket = hub.map(|hub| hub.path().to_owned());
        Self { socket, ..self }
    }

    /// Loads libfaketime into the process, so that its clock can step.
    pub(crate) fn with_clock(self, clock: Option<&Clock>) -> Self {
        let clock = clock.map_or_else(Vec::new, Clock::variables);
        Self { clock, ..self }
    }

    /// Returns the last lines of standard error, for messages.
    pub(crate) fn last_words(&self) -> String {
        const LINES: usize = 3;
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join("; ")
    }
}

/// The number of a process in [`Children`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChildId(u64);

impl Children {
    /// Starts a process in its own group, with its output in files.
    ///
    /// # Errors
    /// If the system cannot start the program, or if [`Children::close`] was called.
    pub(crate) fn start(&self, command: &[String], output: &Output) -> Result<ChildId> {
        let (program, arguments) = match command.split_first() {
            Some((program, arguments)) => (program.as_str(), arguments),
            None => ("", &[][..]),
        };
        let failed = |error: std::io::Error| {
            Error::new(error.kind().into(), End::Here, format!("start {program}"))
                .cause(error.to_string())
                .remedy("correct the command in the plan")
        };
        let out = File::create(&output.out).map_err(failed)?;
        let log = File::create(&output.log).map_err(failed)?;
        let mut state = self.state.lock_unpoisoned();
        if state.is_closed {
            return Err(stopped());
        }
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(log)
            .env_remove(SOCKET_VARIABLE)
            .process_group(0);
        if !output.clock.is_empty() {
            for name in clock::OTHER_VARIABLES {
                command.env_remove(name);
            }
            command.envs(output.clock.iter().map(|(name, value)| (name, value)));
        }
        if let Some(socket) = &output.socket {
            command.env(SOCKET_VARIABLE, socket);
        }
        let child = command.spawn().map_err(failed)?;
        let number = state.next;
        state.next += 1;
        state.running.insert(number, child);
        Ok(ChildId(number))
    }

    /// Sends a signal to the group of a running process.
    pub(crate) fn signal(&self, id: ChildId, signal: Signal) {
        // The lock keeps the process from being reaped, so its number belongs to it.
        if let Some(child) = self.state.lock_unpoisoned().running.get(&id.0) {
            send(child, signal);
        }
    }

    /// Returns the numbers of the processes in the group of a process.
    pub(crate) fn group(&self, id: ChildId) -> Vec<u32> {
        let leader = self
            .state
            .lock_unpoisoned()
            .running
            .get(&id.0)
            .map(Child::id);
        let (Some(leader), Ok(entries)) = (leader, std::fs::read_dir("/proc")) else {
            return Vec::new();
        };
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers
            .filter(|number| group_of(*number) == Some(leader))
            .collect()
    }

    /// Returns the exit status of a process that has ended, once. Kills the rest of its group.
    pub(crate) fn ended(&self, id: ChildId) -> Option<ExitStatus> {
        let mut state = self.state.lock_unpoisoned();
        let child = state.running.get_mut(&id.0)?;
        if has_ended(child) {
            // The process is not reaped yet, so no other group can have its number.
            send(child, Signal::KILL);
        }
        let status = child.try_wait().ok().flatten()?;
        state.running.remove(&id.0);
        Some(status)
    }

    /// Kills a process and waits until it has ended.
    pub(crate) fn kill(&self, id: ChildId) {
        let child = self.state.lock_unpoisoned().running.remove(&id.0);
        if let Some(child) = child {
            kill(child);
        }
    }

    /// Kills all processes and refuses to start others. Any thread may call it.
    pub fn close(&self) {
        self.state.lock_unpoisoned().is_closed = true;
        self.kill_all();
    }

    /// Kills all processes.
    pub(crate) fn kill_all(&self) {
        let mut state = self.state.lock_unpoisoned();
        // Send all signals before the first wait, so that no process sees the end of another one.
        for child in state.running.values() {
            send(child, Signal::KILL);
        }
        for child in std::mem::take(&mut state.running).into_values() {
            kill(child);
        }
    }

    /// Returns true after [`Children::close`].
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock_unpoisoned().is_closed
    }
}

/// Returns the error of a run that was stopped.
pub(crate) fn stopped() -> Error {
    Error::new(ErrorKind::Cancelled, End::Here, "run the plan")
        .cause("the run was stopped, and its processes were killed")
        .remedy("run the plan again with the printed seed")
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Returns the number of the group of a process.
fn group_of(process: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program ends with the last `)`. The state, the parent and the group follow.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(2)?.parse().ok()
}

/// Returns true if a process has ended. The process is not reaped.
fn has_ended(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    pid(child).is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))))
}

fn send(child: &Child, signal: Signal) {
    if let Some(group) = pid(child) {
        // An error means that the process has ended but was not reaped.
        let _ = kill_process_group(group, signal);
    }
}

fn kill(mut child: Child) {
    send(&child, Signal::KILL);
    let _ = child.wait();
}

/// Returns an exit status in words.
pub(crate) fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Children, Output};
    use rustix::process::{Pid, test_kill_process};
    use std::time::{Duration, Instant};

    fn words(text: &str) -> Vec<String> {
        ["sh", "-c", text].map(str::to_owned).to_vec()
    }

    const WAIT: Duration = Duration::from_secs(10);

    /// Returns the number of the process behind a shell, which prints it.
    fn behind(output: &Output) -> Pid {
        let until = Instant::now() + WAIT;
        loop {
            let text = std::fs::read_to_string(&output.out).expect("readable");
            if let Some(number) = text.strip_suffix('\n') {
                return number.parse().ok().and_then(Pid::from_raw).expect("a pid");
            }
            assert!(Instant::now() < until, "the shell did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Fails if the process behind a shell does not end.
    fn await_end(behind: Pid) {
        let until = Instant::now() + WAIT;
        // The shell was the parent, so the init process reaps the program behind it.
        while test_kill_process(behind).is_ok() && !is_zombie(behind) {
            assert!(Instant::now() < until, "the program behind the shell lives");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn close_kills_the_whole_group_of_a_wrapper_and_refuses_new_processes() {
        let folder = tempfile::tempdir().expect("a folder");
        let output = Output::new(folder.path(), "a");
        let children = Children::default();
        let command = words("sleep 600 & echo $!; wait");
        children.start(&command, &output).expect("started");
        let behind = behind(&output);
        assert!(test_kill_process(behind).is_ok());
        children.close();
        await_end(behind);
        assert!(children.start(&words("true"), &output).is_err());
    }

    #[test]
    fn the_program_behind_a_wrapper_that_has_ended_is_killed() {
        let folder = tempfile::tempdir().expect("a folder");
        let output = Output::new(folder.path(), "a");
        let children = Children::default();
        let id = children
            .start(&words("sleep 600 & echo $!"), &output)
            .expect("started");
        let behind = behind(&output);
        assert!(test_kill_process(behind).is_ok());
        let until = Instant::now() + WAIT;
        while children.ended(id).is_none() {
            assert!(Instant::now() < until, "the shell did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        await_end(behind);
    }

    fn is_zombie(pid: Pid) -> bool {
        let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" Z"))
    }

    #[test]
    fn the_status_of_an_ended_process_is_returned_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let output = Output::new(folder.path(), "a");
        let children = Children::default();
        let id = children
            .start(&words("echo bad >&2; exit 7"), &output)
            .expect("started");
        let status = loop {
            if let Some(status) = children.ended(id) {
                break status;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(7));
        assert!(children.ended(id).is_none());
        assert_eq!(output.last_words(), "bad");
    }
}
