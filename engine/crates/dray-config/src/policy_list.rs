//! Tests that the example and its page in the reference contain the list of policies of dray-sched.

use dray_sched::policy::{MaxRunning, Name};
use std::fs;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.toml");
const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../docs/reference/configuration.md"
);

/// Returns the comment that describes a policy, in lines of at most 100 columns.
fn comment(name: Name) -> String {
    let more = match name.max_running() {
        MaxRunning::Ignored => " Ignores max_running.".to_owned(),
        MaxRunning::Default(usize::MAX) => String::new(),
        MaxRunning::Default(count) => format!(" The default of max_running is {count}."),
    };
    let text = format!("\"{}\": {}{more}", name.as_str(), name.description());
    let mut lines = vec!["#".to_owned()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, String::len);
        if line + 1 + word.len() > 100 {
            lines.push("#".to_owned());
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

/// Returns `text`, the text of a configuration file, with a new list of policies: the list of all
/// policies in this build.
fn with_list(text: &str) -> String {
    let (before, rest) = text.split_once("\n[scheduling]\n").expect("a section");
    let (_, after) = rest.split_once("#policy = ").expect("a key");
    let list: String = Name::ALL.into_iter().map(comment).collect();
    format!("{before}\n[scheduling]\n{list}#policy = {after}")
}

#[test]
fn the_example_and_its_page_list_the_policies_of_the_scheduler() {
    for path in [EXAMPLE, PAGE] {
        let text = fs::read_to_string(path).expect("readable");
        let listed = with_list(&text);
        if text != listed && std::env::var_os("DRAY_WRITE_POLICIES").is_some() {
            fs::write(path, listed).expect("written");
            continue;
        }
        assert!(
            text == listed,
            "{path} does not list the policies: run this test with DRAY_WRITE_POLICIES=1"
        );
    }
}
