//! Sends storage faults to the processes of one program of the plan, and counts their injections.

use crate::agent::{Injected, StorageFault, at_short_path, lines, send};
use crate::plan::{Fault, Injections};
use dray_core::lock::LockExt;
use dray_core::{End, Error, Result};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum wait for the last confirmations of processes that have ended. The value is estimated.
const DRAIN_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);
/// Pause after the system has refused a connection. The reason may last, such as too many open
/// files.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// The socket of one program.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Arc<Mutex<State>>,
    path: PathBuf,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    processes: Vec<(u64, UnixStream)>,
    begun: Vec<Begun>,
    is_closed: bool,
}

#[derive(Debug)]
struct Begun {
    fault: StorageFault,
    injected: Arc<AtomicU32>,
}

impl Begun {
    /// Returns the fault for the process with the number `process`, which connects now, without the
    /// injections so far.
    fn rest(&self, process: u64) -> Option<StorageFault> {
        let injected = self.injected.load(Ordering::Relaxed);
        let count = self.fault.count.saturating_sub(injected);
        let mut rest = self.fault.clone();
        rest.count = count;
        // With the same seed, the process would repeat the choices of the process before it.
        rest.seed = rest.seed.wrapping_add(process);
        (count > 0).then_some(rest)
    }
}

impl Hub {
    /// Listens at a socket in `folder` for the processes of the program `name`.
    ///
    /// # Errors
    /// If the socket cannot be created, or if the system refuses a thread.
    pub(crate) fn start(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(format!("{name}.socket"));
        let failed = |error: std::io::Error, operation: String, remedy| {
            Error::new(error.kind().into(), End::Here, operation)
                .cause(error.to_string())
                .remedy(remedy)
        };
        let listener = at_short_path(&path, UnixListener::bind).map_err(|error| {
            let operation = format!("listen on the socket {}", path.display());
            failed(
                error,
                operation,
                "check that TMPDIR names a writable folder",
            )
        })?;
        let shared = Arc::new(Mutex::new(State::default()));
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("chaos-hub".to_owned());
        thread
            .spawn(move || accept(&own, &listener))
            .map_err(|error| {
                let operation = "start a thread for storage faults".to_owned();
                failed(error, operation, "raise the limit of processes")
            })?;
        Ok(Self { shared, path })
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a fault in the connected processes and in all that connect later. Returns the counter
    /// of its injections, or `None` if no process is connected, or if the fault does not affect the
    /// storage.
    pub(crate) fn begin(&self, number: u32, fault: &Fault, seed: u64) -> Option<Arc<AtomicU32>> {
        let Injections { probability, count } = fault.storage()?;
        let fault = StorageFault {
            number,
            kind: fault.kind().name().to_owned(),
            count,
            probability,
            seed,
        };
        let mut state = self.shared.lock_unpoisoned();
        let sent = (state.processes.iter()).filter(|(_, stream)| send(stream, &fault).is_ok());
        if sent.count() == 0 {
            return None;
        }
        let injected = Arc::new(AtomicU32::new(0));
        state.begun.push(Begun {
            fault,
            injected: Arc::clone(&injected),
        });
        Some(injected)
    }

    /// Waits until the confirmations of all ended processes are counted.
    pub(crate) fn drain(&self) {
        let until = Instant::now() + DRAIN_MAX;
        while !self.shared.lock_unpoisoned().processes.is_empty() && Instant::now() < until {
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let mut state = self.shared.lock_unpoisoned();
        state.is_closed = true;
        for (_, stream) in &state.processes {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(state);
        // Wakes the thread that accepts connections, so that it ends.
        let _ = at_short_path(&self.path, UnixStream::connect);
    }
}

fn accept(shared: &Arc<Mutex<State>>, listener: &UnixListener) {
    for stream in listener.incoming() {
        if shared.lock_unpoisoned().is_closed {
            return;
        }
        let clones = stream.and_then(|stream| Ok((stream.try_clone()?, stream)));
        let Ok((reader, writer)) = clones else {
            std::thread::sleep(REFUSED_PAUSE);
            continue;
        };
        let mut state = shared.lock_unpoisoned();
        let own = Arc::clone(shared);
        let id = state.next;
        let thread = std::thread::Builder::new().name("chaos-hub".to_owned());
        if thread.spawn(move || count(&own, id, &reader)).is_err() {
            continue;
        }
        state.next += 1;
        for rest in state.begun.iter().filter_map(|begun| begun.rest(id)) {
            // The thread above notices the end of a process.
            let _ = send(&writer, &rest);
        }
        state.processes.push((id, writer));
    }
}

/// Counts the confirmations of a process until it ends.
fn count(shared: &Mutex<State>, id: u64, reader: &UnixStream) {
    lines(reader, |Injected { injected }| {
        let state = shared.lock_unpoisoned();
        let begun = state
            .begun
            .iter()
            .find(|begun| begun.fault.number == injected);
        if let Some(begun) = begun {
            begun.injected.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut state = shared.lock_unpoisoned();
    state.processes.retain(|(other, _)| *other != id);
}

#[cfg(test)]
mod tests {
    use super::Hub;
    use crate::agent::{Agent, StorageFault};
    use crate::plan::{Fault, Injections};
    use std::path::Path;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    const FAULT: Fault = Fault::IoError(Injections {
        probability: 0.5,
        count: 3,
    });
    const WAIT: Duration = Duration::from_secs(10);

    /// Connects like a tested program. Returns its confirmer, and the faults that it receives.
    fn program(path: &Path) -> (impl Fn(u32) -> bool + use<>, Receiver<StorageFault>) {
        let agent = Agent::connect(path).expect("connected");
        let confirm = agent.confirmer();
        let (sender, receiver) = channel();
        std::thread::spawn(move || agent.receive(|fault| drop(sender.send(fault))));
        (confirm, receiver)
    }

    #[test]
    fn injections_are_counted_and_the_next_process_gets_the_rest() {
        let top = tempfile::tempdir().expect("a folder");
        // The path of a socket could not be so long.
        let folder = top.path().join("long".repeat(30));
        std::fs::create_dir(&folder).expect("made");
        let hub = Hub::start(&folder, "sink").expect("a socket");
        assert!(hub.begin(4, &FAULT, 7).is_none(), "no process is connected");
        let (confirm, faults) = program(hub.path());
        let counter = loop {
            // The hub accepts the connection a moment later.
            match hub.begin(4, &FAULT, 7) {
                Some(counter) => break counter,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let fault = faults.recv_timeout(WAIT).expect("received");
        assert_eq!((fault.number, &*fault.kind), (4, "io_error"));
        assert_eq!((fault.count, fault.probability, fault.seed), (3, 0.5, 7));
        assert!(confirm(4) && confirm(99));
        while counter.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (_, faults) = program(hub.path());
        let rest = faults.recv_timeout(WAIT).expect("received");
        assert_eq!((rest.number, rest.count), (4, 2));
        assert!(hub.begin(5, &Fault::Cut, 7).is_none(), "not of the storage");
    }
}
