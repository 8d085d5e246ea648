//! The attributes of a published file.

use crate::note::{NOTE, Note, USER_PREFIX, XRDCKS, xrdcks};
use crate::pool::Step;
use dray_core::{Metadata, Sums};
use dray_store::FileNote;
use std::ffi::CString;
use std::time::{SystemTime, UNIX_EPOCH};

/// The attributes of a published file, as texts that a write operation can refer to.
pub(crate) struct FileAttributes {
    note: String,
    xattrs: Vec<(CString, Vec<u8>)>,
    checksum: Option<[u8; 96]>,
    /// Time of the first object in seconds, which the checksum refers to.
    pub(crate) time: i64,
}

impl FileAttributes {
    pub(crate) fn new(size: u64, metadata: &Metadata, sums: Option<Sums>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(0));
        let note = Note {
            file: FileNote {
                size,
                modified: metadata.modified,
                sums,
            },
            mode: metadata.mode & 0o7777,
        };
        let xattrs = metadata.xattrs.iter().filter_map(|(name, value)| {
            let name = CString::new([USER_PREFIX, name].concat()).ok()?;
            Some((name, value.clone()))
        });
        Self {
            note: note.text(),
            xattrs: xattrs.collect(),
            checksum: sums.map(|sums| xrdcks(&sums, time)),
            time,
        }
    }

    pub(crate) fn steps(&self) -> Vec<Step<'_>> {
        let mut steps = vec![Step::Set(NOTE, self.note.as_bytes())];
        let xattrs = self.xattrs.iter();
        steps.extend(xattrs.map(|(name, value)| Step::Set(name, value)));
        steps.extend(self.checksum.as_ref().map(|value| Step::Set(XRDCKS, value)));
        steps
    }
}
