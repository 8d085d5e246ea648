//! Simple rules for comparison with the broker. They admit every transfer and promise nothing.

use super::fill::RemainingCapacity;
use super::{Conductor, Orders, Scene, TransferView};

/// The rule by which transfers share capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// All transfers have equal shares: max-min fairness.
    Fair,
    /// The transfers get capacity in the order of their deadlines, each as much as it can use. Late
    /// transfers come first, and transfers without a deadline come last.
    Edf,
    /// The transfers get capacity in the order of submission, each as much as it can use.
    Fcfs,
}

impl Plain {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Fair, Self::Edf, Self::Fcfs];

    /// Returns the name of the rule in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Edf => "edf",
            Self::Fcfs => "fcfs",
        }
    }
}

impl Conductor for Plain {
    fn conduct(&mut self, scene: &Scene<'_>) -> Orders {
        let may_begin = |seen: &&TransferView<'_>| {
            let begin = seen.transfer.not_before;
            begin.is_none_or(|time| time <= scene.now)
        };
        let mut open: Vec<&TransferView<'_>> = scene.present.iter().filter(may_begin).collect();
        let room = RemainingCapacity::new(scene);
        let rates = match self {
            Self::Fair => {
                let wishes: Vec<_> = open.iter().map(|seen| (*seen, 1.0)).collect();
                room.by_weight(&wishes)
            }
            Self::Edf => {
                open.sort_by_key(|seen| {
                    let deadline = seen.transfer.deadline;
                    (deadline.is_none(), deadline, seen.index)
                });
                room.in_order(&open)
            }
            Self::Fcfs => {
                open.sort_by_key(|seen| (seen.transfer.arrives, seen.index));
                room.in_order(&open)
            }
        };
        let begins = scene
            .present
            .iter()
            .filter_map(|seen| seen.transfer.not_before);
        Orders {
            rates,
            look_again: begins.filter(|time| *time > scene.now).min(),
            ..Orders::default()
        }
    }
}
