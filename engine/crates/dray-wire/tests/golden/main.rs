//! Tests with the recorded frames in integration/wire/golden. This build must write and read them
//! byte for byte. For each frame, a JSON file contains its content, for decoders in other
//! languages.
//!
//! `DRAY_BLESS=1 cargo test -p dray-wire --test golden` writes the frames again. If a frame
//! changes, the protocol changes. See "Versions" in docs/design/wire-protocol.md.

mod cases;
mod describe;

use dray_wire::codec::{
    Connection, FLAG_EXTENDED, PREFIX_BYTES, Preamble, Prefix, Security, decode, decode_block_head,
    decode_challenge, decode_join, encode, encode_block_head, encode_challenge, encode_join,
    frame_name, head_bytes_max,
};
use dray_wire::message::{Limits, Message};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

type Golden = BTreeMap<String, (Vec<u8>, Value)>;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../integration/wire/golden")
}

fn frame(connection: &str, number: u8, flags: u8, fields: Value) -> Value {
    json!({
        "connection": connection,
        "type": frame_name(number),
        "number": number,
        "flags": flags,
        "fields": fields,
    })
}

/// Returns a frame with any flags and body.
fn sealed(number: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short");
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[number, flags, 0, 0]);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), body);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn control(golden: &mut Golden) {
    for (name, message) in cases::messages() {
        let mut bytes = Vec::new();
        encode(&message, &Limits::default(), &mut bytes).expect("within the limits");
        let description = frame("control", bytes[4], bytes[5], describe::message(&message));
        golden.insert(name.into(), (bytes, description));
    }
    let ping = Message::Ping(1);
    let body = [&1u64.to_le_bytes()[..], b"of a later version"].concat();
    let bytes = sealed(0x30, FLAG_EXTENDED, &body);
    let description = frame("control", 0x30, FLAG_EXTENDED, describe::message(&ping));
    golden.insert("ping_extended".into(), (bytes, description));
    let bytes = sealed(0x90, 0x80, b"of a later version");
    golden.insert(
        "ignorable".into(),
        (bytes, frame("control", 0x90, 0x80, Value::Null)),
    );
}

fn data(golden: &mut Golden) {
    for (name, connection) in [("control", Connection::Control), ("data", Connection::Data)] {
        for (how, security) in [("tls", Security::Tls), ("clear", Security::Clear)] {
            let bytes = Preamble {
                connection,
                security,
            }
            .to_bytes()
            .to_vec();
            let description = json!({
                "connection": "preamble",
                "fields": {"connection": name, "security": how},
            });
            golden.insert(format!("preamble_{name}_{how}"), (bytes, description));
        }
    }
    let challenge = cases::CHALLENGE;
    let fields = json!({"challenge": describe::hex(&challenge.0)});
    let bytes = encode_challenge(&challenge).to_vec();
    golden.insert("challenge".into(), (bytes, frame("data", 0x40, 0, fields)));
    let join = cases::join();
    let bytes = encode_join(&join).to_vec();
    golden.insert(
        "join".into(),
        (bytes, frame("data", 0x41, 0, describe::join(&join))),
    );
    let (head, payload) = cases::block();
    let mut bytes = Vec::new();
    encode_block_head(&head, &Limits::default(), &mut bytes).expect("within the limits");
    bytes.extend_from_slice(&payload);
    let mut description = frame("data", 0x42, 0, describe::block_head(&head));
    description["payload"] = json!(describe::hex(&payload));
    golden.insert("block".into(), (bytes, description));
}

fn expected() -> Golden {
    let mut golden = Golden::new();
    control(&mut golden);
    data(&mut golden);
    golden
}

#[test]
fn frames_are_written_as_captured() {
    let folder = folder();
    if std::env::var_os("DRAY_BLESS").is_some() {
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("a writable tree");
        }
        fs::create_dir_all(&folder).expect("a writable tree");
        for (name, (bytes, description)) in expected() {
            let text = serde_json::to_string_pretty(&description).expect("JSON") + "\n";
            fs::write(folder.join(format!("{name}.bin")), bytes).expect("a writable tree");
            fs::write(folder.join(format!("{name}.json")), text).expect("a writable tree");
        }
    }
    let mut found = BTreeSet::new();
    for file in fs::read_dir(&folder).expect("the golden files") {
        let path = file.expect("the golden files").path();
        found.insert(
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned(),
        );
    }
    let mut wanted = BTreeSet::new();
    for (name, (bytes, description)) in expected() {
        for ending in ["bin", "json"] {
            wanted.insert(format!("{name}.{ending}"));
        }
        let captured = fs::read(folder.join(format!("{name}.bin"))).unwrap_or_default();
        assert_eq!(
            describe::hex(&captured),
            describe::hex(&bytes),
            "{name}.bin"
        );
        let text = fs::read_to_string(folder.join(format!("{name}.json"))).unwrap_or_default();
        assert_eq!(
            serde_json::from_str(&text).ok(),
            Some(description),
            "{name}.json"
        );
    }
    assert_eq!(found, wanted, "the folder holds these files and no others");
}

#[test]
fn captured_frames_are_read() {
    let limits = Limits::default();
    let mut numbers = BTreeSet::new();
    for (name, (bytes, description)) in expected() {
        let Some((prefix, body)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
            assert!(name.starts_with("preamble"));
            continue;
        };
        numbers.insert(prefix[4]);
        let found = match name.as_str() {
            "challenge" => {
                let challenge = decode_challenge(bytes[..].try_into().expect("its length"));
                json!({"challenge": describe::hex(&challenge.expect("good").0)})
            }
            "join" => {
                let join = decode_join(bytes[..].try_into().expect("its length"));
                describe::join(&join.expect("good"))
            }
            "block" => {
                let prefix = Prefix::parse(prefix, head_bytes_max(&limits)).expect("good");
                let (head, payload) = body.split_at(prefix.body_bytes as usize);
                let head = decode_block_head(&prefix, head, &limits).expect("good");
                let head = head.expect("a block");
                assert_eq!(head.payload_bytes(), Some(payload.len() as u64));
                describe::block_head(&head)
            }
            _ => {
                let prefix = Prefix::parse(prefix, limits.control_bytes_max).expect("good");
                let found = decode(&prefix, body, &limits).expect("good");
                found.map_or(Value::Null, |found| describe::message(&found))
            }
        };
        assert_eq!(found, description["fields"], "{name}");
    }
    let known = (0..=u8::MAX).filter(|number| frame_name(*number) != "unknown");
    let missing: Vec<&str> = known
        .filter(|number| !numbers.contains(number))
        .map(frame_name)
        .collect();
    assert_eq!(missing, [""; 0], "every frame type has a golden file");
}
