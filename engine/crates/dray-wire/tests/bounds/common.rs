//! Helpers for the tests of limits.

use dray_core::{Entry, EntryKind, FileIndex, Metadata, Name, TransferId};
use dray_wire::codec::{PREFIX_BYTES, Prefix, decode, encode};
use dray_wire::message::{Connect, Hello, Limits, Message, Role, Selection};

/// Returns a frame with any body and the correct checksum.
pub(crate) fn framed(number: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short");
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend_from_slice(&[number, flags, 0, 0]);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&frame), body);
    frame.extend_from_slice(&crc.to_le_bytes());
    frame.extend_from_slice(body);
    frame
}

pub(crate) fn decoded(frame: &[u8], limits: &Limits) -> dray_core::Result<Option<Message>> {
    let (prefix, body) = frame.split_first_chunk::<PREFIX_BYTES>().expect("a prefix");
    decode(
        &Prefix::parse(prefix, limits.control_bytes_max)?,
        body,
        limits,
    )
}

pub(crate) fn try_encode(
    message: &Message,
    limits: &Limits,
) -> dray_core::Result<(Vec<u8>, usize)> {
    let mut out = b"before".to_vec();
    match encode(message, limits, &mut out) {
        Ok(frames) => Ok((out.split_off(6), frames)),
        Err(error) => {
            assert_eq!(out, b"before", "a refused message leaves nothing behind");
            Err(error)
        }
    }
}

pub(crate) fn file(name: &[u8]) -> Entry {
    Entry {
        index: FileIndex(7),
        parent: None,
        name: Name::new(name).expect("a name"),
        kind: EntryKind::File {
            size: 1,
            sparse: false,
        },
        metadata: Metadata::default(),
    }
}

pub(crate) fn connect() -> Connect {
    Connect {
        transfer: TransferId::new("t").expect("an id"),
        attempt: 1,
        passive_role: Role::Sink,
        paths: vec![b"/data".to_vec()],
        selection: Selection::default(),
        options: dray_core::options::Options::default(),
        demanded: None,
        streams: 4,
        clear_data: false,
        addresses: Vec::new(),
        trace: None,
    }
}

pub(crate) fn hello() -> Hello {
    Hello {
        versions: (1, 1),
        mandatory: 0,
        optional: 0,
        limits: Limits::default(),
        checksums: vec![1],
        software: String::new(),
        token: Vec::new(),
    }
}
