//! The rules that were configured or changed, in the policy's own words.

use crate::api::types::Scheduling;
use crate::config::{Config, PolicyName, TurnsOf};
use dray_sched::policy::{self, Limits, Name, OwnerRules};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the rules mean to the policy.
pub(super) fn settings(rules: &Scheduling) -> policy::Settings {
    policy::Settings {
        name: match rules.policy {
            PolicyName::Fair => Name::Fair,
            PolicyName::Fcfs => Name::Fcfs,
            PolicyName::Priority => Name::Priority,
            PolicyName::RoundRobin => Name::RoundRobin,
            PolicyName::Pairs => Name::Pairs,
        },
        at_once: rules.at_once.map(|count| count as usize),
        quota: rules.quota,
        turns_of: match rules.turns_of {
            TurnsOf::Owners => policy::TurnsOf::Owners,
            TurnsOf::Pairs => policy::TurnsOf::Pairs,
        },
        aging: Duration::from_secs(rules.aging_seconds),
        patience: Duration::from_secs(rules.patience_seconds),
    }
}

/// How many the policy runs side by side at the most.
pub(super) fn at_once(rules: &Scheduling, config: &Config) -> u32 {
    let usual = match rules.policy {
        PolicyName::Priority | PolicyName::RoundRobin => 1,
        PolicyName::Fair | PolicyName::Fcfs | PolicyName::Pairs => u32::MAX,
    };
    let count = match rules.policy {
        // It knows no other bound than the endpoint's.
        PolicyName::Fair => usual,
        _ => rules.at_once.unwrap_or(usual),
    };
    count.min(config.limits.transfers_active)
}

/// How many may run and be held, in all and of each owner.
pub(super) fn limits(rules: &Scheduling, config: &Config) -> Limits {
    let active = config.limits.transfers_active;
    // Who is held has a seat, buffers and a connection; seats are for as many as may run.
    let seats = active.saturating_sub(at_once(rules, config));
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
        held_max: rules.held_max.min(seats) as usize,
        owners,
    }
}

#[cfg(test)]
mod tests {
    use super::limits;
    use crate::api::types::Scheduling;
    use crate::config::Config;

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
