//! A temporary folder, and functions that run the program in it.

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Maximum time of every wait in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Scene(TempDir);

/// The outcome of a command.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("a folder for the test"))
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and creates the folders above it.
    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> &Self {
        let path = self.path(name);
        let folder = path.parent().expect("beneath the test's folder");
        std::fs::create_dir_all(folder).expect("make the folder");
        std::fs::write(path, bytes).expect("write the file");
        self
    }

    pub(crate) fn folder(&self, name: &str) -> &Self {
        std::fs::create_dir_all(self.path(name)).expect("make the folder");
        self
    }

    pub(crate) fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        let path = self.path(name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_as(env!("CARGO_BIN_EXE_dray"), arguments)
    }

    /// Returns a command that runs the program `program` with these arguments.
    pub(crate) fn command_as(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env_remove("DRAY_PEER_KEY")
            .env_remove("DRAY_TOKEN")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn dray(&self, arguments: &[&str]) -> Done {
        self.command(arguments).output().expect("run dray").into()
    }

    /// Runs a command that must succeed.
    pub(crate) fn good(&self, arguments: &[&str]) -> Done {
        let done = self.dray(arguments);
        assert_eq!(
            done.code,
            Some(0),
            "{arguments:?}: {}{}",
            done.out,
            done.err
        );
        done
    }

    /// Starts a command and returns while it runs.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::begin(self.command(arguments))
    }

    /// Returns all entries below a folder: for each path its kind, size, mode, time and content.
    pub(crate) fn tree(&self, top: impl AsRef<Path>) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let top = self.path(top);
        let mut folders = vec![top.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("list a folder") {
                let path = entry.expect("an entry").path();
                let state = path.symlink_metadata().expect("look at it");
                let name = path.strip_prefix(&top).expect("beneath").to_owned();
                let mut words = format!("{:o}", state.mode());
                if state.is_dir() {
                    folders.push(path.clone());
                } else if state.is_symlink() {
                    words = format!("link {:?}", path.read_link().expect("a link"));
                } else {
                    let bytes = std::fs::read(&path).expect("read it");
                    let sums = dray_core::Sums::of(&bytes);
                    words = format!("{words} {} {sums:?}", bytes.len());
                }
                if !state.is_dir() {
                    words = format!("{words} {}.{:09}", state.mtime(), state.mtime_nsec());
                }
                found.insert(name, words);
            }
        }
        found
    }

    /// Returns true if a folder has no partial files, logs or other files of dray. A program may
    /// remove files meanwhile.
    pub(crate) fn is_clean(&self, top: &str) -> bool {
        let mut folders = vec![self.path(top)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                if entry.file_name().as_encoded_bytes().starts_with(b".dray-") {
                    return false;
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                }
            }
        }
        true
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("dray speaks UTF-8");
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Done {
    /// Returns the JSON object on the last line of standard output.
    pub(crate) fn json(&self) -> Value {
        let last = self.out.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| {
            panic!("{error}: {}{}", self.out, self.err);
        })
    }

    /// Returns the only error line of the output, which begins with `dray: cannot`.
    pub(crate) fn complaint(&self) -> &str {
        let lines = self.err.lines();
        let mut found = lines.filter(|line| line.starts_with("dray: cannot"));
        let line = found.next().unwrap_or_default();
        assert!(!line.is_empty(), "no complaint in {:?}", self.err);
        line
    }
}

/// A running command. It is killed when this value is dropped.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn begin(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().expect("start dray")))
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it runs")
    }

    pub(crate) fn signal(&mut self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child().id()).expect("a process id");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("send the signal");
    }

    pub(crate) fn wait(mut self) -> Done {
        let child = self.0.take().expect("it runs");
        child.wait_with_output().expect("wait for dray").into()
    }

    /// Waits for the first line on standard output for which `pick` returns a value. Returns that
    /// value.
    pub(crate) fn line<T>(&mut self, pick: impl Fn(&str) -> Option<T>) -> T {
        let out = self.child().stdout.as_mut().expect("piped");
        let (mut line, mut byte) = (Vec::new(), [0]);
        loop {
            assert_eq!(out.read(&mut byte).expect("read"), 1, "it ended");
            if byte[0] != b'\n' {
                line.push(byte[0]);
                continue;
            }
            let text = String::from_utf8(std::mem::take(&mut line)).expect("UTF-8");
            if let Some(found) = pick(&text) {
                return found;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until a condition is true. Panics after [`PATIENCE`].
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns bytes that cannot be compressed. The bytes depend on `seed`.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Returns a name with bytes that are not UTF-8.
pub(crate) fn odd(bytes: &[u8]) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}
