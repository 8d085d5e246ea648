//! The program `dray-sim`.
//!
//! - `dray-sim --seeds N` runs N seeds. It prints the first broken promise of each failing seed,
//!   and the table of faults that occurred.
//! - `--seed N --trace` repeats one seed and prints a trace.
//! - `--faults N` requires N faults of each seed. Without it, three to six faults are planned.
//! - `--mutant NAME` plants a defect and prints the number of seeds that detect it. `--mutants`
//!   does the same for each defect, including the defects of a tier.
//! - `dray-sim experiment NAME` repeats a published experiment and prints its results as JSON.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use dray_sim::faults::{Coverage, FAULTS_MIN};
use dray_sim::mutants::Mutant;
use dray_sim::world::{RunOptions, Violation};
use dray_sim::{experiments, run_seed, run_seed_with, tiers};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Minimum number of times that each possible combination of fault and phase must occur in
/// [`SEEDS_FULL`] seeds.
const HITS_MIN: u64 = 20;

/// Minimum number of seeds of a run in which every possible combination of fault and phase must
/// occur at least [`HITS_MIN`] times.
const SEEDS_FULL: u64 = 2000;

const USAGE: &str = "\
dray-sim [--seeds N] [--from N] [--seed N] [--faults N] [--trace] [--mutant NAME] [--mutants]
dray-sim experiment NAME
dray-sim table < TABLE.json";

struct Arguments {
    from: u64,
    seeds: u64,
    traces: bool,
    faults: Option<u64>,
    mutants: Vec<Planted>,
}

/// A planted defect: of a transfer, or of a tier.
#[derive(Clone, Copy)]
enum Planted {
    Transfer(Mutant),
    Tier(tiers::Mutant),
}

impl Planted {
    fn parse(name: &str) -> Option<Self> {
        let transfer = Mutant::parse(name).map(Self::Transfer);
        transfer.or_else(|| tiers::Mutant::parse(name).map(Self::Tier))
    }

    fn all() -> Vec<Self> {
        let transfer = Mutant::ALL.iter().copied().map(Self::Transfer);
        let tier = tiers::Mutant::ALL.iter().copied().map(Self::Tier);
        transfer.chain(tier).collect()
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Transfer(mutant) => mutant.name(),
            Self::Tier(mutant) => mutant.name(),
        }
    }

    /// Runs one seed with the defect, and returns the broken rule, if any.
    fn run_seed(self, seed: u64, traces: bool) -> Option<Violation> {
        match self {
            Self::Transfer(mutant) => {
                let report = run_seed(seed, Some(mutant), traces);
                for line in &report.trace {
                    println!("{line}");
                }
                report.violation
            }
            Self::Tier(mutant) => tiers::run_seed(seed, Some(mutant)).violation,
        }
    }
}

fn arguments() -> Option<Arguments> {
    let mut found = Arguments {
        from: 0,
        seeds: SEEDS_FULL,
        traces: false,
        faults: None,
        mutants: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seeds" => found.seeds = words.next()?.parse().ok()?,
            "--from" => found.from = words.next()?.parse().ok()?,
            "--seed" => {
                found.from = words.next()?.parse().ok()?;
                found.seeds = 1;
            }
            "--trace" => found.traces = true,
            "--faults" => found.faults = Some(words.next()?.parse().ok()?),
            "--mutant" => found.mutants = vec![Planted::parse(&words.next()?)?],
            "--mutants" => found.mutants = Planted::all(),
            _ => return None,
        }
    }
    Some(found)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, rest @ ..] = words.as_slice()
        && verb == "experiment"
    {
        return experiment(rest);
    }
    if words == ["table"] {
        return table();
    }
    let Some(arguments) = arguments() else {
        println!("{USAGE}");
        return ExitCode::from(2);
    };
    if arguments.mutants.is_empty() {
        return sound(&arguments);
    }
    let mut is_good = true;
    for mutant in &arguments.mutants {
        is_good &= planted(&arguments, *mutant);
    }
    ExitCode::from(u8::from(!is_good))
}

fn experiment(words: &[String]) -> ExitCode {
    let results = match words {
        [name] => experiments::run(name),
        _ => None,
    };
    let Some(results) = results else {
        println!("{USAGE}\nexperiments: {}", experiments::ALL.join(", "));
        return ExitCode::from(2);
    };
    println!("{results:#}");
    ExitCode::SUCCESS
}

fn table() -> ExitCode {
    let read = std::io::read_to_string(std::io::stdin()).map_err(|error| error.to_string());
    match read.and_then(|text| dray_sim::fluid::table::results(&text)) {
        Ok(results) => {
            println!("{results:#}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("cannot run the table: {error}");
            ExitCode::from(2)
        }
    }
}

fn sound(arguments: &Arguments) -> ExitCode {
    let mut coverage = Coverage::default();
    let (mut failing, mut thin, mut sessions, mut events) = (0, 0, 0, 0);
    let least = arguments.faults.unwrap_or(FAULTS_MIN);
    let mut forms: BTreeMap<String, u64> = BTreeMap::new();
    for seed in arguments.from..arguments.from + arguments.seeds {
        if let Some(violation) = tiers::run_seed(seed, None).violation {
            failing += 1;
            println!(
                "seed {seed}: tier: {}: {}",
                violation.checker, violation.detail
            );
        }
        let options = RunOptions {
            mutant: None,
            traces: arguments.traces,
            faults: arguments.faults,
        };
        let report = run_seed_with(seed, &options);
        *forms.entry(report.log_form.to_string()).or_default() += 1;
        for line in &report.trace {
            println!("{line}");
        }
        thin += u64::from(report.coverage.total() < least);
        coverage.add(&report.coverage);
        sessions += report.sessions;
        events += report.events;
        if let Some(violation) = report.violation {
            failing += 1;
            println!("seed {seed}: {}: {}", violation.checker, violation.detail);
            let faults = arguments.faults.map(|count| format!(" --faults {count}"));
            let faults = faults.unwrap_or_default();
            println!("  replay: cargo run --release -p dray-sim -- --seed {seed}{faults} --trace");
        }
    }
    println!("{}", coverage.table());
    println!("\nseeds by the form of the log:");
    for (form, count) in &forms {
        println!("{form:<28}{count:>11}");
    }
    println!();
    println!(
        "{} seeds, {failing} failing, {thin} with fewer than {least} faults; {} faults, \
         {sessions} sessions, {events} events",
        arguments.seeds,
        coverage.total()
    );
    let missing = coverage.missing(HITS_MIN);
    let has_gaps = arguments.seeds >= SEEDS_FULL && !missing.is_empty();
    if has_gaps {
        println!("these faults were hit fewer than {HITS_MIN} times: {missing:?}");
    }
    ExitCode::from(u8::from(failing > 0 || thin > 0 || has_gaps))
}

/// Returns true if at least one seed in a hundred detects the planted defect.
fn planted(arguments: &Arguments, mutant: Planted) -> bool {
    let mut by: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in arguments.from..arguments.from + arguments.seeds {
        if let Some(violation) = mutant.run_seed(seed, arguments.traces) {
            *by.entry(violation.checker).or_default() += 1;
        }
    }
    let caught: u64 = by.values().sum();
    println!(
        "{:<28} caught by {caught} of {} seeds: {by:?}",
        mutant.name(),
        arguments.seeds
    );
    caught * 100 >= arguments.seeds
}
