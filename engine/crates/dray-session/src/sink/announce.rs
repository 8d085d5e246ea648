//! Handles entries that a source announces: checks each entry, derives its path, and queues the
//! inspection of the path.

use super::tree::{File, Live, Node, Stage};
use super::{InspectItem, InspectTask, Sink};
use dray_core::{
    Checksum, ContentKey, End, Entry, EntryKind, Error, ErrorKind, FileIndex, Metadata, PeerId,
    RangeSet, RelPath, Required, Status, SummedRanges,
};
use dray_wire::bounds::{entry_bytes, live_bytes_max};
use std::collections::VecDeque;

/// Permission bits that the sink copies. A copied file belongs to the user who runs the transfer,
/// so a copied set-user-ID or set-group-ID bit would grant the rights of the wrong user. New
/// folders inherit the set-group-ID bit from their parent folder.
const fn mode_bits(kind: &EntryKind) -> u32 {
    match kind {
        EntryKind::Directory | EntryKind::DirectoryEnd => 0o1777,
        EntryKind::File { .. } | EntryKind::Symlink { .. } => 0o777,
    }
}

/// Returns the reason why a sink refuses an entry, whatever its folder. Returns `None` for an
/// acceptable entry.
fn refuse_entry(entry: &Entry, required: Required) -> Option<Error> {
    if entry.name.is_reserved() {
        let error = Error::new(ErrorKind::InvalidName, End::Sink, "accept the name")
            .cause("names that begin with .dray- are reserved for dray's partial files and logs")
            .remedy("rename the entry, or exclude it with --exclude");
        return Some(error);
    }
    match (&entry.kind, required) {
        (EntryKind::Symlink { .. }, Required { checksum, size }) => {
            (checksum.is_some() || size.is_some()).then(|| {
                Error::new(ErrorKind::InvalidRequest, End::Source, "verify the file")
                    .cause("a checksum or size is demanded, but the entry is a symbolic link")
                    .remedy("copy the target of the link, or follow links (--links follow)")
            })
        }
        (
            EntryKind::File { size, .. },
            Required {
                size: Some(wanted), ..
            },
        ) if *size != wanted => {
            let error = Error::new(ErrorKind::SourceChanged, End::Source, "verify the file")
                .cause(format!(
                    "the file has {size} bytes, but the request states a size of {wanted} bytes"
                ))
                .remedy("check that the file is complete and is the intended file")
                .status(Status::Permanent);
            Some(error)
        }
        _ => None,
    }
}

impl Sink {
    pub(super) fn on_new_files(&mut self, peer: PeerId, entries: Vec<Entry>) {
        for entry in entries {
            let announced = self.announce(peer, entry);
            let bytes_max = live_bytes_max(self.config.live_entries_max);
            if let Err(cause) = announced {
                self.protocol_error(peer, cause);
                return;
            }
            let live_bytes = self.peers.get(&peer).map_or(0, |peer| peer.live_bytes);
            if live_bytes > bytes_max {
                let cause = format!("the unfinished entries take more than {bytes_max} bytes");
                self.violation(peer, ErrorKind::LimitExceeded, cause);
                return;
            }
        }
    }

    /// Stores the `Layout::step` of each file until the source announces the file.
    pub(super) fn on_stripes(&mut self, peer: PeerId, steps: Vec<(FileIndex, u64)>) {
        let most = self.config.live_entries_max as usize;
        let Some(known) = self.peers.get_mut(&peer) else {
            return;
        };
        for (index, step) in steps {
            if index.0 >= known.announced {
                known.steps.insert(index, step);
            }
        }
        if known.steps.len() > most {
            let cause = format!(
                "the source sent the stripes of more than {most} files that it has not announced"
            );
            self.violation(peer, ErrorKind::LimitExceeded, cause);
        }
    }

    /// Returns the `Layout::step` of an entry at the source; zero if the source has sent none.
    fn take_step(&mut self, peer: PeerId, told: FileIndex) -> u64 {
        let known = self.peers.get_mut(&peer);
        known
            .and_then(|known| known.steps.remove(&told))
            .unwrap_or(0)
    }

    fn announce(&mut self, peer: PeerId, mut entry: Entry) -> Result<(), String> {
        entry.metadata.mode &= mode_bits(&entry.kind);
        self.admit_attributes(&mut entry)?;
        if entry.kind == EntryKind::DirectoryEnd {
            return self.end_directory(peer, entry);
        }
        self.check_turn(peer, &entry)?;
        self.progress.entries_listed += 1;
        let above = entry.parent.map(|parent| self.own_index(peer, parent));
        let (folder, no_folder) = self.enter_folder(above, entry.index)?;
        let (path, not_placed) = self.path_in(folder, &entry);
        let required = self.required_of(&path);
        let refused = no_folder
            .or_else(|| refuse_entry(&entry, required))
            .or(not_placed);
        let told = entry.index;
        let index = self.number(peer, told);
        let bytes = entry_bytes(&entry, path.as_bytes().len());
        self.count_bytes(peer, bytes);
        let (mut node, task) = self.node_of(entry.kind, entry.metadata, required.checksum);
        let row = self.count_in_folder(above, &path, &node);
        let step = self.take_step(peer, told);
        if let Node::File(file) = &mut node {
            file.source_step = step;
        }
        if refused.is_none() {
            self.paths.insert(path.clone(), index);
        }
        if matches!(node, Node::File(_)) {
            self.count_wanting(peer, true);
        }
        self.live.insert(
            index,
            Live {
                path: path.clone(),
                parent: above,
                row,
                peer,
                index: told,
                bytes,
                node,
            },
        );
        match refused {
            Some(error) => self.fail(index, error, false),
            None => self.to_inspect.push(InspectItem { index, path, task }),
        }
        Ok(())
    }

    /// Checks that the index of the entry follows the last index that its source announced, and
    /// that the source has fewer than `live_entries_max` unclosed entries.
    fn check_turn(&self, peer: PeerId, entry: &Entry) -> Result<(), String> {
        let known = self.peers.get(&peer);
        let (next, live_count) = known.map_or((0, 0), |peer| (peer.announced, peer.live_count()));
        if entry.index.0 != next {
            let index = entry.index;
            return Err(format!(
                "the source announced entry {index} instead of entry {next}"
            ));
        }
        if live_count >= self.config.live_entries_max as usize {
            return Err(format!(
                "more than {} announced entries are unfinished",
                self.config.live_entries_max
            ));
        }
        Ok(())
    }

    /// Counts a new child of the folder `above`. Returns the path of the folder. Also returns an
    /// error for the child if the folder could not be created.
    fn enter_folder(
        &mut self,
        above: Option<FileIndex>,
        told: FileIndex,
    ) -> Result<(RelPath, Option<Error>), String> {
        let Some(parent) = above else {
            return Ok((RelPath::root(), None));
        };
        match self.live.get_mut(&parent) {
            Some(Live {
                path,
                node:
                    Node::Directory {
                        children,
                        ended: None,
                        failed,
                        ..
                    },
                ..
            }) => {
                *children += 1;
                let error = failed.as_ref().map(|failed| failed.of_entries.clone());
                Ok((path.clone(), error))
            }
            _ => Err(format!("entry {told} is not in an open folder")),
        }
    }

    /// Returns the size and the checksum that the caller requires of the file at `path`.
    fn required_of(&self, path: &RelPath) -> Required {
        let listed = self.config.required.get(path);
        listed.copied().unwrap_or(Required {
            size: None,
            checksum: self.config.demanded,
        })
    }

    /// Returns the path of the entry, and an error if the path cannot be used.
    fn path_in(&self, folder: RelPath, entry: &Entry) -> (RelPath, Option<Error>) {
        match folder.join(&entry.name) {
            Ok(path) if self.paths.contains_key(&path) => {
                let error = Error::new(ErrorKind::AlreadyExists, End::Sink, "accept the name")
                    .cause("two files or folders of the transfer have the same path")
                    .remedy("copy the two files or folders to different folders");
                (path, Some(error))
            }
            Ok(path) => {
                let is_folder = entry.kind == EntryKind::Directory;
                let unclaimed = self.claims.check(&path, is_folder).err();
                (path, unclaimed)
            }
            Err(error) => (folder, Some(error.at(End::Sink))),
        }
    }

    fn node_of(
        &mut self,
        kind: EntryKind,
        metadata: Metadata,
        demanded: Option<Checksum>,
    ) -> (Node, InspectTask) {
        match kind {
            EntryKind::File { size, .. } => {
                self.progress.files_listed += 1;
                self.progress.bytes_listed = self.progress.bytes_listed.saturating_add(size);
                let key = ContentKey {
                    size,
                    demanded,
                    modified: metadata.modified,
                    precision_nanoseconds: self.config.precision_nanoseconds,
                    identity: self.config.identity.clone(),
                };
                let file = File {
                    key: key.clone(),
                    metadata,
                    stage: Stage::Deciding,
                    small: false,
                    object_bytes: 0,
                    known: SummedRanges::new(),
                    accepted: RangeSet::new(),
                    written: 0,
                    bytes_resumed: 0,
                    unproven: None,
                    sums: None,
                    source_step: 0,
                    layout: None,
                    held: VecDeque::new(),
                    next_offset: 0,
                    pack: None,
                };
                (Node::File(Box::new(file)), InspectTask::File(key))
            }
            EntryKind::Symlink { target } => {
                self.progress.links_listed += 1;
                (Node::Symlink, InspectTask::Symlink { target, metadata })
            }
            EntryKind::Directory | EntryKind::DirectoryEnd => {
                let node = Node::Directory {
                    children: 0,
                    ended: None,
                    made: false,
                    setting: false,
                    failed: None,
                };
                (node, InspectTask::Directory)
            }
        }
    }

    pub(super) fn count_bytes(&mut self, peer: PeerId, bytes: u64) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.live_bytes += bytes;
        }
    }
}
