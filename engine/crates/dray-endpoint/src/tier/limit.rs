//! Limits the writes of applications to the fast roots, through the io controller of a cgroup (v2
//! `io.max`, v1 `blkio.throttle.write_bps_device`).

use dray_config::ManagedTier;
use dray_config::roots::Roots;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Largest change of the rate for which the limit is not written again, as a fraction of the rate
/// that was written last.
const CHANGE: f64 = 0.05;

/// Lowest limit in bytes per second. A lower limit would stop the applications.
const RATE_MIN: u64 = 65_536;

/// The limits of one tier.
#[derive(Debug)]
pub(super) struct WriteLimit {
    folder: PathBuf,
    /// Device numbers of the disks, or the reason for which writes cannot be limited.
    disks: Result<Vec<String>, String>,
    /// The rate that was written last.
    written: Option<f64>,
}

/// A file of the cgroup, and the forms of its lines.
#[derive(Debug, Clone, Copy)]
enum Interface {
    V2,
    V1,
}

impl Interface {
    fn of(folder: &Path) -> Result<Self, String> {
        let found = [Self::V2, Self::V1]
            .into_iter()
            .find(|one| folder.join(one.file()).exists());
        found.ok_or_else(|| {
            format!(
                "{} has neither io.max nor blkio.throttle.write_bps_device: enable the io controller \
                 for this cgroup",
                folder.display()
            )
        })
    }

    const fn file(self) -> &'static str {
        match self {
            Self::V2 => "io.max",
            Self::V1 => "blkio.throttle.write_bps_device",
        }
    }

    fn line(self, disk: &str, rate: Option<u64>) -> String {
        match (self, rate) {
            (Self::V2, Some(rate)) => format!("{disk} wbps={rate}\n"),
            (Self::V2, None) => format!("{disk} wbps=max\n"),
            (Self::V1, rate) => format!("{disk} {}\n", rate.unwrap_or(0)),
        }
    }
}

impl WriteLimit {
    /// Prepares the limits of a tier. Returns `None` if the tier limits no writes.
    pub(super) fn new(tier: &ManagedTier, roots: &Roots) -> Option<Self> {
        let folder = tier.limit_writes.clone()?;
        Some(Self {
            folder,
            disks: disks_of(tier, roots, Path::new("/sys/dev/block")),
            written: None,
        })
    }

    /// Limits the writes to all devices together to `rate` bytes per second. Each device gets an
    /// equal part.
    ///
    /// # Errors
    /// The reason for which writes are not limited.
    pub(super) fn set(&mut self, rate: f64) -> Result<(), String> {
        let is_same = |before: f64| (rate / before - 1.0).abs() <= CHANGE;
        if self.written.is_some_and(is_same) {
            return Ok(());
        }
        self.written = None;
        let disks = self.disks.as_ref().map_err(Clone::clone)?.len().max(1);
        let part = super::plan::whole(rate / disks as f64).max(RATE_MIN);
        self.write(Some(part))?;
        self.written = Some(rate);
        Ok(())
    }

    fn write(&self, rate: Option<u64>) -> Result<(), String> {
        let disks = self.disks.as_ref().map_err(Clone::clone)?;
        let interface = Interface::of(&self.folder)?;
        let path = self.folder.join(interface.file());
        for disk in disks {
            let line = interface.line(disk, rate);
            let file = OpenOptions::new().write(true).truncate(true).open(&path);
            let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
            written.map_err(|error| {
                format!(
                    "cannot limit the device {disk} in {}: {error}",
                    path.display()
                )
            })?;
        }
        Ok(())
    }
}

impl Drop for WriteLimit {
    /// Removes the limits, so that no application stays limited by an endpoint that has stopped.
    fn drop(&mut self) {
        if self.written.is_some()
            && let Err(error) = self.write(None)
        {
            tracing::warn!("{error}; the write limit stays in force");
        }
    }
}

/// Returns the device numbers of the disks of all fast roots, each once.
fn disks_of(tier: &ManagedTier, roots: &Roots, devices: &Path) -> Result<Vec<String>, String> {
    let mut disks = Vec::new();
    for name in &tier.fast {
        let root = roots
            .named(name.as_str())
            .map_err(|error| error.to_string())?;
        let path = root
            .path()
            .ok_or_else(|| format!("the root {name} is not a folder of this host"))?;
        let found =
            std::fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let device = found.dev();
        let number = (rustix::fs::major(device), rustix::fs::minor(device));
        let disk = disk_of(number, devices).ok_or_else(|| {
            format!(
                "the root {name} is on a file system without a block device, so its writes \
                    cannot be limited"
            )
        })?;
        if !disks.contains(&disk) {
            disks.push(disk);
        }
    }
    Ok(disks)
}

/// Returns the device number of a disk, because limits apply only to disks. For a partition,
/// returns the number of its disk. Returns `None` if the device is not a block device.
fn disk_of((major, minor): (u32, u32), devices: &Path) -> Option<String> {
    let device = devices.join(format!("{major}:{minor}"));
    if !device.exists() {
        return None;
    }
    if !device.join("partition").exists() {
        return Some(format!("{major}:{minor}"));
    }
    // The folder of a partition lies in the folder of its disk.
    let disk = device.canonicalize().ok()?.parent()?.join("dev");
    let number = std::fs::read_to_string(disk).ok()?;
    Some(number.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{WriteLimit, disk_of};
    use std::path::Path;

    fn limit(folder: &Path, disks: &[&str]) -> WriteLimit {
        WriteLimit {
            folder: folder.to_owned(),
            disks: Ok(disks.iter().map(|disk| (*disk).to_owned()).collect()),
            written: None,
        }
    }

    #[test]
    fn a_limit_is_written_in_the_form_of_the_cgroup_and_removed_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut limit = limit(folder.path(), &["7:0"]);
        let why = limit.set(1e9).expect_err("no controller");
        assert!(why.contains("neither io.max nor"), "{why}");
        let v1 = folder.path().join("blkio.throttle.write_bps_device");
        std::fs::write(&v1, "").expect("made");
        limit.set(1e9).expect("written");
        let read = |path: &Path| std::fs::read_to_string(path).expect("read");
        assert_eq!(read(&v1), "7:0 1000000000\n");
        // A small change is not written.
        limit.set(1.01e9).expect("kept");
        assert_eq!(read(&v1), "7:0 1000000000\n");
        limit.set(2e9).expect("written");
        assert_eq!(read(&v1), "7:0 2000000000\n");
        let v2 = folder.path().join("io.max");
        std::fs::write(&v2, "").expect("made");
        limit.set(1e9).expect("written");
        assert_eq!(read(&v2), "7:0 wbps=1000000000\n");
        drop(limit);
        assert_eq!(read(&v2), "7:0 wbps=max\n");
    }

    #[test]
    fn devices_share_the_rate() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("io.max");
        std::fs::write(&file, "").expect("made");
        let mut limit = limit(folder.path(), &["7:0", "7:1"]);
        limit.set(2e6).expect("written");
        // The kernel's file takes one line per write and keeps the lines of all devices. The
        // regular file of this test has only the last line.
        let read = std::fs::read_to_string(&file).expect("read");
        assert_eq!(read, "7:1 wbps=1000000\n");
        limit.set(1.0).expect("written");
        let read = std::fs::read_to_string(&file).expect("read");
        assert_eq!(read, "7:1 wbps=65536\n");
    }

    #[test]
    fn the_limit_of_a_partition_is_that_of_its_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let devices = folder.path().join("devices");
        let disk = folder.path().join("block/sda");
        std::fs::create_dir_all(disk.join("sda1")).expect("made");
        std::fs::create_dir_all(&devices).expect("made");
        std::fs::write(disk.join("dev"), "8:0\n").expect("made");
        std::fs::write(disk.join("sda1/partition"), "1\n").expect("made");
        std::os::unix::fs::symlink(&disk, devices.join("8:0")).expect("linked");
        std::os::unix::fs::symlink(disk.join("sda1"), devices.join("8:1")).expect("linked");
        assert_eq!(disk_of((8, 1), &devices).as_deref(), Some("8:0"));
        assert_eq!(disk_of((8, 0), &devices).as_deref(), Some("8:0"));
        assert_eq!(disk_of((0, 40), &devices), None);
    }
}
