//! Finds the storage targets of single files. Most file systems are one target. Lustre and
//! GlusterFS distribute files, or stripes of files, over several targets.
//!
//! A look-up costs a call to a server for each file (0.5 ms on GlusterFS), so the store looks up
//! targets only on these two file systems, and only for files of at least [`FILE_BYTES_MIN`].

use super::attributes::Attribute;
use super::mounts::{self, Mount};
use super::{device_of, size_of};
use crate::gluster;
use crate::lustre::{LAYOUT_ATTRIBUTE, LAYOUT_BYTES_MAX, LustreLayout, Place, Stripes};
use crate::targets::Targets;
use crate::types::PartialId;
use dray_core::attribute::STRIPES_NAME;
use dray_core::lock::{LockExt, RwLockExt};
use dray_core::{Extent, Layout, TargetId};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::Stat;
use rustix::io::{Errno, Result};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

/// Minimum size in bytes of a file whose targets are looked up. The look-up of a smaller file would
/// take about as long as its copy. The value is estimated, not measured.
const FILE_BYTES_MIN: u64 = 256 * 1024;

/// Maximum number of targets that a store finds by looking up files. Files on further targets
/// belong to the target of their folder. A Lustre client knows at most 8192 devices
/// (`MAX_OBD_DEVICES`).
const PARTS_MAX: usize = 8192;

/// Maximum number of files in the cache of a GlusterFS volume. If the cache is full, it is cleared.
const KNOWN_MAX: usize = 16 * 1024;

/// Maximum number of translators of a GlusterFS client that are inspected; the others are ignored.
/// A client of a volume with a thousand bricks has about as many translators.
const TRANSLATORS_MAX: usize = 16 * 1024;

/// `f_type` of Lustre (`LL_SUPER_MAGIC`).
const LUSTRE: u64 = 0x0BD0_0BD0;
/// `f_type` of FUSE (`FUSE_SUPER_MAGIC`).
const FUSE: u64 = 0x6573_5546;

/// Distribution of files by a file system.
#[derive(Debug)]
enum System {
    /// Each folder is on one target.
    Plain,
    /// Files are striped over OSTs. Contains the prefix of the names of the OSTs.
    Lustre(String),
    /// Each file is on a brick or on a group of bricks. Contains the targets of files, by inode.
    Gluster(Mutex<HashMap<u64, Option<TargetId>>>),
}

/// Looks up the targets of files, for all file systems of a store.
#[derive(Debug)]
pub(super) struct Layouts {
    targets: Arc<Targets>,
    /// Attribute that is read instead of `lustre.lov`, on each file system.
    lustre_attribute: Option<String>,
    systems: RwLock<HashMap<u64, Arc<System>>>,
}

impl Layouts {
    pub(super) fn new(targets: Arc<Targets>, lustre_attribute: Option<String>) -> Self {
        Self {
            targets,
            lustre_attribute,
            systems: RwLock::default(),
        }
    }

    /// Returns the target of a folder. `path` is its path below the root.
    pub(super) fn of_folder(&self, folder: BorrowedFd<'_>, path: &[u8], device: u64) -> TargetId {
        self.system(folder, device);
        self.targets.of(path, device)
    }

    /// Returns the layout of the file `name` in `folder`. `of_folder` is the target of the folder.
    pub(super) fn of_file(
        &self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        stat: &Stat,
        of_folder: TargetId,
    ) -> Layout {
        let file = (device_of(stat), stat.st_ino, size_of(stat));
        self.of(folder, file, of_folder, |attribute, buffer| {
            rustix::fs::lgetxattr(path_in(folder, name), attribute, buffer)
        })
    }

    /// Adds the stripes of the file `name` in `folder` to its attributes.
    pub(super) fn add_stripes(
        &self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        stat: &Stat,
        attributes: &mut Vec<Attribute>,
    ) {
        attributes.retain(|(name, _)| name != STRIPES_NAME);
        let stripes = self.stripes_of(folder, name, stat);
        attributes.extend(stripes.map(|stripes| (STRIPES_NAME.to_vec(), stripes)));
        attributes.sort();
    }

    /// Returns the stripes of the file `name` in `folder` as text. Returns `None` if the file system
    /// is not Lustre, or if the file is not striped.
    fn stripes_of(&self, folder: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> Option<Vec<u8>> {
        let attribute = self.lustre_attribute(folder, device_of(stat))?.to_owned();
        let read = |attribute: &str, buffer: &mut [u8]| {
            rustix::fs::lgetxattr(path_in(folder, name), attribute, buffer)
        };
        let value = value_of(&read, &attribute, LAYOUT_BYTES_MAX)?;
        let layout = LustreLayout::decode(&value).ok()?;
        Some(Stripes::of_layout(&layout)?.to_string().into_bytes())
    }

    /// Returns the layout of an open partial file that will have `size` bytes. `folder` returns the
    /// target of its folder. Returns `None` if the layout was known before the file was created.
    pub(super) fn of_partial(
        &self,
        fd: BorrowedFd<'_>,
        id: PartialId,
        size: u64,
        folder: impl FnOnce() -> Option<TargetId>,
    ) -> Option<Layout> {
        if matches!(*self.system(fd, id.device), System::Plain) {
            return None;
        }
        let file = (id.device, id.inode, size);
        let layout = self.of(fd, file, folder()?, |attribute, buffer| {
            rustix::fs::fgetxattr(fd, attribute, buffer)
        });
        Some(layout)
    }

    /// Returns the attribute that has the Lustre layouts on the file system of `folder`. Returns
    /// `None` if the file system is not Lustre.
    pub(super) fn lustre_attribute(&self, folder: BorrowedFd<'_>, device: u64) -> Option<&str> {
        match &*self.system(folder, device) {
            System::Lustre(_) => Some(self.attribute()),
            _ => None,
        }
    }

    fn attribute(&self) -> &str {
        self.lustre_attribute.as_deref().unwrap_or(LAYOUT_ATTRIBUTE)
    }

    fn of(
        &self,
        any: BorrowedFd<'_>,
        (device, inode, size): (u64, u64, u64),
        of_folder: TargetId,
        read: impl Fn(&str, &mut [u8]) -> Result<usize>,
    ) -> Layout {
        let single = Layout::Single(of_folder);
        if size < FILE_BYTES_MIN || self.targets.is_configured(of_folder) {
            return single;
        }
        match &*self.system(any, device) {
            System::Plain => single,
            System::Lustre(prefix) => {
                let value = value_of(&read, self.attribute(), LAYOUT_BYTES_MAX);
                let layout = value.and_then(|value| LustreLayout::decode(&value).ok());
                layout.map_or(single, |layout| {
                    self.of_lustre(&layout, prefix, size, of_folder)
                })
            }
            System::Gluster(known) => {
                if let Some(target) = known.lock_unpoisoned().get(&inode) {
                    return Layout::Single(target.unwrap_or(of_folder));
                }
                let attribute = gluster::PLACE_ATTRIBUTE;
                let value = value_of(&read, attribute, gluster::PLACE_BYTES_MAX);
                let part = value.and_then(|value| gluster::part_of(&value));
                let target = part.and_then(|name| self.targets.part(&name, PARTS_MAX));
                let mut known = known.lock_unpoisoned();
                if known.len() >= KNOWN_MAX {
                    known.clear();
                }
                known.insert(inode, target);
                Layout::Single(target.unwrap_or(of_folder))
            }
        }
    }

    /// Converts a Lustre layout. Bytes that are not on an OST belong to the target of the folder.
    fn of_lustre(
        &self,
        layout: &LustreLayout,
        prefix: &str,
        size: u64,
        of_folder: TargetId,
    ) -> Layout {
        let elsewhere = |end| Extent {
            end,
            stripe_bytes: u64::MAX,
            targets: vec![of_folder],
        };
        let mut extents = Vec::new();
        let mut at = 0;
        for component in layout.components.iter().filter(|part| part.start < size) {
            if at < component.start {
                extents.push(elsewhere(component.start));
            }
            at = component.end;
            let target = |index: &u32| {
                let name = format!("{prefix}OST{index:04x}");
                self.targets.part(&name, PARTS_MAX).unwrap_or(of_folder)
            };
            extents.push(match &component.place {
                Place::Osts(osts) => Extent {
                    end: component.end,
                    stripe_bytes: component.stripe_bytes,
                    targets: osts.iter().map(target).collect(),
                },
                Place::Metadata | Place::Unwritten | Place::Elsewhere => elsewhere(component.end),
            });
        }
        if at < size {
            extents.push(elsewhere(u64::MAX));
        }
        Layout::of_extents(extents)
    }

    /// Returns the file system with the device number `device`. `any` is a file or folder there.
    fn system(&self, any: BorrowedFd<'_>, device: u64) -> Arc<System> {
        {
            let systems = self.systems.read_unpoisoned();
            if let Some(known) = systems.get(&device) {
                return Arc::clone(known);
            }
        }
        let found = Arc::new(self.recognise(any, device));
        let mut systems = self.systems.write_unpoisoned();
        Arc::clone(systems.entry(device).or_insert(found))
    }

    fn recognise(&self, any: BorrowedFd<'_>, device: u64) -> System {
        if self.lustre_attribute.is_some() {
            return System::Lustre(String::new());
        }
        match rustix::fs::fstatfs(any).map(|found| found.f_type as u64) {
            Ok(LUSTRE) => {
                let mount = mounts::of_device(device);
                let name = mount.as_ref().and_then(|mount| lustre_name(&mount.source));
                System::Lustre(name.map_or_else(String::new, |name| format!("{name}-")))
            }
            Ok(FUSE) => match mounts::of_device(device) {
                Some(mount) if mount.kind == "fuse.glusterfs" => {
                    self.targets.name_device(device, &mount.source);
                    match has_whole_files(&mount) {
                        true => System::Gluster(Mutex::default()),
                        false => System::Plain,
                    }
                }
                _ => System::Plain,
            },
            _ => System::Plain,
        }
    }
}

/// Returns the name of a Lustre file system from the source of its mount, for example `scratch` of
/// `10.0.0.1@tcp:/scratch/users`.
fn lustre_name(source: &str) -> Option<&str> {
    let (_, path) = source.split_once(":/")?;
    let name = path.split('/').next()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (!name.is_empty() && name.bytes().all(is_plain)).then_some(name)
}

/// Returns true if each file of a GlusterFS volume is whole on one part of the volume. In a sharded
/// or striped volume, only the first block of a file has a place that a client can see. Returns
/// false if the mount does not show its translators.
fn has_whole_files(mount: &Mount) -> bool {
    let graph = |top: &Path| std::fs::read_dir(top.join(".meta/graphs/active"));
    let Some(Ok(translators)) = mount.top.as_deref().map(graph) else {
        return false;
    };
    let mut kinds = translators
        .take(TRANSLATORS_MAX)
        .flatten()
        .filter_map(|translator| std::fs::read_to_string(translator.path().join("type")).ok());
    let mut is_distributed = false;
    let is_split = kinds.any(|kind| {
        is_distributed |= kind.trim() == "protocol/client";
        matches!(kind.trim(), "features/shard" | "cluster/stripe")
    });
    is_distributed && !is_split
}

/// Returns a path of the file `name` in an open folder. Calls with this path must not follow a link
/// at its end.
fn path_in(folder: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", folder.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

/// Reads an attribute of at most `bytes_max` bytes. Returns `None` if it does not exist or cannot
/// be read.
fn value_of(
    read: &impl Fn(&str, &mut [u8]) -> Result<usize>,
    attribute: &str,
    bytes_max: usize,
) -> Option<Vec<u8>> {
    let mut value = vec![0; 1024];
    let length = match read(attribute, &mut value) {
        Err(Errno::RANGE) => {
            value.resize(bytes_max, 0);
            read(attribute, &mut value)
        }
        other => other,
    };
    value.truncate(length.ok()?);
    Some(value)
}

#[cfg(test)]
mod tests;
