//! Copies a tree of small files through two POSIX stores on one thread, as the I/O threads of a
//! sink would. Also measures the methods of making groups of files durable. The constants in
//! `posix/sync.rs` come from these measurements.
//!
//! ```text
//! cargo run --release -p dray-store --example small_files -- copy SOURCE SINK
//! cargo run --release -p dray-store --example small_files -- sync FOLDER
//! ```
#![expect(clippy::print_stdout, reason = "a program")]

use dray_core::{End, EntryKind, Metadata, Name, RelPath, Result};
use dray_store::{
    Attributes, ListOptions, PartialId, PosixOptions, PosixStore, Publish, ReadExt, ReadPurpose,
    Store, StoreExt, SyncItem,
};
use std::path::Path;
use std::time::Instant;

/// Number of bytes written between two syncs.
const GROUP_BYTES: usize = 64 << 20;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["copy", source, sink] => copy(source, sink, true)?,
        ["copy-unsynced", source, sink] => copy(source, sink, false)?,
        ["sync", folder] => sync(folder)?,
        _ => return Err("copy SOURCE SINK | copy-unsynced SOURCE SINK | sync FOLDER".into()),
    }
    Ok(())
}

fn open(root: &str, end: End) -> Result<PosixStore> {
    let options = PosixOptions {
        create: end == End::Sink,
        ..PosixOptions::default()
    };
    PosixStore::open(Path::new(root), end, options)
}

fn copy(source: &str, sink: &str, is_synced: bool) -> Result<()> {
    let (source, sink) = (open(source, End::Source)?, open(sink, End::Sink)?);
    let started = Instant::now();
    let mut buffer = vec![0; 64 << 20];
    let mut folder = RelPath::root();
    let mut group: Vec<Written> = Vec::new();
    let (mut files, mut bytes, mut group_bytes) = (0u64, 0u64, 0);
    for item in source.list(&RelPath::root(), &ListOptions::default())? {
        let listed = item?;
        match listed.kind {
            EntryKind::Directory => {
                folder = folder.join(&listed.name)?;
                sink.make_dir(&folder)?;
            }
            EntryKind::DirectoryEnd => {
                sink.set_directory(&folder, &listed.metadata)?;
                folder = folder.parent().unwrap_or_else(RelPath::root);
            }
            EntryKind::File { .. } => {
                let path = folder.join(&listed.name)?;
                let handle = source.open_read(&path, ReadPurpose::Transfer)?;
                let count = handle.read_full_at(0, &mut buffer)?;
                handle.state()?;
                let partial = Name::new(format!(".dray-{files:x}").as_bytes())?;
                let attributes = Attributes::of(&listed.metadata);
                let id = sink.write_small(&path, &partial, &buffer[..count], &[], &attributes)?;
                files += 1;
                bytes += count as u64;
                group_bytes += count;
                group.push((path, partial, id));
                if group_bytes >= GROUP_BYTES {
                    publish(&sink, &mut group, is_synced)?;
                    group_bytes = 0;
                }
            }
            EntryKind::Symlink { target } => {
                let path = folder.join(&listed.name)?;
                let partial = Name::new(b".dray-link")?;
                let how = Publish::Replace;
                sink.make_symlink(&path, &partial, &target, &listed.metadata, how)?;
            }
        }
    }
    publish(&sink, &mut group, is_synced)?;
    let seconds = started.elapsed().as_secs_f64();
    println!("{files} files, {bytes} bytes in {seconds:.2} s");
    Ok(())
}

type Written = (RelPath, Name, PartialId);

fn publish(sink: &PosixStore, group: &mut Vec<Written>, is_synced: bool) -> Result<()> {
    if is_synced {
        let items: Vec<_> = group
            .iter()
            .map(|(path, name, _)| SyncItem::Partial { path, name })
            .collect();
        sink.sync_all(&items)?;
    }
    for (path, name, id) in group.iter() {
        sink.publish_small(path, name, *id, Publish::Replace)?;
    }
    if is_synced {
        let mut folders: Vec<_> = group
            .iter()
            .filter_map(|(path, ..)| path.parent())
            .collect();
        folders.sort();
        folders.dedup();
        let items: Vec<_> = folders.iter().map(SyncItem::Folder).collect();
        sink.sync_all(&items)?;
    }
    group.clear();
    Ok(())
}

/// Measures the time to sync groups of small files, one by one and with a single call.
fn sync(folder: &str) -> Result<()> {
    let store = open(folder, End::Sink)?;
    let metadata = Metadata {
        mode: 0o644,
        ..Metadata::default()
    };
    let bytes = vec![7; 16 << 10];
    println!("files  one by one ms  together ms");
    for count in [1, 2, 4, 8, 16, 32, 64, 256] {
        let mut times = [0.0; 2];
        for round in 0..5 {
            for (way, time) in times.iter_mut().enumerate() {
                let files: Vec<(RelPath, Name)> = (0..count)
                    .map(|index| {
                        let text = format!("f-{count}-{round}-{way}-{index}");
                        let path = RelPath::parse(text.as_bytes())?;
                        let partial = Name::new(format!(".dray-{text}").as_bytes())?;
                        Ok((path, partial))
                    })
                    .collect::<Result<_>>()?;
                for (path, partial) in &files {
                    store.write_small(path, partial, &bytes, &[], &Attributes::of(&metadata))?;
                }
                let items: Vec<_> = files
                    .iter()
                    .map(|(path, name)| SyncItem::Partial { path, name })
                    .collect();
                let started = Instant::now();
                match way {
                    0 => items.iter().try_for_each(|item| store.sync_all(&[*item]))?,
                    _ => {
                        // Repeat the items, so that there are enough of them for one `syncfs`
                        // instead of many `fsync`.
                        let many: Vec<_> = items.iter().cycle().take(4096).copied().collect();
                        store.sync_all(&many)?;
                    }
                }
                *time += started.elapsed().as_secs_f64() * 1000.0 / 5.0;
                for (path, partial) in &files {
                    store.discard(path, partial, None)?;
                }
            }
        }
        println!("{count:5}  {:13.2}  {:11.2}", times[0], times[1]);
    }
    Ok(())
}
