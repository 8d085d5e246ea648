//! Adds a data stream to a session. The listener sends a challenge, and the dialler proves that it
//! has the session's key.

use super::channel::Channel;
use super::fail;
use super::socket::is_hung_up;
use dray_core::{Result, StreamId};
use dray_wire::codec::{
    CHALLENGE_FRAME_BYTES, Challenge, JOIN_FRAME_BYTES, decode_challenge, decode_join,
    encode_challenge, encode_join,
};
use dray_wire::message::Join;
use dray_wire::negotiate::proof_input;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::io::{self, Read};

/// Returns bytes from the system's cryptographic random generator.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| fail::system("join a stream", "the system returned no random bytes"))?;
    Ok(bytes)
}

fn failed(error: &io::Error) -> dray_core::Error {
    fail::io_error("join a stream", error)
}

/// Sends the challenge (first step of the listener). Returns `None` if the dialler has closed the
/// connection, for the reasons given at [`answer`].
pub(super) fn challenge(channel: &mut Channel) -> Result<Option<Challenge>> {
    let challenge = Challenge(random()?);
    match channel.write_both(&encode_challenge(&challenge), &[]) {
        Ok(()) => Ok(Some(challenge)),
        Err(error) if is_hung_up(&error) => Ok(None),
        Err(error) => Err(failed(&error)),
    }
}

/// Receives the proof (second step of the listener); [`proof_holds`] verifies the proof. Returns
/// `None` if the dialler closes the connection without a message. A dialler does this if its
/// session was refused, if it was granted fewer streams than it had connected, or if its program
/// ended.
pub(super) fn answer(channel: &mut Channel) -> Result<Option<Join>> {
    let mut frame = [0; JOIN_FRAME_BYTES];
    let begun = match channel.read(&mut frame) {
        Ok(0) => return Ok(None),
        Ok(begun) => begun,
        Err(error) if is_hung_up(&error) => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    channel
        .read_exact(frame.get_mut(begun..).unwrap_or_default())
        .map_err(|error| failed(&error))?;
    decode_join(&frame).map(Some)
}

/// Returns true if the proof in `join` is right for this key and challenge. The comparison takes
/// constant time.
pub(super) fn proof_holds(key: &[u8; 32], join: &Join, challenge: &Challenge) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let input = proof_input(&join.ticket, join.stream, &challenge.0);
    hmac::verify(&key, &input, &join.proof).is_ok()
}

/// Receives the challenge (first step of the dialler).
pub(super) fn hear(channel: &mut Channel) -> Result<Challenge> {
    let mut frame = [0; CHALLENGE_FRAME_BYTES];
    channel
        .read_exact(&mut frame)
        .map_err(|error| failed(&error))?;
    decode_challenge(&frame)
}

/// Sends the proof (second step of the dialler). The listener does not reply: it closes the
/// connection of a refused stream.
pub(super) fn join(
    channel: &mut Channel,
    challenge: &Challenge,
    ticket: &[u8; 16],
    key: &[u8; 32],
    stream: StreamId,
) -> Result<()> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, &proof_input(ticket, stream, &challenge.0));
    let proof = tag.as_ref().try_into();
    let join = Join {
        ticket: *ticket,
        stream,
        proof: proof.map_err(|_| {
            fail::internal(
                "join a stream",
                "the authentication code (HMAC) of the data stream has a wrong length",
            )
        })?,
    };
    channel
        .write_both(&encode_join(&join), &[])
        .map_err(|error| failed(&error))
}
