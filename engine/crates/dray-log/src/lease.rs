//! The lease of a log: the right to write to the log. A lock and an epoch protect the lease. The
//! lock excludes a second process on the same host, or on any host of a cluster file system with
//! locks. The epoch excludes a holder that lost its lock without noticing. The runtime implements
//! the lock. This module implements the lease record and its rules.
//!
//! The lease file has two slots of 1024 bytes. A holder with epoch `e` writes slot `e % 2`, so a
//! torn write never destroys the previous record. The file is never renamed or replaced. A holder
//! deletes the file only after it has finished, and while it holds the lock. A lock belongs to the
//! file and not to the name. So a process that gets a lock must check that the name still refers to
//! the locked file.

use crate::frame::crc;
use crate::input::Input;
use crate::record::{BootId, TEXT_BYTES_MAX, Tenure};
use dray_core::{End, Error, ErrorKind, Result, TransferId};

/// First bytes of a slot.
pub const LEASE_MAGIC: [u8; 8] = *b"DRAYLEAS";
/// Version of the format of a slot.
pub const LEASE_VERSION: u16 = 1;
/// Size of a slot in bytes.
pub const SLOT_BYTES: usize = 1024;
/// Size of a lease file in bytes.
pub const LEASE_BYTES: usize = 2 * SLOT_BYTES;
/// Maximum length in bytes of the name of a holder or a host.
pub const NAME_BYTES_MAX: usize = 255;

const HEAD_BYTES: usize = 16;

/// The record of the holder of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Epoch of the holder, higher than the epoch of every earlier holder.
    pub epoch: u64,
    /// Description of the holder: its program and process.
    pub holder: String,
    /// Transfer of the holder.
    pub transfer: TransferId,
    /// Boot of the host in which the holder runs.
    pub boot_id: BootId,
    /// Host on which the holder runs.
    pub host: String,
    /// Number that identifies the holder's request, from [`crate::layout::request_mark`]; 0 if
    /// unknown.
    pub request: u64,
    /// Kind of lock that excludes other writers while the lease is held.
    pub lock: LockKind,
}

/// Kind of lock that protects a lease. A lock of one kind does not exclude a lock of another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LockKind {
    /// The kind is unknown, because an older program wrote the record.
    #[default]
    Unknown,
    /// A lock of the operating system on the lease file.
    System,
    /// A rule of the storage server that a file has only one writer.
    Server,
}

impl LockKind {
    const fn number(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::System => 1,
            Self::Server => 2,
        }
    }

    const fn of(number: u32) -> Self {
        match number {
            1 => Self::System,
            2 => Self::Server,
            _ => Self::Unknown,
        }
    }

    /// Returns true if a writer with locks of kind `self` cannot detect a lock of kind `other`.
    #[must_use]
    pub fn is_blind_to(self, other: Self) -> bool {
        self != other && self != Self::Unknown && other != Self::Unknown
    }
}

impl LeaseRecord {
    /// Returns the offset of this record's slot in the lease file.
    #[must_use]
    pub const fn slot_offset(&self) -> u64 {
        (self.epoch % 2) * SLOT_BYTES as u64
    }

    /// Encodes this record as the bytes of a slot.
    ///
    /// # Errors
    /// [`ErrorKind::LimitExceeded`] if a name is longer than [`NAME_BYTES_MAX`].
    pub fn encode(&self) -> Result<[u8; SLOT_BYTES]> {
        if self.holder.len() > NAME_BYTES_MAX || self.host.len() > NAME_BYTES_MAX {
            return Err(
                Error::new(ErrorKind::LimitExceeded, End::Sink, "write the lease").cause(
                    "the name of the program that holds the lease, or the name of its host, is \
                        longer than 255 bytes",
                ),
            );
        }
        let mut body = Vec::new();
        body.extend_from_slice(&self.epoch.to_le_bytes());
        for field in [
            self.boot_id.as_bytes(),
            self.transfer.as_str().as_bytes(),
            self.holder.as_bytes(),
            self.host.as_bytes(),
        ] {
            body.extend_from_slice(&(field.len() as u32).to_le_bytes());
            body.extend_from_slice(field);
        }
        body.extend_from_slice(&self.request.to_le_bytes());
        body.extend_from_slice(&self.lock.number().to_le_bytes());
        let mut slot = [0; SLOT_BYTES];
        slot[..8].copy_from_slice(&LEASE_MAGIC);
        slot[8..10].copy_from_slice(&LEASE_VERSION.to_le_bytes());
        slot[HEAD_BYTES..HEAD_BYTES + body.len()].copy_from_slice(&body);
        let sum = slot_crc(&slot);
        slot[12..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
        Ok(slot)
    }

    /// Returns the error for a writer that cannot get the lease because of this record.
    #[must_use]
    pub fn held_error(&self, destination: &str) -> Error {
        Error::new(ErrorKind::LeaseHeld, End::Sink, "write to the destination")
            .cause(format!(
                "transfer {} ({} on {}) writes to {destination}",
                self.transfer, self.holder, self.host
            ))
            .remedy("wait until the other transfer ends, or cancel the other transfer")
    }
}

/// Returns the crc32c of a slot. The crc field counts as zeros.
fn slot_crc(slot: &[u8; SLOT_BYTES]) -> u32 {
    let mut zeroed = *slot;
    zeroed[12..HEAD_BYTES].fill(0);
    crc(&zeroed)
}

/// Returns the newest intact record of a lease file. Returns `None` if the file is empty or the
/// write of its first record was torn. In both cases no process holds the lease.
///
/// # Errors
/// [`ErrorKind::LogVersion`] if an intact slot has another version. A newer program has written it,
/// and this program cannot read its epoch.
pub fn newest(bytes: &[u8]) -> Result<Option<LeaseRecord>> {
    let mut found: Option<LeaseRecord> = None;
    for slot in bytes.chunks(SLOT_BYTES).take(2) {
        let Some(slot) = slot.first_chunk::<SLOT_BYTES>() else {
            continue;
        };
        if slot[..8] != LEASE_MAGIC || slot[12..HEAD_BYTES] != slot_crc(slot).to_le_bytes() {
            continue;
        }
        let version = u16::from_le_bytes([slot[8], slot[9]]);
        if version != LEASE_VERSION {
            return Err(
                Error::new(ErrorKind::LogVersion, End::Sink, "read the lease")
                    .cause(format!(
                        "the lease is of version {version}; this program reads version \
                            {LEASE_VERSION}"
                    ))
                    .remedy(
                        "use the version of dray that wrote the lease, or remove the lease \
                        when no transfer runs",
                    ),
            );
        }
        let Some(record) = decode(&slot[HEAD_BYTES..]) else {
            continue;
        };
        if found.as_ref().is_none_or(|o| o.epoch < record.epoch) {
            found = Some(record);
        }
    }
    Ok(found)
}

fn decode(body: &[u8]) -> Option<LeaseRecord> {
    let mut input = Input(body);
    Some(LeaseRecord {
        epoch: input.u64()?,
        boot_id: BootId::new(input.bytes(*BootId::LENGTH.end())?).ok()?,
        transfer: TransferId::new(input.text(TransferId::LENGTH_MAX)?).ok()?,
        holder: input.text(NAME_BYTES_MAX.min(TEXT_BYTES_MAX))?,
        host: input.text(NAME_BYTES_MAX)?,
        // Older programs wrote zeros in these fields.
        request: input.u64()?,
        lock: LockKind::of(input.u32()?),
    })
}

/// Returns the epoch of the next holder. It is higher than both the epoch in the lease and the
/// epoch in the log, because either file may have been lost and created again with a low epoch.
///
/// # Errors
/// [`ErrorKind::LimitExceeded`] if an epoch is already 2^64 - 1. Only a hostile record has this
/// epoch.
pub fn next_epoch(lease: Option<&LeaseRecord>, log_epoch: Option<u64>) -> Result<u64> {
    let highest = lease
        .map_or(0, |record| record.epoch)
        .max(log_epoch.unwrap_or(0));
    highest.checked_add(1).ok_or_else(|| {
        Error::new(ErrorKind::LimitExceeded, End::Sink, "take the lease")
            .cause("the epoch of the lease is 2^64 - 1, so no higher epoch is possible")
            .remedy("remove the lease and its log to copy the files from the beginning")
    })
}

/// Returns true if the holder that wrote `mine` must stop immediately. This is the case if `found`,
/// the record in the lease file, has another holder or does not exist.
#[must_use]
pub fn is_fenced(mine: &LeaseRecord, found: Option<&LeaseRecord>) -> bool {
    found != Some(mine)
}

/// Returns true if `found`, the record in the lease file, is of the holder that wrote `tenure` to
/// the log. Each holder has a higher epoch than the holders before. Two processes that took the
/// lease with the same epoch, because they could not see each other's lock, run on different hosts
/// and have different boot ids.
#[must_use]
pub fn is_of(found: Option<&LeaseRecord>, tenure: &Tenure) -> bool {
    found.is_some_and(|found| found.epoch == tenure.epoch && found.boot_id == tenure.boot_id)
}

/// Returns the error of a fenced holder.
#[must_use]
pub fn fenced_error(found: Option<&LeaseRecord>) -> Error {
    let by = match found {
        Some(other) => format!(
            "transfer {} ({} on {}) took the lease with epoch {}",
            other.transfer, other.holder, other.host, other.epoch
        ),
        None => "another program removed the lease of this log".to_owned(),
    };
    Error::new(ErrorKind::LeaseLost, End::Sink, "write to the destination")
        .cause(by)
        .remedy(
            "do nothing: the new holder of the lease continues the copy, and this transfer \
            writes no more data",
        )
}

#[cfg(test)]
mod tests {
    use super::{LEASE_BYTES, LeaseRecord, LockKind, SLOT_BYTES, is_fenced, newest, next_epoch};
    use crate::record::BootId;
    use dray_core::{ErrorKind, TransferId};

    fn record(epoch: u64) -> LeaseRecord {
        LeaseRecord {
            epoch,
            holder: "dray pid 7".into(),
            transfer: TransferId::new("run-1").expect("a good id"),
            boot_id: BootId::new(&[5; 36]).expect("fits"),
            host: "dtn1".into(),
            request: 7,
            lock: LockKind::System,
        }
    }

    fn write(file: &mut [u8], record: &LeaseRecord) {
        let at = record.slot_offset() as usize;
        file[at..at + SLOT_BYTES].copy_from_slice(&record.encode().expect("short names"));
    }

    #[test]
    fn newest_intact_record_counts() {
        let mut file = vec![0; LEASE_BYTES];
        assert_eq!(newest(&file).expect("empty"), None);
        assert_eq!(newest(&[]).expect("empty"), None);
        write(&mut file, &record(4));
        write(&mut file, &record(5));
        assert_eq!(newest(&file).expect("whole"), Some(record(5)));
        let whole = file.clone();
        let newer = record(6).encode().expect("short names");
        for torn in 0..=SLOT_BYTES {
            file.copy_from_slice(&whole);
            file[..torn].copy_from_slice(&newer[..torn]);
            let found = newest(&file).expect("our version").expect("one is whole");
            assert!(found == record(5) || found == record(6), "torn at {torn}");
        }
    }

    #[test]
    fn flipped_bit_never_yields_another_holder() {
        let mut file = vec![0; LEASE_BYTES];
        write(&mut file, &record(9));
        for at in 0..LEASE_BYTES {
            for bit in 0..8 {
                file[at] ^= 1 << bit;
                let found = newest(&file).expect("never another version");
                assert!(found.is_none() || found == Some(record(9)), "byte {at}");
                file[at] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn record_of_an_older_program_is_read() {
        let mut slot = record(1).encode().expect("short names");
        let body = 16 + 8 + (4 + 36) + (4 + 5) + (4 + 10) + (4 + 4);
        slot[body..body + 12].fill(0);
        let sum = super::slot_crc(&slot);
        slot[12..16].copy_from_slice(&sum.to_le_bytes());
        let mut file = vec![0; LEASE_BYTES];
        file[SLOT_BYTES..].copy_from_slice(&slot);
        let older = LeaseRecord {
            request: 0,
            lock: LockKind::Unknown,
            ..record(1)
        };
        assert_eq!(newest(&file).expect("whole"), Some(older));
        assert!(LockKind::System.is_blind_to(LockKind::Server));
        assert!(!LockKind::System.is_blind_to(LockKind::Unknown));
        assert!(!LockKind::Server.is_blind_to(LockKind::Server));
    }

    #[test]
    fn new_holder_fences_earlier_holders() {
        assert_eq!(next_epoch(None, None).expect("free"), 1);
        assert_eq!(next_epoch(Some(&record(3)), Some(7)).expect("free"), 8);
        assert_eq!(next_epoch(Some(&record(9)), None).expect("free"), 10);
        let full = next_epoch(Some(&record(u64::MAX)), None).expect_err("no more");
        assert_eq!(full.kind, ErrorKind::LimitExceeded);
        assert!(!is_fenced(&record(3), Some(&record(3))));
        assert!(is_fenced(&record(3), Some(&record(4))));
        assert!(is_fenced(&record(3), None));
        let namesake = LeaseRecord {
            host: "dtn2".into(),
            ..record(3)
        };
        assert!(is_fenced(&record(3), Some(&namesake)), "same epoch, not me");
    }

    #[test]
    fn unknown_version_is_named_in_the_error() {
        let mut slot = record(1).encode().expect("short names");
        slot[8] = 9;
        let sum = super::slot_crc(&slot);
        slot[12..16].copy_from_slice(&sum.to_le_bytes());
        let error = newest(&slot).expect_err("newer");
        assert_eq!(error.kind, ErrorKind::LogVersion);
        assert!(error.cause.contains("version 9") && error.cause.contains("version 1"));
    }
}
