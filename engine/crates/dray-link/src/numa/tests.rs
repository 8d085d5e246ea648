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

/// Creates a block device with this device number.
fn number(sys: &Path, number: &str, device: &str) {
    let at = sys.join("dev/block");
    fs::create_dir_all(&at).expect("made");
    fs::create_dir_all(sys.join("devices").join(device)).expect("made");
    symlink(format!("../../devices/{device}"), at.join(number)).expect("linked");
}

/// Creates the kernel's files about a host with two sockets of 64 processors each. The host has an
/// NVMe drive at the second socket, a disk with a partition at the first socket, a network card
/// without a node, and logical volumes on these devices.
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

/// A host with two processor packages of two nodes each. Two nodes in the same package are closer
/// to each other than nodes of different packages.
#[test]
fn the_next_nearest_node_replaces_one_with_too_few_processors() {
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
fn on_one_node_no_thread_is_bound() {
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
fn a_bound_thread_stays_on_its_processors() {
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
