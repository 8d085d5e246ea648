//! Copies that the HTTP plug-in of an XRootD server requests. The request is one line of JSON on
//! standard input. Standard input then stays open as long as the server runs. The answers are JSON
//! objects on standard output, one on each line.
//!
//! Secrets are only in the request. They are never on the command line, in the server's environment
//! or in the log. See docs/decisions/0027-a-separate-process-for-each-third-party-copy.md.

use crate::config::{Compare, Config};
use crate::copy::{self, FindDray, IDENTITY_BYTES_MAX, LOCAL_ROOT, Opened};
use crate::copy_target::CopyTarget;
use crate::final_check::Origin;
use crate::outcome::Ear;
use crate::{digest, log, process};
use dray_core::lock::LockExt;
use dray_core::{Checksum, End, Error, ErrorKind, RelPath, Result};
use dray_runtime::handle::Handle;
use dray_store::{ReadOnly, ReadState};
use dray_store_http::{
    Credentials, Expected, HttpStore, HttpUrl, Sending, Verify, read_repr_digest,
};
use serde::Deserialize;
use serde_json::json;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, Write, stdin};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Command line option that selects this mode.
pub(crate) const OPTION: &str = "--request";

/// Maximum length of a request in bytes.
const REQUEST_BYTES_MAX: u64 = 1 << 21;

/// Minimum interval between reports of the counters.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Direction of the copy: from the remote server, or to the remote server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Pull,
    Push,
}

/// Says if checksums are compared, in the format of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Sums {
    Required,
    Offered,
    None,
}

/// The request. It contains secrets and must not be printed.
#[derive(Deserialize)]
struct Request {
    version: u32,
    direction: Direction,
    url: String,
    path: PathBuf,
    headers: Vec<(String, String)>,
    streams: u32,
    /// True if the copy may replace an existing file, false if the client may only create a new
    /// file. Ignored if this server sends the file.
    overwrite: bool,
    checksum: Sums,
    /// True if the destination name belongs to an empty file that the server created for this copy.
    #[serde(default = "yes")]
    placeholder: bool,
    /// The client's header `Repr-Digest` (RFC 9530): the checksum of the file. Empty if the client
    /// sent no such header.
    #[serde(default)]
    repr_digest: String,
}

impl Request {
    /// Returns the checksum that the client has sent, and whether the copy must also be compared
    /// with a checksum of the other end. If the client has sent a checksum, the copy is compared
    /// with it, so the other end need not offer a checksum.
    fn checksums(&self) -> (Option<Checksum>, Sums) {
        let demanded = read_repr_digest(&self.repr_digest);
        if demanded.is_none() && !self.repr_digest.trim().is_empty() {
            log::note(
                "the header Repr-Digest contains no checksum of the algorithms `adler` and \
                    `crc32c`; dray ignores the header",
            );
        }
        match (demanded, self.checksum) {
            (Some(_), Sums::Required) => (demanded, Sums::Offered),
            (_, compared) => (demanded, compared),
        }
    }
}

const fn yes() -> bool {
    true
}

fn invalid(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run the command").cause(cause)
}

/// Sends one message to the plug-in. Ignores errors, because the closed standard input shows that
/// the plug-in has ended.
fn tell(what: &serde_json::Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{what}").and_then(|()| out.flush());
}

/// Reads the request and executes it.
///
/// # Errors
/// Any error that prevented the copy. The plug-in has already received the error.
pub(crate) fn run(words: impl Iterator<Item = OsString>) -> Result<()> {
    let ended = carry(words);
    match &ended {
        Ok(()) => tell(&json!({"end": {"ok": true}})),
        Err(error) => tell(&json!({"end": {"ok": false, "error": log::shown(&error.to_string())}})),
    }
    ended
}

fn carry(words: impl Iterator<Item = OsString>) -> Result<()> {
    // Read the request first. If this process ended with the request unread, the plug-in would report
    // its failed write instead of the error of the configuration.
    let request = read_request(stdin().lock());
    let config = read_words(words)?;
    let request = request?;
    let url = HttpUrl::read(request.url.as_bytes())?
        .ok_or_else(|| invalid("the URL of the other end is not the URL of a web server"))?;
    if let Some(query) = &url.query {
        log::hide(query);
    }
    for (_, value) in &request.headers {
        log::hide_value(value);
    }
    if url.is_folder {
        return Err(invalid(format!(
            "{url} is the URL of a folder, but a third-party copy needs the URL of a file"
        )));
    }
    if !request.path.is_absolute() {
        return Err(invalid("the local path is not absolute"));
    }
    let handle = Handle::default();
    process::watch_server(process::server(), handle.clone())?;
    let credentials = Credentials::of_headers(request.headers.clone())?;
    let addresses = config.addresses().map_err(invalid)?;
    let there = match request.direction {
        Direction::Pull => End::Source,
        Direction::Push => End::Sink,
    };
    let store = HttpStore::with_addresses(&url, credentials, there, addresses);
    let ended = match request.direction {
        Direction::Pull => pull(&request, &url, store, config, &handle),
        Direction::Push => push(&request, &url, &store),
    };
    ended.map_err(|error| for_client(error, there))
}

/// Replaces the remedy if the remote web server `there` refused access. The usual remedy is about
/// files and variables of this host, which the client cannot change.
fn for_client(error: Error, there: End) -> Error {
    let is_refused = matches!(
        error.kind,
        ErrorKind::Unauthorized | ErrorKind::PermissionDenied
    );
    match is_refused && error.end == there {
        true => error.remedy(
            "use the header TransferHeaderAuthorization to send a token that the other server \
            accepts",
        ),
        false => error,
    }
}

fn read_words(mut words: impl Iterator<Item = OsString>) -> Result<Config> {
    let mut named = None;
    while let Some(word) = words.next() {
        match word.to_str() {
            Some(OPTION) => {}
            Some("--config") => named = words.next(),
            _ => {
                return Err(invalid(
                    "an argument is unknown; use only --request and --config FILE",
                ));
            }
        }
    }
    Config::load(named.as_deref().map(Path::new))
}

fn read_request(input: impl BufRead) -> Result<Request> {
    let mut line = String::new();
    let mut input = input.take(REQUEST_BYTES_MAX);
    let read = input.read_line(&mut line);
    read.map_err(|error| invalid(format!("the request cannot be read: {error}")))?;
    if !line.ends_with('\n') {
        return Err(invalid("the request is incomplete or too long"));
    }
    // Do not show serde's message, because it may contain parts of the request.
    let request: Request = serde_json::from_str(&line).map_err(|error| {
        let column = error.column();
        invalid(format!("the request is not valid at column {column}"))
    })?;
    match request.version {
        1 => Ok(request),
        other => Err(invalid(format!(
            "the request has version {other}, but only version 1 is \
            supported"
        ))),
    }
}

/// A file on a web server.
struct WebFile {
    store: HttpStore,
    path: RelPath,
}

impl Origin for WebFile {
    fn state_now(&self) -> Result<ReadState> {
        self.store.state_now(&self.path)
    }

    fn checksum(&self) -> Result<Option<Checksum>> {
        // Never stop this request. When the copy gives up waiting, the process ends, and the
        // request ends with the process.
        self.store.checksum(&self.path, &|| true)
    }
}

fn pull(
    request: &Request,
    url: &HttpUrl,
    store: HttpStore,
    mut config: Config,
    handle: &Handle,
) -> Result<()> {
    let (demanded, compared) = request.checksums();
    config.compare = match (compared, config.compare) {
        (Sums::Required, _) => Compare::Required,
        (Sums::None, _) => Compare::Never,
        // The client has no preference, so the setting of the site applies.
        (Sums::Offered, site) => site,
    };
    // A client may request more streams than the default, as with `root://`.
    config.readers = config.readers.max(request.streams);
    let local_root = std::env::var_os(LOCAL_ROOT).map(PathBuf::from);
    let target = CopyTarget {
        destination: &request.path,
        local_root: local_root.as_deref(),
        hides_placeholder: !request.placeholder,
        may_replace: request.overwrite,
        demanded,
        config: &config,
    };
    let endpoint = config.endpoint_of(&url.origin.server()).cloned();
    let find_dray: FindDray = match endpoint {
        Some(endpoint) => {
            let (store, path) = (store.clone(), url.path.clone());
            Box::new(move |_| endpoint.way(&store, &path).map(Some))
        }
        None => Box::new(|_| Ok(None)),
    };
    let open = || {
        Ok(Opened {
            path: url.path.clone(),
            identity: identity(url),
            origin: Arc::new(WebFile {
                store: store.clone(),
                path: url.path.clone(),
            }),
            store: Arc::new(ReadOnly(store)),
            find_dray,
        })
    };
    let counters = Arc::new(Counters::new(url));
    let told = Arc::clone(&counters);
    let ear = Ear::telling(Box::new(move |progress| told.note(progress.bytes_durable)));
    copy::carry(&target, open, handle, ear)?;
    counters.tell();
    Ok(())
}

/// Returns the text that identifies the source file, in addition to its size and time. The text
/// omits the server, which may have several names. It also omits the query, which may contain
/// another token each time.
fn identity(url: &HttpUrl) -> Vec<u8> {
    let mut identity = [b"source:", url.path.as_bytes()].concat();
    identity.truncate(IDENTITY_BYTES_MAX);
    identity
}

fn push(request: &Request, url: &HttpUrl, store: &HttpStore) -> Result<()> {
    let file = File::open(&request.path).map_err(|error| {
        Error::new(error.kind().into(), End::Source, "open the file").cause(error.to_string())
    })?;
    let (demanded, _) = request.checksums();
    let of = |origin| move |checksum| Expected { checksum, origin };
    let demanded = demanded.map(of("the header Repr-Digest"));
    let stored = || digest::stored(&file).map(of("the extended attribute user.XrdCks.adler32"));
    let counters = Counters::new(url);
    let sending = Sending {
        file: &file,
        path: &url.path,
        may_overwrite: request.overwrite,
        // A checksum that the client sent is compared only with the bytes that were read here. So
        // it does not replace the receiver's checksum, and the client's setting applies unchanged.
        verify: match request.checksum {
            Sums::Required => Verify::Required,
            Sums::Offered => Verify::Offered,
            Sums::None => Verify::Never,
        },
        expected: demanded.or_else(stored),
    };
    store.put(&sending, &|sent| counters.note(sent))?;
    counters.tell();
    Ok(())
}

/// Returns the address of the other end in the form of the progress markers; `None` if the name
/// cannot be resolved.
fn remote(url: &HttpUrl) -> Option<String> {
    let mut addresses = url.origin.server().to_socket_addrs().ok()?;
    Some(format!("tcp:{}", addresses.next()?))
}

/// Progress counters of the running copy, for the plug-in.
struct Counters {
    remote: Option<String>,
    now: Mutex<(u64, Option<Instant>)>,
}

impl Counters {
    fn new(url: &HttpUrl) -> Self {
        Self {
            remote: remote(url),
            now: Mutex::default(),
        }
    }

    /// Reports the counters, at most once in each [`PROGRESS_EVERY`].
    fn note(&self, bytes: u64) {
        let mut now = self.now.lock_unpoisoned();
        now.0 = bytes;
        if now.1.is_none_or(|last| last.elapsed() >= PROGRESS_EVERY) {
            now.1 = Some(Instant::now());
            drop(now);
            self.tell();
        }
    }

    /// Reports the current counters.
    fn tell(&self) {
        let (bytes, _) = *self.now.lock_unpoisoned();
        tell(&json!({"progress": {"bytes_durable": bytes, "remote": self.remote}}));
    }
}

#[cfg(test)]
mod tests {
    use super::{Direction, Sums, for_client, identity, read_request};
    use dray_core::{End, Error, ErrorKind};
    use dray_store_http::HttpUrl;

    const GOOD: &str = r#"{"version":1,"direction":"pull","url":"https://h/f","path":"/d/f",
        "headers":[["Authorization","Bearer se-cret"]],"streams":4,"overwrite":false,
        "checksum":"none"}"#;

    #[test]
    fn a_request_is_read_and_a_bad_one_is_not_repeated() {
        let line = GOOD.replace('\n', " ") + "\n";
        let request = read_request(line.as_bytes()).expect("good");
        assert_eq!(request.direction, Direction::Pull);
        assert_eq!((request.streams, request.checksum), (4, Sums::None));
        assert!(request.placeholder);
        for bad in [
            line.trim_end().to_owned(),
            line.replace("\"pull\"", "\"se-cret\""),
            line.replace("\"version\":1", "\"version\":2"),
            "se-cret\n".to_owned(),
            "\n".to_owned(),
        ] {
            let error = read_request(bad.as_bytes()).map(drop).expect_err("bad");
            assert!(!error.to_string().contains("se-cret"), "{error}");
        }
    }

    #[test]
    fn a_client_is_told_of_its_own_header() {
        let refused = |end| Error::new(ErrorKind::Unauthorized, end, "read the file").remedy("x");
        let told = for_client(refused(End::Source), End::Source);
        assert!(told.remedy.contains("TransferHeaderAuthorization"));
        assert_eq!(for_client(refused(End::Sink), End::Source).remedy, "x");
    }

    #[test]
    fn a_content_is_the_same_by_another_token_and_another_door() {
        let named = |text: &str| {
            let url = HttpUrl::read(text.as_bytes()).expect(text).expect("web");
            identity(&url)
        };
        assert_eq!(named("https://a/f?x=1"), named("http://b:81//f?x=2"));
        assert_ne!(named("https://a/f"), named("https://a/g"));
    }
}
