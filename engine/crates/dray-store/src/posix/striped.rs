//! Creates files with requested Lustre stripes.
//!
//! Lustre sets the stripes of a file when the file is created or written for the first time. A file
//! that is opened with [`DELAY_CREATE`] has no objects, and setting the attribute `lustre.lov` then
//! creates objects with the requested stripes. The library of Lustre (`llapi_layout_file_open`)
//! makes the same calls.

use super::folders::Folder;
use super::{PosixStore, write};
use crate::lustre::{Stripes, stripes_refused};
use dray_core::{End, Name, Result, StripeChoice};
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, XattrFlags};
use std::path::Path;

/// Flags of `open` with which Lustre creates no objects (`O_LOV_DELAY_CREATE` in `lustre_user.h`:
/// `O_NOCTTY | FASYNC`).
const DELAY_CREATE: OFlags = OFlags::NOCTTY.union(OFlags::from_bits_retain(0o20000));

/// Maximum length in bytes of the stripes that a source sends. Longer stripes are ignored.
const TEXT_BYTES_MAX: usize = 4096;

impl PosixStore {
    /// Refuses stripes for a root that is not on Lustre, because they would have no effect.
    pub(super) fn check_stripes(&self, root: &Path) -> Result<()> {
        let top = self.root.fd();
        let device = rustix::fs::fstat(top).map(|stat| super::device_of(&stat));
        let is_lustre =
            device.is_ok_and(|device| self.layouts.lustre_attribute(top, device).is_some());
        if self.end == End::Source || self.stripes.is_none() || is_lustre {
            return Ok(());
        }
        Err(stripes_refused(self.end, &root.display().to_string()))
    }

    /// Returns the stripes of a new file. `sent` are the stripes that the source has sent.
    pub(super) fn stripes_for(&self, sent: Option<&[u8]>) -> Option<Stripes> {
        match self.stripes.as_ref()? {
            StripeChoice::Fixed {
                count,
                stripe_bytes,
            } => Some(Stripes::fixed(*count, *stripe_bytes)),
            StripeChoice::Source => {
                let sent = sent.filter(|sent| sent.len() <= TEXT_BYTES_MAX)?;
                std::str::from_utf8(sent).ok()?.parse().ok()
            }
        }
    }

    /// Creates a file with stripes. Fails if the name exists.
    pub(super) fn create_striped(
        &self,
        folder: &Folder,
        name: &Name,
        mode: u32,
        stripes: Option<&Stripes>,
    ) -> rustix::io::Result<OwnedFd> {
        let attribute = self.layouts.lustre_attribute(folder.fd(), folder.device);
        let (Some(stripes), Some(attribute)) = (stripes, attribute) else {
            return write::create(folder, name, mode, OFlags::empty());
        };
        let fd = write::create(folder, name, mode, DELAY_CREATE)?;
        let value = stripes.encode();
        let set = rustix::fs::fsetxattr(&fd, attribute, &value, XattrFlags::empty());
        if let Err(errno) = set {
            let _ = write::unlink(folder, name);
            return Err(errno);
        }
        Ok(fd)
    }
}

#[cfg(test)]
mod tests;
