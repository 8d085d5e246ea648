//! Writes the receipts of ended transfers, one after the other, on a thread of its own.
//!
//! The queue stores the data of a receipt in the transaction that ends an attempt, and deletes this
//! data when the receipt is recorded. Between the two, the thread writes the receipt to a temporary
//! file, syncs the file, and gives it its final name. After a crash, the next start finds either no
//! file, or a whole file that is not recorded yet. It records this file, so the chain of the
//! receipts never has two receipts with the same number.
//!
//! Not for: the format and the checks of receipts (`dray_receipt`).

mod content;
mod folder;
mod keys;

use crate::receipts::folder::Folder;
use dray_api::{ReceiptKeys, ReceiptReference, Timestamp};
use dray_config::Config;
use dray_core::lock::LockExt;
use dray_core::{Error, Result, Status};
use dray_queue::{DueReceipt, Queue, RECEIPTS_MAX, WrittenReceipt, clock};
use dray_receipt::{
    CHECKPOINT_TYPE, Chain, Checkpoint, KeyRing, RECEIPT_TYPE, SigningKey, id_of, sign,
    verify_checkpoint, verify_receipt,
};
use std::collections::HashSet;
use std::fs::File;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Interval at which the thread looks for ended attempts, even if no attempt wakes it.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// Interval between two removals of old receipts.
const REMOVE_INTERVAL: Duration = Duration::from_secs(3_600);

/// Old receipts are also removed when this fraction (1/16) of a limit was added since the last
/// removal. The value is an estimate: a removal looks at every file of the folder.
const ADDED_PART: u64 = 16;

/// Time after a failed write before the next one.
const WRITE_AGAIN: Duration = Duration::from_secs(5);

const DAY: Duration = Duration::from_secs(86_400);

/// The receipts of an endpoint.
pub struct Receipts {
    folder: Folder,
    key: SigningKey,
    keys: KeyRing,
    queue: Arc<Queue>,
    name: String,
    keep: Keep,
    /// Number of receipts, and of their bytes, that were written since the last removal.
    added: Mutex<(u64, u64)>,
    /// Numbers of the attempts whose receipts could not be written, and which were reported.
    skipped: Mutex<HashSet<i64>>,
}

/// The retention of receipts.
struct Keep {
    /// Age at which a receipt is removed.
    age_max: Option<Duration>,
    /// Number of the newest receipts that are kept whatever their age is.
    min: u64,
    count_max: Option<u64>,
    bytes_max: Option<u64>,
}

impl Keep {
    fn of(config: &dray_config::Receipts) -> Self {
        let limit = |most: u64| Some(most).filter(|most| *most > 0);
        Self {
            age_max: Some(config.keep_days)
                .filter(|days| *days > 0)
                .map(|days| DAY.saturating_mul(days)),
            min: config.keep_min,
            count_max: limit(config.keep_count),
            bytes_max: limit(config.keep_bytes.0),
        }
    }

    /// Returns true if so many receipts and bytes were added that a limit may be exceeded by a
    /// notable part.
    fn is_near(&self, (count, bytes): (u64, u64)) -> bool {
        let is_near = |most: Option<u64>, added: u64| {
            most.is_some_and(|most| added > 0 && added >= most / ADDED_PART)
        };
        is_near(self.count_max, count) || is_near(self.bytes_max, bytes)
    }
}

impl Receipts {
    /// Opens the folder of the receipts, reads or makes the key, and records the receipts that a
    /// crash has left unrecorded. Returns `None` if the configuration turns receipts off.
    ///
    /// # Errors
    /// Errors of the file system and of the queue. The errors of a key that cannot be read. The
    /// errors of a receipt that does not belong to the chain.
    pub fn open(config: &Config, queue: &Arc<Queue>) -> Result<Option<Arc<Self>>> {
        if !config.receipts.enabled {
            return Ok(None);
        }
        let folder = Folder::open(&config.receipts_folder())?;
        let recorded = queue.last_receipt()?.map(|last| last.sequence);
        let (key, keys) = keys::open(&folder, recorded)?;
        let receipts = Self {
            folder,
            key,
            keys,
            queue: Arc::clone(queue),
            name: config.name.clone(),
            keep: Keep::of(&config.receipts),
            added: Mutex::default(),
            skipped: Mutex::default(),
        };
        receipts.recover()?;
        Ok(Some(Arc::new(receipts)))
    }

    /// Returns the public keys and the newest receipt.
    ///
    /// # Errors
    /// Errors of the queue.
    pub fn public(&self) -> Result<ReceiptKeys> {
        let keys = self.keys.jwks()["keys"].as_array().cloned();
        Ok(ReceiptKeys {
            keys: keys.unwrap_or_default(),
            last: self.queue.last_receipt()?,
        })
    }

    /// Opens a receipt.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn file(&self, receipt: &ReceiptReference) -> Result<File> {
        self.folder.file(receipt.sequence)
    }

    /// Returns the head of a receipt as it is signed, without the line break.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn head(&self, receipt: &ReceiptReference) -> Result<String> {
        self.folder.head(receipt.sequence)
    }

    /// Writes receipts until `is_stopping` returns true.
    pub fn run(&self, is_stopping: &dyn Fn() -> bool) {
        let mut removed: Option<Instant> = None;
        while !is_stopping() {
            match self.write_all(is_stopping) {
                Ok(()) => self.queue.await_receipts(LOOK_INTERVAL),
                Err(error) => {
                    tracing::error!("cannot write a receipt, trying again: {error}");
                    self.queue.await_receipts(WRITE_AGAIN);
                }
            }
            let is_time = removed.is_none_or(|at| at.elapsed() >= REMOVE_INTERVAL);
            if is_time || self.keep.is_near(*self.added.lock_unpoisoned()) {
                removed = Some(Instant::now());
                *self.added.lock_unpoisoned() = (0, 0);
                if let Err(error) = self.remove_old(clock::now()) {
                    tracing::error!("cannot remove old receipts: {error}");
                }
            }
        }
    }

    /// Ends [`Receipts::run`] soon.
    pub fn wake(&self) {
        self.queue.end_await_receipts();
    }

    /// Writes and records the receipts of all ended attempts. An attempt whose data cannot be read is
    /// skipped and reported, and the next call tries the attempt again.
    fn write_all(&self, is_stopping: &dyn Fn() -> bool) -> Result<()> {
        let mut after = 0;
        loop {
            let page = self.queue.receipts_due(after)?;
            let Some(last_due) = page.last.filter(|_| !is_stopping()) else {
                return Ok(());
            };
            let mut last = self.last()?;
            if self
                .folder
                .has(last.as_ref().map_or(0, |last| last.sequence) + 1)
            {
                // An earlier write failed after the file had its name.
                self.recover()?;
                continue;
            }
            for (run, error) in &page.unreadable {
                self.skip(*run, error);
            }
            let mut written = Vec::with_capacity(page.receipts.len());
            for due in &page.receipts {
                if is_stopping() {
                    break;
                }
                match self.write(due, last.as_ref()) {
                    Ok(Some(new)) => {
                        last = Some(new.receipt.clone());
                        written.push(new);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        // Record the receipts that are already written before the next try.
                        self.queue.receipts_written(written)?;
                        return Err(error);
                    }
                }
            }
            self.queue.receipts_written(written)?;
            after = last_due;
        }
    }

    /// Reports an attempt whose receipt cannot be written, once while the process runs.
    fn skip(&self, run: i64, error: &Error) {
        if !self.skipped.lock_unpoisoned().insert(run) {
            return;
        }
        tracing::error!(run, "cannot write the receipt of an attempt: {error}");
        if let Err(error) = self.queue.receipt_failed(run, error) {
            tracing::error!(run, "cannot publish the error of a receipt: {error}");
        }
    }

    /// Writes one receipt. Returns `None` if the content of the receipt cannot be made. Then the
    /// attempt is skipped and reported. An error of the folder applies to all receipts.
    fn write(
        &self,
        due: &DueReceipt,
        last: Option<&ReceiptReference>,
    ) -> Result<Option<WrittenReceipt>> {
        let issued_at = clock::now();
        let sequence = last.map_or(0, |last| last.sequence) + 1;
        let mut head = content::head(due, &self.name, issued_at);
        head.sequence = sequence;
        head.previous = last.map(|last| last.id.clone());
        let line = content::describe(&due.list).and_then(|list| {
            head.list = list;
            sign(&self.key, RECEIPT_TYPE, &head)
        });
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                self.skip(due.run, &error);
                return Ok(None);
            }
        };
        let id = id_of(&line);
        self.folder.write_receipt(sequence, |file| {
            use std::io::Write;
            file.write_all(line.as_bytes())?;
            file.write_all(b"\n")?;
            content::copy(&due.list, &head.list, file)
        })?;
        self.skipped.lock_unpoisoned().remove(&due.run);
        let mut added = self.added.lock_unpoisoned();
        added.0 += 1;
        added.1 += line.len() as u64 + 1 + head.list.bytes;
        drop(added);
        Ok(Some(WrittenReceipt {
            run: due.run,
            receipt: ReceiptReference { id, sequence },
            issued_at,
        }))
    }

    /// Records the receipts whose files follow the last recorded receipt.
    fn recover(&self) -> Result<()> {
        self.folder.remove_temporary()?;
        let mut chain = match self.last()? {
            Some(last) => Chain::after(last.sequence, last.id),
            None => Chain::default(),
        };
        loop {
            // One transaction records all receipts of a page.
            let due = self.queue.receipts_due(0)?.receipts;
            let mut written = Vec::new();
            while written.len() < RECEIPTS_MAX as usize {
                let sequence = chain.last().map_or(0, |(sequence, _)| sequence) + 1;
                if !self.folder.has(sequence) {
                    break;
                }
                let line = self.folder.head(sequence)?;
                let (head, _) = verify_receipt(&line, &self.keys)
                    .map_err(|error| self.folder.of_file(sequence, error))?;
                let id = id_of(&line);
                chain
                    .add(&head, &id)
                    .map_err(|error| self.folder.of_file(sequence, error))?;
                let run = due.iter().find(|due| content::is_of(&head, due));
                // A receipt without data in the queue: the queue was restored from an old backup.
                let run = run.map_or(-i64::try_from(sequence).unwrap_or(i64::MAX), |due| due.run);
                written.push(WrittenReceipt {
                    run,
                    receipt: ReceiptReference { id, sequence },
                    issued_at: Timestamp::parse(&head.issued_at).unwrap_or_else(clock::now),
                });
            }
            if written.is_empty() {
                return Ok(());
            }
            self.queue.receipts_written(written)?;
        }
    }

    /// Returns the end of the chain: the newest recorded receipt. If the state of the queue is new
    /// and the folder is old, the receipt that the checkpoint names.
    fn last(&self) -> Result<Option<ReceiptReference>> {
        if let Some(last) = self.queue.last_receipt()? {
            return Ok(Some(last));
        }
        Ok(self.checkpoint()?.map(|point| ReceiptReference {
            id: point.id,
            sequence: point.sequence,
        }))
    }

    fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        let Some(line) = self.folder.checkpoint()? else {
            return Ok(None);
        };
        let (point, _) = verify_checkpoint(&line, &self.keys)?;
        Ok(Some(point))
    }

    /// Removes the receipts beyond the configured limits, except the newest receipt. The checkpoint
    /// is on the disk before the first receipt is removed.
    fn remove_old(&self, now: Timestamp) -> Result<()> {
        let Some(last) = self.queue.last_receipt()?.map(|last| last.sequence) else {
            return Ok(());
        };
        let mut old = 0;
        if let Some(age_max) = self.keep.age_max {
            let before = self.queue.receipts_before(now.before(age_max))?;
            // The clock may be wrong, so the age alone never removes the newest receipts.
            old = before.unwrap_or(0).min(last.saturating_sub(self.keep.min));
        }
        if let Some(count_max) = self.keep.count_max {
            old = old.max(last.saturating_sub(count_max));
        }
        if let Some(bytes_max) = self.keep.bytes_max {
            old = old.max(self.folder.last_beyond(bytes_max, last)?);
        }
        let old = old.min(last.saturating_sub(1));
        if old == 0 {
            return Ok(());
        }
        // A crash between the removal and its record leaves records without files.
        if self.folder.has(old) {
            let point = Checkpoint {
                sequence: old,
                id: id_of(&self.folder.head(old)?),
                issued_at: now.to_string(),
            };
            let line = sign(&self.key, CHECKPOINT_TYPE, &point)?;
            self.folder.write_checkpoint(&line)?;
        }
        self.folder.remove_to(old)?;
        self.queue.receipts_removed(old)
    }
}

/// Returns the error for a receipt that is not written yet.
pub(crate) fn not_written_yet() -> dray_core::Error {
    use dray_core::{End, ErrorKind};
    Error::new(ErrorKind::Busy, End::Here, "read the receipt")
        .cause("the transfer has ended, and the endpoint has not written the receipt yet")
        .remedy("try again in a moment; if the receipt is still missing, see the endpoint's log")
        .status(Status::Temporary)
}

#[cfg(test)]
mod tests;
