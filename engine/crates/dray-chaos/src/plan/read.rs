//! Parses the text of a plan. Each error names the line.

use super::writer;
use super::{At, CLIENT, CopyPlan, EndpointPlan, Fault, FaultPlan, Injections, Kind, Plan, Target};
use dray_core::{End, Error, ErrorKind, Result};
use serde::Deserialize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// Maximum size of a plan in bytes. A plan with a thousand faults is smaller. The value is
/// estimated, not measured.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of faults of a plan, listed and drawn together. The value is estimated.
const FAULTS_MAX: usize = 1000;
const ATTEMPTS_USUAL: u32 = 50;
const ATTEMPTS_MAX: u32 = 10_000;
const TIMEOUT_USUAL: Duration = Duration::from_secs(600);
const RESTART_USUAL: Duration = Duration::from_millis(500);
const STOP_USUAL: Duration = Duration::from_secs(2);
const DELAYED_USUAL: Duration = Duration::from_secs(2);
const DELAY_USUAL: Duration = Duration::from_millis(50);
const STEP_USUAL_MS: i64 = 3_600_000;
/// Maximum of each duration of a plan: a day.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanTable {
    seed: Option<u64>,
    timeout: Option<Spanned<String>>,
    clock_library: Option<Spanned<PathBuf>>,
    copy: Spanned<CopyTable>,
    #[serde(default)]
    endpoint: Vec<Spanned<EndpointTable>>,
    #[serde(default)]
    fault: Vec<Spanned<FaultTable>>,
    random: Option<Spanned<RandomTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyTable {
    source: Spanned<PathBuf>,
    destination: Spanned<PathBuf>,
    command: Spanned<Vec<String>>,
    attempts: Option<Spanned<u32>>,
    writer: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndpointTable {
    name: Spanned<String>,
    command: Spanned<Vec<String>>,
    address: Spanned<String>,
    proxy: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultTable {
    kind: Spanned<String>,
    target: Option<Spanned<String>>,
    at: Option<Spanned<String>>,
    restart_after: Option<Spanned<String>>,
    duration: Option<Spanned<String>>,
    delay: Option<Spanned<String>>,
    step: Option<Spanned<String>>,
    probability: Option<Spanned<f64>>,
    count: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RandomTable {
    faults: Spanned<u32>,
    kinds: Option<Vec<Spanned<String>>>,
}

impl Plan {
    /// Reads the plan in the file at `path`.
    ///
    /// # Errors
    /// `InvalidRequest` if the file cannot be read or has invalid content; the error names the file
    /// and the line.
    pub fn load(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let failed = |cause: String| {
            Error::new(
                ErrorKind::InvalidRequest,
                End::Here,
                format!("read {place}"),
            )
            .cause(cause)
            .remedy("name the file of a plan; `dray chaos --example` prints a plan")
        };
        let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        if size.len() > FILE_BYTES_MAX {
            return Err(failed(format!(
                "the file has {} bytes; at most {FILE_BYTES_MAX} bytes are allowed",
                size.len()
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Self::parse(&place, &text)
    }

    /// Parses a plan. Errors name the file as `place`.
    ///
    /// # Errors
    /// `InvalidRequest`; the error names the line.
    pub fn parse(place: &str, text: &str) -> Result<Self> {
        let reader = Reader { place, text };
        let table: PlanTable = toml::from_str(text)
            .map_err(|error| reader.refuse(error.span().as_ref(), error.message()))?;
        reader.plan(table)
    }
}

/// The text of a plan, for errors with line numbers.
struct Reader<'t> {
    place: &'t str,
    text: &'t str,
}

impl Reader<'_> {
    fn refuse(&self, span: Option<&Range<usize>>, cause: impl AsRef<str>) -> Error {
        let line = span.and_then(|span| self.text.get(..span.start));
        let line = line.map(|before| before.matches('\n').count() + 1);
        let at = line.map_or_else(String::new, |line| format!(", line {line}"));
        let operation = format!("read the plan {}{at}", self.place);
        Error::new(ErrorKind::InvalidRequest, End::Here, operation)
            .cause(cause.as_ref())
            .remedy("correct the plan; docs/reference/chaos.md lists its keys")
    }

    fn plan(&self, table: PlanTable) -> Result<Plan> {
        let mut endpoints = Vec::new();
        for endpoint in table.endpoint {
            let endpoint = self.endpoint(endpoint.into_inner(), &endpoints)?;
            endpoints.push(endpoint);
        }
        let mut copy = table.copy.into_inner();
        let writer = copy.writer.take();
        let mut plan = Plan {
            seed: table.seed,
            timeout: self.duration(table.timeout, TIMEOUT_USUAL)?,
            copy: self.copy(copy)?,
            endpoints,
            writer: None,
            faults: Vec::new(),
            random: 0,
            random_kinds: Vec::new(),
            clock_library: self.clock_library(table.clock_library)?,
        };
        plan.writer = match writer {
            Some(name) => Some(self.writer(&name, &plan)?),
            None => writer::in_commands(&plan),
        };
        for fault in table.fault {
            let fault = self.fault(fault.into_inner(), &plan)?;
            plan.faults.push(fault);
        }
        if let Some(random) = table.random {
            self.random(random.into_inner(), &mut plan)?;
        }
        let faults = plan.faults.len() + plan.random as usize;
        if faults == 0 {
            let cause = "the plan has no fault: add a [[fault]] or [random]";
            return Err(self.refuse(None, cause));
        }
        if faults > FAULTS_MAX {
            let cause = format!("the plan has {faults} faults; at most {FAULTS_MAX} are allowed");
            return Err(self.refuse(None, cause));
        }
        Ok(plan)
    }

    fn copy(&self, table: CopyTable) -> Result<CopyPlan> {
        for path in [&table.source, &table.destination] {
            if !path.get_ref().is_absolute() {
                let cause = format!("{:?} is not an absolute path", path.get_ref());
                return Err(self.refuse(Some(&path.span()), cause));
            }
        }
        let (source, destination) = (table.source.get_ref(), table.destination.get_ref());
        if source.starts_with(destination) || destination.starts_with(source) {
            let cause = "the source and the destination must not contain each other";
            return Err(self.refuse(Some(&table.destination.span()), cause));
        }
        let attempts = match table.attempts {
            None => ATTEMPTS_USUAL,
            Some(attempts) if (1..=ATTEMPTS_MAX).contains(attempts.get_ref()) => {
                *attempts.get_ref()
            }
            Some(attempts) => {
                let cause = format!("`attempts` must be from 1 to {ATTEMPTS_MAX}");
                return Err(self.refuse(Some(&attempts.span()), cause));
            }
        };
        let command = self.command(table.command)?;
        Ok(CopyPlan {
            source: table.source.into_inner(),
            destination: table.destination.into_inner(),
            command,
            attempts,
        })
    }

    fn clock_library(&self, given: Option<Spanned<PathBuf>>) -> Result<Option<PathBuf>> {
        match given {
            Some(path) if !path.get_ref().is_absolute() => {
                let cause = format!(
                    "`clock_library` must be an absolute path, but it is {:?}",
                    path.get_ref()
                );
                Err(self.refuse(Some(&path.span()), cause))
            }
            given => Ok(given.map(Spanned::into_inner)),
        }
    }

    fn writer(&self, text: &Spanned<String>, plan: &Plan) -> Result<Target> {
        let targets = plan.targets(Kind::IoError);
        let named = |target: &&Target| plan.name_of(**target) == text.get_ref();
        targets.iter().find(named).copied().ok_or_else(|| {
            let names: Vec<_> = targets.iter().map(|each| plan.name_of(*each)).collect();
            let cause = format!(
                "{:?} is not a program of the plan; the programs are {}",
                text.get_ref(),
                names.join(", ")
            );
            self.refuse(Some(&text.span()), cause)
        })
    }

    fn command(&self, command: Spanned<Vec<String>>) -> Result<Vec<String>> {
        if command.get_ref().first().is_none_or(String::is_empty) {
            let cause = "`command` is empty: write the program and its arguments";
            return Err(self.refuse(Some(&command.span()), cause));
        }
        // `dray chaos` adds these options, because it reads the output.
        let own = |word: &&String| {
            let name = word.split('=').next().unwrap_or_default();
            matches!(name, "--progress")
        };
        if let Some(word) = command.get_ref().iter().find(own) {
            let cause = format!("remove {word} from `command`: `dray chaos` adds its own");
            return Err(self.refuse(Some(&command.span()), cause));
        }
        Ok(command.into_inner())
    }

    fn endpoint(&self, table: EndpointTable, others: &[EndpointPlan]) -> Result<EndpointPlan> {
        let name = table.name.get_ref();
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(is_word) || [CLIENT, "folder"].contains(&&**name) {
            let cause = format!(
                "{name:?} is not a name of an endpoint: use a-z, 0-9 and -, but not the words \
                    \"client\" and \"folder\""
            );
            return Err(self.refuse(Some(&table.name.span()), cause));
        }
        if others.iter().any(|other| other.name == *name) {
            let cause = format!("two endpoints have the name {name:?}");
            return Err(self.refuse(Some(&table.name.span()), cause));
        }
        let addresses = [Some(&table.address), table.proxy.as_ref()];
        for address in addresses.into_iter().flatten() {
            let port = address.get_ref().rsplit_once(':');
            if port.is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
                let cause = format!("{:?} is not HOST:PORT", address.get_ref());
                return Err(self.refuse(Some(&address.span()), cause));
            }
        }
        Ok(EndpointPlan {
            command: self.command(table.command)?,
            name: table.name.into_inner(),
            address: table.address.into_inner(),
            proxy: table.proxy.map(Spanned::into_inner),
        })
    }

    fn random(&self, table: RandomTable, plan: &mut Plan) -> Result<()> {
        plan.random = *table.faults.get_ref();
        // Steps of clocks need another library, so a plan has to list them.
        let usable = |kind: &Kind| *kind != Kind::ClockStep && !plan.targets(*kind).is_empty();
        plan.random_kinds = match table.kinds {
            None => Kind::ALL.iter().copied().filter(usable).collect(),
            Some(kinds) => {
                let mut found = Vec::new();
                for kind in &kinds {
                    found.push(self.kind(kind, plan)?);
                }
                found
            }
        };
        match plan.random_kinds.is_empty() {
            true => Err(self.refuse(Some(&table.faults.span()), "`kinds` is empty")),
            false => Ok(()),
        }
    }

    fn kind(&self, text: &Spanned<String>, plan: &Plan) -> Result<Kind> {
        let name = text.get_ref();
        let Some(kind) = Kind::ALL.iter().find(|kind| kind.name() == name) else {
            let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            let cause = format!("unknown kind {name:?}; the kinds are {}", names.join(", "));
            return Err(self.refuse(Some(&text.span()), cause));
        };
        if plan.targets(*kind).is_empty() {
            let cause = format!(
                "a fault of the kind {name} needs an [[endpoint]], because it affects the \
                    connections to an endpoint"
            );
            return Err(self.refuse(Some(&text.span()), cause));
        }
        Ok(*kind)
    }

    fn fault(&self, table: FaultTable, plan: &Plan) -> Result<FaultPlan> {
        let kind = self.kind(&table.kind, plan)?;
        let given = [
            (
                "restart_after",
                table.restart_after.as_ref().map(Spanned::span),
            ),
            ("duration", table.duration.as_ref().map(Spanned::span)),
            ("delay", table.delay.as_ref().map(Spanned::span)),
            ("step", table.step.as_ref().map(Spanned::span)),
            ("probability", table.probability.as_ref().map(Spanned::span)),
            ("count", table.count.as_ref().map(Spanned::span)),
        ];
        for (name, span) in given {
            if let Some(span) = span
                && !kind.fields().contains(&name)
            {
                let cause = format!(
                    "`{name}` has no meaning for a fault of the kind {}",
                    kind.name()
                );
                return Err(self.refuse(Some(&span), cause));
            }
        }
        let target = table.target.map(|text| self.target(&text, kind, plan));
        let at = table.at.map(|text| self.moment(&text));
        let (target, at) = (target.transpose()?, at.transpose()?);
        if let (Some(Target::Client), Some(restart)) = (target, &table.restart_after) {
            let cause = "`restart_after` has no meaning for the client, which is started again when \
                it has ended";
            return Err(self.refuse(Some(&restart.span()), cause));
        }
        let probability = self.probability(table.probability)?;
        let injections = Injections {
            probability,
            count: self.count(table.count)?,
        };
        let fault = match kind {
            Kind::Kill => Fault::Kill {
                restart_after: self.duration(table.restart_after, RESTART_USUAL)?,
            },
            Kind::Stop => Fault::Stop {
                duration: self.duration(table.duration, STOP_USUAL)?,
            },
            Kind::Cut => Fault::Cut,
            Kind::Delay => Fault::Delay {
                duration: self.duration(table.duration, DELAYED_USUAL)?,
                delay: self.duration(table.delay, DELAY_USUAL)?,
                probability,
            },
            Kind::Corrupt => Fault::Corrupt(injections),
            Kind::Reorder => Fault::Reorder(injections),
            Kind::Duplicate => Fault::Duplicate(injections),
            Kind::NoSpace => Fault::NoSpace(injections),
            Kind::IoError => Fault::IoError(injections),
            Kind::ShortWrite => Fault::ShortWrite(injections),
            Kind::FailedSync => Fault::FailedSync(injections),
            Kind::ClockStep => Fault::ClockStep {
                step_ms: self.step_ms(table.step)?,
            },
        };
        Ok(FaultPlan { fault, target, at })
    }

    fn target(&self, text: &Spanned<String>, kind: Kind, plan: &Plan) -> Result<Target> {
        let name = text.get_ref();
        let mut targets = plan.targets(kind).into_iter();
        targets
            .find(|target| plan.name_of(*target) == name)
            .ok_or_else(|| {
                let names: Vec<_> = plan.targets(kind).into_iter().collect();
                let names: Vec<_> = names.iter().map(|target| plan.name_of(*target)).collect();
                let cause = format!(
                    "{name:?} cannot be the target of a fault of the kind {}; the targets are {}",
                    kind.name(),
                    names.join(", ")
                );
                self.refuse(Some(&text.span()), cause)
            })
    }

    fn moment(&self, text: &Spanned<String>) -> Result<At> {
        let wrong = |cause: String| self.refuse(Some(&text.span()), cause);
        match text.get_ref().strip_suffix('%') {
            Some(share) => match share.parse::<f64>() {
                Ok(share) if (0.0..100.0).contains(&share) => Ok(At::Share(share / 100.0)),
                _ => Err(wrong(format!(
                    "{:?} is not a share of the durable bytes from 0% to less than 100%",
                    text.get_ref()
                ))),
            },
            None => Ok(At::Time(duration(text.get_ref()).map_err(wrong)?)),
        }
    }

    fn probability(&self, given: Option<Spanned<f64>>) -> Result<f64> {
        match given {
            None => Ok(1.0),
            Some(given) if *given.get_ref() > 0.0 && *given.get_ref() <= 1.0 => {
                Ok(*given.get_ref())
            }
            Some(given) => {
                let cause = "`probability` must be more than 0.0 and at most 1.0";
                Err(self.refuse(Some(&given.span()), cause))
            }
        }
    }

    fn count(&self, given: Option<Spanned<u32>>) -> Result<u32> {
        match given {
            None => Ok(1),
            Some(given) if *given.get_ref() > 0 => Ok(*given.get_ref()),
            Some(given) => Err(self.refuse(Some(&given.span()), "`count` must be at least 1")),
        }
    }

    fn step_ms(&self, given: Option<Spanned<String>>) -> Result<i64> {
        let Some(text) = given else {
            return Ok(STEP_USUAL_MS);
        };
        let (sign, length) = match text.get_ref().strip_prefix('-') {
            Some(length) => (-1, length),
            None => (1, text.get_ref().as_str()),
        };
        let length = duration(length).map_err(|cause| self.refuse(Some(&text.span()), cause))?;
        match i64::try_from(length.as_millis()) {
            Ok(length) if length > 0 => Ok(sign * length),
            _ => Err(self.refuse(
                Some(&text.span()),
                "the length of `step` must be at least 1ms",
            )),
        }
    }

    fn duration(&self, given: Option<Spanned<String>>, usual: Duration) -> Result<Duration> {
        match given {
            None => Ok(usual),
            Some(text) => {
                duration(text.get_ref()).map_err(|cause| self.refuse(Some(&text.span()), cause))
            }
        }
    }
}

/// Parses a duration: a number and `ms`, `s`, `m` or `h`.
fn duration(text: &str) -> std::result::Result<Duration, String> {
    let wrong = || {
        format!(
            "{text:?} is not a duration: write a number with the unit ms, s, m or h, such as 2s"
        )
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let milliseconds = match &text[digits.len()..] {
        "ms" => 1.0,
        "s" => 1_000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let length =
        Duration::try_from_secs_f64(number * milliseconds / 1000.0).map_err(|_| wrong())?;
    match length > DURATION_MAX {
        true => Err(format!("{text:?} is more than a day")),
        false => Ok(length),
    }
}
