//! Admits the claims of transfers on the space of a tier, and frees space for the oldest claim.
//!
//! Invariant owned here: the claimed bytes of an admitted transfer count as used space until the
//! transfer has ended and a later scan has measured the transfer's files.

use super::fast_roots::{home, is_within, lost, root_of};
use super::{Round, Tier, Tiers, plan, rows, scan, seen};
use dray_api::api_path::ApiPath;
use dray_api::{TierVersionState as At, Timestamp};
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use dray_queue::{ClaimRow, SpaceClaim, TierVersion, TierWrite, WaitReason};
use dray_sched::tiers::admission::{Holder, Holding, Release, Space, demotion_ends};
use dray_sched::tiers::placement::{self, Need};
use dray_sched::tiers::victims::{self, Version};
use dray_store::FileKind;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Maximum time for which a claim can wait for space in use. Bytes that stay in use for longer
/// count as bytes that cannot be freed.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// A transfer or a write job that asks for space on a tier.
#[derive(Debug, Clone, Copy)]
pub struct SpaceRequest<'a> {
    /// Id of the transfer.
    pub id: &'a TransferId,
    /// Destination in a fast root.
    pub to: &'a ApiPath,
    /// Size in bytes, if it is known.
    pub bytes: Option<u64>,
    /// Application that declares a period.
    pub application: Option<&'a str>,
    /// Declared seconds between two versions of the application.
    pub period_seconds: Option<u64>,
}

/// The space that admitted transfers use, and the claims that wait.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Bytes of admitted claims, less the bytes of versions that their transfers have completed.
    pub(super) admitted: u64,
    /// Bytes that admitted transfers will still write, by fast root.
    pub(super) outstanding: BTreeMap<String, u64>,
    /// Waiting claims, the oldest first.
    pub(super) waiting: Vec<Waiting>,
    /// Paths that admitted transfers write to.
    pub(super) paths: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) id: String,
    pub(super) root: String,
    pub(super) bytes: u64,
    pub(super) since: Timestamp,
    pub(super) kind: Claimant,
}

/// A kind of request that claims space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimant {
    Transfer,
    Write,
    /// A ticket with which another endpoint will push data. [`super::claim_id`] is its id.
    Ticket,
}

/// A claim that counts until a scan has measured the files of its transfer.
#[derive(Debug, Clone)]
pub(super) struct Lingering {
    pub(super) bytes: u64,
    pub(super) path: String,
    /// Number of scans at the last round in which the transfer had not ended.
    pub(super) scans: u64,
}

impl Tiers {
    pub(super) fn with_fast(&self, root: &str) -> Option<&Tier> {
        let has_root = |tier: &&Tier| tier.config.fast.iter().any(|name| name.as_str() == root);
        self.tiers.iter().find(has_root)
    }

    /// Returns true if the root is a fast root of a tier.
    #[must_use]
    pub fn has_fast(&self, root: &str) -> bool {
        self.with_fast(root).is_some()
    }

    /// Returns the size in bytes of a file or folder, or `None` if the path does not exist. If the
    /// root is not a single folder of this host, the size of a folder is unknown, so the result is
    /// `None` too. The calling thread must have the account of the owner.
    ///
    /// # Errors
    /// Errors of the file system. `NotFound` if the root does not exist.
    pub fn size_of(&self, path: &ApiPath) -> Result<Option<u64>> {
        let root = self.accounts.root(self.roots.find(path)?)?;
        if root.path().is_none() {
            let found = root.store().stat(&path.path)?;
            let file = found.filter(|found| found.kind == FileKind::File);
            return Ok(file.map(|file| file.size));
        }
        let measured = scan::measure(&root, &path.path, None)?;
        Ok(measured.map(|measure| measure.bytes))
    }

    /// Returns the claim of a transfer whose destination is in a fast root of a tier. Returns
    /// `None` for any other destination. The claim of a transfer of unknown size counts as
    /// admitted.
    ///
    /// # Errors
    /// `NoSpace` if the transfer has more bytes than the tier can ever hold, or if its application
    /// declares more bytes per period than the tier can take. Errors of the database.
    pub fn claim(&self, ask: &SpaceRequest<'_>) -> Result<Option<SpaceClaim>> {
        let Some(tier) = self.with_fast(&ask.to.root) else {
            return Ok(None);
        };
        let name = tier.config.name.as_str();
        // A repeated request refers to the transfer that is already admitted or waiting.
        let bytes = ask
            .bytes
            .filter(|_| !matches!(self.queue.is_live(ask.id), Ok(true)));
        if let Some(bytes) = bytes {
            self.check_space(tier, bytes)?;
            if let (Some(application), Some(every)) = (ask.application, ask.period_seconds) {
                check_period(tier, application, bytes, every)?;
            }
        }
        Ok(Some(SpaceClaim {
            tier: name.to_owned(),
            to: ask.to.text().trim_end_matches('/').to_owned(),
            bytes: ask.bytes,
            is_admitted: ask.bytes.is_none(),
        }))
    }

    /// Checks, with the results of the tier's last round, that the tier can hold `bytes` within
    /// [`WAIT_MAX`].
    pub(super) fn check_space(&self, tier: &Tier, bytes: u64) -> Result<()> {
        let seen = seen(tier);
        let space = Space {
            capacity: tier.config.capacity.0,
            holdings: seen.space.map_or_else(Vec::new, |space| space.holdings),
        };
        let until = plan::seconds(dray_queue::clock::now().after(WAIT_MAX));
        space.check(bytes, until).map_err(|error| {
            let remedy = "request less space, unpin or evict copies on the fast roots, or copy to \
                the slow root";
            refused(tier, error.to_string(), remedy)
        })
    }
}

/// Checks that the tier can take the bytes that an application declares, in addition to the bytes
/// of the other applications. The application writes `bytes` bytes every `every` seconds.
pub(super) fn check_period(tier: &Tier, application: &str, bytes: u64, every: u64) -> Result<()> {
    let seen = seen(tier);
    let mut estimator = seen.estimator.unwrap_or_default();
    let count = tier.config.period as f64 / every.max(1) as f64;
    estimator.declare(application, Some(bytes as f64 * count));
    tier.admit_period(estimator.dwpp()).map_err(|error| {
        let cause = format!(
            "if the application {application:?} writes {bytes} bytes every {every} \
            seconds, {error}"
        );
        refused(
            tier,
            cause,
            "write smaller versions, or write them less often",
        )
    })
}

fn refused(tier: &Tier, cause: String, remedy: &str) -> Error {
    let operation = format!("reserve space on the tier {}", tier.config.name);
    Error::new(ErrorKind::NoSpace, End::Here, operation)
        .cause(cause)
        .remedy(remedy)
}

impl Round<'_> {
    /// Reads the claims on the tier. Also returns the remembered claims of transfers that have
    /// ended, until a scan has measured their files.
    pub(super) fn claims(&mut self, rows: &[TierVersion]) -> Result<Claims> {
        let found = self.all.queue.tiers().claims(self.name())?;
        let scans = self.memory.scans;
        let mut claims = Claims::default();
        let mut lingering = std::mem::take(&mut self.memory.lingering);
        let mut live = BTreeMap::new();
        for one in &found {
            let root = root_of(&one.claim.to).to_owned();
            let total = one.claim.bytes.unwrap_or(0).max(one.listed);
            if !one.claim.is_admitted {
                if one.can_start {
                    claims.waiting.push(Waiting {
                        id: one.id.clone(),
                        root,
                        bytes: total,
                        since: one.submitted_at,
                        kind: Claimant::Transfer,
                    });
                }
                continue;
            }
            let bytes = total.saturating_sub(completed(one, rows));
            claims.admitted = claims.admitted.saturating_add(bytes);
            let outstanding = claims.outstanding.entry(root).or_default();
            *outstanding = outstanding.saturating_add(total.saturating_sub(one.durable));
            claims.paths.push(one.claim.to.clone());
            lingering.remove(&one.id);
            let path = one.claim.to.clone();
            live.insert(one.id.clone(), Lingering { bytes, path, scans });
        }
        for (id, push) in self.pushes(rows, &mut claims)? {
            lingering.remove(&id);
            live.insert(id, push);
        }
        // Keep the claim for one more scan: the scan of this round may have begun before the
        // transfer ended.
        lingering.retain(|_, one| scans <= one.scans + 1);
        for one in lingering.values() {
            claims.admitted = claims.admitted.saturating_add(one.bytes);
            claims.paths.push(one.path.clone());
        }
        lingering.extend(live);
        self.memory.lingering = lingering;
        Ok(claims)
    }

    /// Returns the space of the tier, with the time at which each copy can be freed.
    pub(super) fn space(
        &self,
        rows: &[TierVersion],
        versions: &[Version],
        claims: &Claims,
    ) -> Result<Space> {
        let pins = self.all.queue.tiers().pins(self.now)?;
        let now = plan::seconds(self.now);
        let ends = self.demotions(rows, versions);
        let mut holdings = Vec::with_capacity(rows.len() + claims.paths.len());
        for (index, row) in rows.iter().enumerate() {
            let has_failed = row.error.is_some() && row.state == At::Written
                || self.memory.failed.contains_key(&row.fast_path);
            let pin = rows::pin(&pins, &row.fast_path).map(plan::seconds);
            let demoted = ends.get(&index).copied();
            let (holder, release) = match (row.state, pin, demoted) {
                (At::Slow, ..) => continue,
                _ if has_failed => (Holder::Failed, Release::Never),
                _ if lost(&self.memory.fast, &row.fast_path).is_some() => {
                    (Holder::Failed, Release::Unknown)
                }
                (_, Some(pin), demoted) => {
                    let free = Release::At(pin.max(demoted.unwrap_or(now)));
                    (Holder::Pinned, free)
                }
                (At::Demoted | At::Deleting, None, _) => (Holder::Cache, Release::Now),
                (_, None, Some(end)) => (Holder::NotDemoted, Release::At(end)),
                (_, None, None) => (Holder::NotDemoted, Release::Unknown),
            };
            holdings.push(holding(row.bytes, holder, release));
        }
        for one in &self.memory.incomplete {
            let is_claimed = |path: &String| is_within(&one.fast_path, path);
            if !claims.paths.iter().any(is_claimed) {
                holdings.push(holding(one.bytes, Holder::Incomplete, Release::Unknown));
            }
        }
        for one in &self.memory.staged {
            let is_known = |path: &String| is_within(&one.fast_path, path);
            if claims.paths.iter().any(is_known) {
                continue;
            }
            let pin = rows::pin(&pins, &one.fast_path).map(plan::seconds);
            let ends = one
                .expires_at
                .map(|at| plan::seconds(at).max(pin.unwrap_or(now)));
            let holder = pin.map_or(Holder::Staged, |_| Holder::Pinned);
            let release = ends.map_or(Release::Never, Release::At);
            holdings.push(holding(one.bytes, holder, release));
        }
        holdings.push(holding(claims.admitted, Holder::Admitted, Release::Unknown));
        holdings.retain(|one| one.bytes > 0);
        Ok(Space {
            capacity: self.tier.config.capacity.0,
            holdings,
        })
    }

    /// Returns the expected end of each demotion in seconds, by the index of the version. Assumes
    /// that demotions run at Brmax, because they do so while a claim waits.
    fn demotions(&self, rows: &[TierVersion], versions: &[Version]) -> HashMap<usize, f64> {
        let complete = versions.get(..rows.len()).unwrap_or(versions);
        let is_running = |index: &usize| rows[*index].state == At::Demoting;
        let running = (0..rows.len()).filter(is_running);
        let order = victims::demotion_order(complete, self.tier.order());
        let indices: Vec<usize> = running.chain(order).collect();
        let left = |index: &usize| -> Option<u64> {
            let row = rows.get(*index)?;
            let id = row.transfer.as_deref().filter(|_| is_running(index))?;
            let id = dray_core::TransferId::new(id).ok()?;
            let bytes = self.all.queue.counted(&id)?.bytes;
            Some(row.bytes.saturating_sub(bytes.durable))
        };
        let bytes: Vec<u64> = indices
            .iter()
            .map(|index| left(index).unwrap_or(rows[*index].bytes))
            .collect();
        let ends = demotion_ends(plan::seconds(self.now), self.tier.device.read_max, &bytes);
        indices.into_iter().zip(ends).collect()
    }

    /// Admits the oldest claims that fit. Returns the bytes to free for the oldest claims that
    /// still wait, and the reason for which each claim waits, by its id.
    pub(super) fn admit(
        &mut self,
        space: &Space,
        claims: &Claims,
        jobs: &[TierWrite],
    ) -> Result<(Need, HashMap<String, WaitReason>)> {
        let mut free: Vec<u64> = Vec::with_capacity(self.memory.fast.len());
        for one in &self.memory.fast {
            let outstanding = claims.outstanding.get(&one.name).copied().unwrap_or(0);
            free.push(one.free.saturating_sub(outstanding));
        }
        let waiting = claims.waiting.iter().map(|one| placement::Claim {
            // A claim on a device that cannot be reached reserves no space.
            device: match lost(&self.memory.fast, &one.root) {
                Some(_) => usize::MAX,
                None => home(&self.memory.fast, &one.root),
            },
            bytes: one.bytes,
        });
        let waiting: Vec<placement::Claim> = waiting.collect();
        let found = placement::admit(space.free(), &waiting, &free);
        let all = || claims.waiting.iter().zip(&found.admitted);
        let taken: u64 = all().filter(|(_, is)| **is).map(|(one, _)| one.bytes).sum();
        let mut reasons = HashMap::new();
        let mut ahead = taken;
        for (one, _) in all().filter(|(_, is_admitted)| !**is_admitted) {
            let reason = self.wait_reason(space, one, ahead, &free);
            reasons.insert(one.id.clone(), reason);
            ahead = ahead.saturating_add(one.bytes);
        }
        let ids = |kind: Claimant| -> Vec<String> {
            let some = all().filter(|(one, is)| **is && one.kind == kind);
            some.map(|(one, _)| one.id.clone()).collect()
        };
        self.all.queue.tiers().admit(ids(Claimant::Transfer))?;
        self.admit_tickets(&ids(Claimant::Ticket))?;
        self.grant(&ids(Claimant::Write), jobs)?;
        self.all
            .queue
            .tiers()
            .explain_waits(self.name(), reasons.clone());
        Ok((found.missing, reasons))
    }

    fn wait_reason(&self, space: &Space, one: &Waiting, ahead: u64, free: &[u64]) -> WaitReason {
        let root = &one.root;
        if let Some(why) = lost(&self.memory.fast, root) {
            return (format!("/{root} cannot be reached: {why}"), None);
        }
        let mut reason = space.shortage_text(ahead, one.bytes);
        let device = free.get(home(&self.memory.fast, root)).copied();
        let device = device.unwrap_or(0);
        if device < one.bytes {
            reason.push_str(&format!(
                ", and the file system of /{root} has {device} free bytes"
            ));
            return (reason, None);
        }
        let at = space.fits_at(ahead, one.bytes, plan::seconds(self.now));
        let at = at.filter(|at| at.is_finite());
        let at = at.map(|at| Timestamp::from_ms((at * 1_000.0) as i64));
        (reason, at)
    }

    /// Counts the bytes on each fast root, and those that may be deleted now.
    pub(super) fn count_devices(&mut self, rows: &[TierVersion]) -> Result<()> {
        let pins = self.all.queue.tiers().pins(self.now)?;
        for one in &mut self.memory.fast {
            (one.used, one.clean) = (0, 0);
        }
        let mut add = |path: &str, bytes: u64, is_clean: bool| {
            let own = self.memory.fast.iter_mut();
            if let Some(one) = own.into_iter().find(|one| one.name == root_of(path)) {
                one.used = one.used.saturating_add(bytes);
                let clean = if is_clean { bytes } else { 0 };
                one.clean = one.clean.saturating_add(clean);
            }
        };
        for row in rows.iter().filter(|row| row.state != At::Slow) {
            let is_clean = matches!(row.state, At::Demoted | At::Deleting)
                && rows::pin(&pins, &row.fast_path).is_none();
            add(&row.fast_path, row.bytes, is_clean);
        }
        for one in &self.memory.incomplete {
            add(&one.fast_path, one.bytes, false);
        }
        for one in &self.memory.staged {
            add(&one.fast_path, one.bytes, false);
        }
        Ok(())
    }

    /// Measures the copies that callers staged in, and that are no versions.
    pub(super) fn measure_staged(&mut self, rows: &[TierVersion]) -> Result<()> {
        let fast: Vec<String> = self
            .tier
            .config
            .fast
            .iter()
            .map(ToString::to_string)
            .collect();
        let mut staged = Vec::new();
        for copy in self.all.queue.tiers().staged_in(&fast)? {
            let is_version = |row: &TierVersion| {
                is_within(&copy.fast_path, &row.fast_path)
                    || is_within(&row.fast_path, &copy.fast_path)
            };
            if rows.iter().any(is_version) {
                continue;
            }
            let path = ApiPath::parse(&copy.fast_path)?;
            let root = self.all.roots.find(&path)?;
            let accounts = &self.all.accounts;
            let measured = accounts.act_as(&copy.owner, || {
                scan::measure(&*accounts.root(root)?, &path.path, None)
            });
            match measured {
                Ok(Some(measure)) => staged.push(StagedCopy {
                    fast_path: copy.fast_path,
                    bytes: measure.bytes,
                    expires_at: copy.expires_at,
                }),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!("cannot measure the staged copy {}: {error}", copy.fast_path);
                }
            }
        }
        self.memory.staged = staged;
        Ok(())
    }
}

/// A copy that a caller staged in, as of the last scan.
#[derive(Debug, Clone)]
pub(super) struct StagedCopy {
    pub(super) fast_path: String,
    pub(super) bytes: u64,
    pub(super) expires_at: Option<Timestamp>,
}

const fn holding(bytes: u64, holder: Holder, release: Release) -> Holding {
    Holding {
        bytes,
        holder,
        release,
    }
}

/// Returns the bytes of the versions that an admitted transfer has completed since it started.
/// These versions have rows of their own, so their bytes are not part of the claim any more.
fn completed(claim: &ClaimRow, rows: &[TierVersion]) -> u64 {
    completed_at(&claim.claim.to, claim.started_at, rows)
}

/// Returns the bytes of the versions at and below the path `to` that became complete at or after
/// `started_at`.
pub(super) fn completed_at(to: &str, started_at: Option<Timestamp>, rows: &[TierVersion]) -> u64 {
    let is_new = |row: &&TierVersion| {
        let started = started_at.is_some_and(|at| row.written_at >= at);
        row.state != At::Slow && started && is_within(&row.fast_path, to)
    };
    rows.iter().filter(is_new).map(|row| row.bytes).sum()
}
