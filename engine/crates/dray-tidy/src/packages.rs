//! Rules that compare the metadata of the Python packages with the tree: all versions are equal,
//! and every package is listed.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::Finding;

/// Checks the version. The file `VERSION` is its only source. `setup.cfg` reads that file,
/// `engine/Cargo.toml` must repeat the version, and the change log must contain it.
pub fn check_versions(
    version: &str,
    setup_cfg: &str,
    cargo_toml: &str,
    changelog: &str,
) -> Vec<Finding> {
    let version = version.trim();
    let mut findings = Vec::new();
    let parts: Vec<_> = version.split('.').collect();
    if parts.len() != 3 || parts.iter().any(|part| part.parse::<u32>().is_err()) {
        findings.push(Finding::at(
            "VERSION",
            format!("`{version}` is not major.minor.patch"),
        ));
    }
    let named = Config::parse(setup_cfg).value("metadata", "version");
    if named.as_deref() != Some("file: VERSION") {
        findings.push(Finding::at(
            "setup.cfg",
            "`version` must be `file: VERSION`",
        ));
    }
    let manifest: Option<Table> = cargo_toml.parse().ok();
    let package = manifest
        .as_ref()
        .and_then(|table| table.get("workspace")?.get("package"));
    let cargo = package
        .and_then(|package| package.get("version"))
        .and_then(Value::as_str);
    if cargo != Some(version) {
        let message = format!("workspace version {cargo:?}, VERSION says `{version}`");
        findings.push(Finding::at("engine/Cargo.toml", message));
    }
    let heading = format!("## {version}");
    if !changelog
        .lines()
        .any(|line| line == heading || line.starts_with(&format!("{heading} ")))
    {
        findings.push(Finding::at(
            "CHANGELOG.md",
            format!("has no heading `{heading}`"),
        ));
    }
    findings
}

/// Compares the packages in `setup.cfg` with the packages on disk. `init_files` has the paths of
/// all `__init__.py` in the tree. Test folders, such as integration/, belong to no package.
pub fn check_listed(setup_cfg: &str, init_files: &[String]) -> Vec<Finding> {
    let config = Config::parse(setup_cfg);
    let listed: BTreeSet<String> = config.lines("options", "packages").into_iter().collect();
    let roots: BTreeMap<String, String> = config
        .lines("options", "package_dir")
        .iter()
        .filter_map(|line| line.split_once('='))
        .map(|(package, folder)| (package.trim().to_owned(), folder.trim().to_owned()))
        .collect();

    let folders: BTreeSet<&str> = init_files
        .iter()
        .filter_map(|path| path.strip_suffix("/__init__.py"))
        .collect();
    let mut on_disk = BTreeSet::new();
    for folder in &folders {
        if folder
            .split('/')
            .any(|part| part == "tests" || part == "integration")
        {
            continue;
        }
        let home = roots.iter().find_map(|(package, root)| {
            let below = folder.strip_prefix(root.as_str())?;
            (below.is_empty() || below.starts_with('/')).then(|| format!("{package}{below}"))
        });
        // A package outside every root keeps its own name, so it is reported as not listed.
        let name = home.unwrap_or_else(|| (*folder).to_owned());
        on_disk.insert(name.replace('/', "."));
    }

    let mut findings = Vec::new();
    for package in on_disk.difference(&listed) {
        let message = format!("`{package}` is on disk and not in `packages`: the wheel lacks it");
        findings.push(Finding::at("setup.cfg", message));
    }
    for package in listed.difference(&on_disk) {
        let message = format!("`{package}` is in `packages` and not on disk");
        findings.push(Finding::at("setup.cfg", message));
    }
    findings
}

/// A file in the format of Python's configparser: sections with keys. A value may continue on
/// indented lines.
struct Config(BTreeMap<(String, String), Vec<String>>);

impl Config {
    fn parse(text: &str) -> Self {
        let mut values: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        let mut section = String::new();
        let mut key = String::new();
        for line in text.lines() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
            {
                section = name.to_owned();
                key.clear();
            } else if line.starts_with(char::is_whitespace) {
                values
                    .entry((section.clone(), key.clone()))
                    .or_default()
                    .push(trimmed.to_owned());
            } else if let Some((name, value)) = line.split_once('=') {
                key = name.trim().to_owned();
                let lines = values.entry((section.clone(), key.clone())).or_default();
                lines.extend(Some(value.trim().to_owned()).filter(|value| !value.is_empty()));
            }
        }
        Self(values)
    }

    fn lines(&self, section: &str, key: &str) -> Vec<String> {
        self.0
            .get(&(section.to_owned(), key.to_owned()))
            .cloned()
            .unwrap_or_default()
    }

    fn value(&self, section: &str, key: &str) -> Option<String> {
        self.lines(section, key).into_iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETUP: &str = "
[metadata]
version = file: VERSION
[options]
# one per line
packages =
    dray
    dray_x
    dray_x.hooks
package_dir =
    dray = engine/python/dray
    dray_x = x/dray_x
";
    const CARGO: &str = "[workspace.package]\nversion = \"1.2.3\"\n";
    const CHANGES: &str = "# Changes\n\n## 1.2.3 (2026-01-01)\n";

    fn paths(folders: &[&str]) -> Vec<String> {
        folders
            .iter()
            .map(|folder| format!("{folder}/__init__.py"))
            .collect()
    }

    #[test]
    fn versions_that_differ_are_found() {
        assert_eq!(check_versions("1.2.3\n", SETUP, CARGO, CHANGES), []);
        assert_eq!(check_versions("1.2.4\n", SETUP, CARGO, CHANGES).len(), 2);
        assert_eq!(check_versions("1.2\n", SETUP, CARGO, CHANGES).len(), 3);
        let own = SETUP.replace("file: VERSION", "1.2.3");
        assert_eq!(check_versions("1.2.3", &own, CARGO, CHANGES).len(), 1);
        assert_eq!(check_versions("1.2.3", SETUP, "", CHANGES).len(), 1);
        assert_eq!(
            check_versions("1.2.3", SETUP, CARGO, "## 1.2.30\n").len(),
            1
        );
    }

    #[test]
    fn packages_listed_and_on_disk_must_agree() {
        let all = ["engine/python/dray", "x/dray_x", "x/dray_x/hooks"];
        assert_eq!(check_listed(SETUP, &paths(&all)), []);
        assert_eq!(check_listed(SETUP, &paths(&all[..2])).len(), 1);
        let more = ["x/dray_x/new", "operators/dray_y", "x/tests", "x/dray_x2"];
        assert_eq!(
            check_listed(SETUP, &paths(&[&all[..], &more[..]].concat())).len(),
            3
        );
    }
}
