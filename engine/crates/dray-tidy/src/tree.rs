//! The files of the project: the files that git tracks or would add. Without git, all files except
//! build output.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders to skip if git is not available to list the files of the project.
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
    // Read the variable at run time. Clones that share a build folder also share this test program.
    // With a path that is fixed at build time, the program would always check the files of the
    // clone in which it was built.
    let here = std::env::var_os("CARGO_MANIFEST_DIR");
    let here = here.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.ancestors().nth(3).unwrap_or(&here).to_owned()
}

/// Returns the paths of all files below `root`, sorted, with `/` as separator.
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
    // Skip a deleted file, because git lists it until the deletion is staged.
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
