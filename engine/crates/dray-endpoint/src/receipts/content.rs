//! The content of a receipt: the head, from the data that the queue stores at the end of an attempt,
//! and the list of files.

use dray_api::{Timestamp, Transfer};
use dray_core::options::Durability;
use dray_core::{End, Error, Result};
use dray_queue::DueReceipt;
use dray_receipt::{
    Break, ByteCounts, EndpointPart, FileCounts, FileLine, Head, ListDigest, ListPart,
    ObjectCounts, PlanPart, TransferPart,
};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

/// Maximum length of a line of the list in bytes. The queue writes no longer lines.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Maximum size in bytes of all source URLs in a head. A request with more sources would make the
/// head too long for [`dray_receipt::LINE_BYTES_MAX`].
const SOURCES_BYTES_MAX: usize = 1 << 20;

/// Returns the head of a receipt, without its place in the chain and without the list.
pub(super) fn head(due: &DueReceipt, endpoint: &str, issued_at: Timestamp) -> Head {
    let transfer = &due.transfer;
    let (files, bytes, objects) = (transfer.files, transfer.bytes, transfer.objects);
    Head {
        sequence: 0,
        previous: None,
        issued_at: issued_at.to_string(),
        endpoint: EndpointPart {
            name: endpoint.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        transfer: transfer_part(transfer),
        plan: plan_part(transfer),
        files: FileCounts {
            listed: files.listed,
            done: files.done,
            failed: files.failed,
            skipped: files.skipped,
            adopted: files.adopted,
        },
        bytes: ByteCounts {
            listed: bytes.listed,
            durable: bytes.durable,
            resumed: bytes.resumed,
            adopted: bytes.adopted,
            sent: bytes.sent,
            read_back: bytes.read_back,
            sent_again: 0,
        }
        .with_sent_again(),
        objects: ObjectCounts {
            sent: objects.sent,
            resumed: objects.resumed,
        },
        breaks: due
            .breaks
            .iter()
            .map(|broken| Break {
                number: broken.number.into(),
                at: broken.at.to_string(),
                kind: broken.kind.clone(),
                message: broken.message.clone(),
            })
            .collect(),
        error: (transfer.error.as_ref()).and_then(|error| serde_json::to_value(error).ok()),
        notices: transfer.notices.clone(),
        list: ListPart::default(),
    }
}

fn transfer_part(transfer: &Transfer) -> TransferPart {
    let request = &transfer.request;
    let sources = request.origin(transfer.source as usize);
    let durability = match request.durability {
        Durability::None => "none",
        Durability::File => "file",
        Durability::Object => "object",
    };
    let text = |at: Option<Timestamp>| at.map(|at| at.to_string());
    TransferPart {
        id: transfer.id.clone(),
        attempt: transfer.attempt.into(),
        tries: transfer.tries.into(),
        state: transfer.state.word().to_owned(),
        owner: transfer.owner.clone(),
        sources: bounded(sources.iter().map(|place| place.url.as_str())),
        sources_count: sources.len() as u64,
        destination: request.destination.url.clone(),
        durability: durability.to_owned(),
        submitted_at: transfer.submitted_at.to_string(),
        started_at: text(transfer.started_at),
        ended_at: text(transfer.ended_at),
    }
}

/// Returns the first URLs, with at most [`SOURCES_BYTES_MAX`] bytes in total.
fn bounded<'u>(urls: impl Iterator<Item = &'u str>) -> Vec<String> {
    let mut bytes = 0;
    let fits = |url: &&str| {
        bytes += url.len();
        bytes <= SOURCES_BYTES_MAX
    };
    urls.take_while(fits).map(ToOwned::to_owned).collect()
}

fn plan_part(transfer: &Transfer) -> PlanPart {
    let request = &transfer.request;
    let missed = request.deadline.map(|deadline| {
        let is_late = transfer.ended_at.is_none_or(|ended| ended > deadline);
        is_late || transfer.state != dray_api::State::Done
    });
    PlanPart {
        deadline: request.deadline.map(|at| at.to_string()),
        not_before: request.not_before.map(|at| at.to_string()),
        rate_min: request.rate_min,
        rate_max: request.rate_max,
        missed,
        rate_mean: transfer.rate.mean,
    }
}

/// Returns true if a receipt is that of an ended attempt.
pub(super) fn is_of(head: &Head, due: &DueReceipt) -> bool {
    let (written, transfer) = (&head.transfer, &due.transfer);
    written.id == transfer.id
        && written.attempt == u64::from(transfer.attempt)
        && written.submitted_at == transfer.submitted_at.to_string()
}

/// Calls `take` for each whole line of a list of files, with its line break. Skips lines that a
/// crash has cut off. A missing list has no lines.
fn each_line(
    list: &Path,
    mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let file = match File::open(list) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let text = line.strip_suffix(b"\n");
        if text.is_some_and(|text| FileLine::parse(text).is_ok()) {
            take(&line)?;
        }
    }
}

/// Returns the description of a list of files for the head.
pub(super) fn describe(list: &Path) -> Result<ListPart> {
    let mut digest = ListDigest::default();
    each_line(list, |line| {
        digest.add(line);
        Ok(())
    })
    .map_err(|error| {
        Error::new(error.kind().into(), End::Here, "read the list of files")
            .cause(format!("{}: {error}", list.display()))
            .remedy("check `state` in the endpoint's configuration")
    })?;
    Ok(digest.finish())
}

/// Copies a list of files to a receipt. Fails if the list is not the list that was signed, because
/// the file changed or a read returned other bytes. A receipt with such a list would never be valid.
pub(super) fn copy(list: &Path, signed: &ListPart, to: &mut impl Write) -> std::io::Result<()> {
    let mut digest = ListDigest::default();
    each_line(list, |line| {
        digest.add(line);
        to.write_all(line)
    })?;
    let compared = digest.compare(signed);
    compared.map_err(|error| std::io::Error::other(error.cause))
}
