//! The description of a policy in the table of policies, and the macro of the table.

use super::{Policy, Settings};

/// Facts about a policy for the API, the configuration, the queue and the command line.
pub(super) struct Entry {
    /// Description for the configuration in one line, without the name.
    pub(super) description: &'static str,
    /// Transfers that move before a waiting or held transfer.
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
    /// No effect: only the limits restrict the number of running transfers.
    Ignored,
    /// Maximum number of running transfers. The value is the default.
    Default(usize),
}

/// Groups into which waiting transfers are divided, and the order within a group (a line).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lines {
    /// One line for each combination of owner, activity, class and priority. Sorted by deadline,
    /// then by submission.
    #[default]
    Deadlines,
    /// One line for each combination of owner, class and priority. Sorted by submission.
    Ages,
    /// One line for each combination of endpoint pair, owner and class. Sorted by submission.
    Pairs,
}

/// The waiting transfers that a decision must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidates {
    /// Division of the waiting transfers into lines.
    pub lines: Lines,
    /// Number of transfers to include from the start of each line.
    pub per_line: usize,
    /// Number of the oldest waiting transfers to include in addition, from all lines.
    pub oldest: usize,
}

impl Candidates {
    /// Returns candidates that consist of the first `per_line` transfers of each line.
    pub(super) const fn first(lines: Lines, per_line: usize) -> Self {
        Self {
            lines,
            per_line,
            oldest: 0,
        }
    }
}

/// Use of the session slots before a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Number of free session slots.
    pub free: usize,
    /// Number of held sessions.
    pub held: usize,
    /// [`Settings::running_max`] of the policy, reduced to the limits.
    pub running_max: usize,
}

/// Defines the names of the policies from their types and modules. The text of a name is the name
/// of its module.
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
            /// All names, in the order of the table.
            pub const ALL: [Self; [$(stringify!($name)),+].len()] = [$(Self::$name),+];

            /// Returns the name as it is written in configurations.
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
