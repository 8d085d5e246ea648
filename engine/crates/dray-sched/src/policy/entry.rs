//! The entry of a policy in the table of policies, and the table's macro.

use super::{Policy, Settings};

/// The facts about a policy that its users need: the API, the configuration, the queue and the
/// command line.
pub(super) struct Entry {
    /// One line for the configuration, without the name.
    pub(super) description: &'static str,
    /// The transfers that move before a waiting or held one.
    pub(super) precedence: &'static str,
    /// Effect of [`Settings::max_running`].
    pub(super) max_running: MaxRunning,
    /// See [`Settings::candidates`].
    pub(super) candidates: fn(&Settings, &Load) -> Option<Candidates>,
    /// See [`Settings::make`].
    pub(super) make: fn(&Settings) -> Box<dyn Policy>,
}

/// Effect of [`Settings::max_running`] on a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxRunning {
    /// None: only the limits bound the running transfers.
    Ignored,
    /// It bounds the running transfers; without it, this number does.
    Default(usize),
}

/// The transfers that form a line, and their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lines {
    /// An owner's activity within one class and priority, by deadline, then by submission.
    #[default]
    Deadlines,
    /// An owner within one class and priority, by submission.
    Ages,
    /// A pair of endpoints and an owner within one class, by submission.
    Pairs,
}

/// The waiting transfers that a decision must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidates {
    /// The kind of lines.
    pub lines: Lines,
    /// Number of the first transfers of each line.
    pub per_line: usize,
    /// Number of the oldest transfers of all, in addition.
    pub oldest: usize,
}

impl Candidates {
    /// Creates a request for the first `per_line` transfers of each line.
    pub(super) const fn first(lines: Lines, per_line: usize) -> Self {
        Self {
            lines,
            per_line,
            oldest: 0,
        }
    }
}

/// The use of the session slots before a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Free session slots.
    pub free: usize,
    /// Held sessions.
    pub held: usize,
    /// [`Settings::running_max`] within the limits.
    pub running_max: usize,
}

/// Makes the names of the policies from their types and modules. A name is written as its module.
macro_rules! policies {
    ($($name:ident => $module:ident,)+) => {
        $(pub use $module::$name;)+

        /// Name of a policy.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Name {
            $(
                #[doc = concat!("[`", stringify!($name), "`].")]
                $name,
            )+
        }

        impl Name {
            /// All names.
            pub const ALL: [Self; [$(stringify!($name)),+].len()] = [$(Self::$name),+];

            /// Returns the name as written in configurations.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($module),)+
                }
            }

            const fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$name => &$module::ENTRY,)+
                }
            }
        }
    };
}

pub(super) use policies;
