//! The plan of a run: the programs of the user, the copy, and the faults.

mod read;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The example plan, which explains every key.
pub const EXAMPLE: &str = include_str!("plan/example.toml");

/// A plan, as the user wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Seed of all random choices; `None` lets the program draw a seed.
    pub seed: Option<u64>,
    /// Maximum duration of the run.
    pub timeout: Duration,
    /// The copy to repeat until it succeeds.
    pub copy: CopyPlan,
    /// Programs that run during the copy, in the order of the file.
    pub endpoints: Vec<EndpointPlan>,
    /// Program that writes the destination: the target of drawn faults of the storage. `None` if
    /// the commands do not show it.
    pub writer: Option<Target>,
    /// Faults that the plan lists.
    pub faults: Vec<FaultPlan>,
    /// Number of faults to draw in addition.
    pub random: u32,
    /// Kinds of drawn faults.
    pub random_kinds: Vec<Kind>,
    /// File of libfaketime, which steps clocks. `None` for the file of a package.
    pub clock_library: Option<PathBuf>,
}

/// The copy of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyPlan {
    /// Folder on this host whose content the copy sends.
    pub source: PathBuf,
    /// Folder on this host that has the same content after the copy.
    pub destination: PathBuf,
    /// Command with its arguments.
    pub command: Vec<String>,
    /// Maximum number of times that the command is started.
    pub attempts: u32,
}

/// A program that runs during the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointPlan {
    /// Name of the endpoint in the plan.
    pub name: String,
    /// Command with its arguments.
    pub command: Vec<String>,
    /// Address at which the endpoint accepts connections.
    pub address: String,
    /// Address of the proxy in front of the endpoint; `None` for a free port.
    pub proxy: Option<String>,
}

/// A fault of the plan. Missing choices are drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultPlan {
    /// The fault with its details.
    pub fault: Fault,
    /// Program that gets the fault.
    pub target: Option<Target>,
    /// Moment of the fault.
    pub at: Option<At>,
}

/// The program that gets a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The command of the copy.
    Client,
    /// The endpoint with this index in [`Plan::endpoints`].
    Endpoint(usize),
}

/// The moment of a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    /// Share of the bytes of the source that are durable, from 0 to 1.
    Share(f64),
    /// Time since the start of the first attempt.
    Time(Duration),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{:.1}%", share * 100.0),
            Self::Time(time) => write!(f, "{:.1}s", time.as_secs_f64()),
        }
    }
}

/// Number and probability of the injections of a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Injections {
    /// Probability that a piece of data or a call gets the fault, from 0 to 1.
    pub probability: f64,
    /// Maximum number of injections.
    pub count: u32,
}

/// A fault with its details.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The process gets SIGKILL.
    Kill {
        /// Time until an endpoint is started again. The command of the copy is started again in any
        /// case.
        restart_after: Duration,
    },
    /// The process gets SIGSTOP, and SIGCONT after this time.
    Stop {
        /// Time between the two signals.
        duration: Duration,
    },
    /// All connections to the endpoint are reset.
    Cut,
    /// Pieces of data to and from the endpoint wait.
    Delay {
        /// Length of the fault.
        duration: Duration,
        /// Wait of each affected piece.
        delay: Duration,
        /// Probability that a piece waits.
        probability: f64,
    },
    /// One bit of a piece of data is flipped.
    Corrupt(Injections),
    /// A piece of data arrives after the next one.
    Reorder(Injections),
    /// A piece of data arrives twice.
    Duplicate(Injections),
    /// A write to a file fails because the storage is full.
    NoSpace(Injections),
    /// A write to a file fails with an error of the storage.
    IoError(Injections),
    /// A write to a file writes a part of its bytes.
    ShortWrite(Injections),
    /// A sync fails, and the bytes since the last sync of a partial file are lost.
    FailedSync(Injections),
    /// The real-time clock of the program jumps.
    ClockStep {
        /// Milliseconds by which the clock is set forward, or back if negative.
        step_ms: i64,
    },
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $($field:literal),*;)*) => {
        /// Kinds of faults.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// All kinds, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the name of the kind in a plan.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the fields that a fault of this kind may have, in addition to `kind`,
            /// `target` and `at`.
            const fn fields(self) -> &'static [&'static str] {
                match self { $(Self::$name => &[$($field),*],)* }
            }
        }
    };
}

kinds! {
    /// [`Fault::Kill`].
    Kill = "kill", "restart_after";
    /// [`Fault::Stop`].
    Stop = "stop", "duration";
    /// [`Fault::Cut`].
    Cut = "cut",;
    /// [`Fault::Delay`].
    Delay = "delay", "duration", "delay", "probability";
    /// [`Fault::Corrupt`].
    Corrupt = "corrupt", "probability", "count";
    /// [`Fault::Reorder`].
    Reorder = "reorder", "probability", "count";
    /// [`Fault::Duplicate`].
    Duplicate = "duplicate", "probability", "count";
    /// [`Fault::NoSpace`].
    NoSpace = "no_space", "probability", "count";
    /// [`Fault::IoError`].
    IoError = "io_error", "probability", "count";
    /// [`Fault::ShortWrite`].
    ShortWrite = "short_write", "probability", "count";
    /// [`Fault::FailedSync`].
    FailedSync = "failed_sync", "probability", "count";
    /// [`Fault::ClockStep`].
    ClockStep = "clock_step", "step";
}

impl Kind {
    /// Returns true if the fault affects the connections to an endpoint, and not a process.
    pub(crate) const fn is_network(self) -> bool {
        matches!(
            self,
            Self::Cut | Self::Delay | Self::Corrupt | Self::Reorder | Self::Duplicate
        )
    }

    /// Returns true if the program itself injects the fault into its system calls.
    pub(crate) const fn is_storage(self) -> bool {
        matches!(
            self,
            Self::NoSpace | Self::IoError | Self::ShortWrite | Self::FailedSync
        )
    }
}

impl Fault {
    /// Returns the kind of the fault.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Kill { .. } => Kind::Kill,
            Self::Stop { .. } => Kind::Stop,
            Self::Cut => Kind::Cut,
            Self::Delay { .. } => Kind::Delay,
            Self::Corrupt(_) => Kind::Corrupt,
            Self::Reorder(_) => Kind::Reorder,
            Self::Duplicate(_) => Kind::Duplicate,
            Self::NoSpace(_) => Kind::NoSpace,
            Self::IoError(_) => Kind::IoError,
            Self::ShortWrite(_) => Kind::ShortWrite,
            Self::FailedSync(_) => Kind::FailedSync,
            Self::ClockStep { .. } => Kind::ClockStep,
        }
    }

    /// Returns the number and probability of the injections of a fault of the storage.
    pub(crate) const fn storage(&self) -> Option<Injections> {
        match self {
            Self::NoSpace(injections)
            | Self::IoError(injections)
            | Self::ShortWrite(injections)
            | Self::FailedSync(injections) => Some(*injections),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind().name())?;
        let seconds = Duration::as_secs_f64;
        match self {
            // The command of the copy is started again by itself.
            Self::Kill { restart_after } if restart_after.is_zero() => Ok(()),
            Self::Kill { restart_after } => {
                write!(f, " (restart after {:.1}s)", seconds(restart_after))
            }
            Self::Stop { duration } => write!(f, " for {:.1}s", seconds(duration)),
            Self::ClockStep { step_ms } => write!(f, " by {:+.3}s", *step_ms as f64 / 1000.0),
            Self::Cut => Ok(()),
            Self::Delay {
                duration,
                delay,
                probability,
            } => write!(
                f,
                " by {} ms for {:.1}s, probability {probability}",
                delay.as_millis(),
                seconds(duration)
            ),
            Self::Corrupt(injections)
            | Self::Reorder(injections)
            | Self::Duplicate(injections)
            | Self::NoSpace(injections)
            | Self::IoError(injections)
            | Self::ShortWrite(injections)
            | Self::FailedSync(injections) => {
                write!(f, " x {}", injections.count)?;
                match injections.probability < 1.0 {
                    true => write!(f, ", probability {}", injections.probability),
                    false => Ok(()),
                }
            }
        }
    }
}

impl Plan {
    /// Returns the name of a target.
    #[must_use]
    pub fn name_of(&self, target: Target) -> &str {
        match target {
            Target::Client => CLIENT,
            Target::Endpoint(index) => self
                .endpoints
                .get(index)
                .map_or("", |endpoint| endpoint.name.as_str()),
        }
    }

    /// Returns the targets that a fault of this kind can have.
    pub(crate) fn targets(&self, kind: Kind) -> Vec<Target> {
        let endpoints = (0..self.endpoints.len()).map(Target::Endpoint);
        let client = (!kind.is_network()).then_some(Target::Client);
        client.into_iter().chain(endpoints).collect()
    }

    /// Returns the targets from which a fault of this kind gets a drawn target. A fault of the
    /// storage has no effect in a program that only reads.
    pub(crate) fn drawn_targets(&self, kind: Kind) -> Vec<Target> {
        match self.writer {
            Some(writer) if kind.is_storage() => vec![writer],
            _ => self.targets(kind),
        }
    }
}

/// Name of the command of the copy as a target.
pub(crate) const CLIENT: &str = "client";
