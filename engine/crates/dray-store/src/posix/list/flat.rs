//! A listing of one folder without its subfolders, for a store that merges several folders.

use super::PosixLister;
use crate::types::Listed;
use dray_core::{Metadata, Name, RelPath, Result};

pub(crate) enum Flat {
    /// A file or a link.
    Entry(Listed),
    /// The name of a subfolder, which is not opened.
    Folder(Name),
}

impl PosixLister {
    /// Returns the next entry of the listed folder; `None` at the end of the folder. Use this
    /// function only for a listing with [`crate::ListOptions::contents`], and do not mix it with
    /// `next`.
    pub(crate) fn next_flat(&mut self) -> Option<Result<Flat>> {
        loop {
            let frame = self.frames.last_mut()?;
            if let Some(item) = frame.items.pop() {
                return Some(item.map(Flat::Entry));
            }
            if let Some((name, _)) = frame.folders.pop() {
                self.held_names = self.held_names.saturating_sub(1);
                return Some(Ok(Flat::Folder(name)));
            }
            if frame.is_read {
                self.frames.clear();
                return None;
            }
            if let Err(errno) = self.fill() {
                self.frames.clear();
                let path = RelPath::parse(&self.path).unwrap_or_else(|_| RelPath::root());
                let error = crate::errno::error(self.end, "list the folder", &path, errno);
                return Some(Err(error));
            }
        }
    }

    pub(crate) fn folder_metadata(&self) -> Metadata {
        let first = self.frames.first();
        first
            .map(|frame| frame.metadata.clone())
            .unwrap_or_default()
    }

    /// Counts names that other listings hold, so that this listing reads smaller batches.
    pub(crate) const fn beside(&mut self, names: usize) {
        self.held_names = self.held_names.saturating_add(names);
    }

    /// Returns the number of names in memory, with the names that [`Self::beside`] has counted.
    pub(crate) const fn names_held(&self) -> usize {
        self.held_names
    }

    /// Closes the folder. The next call of [`Self::next_flat`] opens it again if necessary.
    pub(crate) fn pause(&mut self) {
        for frame in &mut self.frames {
            if let Some(fd) = frame.fd.take() {
                frame.position = rustix::fs::tell(&fd).unwrap_or(0);
            }
        }
    }
}
