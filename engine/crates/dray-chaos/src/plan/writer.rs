//! Finds the program that writes the destination of the copy.

use super::{Plan, Target};
use std::path::Path;

/// Returns the program that writes the destination, as the command of the copy shows it: the client
/// if the command names the destination, and otherwise the endpoint that the command names last.
pub(super) fn in_commands(plan: &Plan) -> Option<Target> {
    let command = &plan.copy.command;
    let destination = &plan.copy.destination;
    // The copy of a folder `run` to `/data` writes `/data/run`, so a word may also name a folder
    // above the destination.
    let is_local = |word: &String| {
        let path = Path::new(word.as_str());
        let is_above = path.is_absolute() && destination.starts_with(path);
        path.starts_with(destination) || (is_above && !plan.copy.source.starts_with(path))
    };
    if plan.endpoints.is_empty() || command.iter().any(is_local) {
        return Some(Target::Client);
    }
    let of_word = |word: &String| {
        let mut endpoints = plan.endpoints.iter();
        endpoints.position(|endpoint| word.contains(&format!("{{{}}}", endpoint.name)))
    };
    let last = command.iter().rev().find_map(of_word);
    last.map(Target::Endpoint)
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Plan, Target};

    fn writer(command: &str) -> Option<Target> {
        let mut plan = Plan::parse("plan", crate::EXAMPLE).expect("valid");
        let sink = plan.endpoints.clone();
        plan.endpoints.extend(sink);
        plan.endpoints[1].name = "other".to_owned();
        plan.copy.command = command.split(' ').map(str::to_owned).collect();
        super::in_commands(&plan)
    }

    #[test]
    fn the_command_of_the_copy_shows_the_writer() {
        let sink = Some(Target::Endpoint(0));
        assert_eq!(writer("dray cp /from dray://{sink}/copy"), sink);
        assert_eq!(writer("dray cp dray://{other}/a dray://{sink}/b"), sink);
        let pull = "dray cp --peer-key {sink.key} dray://{sink}/a /tmp/chaos/sink/copy/";
        assert_eq!(writer(pull), Some(Target::Client));
        let into_a_folder = "dray cp -r dray://{sink}/copy /tmp/chaos/sink";
        assert_eq!(writer(into_a_folder), Some(Target::Client));
        assert_eq!(writer("sh copy.sh"), None);
    }

    #[test]
    fn drawn_faults_of_the_storage_get_the_writer() {
        let plan = Plan::parse("plan", crate::EXAMPLE).expect("valid");
        assert_eq!(plan.writer, Some(Target::Endpoint(0)));
        assert_eq!(plan.drawn_targets(Kind::FailedSync), [Target::Endpoint(0)]);
        assert_eq!(plan.drawn_targets(Kind::Kill).len(), 2);
        let text = crate::EXAMPLE.replace("writer = \"sink\"", "writer = \"client\"");
        let plan = Plan::parse("plan", &text).expect("valid");
        assert_eq!(plan.writer, Some(Target::Client));
    }
}
