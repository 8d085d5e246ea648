//! For a tier with several fast devices, chooses the device for new data, the claims to admit, and
//! the copies to delete on a device without space.
//!
//! The capacity of a tier is one number for all its devices. In addition, the free space of each
//! device limits the data on this device. The BBOS paper has one device per node, so it has no
//! rules for the choice between devices.
//!
//! Invariants owned here: admitted claims exceed neither the free capacity of the tier nor the free
//! space of their device, and no claim is admitted before an older claim of the same device.

use super::victims::{Deletions, Order, Reason, Version, clean_order, kept_because};

/// A device to which new data can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// True if the device can be reached.
    pub is_reachable: bool,
    /// Bytes that are free, or that the tier can free immediately.
    pub available: u64,
    /// Bytes that earlier requests will write to the device. If the new data was on a device
    /// before, the caller instead sets 0 for that device and 1 for all others, so that this device
    /// is preferred.
    pub load: u64,
}

/// Returns the index of the device for `bytes` of new data. Prefers a reachable device, then a
/// device on which the bytes fit, then the device with the lowest load, then the device with the
/// most available bytes. Returns `None` if there is no device.
#[must_use]
pub fn choose(devices: &[Candidate], bytes: u64) -> Option<usize> {
    let key = |(index, one): &(usize, &Candidate)| {
        let fits = one.available >= bytes;
        let most = std::cmp::Reverse(one.available);
        (!one.is_reachable, !fits, one.load, most, *index)
    };
    devices.iter().enumerate().min_by_key(key).map(|one| one.0)
}

/// A claim that waits for space on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Index of the device.
    pub device: usize,
    /// Claimed bytes.
    pub bytes: u64,
}

/// Bytes that must be freed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Need {
    /// On any device.
    pub total: u64,
    /// On each device.
    pub devices: Vec<u64>,
}

impl Need {
    /// Returns true if any byte must be freed.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.most() > 0
    }

    /// Returns the number of bytes to free: in total, or the sum of all devices if that is more.
    #[must_use]
    pub fn most(&self) -> u64 {
        let sum = self.devices.iter().copied().fold(0, u64::saturating_add);
        self.total.max(sum)
    }

    /// Returns the larger of both needs, in total and for each device.
    #[must_use]
    pub fn max(mut self, other: &Self) -> Self {
        self.total = self.total.max(other.total);
        let count = self.devices.len().max(other.devices.len());
        self.devices.resize(count, 0);
        for (one, other) in self.devices.iter_mut().zip(&other.devices) {
            *one = (*one).max(*other);
        }
        self
    }

    /// Counts bytes that were freed on a device.
    pub fn freed(&mut self, device: usize, bytes: u64) {
        self.total = self.total.saturating_sub(bytes);
        if let Some(one) = self.devices.get_mut(device) {
            *one = one.saturating_sub(bytes);
        }
    }
}

/// The claims that are admitted, and the bytes to free for the oldest ones that wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admission {
    /// True for each claim that is admitted, in the order of the claims.
    pub admitted: Vec<bool>,
    /// Bytes to free for the oldest claim that waits, and for the oldest of each device.
    pub missing: Need,
}

/// Admits claims, the oldest first. `free` is the free capacity of the tier in bytes, and `devices`
/// has the free space of each device.
///
/// If a claim fits the free capacity but its device has no space, younger claims of this device
/// wait, and the bytes of the claim stay reserved in the capacity. Younger claims of other devices
/// may be admitted. A claim that exceeds the free capacity keeps all younger claims waiting.
#[must_use]
pub fn admit(free: u64, claims: &[Claim], devices: &[u64]) -> Admission {
    let mut found = Admission {
        admitted: vec![false; claims.len()],
        missing: Need {
            total: 0,
            devices: vec![0; devices.len()],
        },
    };
    let (mut free, mut devices) = (free, devices.to_vec());
    let mut is_closed = vec![false; devices.len()];
    for (claim, is_admitted) in claims.iter().zip(&mut found.admitted) {
        let device = devices.get_mut(claim.device);
        let closed = is_closed.get_mut(claim.device);
        let missing = found.missing.devices.get_mut(claim.device);
        let (Some(device), Some(closed), Some(missing)) = (device, closed, missing) else {
            continue;
        };
        let fits = device.checked_sub(claim.bytes);
        if !*closed && fits.is_none() {
            *missing = claim.bytes.saturating_sub(*device);
            *closed = true;
        }
        let Some(left) = free.checked_sub(claim.bytes) else {
            found.missing.total = claim.bytes.saturating_sub(free);
            break;
        };
        free = left;
        if let Some(left) = fits.filter(|_| !*closed) {
            *device = left;
            *is_admitted = true;
        }
    }
    found
}

/// Chooses the fast copies to delete, so that the bytes in `need` become free. `homes` contains the
/// device of each version. Copies on a device on which bytes must be freed come first. Otherwise
/// the choice is that of [`super::victims::deletions`].
#[must_use]
pub fn deletions(versions: &[Version], homes: &[usize], need: &Need, order: Order) -> Deletions {
    let mut found = Deletions::default();
    for (index, version) in versions.iter().enumerate() {
        if let Some(reason) = kept_because(version) {
            found.kept.push((index, reason));
        }
    }
    let mut left = need.clone();
    let mut clean = clean_order(versions, order);
    for is_for_device in [true, false] {
        clean.retain(|index| {
            let device = homes.get(*index).copied().unwrap_or(usize::MAX);
            let needs = match is_for_device {
                true => left.devices.get(device).is_some_and(|bytes| *bytes > 0),
                false => left.total > 0,
            };
            if needs {
                let bytes = versions[*index].bytes;
                left.freed(device, bytes);
                found.freed = found.freed.saturating_add(bytes);
                found.indices.push(*index);
            }
            !needs
        });
    }
    let kept = clean.into_iter().map(|index| (index, Reason::EnoughFreed));
    found.kept.extend(kept);
    found.kept.sort_unstable();
    found
}

#[cfg(test)]
mod tests;
