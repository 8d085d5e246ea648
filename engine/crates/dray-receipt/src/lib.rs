//! The format of receipts: signed records of ended transfers.
//!
//! Purpose: encodes, signs, parses and verifies receipts, and verifies the hash chain of an
//! endpoint's receipts. A receipt is a text: the first line is the signed head, and the following
//! lines are the list of files. The head contains the digest of the list, and the id of the
//! endpoint's previous receipt.
//!
//! Non-goals: files, the time of writing, and the decision which transfers get a receipt.
//!
//! Invariant of this crate: a receipt or chain that is accepted has, byte for byte, the content that
//! the holder of the key has signed.

mod chain;
mod head;
mod jws;
mod keys;
mod list;
mod ring;

pub use chain::{CHECKPOINT_TYPE, Chain, Checkpoint};
pub use head::{
    Break, ByteCounts, EndpointPart, FileCounts, Head, ListPart, ObjectCounts, PlanPart,
    RECEIPT_TYPE, TransferPart,
};
pub use jws::{LINE_BYTES_MAX, id_of, sign, unverified, verify_checkpoint, verify_receipt};
pub use keys::{PublicKey, SigningKey};
pub use list::{FileLine, ListDigest};
pub use ring::KeyRing;

use dray_core::{End, Error, ErrorKind};

/// Returns the error for a receipt, chain or key that fails a check.
fn refused(kind: ErrorKind, cause: impl Into<String>, remedy: &str) -> Error {
    Error::new(kind, End::Here, "verify the receipt")
        .cause(cause)
        .remedy(remedy)
}

/// Advice for a receipt whose bytes are not those that were signed.
const CHANGED: &str = "get the receipt again from the endpoint or from a backup, and do not trust \
    this copy";

#[cfg(test)]
mod tests;
