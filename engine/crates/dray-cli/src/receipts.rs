//! `dray receipt`: saves, shows and verifies receipts. `show` and `verify` make no connection.

mod chain;
mod files;

use crate::args::{GetReceipt, Receipt, ReceiptKey, ShowReceipt, VerifyReceipt};
use crate::exit::{Exit, Stop, usage};
use crate::output;
use crate::peer;
use crate::transfers::quoted;
use crate::units::count;
use dray_api::ReceiptKeys;
use dray_core::{End, Error, ErrorKind, Result};
use dray_receipt::{Head, KeyRing, LINE_BYTES_MAX, ListDigest, id_of, unverified, verify_receipt};
use hyper::Method;
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Maximum size of a file of keys in bytes.
const KEYS_BYTES_MAX: u64 = 4 << 20;

/// Maximum length of a line of the list of files in bytes.
const LIST_LINE_BYTES_MAX: u64 = 1 << 20;

/// Runs `dray receipt`.
pub(crate) fn run(receipt: &Receipt) -> Result<Exit, Stop> {
    match receipt {
        Receipt::Get(get) => self::get(get),
        Receipt::Show(show) => self::show(show),
        Receipt::Verify(verify) => self::check(verify),
        Receipt::Key(key) => self::key(key),
    }
}

fn get(get: &GetReceipt) -> Result<Exit, Stop> {
    let client = peer::client(&get.ask.who, &peer::endpoint(get.endpoint.as_deref())?)?;
    let default = || PathBuf::from(format!("{}.receipt", get.id));
    let path = get.output.clone().unwrap_or_else(default);
    let unwritten = |error: std::io::Error| {
        let operation = format!("write {}", path.display());
        Error::new(error.kind().into(), End::Here, operation)
            .cause(error.to_string())
            .remedy("choose another file with --output")
    };
    let mut file = File::create_new(&path).map_err(unwritten)?;
    let call = format!("/v1/transfers/{}/receipt", quoted(get.id.as_str()));
    let saved = client.download(&call, &mut file);
    let saved = saved.and_then(|()| file.sync_all().map_err(unwritten));
    if let Err(error) = saved {
        // Do not leave a part of a receipt.
        let _ = std::fs::remove_file(&path);
        return Err(error.into());
    }
    let line = first_line(&path, &mut open(&path)?)?;
    if get.ask.json {
        let shown = json!({"file": path.to_string_lossy(), "id": id_of(&line)});
        output::result(&shown.to_string());
    } else {
        let line = format!("{}: receipt {}", path.display(), id_of(&line));
        output::result(&output::one_line(&line));
    }
    Ok(Exit::Safe)
}

fn key(key: &ReceiptKey) -> Result<Exit, Stop> {
    let client = peer::client(&key.ask.who, &peer::endpoint(key.endpoint.as_deref())?)?;
    let keys = client.ask::<ReceiptKeys>(Method::GET, "/v1/receipts/keys", None)?;
    let text = serde_json::to_string_pretty(&keys.json).unwrap_or_default();
    output::result(&text);
    Ok(Exit::Safe)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let operation = format!("read {}", path.display());
    Error::new(error.kind().into(), End::Here, operation)
        .cause(error.to_string())
        .remedy("correct the path")
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    Ok(BufReader::new(file))
}

/// Reads the signed line of a receipt or of a checkpoint, without the line break.
fn first_line(path: &Path, reader: &mut impl BufRead) -> Result<String> {
    let mut line = Vec::new();
    reader
        .take(LINE_BYTES_MAX as u64 + 1)
        .read_until(b'\n', &mut line)
        .map_err(|error| unreadable(path, &error))?;
    let text = line.strip_suffix(b"\n").map(<[u8]>::to_vec);
    let text = text.and_then(|text| String::from_utf8(text).ok());
    text.ok_or_else(|| {
        Error::new(ErrorKind::InvalidRequest, End::Here, "verify the receipt")
            .cause(format!(
                "{}: the first line is not a signed head, or is cut off",
                path.display()
            ))
            .remedy("give a file of dray receipt get, and do not trust this copy")
    })
}

/// Calls `take` for each line of the list of files, with its line break.
fn each_line(
    path: &Path,
    reader: &mut impl BufRead,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut *reader)
            .take(LIST_LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .map_err(|error| unreadable(path, &error))?;
        if read == 0 {
            return Ok(());
        }
        take(&line)?;
    }
}

fn keys(path: &Path) -> Result<KeyRing> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let read = file.take(KEYS_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|error| unreadable(path, &error))?;
    KeyRing::parse(&text)
}

/// A verified receipt.
struct Verified {
    head: Head,
    id: String,
    key: String,
}

/// Verifies the signature and the list of a receipt.
fn receipt(path: &Path, keys: &KeyRing) -> Result<Verified> {
    let mut reader = open(path)?;
    let line = first_line(path, &mut reader)?;
    let (head, key) = verify_receipt(&line, keys)?;
    let mut list = ListDigest::default();
    each_line(path, &mut reader, |line| {
        list.add(line);
        Ok(())
    })?;
    list.compare(&head.list)?;
    let id = id_of(&line);
    Ok(Verified { head, id, key })
}

/// Converts an error of a check to the end of the command.
fn failed(path: &Path, error: Error) -> Stop {
    let is_check = matches!(
        error.kind,
        ErrorKind::ChecksumMismatch | ErrorKind::Unauthorized | ErrorKind::InvalidRequest
    );
    let name = path.display().to_string();
    let error = match error.cause.contains(&name) {
        true => error,
        false => {
            let cause = format!("{name}: {}", error.cause);
            error.cause(cause)
        }
    };
    match is_check {
        true => Stop {
            exit: Exit::SomeFailed,
            error,
        },
        false => error.into(),
    }
}

/// Returns the file with the keys for a verification.
fn file_of_keys(asked: &VerifyReceipt) -> Result<PathBuf> {
    let folder = asked.chain.as_ref().filter(|_| asked.trust_folder_keys);
    let named = asked.key.clone();
    let named = named.or_else(|| folder.map(|folder| folder.join("keys.json")));
    named.ok_or_else(|| {
        usage(
            "no key is given, so the origin of the receipts cannot be verified",
            "give the endpoint's public keys with --key (see dray receipt key), or verify only \
                the integrity of the folder with --trust-folder-keys",
        )
    })
}

fn check(asked: &VerifyReceipt) -> Result<Exit, Stop> {
    let keys = keys(&file_of_keys(asked)?)?;
    let mut told = Vec::new();
    let mut found = json!({});
    if let Some(path) = &asked.file {
        let verified = receipt(path, &keys).map_err(|error| failed(path, error))?;
        let (head, id) = (&verified.head, &verified.id);
        told.push(format!(
            "receipt {id}: number {} of {}, transfer {} of {}: {}",
            head.sequence,
            head.endpoint.name,
            head.transfer.id,
            head.transfer.owner,
            head.transfer.state
        ));
        told.push(format!("signature: valid, key {}", verified.key));
        let missing = (head.files.listed_done()).saturating_sub(head.list.lines);
        let missed = match missing {
            0 => String::new(),
            missing => format!(
                "; without the lines of at least {}",
                count(missing, "complete file")
            ),
        };
        told.push(format!(
            "list of files: {}, as signed{missed}",
            count(head.list.lines, "line")
        ));
        found = json!({
            "id": id,
            "key": verified.key,
            "lines": head.list.lines,
            "lines_missing": missing,
        });
        if let Some(folder) = &asked.chain {
            let receipts = chain::verify(folder, &keys, asked.last.as_deref(), Some(&verified))?;
            told.push(format!(
                "chain: {}, complete, with this receipt",
                count(receipts, "receipt")
            ));
            found["chain"] = receipts.into();
        }
        if let Some(place) = &asked.files {
            let files = files::compare(path, head, place)?;
            told.push(format!("files: {files}"));
            let counts = &verified.head.files;
            let unlisted = counts.adopted + counts.skipped;
            if unlisted > 0 {
                told.push(format!(
                    "files that existed before the transfer, which are not in the list: {unlisted}"
                ));
            }
            found["files"] = json!({"compared": files.compared, "by_size": files.by_size});
        }
    } else if let Some(folder) = &asked.chain {
        let receipts = chain::verify(folder, &keys, asked.last.as_deref(), None)?;
        told.push(format!("chain: {}, complete", count(receipts, "receipt")));
        found["chain"] = receipts.into();
    }
    found["origin_verified"] = (!asked.trust_folder_keys).into();
    if asked.trust_folder_keys {
        told.push(
            "origin: not verified, because the keys are from the folder itself; only the integrity \
                is verified"
                .to_owned(),
        );
    }
    if asked.json {
        output::result(&found.to_string());
    } else {
        told.iter()
            .for_each(|line| output::result(&output::one_line(line)));
    }
    Ok(Exit::Safe)
}

fn show(show: &ShowReceipt) -> Result<Exit, Stop> {
    let path = &show.file;
    let line = first_line(path, &mut open(path)?).map_err(|error| failed(path, error))?;
    let (payload, head) = unverified::<Head>(&line).map_err(|error| failed(path, error))?;
    if show.json {
        output::result(&payload.to_string());
        return Ok(Exit::Safe);
    }
    for line in lines(&head, &id_of(&line)) {
        output::result(&output::one_line(&line));
    }
    output::note("the signature is not checked; see dray receipt verify");
    Ok(Exit::Safe)
}

/// Returns the contents of a head as lines.
fn lines(head: &Head, id: &str) -> Vec<String> {
    let (transfer, bytes, plan) = (&head.transfer, &head.bytes, &head.plan);
    let time = |at: &Option<String>| at.clone().unwrap_or_else(|| "never".to_owned());
    let mut all = vec![
        format!("receipt {id}"),
        format!("  number {} of {}", head.sequence, head.endpoint.name),
        format!(
            "  transfer {}, attempt {}, {}, owner {}: {}",
            transfer.id,
            transfer.attempt,
            count(transfer.tries, "session"),
            transfer.owner,
            transfer.state
        ),
    ];
    all.extend(transfer.sources.iter().map(|url| format!("  from {url}")));
    all.push(format!("  to {}", transfer.destination));
    all.push(format!(
        "  submitted {}, started {}, ended {}",
        transfer.submitted_at,
        time(&transfer.started_at),
        time(&transfer.ended_at)
    ));
    if let Some(deadline) = &plan.deadline {
        let kept = match plan.missed {
            Some(false) => "kept",
            _ => "missed",
        };
        all.push(format!("  deadline {deadline}: {kept}"));
    }
    all.push(format!(
        "  files: {} done, {} adopted, {} skipped, {} failed",
        head.files.done, head.files.adopted, head.files.skipped, head.files.failed
    ));
    all.push(format!(
        "  bytes: {} durable, {} sent, {} sent more than once",
        bytes.durable, bytes.sent, bytes.sent_again
    ));
    for broken in &head.breaks {
        all.push(format!(
            "  session {} broke off at {}: {}",
            broken.number, broken.at, broken.message
        ));
    }
    all.extend(head.notices.iter().map(|notice| format!("  {notice}")));
    all.push(format!(
        "  list of files: {}",
        count(head.list.lines, "line")
    ));
    all
}

#[cfg(test)]
mod tests;
