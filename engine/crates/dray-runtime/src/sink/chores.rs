//! What the sink does beside writing: look, prepare, sync, log, read back, publish, clean up.

use crate::link::SinkEvent;
use crate::sink::files::Space;
use crate::sink::handles::OpenFile;
use crate::sink::sync::SyncPath;
use crossbeam_channel::{Receiver, Sender};
use dray_core::{ByteRange, ContentKey, FileIndex, Metadata, RelPath, Sums};
use dray_log::FileNumber;
use dray_session::sink::{Input, InspectItem, PublishItem};
use std::sync::Arc;

/// One thing to do. Chores of one lane are done in order.
pub(super) enum Chore {
    Inspect(Vec<InspectItem>),
    Prepare {
        index: FileIndex,
        path: RelPath,
        key: ContentKey,
        object_bytes: u64,
        resume: bool,
    },
    Sync(Vec<SyncPath>),
    Log {
        records: Vec<(FileNumber, ByteRange, Sums)>,
        sync: bool,
    },
    ReadBack {
        index: FileIndex,
        path: RelPath,
        size: u64,
        small: bool,
        open: Option<Arc<OpenFile>>,
    },
    Publish(Vec<(Option<Arc<OpenFile>>, PublishItem)>),
    SetDirectory {
        index: FileIndex,
        path: RelPath,
        metadata: Metadata,
    },
    Discard(Arc<OpenFile>),
    DiscardSmall(RelPath),
    Close(Arc<OpenFile>),
    RemoveLog,
    Purge,
}

/// Does chores until the conductor is gone.
pub(super) fn run(jobs: &Receiver<Chore>, space: &Space, events: &Sender<SinkEvent>) {
    let tell = |event| {
        // Without a conductor nobody wants to know.
        let _ = events.send(event);
    };
    for chore in jobs {
        let input = match chore {
            Chore::Inspect(items) => {
                let found = items
                    .into_iter()
                    .map(|item| (item.index, space.inspect(item)))
                    .collect();
                Input::Inspected(found)
            }
            Chore::Prepare {
                index,
                path,
                key,
                object_bytes,
                resume,
            } => {
                let result = space
                    .prepare(&path, key, object_bytes, resume)
                    .inspect_err(|_| space.keep(&path));
                tell(SinkEvent::Prepared(index, result));
                continue;
            }
            Chore::Sync(items) => Input::Synced(space.sync(&items)),
            Chore::Log { records, sync } => match space.check_lease() {
                Err(error) => Input::LeaseLost(error),
                Ok(()) => Input::Logged(space.log(&records, sync)),
            },
            Chore::ReadBack {
                index,
                path,
                size,
                small,
                open,
            } => {
                let result = space.read_back(&path, size, small, open.as_ref());
                Input::ReadBack(index, result)
            }
            Chore::Publish(items) => match space.check_lease() {
                Err(error) => Input::LeaseLost(error),
                Ok(()) => {
                    let publish = |(open, item): &(Option<Arc<OpenFile>>, PublishItem)| {
                        (item.index, space.publish(open.as_ref(), item))
                    };
                    Input::Published(items.iter().map(publish).collect())
                }
            },
            Chore::SetDirectory {
                index,
                path,
                metadata,
            } => Input::DirectorySet(index, space.set_directory(&path, &metadata)),
            Chore::Discard(open) => {
                space.discard(&open);
                continue;
            }
            Chore::DiscardSmall(path) => {
                // What cannot be removed now lies there until the next run takes its name.
                let _ = space.discard_small(&path);
                continue;
            }
            Chore::Close(open) => {
                space.close(&open);
                continue;
            }
            Chore::RemoveLog => Input::LogRemoved(space.remove_log()),
            Chore::Purge => Input::LogRemoved(space.purge()),
        };
        tell(SinkEvent::Input(input));
    }
}
