//! Verifies the folder with the receipts of an endpoint.

use super::{Verified, failed, first_line, open, receipt, unreadable};
use crate::exit::{Exit, Stop};
use dray_core::{End, Error, ErrorKind};
use dray_receipt::{Chain, Checkpoint, KeyRing, verify_checkpoint};
use std::path::{Path, PathBuf};

fn broken(cause: String, remedy: &str) -> Stop {
    let error = Error::new(
        ErrorKind::ChecksumMismatch,
        End::Here,
        "verify the receipts",
    );
    Stop {
        exit: Exit::SomeFailed,
        error: error.cause(cause).remedy(remedy),
    }
}

/// Verifies all receipts of a folder, and that `one` is one of them. Returns the number of receipts.
pub(super) fn verify(
    folder: &Path,
    keys: &KeyRing,
    last: Option<&str>,
    one: Option<&Verified>,
) -> Result<u64, Stop> {
    let mut chain = Chain::new(checkpoint(folder, keys)?);
    let mut is_found = false;
    for path in receipts(folder)? {
        let verified = receipt(&path, keys).map_err(|error| failed(&path, error))?;
        let added = chain.add(&verified.head, &verified.id);
        added.map_err(|error| failed(&path, error))?;
        is_found |= one.is_some_and(|one| one.id == verified.id);
    }
    if chain.last().is_none() {
        return Err(broken(
            format!(
                "{} contains neither a receipt nor a checkpoint",
                folder.display()
            ),
            "give the folder of the receipts; after the first transfer it is never empty",
        ));
    }
    if one.is_some() && !is_found {
        return Err(broken(
            format!(
                "the receipt is not one of the receipts in {}",
                folder.display()
            ),
            "give the folder of the endpoint that signed the receipt; do not trust the receipt if \
                its number is in the folder",
        ));
    }
    let newest = chain.last().map(|(_, id)| id);
    if last.is_some() && last != newest {
        return Err(broken(
            format!(
                "the newest receipt in {} is {}, not {}",
                folder.display(),
                newest.unwrap_or("none"),
                last.unwrap_or_default()
            ),
            "copy the folder again; if the endpoint wrote no receipt since, receipts were removed",
        ));
    }
    Ok(chain.count())
}

fn checkpoint(folder: &Path, keys: &KeyRing) -> Result<Option<Checkpoint>, Stop> {
    let path = folder.join("checkpoint");
    if !path.exists() {
        return Ok(None);
    }
    let line = first_line(&path, &mut open(&path)?);
    let read = line.and_then(|line| verify_checkpoint(&line, keys));
    let (point, _) = read.map_err(|error| failed(&path, error))?;
    Ok(Some(point))
}

/// Returns the receipts of a folder in the order of their numbers. Only the signed numbers are
/// trusted: a renamed file breaks the chain.
fn receipts(folder: &Path) -> Result<Vec<PathBuf>, Stop> {
    let items = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    let mut paths = Vec::new();
    for item in items {
        let path = item.map_err(|error| unreadable(folder, &error))?.path();
        if path.extension().is_some_and(|end| end == "receipt") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
