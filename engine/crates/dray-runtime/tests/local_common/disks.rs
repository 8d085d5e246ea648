//! Helpers for tests of stores with several disks.

use super::sweeps::{durable_options, own_names, source};
use super::{picture, sink_setup_of};
use dray_core::End;
use dray_runtime::sink;
use dray_store::{DisksOptions, DisksStore};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes the folders of three disks, with their marks.
pub fn disks(scratch: &Path) -> Vec<PathBuf> {
    let dirs: Vec<PathBuf> = (0..3).map(|n| scratch.join(format!("d{n}"))).collect();
    for dir in &dirs {
        fs::create_dir(dir).expect("a folder");
    }
    drop(open(&dirs));
    dirs
}

pub fn open(dirs: &[PathBuf]) -> DisksStore {
    DisksStore::open(dirs, End::Sink, &DisksOptions::default()).expect("opened")
}

/// Returns a sink that writes to all disks.
pub fn sink_of(dirs: &[PathBuf]) -> sink::Setup {
    let store = Arc::new(open(dirs));
    sink_setup_of(store, &durable_options(), &["run"]).expect("a destination")
}

/// Adds a third file to the source, so that each disk gets a file.
pub fn three_files(scratch: &Path) -> PathBuf {
    let from = source(scratch);
    fs::copy(from.join("run/a"), from.join("run/c")).expect("a file");
    from
}

/// Returns for each disk the names of dray's own files, without the mark and the folders.
pub fn left(dirs: &[PathBuf]) -> Vec<Vec<String>> {
    let of = |dir: &PathBuf| {
        let mut names = own_names(dir);
        names.retain(|name| !name.ends_with(".dray-disk") && dir.join(name).is_file());
        names
    };
    dirs.iter().map(of).collect()
}

pub fn partials(left: &[Vec<String>]) -> Vec<usize> {
    let of = |names: &Vec<String>| names.iter().filter(|name| name.ends_with(".part")).count();
    left.iter().map(of).collect()
}

pub fn contents(at: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = picture(at).into_iter();
    let files = files.filter(|(name, _)| !name.contains(".dray-") && at.join(name).is_file());
    files.map(|(name, state)| (name, state.3)).collect()
}
