//! Writes and publishes small files in batches, for stores where each call costs a network round
//! trip.
//!
//! The module `names` chooses names. A file whose partial name is taken is written separately.

use crate::sink::files::{Small, Space, how};
use dray_core::lock::LockExt;
use dray_core::{ByteRange, Error, ErrorKind, Metadata, Name, RelPath, Result, Sums};
use dray_session::sink::PublishItem;
use dray_store::{Attributes, SmallFile, SmallName};
use std::borrow::Cow;

/// Maximum number of small files that one call passes to the store. The lease is checked once per
/// call. The value is estimated, not measured.
const AT_ONCE: usize = 64;

/// A complete small file.
pub(super) struct NewSmall<'a> {
    pub(super) path: &'a RelPath,
    pub(super) content: Cow<'a, [u8]>,
    pub(super) holes: Vec<ByteRange>,
    pub(super) metadata: &'a Metadata,
}

impl Space {
    /// Returns true if the store accepts small files in batches.
    pub(super) fn takes_many(&self) -> bool {
        self.store.capabilities().takes_many
    }

    /// Writes small files. Returns one result per file.
    pub(super) fn write_small_many(&self, files: &[NewSmall<'_>]) -> Vec<Result<()>> {
        let each = files.chunks(AT_ONCE);
        each.flat_map(|files| self.write_small_some(files))
            .collect()
    }

    fn write_small_some(&self, files: &[NewSmall<'_>]) -> Vec<Result<()>> {
        if let Err(error) = self.check_lease_often() {
            return files.iter().map(|_| Err(error.clone())).collect();
        }
        let prepared: Vec<(Option<Sums>, Result<Option<Name>>)> = files
            .iter()
            .map(|file| {
                let sums = self.wants_sums().then(|| Sums::of(&file.content));
                // Discard an earlier partial file of this file. It can exist, because the source
                // sends a whole pack again if one file of the pack fails.
                let name = self
                    .discard_small(file.path)
                    .and_then(|()| self.names.take_first(file.path));
                (sums, name)
            })
            .collect();
        let together = files
            .iter()
            .zip(&prepared)
            .filter_map(|(file, (sums, name))| {
                let partial = name.as_ref().ok()?.as_ref()?;
                Some(SmallFile {
                    path: file.path,
                    partial,
                    bytes: &file.content,
                    holes: &file.holes,
                    attributes: Attributes {
                        metadata: file.metadata,
                        sums: *sums,
                    },
                })
            });
        let together: Vec<SmallFile<'_>> = together.collect();
        let mut written = self.store.write_small_each(&together).into_iter();
        let each = files.iter().zip(prepared);
        each.map(|(file, (sums, name))| {
            let attributes = Attributes {
                metadata: file.metadata,
                sums,
            };
            let alone = || {
                self.check_lease_often()?;
                self.make_small(file.path, &file.content, &file.holes, &attributes)
                    .map(|_| ())
            };
            let Some(name) = name? else {
                return alone();
            };
            match written.next().unwrap_or_else(|| Err(no_answer())) {
                Ok(id) => {
                    let bytes = file.content.len() as u64;
                    let small = Small { name, id, bytes };
                    self.small
                        .lock_unpoisoned()
                        .insert(file.path.clone(), small);
                    Ok(())
                }
                Err(error) => {
                    self.names.release(file.path, &name);
                    match error.kind {
                        ErrorKind::AlreadyExists => alone(),
                        _ => Err(error),
                    }
                }
            }
        })
        .collect()
    }

    /// Publishes small files. Returns one result per file.
    pub(super) fn publish_many(&self, items: &[PublishItem]) -> Vec<Result<()>> {
        let each = items.chunks(AT_ONCE);
        each.flat_map(|items| self.publish_some(items)).collect()
    }

    fn publish_some(&self, items: &[PublishItem]) -> Vec<Result<()>> {
        if let Err(error) = self.check_lease_often() {
            return items.iter().map(|_| Err(error.clone())).collect();
        }
        // A final check compares each file alone, before the file is published. So with a final
        // check, no batch is possible.
        let is_checked = match self.destination() {
            Ok(destination) => destination.final_check().is_some(),
            Err(error) => return items.iter().map(|_| Err(error.clone())).collect(),
        };
        let known = items.iter().map(|item| {
            let small = self.small.lock_unpoisoned().get(&item.path).cloned();
            small.filter(|small| small.bytes == item.size && !is_checked)
        });
        let known: Vec<Option<Small>> = known.collect();
        let together = items.iter().zip(&known).filter_map(|(item, small)| {
            let small = small.as_ref()?;
            Some(SmallName {
                path: &item.path,
                partial: &small.name,
                id: small.id,
                how: how(item.replace),
            })
        });
        let together: Vec<SmallName<'_>> = together.collect();
        let mut published = self.store.publish_small_each(&together).into_iter();
        let each = items.iter().zip(known);
        each.map(|(item, small)| {
            let Some(small) = small else {
                self.check_lease_often()?;
                return self.publish(None, item);
            };
            published.next().unwrap_or_else(|| Err(no_answer()))?;
            self.small.lock_unpoisoned().remove(&item.path);
            self.names.release(&item.path, &small.name);
            Ok(())
        })
        .collect()
    }
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Internal, dray_core::End::Sink, "write the files")
        .cause("the store returned too few results")
        .remedy("report this error")
}
