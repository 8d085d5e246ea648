//! Requests for the state of paths on a web server. This module also remembers which methods the
//! server supports.

use crate::address_policy::AddressPolicy;
use crate::client::{Answer, Ask, Client, SILENCE_MAX};
use crate::credentials::Credentials;
use crate::dav::{self, DavEntry};
use crate::integrity;
use crate::redirect::RequestTarget;
use crate::url::{HttpUrl, Origin};
use dray_core::lock::LockExt;
use dray_core::{Checksum, End, Error, ErrorKind, ModifiedTime, RelPath, Result};
use std::collections::HashMap;
use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Maximum length in bytes of an answer about one folder. It suffices for a few hundred thousand
/// files. The value is estimated, not measured.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Maximum number of requests for one file's checksum if the server does not answer. Each request
/// waits two minutes, so the total is one hour. The value is estimated, not measured.
const QUESTIONS_MAX: u32 = 30;

/// Maximum number of files whose state is remembered between the listing and the opening. At this
/// number, all remembered states are dropped.
const REMEMBERED_MAX: usize = 1 << 16;

/// Returns true if the server refused a range because the file is empty.
fn is_empty(answer: &Answer) -> bool {
    let range = answer.header("content-range");
    range.is_some_and(|range| range.trim() == "bytes */0")
}

/// Properties of a file that identify its version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileVersion {
    pub(crate) size: u64,
    pub(crate) modified: Option<ModifiedTime>,
    /// Strong entity tag of the file; `None` if the server sends no strong tag.
    pub(crate) tag: Option<String>,
}

impl FileVersion {
    /// Returns the state in the head of an answer. `size` replaces `Content-Length` if the caller
    /// knows the size.
    pub(crate) fn of_answer(answer: &Answer, size: Option<u64>) -> Self {
        Self {
            size: size.or_else(|| answer.length()).unwrap_or_default(),
            modified: answer.header("last-modified").and_then(dav::read_time),
            tag: answer.header("etag").and_then(dav::strong),
        }
    }
}

/// Further properties in answers: weak tags and digests. If they differ, the answers belong to two
/// versions. If they are equal, the versions may still differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Validators {
    /// Weak or strong entity tag, without the prefix of a weak tag.
    tag: Option<String>,
    /// Digest of the whole file (RFC 9530, RFC 3230), as text.
    digest: Option<String>,
}

impl Validators {
    pub(crate) fn of_answer(answer: &Answer) -> Self {
        let digest = answer
            .header("repr-digest")
            .or_else(|| answer.header("digest"));
        Self {
            tag: answer.header("etag").and_then(dav::opaque),
            digest: digest.map(|text| text.trim().to_owned()),
        }
    }

    /// Returns true if both values can belong to the same version.
    fn may_be(&self, other: &Self) -> bool {
        let same = |one: &Option<String>, other: &Option<String>| match (one, other) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        same(&self.tag, &other.tag) && same(&self.digest, &other.digest)
    }

    /// Adds the fields that `self` does not have and `other` has.
    fn learn(&mut self, other: &Self) {
        self.tag = self.tag.take().or_else(|| other.tag.clone());
        self.digest = self.digest.take().or_else(|| other.digest.clone());
    }
}

/// State that all handles of a store share.
pub(crate) struct Server {
    pub(crate) client: Client,
    origin: Origin,
    query: Option<String>,
    pub(crate) end: End,
    /// False after the server has shown that it does not support PROPFIND.
    is_dav: AtomicBool,
    remembered: Mutex<HashMap<RelPath, FileVersion>>,
    /// Further version properties of files that are being read.
    said: Mutex<HashMap<RelPath, Validators>>,
}

impl Server {
    /// Creates the state for the server of `url`. Sends no request.
    pub(crate) fn new(
        url: &HttpUrl,
        credentials: Credentials,
        end: End,
        addresses: AddressPolicy,
    ) -> Self {
        Self {
            client: Client::new(url.origin.clone(), credentials, end, addresses),
            origin: url.origin.clone(),
            query: url.query.clone(),
            end,
            is_dav: AtomicBool::new(true),
            remembered: Mutex::default(),
            said: Mutex::default(),
        }
    }

    pub(crate) fn place(&self, path: &RelPath) -> RequestTarget {
        RequestTarget::new(&self.origin, path, self.query.as_deref())
    }

    /// Remembers the state of a file from the listing until the file is opened.
    pub(crate) fn remember(&self, path: &RelPath, known: FileVersion) {
        let mut remembered = self.remembered.lock_unpoisoned();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(path.clone(), known);
    }

    /// Forgets the remembered state of a file that has changed. With the old state, all later
    /// requests for the file would fail.
    pub(crate) fn forget(&self, path: &RelPath) {
        let mut remembered = self.remembered.lock_unpoisoned();
        remembered.remove(path);
        let mut said = self.said.lock_unpoisoned();
        said.remove(path);
    }

    /// Returns true if an answer agrees with earlier answers about the file.
    pub(crate) fn is_as_said(&self, path: &RelPath, now: &Validators) -> bool {
        if *now == Validators::default() {
            return true;
        }
        let mut said = self.said.lock_unpoisoned();
        if said.len() >= REMEMBERED_MAX {
            said.clear();
        }
        let before = said.entry(path.clone()).or_default();
        let may_be = before.may_be(now);
        before.learn(now);
        may_be
    }

    /// Returns the remembered state of a file.
    pub(crate) fn recall(&self, path: &RelPath) -> Option<FileVersion> {
        let remembered = self.remembered.lock_unpoisoned();
        remembered.get(path).cloned()
    }

    /// Returns a folder and its entries, or only the file at `path`. Returns `None` if the server
    /// does not support PROPFIND.
    pub(crate) fn propfind(
        &self,
        path: &RelPath,
        depth: &'static str,
        operation: &'static str,
    ) -> Result<Option<Vec<DavEntry>>> {
        if !self.is_dav.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let place = match depth {
            "1" => self.place(path).into_folder(),
            _ => self.place(path),
        };
        let ask = Ask {
            method: "PROPFIND",
            place: &place,
            headers: &[("Depth", depth), ("Content-Type", "application/xml")],
            body: dav::QUESTION,
            operation,
            file: path,
        };
        let answer = self.client.ask(&ask)?;
        match answer.status {
            207 => {}
            // The server does not support WebDAV.
            200 | 400 | 405 | 501 => {
                self.is_dav.store(false, Ordering::Relaxed);
                return Ok(None);
            }
            // A server that permits only reading files also answers with this status.
            403 => return Ok(None),
            _ => return Err(self.client.refused(&ask, answer)),
        }
        // XRootD's HTTP server does not escape the paths in its answers.
        let is_raw = answer
            .header("server")
            .is_some_and(|server| server.to_ascii_lowercase().starts_with("xrootd"));
        let origin = answer.place.origin.clone();
        let mut text = String::new();
        let read = answer
            .into_body()
            .take(ANSWER_BYTES_MAX + 1)
            .read_to_string(&mut text);
        if let Err(error) = read {
            return Err(self.client.cut_off(&ask, &origin, &error));
        }
        if text.len() as u64 > ANSWER_BYTES_MAX {
            let fault = self.client.fault(ErrorKind::LimitExceeded, &ask);
            let cause = format!("the listing of the folder has more than {ANSWER_BYTES_MAX} bytes");
            return Err(fault
                .cause(cause)
                .remedy("copy each file of the folder by its URL"));
        }
        let found = dav::read(&text, is_raw).map_err(|why| {
            let fault = self.client.fault(ErrorKind::Protocol, &ask);
            fault
                .cause(format!("{origin}: {why}"))
                .remedy("check the server, or copy each file of the folder by its URL")
        })?;
        Ok(Some(found))
    }

    /// Returns the entry at `path`.
    pub(crate) fn look(&self, path: &RelPath, operation: &'static str) -> Result<DavEntry> {
        if let Some(found) = self.propfind(path, "0", operation)? {
            // If the answer has only one entry, use this entry even if its path is not `path`.
            // After a redirect, the paths may differ.
            let is_alone = found.len() == 1;
            let own = found
                .into_iter()
                .find(|found| is_alone || found.path == *path);
            if let Some(own) = own.filter(|own| own.is_folder || own.size.is_some()) {
                let path = path.clone();
                return Ok(DavEntry { path, ..own });
            }
        }
        self.head(path, operation)
    }

    /// Returns the state from the answer to HEAD. If the server permits only reads, as with a
    /// signed URL, requests the first byte of the file instead.
    fn head(&self, path: &RelPath, operation: &'static str) -> Result<DavEntry> {
        let place = self.place(path);
        let ask = Ask {
            method: "HEAD",
            place: &place,
            headers: &[],
            body: "",
            operation,
            file: path,
        };
        let mut answer = self.client.ask(&ask)?;
        let mut size = answer.length();
        if matches!(answer.status, 400 | 403 | 405 | 501) {
            let ask = Ask {
                method: "GET",
                headers: &[("Range", "bytes=0-0")],
                ..ask
            };
            answer = self.client.ask(&ask)?;
            size = match answer.status {
                206 => answer
                    .header("content-range")
                    .and_then(read_content_range)
                    .and_then(|range| range.2),
                200 => answer.length(),
                // An empty file has no first byte, so request the whole file.
                416 if is_empty(&answer) => {
                    answer = self.client.ask(&Ask {
                        headers: &[],
                        ..ask
                    })?;
                    match answer.status {
                        200 => answer.length(),
                        _ => return Err(self.client.refused(&ask, answer)),
                    }
                }
                _ => return Err(self.client.refused(&ask, answer)),
            };
        } else if answer.status != 200 {
            return Err(self.client.refused(&ask, answer));
        }
        let Some(size) = size else {
            let fault = self.client.fault(ErrorKind::Unsupported, &ask);
            return Err(fault
                .cause(format!("{} does not report the file's size", self.origin))
                .remedy("copy the file with another program"));
        };
        let known = FileVersion::of_answer(&answer, Some(size));
        Ok(DavEntry {
            path: path.clone(),
            is_folder: false,
            size: Some(size),
            modified: known.modified,
            tag: known.tag,
        })
    }

    /// Returns the state of a file. Fails if changes of the file cannot be detected.
    pub(crate) fn as_file(&self, found: DavEntry, operation: &'static str) -> Result<FileVersion> {
        let fault = |kind| Error::new(kind, self.end, operation).file(&found.path);
        if found.is_folder {
            return Err(fault(ErrorKind::IsADirectory)
                .cause("the server reports that the path is a folder"));
        }
        if found.modified.is_none() {
            return Err(fault(ErrorKind::Unsupported)
                .cause(format!(
                    "{} reports no modification time, so a change of the file could not be \
                     detected",
                    self.origin
                ))
                .remedy("copy the file with another program, or from another server"));
        }
        Ok(FileVersion {
            size: found.size.unwrap_or_default(),
            modified: found.modified,
            tag: found.tag,
        })
    }

    /// Returns the server's checksum of a file; `None` if the server has no checksum. Some servers
    /// read the whole file before they answer. If the request times out, this function repeats the
    /// request while `waits` returns true.
    pub(crate) fn digest(
        &self,
        path: &RelPath,
        waits: &dyn Fn() -> bool,
    ) -> Result<Option<Checksum>> {
        let mut questions = 1;
        loop {
            let asked = Instant::now();
            let said = self.digest_once(path);
            // Distinguish a server that does not answer from a gateway that immediately reports a
            // timeout of another server.
            let is_silent = matches!(&said, Err(error) if error.kind == ErrorKind::TimedOut)
                && asked.elapsed() >= SILENCE_MAX / 2;
            if !is_silent || questions >= QUESTIONS_MAX || !waits() {
                return said;
            }
            questions += 1;
        }
    }

    fn digest_once(&self, path: &RelPath) -> Result<Option<Checksum>> {
        let place = self.place(path);
        let ask = Ask {
            method: "HEAD",
            place: &place,
            headers: &integrity::WANT,
            body: "",
            operation: "get the checksum",
            file: path,
        };
        let answer = self.client.ask(&ask)?;
        if answer.status != 200 {
            return Err(self.client.refused(&ask, answer));
        }
        Ok(integrity::read_fields(
            answer.header("repr-digest"),
            answer.header("digest"),
        ))
    }
}

/// Parses a `Content-Range`: the first byte, the last byte and, if present, the size of the whole
/// file (RFC 9110, section 14.4).
pub(crate) fn read_content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let size = match size.trim() {
        "*" => None,
        size => Some(size.parse().ok()?),
    };
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?, size))
}

/// Returns the modification time; the time 0 if it is unknown.
pub(crate) const fn or_unknown(time: Option<ModifiedTime>) -> ModifiedTime {
    match time {
        Some(time) => time,
        None => ModifiedTime {
            seconds: 0,
            nanoseconds: 0,
        },
    }
}
