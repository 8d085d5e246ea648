//! Checks whether an existing file has the demanded content.
//!
//! Invariant of this module: a demanded checksum is compared with bytes that this module reads from
//! the file. A checksum that is stored with the file is not trusted, because the owner of the file
//! can write any value. Stores whose server computes checksums are an exception ([`sums`]).

use dray_core::checksum::Summer;
use dray_core::{ContentKey, End, Error, ErrorKind, RelPath, Result, Sums};
use dray_link::pool::PIECE_BYTES;
use dray_store::{FileKind, FileState, ReadPurpose, Store};

/// Returns the checksums of the file at `path`, if a checksum is demanded and the file has the
/// source's size and time. Otherwise returns `None`. The read ends early when `is_over` returns
/// true.
///
/// If the store's server computes checksums ([`dray_store::Capabilities::compares_sums`]), this
/// function does not read the file. It returns the checksums that are stored with the file
/// ([`Store::known_sums`]).
///
/// # Errors
/// Errors of the store. [`ErrorKind::Cancelled`] if `is_over` ended the read.
pub(super) fn sums(
    store: &dyn Store,
    path: &RelPath,
    state: &FileState,
    key: &ContentKey,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<Sums>> {
    let is_same = state.kind == FileKind::File
        && state.size == key.size
        && state
            .modified
            .equal_at(&key.modified, key.precision_nanoseconds);
    if key.demanded.is_none() || !is_same {
        return Ok(None);
    }
    if store.capabilities().compares_sums {
        return store.known_sums(path);
    }
    let handle = store.open_read(path, ReadPurpose::ReadBack)?;
    let mut summer = Summer::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < key.size {
        if is_over() {
            return Err(
                Error::new(ErrorKind::Cancelled, End::Sink, "compare the existing file")
                    .cause("the transfer is being stopped"),
            );
        }
        let got = handle.read_at(at, &mut piece)?;
        if got == 0 {
            break;
        }
        summer.update(&piece[..got]);
        at += got as u64;
    }
    // If the file's size changed during the read, the checksums belong to no known content.
    Ok((at == key.size).then(|| summer.finish()))
}
