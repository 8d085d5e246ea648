//! Rules about all text files in the tree, and about imports in Python.

use crate::Finding;

/// Folders of development machines. No file may mention such a folder, because code that runs only
/// on one host is not part of the project.
// The paths are joined by `concat!`, so that this file does not break its own rule.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/tmp/ba", "sh_jobs"),
];

/// Returns a finding for every path of a development machine in a file.
pub fn check_machine_paths(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for machine in MACHINE_PATHS {
            let stands_at_the_root = line.match_indices(machine).any(|(at, _)| {
                // `frame/tmp/x`, `$HOME/tmp/x` and `../tmp/x` do not mean the folder at the root.
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.})~/".contains(c))
            });
            if stands_at_the_root {
                let message = format!("`{machine}` is a path of one machine");
                findings.push(Finding::at_line(path, index, message));
            }
        }
    }
    findings
}

/// The project's Python packages, each with the other packages of the project that it may import.
/// No plug-in may import another plug-in. The pages in Airflow belong to the provider for Airflow
/// (docs/decisions/0089-pages-in-airflow-by-a-frame.md).
pub const PYTHON_PACKAGES: &[(&str, &[&str])] = &[
    ("dray", &[]),
    ("dray_airflow", &["dray"]),
    ("dray_airflow_ui", &["dray", "dray_airflow"]),
    ("dray_fts", &["dray"]),
    ("dray_globus", &["dray"]),
    ("dray_rucio", &["dray"]),
];

/// Returns a finding for every import of a package of the project that `package` may not import.
pub fn check_python_imports(path: &str, package: &str, text: &str) -> Vec<Finding> {
    let Some((_, may_use)) = PYTHON_PACKAGES.iter().find(|(name, _)| *name == package) else {
        let message = format!("package `{package}` is not in the table of dray-tidy/src/text.rs");
        return vec![Finding::at(path, message)];
    };
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for imported in imported_packages(line) {
            let is_ours = PYTHON_PACKAGES.iter().any(|(name, _)| *name == imported);
            if is_ours && imported != package && !may_use.contains(&imported) {
                let message = format!("`{package}` may not import `{imported}`");
                findings.push(Finding::at_line(path, index, message));
            }
        }
    }
    findings
}

/// Returns the top-level packages that a line imports, for `from a.b import c` and `import a, b.c
/// as d`.
fn imported_packages(line: &str) -> Vec<&str> {
    let first_segment = |name: &str| -> usize {
        name.find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(name.len())
    };
    let line = line.trim_start();
    let names: Vec<&str> = if let Some(rest) = line.strip_prefix("from ") {
        vec![rest]
    } else if let Some(rest) = line.strip_prefix("import ") {
        rest.split(',').collect()
    } else {
        Vec::new()
    };
    names
        .into_iter()
        .map(str::trim_start)
        .map(|name| &name[..first_segment(name)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_found_only_at_the_root() {
        for machine in MACHINE_PATHS {
            assert_eq!(
                check_machine_paths("a", &format!("x\n\"{machine}x\"\n"))[0].place,
                "a:2"
            );
            assert_eq!(check_machine_paths("a", &format!("cd {machine}x")).len(), 1);
            assert_eq!(
                check_machine_paths("a", &format!("cd $HOME{machine}x ../a{machine}")),
                []
            );
        }
    }

    #[test]
    fn guests_do_not_know_each_other() {
        let found = |package, text| check_python_imports("a.py", package, text).len();
        assert_eq!(
            found(
                "dray_rucio",
                "from dray import cp\nimport os, dray.errors\n"
            ),
            0
        );
        assert_eq!(
            found("dray_rucio", "    from dray_airflow.hooks import X\n"),
            1
        );
        assert_eq!(found("dray", "import os, dray_rucio as r\n"), 1);
        assert_eq!(
            found(
                "dray_airflow_ui",
                "import dray_airflow_ui.api, dray_airflow, dray_rucio\n"
            ),
            1
        );
        assert_eq!(found("dray_airflow", "import dray_airflow_ui\n"), 1);
        assert_eq!(found("dray_new", ""), 1);
    }
}
