//! Background tasks of the sink, apart from writing: inspect, prepare, sync, log, read back,
//! publish, clean up.

use crate::sink::continued::Kept;
use crate::sink::files::Space;
use crate::sink::find_logs::{LogStep, about_folder};
use crate::sink::sync::SyncPath;
use crossbeam_channel::{Receiver, Sender};
use dray_core::{
    ByteRange, ContentKey, Error, ErrorKind, FileIndex, Metadata, RelPath, SummedRanges, Sums,
};
use dray_link::link::SinkEvent;
use dray_link::open_file::OpenFile;
use dray_log::FileNumber;
use dray_session::sink::{Input, InspectItem, Inspected, PublishItem, SyncGroup};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A background task. Tasks of one lane are executed in order.
pub(super) enum BackgroundTask {
    Inspect(Vec<InspectItem>),
    Prepare {
        index: FileIndex,
        path: RelPath,
        key: ContentKey,
        object_bytes: u64,
        resume: bool,
        stripes: Option<Vec<u8>>,
    },
    Sync(SyncGroup, Vec<SyncPath>),
    Log(SyncGroup, Vec<(FileNumber, ByteRange, Sums)>),
    ReadBack {
        index: FileIndex,
        path: RelPath,
        size: u64,
        small: bool,
        open: Option<Arc<OpenFile>>,
    },
    CheckWritten {
        index: FileIndex,
        ranges: SummedRanges,
        open: Option<Arc<OpenFile>>,
    },
    Publish(Vec<(Option<Arc<OpenFile>>, PublishItem)>),
    SetDirectory {
        index: FileIndex,
        path: RelPath,
        metadata: Metadata,
    },
    SetAdopted {
        index: FileIndex,
        path: RelPath,
        metadata: Metadata,
    },
    Discard(Arc<OpenFile>),
    DiscardSmall(RelPath),
    Close(Arc<OpenFile>),
    FinishLog {
        keeps: Option<BTreeSet<RelPath>>,
        is_listed: bool,
    },
    Purge,
}

/// Executes tasks until the executor has ended.
pub(super) fn run(jobs: &Receiver<BackgroundTask>, space: &Space, events: &Sender<SinkEvent>) {
    let tell = |event| {
        // If the executor has ended, no result is needed.
        let _ = events.send(event);
    };
    for chore in jobs {
        let input = match chore {
            BackgroundTask::Inspect(items) => inspect(space, items),
            BackgroundTask::Prepare {
                index,
                path,
                key,
                object_bytes,
                resume,
                stripes,
            } => match fenced(space.prepare(&path, key, object_bytes, resume, stripes)) {
                Err(error) => Input::LeaseLost(error),
                Ok(result) => {
                    prepared(index, result).into_iter().for_each(tell);
                    continue;
                }
            },
            BackgroundTask::Sync(group, items) => Input::Synced(group, space.sync(group, &items)),
            BackgroundTask::Log(group, records) => fenced(space.log(&records))
                .map_or_else(Input::LeaseLost, |result| Input::Logged(group, result)),
            BackgroundTask::ReadBack {
                index,
                path,
                size,
                small,
                open,
            } => {
                let result = space.read_back(&path, size, small, open.as_ref());
                Input::ReadBack(index, result)
            }
            BackgroundTask::CheckWritten {
                index,
                ranges,
                open,
            } => Input::WrittenChecked(index, space.check_written(open.as_ref(), &ranges)),
            BackgroundTask::Publish(items) => publish(space, items),
            BackgroundTask::SetDirectory {
                index,
                path,
                metadata,
            } => held(space, || {
                Input::DirectorySet(index, space.set_directory(&path, &metadata))
            }),
            BackgroundTask::SetAdopted {
                index,
                path,
                metadata,
            } => held(space, || {
                Input::AdoptedSet(index, space.store.set_file(&path, &metadata))
            }),
            BackgroundTask::Discard(open) => match space.check_lease() {
                Err(error) => Input::LeaseLost(error),
                Ok(()) => {
                    space.discard(&open);
                    continue;
                }
            },
            BackgroundTask::DiscardSmall(path) => match space.check_lease() {
                Err(error) => Input::LeaseLost(error),
                Ok(()) => {
                    // Ignore errors. If the partial file cannot be removed now, a later run that
                    // needs its name removes it.
                    let _ = space.discard_small(&path);
                    continue;
                }
            },
            BackgroundTask::Close(open) => {
                space.close(&open);
                continue;
            }
            BackgroundTask::FinishLog { keeps, is_listed } => {
                Input::LogRemoved(space.finish_log(keeps.as_ref(), is_listed))
            }
            BackgroundTask::Purge => Input::LogRemoved(space.purge()),
        };
        tell(SinkEvent::Input(input));
    }
}

fn inspect(space: &Space, items: Vec<InspectItem>) -> Input {
    let look = |item: InspectItem| {
        let index = item.index;
        let found = fenced(space.inspect(item))?;
        Ok((index, found.unwrap_or_else(Inspected::Failed)))
    };
    let inspected = match space.meet(&items) {
        Ok(()) => each_held(space, items, look),
        Err(error) if error.kind == ErrorKind::LeaseLost => Err(error),
        // The other writers of these files are unknown, so all files of the batch fail.
        Err(error) => Ok(items
            .iter()
            .map(|item| (item.index, Inspected::Failed(error.clone())))
            .collect()),
    };
    inspected.map_or_else(Input::LeaseLost, Input::Inspected)
}

/// Returns the events that report a prepared file. The ranges of an earlier run and the layout come
/// first.
fn prepared(
    index: FileIndex,
    result: Result<(Arc<OpenFile>, Option<Kept>), Error>,
) -> Vec<SinkEvent> {
    let mut events = Vec::with_capacity(3);
    let result = result.map(|(open, kept)| {
        if let Some(Kept { done, is_moved }) = kept {
            events.push(SinkEvent::Input(Input::Kept {
                index,
                done,
                is_moved,
            }));
        }
        if let Some(layout) = open.layout.clone() {
            events.push(SinkEvent::Input(Input::Placed(index, layout)));
        }
        open
    });
    events.push(SinkEvent::Prepared(index, result));
    events
}

fn publish(space: &Space, items: Vec<(Option<Arc<OpenFile>>, PublishItem)>) -> Input {
    let publish_one = |(open, item): (Option<Arc<OpenFile>>, PublishItem)| {
        fenced(space.publish(open.as_ref(), &item)).map(|result| (item.index, result))
    };
    let (many, others) = match space.takes_many() {
        true => items
            .into_iter()
            .partition(|(_, item)| item.small && item.size > 0),
        false => (Vec::new(), items),
    };
    let published = publish_many(space, many).and_then(|mut published| {
        published.extend(each_held(space, others, publish_one)?);
        Ok(published)
    });
    published.map_or_else(Input::LeaseLost, Input::Published)
}

impl Space {
    /// Replaces the paths of log files in errors by the folder that the user named.
    pub(super) fn in_plain_words(&self, input: Input) -> Input {
        let told = |error| about_folder(error, &self.words, LogStep::Use);
        match input {
            Input::Logged(group, result) => Input::Logged(group, result.map_err(told)),
            Input::LogRemoved(result) => Input::LogRemoved(result.map_err(told)),
            Input::LeaseLost(error) => Input::LeaseLost(told(error)),
            Input::Inspected(mut items) => {
                for (_, inspected) in &mut items {
                    if let Inspected::Failed(error) = inspected {
                        *error = told(error.clone());
                    }
                }
                Input::Inspected(items)
            }
            other => other,
        }
    }
}

/// A file, and the result of publishing it.
type Named = (FileIndex, Result<(), Error>);

/// Publishes small files in batches.
fn publish_many(
    space: &Space,
    items: Vec<(Option<Arc<OpenFile>>, PublishItem)>,
) -> Result<Vec<Named>, Error> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let items: Vec<PublishItem> = items.into_iter().map(|(_, item)| item).collect();
    let published = space.publish_many(&items).into_iter().map(fenced);
    let each = items.iter().zip(published);
    each.map(|(item, result)| result.map(|result| (item.index, result)))
        .collect()
}

/// Separates two kinds of errors. A lost lease ends the session, and is the outer error. Any other
/// error concerns only the present file.
pub(super) fn fenced<T>(result: Result<T, Error>) -> Result<Result<T, Error>, Error> {
    match result {
        Err(error) if error.kind == ErrorKind::LeaseLost => Err(error),
        result => Ok(result),
    }
}

/// Calls `work` if the lease is held.
fn held(space: &Space, work: impl FnOnce() -> Input) -> Input {
    match space.check_lease() {
        Ok(()) => work(),
        Err(error) => Input::LeaseLost(error),
    }
}

/// Calls `work` with each item. Checks the lease before each call: if the lease is lost, its new
/// holder may already be writing.
fn each_held<T, U>(
    space: &Space,
    items: Vec<T>,
    mut work: impl FnMut(T) -> Result<U, Error>,
) -> Result<Vec<U>, Error> {
    let work = |item| space.check_lease_often().and_then(|()| work(item));
    items.into_iter().map(work).collect()
}
