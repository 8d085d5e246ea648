//! Recognises the slow root of a tier by a file in it.
//!
//! If the file system of the slow root is not mounted when the endpoint starts, the root is an empty
//! folder. Slow copies that were written there would be hidden by the next mount, after their fast
//! copies were deleted. So the tier does nothing until the root is the right one.
//!
//! Not for: roots in other stores than a file system, which have no mount point.

use super::{Tiers, scan};
use dray_api::TierVersionState as At;
use dray_config::ManagedTier;
use dray_config::roots::Root;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_queue::TierVersion;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Checks that the slow root has the file of this tier. The file is created if no version has a slow
/// copy yet.
///
/// # Errors
/// `NotFound` if the file is missing although versions have slow copies. Errors of the file system.
pub(super) fn check(all: &Tiers, tier: &ManagedTier, rows: &[TierVersion]) -> Result<()> {
    let owner = tier.owner.as_ref().or(rows.first().map(|row| &row.owner));
    let Some(owner) = owner else {
        return Ok(());
    };
    let has_copies = rows
        .iter()
        .any(|row| matches!(row.state, At::Demoted | At::Deleting | At::Slow));
    let root = all.roots.named(tier.slow.as_str())?;
    all.accounts.act_as(owner, || {
        let root = all.accounts.root(root)?;
        check_root(&root, &format!(".dray-tier-{}", tier.name), has_copies)
    })
}

fn check_root(root: &Root, name: &str, has_copies: bool) -> Result<()> {
    let file = RelPath::parse(name.as_bytes())?;
    match root.beneath(&file, OFlags::PATH) {
        Ok(_) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(Errno::NOENT) if has_copies => {
            let operation = format!("use the slow root /{}", root.name());
            Err(Error::new(ErrorKind::NotFound, End::Here, operation)
                .cause(format!(
                    "it has no file {name}, so it is not the folder with the slow copies of the tier"
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
