//! The end of a tested program that receives storage faults from `dray chaos`.
//!
//! A tested program connects to the socket that the environment variable [`SOCKET_VARIABLE`] names.
//! Both ends send lines of JSON: `dray chaos` sends faults, and the program answers with the number
//! of a fault immediately before each injection.

use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Name of the environment variable with the path of the socket.
pub const SOCKET_VARIABLE: &str = "DRAY_CHAOS_SOCKET";
/// Maximum length of a line in bytes. A line has five short values.
pub(crate) const LINE_BYTES_MAX: u64 = 4096;

/// A fault for the storage of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageFault {
    /// Number of the fault in the schedule.
    pub number: u32,
    /// Name of the kind in a plan.
    pub kind: String,
    /// Number of calls to affect.
    pub count: u32,
    /// Probability that the fault affects a call, from 0 to 1.
    pub probability: f64,
    /// Seed of the random choices.
    pub seed: u64,
}

/// The message of a program that a fault happens now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Injected {
    /// Number of the fault.
    pub(crate) injected: u32,
}

/// The connection of a tested program to `dray chaos`.
#[derive(Debug)]
pub struct Agent {
    stream: UnixStream,
    writer: Arc<Mutex<UnixStream>>,
}

impl Agent {
    /// Connects to the socket of `dray chaos`.
    ///
    /// # Errors
    /// If no program listens at the socket.
    pub fn connect(path: &Path) -> Result<Self> {
        let connect = || -> std::io::Result<Self> {
            let stream = at_short_path(path, UnixStream::connect)?;
            let writer = Arc::new(Mutex::new(stream.try_clone()?));
            Ok(Self { stream, writer })
        };
        connect().map_err(|error| {
            let operation = format!(
                "connect to the socket of `dray chaos` at {}",
                path.display()
            );
            Error::new(ErrorKind::InvalidRequest, End::Here, operation)
                .cause(error.to_string())
                .remedy(format!(
                    "remove the variable {SOCKET_VARIABLE} from the environment"
                ))
        })
    }

    /// Returns a function that confirms a fault with its number. The function returns false if
    /// `dray chaos` has ended.
    pub fn confirmer(&self) -> impl Fn(u32) -> bool + Send + Sync + use<> {
        let writer = Arc::clone(&self.writer);
        move |injected| send(&writer.lock_unpoisoned(), &Injected { injected }).is_ok()
    }

    /// Passes all faults to `arm`, until `dray chaos` ends. Other lines are ignored.
    pub fn receive(self, arm: impl FnMut(StorageFault)) {
        lines(&self.stream, arm);
    }
}

/// Sends a value as one line of JSON.
pub(crate) fn send(mut stream: &UnixStream, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Passes each line that is a value to `take`, until the connection ends or a line is too long.
pub(crate) fn lines<T: DeserializeOwned>(stream: &UnixStream, mut take: impl FnMut(T)) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line);
        if read.is_err() || !line.ends_with(b"\n") {
            return;
        }
        if let Ok(value) = serde_json::from_slice(&line) {
            take(value);
        }
    }
}

/// Calls `act` with another path of the socket. The path of a socket has at most 107 bytes, and the
/// folder for temporary files may have a longer path.
pub(crate) fn at_short_path<T>(
    path: &Path,
    act: impl FnOnce(PathBuf) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let folder = std::fs::File::open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    act(short.join(name))
}
