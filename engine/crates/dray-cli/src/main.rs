//! The program `dray`: copies between folders and hosts, serves folders, calls endpoints, and
//! inspects logs.
//!
//! Goals: convert the command line to requests to the runtime (`dray_open::locations` interprets
//! SRC and DST). Print progress and reports for users and for programs. Return documented exit
//! codes.
//!
//! Non-goals: decisions. The session and the log decide which data is sent, adopted, retried or
//! trusted.

mod args;
mod calibrate;
mod chaos;
mod cleared;
mod cp;
mod docs;
mod endpoint;
mod exit;
mod faults;
#[cfg(test)]
mod fixtures;
mod globus;
mod log;
mod output;
mod peer;
mod plan;
mod progress;
mod receipts;
mod remote;
mod report;
mod retry;
mod run;
mod serve;
mod signals;
mod spans;
mod staging;
mod storage;
mod sweep;
mod third_party;
mod tiers;
mod tokens;
mod top;
mod trace;
mod transfers;
mod trust;
mod units;

use args::{Command, Dray};
use clap::{CommandFactory, Parser};
use dray_open::xrootd::end_process;
use exit::{Exit, Stop};
use std::ffi::OsString;
use std::path::Path;

fn main() {
    let exit = run();
    end_process(exit as u8)
}

fn run() -> Exit {
    let dray = match Dray::try_parse_from(words(std::env::args_os())) {
        Ok(dray) => dray,
        // clap reports `--help` and `--version` as errors too. `exit` ends the process with exit
        // code 0 for these two, and with 2 for all other errors.
        Err(error) => error.exit(),
    };
    let done = match &dray.command {
        Command::Cp(cp) => with_faults(|| cp::run(cp)),
        Command::Serve(serve) => with_faults(|| serve::run(serve)),
        Command::Endpoint(command) => with_faults(|| endpoint::run(command)),
        Command::Token(token) => tokens::run(token),
        Command::Trust(trust) => trust::run(trust),
        Command::Transfers(list) => transfers::transfers(list),
        Command::Show(show) => transfers::show(show),
        Command::Receipt(receipt) => receipts::run(receipt),
        Command::Top(top) => top::run(top),
        Command::Tier(tier) => tiers::run(tier),
        Command::Stage(stage) => staging::run(stage),
        Command::Cancel(cancel) => transfers::cancel(cancel),
        Command::Retry(retry) => retry::run(retry),
        Command::Ls(at) => storage::list(at),
        Command::Stat(at) => storage::stat(at),
        Command::Rm(rm) => storage::remove(rm),
        Command::Checksum(sum) => storage::checksum(sum),
        Command::Plan(plan) => plan::run(&plan.what, &plan.owed, &plan.who, plan.layout),
        Command::Log(log) => log::run(log),
        Command::Chaos(command) => chaos::run(command),
        Command::Version => {
            output::result(concat!("dray ", env!("CARGO_PKG_VERSION")));
            Ok(Exit::Safe)
        }
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Dray::command(), "dray", &mut script);
            output::text(&String::from_utf8_lossy(&script));
            Ok(Exit::Safe)
        }
        Command::DocsCli => {
            output::text(&docs::reference());
            Ok(Exit::Safe)
        }
    };
    match done {
        Ok(Exit::Safe) if output::is_missing() => Exit::SomeFailed,
        Ok(exit) => exit,
        Err(stop) => {
            output::complain(&stop.error);
            if dray.command.is_json() && stop.exit != Exit::Usage {
                let error = report::in_json(&stop.error);
                output::result(&serde_json::json!({ "error": error }).to_string());
            }
            stop.exit
        }
    }
}

/// Runs a command that `dray chaos` may test.
fn with_faults(command: impl FnOnce() -> Result<Exit, Stop>) -> Result<Exit, Stop> {
    faults::receive()?;
    command()
}

/// Returns the arguments of the command line. If the program runs under the name `drayd`, its
/// arguments become options of `dray endpoint run`.
fn words(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = given.collect();
    let program = words.first().and_then(|word| Path::new(word).file_name());
    if program.is_none_or(|name| name != "drayd") {
        return words;
    }
    // Help and error texts then mention `dray endpoint run`, which the reference documents.
    let program: &[&str] = match &words[1..] {
        [only] if only == "--version" || only == "-V" => &["dray"],
        _ => &["dray", "endpoint", "run"],
    };
    words.splice(..1, program.iter().map(OsString::from));
    words
}
