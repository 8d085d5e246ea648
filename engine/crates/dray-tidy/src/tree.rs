//! The files of the project: those that git tracks or would add, or without git all except build
//! output.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that no rule reads when git is not available to list the project's files.
const SKIPPED: &[&str] = &[
    ".git",
    ".venv",
    ".tools",
    "target",
    "build",
    "dist",
    "out",
    "__pycache__",
    "node_modules",
];

/// Returns the top of the tree in which this crate runs.
pub fn root() -> PathBuf {
    // Read at run time: clones with a shared build folder share the test program too, and one built
    // in another clone would check that clone's files.
    let here = std::env::var_os("CARGO_MANIFEST_DIR");
    let here = here.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.ancestors().nth(3).unwrap_or(&here).to_owned()
}

/// Returns the paths of all files from `root`, with `/`, sorted.
pub fn files(root: &Path) -> Vec<String> {
    let mut files = git_files(root).unwrap_or_else(|| walked_files(root));
    files.sort();
    files
}

fn git_files(root: &Path) -> Option<Vec<String>> {
    if !root.join(".git").exists() {
        return None;
    }
    let arguments = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // git still lists a file that was deleted but not staged.
    Some(
        text.split_terminator('\0')
            .filter(|path| root.join(path).is_file())
            .map(Into::into)
            .collect(),
    )
}

fn walked_files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if SKIPPED.contains(&name.as_str()) || name.ends_with(".egg-info") {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() => {
                    let below = path.strip_prefix(root).unwrap_or(&path);
                    found.push(below.to_string_lossy().into_owned());
                }
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_listing_see_this_file() {
        let this = "engine/crates/dray-tidy/src/tree.rs";
        assert!(files(&root()).iter().any(|path| path == this));
        assert!(walked_files(&root()).iter().any(|path| path == this));
        assert!(
            !walked_files(&root())
                .iter()
                .any(|path| path.starts_with("engine/target/"))
        );
    }
}
