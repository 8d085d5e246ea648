//! Determines the storage target of a folder, by configuration or by device.

use crate::types::Target;
use dray_core::lock::RwLockExt;
use dray_core::{RelPath, TargetId};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// The configured storage targets of folders: each entry assigns a folder to the name of a target.
/// A path belongs to the target of the innermost configured folder that contains the path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetMap {
    /// Folders and the names of their targets, sorted by the length of the folder's path, the
    /// longest first.
    folders: Vec<(RelPath, String)>,
}

impl TargetMap {
    /// Creates the map from pairs of a folder and a target name, in any order. Several folders may
    /// belong to the same target.
    #[must_use]
    pub fn new(folders: impl IntoIterator<Item = (RelPath, String)>) -> Self {
        let mut folders: Vec<_> = folders.into_iter().collect();
        folders.sort_by_key(|(folder, _)| std::cmp::Reverse(folder.as_bytes().len()));
        Self { folders }
    }

    /// Returns true if no folder is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// Returns the name of the target to which the folder at `path` belongs.
    #[must_use]
    pub fn name_of(&self, path: &RelPath) -> Option<&str> {
        let at = self.index_of(path.as_bytes())?;
        Some(&self.folders[at].1)
    }

    fn index_of(&self, path: &[u8]) -> Option<usize> {
        self.folders.iter().position(|(folder, _)| {
            let folder = folder.as_bytes();
            folder.is_empty()
                || (path.starts_with(folder)
                    && (path.len() == folder.len() || path[folder.len()] == b'/'))
        })
    }
}

/// The target numbers of a store. Numbers start at zero and have no gaps. Configured targets have
/// the first numbers, and other targets get numbers in the order in which the store sees them.
#[derive(Debug)]
pub struct Targets {
    map: TargetMap,
    /// Target numbers of the configured folders, in the order of the map.
    mapped: Vec<TargetId>,
    names: RwLock<Vec<String>>,
    /// Numbers of the targets that [`Targets::part`] has returned.
    parts: RwLock<HashMap<String, TargetId>>,
    devices: RwLock<HashMap<u64, TargetId>>,
    /// For each target, the first device that was seen.
    first_devices: RwLock<HashMap<TargetId, u64>>,
}

impl Targets {
    /// Creates target numbers for a configured map.
    #[must_use]
    pub fn new(map: TargetMap) -> Self {
        let mut names = Vec::new();
        let mapped = map
            .folders
            .iter()
            .map(|(_, name)| number(&mut names, name))
            .collect();
        Self {
            map,
            mapped,
            names: RwLock::new(names),
            parts: RwLock::default(),
            devices: RwLock::default(),
            first_devices: RwLock::default(),
        }
    }

    /// Returns the target of the folder at `path` on `device`. `path` is a string of names joined
    /// by slashes.
    #[must_use]
    pub fn of(&self, path: &[u8], device: u64) -> TargetId {
        if let Some(at) = self.map.index_of(path) {
            let id = self.mapped[at];
            self.meet(id, device);
            return id;
        }
        {
            let devices = self.devices.read_unpoisoned();
            if let Some(id) = devices.get(&device) {
                return *id;
            }
        }
        let id = self.named(&device_name(device));
        self.meet(id, device);
        let mut devices = self.devices.write_unpoisoned();
        *devices.entry(device).or_insert(id)
    }

    fn meet(&self, id: TargetId, device: u64) {
        let known = self.first_devices.read_unpoisoned();
        if known.contains_key(&id) {
            return;
        }
        drop(known);
        let mut devices = self.first_devices.write_unpoisoned();
        devices.entry(id).or_insert(device);
    }

    /// Returns the number of the target named `name`. An unknown name gets a new number.
    #[must_use]
    pub fn named(&self, name: &str) -> TargetId {
        let mut names = self.names.write_unpoisoned();
        number(&mut names, name)
    }

    /// Returns the number of the target named `name`. An unknown name gets a new number if the
    /// store has fewer than `names_max` targets. Otherwise returns `None`.
    #[must_use]
    pub fn part(&self, name: &str, names_max: usize) -> Option<TargetId> {
        {
            let numbers = self.parts.read_unpoisoned();
            if let Some(id) = numbers.get(name) {
                return Some(*id);
            }
        }
        let mut names = self.names.write_unpoisoned();
        if names.len() >= names_max && !names.iter().any(|known| known == name) {
            return None;
        }
        let id = number(&mut names, name);
        drop(names);
        self.parts.write_unpoisoned().insert(name.to_owned(), id);
        Some(id)
    }

    /// Gives the target of a device a name, if the device has no target yet.
    pub fn name_device(&self, device: u64, name: &str) {
        let id = self.named(name);
        self.meet(id, device);
        self.devices.write_unpoisoned().entry(device).or_insert(id);
    }

    /// Returns true if a folder is configured to belong to this target.
    #[must_use]
    pub fn is_configured(&self, target: TargetId) -> bool {
        self.mapped.contains(&target)
    }

    /// Returns all targets seen so far.
    #[must_use]
    pub fn all(&self) -> Vec<Target> {
        let names = self.names.read_unpoisoned();
        let devices = self.first_devices.read();
        let devices = devices.unwrap_or_else(PoisonError::into_inner);
        (0u32..)
            .zip(names.iter())
            .map(|(id, name)| Target {
                id: TargetId(id),
                name: name.clone(),
                device: devices.get(&TargetId(id)).copied(),
            })
            .collect()
    }
}

fn number(names: &mut Vec<String>, name: &str) -> TargetId {
    let at = names
        .iter()
        .position(|known| known == name)
        .unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
    TargetId(u32::try_from(at).unwrap_or(u32::MAX))
}

fn device_name(device: u64) -> String {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    format!("device {major}:{minor}")
}

#[cfg(test)]
mod tests {
    use super::{TargetMap, Targets};
    use dray_core::RelPath;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("good")
    }

    #[test]
    fn longest_folder_wins_and_the_device_is_the_default() {
        let map = TargetMap::new([
            (path("data"), "slow".to_owned()),
            (path("data/hot"), "fast".to_owned()),
            (path("more"), "slow".to_owned()),
        ]);
        assert_eq!(map.name_of(&path("data/x")), Some("slow"));
        assert_eq!(map.name_of(&path("data/hot")), Some("fast"));
        assert_eq!(map.name_of(&path("data/hotter")), Some("slow"));
        assert_eq!(map.name_of(&path("other")), None);

        let targets = Targets::new(map);
        assert_eq!(targets.of(b"more/y", 1), targets.of(b"data", 2));
        let (one, two) = (targets.of(b"", 1), targets.of(b"", 2));
        assert_ne!(one, two);
        assert_eq!(targets.of(b"other", 1), one);
        let names: Vec<_> = targets.all().into_iter().map(|t| t.name).collect();
        assert_eq!(names, ["fast", "slow", "device 0:1", "device 0:2"]);
        assert_eq!(targets.named("fast"), targets.of(b"data/hot/z", 9));
    }
}
