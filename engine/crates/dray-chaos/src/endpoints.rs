//! The endpoints of a run: start, readiness, restart after a kill, and the proxy in front of each.

use crate::children::{ChildId, Children, Output, stopped, words};
use crate::clock::Clock;
use crate::hub::Hub;
use crate::plan::{EndpointPlan, Plan};
use crate::proxy::Proxy;
use dray_core::{End, Error, ErrorKind, Result};
use rustix::process::Signal;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time until a started endpoint accepts connections. The value is estimated.
const READY_MAX: Duration = Duration::from_secs(30);
/// Maximum time between the first accepted connection and the printed fingerprint. The value is
/// estimated.
const KEY_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// An endpoint with its process and its proxy.
pub(crate) struct Endpoint {
    name: String,
    command: Vec<String>,
    address: SocketAddr,
    folder: PathBuf,
    children: Children,
    state: State,
    starts: u32,
    output: Output,
    /// The proxy through which the copy reaches the endpoint.
    pub(crate) proxy: Proxy,
    /// Sends storage faults to the process; `None` if the schedule has none.
    pub(crate) hub: Option<Hub>,
    clock: Option<Clock>,
}

enum State {
    Running(ChildId),
    Stopped(ChildId, Instant),
    Killed(Instant),
    /// The process could not be started again.
    Lost,
}

/// The programs and the folder that the commands of a plan mention.
pub(crate) struct Words<'a> {
    /// The program `dray`.
    pub(crate) program: &'a Path,
    /// The folder of the run.
    pub(crate) folder: &'a Path,
    /// True if the schedule has storage faults.
    pub(crate) has_storage_faults: bool,
    /// Library that steps clocks; `None` if the schedule has no such fault.
    pub(crate) clock_library: Option<PathBuf>,
}

impl Words<'_> {
    /// Replaces the placeholders of a command: `{folder}`, `{NAME}` and `{NAME.key}`. The word
    /// `dray` as the program means this program.
    pub(crate) fn expand(&self, command: &[String], endpoints: &[Endpoint]) -> Result<Vec<String>> {
        let mut expanded = Vec::with_capacity(command.len());
        for (index, word) in command.iter().enumerate() {
            expanded.push(match index == 0 && word == "dray" {
                true => self.program.display().to_string(),
                false => self.word(word, endpoints)?,
            });
        }
        Ok(expanded)
    }

    /// Prepares the clock of the program `name`, if the schedule steps clocks.
    pub(crate) fn clock(&self, name: &str) -> Result<Option<Clock>> {
        let library = self.clock_library.as_deref();
        let clock = library.map(|library| Clock::new(library, self.folder, name));
        clock.transpose()
    }

    fn word(&self, word: &str, endpoints: &[Endpoint]) -> Result<String> {
        let mut done = String::new();
        let mut rest = word;
        while let Some((before, after)) = rest.split_once('{') {
            done.push_str(before);
            let name = after.split_once('}').map(|(name, _)| name);
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
            match name.filter(|name| !name.is_empty() && name.chars().all(is_name)) {
                Some(name) => {
                    done.push_str(&self.value(name, endpoints)?);
                    rest = &after[name.len() + 1..];
                }
                None => {
                    done.push('{');
                    rest = after;
                }
            }
        }
        done.push_str(rest);
        Ok(done)
    }

    fn value(&self, name: &str, endpoints: &[Endpoint]) -> Result<String> {
        if name == "folder" {
            return Ok(self.folder.display().to_string());
        }
        let (name_of, is_key) = match name.strip_suffix(".key") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let endpoint = endpoints.iter().find(|endpoint| endpoint.name == name_of);
        let Some(endpoint) = endpoint else {
            let cause = format!(
                "{{{name}}} is not the name of an endpoint; an endpoint can use only the names \
                    of endpoints above it"
            );
            return Err(invalid(cause));
        };
        match is_key {
            false => Ok(endpoint.proxy.address().to_string()),
            true => endpoint.key(),
        }
    }
}

fn invalid(cause: String) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "read the plan")
        .cause(cause)
        .remedy("correct the plan; docs/reference/chaos.md lists its keys")
}

fn not_started(name: &str, cause: impl Into<String>) -> Error {
    Error::new(
        ErrorKind::Busy,
        End::Here,
        format!("start the endpoint {name}"),
    )
    .cause(cause)
    .remedy("correct `command` and `address` of the endpoint in the plan")
}

impl Endpoint {
    /// Starts all endpoints of a plan, and waits until each accepts connections.
    ///
    /// # Errors
    /// If an endpoint does not start.
    pub(crate) fn start_all(
        plan: &Plan,
        words: &Words<'_>,
        children: &Children,
    ) -> Result<Vec<Self>> {
        let mut endpoints: Vec<Self> = Vec::new();
        for given in &plan.endpoints {
            let command = words.expand(&given.command, &endpoints)?;
            let mut endpoint = Self::new(given, command, words, children)?;
            endpoint.await_ready()?;
            endpoints.push(endpoint);
        }
        Ok(endpoints)
    }

    fn new(
        given: &EndpointPlan,
        command: Vec<String>,
        words: &Words<'_>,
        children: &Children,
    ) -> Result<Self> {
        let (name, folder) = (&given.name, words.folder);
        let resolved = given.address.to_socket_addrs().map(|mut all| all.next());
        let address = match resolved {
            Ok(Some(address)) => address,
            Ok(None) => {
                return Err(not_started(
                    name,
                    format!("{} has no address", given.address),
                ));
            }
            Err(error) => return Err(not_started(name, format!("{}: {error}", given.address))),
        };
        if TcpStream::connect_timeout(&address, CONNECT_MAX).is_ok() {
            return Err(not_started(
                name,
                format!("another program accepts connections at {address}"),
            ));
        }
        let proxy = Proxy::start(given.proxy.as_deref().unwrap_or("127.0.0.1:0"), address)?;
        let hub = words.has_storage_faults.then(|| Hub::start(folder, name));
        let hub = hub.transpose()?;
        let clock = words.clock(name)?;
        let output = Output::new(folder, &format!("{name}-1"))
            .with_faults(hub.as_ref())
            .with_clock(clock.as_ref());
        let child = children.start(&command, &output)?;
        Ok(Self {
            name: name.clone(),
            command,
            address,
            folder: folder.to_owned(),
            children: children.clone(),
            state: State::Running(child),
            starts: 1,
            output,
            proxy,
            hub,
            clock,
        })
    }

    fn await_ready(&mut self) -> Result<()> {
        let until = Instant::now() + READY_MAX;
        while TcpStream::connect_timeout(&self.address, CONNECT_MAX).is_err() {
            if let State::Running(child) = self.state
                && let Some(status) = self.children.ended(child)
            {
                let cause = format!(
                    "it ended with {}: {}",
                    words(status),
                    self.output.last_words()
                );
                return Err(not_started(&self.name, cause));
            }
            if self.children.is_closed() {
                return Err(stopped());
            }
            if Instant::now() > until {
                let cause = format!(
                    "it did not accept connections at {} within {} s: {}",
                    self.address,
                    READY_MAX.as_secs(),
                    self.output.last_words()
                );
                return Err(not_started(&self.name, cause));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Returns the fingerprint that `dray serve` prints. `dray serve` may accept connections a
    /// moment before it prints the fingerprint.
    fn key(&self) -> Result<String> {
        let until = Instant::now() + KEY_MAX;
        loop {
            let text = std::fs::read_to_string(&self.output.out).unwrap_or_default();
            if let Some(key) = fingerprint(&text) {
                return Ok(key);
            }
            if Instant::now() > until || self.children.is_closed() {
                return Err(invalid(format!(
                    "{{{}.key}}: the endpoint has printed no fingerprint of its key, as `dray serve` \
                        does",
                    self.name
                )));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Returns true if the process runs and is not stopped.
    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// Kills the process. The process is started again after this time.
    pub(crate) fn kill(&mut self, restart_after: Duration) {
        if let State::Running(child) | State::Stopped(child, _) = self.state {
            self.children.kill(child);
        }
        self.state = State::Killed(Instant::now() + restart_after);
    }

    /// Stops the process by SIGSTOP. It continues after this time.
    pub(crate) fn stop(&mut self, duration: Duration) {
        if let State::Running(child) = self.state {
            self.children.signal(child, Signal::STOP);
            self.state = State::Stopped(child, Instant::now() + duration);
        }
    }

    /// Steps the clock of the process.
    ///
    /// # Errors
    /// The reason if the clock cannot step.
    pub(crate) fn step_clock(&mut self, by_ms: i64) -> std::result::Result<(), String> {
        match (&mut self.clock, &self.state) {
            (Some(clock), State::Running(child)) => clock.step(by_ms, &self.children.group(*child)),
            _ => Err("the endpoint is not running".to_owned()),
        }
    }

    /// Returns true if the process could not be started again.
    pub(crate) const fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// Continues or restarts the process when its time has come. Returns one reason if the process
    /// has ended by itself, and one if the process does not accept connections after a restart.
    ///
    /// # Errors
    /// If the run was stopped, or if the system cannot start the process.
    pub(crate) fn tick(&mut self) -> Result<Vec<String>> {
        let now = Instant::now();
        match self.state {
            State::Stopped(child, until) if now >= until => {
                self.children.signal(child, Signal::CONT);
                self.state = State::Running(child);
            }
            State::Killed(until) if now >= until => {
                return Ok(self.restart()?.into_iter().collect());
            }
            State::Running(child) => {
                if let Some(status) = self.children.ended(child) {
                    let cause = format!(
                        "the endpoint {} ended by itself with {}: {}",
                        self.name,
                        words(status),
                        self.output.last_words()
                    );
                    return Ok([cause].into_iter().chain(self.restart()?).collect());
                }
            }
            State::Stopped(..) | State::Killed(_) | State::Lost => {}
        }
        Ok(Vec::new())
    }

    /// Starts the process again. Returns the reason if the process does not accept connections.
    ///
    /// # Errors
    /// If the run was stopped, or if the system cannot start the process.
    fn restart(&mut self) -> Result<Option<String>> {
        self.starts += 1;
        let output = Output::new(&self.folder, &format!("{}-{}", self.name, self.starts));
        self.output = output
            .with_faults(self.hub.as_ref())
            .with_clock(self.clock.as_ref());
        let child = self.children.start(&self.command, &self.output)?;
        self.state = State::Running(child);
        match self.await_ready() {
            Ok(()) => Ok(None),
            Err(error) if error.kind == ErrorKind::Cancelled => Err(error),
            Err(error) => {
                self.state = State::Lost;
                Ok(Some(format!(
                    "the endpoint {} did not start again: {}",
                    self.name, error.cause
                )))
            }
        }
    }
}

/// Returns the first fingerprint in the complete lines of an output.
fn fingerprint(text: &str) -> Option<String> {
    const PREFIX: &str = "sha256:";
    let (complete, _) = text.rsplit_once('\n')?;
    let (_, rest) = complete.split_once(PREFIX)?;
    let is_key = |c: char| c.is_ascii_alphanumeric() || "+/=_-".contains(c);
    let end = rest.find(|c| !is_key(c)).unwrap_or(rest.len());
    Some(format!("{PREFIX}{}", &rest[..end]))
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn the_fingerprint_is_read_from_text_and_json_when_its_line_is_complete() {
        let key = Some("sha256:ab+/9=".to_owned());
        assert_eq!(fingerprint("key sha256:ab+/9=\nlistening"), key);
        assert_eq!(
            fingerprint("{\"fingerprint\":\"sha256:ab+/9=\",\"a\":1}\n"),
            key
        );
        assert_eq!(fingerprint("key sha256:ab"), None);
        assert_eq!(fingerprint("listening\n"), None);
    }
}
