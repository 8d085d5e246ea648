//! Runs a plan: starts the programs, injects the faults of the schedule, repeats the copy, and judges.

mod faults;

use crate::attempt::{Attempt, Ended};
use crate::children::{Children, stopped};
use crate::clock::{self, Clock};
use crate::endpoints::{Endpoint, Words};
use crate::events::{Event, Observer};
use crate::hub::Hub;
use crate::plan::{CLIENT, Kind, Plan};
use crate::schedule::Schedule;
use crate::tree::{self, Entry, Tree};
use crate::verdict::{AttemptReport, Measured, SentAgain, State, Verdict};
use crate::watch::Watch;
use dray_core::{End, Error, ErrorKind, Result};
use faults::FaultState;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Interval between two looks at the processes and the progress.
const TICK: Duration = Duration::from_millis(10);
/// Pause before the command of the copy is started again. The sink may still be closing a session.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Minimum time between the begins of two faults. The durable bytes grow in steps of a sync group, so
/// the moments of several faults may come at once, and the first fault would have no effect.
const FAULT_GAP: Duration = Duration::from_millis(250);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum wait for the removal of the logs after the copy, and the pause between two looks. The value
/// is estimated, not measured.
const LOGS_REMOVED_WITHIN: Duration = Duration::from_secs(10);
const LOGS_POLL: Duration = Duration::from_millis(20);
/// Exit code of a command with a wrong argument.
const USAGE: i32 = 2;

/// The choices of the caller.
#[derive(Debug)]
pub struct RunOptions {
    /// Seed of the faults.
    pub seed: u64,
    /// Existing folder for the outputs of the programs, and for `{folder}` in the plan.
    pub folder: PathBuf,
    /// The program that the word `dray` in the plan means.
    pub program: PathBuf,
    /// The processes of the run. [`Children::close`] ends the run.
    pub children: Children,
}

/// Kills all processes at the end of a run, also after an error.
struct KillAtEnd<'a> {
    children: &'a Children,
    /// Time of the start of the run, if the schedule steps clocks.
    steps_since: Option<SystemTime>,
}

impl Drop for KillAtEnd<'_> {
    fn drop(&mut self) {
        self.children.kill_all();
        if let Some(began) = self.steps_since {
            clock::remove_shared_memory(began);
        }
    }
}

/// Runs a plan, and returns the verdict.
///
/// # Errors
/// - `InvalidRequest` if the commands of the plan have a mistake.
/// - `Cancelled` if the children were closed.
/// - Other errors if a program cannot be started, if the copy fails before the first fault, or if
///   the source cannot be read or changes. In all these cases there is no verdict.
pub fn run(plan: &Plan, options: &RunOptions, observer: &dyn Observer) -> Result<Verdict> {
    let schedule = Schedule::draw(plan, options.seed);
    observer.event(&Event::Drawn {
        plan,
        schedule: &schedule,
    });
    let (began, began_at) = (Instant::now(), SystemTime::now());
    let source = tree::describe(&plan.copy.source)?;
    if tree::size_bytes(&source) == 0 {
        let words = plan.copy.source.display().to_string();
        return Err(failed(
            "read the source",
            format!("{words} has no bytes to copy"),
        ));
    }
    let versions = tree::versions(&plan.copy.source);
    let before = tree::describe(&plan.copy.destination)?;
    let has_storage_faults = (schedule.faults.iter()).any(|each| each.fault.kind().is_storage());
    let has_steps = (schedule.faults.iter()).any(|each| each.fault.kind() == Kind::ClockStep);
    let _guard = KillAtEnd {
        children: &options.children,
        steps_since: has_steps.then_some(began_at),
    };
    let clock_library = has_steps.then(|| clock::library(plan.clock_library.as_deref()));
    let words = Words {
        program: &options.program,
        folder: &options.folder,
        has_storage_faults,
        clock_library: clock_library.transpose()?,
    };
    let hub = has_storage_faults.then(|| Hub::start(&options.folder, CLIENT));
    let hub = hub.transpose()?;
    let clock = words.clock(CLIENT)?;
    let endpoints = Endpoint::start_all(plan, &words, &options.children)?;
    let command = words.expand(&plan.copy.command, &endpoints)?;
    let watch = Watch::start(&plan.copy.destination, &source, &before);
    let mut run = Run {
        plan,
        options,
        observer,
        command,
        endpoints,
        hub,
        clock,
        watch,
        source_bytes: tree::size_bytes(&source),
        faults: schedule
            .faults
            .iter()
            .cloned()
            .map(FaultState::new)
            .collect(),
        began: Instant::now(),
        last_fault: None,
        durable_bytes: 0,
        sent_before: 0,
        attempts: Vec::new(),
        crashes: Vec::new(),
        told: Instant::now(),
    };
    let finished = run.drive()?;
    if finished {
        await_removed_logs(&plan.copy.destination);
    }
    options.children.kill_all();
    for hub in run.hubs() {
        hub.drain();
    }
    run.watch.finish();
    if tree::versions(&plan.copy.source) != versions {
        return Err(failed(
            "judge the copy",
            "the source changed during the run".to_owned(),
        ));
    }
    let mut verdict = run.verdict(finished, &source, &before)?;
    verdict.seed = schedule.seed;
    verdict.seconds = began.elapsed().as_secs_f64();
    Ok(verdict.judged())
}

/// Waits until no file of dray is left. An endpoint removes its log after it has reported the end of
/// the transfer.
fn await_removed_logs(destination: &Path) {
    let until = Instant::now() + LOGS_REMOVED_WITHIN;
    while !tree::leftovers(destination).is_empty() && Instant::now() < until {
        std::thread::sleep(LOGS_POLL);
    }
}

fn failed(operation: &str, cause: String) -> Error {
    Error::new(ErrorKind::Other, End::Here, operation)
        .cause(cause)
        .remedy("correct the plan, and run it again")
}

/// The state of a run.
struct Run<'a> {
    plan: &'a Plan,
    options: &'a RunOptions,
    observer: &'a dyn Observer,
    command: Vec<String>,
    endpoints: Vec<Endpoint>,
    /// Sends storage faults to the command of the copy; `None` if the schedule has none.
    hub: Option<Hub>,
    /// Clock of the command of the copy; `None` if the schedule steps no clock.
    clock: Option<Clock>,
    watch: Watch,
    source_bytes: u64,
    faults: Vec<FaultState>,
    began: Instant,
    /// Time at which the last fault began.
    last_fault: Option<Instant>,
    durable_bytes: u64,
    /// Bytes through the proxies before the current attempt.
    sent_before: u64,
    attempts: Vec<AttemptReport>,
    crashes: Vec<String>,
    told: Instant,
}

impl Run<'_> {
    /// Repeats the copy until it succeeds. Returns false if it did not succeed in time.
    fn drive(&mut self) -> Result<bool> {
        let mut attempt: Option<Attempt> = None;
        let mut may_start = Instant::now();
        loop {
            if self.options.children.is_closed() {
                return Err(stopped());
            }
            for endpoint in &mut self.endpoints {
                for crash in endpoint.tick()? {
                    self.observer.event(&Event::Broken(&crash));
                    self.crashes.push(crash);
                }
            }
            if self.endpoints.iter().any(Endpoint::is_lost) {
                return Ok(false);
            }
            if let Some(running) = &mut attempt {
                self.durable_bytes = self.durable_bytes.max(running.durable_bytes());
                if let Some(ended) = running.tick() {
                    let is_done = self.ended(running, &ended)?;
                    attempt = None;
                    if is_done {
                        return Ok(true);
                    }
                    may_start = Instant::now() + RETRY_PAUSE;
                }
            } else if Instant::now() >= may_start && self.endpoints.iter().all(Endpoint::is_up) {
                let number = u32::try_from(self.attempts.len() + 1).unwrap_or(u32::MAX);
                if number > self.plan.copy.attempts {
                    return Ok(false);
                }
                self.observer.event(&Event::AttemptBegan { number });
                self.sent_before = self.sent_bytes();
                attempt = Some(self.start(number)?);
            }
            if self.began.elapsed() > self.plan.timeout {
                return Ok(false);
            }
            self.inject_due(attempt.as_mut());
            self.tell_progress();
            std::thread::sleep(TICK);
        }
    }

    fn start(&mut self, number: u32) -> Result<Attempt> {
        if number == 1 {
            self.began = Instant::now();
        }
        let (folder, children) = (&self.options.folder, &self.options.children);
        let faults = (self.hub.as_ref(), self.clock.as_ref());
        Attempt::start(number, &self.command, folder, children, faults)
    }

    fn hubs(&self) -> impl Iterator<Item = &Hub> {
        let endpoints = self.endpoints.iter().map(|endpoint| &endpoint.hub);
        endpoints.chain([&self.hub]).flatten()
    }

    /// Records an ended attempt. Returns true if the copy succeeded.
    fn ended(&mut self, attempt: &Attempt, ended: &Ended) -> Result<bool> {
        let is_ours = ended.is_killed
            || !self.crashes.is_empty()
            || self.faults.iter().any(FaultState::has_begun);
        let is_done = ended.code == Some(0);
        if ended.code == Some(USAGE) || (!is_done && !is_ours) {
            let when = if is_ours { "" } else { ", before any fault" };
            let operation = format!(
                "run the command of the copy (attempt {}{when})",
                attempt.number
            );
            let code = ended
                .code
                .map_or_else(String::new, |code| format!("exit code {code}: "));
            return Err(failed(&operation, code + &ended.last_words));
        }
        let carried = self.sent_bytes() - self.sent_before;
        let durable_before = self.attempts.last().map_or(0, |last| last.bytes_durable);
        let durable = ended.durable_bytes.max(durable_before);
        let gained = durable - durable_before;
        // Messages pass the proxies even if the data takes another way.
        let is_data = carried > 0 && carried >= gained / 2;
        let sent = ended.sent_bytes.or(is_data.then_some(carried));
        let text = |name: &str| {
            let value = ended.report.as_ref().map(|report| &report[name]);
            value.and_then(|value| value.as_str()).map(str::to_owned)
        };
        let error = ended.report.as_ref().and_then(|report| {
            let of_copy = report["error"]["message"].as_str();
            of_copy.or_else(|| report["files_failed"][0]["message"].as_str())
        });
        let error = error.map(str::to_owned);
        let report = AttemptReport {
            number: attempt.number,
            exit_code: ended.code,
            signal: ended.signal,
            state: text("state"),
            error: error
                .or_else(|| (!is_done && !ended.is_killed).then(|| ended.last_words.clone())),
            seconds: (ended.seconds * 1000.0).round() / 1000.0,
            bytes_sent: sent,
            bytes_durable: durable,
            bytes_lost: sent.map(|sent| sent.saturating_sub(gained)),
            faults: attempt.faults.clone(),
        };
        self.observer.event(&Event::AttemptEnded(&report));
        self.attempts.push(report);
        Ok(is_done)
    }

    /// Returns the bytes through the proxies in the direction of the data.
    fn sent_bytes(&self) -> u64 {
        let carried = self
            .endpoints
            .iter()
            .map(|endpoint| endpoint.proxy.carried());
        // Data moves in one direction: the other one has only small messages.
        carried.map(|each| each.up_bytes.max(each.down_bytes)).sum()
    }

    fn share(&self) -> f64 {
        (self.durable_bytes as f64 / self.source_bytes as f64).min(1.0)
    }

    fn tell_progress(&mut self) {
        if self.told.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.told = Instant::now();
        let injected = self.faults.iter().filter(|fault| fault.has_begun());
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.observer.event(&Event::Progress {
            share: self.share(),
            injected: number(injected.count()),
            faults: number(self.faults.len()),
            attempts: number(self.attempts.len() + 1),
        });
    }

    /// Compares the trees, and gathers all results. The outcome is still open.
    fn verdict(&self, finished: bool, source: &Tree, before: &Tree) -> Result<Verdict> {
        let destination = tree::describe(&self.plan.copy.destination)?;
        let differences = tree::differences(source, &destination, before);
        let mut violations = self.watch.watched().violations();
        if finished && !differences.is_empty() {
            let number = self.attempts.len();
            violations.push(format!(
                "attempt {number} reported a success, but the trees differ"
            ));
        }
        let carried = self
            .endpoints
            .iter()
            .map(|endpoint| endpoint.proxy.carried());
        let sent = self.attempts.iter().map(|attempt| attempt.bytes_sent);
        let measured = Measured {
            to_send: bytes_to_send(source, before),
            carried: self.sent_bytes(),
            reported: sent.sum(),
            connections: carried.map(|each| each.connections).sum(),
            entries: source.len() as u64,
            largest_file: tree::largest_file(source),
        };
        let injected: Vec<_> = self.faults.iter().map(FaultState::counted).collect();
        Ok(Verdict {
            verdict: State::Broken,
            seed: 0,
            finished,
            identical: differences.is_empty(),
            differences,
            nothing_false: violations.is_empty(),
            violations,
            looks: self.watch.watched().looks(),
            sent_again: SentAgain::new(&measured, self.plan, &injected),
            leftovers: tree::leftovers(&self.plan.copy.destination),
            crashes: self.crashes.clone(),
            attempts: self.attempts.clone(),
            faults: self
                .faults
                .iter()
                .map(|each| each.report(self.plan))
                .collect(),
            seconds: 0.0,
        })
    }
}

/// Returns the bytes of the files that the destination did not have before the run.
fn bytes_to_send(source: &Tree, before: &Tree) -> u64 {
    let missing = source
        .iter()
        .filter(|(path, entry)| before.get(*path) != Some(entry));
    let sizes = missing.map(|(_, entry)| match entry {
        Entry::File(content) => content.data_bytes,
        _ => 0,
    });
    sizes.sum()
}
