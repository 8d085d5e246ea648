//! Binds threads to memory nodes (NUMA): near the device that they read or write, or near the
//! network card that receives their stream. Distances come from the kernel's `/sys`
//! (`Documentation/ABI/stable/sysfs-devices-node`). A zone consists of all processors of a node
//! that this process may use; the kernel chooses the core for a thread.
//!
//! Active only with `DRAY_ZONES=1` in the environment: it was never tested on such a host, and if a
//! single measurement binds all threads of a busy process to one node, the others idle.
//!
//! If this process may use too few of a node's processors, the nearest other node's are used, by
//! the distances in the firmware. Threads stay unbound if there is one node, if the node is
//! unknown, or if its processors are busy already.

mod load;

use crate::lock::lock;
use load::Load;
use rustix::thread::CpuSet;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

/// Minimum number of a node's processors: fewer delay a transfer more than distance does. Guess,
/// revisit.
const CPUS_MIN: usize = 4;

/// Maximum average load of processors to which threads are bound. Guess, revisit.
const BUSY_MAX: f64 = 0.85;

/// Maximum depth of devices on devices: more is a loop.
const LAYERS_MAX: u32 = 8;

/// The nodes of a host.
#[derive(Debug, Default)]
struct NumaNodes {
    sys: PathBuf,
    /// Usable processors by node.
    nodes: BTreeMap<u32, Vec<usize>>,
    /// Distance of a node's memory from another's processors, as in the firmware (ACPI SLIT: 10 is
    /// its own).
    distances: BTreeMap<(u32, u32), u32>,
}

impl NumaNodes {
    /// Returns the nodes of this host, with the processors of this process at the first call.
    fn of_host() -> &'static Self {
        static HOST: OnceLock<NumaNodes> = OnceLock::new();
        HOST.get_or_init(|| {
            if std::env::var_os("DRAY_ZONES").is_none_or(|value| value != "1") {
                return Self::default();
            }
            // Fails on hosts with more processors than a set holds: no thread is bound there.
            let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
            Self::read(Path::new("/sys"), |cpu| allowed.is_set(cpu))
        })
    }

    /// Reads the nodes from `sys`, with the processors that may be used.
    fn read(sys: &Path, may_use: impl Fn(usize) -> bool) -> Self {
        let mut nodes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut rows: Vec<(u32, String)> = Vec::new();
        let folder = fs::read_dir(sys.join("devices/system/node"));
        for entry in folder.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("node"));
            let Some(node) = number.and_then(|number| number.parse().ok()) else {
                continue;
            };
            let list = fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
            let cpus = cpus(&list).filter(|cpu| *cpu < CpuSet::MAX_CPU && may_use(*cpu));
            nodes.insert(node, cpus.collect());
            let told = fs::read_to_string(entry.path().join("distance")).unwrap_or_default();
            rows.push((node, told));
        }
        let distances = rows.iter().flat_map(|(node, told)| {
            // The distances are in the order of the existing nodes.
            let told = told
                .split_ascii_whitespace()
                .map_while(|one| one.parse().ok());
            let others = nodes.keys().zip(told);
            others.map(|(other, distance)| ((*node, *other), distance))
        });
        let distances = distances.collect();
        Self {
            distances,
            // Links in it lead to its canonical path.
            sys: sys.canonicalize().unwrap_or_else(|_| sys.to_owned()),
            nodes,
        }
    }

    /// Returns the processors near a device (`st_dev`).
    fn near_device(&self, device: u64) -> Option<&[usize]> {
        if self.nodes.len() < 2 {
            return None;
        }
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let place = self.sys.join(format!("dev/block/{major}:{minor}"));
        self.zone(self.node_of(&place, LAYERS_MAX)?)
    }

    /// Returns the processors near the one that receives a connection's packets.
    fn near_connection(&self, socket: impl AsFd) -> Option<&[usize]> {
        if self.nodes.len() < 2 {
            return None;
        }
        let cpu = rustix::net::sockopt::socket_incoming_cpu(socket).ok()?;
        self.near_cpu(usize::try_from(cpu).ok()?)
    }

    fn near_cpu(&self, cpu: usize) -> Option<&[usize]> {
        self.zone(self.node_of_cpu(cpu)?)
    }

    fn zone(&self, node: u32) -> Option<&[usize]> {
        let is_enough = |cpus: &&Vec<usize>| cpus.len() >= CPUS_MIN;
        let own = self.nodes.get(&node)?;
        if is_enough(&own) {
            return Some(own);
        }
        let far = |other: u32| self.distances.get(&(node, other)).copied();
        let others = self.nodes.iter().filter(|(other, _)| **other != node);
        let told: Vec<(u32, &Vec<usize>)> = others
            .filter_map(|(other, cpus)| Some((far(*other)?, cpus)))
            .collect();
        let farthest = told.iter().map(|(distance, _)| *distance).max()?;
        let can = told.iter().filter(|(_, cpus)| is_enough(cpus));
        let (distance, nearest) = can.min_by_key(|(distance, _)| *distance)?;
        // All distances are equal: the kernel knows better which processors are free.
        (*distance < farthest).then_some(nearest)
    }

    /// Returns the node of the processor that runs the calling thread; `None` if there is only one.
    fn here(&self) -> Option<u32> {
        if self.nodes.len() < 2 {
            return None;
        }
        self.node_of_cpu(rustix::thread::sched_getcpu())
    }

    fn node_of_cpu(&self, cpu: usize) -> Option<u32> {
        let mut nodes = self.nodes.iter();
        nodes.find_map(|(node, cpus)| cpus.contains(&cpu).then_some(*node))
    }

    /// Returns the node of a block device: its own, or that of its parent device. For a device on
    /// other devices, the node of those, if they all have the same.
    fn node_of(&self, device: &Path, layers: u32) -> Option<u32> {
        let device = device.canonicalize().ok()?;
        let below = fs::read_dir(device.join("slaves")).ok();
        let below: Vec<PathBuf> = below
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        if !below.is_empty() {
            let layers = layers.checked_sub(1)?;
            let mut nodes = below.iter().map(|device| self.node_of(device, layers));
            let first = nodes.next()??;
            return nodes.all(|node| node == Some(first)).then_some(first);
        }
        let within = |path: &&Path| path.starts_with(&self.sys);
        let told = device
            .ancestors()
            .take_while(within)
            .find_map(|path| fs::read_to_string(path.join("numa_node")).ok())?;
        // -1: unknown to the firmware.
        told.trim().parse().ok()
    }
}

/// Binds the calling thread near a device from now on.
pub(crate) fn stay_near_device(device: Option<u64>) {
    if let Some(cpus) = device.and_then(|device| NumaNodes::of_host().near_device(device)) {
        stay(cpus);
    }
}

/// Binds the calling thread near the receiver of a connection, which must have received data
/// already.
pub(crate) fn stay_near_connection(socket: impl AsFd) {
    if let Some(cpus) = NumaNodes::of_host().near_connection(socket) {
        stay(cpus);
    }
}

/// Returns the memory node of the calling thread at this moment; `None` if it makes no difference.
pub(crate) fn node_here() -> Option<u32> {
    NumaNodes::of_host().here()
}

/// Returns true if these processors are known to be busy.
fn are_busy(cpus: &[usize]) -> bool {
    static LOAD: OnceLock<Mutex<Load>> = OnceLock::new();
    let mut load = lock(LOAD.get_or_init(Mutex::default));
    if let Ok(stat) = fs::read_to_string("/proc/stat") {
        load.look(&stat, Instant::now());
    }
    load.of(cpus).is_some_and(|busy| busy > BUSY_MAX)
}

/// Binds the calling thread to these processors from now on, unless they are busy. If the system
/// refuses, the thread stays unbound.
fn stay(cpus: &[usize]) {
    if are_busy(cpus) {
        return;
    }
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Parses a list of the kernel's: `0-3,8,10-11`.
fn cpus(list: &str) -> impl Iterator<Item = usize> {
    list.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => first..last.min(CpuSet::MAX_CPU).saturating_add(1),
            _ => 0..0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{NumaNodes, cpus, stay};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use tempfile::TempDir;

    fn write(sys: &Path, path: &str, text: &str) {
        let path = sys.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// Makes a block device with this number.
    fn number(sys: &Path, number: &str, device: &str) {
        let at = sys.join("dev/block");
        fs::create_dir_all(&at).expect("made");
        fs::create_dir_all(sys.join("devices").join(device)).expect("made");
        symlink(format!("../../devices/{device}"), at.join(number)).expect("linked");
    }

    /// A host of two sockets with 64 processors each, in the kernel's format: an NVMe drive at the
    /// second socket, a disk with a partition at the first, a card without a node, and logical
    /// volumes over them.
    fn two_sockets() -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let sys = folder.path();
        write(sys, "devices/system/node/node0/cpulist", "0-31,64-95\n");
        write(sys, "devices/system/node/node1/cpulist", "32-63,96-127\n");
        write(sys, "devices/system/node/node0/distance", "10 21\n");
        write(sys, "devices/system/node/node1/distance", "21 10\n");
        write(sys, "devices/system/node/possible", "0-1\n");
        write(sys, "devices/pci0000:80/0000:81:00.0/numa_node", "1\n");
        write(sys, "devices/pci0000:00/0000:00:17.0/numa_node", "0\n");
        write(sys, "devices/pci0000:40/0000:41:00.0/numa_node", "-1\n");
        let (nvme, disk) = (
            "pci0000:80/0000:81:00.0/nvme/nvme0/nvme0n1",
            "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda2",
        );
        number(sys, "259:0", nvme);
        number(sys, "8:2", disk);
        number(sys, "8:16", "pci0000:40/0000:41:00.0/host1/block/sdb");
        number(sys, "7:0", "virtual/block/loop0");
        for (at, name, slaves) in [
            ("253:0", "dm-0", &[nvme, nvme][..]),
            ("253:1", "dm-1", &[nvme, disk]),
            ("253:2", "dm-2", &["virtual/block/dm-0"]),
            ("253:3", "dm-3", &["virtual/block/dm-3"]),
        ] {
            let own = format!("virtual/block/{name}");
            number(sys, at, &own);
            let below = sys.join("devices").join(own).join("slaves");
            fs::create_dir_all(&below).expect("made");
            for (index, slave) in slaves.iter().enumerate() {
                let target = sys.join("devices").join(slave);
                symlink(target, below.join(index.to_string())).expect("linked");
            }
        }
        folder
    }

    fn first_near(nodes: &NumaNodes, major: u32, minor: u32) -> Option<usize> {
        let cpus = nodes.near_device(rustix::fs::makedev(major, minor))?;
        assert_eq!(cpus.len(), 64);
        cpus.first().copied()
    }

    #[test]
    fn threads_stand_near_their_device() {
        let folder = two_sockets();
        let nodes = NumaNodes::read(folder.path(), |_| true);
        assert_eq!(first_near(&nodes, 259, 0), Some(32), "an NVMe drive");
        assert_eq!(first_near(&nodes, 8, 2), Some(0), "a partition");
        assert_eq!(first_near(&nodes, 253, 0), Some(32), "a volume on one node");
        assert_eq!(first_near(&nodes, 253, 2), Some(32), "a volume on it");
        assert_eq!(first_near(&nodes, 253, 1), None, "a volume on both");
        assert_eq!(first_near(&nodes, 253, 3), None, "a volume on itself");
        assert_eq!(first_near(&nodes, 8, 16), None, "a card that does not say");
        assert_eq!(first_near(&nodes, 7, 0), None, "no hardware");
        assert_eq!(
            first_near(&nodes, 0, 45),
            None,
            "a file system of a network"
        );
        assert_eq!(nodes.near_cpu(100).map(<[usize]>::len), Some(64));
        assert_eq!(nodes.near_cpu(100), nodes.near_cpu(33));
        assert_eq!(nodes.near_cpu(500), None);
    }

    #[test]
    fn only_processors_that_may_be_used_count() {
        let folder = two_sockets();
        let nodes = NumaNodes::read(folder.path(), |cpu| cpu < 36);
        assert_eq!(nodes.near_cpu(33), Some(&[32, 33, 34, 35][..]));
        let nodes = NumaNodes::read(folder.path(), |cpu| cpu < 35);
        assert_eq!(nodes.near_cpu(33), None, "three are too few");
        assert_eq!(nodes.near_cpu(3).map(<[usize]>::len), Some(32));
    }

    /// A host of two processors of two nodes each: a node in the same package is nearer.
    #[test]
    fn next_nearest_node_stands_in_for_one_without_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let sys = folder.path();
        let rows = ["10 12 32 32", "12 10 32 32", "32 32 10 12", "32 32 12 10"];
        for (node, row) in rows.into_iter().enumerate() {
            let (first, last) = (node * 16, node * 16 + 15);
            let at = format!("devices/system/node/node{node}");
            write(sys, &format!("{at}/cpulist"), &format!("{first}-{last}\n"));
            write(sys, &format!("{at}/distance"), &format!("{row}\n"));
        }
        let near = |nodes: &NumaNodes, node| nodes.zone(node).map(|cpus| cpus[0]);
        let nodes = NumaNodes::read(sys, |_| true);
        assert_eq!(near(&nodes, 2), Some(32), "its own");
        let nodes = NumaNodes::read(sys, |cpu| !(32..48).contains(&cpu));
        assert_eq!(near(&nodes, 2), Some(48), "of the same package");
        let nodes = NumaNodes::read(sys, |cpu| cpu < 32);
        assert_eq!(near(&nodes, 2), None, "both others are as far");
        assert_eq!(nodes.node_of_cpu(20), Some(1));
        assert_eq!(nodes.node_of_cpu(40), None);
        write(sys, "devices/system/node/node2/distance", "x\n");
        let nodes = NumaNodes::read(sys, |cpu| !(32..48).contains(&cpu));
        assert_eq!(near(&nodes, 2), None, "nobody tells how far");
    }

    #[test]
    fn on_one_node_nobody_is_told_where_to_stand() {
        let folder = two_sockets();
        let sys = folder.path();
        fs::remove_dir_all(sys.join("devices/system/node/node1")).expect("removed");
        let nodes = NumaNodes::read(sys, |_| true);
        assert_eq!(first_near(&nodes, 8, 2), None);
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert_eq!(nodes.near_connection(&one), None);
        let nothing = NumaNodes::read(&sys.join("none"), |_| true);
        assert_eq!(first_near(&nothing, 8, 2), None);
    }

    #[test]
    fn a_thread_stays_where_it_is_told_to() {
        let allowed = rustix::thread::sched_getaffinity(None).expect("known");
        let one = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
        let one = one.expect("this thread runs somewhere");
        let kept = std::thread::spawn(move || {
            stay(&[one]);
            rustix::thread::sched_getaffinity(None).expect("known")
        });
        let kept = kept.join().expect("ended");
        assert!(kept.is_set(one) && kept.count() == 1);
        assert_eq!(
            rustix::thread::sched_getaffinity(None).expect("known"),
            allowed
        );
    }

    #[test]
    fn lists_of_processors_are_read_as_the_kernel_writes_them() {
        let read = |list: &str| cpus(list).collect::<Vec<_>>();
        assert_eq!(read("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert!(read("\n").is_empty(), "a node of memory alone");
        assert_eq!(read("x,5-,7"), [7]);
        assert!(read("0-99999999999").len() <= 1025);
    }
}
