//! Recognises the slow root of a tier by a file in it.
//!
//! If the file system of the slow root is not mounted when the endpoint starts, the root is an empty
//! folder. Slow copies that were written there would be hidden by the next mount, after their fast
//! copies were deleted. So the tier does nothing until the root is the right one.
//!
//! Not for: roots in other stores than a file system, which have no mount point.

use super::{Tiers, scan};
use dray_api::TierVersionState as At;
use dray_api::api_path::ApiPath;
use dray_config::ManagedTier;
use dray_config::roots::Root;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_queue::TierVersion;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Checks that the slow root has the file of this tier, or one of its slow copies. A missing file is
/// created: the tier may have had no owner yet when the endpoint last started, or no permission.
///
/// # Errors
/// `NotFound` if versions have slow copies, and neither the file nor a slow copy exists. Errors of
/// the file system.
pub(super) fn check(all: &Tiers, tier: &ManagedTier, rows: &[TierVersion]) -> Result<()> {
    let owner = tier.owner.as_ref().or(rows.first().map(|row| &row.owner));
    let Some(owner) = owner else {
        return Ok(());
    };
    let has_copy = |row: &&TierVersion| matches!(row.state, At::Demoted | At::Deleting | At::Slow);
    let copies: Vec<ApiPath> = rows
        .iter()
        .filter(has_copy)
        .map(|row| ApiPath::parse(&row.slow_path))
        .collect::<Result<_>>()?;
    let root = all.roots.named(tier.slow.as_str())?;
    all.accounts.act_as(owner, || {
        let root = all.accounts.root(root)?;
        check_root(&root, &format!(".dray-tier-{}", tier.name), &copies)
    })
}

fn check_root(root: &Root, name: &str, copies: &[ApiPath]) -> Result<()> {
    // A copy that cannot be opened exists as well.
    let exists = |path: &RelPath| !matches!(root.beneath(path, OFlags::PATH), Err(Errno::NOENT));
    let file = RelPath::parse(name.as_bytes())?;
    match root.beneath(&file, OFlags::PATH) {
        Ok(_) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(Errno::NOENT) if !copies.is_empty() && !copies.iter().any(|at| exists(&at.path)) => {
            let operation = format!("use the slow root /{}", root.name());
            Err(Error::new(ErrorKind::NotFound, End::Here, operation)
                .cause(format!(
                    "it has neither a file {name} nor a slow copy of the tier"
                ))
                .remedy(
                    "mount the file system of the slow root and restart the endpoint; if the slow \
                        copies were moved to this folder, create the file",
                ))
        }
        Err(Errno::NOENT) => {
            let top = root.beneath(&RelPath::root(), OFlags::DIRECTORY | OFlags::RDONLY);
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let mode = Mode::from_raw_mode(0o644);
            let made = top.and_then(|top| {
                let made = rustix::fs::openat(&top, name, flags, mode)?;
                rustix::fs::fsync(made)?;
                rustix::fs::fsync(top)
            });
            made.or_else(|errno| match errno {
                // Demotions report that the root cannot be written to. Without the file, only an
                // unmounted root is not recognised.
                Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOSPC => {
                    tracing::warn!("cannot create {name} in /{}: {errno}", root.name());
                    Ok(())
                }
                errno => Err(scan::failed(root, &file, errno)),
            })
        }
        Err(errno) => Err(scan::failed(root, &file, errno)),
    }
}
