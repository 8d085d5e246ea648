//! Records of a checkpoint, as bytes.

use dray_core::checksum::crc32c;
use dray_core::{Entry, EntryKind, FileIndex, Metadata, Name, Result};
use dray_store::Listed;
use dray_wire::bounds::entry_bytes;
use dray_wire::codec::{Decoder, encode};
use dray_wire::message::{Limits, Message};

/// First bytes of a checkpoint.
pub(super) const MAGIC: &[u8; 8] = b"DRAYLIST";
const VERSION: u16 = 1;

/// Size in bytes of the prelude: magic, version, a zero u16, and the crc32c of these 12 bytes.
pub(super) const PRELUDE_BYTES: usize = 16;

/// Size in bytes of the head of a record: body length and crc32c.
pub(super) const HEAD_BYTES: usize = 8;

/// Maximum size in bytes of the body of a record. A record of entries is written when it has
/// [`CHUNK_BYTES`], and its last entry has at most 200 KiB.
pub(super) const BODY_BYTES_MAX: u32 = 1 << 20;

/// Number of bytes after which the entries of a folder are written. The value is estimated, not
/// measured.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// Index of an entry whose layout differs from the layout of its folder.
const OTHER_LAYOUT: u64 = 1;

/// A record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// The first record.
    Header {
        /// Time at which the listing began, in seconds since 1970.
        created: u64,
        key: &'a [u8],
    },
    /// The listing of a folder begins.
    Folder {
        folder: u32,
        root: u32,
        path: &'a [u8],
        version: &'a [u8],
    },
    /// Entries of a folder, as NEW_FILES frames of the wire protocol.
    Entries { folder: u32, frames: &'a [u8] },
    /// The listing of a folder is complete. The frame has one entry with the folder's attributes.
    End { folder: u32, frames: &'a [u8] },
    /// The records of the folders with this path do not count any more.
    Forget { path: &'a [u8] },
}

/// Returns the first bytes of a checkpoint.
pub(super) fn prelude() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0, 0]);
    let sum = crc32c(&[&bytes]);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Appends a record that begins at `offset` in the file.
pub(super) fn put(record: &Record<'_>, offset: u64, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    match record {
        Record::Header { created, key } => {
            body.push(1);
            body.extend_from_slice(&created.to_le_bytes());
            body.extend_from_slice(key);
        }
        Record::Folder {
            folder,
            root,
            path,
            version,
        } => {
            body.push(2);
            body.extend_from_slice(&folder.to_le_bytes());
            body.extend_from_slice(&root.to_le_bytes());
            body.extend_from_slice(&(version.len() as u32).to_le_bytes());
            body.extend_from_slice(version);
            body.extend_from_slice(path);
        }
        Record::Entries { folder, frames } => {
            body.push(3);
            body.extend_from_slice(&folder.to_le_bytes());
            body.extend_from_slice(frames);
        }
        Record::End { folder, frames } => {
            body.push(4);
            body.extend_from_slice(&folder.to_le_bytes());
            body.extend_from_slice(frames);
        }
        Record::Forget { path } => {
            body.push(5);
            body.extend_from_slice(path);
        }
    }
    let length = (body.len() as u32).to_le_bytes();
    let sum = crc32c(&[&offset.to_le_bytes(), &length, &body]);
    out.extend_from_slice(&length);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&body);
}

/// Returns true if the checksum of a record at `offset` is right.
pub(super) fn is_whole(head: [u8; HEAD_BYTES], offset: u64, body: &[u8]) -> bool {
    let [l0, l1, l2, l3, c0, c1, c2, c3] = head;
    let sum = crc32c(&[&offset.to_le_bytes(), &[l0, l1, l2, l3], body]);
    sum == u32::from_le_bytes([c0, c1, c2, c3])
}

/// Parses the body of a record. Returns `None` if it has not the form of a record.
pub(super) fn parse(body: &[u8]) -> Option<Record<'_>> {
    let (kind, rest) = body.split_first()?;
    match kind {
        1 => {
            let (created, key) = rest.split_first_chunk::<8>()?;
            let created = u64::from_le_bytes(*created);
            Some(Record::Header { created, key })
        }
        2 => {
            let (folder, rest) = number(rest)?;
            let (root, rest) = number(rest)?;
            let (length, rest) = number(rest)?;
            let (version, path) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some(Record::Folder {
                folder,
                root,
                path,
                version,
            })
        }
        3 => number(rest).map(|(folder, frames)| Record::Entries { folder, frames }),
        4 => number(rest).map(|(folder, frames)| Record::End { folder, frames }),
        5 => Some(Record::Forget { path: rest }),
        _ => None,
    }
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}

/// Returns the recorded form of an entry. `is_plain` is true if the entry has the layout of its
/// folder.
pub(super) fn entry(item: &Listed, is_plain: bool) -> Entry {
    Entry {
        index: FileIndex(if is_plain { 0 } else { OTHER_LAYOUT }),
        parent: None,
        name: item.name.clone(),
        kind: item.kind.clone(),
        metadata: item.metadata.clone(),
    }
}

/// Returns true if a recorded entry has the layout of its folder.
pub(super) fn is_plain(entry: &Entry) -> bool {
    entry.index.0 != OTHER_LAYOUT
}

/// Returns the approximate number of bytes of a recorded entry.
pub(super) fn bytes_of(entry: &Entry) -> usize {
    let bytes = entry_bytes(entry, entry.name.as_bytes().len());
    usize::try_from(bytes).map_or(CHUNK_BYTES, |bytes| bytes + 64)
}

/// Returns the name in the end of a top folder that has no name of its own.
pub(super) fn top_name() -> Option<Name> {
    Name::new(b"top").ok()
}

/// Returns the entry that carries the attributes of a folder.
pub(super) fn folder_end(name: &Name, metadata: &Metadata) -> Entry {
    Entry {
        index: FileIndex(0),
        parent: None,
        name: name.clone(),
        kind: EntryKind::DirectoryEnd,
        metadata: metadata.clone(),
    }
}

fn limits() -> Limits {
    Limits {
        control_bytes_max: BODY_BYTES_MAX,
        ..Limits::before_hello()
    }
}

/// Encodes a message as frames of the wire protocol.
///
/// # Errors
/// If an entry exceeds a limit of the wire protocol.
pub(super) fn frames(message: &Message) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    encode(message, &limits(), &mut bytes)?;
    Ok(bytes)
}

/// Decodes the entries of a record.
///
/// # Errors
/// The cause, if the bytes are not NEW_FILES frames.
pub(super) fn entries(mut bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let mut decoder = Decoder::new(limits());
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        match decoder.next(&mut bytes) {
            Ok(Some(Message::NewFiles(more))) => entries.extend(more),
            Ok(_) => return Err("a record of entries has another form".to_owned()),
            Err(error) => return Err(error.cause),
        }
    }
    Ok(entries)
}
