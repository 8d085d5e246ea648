//! Binds threads to memory nodes (NUMA): near the device that they read or write, or near the
//! network card that receives their stream. The kernel's `/sys` gives the distances
//! (`Documentation/ABI/stable/sysfs-devices-node`). A zone consists of all processors of a node
//! that this process may use. The kernel chooses the processor within the zone.
//!
//! Binding is off by default and is enabled by `DRAY_ZONES=1` in the environment, because it was
//! never tested on a host with several nodes. A wrong load measurement could bind all threads of a
//! busy process to one node and leave the other nodes idle.
//!
//! If this process may use fewer than `CPUS_MIN` processors of a node, threads use the nearest
//! other node, by the distances in the firmware. Threads stay unbound if the host has one node, if
//! the node of the device is unknown, or if the node's processors are busy already.

mod load;

use dray_core::lock::LockExt;
use load::Load;
use rustix::thread::CpuSet;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

/// Minimum number of usable processors in a zone. With fewer processors, a transfer that is bound
/// to the zone loses more time than it gains from near memory. The value is an estimate.
const CPUS_MIN: usize = 4;

/// Maximum average load, 0 to 1, of processors to which threads are bound. The value is an
/// estimate.
const BUSY_MAX: f64 = 0.85;

/// Maximum depth of block devices stacked on other block devices. A deeper stack is taken for a
/// loop.
const LAYERS_MAX: u32 = 8;

#[derive(Debug, Default)]
struct NumaNodes {
    sys: PathBuf,
    /// Processors that this process may use, by node.
    nodes: BTreeMap<u32, Vec<usize>>,
    /// Distance from the processors of the first node to the memory of the second node, as in the
    /// firmware (ACPI SLIT: 10 is the node's own memory).
    distances: BTreeMap<(u32, u32), u32>,
}

impl NumaNodes {
    /// Returns the nodes of this host. The first call determines the processors that this process
    /// may use. Later changes have no effect.
    fn of_host() -> &'static Self {
        static HOST: OnceLock<NumaNodes> = OnceLock::new();
        HOST.get_or_init(|| {
            if std::env::var_os("DRAY_ZONES").is_none_or(|value| value != "1") {
                return Self::default();
            }
            // The call fails on hosts with more processors than a `CpuSet` holds. No thread is
            // bound on such hosts.
            let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
            Self::read(Path::new("/sys"), |cpu| allowed.is_set(cpu))
        })
    }

    /// Reads the nodes from `sys`, with the processors for which `may_use` returns true.
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
            // The kernel lists one distance for each existing node, in the order of the node
            // numbers.
            let told = told
                .split_ascii_whitespace()
                .map_while(|one| one.parse().ok());
            let others = nodes.keys().zip(told);
            others.map(|(other, distance)| ((*node, *other), distance))
        });
        let distances = distances.collect();
        Self {
            distances,
            // Links below `sys` resolve to canonical paths, so `sys` must be canonical for
            // comparisons.
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

    /// Returns the processors near the processor that receives a connection's packets.
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
        // If all distances are equal, binding gains nothing, and the kernel places threads better.
        (*distance < farthest).then_some(nearest)
    }

    /// Returns the node of the processor that runs the calling thread. Returns `None` on a host
    /// with one node.
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

    /// Returns the node of a block device, from the device itself or from its parent device. If the
    /// device is built on other devices, returns the node that all these devices share, or `None`
    /// if their nodes differ.
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
        // -1, which the firmware uses for an unknown node, does not parse as `u32`.
        told.trim().parse().ok()
    }
}

/// Binds the calling thread, until its end, near a block device (`st_dev`).
pub fn stay_near_device(device: Option<u64>) {
    if let Some(cpus) = device.and_then(|device| NumaNodes::of_host().near_device(device)) {
        stay(cpus);
    }
}

/// Binds the calling thread, until its end, near the processor that receives the packets of a
/// connection. The connection must have received data already.
pub fn stay_near_connection(socket: impl AsFd) {
    if let Some(cpus) = NumaNodes::of_host().near_connection(socket) {
        stay(cpus);
    }
}

/// Returns the NUMA node whose processor runs the calling thread at this moment. Returns `None` on
/// a host with one node, or if binding is not enabled.
pub fn node_here() -> Option<u32> {
    NumaNodes::of_host().here()
}

/// Returns true if the average load of these processors is known and too high for more threads.
fn are_busy(cpus: &[usize]) -> bool {
    static LOAD: OnceLock<Mutex<Load>> = OnceLock::new();
    let mut load = LOAD.get_or_init(Mutex::default).lock_unpoisoned();
    if let Ok(stat) = fs::read_to_string("/proc/stat") {
        load.look(&stat, Instant::now());
    }
    load.of(cpus).is_some_and(|busy| busy > BUSY_MAX)
}

/// Binds the calling thread to these processors until the thread ends, unless they are busy. If the
/// system refuses, the thread stays unbound.
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

/// Parses a processor list of the kernel, such as `0-3,8,10-11`.
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
mod tests;
