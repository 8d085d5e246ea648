//! Recognises each root of a tier by a file in the root.
//!
//! If the file system of the slow root is not mounted when the endpoint starts, the root is an
//! empty folder. A tier would write slow copies to this folder and delete the fast copies. A later
//! mount would hide the slow copies. So the tier does nothing until the root is recognised.
//!
//! If the file system of a fast root is not mounted, the versions on it seem to be deleted. An
//! application would then restart from an older version.
//!
//! Not for: roots in stores other than a file system, which have no mount point.

use super::{Tiers, scan};
use dray_api::TierVersionState as At;
use dray_api::api_path::ApiPath;
use dray_config::ManagedTier;
use dray_config::roots::Root;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_queue::TierVersion;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Checks that the slow root contains the identity file of the tier ([`file_of`]), or at least one
/// slow copy of the tier. If the identity file is missing, creates it. The file can be missing in
/// the right root: at the last start of the endpoint, the tier may have had no owner yet, or the
/// owner may have had no permission to write.
///
/// # Errors
/// `NotFound` if the database lists slow copies, but the root has neither the identity file nor any
/// slow copy. Errors of the file system.
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
        let has_file = check_root(&root, &file_of(tier), &copies, "slow")?;
        if !has_file && root.path().is_some() {
            // A failure to create the file is only logged. If the root cannot be written to, the
            // demotions report that. The only consequence of the missing file is that an unmounted
            // root is not recognised.
            tracing::warn!("cannot create {} in /{}", file_of(tier), root.name());
        }
        Ok(())
    })
}

/// Checks, with the account of `owner`, that a fast root can be read, and that it has the identity
/// file of this tier or at least one fast copy. If the identity file is missing, creates it.
/// Returns true if the root then has the identity file.
///
/// # Errors
/// `NotFound` if there are fast copies in the database, but neither the identity file nor any fast
/// copy exists. Errors of the file system.
pub(super) fn check_fast(
    all: &Tiers,
    tier: &ManagedTier,
    root: &str,
    owner: &str,
    copies: &[ApiPath],
) -> Result<bool> {
    let root = all.roots.named(root)?;
    all.accounts.act_as(owner, || {
        check_root(&*all.accounts.root(root)?, &file_of(tier), copies, "fast")
    })
}

fn file_of(tier: &ManagedTier) -> String {
    format!(".dray-tier-{}", tier.name)
}

/// Returns true if the root has the file, or false if the file cannot be created.
fn check_root(root: &Root, name: &str, copies: &[ApiPath], kind: &str) -> Result<bool> {
    // A copy that cannot be opened exists as well.
    let exists = |path: &RelPath| !matches!(root.beneath(path, OFlags::PATH), Err(Errno::NOENT));
    let file = RelPath::parse(name.as_bytes())?;
    // Open the file for reading: a failed device can still have its names in the kernel's cache.
    match root.beneath(&file, OFlags::RDONLY) {
        Ok(_) | Err(Errno::ACCESS) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(Errno::NOENT) if !copies.is_empty() && !copies.iter().any(|at| exists(&at.path)) => {
            let operation = format!("use the {kind} root /{}", root.name());
            Err(Error::new(ErrorKind::NotFound, End::Here, operation)
                .cause(format!(
                    "the root has neither the file {name} nor any of the {kind} copies that the \
                     tier has made"
                ))
                .remedy(format!(
                    "mount the file system of the {kind} root and restart the endpoint; if the \
                     {kind} copies were moved to this folder, create the file"
                )))
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
            match made {
                Ok(()) => Ok(true),
                Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOSPC) => Ok(false),
                Err(errno) => Err(scan::failed(root, &file, errno)),
            }
        }
        Err(errno) => Err(scan::failed(root, &file, errno)),
    }
}
