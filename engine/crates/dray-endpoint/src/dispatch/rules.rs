//! Converts scheduling rules, from the configuration or from the API, to the policy's types.

use dray_api::Scheduling;
use dray_config::Config;
use dray_sched::policy::{self, Limits, OwnerRules, Phase};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Converts scheduling rules to the policy's settings.
pub(super) fn settings(rules: &Scheduling) -> policy::Settings {
    policy::Settings {
        name: rules.policy,
        max_running: rules.max_running.map(|count| count as usize),
        quota: rules.quota,
        round_robin_by: rules.round_robin_by,
        aging: Duration::from_secs(rules.aging_seconds),
        patience: Duration::from_secs(rules.patience_seconds),
    }
}

/// Returns the maximum number of transfers that the policy runs concurrently.
pub(super) fn max_running(rules: &Scheduling, config: &Config) -> u32 {
    let count = u32::try_from(settings(rules).running_max()).unwrap_or(u32::MAX);
    count.min(config.limits.transfers_active)
}

/// Returns the limits of running and held transfers, in total and for each owner.
pub(super) fn limits(rules: &Scheduling, config: &Config) -> Limits {
    let active = config.limits.transfers_active;
    // A held session needs a slot, buffers and a connection. So held sessions may only use the
    // slots that running transfers leave free.
    let slots = active.saturating_sub(max_running(rules, config));
    let mut owners = BTreeMap::new();
    for share in &config.share {
        if let Some(owner) = &share.owner {
            let rules = OwnerRules {
                weight: share.weight,
                running_max: None,
                activities: share.activities.clone(),
            };
            owners.insert(owner.clone(), rules);
        }
    }
    Limits {
        running_max: active as usize,
        owner_max: config.limits.per_owner_active as usize,
        peer_max: active as usize,
        held_max: rules.held_max.min(slots) as usize,
        owners,
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SessionPhase<'p> {
    pub(super) owner: &'p str,
    pub(super) phase: Phase,
}

/// Subtracts from `limits` the slots of transfers that are outside the policy's control. The
/// policy's own running transfers keep their slots, even if the sum then exceeds the limits.
pub(super) fn limits_beside(
    mut limits: Limits,
    seen: &[SessionPhase<'_>],
    beside: &[SessionPhase<'_>],
) -> Limits {
    let left = |most: usize, is_counted: &dyn Fn(&&SessionPhase<'_>) -> bool| {
        let taken = beside.iter().filter(|one| one.phase != Phase::Waiting);
        let running = seen.iter().filter(|one| one.phase == Phase::Running);
        let left = most.saturating_sub(taken.filter(is_counted).count());
        left.max(running.filter(is_counted).count().min(most))
    };
    let owners: HashSet<&str> = beside.iter().map(|one| one.owner).collect();
    for owner in owners {
        let most = left(limits.owner_max, &|one| one.owner == owner);
        let rules = limits.owners.entry(owner.to_owned()).or_default();
        rules.running_max = Some(most);
    }
    limits.running_max = left(limits.running_max, &|_| true);
    limits
}

#[cfg(test)]
mod tests {
    use super::{Limits, SessionPhase, limits, limits_beside};
    use dray_api::Scheduling;
    use dray_config::Config;
    use dray_sched::policy::Phase;
    use std::collections::BTreeMap;

    #[test]
    fn remaining_limits_are_never_below_the_running_transfers() {
        let place = |phase| move |owner| SessionPhase { owner, phase };
        let running = place(Phase::Running);
        let (held, waiting) = (place(Phase::Held), place(Phase::Waiting));
        let table = [
            // No other transfer has a slot.
            (vec![], vec![], (4, None)),
            (vec![], vec![waiting("alice")], (4, Some(2))),
            // Each other transfer with a slot counts against its owner's limit and the total.
            (vec![], vec![running("alice")], (3, Some(1))),
            (vec![], vec![held("alice"), running("bob")], (2, Some(1))),
            (vec![], vec![running("bob")], (3, None)),
            // The transfers outside the policy's control already exceed the limits. The policy may
            // keep its running transfers, but starts no more.
            (
                vec![waiting("alice")],
                vec![running("alice"); 5],
                (0, Some(0)),
            ),
            (vec![held("alice")], vec![running("alice"); 5], (0, Some(0))),
            (
                vec![running("alice")],
                vec![running("alice"); 5],
                (1, Some(1)),
            ),
            (
                vec![running("bob")],
                vec![running("alice"); 5],
                (1, Some(0)),
            ),
            (
                vec![running("alice"); 9],
                vec![running("alice"); 5],
                (4, Some(2)),
            ),
        ];
        for (seen, beside, expected) in table {
            let limits = Limits {
                running_max: 4,
                owner_max: 2,
                peer_max: 4,
                held_max: 1,
                owners: BTreeMap::new(),
            };
            let left = limits_beside(limits, &seen, &beside);
            let alices = left.owners.get("alice").and_then(|rules| rules.running_max);
            assert_eq!((left.running_max, alices), expected, "{seen:?} {beside:?}");
            assert_eq!((left.held_max, left.peer_max), (1, 4));
        }
    }

    #[test]
    fn owners_and_their_activities_have_the_weights_of_their_share() {
        let text = "name = \"a.example\"\nstate = \"/s\"\n\
                    [[root]]\nname = \"data\"\npath = \"/data\"\n\
                    [limits]\ntransfers_active = 3\nper_owner_active = 2\n\
                    [[share]]\nowner = \"alice\"\nweight = 300\nactivities = { tape = 7 }\n";
        let config = Config::parse("test", text).expect("good");
        let limits = limits(&Scheduling::from(&config.scheduling), &config);
        let alice = &limits.owners["alice"];
        assert_eq!((alice.weight, alice.activities["tape"]), (300, 7));
        assert_eq!((limits.running_max, limits.owner_max), (3, 2));
    }
}
