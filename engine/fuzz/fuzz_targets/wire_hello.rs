//! Negotiates with two HELLO messages. Both ends derive the same agreement, or both fail.
#![no_main]

use dray_wire::codec::{PREFIX_BYTES, Prefix, decode, frame_type};
use dray_wire::message::{Hello, Limits, Message};
use dray_wire::negotiate::negotiate;
use libfuzzer_sys::fuzz_target;

fn hello(frame: &[u8]) -> Option<Hello> {
    let mut frame = dray_fuzz::framed(frame)?;
    frame[4] = frame_type::HELLO;
    dray_fuzz::seal(&mut frame);
    let limits = Limits::before_hello();
    let (prefix, body) = frame.split_first_chunk::<PREFIX_BYTES>()?;
    let prefix = Prefix::parse(prefix, limits.control_bytes_max).ok()?;
    match decode(&prefix, body, &limits) {
        Ok(Some(Message::Hello(hello))) => Some(hello),
        _ => None,
    }
}

fuzz_target!(|data: &[u8]| {
    // Split the data into two frames where the first frame ends according to its length.
    let announced = data
        .first_chunk()
        .map_or(0, |length| u32::from_le_bytes(*length) as usize);
    let cut = announced.saturating_add(PREFIX_BYTES).min(data.len());
    let (first, second) = data.split_at(cut);
    let (Some(ours), Some(theirs)) = (hello(first), hello(second)) else {
        return;
    };
    match (negotiate(&ours, &theirs), negotiate(&theirs, &ours)) {
        (Ok(here), Ok(there)) => {
            assert_eq!(here, there);
            assert!(here.version >= ours.versions.0 && here.version <= theirs.versions.1);
        }
        (Err(_), Err(_)) => {}
        (here, there) => panic!("{here:?} at one end, {there:?} at the other"),
    }
});
