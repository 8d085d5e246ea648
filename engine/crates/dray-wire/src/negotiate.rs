//! Negotiation of session parameters. The result depends only on the two HELLOs and is the same at
//! both ends.

use crate::bounds;
use crate::message::{Hello, Limits, checksum_id, mandatory, optional};
use dray_core::{End, Error, ErrorKind, Result, StreamId, plan};

/// Oldest protocol version that this build supports.
pub const VERSION_OLDEST: u16 = 1;
/// Newest protocol version that this build supports.
pub const VERSION_NEWEST: u16 = 1;

/// [`mandatory`] bits that this build knows.
pub const MANDATORY_KNOWN: u64 = mandatory::PACKS | mandatory::KEEPS_NOTHING;
/// [`mandatory`] bits that every session of this build uses.
pub const MANDATORY_USED: u64 = mandatory::PACKS;
/// [`optional`] bits that this build knows.
pub const OPTIONAL_KNOWN: u64 = optional::HOLES
    | optional::XATTRS
    | optional::CLEAR_DATA
    | optional::NULL_MEANT
    | optional::EARLY_ENTRIES
    | optional::RESUME
    | optional::STRIPES
    | optional::LAYOUTS;
/// [`checksum_id`]s that this build can compute, in order of preference.
pub const CHECKSUMS_KNOWN: &[u8] = &[checksum_id::CRC32C_ADLER32];

/// Parameters that apply after both HELLOs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Newest version that both ends support.
    pub version: u16,
    /// Mandatory bits that one or both ends use. Both ends know all of these bits.
    pub mandatory: u64,
    /// Optional bits that both ends support.
    pub optional: u64,
    /// The lower value of the two ends for each limit.
    pub limits: Limits,
    /// Number of the checksum algorithm ([`checksum_id`]) for segments and files.
    pub checksum: u8,
}

impl Agreed {
    /// Returns true if the session uses the feature `optional_bit` of [`optional`].
    #[must_use]
    pub const fn has(&self, optional_bit: u64) -> bool {
        self.optional & optional_bit != 0
    }

    /// Returns true if an end has announced that its sink stores nothing.
    #[must_use]
    pub const fn keeps_nothing(&self) -> bool {
        self.mandatory & mandatory::KEEPS_NOTHING != 0
    }
}

/// Negotiates the parameters of a session. Both ends compute the same result.
///
/// # Errors
/// [`ErrorKind::IncompatiblePeer`] if the ends have no common version or checksum algorithm, or
/// this end does not know a mandatory bit. [`ErrorKind::LimitExceeded`] if a declared limit is
/// below its minimum.
pub fn negotiate(ours: &Hello, theirs: &Hello) -> Result<Agreed> {
    Ok(Agreed {
        version: version(ours, theirs)?,
        mandatory: mandatory_bits(ours, theirs)?,
        optional: ours.optional & theirs.optional & OPTIONAL_KNOWN,
        limits: lower(&checked(ours)?, &checked(theirs)?),
        checksum: checksum(ours, theirs)?,
    })
}

fn incompatible(ours: &Hello, theirs: &Hello, cause: String, remedy: String) -> Error {
    let operation = format!(
        "agree with the peer on the protocol (the peer is {}, this end is {})",
        theirs.software.escape_debug(),
        ours.software.escape_debug()
    );
    Error::new(ErrorKind::IncompatiblePeer, End::Network, operation)
        .cause(cause)
        .remedy(remedy)
}

fn version(ours: &Hello, theirs: &Hello) -> Result<u16> {
    let common = ours.versions.1.min(theirs.versions.1);
    if common >= ours.versions.0 && common >= theirs.versions.0 {
        return Ok(common);
    }
    let cause = format!(
        "this end supports the protocol versions {} to {}, and the peer supports {} to {}",
        ours.versions.0, ours.versions.1, theirs.versions.0, theirs.versions.1
    );
    let older = if ours.versions.1 < theirs.versions.1 {
        "this end"
    } else {
        "the peer"
    };
    Err(incompatible(
        ours,
        theirs,
        cause,
        format!("install a newer dray at {older}"),
    ))
}

fn mandatory_bits(ours: &Hello, theirs: &Hello) -> Result<u64> {
    let wanted = ours.mandatory | theirs.mandatory;
    let unknown = wanted & !MANDATORY_KNOWN;
    if unknown == 0 {
        return Ok(wanted);
    }
    let bits: Vec<String> = (0..64)
        .filter(|bit| unknown >> bit & 1 == 1)
        .map(|bit: u32| bit.to_string())
        .collect();
    let cause = format!(
        "this end does not support the mandatory feature bits {}",
        bits.join(", ")
    );
    Err(incompatible(
        ours,
        theirs,
        cause,
        "install the same version at both ends".into(),
    ))
}

/// Returns the common algorithm with the lowest sum of its positions in both lists. If two
/// algorithms have the same sum, the one with the lower number wins. The rule must be symmetric,
/// because neither HELLO counts as the first.
fn checksum(ours: &Hello, theirs: &Hello) -> Result<u8> {
    let place = |list: &[u8], id: u8| list.iter().position(|other| *other == id);
    let common = ours.checksums.iter().filter_map(|id| {
        let sum = place(&ours.checksums, *id)? + place(&theirs.checksums, *id)?;
        Some((sum, *id))
    });
    common.min().map(|(_, id)| id).ok_or_else(|| {
        let cause = format!(
            "no common checksum algorithm: this end supports {:?}, and the peer supports {:?}",
            ours.checksums, theirs.checksums
        );
        incompatible(
            ours,
            theirs,
            cause,
            "install the same version at both ends".into(),
        )
    })
}

fn checked(hello: &Hello) -> Result<Limits> {
    let limits = hello.limits;
    let floors = [
        (
            "control_bytes_max",
            u64::from(limits.control_bytes_max),
            u64::from(bounds::CONTROL_BYTES_MIN),
        ),
        (
            "object_bytes_max",
            limits.object_bytes_max,
            plan::OBJECT_BYTES_MIN,
        ),
        ("segments_max", limits.segments_max.into(), 1),
        ("live_entries_max", limits.live_entries_max.into(), 1),
    ];
    for (name, have, least) in floors {
        if have < least {
            let operation = format!("agree on limits with {}", hello.software.escape_debug());
            return Err(
                Error::new(ErrorKind::LimitExceeded, End::Network, operation)
                    .cause(format!(
                        "the peer sent {name} = {have}, but at least {least} is needed"
                    ))
                    .remedy("use the same version of dray at both ends, and report this error"),
            );
        }
    }
    Ok(limits)
}

fn lower(ours: &Limits, theirs: &Limits) -> Limits {
    Limits {
        control_bytes_max: ours.control_bytes_max.min(theirs.control_bytes_max),
        object_bytes_max: ours.object_bytes_max.min(theirs.object_bytes_max),
        segments_max: ours.segments_max.min(theirs.segments_max),
        live_entries_max: ours.live_entries_max.min(theirs.live_entries_max),
    }
}

/// Prefix of the input of a JOIN's proof. Because of the prefix, an HMAC of other data with the
/// session key is never a valid proof.
const PROOF_LABEL: [u8; 16] = *b"dray join v1\0\0\0\0";

/// Length in bytes of the result of [`proof_input`].
pub const PROOF_INPUT_BYTES: usize = 16 + 16 + 4 + 32;

/// Returns the input of the proof with which a dialler shows that it knows the session key.
/// `Join::proof` is the HMAC-SHA256 of this input under `Accept::key`. The input consists of the
/// label (16 bytes: `dray join v1` and four zeros), the ticket (16 bytes), the stream number (4
/// bytes, little-endian) and the challenge (32 bytes).
#[must_use]
pub fn proof_input(
    ticket: &[u8; 16],
    stream: StreamId,
    challenge: &[u8; 32],
) -> [u8; PROOF_INPUT_BYTES] {
    let mut input = [0; PROOF_INPUT_BYTES];
    input[..16].copy_from_slice(&PROOF_LABEL);
    input[16..32].copy_from_slice(ticket);
    input[32..36].copy_from_slice(&stream.0.to_le_bytes());
    input[36..].copy_from_slice(challenge);
    input
}
