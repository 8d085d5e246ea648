//! Where threads stand on hosts with several memory nodes (NUMA): near the device that they read or
//! write, near the card that their stream comes in by. What is near is read from the kernel's `/sys`
//! (`Documentation/ABI/stable/sysfs-devices-node`). A zone is the processors of a node that this
//! process may use, all of them: which core of it runs a thread the kernel knows best.
//!
//! Only with `DRAY_ZONES=1` in the environment: it was never tried on such a host, and where one look
//! tells all threads of a busy process to stand on one node, the others idle.
//!
//! Where there is one node, or nobody knows the node, or too few of its processors may be used, no
//! thread is told where to stand.

use rustix::thread::CpuSet;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Fewer processors of a node than this hold a transfer up more than distance does. Guess, revisit.
const CPUS_MIN: usize = 4;

/// Devices beneath a device beneath a device: more is a circle.
const LAYERS_MAX: u32 = 8;

/// The nodes of a host.
#[derive(Debug, Default)]
struct Zones {
    sys: PathBuf,
    /// Processors that may be used, by node.
    nodes: BTreeMap<u32, Vec<usize>>,
}

impl Zones {
    /// Those of this host, as they and this process's processors were when first asked.
    fn of_host() -> &'static Self {
        static HOST: OnceLock<Zones> = OnceLock::new();
        HOST.get_or_init(|| {
            if std::env::var_os("DRAY_ZONES").is_none_or(|value| value != "1") {
                return Self::default();
            }
            // Fails on hosts with more processors than a set holds: nothing is near anything there.
            let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
            Self::read(Path::new("/sys"), |cpu| allowed.is_set(cpu))
        })
    }

    /// Reads the nodes from `sys`; of their processors only those that may be used.
    fn read(sys: &Path, may_use: impl Fn(usize) -> bool) -> Self {
        let mut nodes = BTreeMap::new();
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
        }
        Self {
            // Links in it lead to its own true place.
            sys: sys.canonicalize().unwrap_or_else(|_| sys.to_owned()),
            nodes,
        }
    }

    /// The processors near a device (`st_dev`).
    fn near_device(&self, device: u64) -> Option<&[usize]> {
        if self.nodes.len() < 2 {
            return None;
        }
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let place = self.sys.join(format!("dev/block/{major}:{minor}"));
        self.zone(self.node_of(&place, LAYERS_MAX)?)
    }

    /// The processors near where the kernel takes in what comes by a connection.
    fn near_connection(&self, socket: impl AsFd) -> Option<&[usize]> {
        if self.nodes.len() < 2 {
            return None;
        }
        let cpu = rustix::net::sockopt::socket_incoming_cpu(socket).ok()?;
        self.near_cpu(usize::try_from(cpu).ok()?)
    }

    fn near_cpu(&self, cpu: usize) -> Option<&[usize]> {
        let mut nodes = self.nodes.iter();
        let (node, _) = nodes.find(|(_, cpus)| cpus.contains(&cpu))?;
        self.zone(*node)
    }

    fn zone(&self, node: u32) -> Option<&[usize]> {
        let cpus = self.nodes.get(&node)?;
        (cpus.len() >= CPUS_MIN).then_some(cpus)
    }

    /// The node of a block device: its own or that of what it is plugged into; of one that lies on
    /// others, theirs, if they are all of one node.
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
        // -1: the firmware does not say.
        told.trim().parse().ok()
    }
}

/// Keeps the calling thread near a device from now on.
pub(crate) fn stay_near_device(device: Option<u64>) {
    if let Some(cpus) = device.and_then(|device| Zones::of_host().near_device(device)) {
        stay(cpus);
    }
}

/// Keeps the calling thread near where a connection comes in; something must have come already.
pub(crate) fn stay_near_connection(socket: impl AsFd) {
    if let Some(cpus) = Zones::of_host().near_connection(socket) {
        stay(cpus);
    }
}

/// Keeps the calling thread on these processors from now on. Where that is not allowed it stays free.
fn stay(cpus: &[usize]) {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// The numbers in a list of the kernel's: `0-3,8,10-11`.
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
    use super::{Zones, cpus, stay};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use tempfile::TempDir;

    fn write(sys: &Path, path: &str, text: &str) {
        let path = sys.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// Makes a block device known by its number.
    fn number(sys: &Path, number: &str, device: &str) {
        let at = sys.join("dev/block");
        fs::create_dir_all(&at).expect("made");
        fs::create_dir_all(sys.join("devices").join(device)).expect("made");
        symlink(format!("../../devices/{device}"), at.join(number)).expect("linked");
    }

    /// A host of two sockets with 64 processors each, as the kernel tells of such: an NVMe drive at
    /// the second socket, a disk with a partition at the first, a card that does not say, and logical
    /// volumes over them.
    fn two_sockets() -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let sys = folder.path();
        write(sys, "devices/system/node/node0/cpulist", "0-31,64-95\n");
        write(sys, "devices/system/node/node1/cpulist", "32-63,96-127\n");
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

    fn first_near(zones: &Zones, major: u32, minor: u32) -> Option<usize> {
        let cpus = zones.near_device(rustix::fs::makedev(major, minor))?;
        assert_eq!(cpus.len(), 64);
        cpus.first().copied()
    }

    #[test]
    fn threads_stand_near_their_device() {
        let folder = two_sockets();
        let zones = Zones::read(folder.path(), |_| true);
        assert_eq!(first_near(&zones, 259, 0), Some(32), "an NVMe drive");
        assert_eq!(first_near(&zones, 8, 2), Some(0), "a partition");
        assert_eq!(first_near(&zones, 253, 0), Some(32), "a volume on one node");
        assert_eq!(first_near(&zones, 253, 2), Some(32), "a volume on it");
        assert_eq!(first_near(&zones, 253, 1), None, "a volume on both");
        assert_eq!(first_near(&zones, 253, 3), None, "a volume on itself");
        assert_eq!(first_near(&zones, 8, 16), None, "a card that does not say");
        assert_eq!(first_near(&zones, 7, 0), None, "no hardware");
        assert_eq!(
            first_near(&zones, 0, 45),
            None,
            "a file system of a network"
        );
        assert_eq!(zones.near_cpu(100).map(<[usize]>::len), Some(64));
        assert_eq!(zones.near_cpu(100), zones.near_cpu(33));
        assert_eq!(zones.near_cpu(500), None);
    }

    #[test]
    fn only_processors_that_may_be_used_count() {
        let folder = two_sockets();
        let zones = Zones::read(folder.path(), |cpu| cpu < 36);
        assert_eq!(zones.near_cpu(33), Some(&[32, 33, 34, 35][..]));
        let zones = Zones::read(folder.path(), |cpu| cpu < 35);
        assert_eq!(zones.near_cpu(33), None, "three are too few");
        assert_eq!(zones.near_cpu(3).map(<[usize]>::len), Some(32));
    }

    #[test]
    fn on_one_node_nobody_is_told_where_to_stand() {
        let folder = two_sockets();
        let sys = folder.path();
        fs::remove_dir_all(sys.join("devices/system/node/node1")).expect("removed");
        let zones = Zones::read(sys, |_| true);
        assert_eq!(first_near(&zones, 8, 2), None);
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert_eq!(zones.near_connection(&one), None);
        let nothing = Zones::read(&sys.join("none"), |_| true);
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
