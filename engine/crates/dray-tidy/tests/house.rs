//! The rules of `dray-tidy`, applied to the tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use dray_tidy::sources::LongFile;
use dray_tidy::{
    Finding, banned_paths, circles, layers, messages, packages, prose, sources, text, tree,
};

/// Files that may exceed the maximum length, each with a permanent reason.
const LONG_FILES: &[LongFile] = &[];

const SOURCE_ENDINGS: &[&str] = &[
    "rs", "py", "pyi", "sh", "cc", "hh", "h", "cmake", "toml", "cfg",
];
const CODE_ENDINGS: &[&str] = &["rs", "py", "cc", "hh", "sh"];

/// Returns all text files of the tree whose names end in one of `endings`. Without endings, returns
/// all text files.
fn read(endings: &[&str]) -> Vec<(String, String)> {
    let root = tree::root();
    let is_wanted = |path: &String| {
        endings.is_empty() || endings.contains(&path.rsplit('.').next().unwrap_or(""))
    };
    let wanted = tree::files(&root).into_iter().filter(is_wanted);
    wanted
        .filter_map(|path| Some((path.clone(), fs::read_to_string(root.join(&path)).ok()?)))
        .collect()
}

fn read_one(path: &str) -> String {
    let full: PathBuf = tree::root().join(path);
    fs::read_to_string(&full)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", full.display()))
}

#[track_caller]
fn assert_none(findings: &[Finding]) {
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "\n{}\n", list.join("\n"));
}

/// Splits `engine/crates/<name>/<rest>` into name and rest.
fn in_crate(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("engine/crates/")?.split_once('/')
}

#[test]
fn arrows_between_crates_point_one_way() {
    let mut findings = Vec::new();
    let mut count = 0;
    for (path, text) in read(&["toml"]) {
        if let Some((name, "Cargo.toml")) = in_crate(&path) {
            findings.extend(layers::check(&path, name, &text));
            count += 1;
        }
    }
    assert!(count >= 3, "only {count} crates seen: the search is broken");
    assert_none(&findings);
}

#[test]
fn every_crate_has_a_short_readme() {
    const LINES_MAX: usize = 16;
    let files = tree::files(&tree::root());
    let crates = files.iter().filter_map(|path| match in_crate(path) {
        Some((name, "Cargo.toml")) => Some(name),
        _ => None,
    });
    let mut findings = Vec::new();
    for name in crates {
        let path = format!("engine/crates/{name}/README.md");
        let lines = fs::read_to_string(tree::root().join(&path)).map(|text| text.lines().count());
        match lines {
            Ok(0..=LINES_MAX) => {}
            Ok(lines) => {
                let message = format!("{lines} lines, {LINES_MAX} are allowed");
                findings.push(Finding::at(path, message));
            }
            Err(_) => findings.push(Finding::at(path, "write what the crate holds")),
        }
    }
    assert_none(&findings);
}

#[test]
fn pure_crates_know_no_files_sockets_threads_or_clocks() {
    let mut findings = Vec::new();
    let mut count = 0;
    for (path, source) in read(&["rs"]) {
        let Some((name, rest)) = in_crate(&path) else {
            continue;
        };
        if !layers::room(name).is_some_and(|room| room.is_pure) {
            continue;
        }
        if rest == "build.rs" {
            findings.push(Finding::at(&path, "a pure crate needs no build script"));
        }
        // Integration tests, benches and examples of a pure crate may use the system. Code in
        // `src`, including its unit tests, may not.
        if rest.starts_with("src/") {
            findings.extend(banned_paths::check(&path, &source, banned_paths::PURE_BANS));
            count += 1;
        }
    }
    assert!(count >= 1, "no pure source seen: the search is broken");
    assert_none(&findings);
}

#[test]
fn modules_of_a_crate_do_not_import_each_other_in_a_circle() {
    let sources = read(&["rs"]);
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (path, source) in &sources {
        if let Some((name, rest)) = in_crate(path) {
            crates.entry(name).or_default().push((rest, source));
        }
    }
    assert!(crates.len() >= 3, "only {} crates seen", crates.len());
    let findings: Vec<_> = crates
        .iter()
        .flat_map(|(name, files)| circles::check(name, files))
        .collect();
    assert_none(&findings);
}

#[test]
fn files_are_short_enough_to_read() {
    let mut findings = Vec::new();
    for (path, source) in read(CODE_ENDINGS) {
        findings.extend(sources::check_length(
            &path,
            &source,
            path.ends_with(".rs"),
            LONG_FILES,
        ));
    }
    let root = tree::root();
    findings.extend(sources::check_long_list(LONG_FILES, |path| {
        fs::read_to_string(root.join(path)).ok()
    }));
    assert_none(&findings);
}

#[test]
fn modules_and_unit_tests_have_one_style() {
    let findings: Vec<_> = read(&["rs"])
        .iter()
        .filter(|(path, _)| in_crate(path).is_some_and(|(_, rest)| rest.starts_with("src/")))
        .flat_map(|(path, source)| sources::check_module(path, source))
        .collect();
    assert_none(&findings);
}

#[test]
fn lines_fit_beside_each_other() {
    let sources = read(&["rs", "sh", "cc", "hh", "h"]);
    let findings: Vec<_> = sources
        .iter()
        .flat_map(|(path, source)| sources::check_width(path, source))
        .collect();
    assert_none(&findings);
}

#[test]
fn pages_are_wrapped() {
    // Programs write these pages.
    let is_written = |path: &str| {
        path.contains("/experiments/") || path.contains("/measured") || path.ends_with("/cli.md")
    };
    let mut pages = read(&["md"]);
    pages.retain(|(path, _)| !is_written(path));
    assert!(pages.len() > 50, "too few pages seen: the search is broken");
    let findings: Vec<_> = pages
        .iter()
        .flat_map(|(path, text)| prose::check_page_width(path, text))
        .collect();
    assert_none(&findings);
}

#[test]
fn comments_name_their_subject() {
    let sources = read(&["rs"]);
    assert!(
        sources.len() > 100,
        "too few files seen: the search is broken"
    );
    let findings: Vec<_> = sources
        .iter()
        .flat_map(|(path, source)| prose::check_openings(path, source))
        .collect();
    assert_none(&findings);
}

#[test]
fn docstrings_name_their_subject() {
    let sources = read(&["py"]);
    assert!(
        sources.len() > 100,
        "too few files seen: the search is broken"
    );
    let findings: Vec<_> = sources
        .iter()
        .flat_map(|(path, source)| prose::check_docstring_openings(path, source))
        .collect();
    assert_none(&findings);
}

#[test]
fn every_message_is_in_the_list() {
    let of_programs = |path: &str| {
        let is_program = path.starts_with("engine/crates/") || path.starts_with("plugins/xrootd/");
        let is_test = [
            "/tests",
            "/examples/",
            "_tests.rs",
            "/testing.rs",
            "dray-tidy",
            "conformance",
        ];
        is_program && path.contains("/src/") && !is_test.iter().any(|part| path.contains(part))
    };
    let mut files = read(&["rs"]);
    files.retain(|(path, _)| of_programs(path));
    assert!(
        files.len() > 100,
        "too few files seen: the search is broken"
    );
    let found = messages::list(&files);
    let list = tree::root().join(messages::LIST);
    if std::env::var_os("DRAY_WRITE_MESSAGES").is_some() {
        fs::write(&list, &found).expect("the list can be written");
    }
    let known = fs::read_to_string(&list).unwrap_or_default();
    let line = found
        .lines()
        .zip(known.lines())
        .find(|(new, old)| new != old);
    assert!(
        found == known,
        "{} is not up to date, first at {line:?}; read the new messages, then run \
         DRAY_WRITE_MESSAGES=1 cargo test -p dray-tidy",
        messages::LIST
    );
}

/// The last commit from the time before this rule. Only later commits are checked.
const FIRST_CHECKED_AFTER: &str = "b9cce8d";

#[test]
fn subjects_of_commits_have_an_area_and_a_verb() {
    let root = tree::root();
    let range = format!("{FIRST_CHECKED_AFTER}..HEAD");
    let log = Command::new("git")
        .arg("-C")
        .arg(&root)
        .args(["log", "--no-merges", "--format=%h %s", &range])
        .output();
    // A tree without history, such as an sdist or a shallow clone, has no commit subjects to check.
    let Some(log) = log.ok().filter(|log| log.status.success()) else {
        return;
    };
    let mut findings = Vec::new();
    for line in String::from_utf8_lossy(&log.stdout).lines() {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        if let Err(why) = prose::check_subject(subject) {
            findings.push(Finding::at(commit, format!("{subject:?}: {why}")));
        }
    }
    assert_none(&findings);
}

#[test]
fn every_unsafe_says_why_it_is_safe() {
    let sources = read(&["rs"]);
    let findings: Vec<_> = sources
        .iter()
        .flat_map(|(path, source)| sources::check_unsafe(path, source))
        .collect();
    assert_none(&findings);
}

#[test]
fn work_to_be_done_has_an_issue() {
    let sources = read(SOURCE_ENDINGS);
    let findings: Vec<_> = sources
        .iter()
        .flat_map(|(path, source)| sources::check_markers(path, source))
        .collect();
    assert_none(&findings);
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    let files = read(&[]);
    assert!(
        files.len() >= 10,
        "only {} files seen: the search is broken",
        files.len()
    );
    let findings: Vec<_> = files
        .iter()
        .flat_map(|(path, text)| text::check_machine_paths(path, text))
        .collect();
    assert_none(&findings);
}

#[test]
fn the_version_is_the_same_everywhere() {
    assert_none(&packages::check_versions(
        &read_one("VERSION"),
        &read_one("setup.cfg"),
        &read_one("engine/Cargo.toml"),
        &read_one("CHANGELOG.md"),
    ));
}

#[test]
fn every_python_package_is_listed() {
    let files = tree::files(&tree::root());
    let inits: Vec<String> = files
        .into_iter()
        .filter(|path| path.ends_with("/__init__.py"))
        .collect();
    assert!(!inits.is_empty(), "no package seen: the search is broken");
    assert_none(&packages::check_listed(&read_one("setup.cfg"), &inits));
}

#[test]
fn only_benchmarks_import_benchmarks() {
    let mut findings = Vec::new();
    for (path, source) in read(&["py"]) {
        let imports = |line: &str| {
            let line = line.trim_start();
            line.starts_with("from integration.bench")
                || line.starts_with("import integration.bench")
        };
        if !path.starts_with("integration/bench/")
            && let Some(index) = source.lines().position(imports)
        {
            let message = "move what both need to integration/harness";
            findings.push(Finding::at_line(&path, index, message));
        }
    }
    assert_none(&findings);
}

#[test]
fn python_guests_do_not_know_each_other() {
    let mut findings = Vec::new();
    for (path, source) in read(&["py"]) {
        let folders: Vec<&str> = path.split('/').collect();
        let package = folders
            .iter()
            .find(|name| **name == "dray" || name.starts_with("dray_"));
        let is_shipped = ["engine", "operators", "plugins"].contains(&folders[0]);
        if let (Some(package), true, false) = (package, is_shipped, folders.contains(&"tests")) {
            findings.extend(text::check_python_imports(&path, package, &source));
        }
    }
    assert_none(&findings);
}
