//! `dray chaos`: runs a plan of faults, and prints the verdict.

use crate::args::Chaos;
use crate::exit::{Exit, Stop, usage};
use crate::units::{count, human};
use crate::{output, signals};
use dray_chaos::{
    AttemptReport, Children, EXAMPLE, Event, Observer, Plan, RunOptions, Schedule, SentAgain,
    State, Verdict,
};
use dray_core::{End, Error, ErrorKind};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::hash::{BuildHasher, RandomState};
use std::io::IsTerminal;

/// Runs `dray chaos`.
pub(crate) fn run(chaos: &Chaos) -> Result<Exit, Stop> {
    if chaos.example {
        output::text(EXAMPLE);
        return Ok(Exit::Safe);
    }
    let Some(path) = &chaos.plan else {
        return Err(usage("no plan is named", "name the file of a plan").into());
    };
    let plan = Plan::load(path)?;
    // A short number is easier to write down, and has as many schedules as anybody can run.
    let drawn = || RandomState::new().hash_one(0) >> 40;
    let seed = chaos.seed.or(plan.seed).unwrap_or_else(drawn);
    if chaos.dry_run {
        let schedule = Schedule::draw(&plan, seed);
        for line in schedule_lines(&plan, &schedule) {
            output::result(&line);
        }
        return Ok(Exit::Safe);
    }
    run_plan(chaos, &plan, seed)
}

fn run_plan(chaos: &Chaos, plan: &Plan, seed: u64) -> Result<Exit, Stop> {
    let folder = tempfile::Builder::new().prefix("dray-chaos-").tempdir();
    let folder = folder.map_err(|error| failed("make the folder of the run", &error))?;
    let program = std::env::current_exe().map_err(|error| failed("find the program", &error))?;
    let children = Children::default();
    signals::watch("stopping; all processes of the run are killed")?;
    let (own, last) = (children.clone(), children.clone());
    signals::on_stop(move || own.close());
    signals::at_once(move || last.close());
    let options = RunOptions {
        seed,
        folder: folder.path().to_owned(),
        program,
        children,
    };
    let screen = Screen::new();
    let verdict = dray_chaos::run(plan, &options, &screen);
    screen.clear();
    let verdict = verdict.map_err(|error| {
        let exit = match error.kind {
            ErrorKind::InvalidRequest => Exit::Usage,
            ErrorKind::Cancelled => Exit::Interrupted,
            _ => Exit::Refused,
        };
        Stop { exit, error }
    });
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(stop) => {
            keep(folder, chaos.keep);
            return Err(stop);
        }
    };
    let kept = keep(folder, chaos.keep || verdict.verdict == State::Broken);
    if chaos.json {
        let mut object = json!(verdict);
        object["folder"] = json!(kept);
        output::result(&object.to_string());
    } else {
        for line in verdict_lines(&verdict) {
            output::result(&line);
        }
    }
    Ok(match verdict.verdict {
        State::Holds => Exit::Safe,
        State::Broken => Exit::SomeFailed,
        State::Unproven => Exit::Refused,
    })
}

fn failed(operation: &str, error: &std::io::Error) -> Error {
    Error::new(error.kind().into(), End::Here, operation)
        .cause(error.to_string())
        .remedy("check the temporary folder (TMPDIR)")
}

/// Keeps or removes the folder of the run. Returns the path of a kept folder.
fn keep(folder: tempfile::TempDir, is_kept: bool) -> Option<String> {
    if !is_kept {
        return None;
    }
    let path = folder.keep().display().to_string();
    output::note(&format!("the outputs of the programs are in {path}"));
    Some(path)
}

fn schedule_lines(plan: &Plan, schedule: &Schedule) -> Vec<String> {
    let head = format!(
        "seed {}: {}; to repeat the schedule, add --seed {}",
        schedule.seed,
        count(schedule.faults.len() as u64, "fault"),
        schedule.seed
    );
    let faults = schedule.faults.iter().map(|fault| {
        format!(
            "  {:>3}  at {:>6}  {}: {}",
            fault.number,
            fault.at.to_string(),
            plan.name_of(fault.target),
            fault.fault
        )
    });
    [head].into_iter().chain(faults).collect()
}

/// Prints the events of the run on standard error, with a bar on a terminal.
struct Screen {
    bar: Option<ProgressBar>,
}

impl Screen {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
                bar.set_style(style);
            }
            output::set_bar(Some(bar.clone()));
            bar
        });
        Self { bar }
    }

    fn clear(&self) {
        output::set_bar(None);
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Screen {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Drawn { plan, schedule } => {
                for line in schedule_lines(plan, schedule) {
                    output::note(&line);
                }
            }
            Event::AttemptBegan { number } => output::note(&format!("attempt {number} begins")),
            Event::AttemptEnded(attempt) => output::note(&attempt_line(attempt)),
            Event::Injected {
                number,
                words,
                seconds,
                share,
            } => output::note(&format!(
                "fault {number} at {seconds:.1}s, {:.1}% durable: {words}",
                share * 100.0
            )),
            Event::Broken(words) => output::problem(words),
            Event::Progress {
                share,
                injected,
                faults,
                attempts,
            } => {
                if let Some(bar) = &self.bar {
                    bar.set_position((share * 1000.0) as u64);
                    bar.set_message(format!(
                        "{:.1}% durable, {injected} of {faults} faults, attempt {attempts}",
                        share * 100.0
                    ));
                }
            }
        }
    }
}

fn attempt_line(attempt: &AttemptReport) -> String {
    let AttemptReport {
        number, seconds, ..
    } = attempt;
    let ended = match (attempt.exit_code, attempt.signal) {
        (Some(0), _) => "succeeded".to_owned(),
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, signal) => format!("ended by signal {}", signal.unwrap_or(0)),
    };
    let sent = attempt.bytes_sent.map_or_else(
        || "an unknown number of bytes".to_owned(),
        |bytes| format!("{} sent", human(bytes)),
    );
    let lost = attempt.bytes_lost.map_or_else(String::new, |bytes| {
        format!(", {} of them not durable", human(bytes))
    });
    let reasons = match attempt.faults.as_slice() {
        [] => String::new(),
        faults => {
            let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
            format!(" (faults {})", faults.join(", "))
        }
    };
    let error = attempt.error.as_deref().map_or_else(String::new, |error| {
        let first = error.lines().next().unwrap_or_default();
        format!(": {first}")
    });
    format!("attempt {number} {ended} after {seconds:.1}s, {sent}{lost}{reasons}{error}")
}

fn verdict_lines(verdict: &Verdict) -> Vec<String> {
    let mut lines = Vec::new();
    let mut promise = |holds: Option<bool>, words: String, details: &[String]| {
        let sign = match holds {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "unknown",
        };
        lines.push(format!("{words:<34} {sign}"));
        lines.extend(details.iter().map(|detail| format!("    {detail}")));
    };
    promise(
        Some(verdict.finished),
        format!(
            "finished ({}):",
            count(verdict.attempts.len() as u64, "attempt")
        ),
        &[],
    );
    promise(
        Some(verdict.identical),
        "identical:".to_owned(),
        &verdict.differences,
    );
    promise(
        Some(verdict.nothing_false),
        format!("nothing false ({}):", count(verdict.looks, "look")),
        &verdict.violations,
    );
    let again = &verdict.sent_again;
    promise(
        again.within_bound,
        "sent again within the bound:".to_owned(),
        &[sent_again(again)],
    );
    let left: Vec<String> = (verdict.leftovers.iter())
        .map(|path| path.display().to_string())
        .collect();
    promise(
        Some(left.is_empty()),
        "no files of dray left:".to_owned(),
        &left,
    );
    promise(
        Some(verdict.crashes.is_empty()),
        "endpoints ended by faults only:".to_owned(),
        &verdict.crashes,
    );
    let missed: Vec<String> = (verdict.missed())
        .map(|fault| {
            let refusal = fault.refusal.as_ref();
            format!(
                "fault {} at {} ({}) was not injected{}",
                fault.number,
                fault.at,
                fault.words,
                refusal.map_or_else(String::new, |refusal| format!(": {refusal}"))
            )
        })
        .collect();
    let injected = verdict.faults.len() - missed.len();
    promise(
        Some(missed.is_empty()),
        format!(
            "{injected} of {} were injected:",
            count(verdict.faults.len() as u64, "fault")
        ),
        &missed,
    );
    let (seed, seconds) = (verdict.seed, verdict.seconds);
    lines.push(match verdict.verdict {
        State::Holds => format!("all promises held (seed {seed}, {seconds:.1}s)"),
        State::Broken => format!("a promise was BROKEN (seed {seed}, {seconds:.1}s)"),
        State::Unproven => format!(
            "no promise was broken, but {} (seed {seed}, {seconds:.1}s); {}",
            unproven(verdict).0,
            unproven(verdict).1
        ),
    });
    lines
}

/// Returns why a verdict is not proven, and advice.
fn unproven(verdict: &Verdict) -> (&'static str, &'static str) {
    match verdict.missed().next() {
        Some(_) => (
            "some faults were not injected",
            "lower the rate of the copy, or choose earlier moments or other targets",
        ),
        None => (
            "the bytes that were sent again were not measured",
            "send the data through the proxy of an endpoint",
        ),
    }
}

fn sent_again(again: &SentAgain) -> String {
    let files = match again.failed_writes {
        0 => String::new(),
        failed => format!(
            " + {} x {} largest file",
            count(failed, "failed write"),
            human(again.largest_file_bytes)
        ),
    };
    let bound = format!(
        "{} x ({} pool + 64.0 MiB sync group){files} = {}, and {} overhead",
        count(again.injections, "injection"),
        human(again.pool_bytes),
        human(again.bound_bytes),
        human(again.overhead_bytes)
    );
    match (again.bytes, again.measured_by) {
        (Some(bytes), Some(by)) => {
            format!(
                "{} (measured by the {by}); the bound is {bound}",
                human(bytes)
            )
        }
        _ => format!("not measured; the bound is {bound}"),
    }
}
