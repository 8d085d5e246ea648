//! Sets the rates of demotions with a deadline. Such demotions are stage-outs that callers
//! requested and the endpoint has promised.

use super::Round;
use super::demote::{RATE_CHANGE, RATE_MIN};
use super::demoted::endpoint;
use super::plan::{self, Planned};
use dray_api::{Patch, TierVersionState as At, Timestamp, Transfer};
use dray_core::{ErrorKind, Result};
use dray_queue::TierVersion;
use dray_sched::tiers::ramp::demotion_rate;
use std::collections::BTreeMap;

/// Part of the remaining time within which all bytes must be moved. The rest of the time is a
/// reserve for the steps after the last byte.
const PART: f64 = 0.9;

/// Returns the rate, in bytes per second, that a demotion needs to meet its deadline. Returns
/// `None` if the transfer has no deadline or its size is not yet known.
pub(super) fn rate_of(
    transfer: &Transfer,
    bytes: u64,
    now: Timestamp,
    planned: f64,
    read_max: f64,
) -> Option<f64> {
    let deadline = transfer.request.deadline?;
    let done = transfer.bytes.durable;
    let stated = transfer.request.bytes_stated().unwrap_or(0);
    let whole = bytes.max(transfer.bytes.listed).max(stated);
    if whole == 0 {
        return None;
    }
    let seconds = (plan::seconds(deadline) - plan::seconds(now)) * PART;
    let rate = demotion_rate(
        planned,
        whole.saturating_sub(done) as f64,
        seconds,
        read_max,
    );
    Some(rate.max(RATE_MIN))
}

impl Round<'_> {
    /// Changes the rates of running stage-outs with a deadline: each gets the rate of the ramp or
    /// the rate that its deadline needs, whichever is higher, and at most Brmax.
    pub(super) fn pace(&mut self, rows: &[TierVersion], planned: &Planned) -> Result<()> {
        let read_max = self.tier.device.read_max;
        let mut paced = BTreeMap::new();
        for row in rows.iter().filter(|row| row.state == At::Demoting) {
            let Some(id) = row.transfer.as_deref() else {
                continue;
            };
            let transfer = match self.all.queue.show(&endpoint(), id) {
                Ok(transfer) if !transfer.state.is_terminal() => transfer,
                Ok(_) => continue,
                Err(error) if error.kind == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let found = rate_of(&transfer, row.bytes, self.now, planned.read, read_max);
            let Some(rate) = found else {
                continue;
            };
            let before = self.memory.paced.get(id).copied();
            if before.is_some_and(|before| (rate / before - 1.0).abs() <= RATE_CHANGE) {
                paced.insert(id.to_owned(), before.unwrap_or(rate));
                continue;
            }
            let patch = Patch {
                rate_max: Some(Some(plan::whole(rate))),
                ..Patch::default()
            };
            match self.all.queue.patch(&endpoint(), id, &patch) {
                Ok(_) => {
                    paced.insert(id.to_owned(), rate);
                }
                // The transfer ended meanwhile, or its promise cannot be kept with the new rate.
                Err(refused)
                    if matches!(
                        refused.error.kind,
                        ErrorKind::AlreadyExists | ErrorKind::NotAdmitted
                    ) =>
                {
                    let tier = self.name();
                    tracing::debug!(
                        tier,
                        "the rate of transfer {id} stays unchanged: {}",
                        refused.error
                    );
                }
                Err(refused) => return Err(refused.error),
            }
        }
        self.memory.paced = paced;
        Ok(())
    }
}
