//! Decides which extended attributes of an announced entry are set at the sink.

use super::{Effect, Sink};
use crate::progress::Event;
use dray_core::attribute::{AttributeRule, attribute_rule};
use dray_core::path::escape;
use dray_core::{End, Entry, Error, ErrorKind, FileIndex, Time};

/// Maximum number of notices about adopted files whose attributes cannot be set. Further files get
/// no notice.
const UNSET_MAX: u32 = 16;

impl Sink {
    /// Gives an adopted file the mode and the extended attributes of the source file, if those of
    /// the adopted file differ.
    pub(super) fn adopt(&mut self, index: FileIndex, mode: Option<u32>, now: Time) {
        let has_xattrs = self.config.options.xattrs;
        let Some(file) = self.file(index) else { return };
        let metadata = file.metadata.clone();
        let is_other = mode.is_some_and(|mode| (mode ^ metadata.mode) & 0o777 != 0);
        if !(is_other || has_xattrs && !metadata.xattrs.is_empty()) {
            self.close_when_durable(index, now);
            return;
        }
        if let Some(path) = self.live.get(&index).map(|live| live.path.clone()) {
            self.finishing += 1;
            self.out.push_back(Effect::SetAdopted {
                index,
                path,
                metadata,
            });
        }
    }

    /// Closes the file even if its attributes could not be set. The content of the file is correct,
    /// and the sink may lack the permission to set attributes because another user owns the file.
    pub(super) fn on_adopted_set(
        &mut self,
        index: FileIndex,
        result: Result<bool, Error>,
        now: Time,
    ) {
        self.finishing = self.finishing.saturating_sub(1);
        match result {
            Ok(is_changed) => self.progress.files_updated += u64::from(is_changed),
            Err(error) => {
                self.unset += 1;
                if self.unset <= UNSET_MAX {
                    self.out.push_back(Effect::Report(Event::Notice(error)));
                }
            }
        }
        self.close_when_durable(index, now);
    }

    /// Removes from an announced entry the attributes that a storage system would trust as its own.
    ///
    /// # Errors
    /// The cause, if the source sends attributes that this end did not request, or attributes that
    /// no entry may have.
    pub(super) fn admit_attributes(&mut self, entry: &mut Entry) -> Result<(), String> {
        if entry.metadata.xattrs.is_empty() {
            return Ok(());
        }
        let index = entry.index;
        if !self.config.options.xattrs {
            return Err(format!(
                "entry {index} has extended attributes, which were not requested"
            ));
        }
        let mut left_out = None;
        for (name, _) in &entry.metadata.xattrs {
            match attribute_rule(name) {
                AttributeRule::Carried => {}
                AttributeRule::OfStorage => left_out = Some(escape(name)),
                AttributeRule::Reserved => {
                    let name = escape(name);
                    return Err(format!(
                        "entry {index} of the source's list has the reserved attribute {name}"
                    ));
                }
            }
        }
        let Some(name) = left_out else { return Ok(()) };
        let carried = |name: &[u8]| attribute_rule(name) == AttributeRule::Carried;
        entry.metadata.xattrs.retain(|(name, _)| carried(name));
        if !self.has_left_out {
            self.has_left_out = true;
            let notice = Error::new(ErrorKind::Unsupported, End::Sink, "set extended attributes")
                .cause(format!(
                    "the attribute {name} belongs to a storage system and is not copied"
                ))
                .remedy(
                    "nothing to do: the destination's storage system sets such attributes itself",
                );
            self.out.push_back(Effect::Report(Event::Notice(notice)));
        }
        Ok(())
    }
}
