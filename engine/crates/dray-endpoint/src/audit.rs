//! The audit log: one JSON object per line. Lines are appended to a file and never changed.
//!
//! Not for: tokens, tickets, or any other secret, because a reader of the log may lack the right to
//! do the actions in the log.

use dray_api::ErrorParts;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_queue::clock;
use dray_session::Progress;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Minimum interval between two lines about callers that failed to authenticate, so that such
/// callers cannot fill the disk.
const STRANGERS_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of paths in the line of one action.
const PATHS_MAX: usize = 16;

/// An action of a principal, for a line of the log.
#[derive(Debug, Clone)]
pub struct Deed {
    /// The owner that the principal is mapped to.
    pub owner: String,
    /// The name of the principal in the credential.
    pub principal: String,
    /// The address of the caller, or the name of the other endpoint. Empty for a copy within this
    /// endpoint.
    pub peer: String,
    /// One word for the action, such as `push`.
    pub what: String,
    /// The transfer of the action, if any.
    pub transfer: Option<String>,
    /// The paths of the action.
    pub paths: Vec<String>,
}

#[derive(Default)]
struct Strangers {
    last: Option<Instant>,
    unsaid: u64,
}

struct Book {
    file: File,
    /// True if the last write failed: the file may end in the middle of a line.
    is_torn: bool,
}

/// The audit log. Several threads may write to it.
#[derive(Default)]
pub struct Audit {
    book: Option<Mutex<Book>>,
    strangers: Mutex<Strangers>,
}

impl Audit {
    /// Opens the audit log, which appends to `path`. Without `path`, lines go only to the log of
    /// the program.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| {
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o640)
                .open(path);
            let book = file.map(|file| Book {
                file,
                is_torn: false,
            });
            book.map(Mutex::new).map_err(|error| {
                let operation = format!("open the audit log {}", path.display());
                Error::new(error.kind().into(), End::Here, operation)
                    .cause(error.to_string())
                    .remedy("choose a file in a folder that this user may write")
            })
        };
        Ok(Self {
            book: path.map(open).transpose()?,
            strangers: Mutex::default(),
        })
    }

    /// Logs a call of the control API. `error` is set if the call was refused.
    pub fn call(&self, deed: &Deed, error: Option<&Error>) {
        let mut line = of(deed);
        line["error"] = json!(error.map(ErrorParts::from));
        self.write("call", line);
    }

    /// Logs a refused session.
    pub fn refused(&self, deed: &Deed, error: &Error) {
        self.session(deed, &Progress::default(), Some(error));
    }

    /// Logs the end of a session.
    pub fn session(&self, deed: &Deed, progress: &Progress, error: Option<&Error>) {
        let mut line = of(deed);
        line["files_done"] = json!(progress.files_done);
        line["files_failed"] = json!(progress.files_failed);
        line["bytes_durable"] = json!(progress.bytes_durable);
        line["error"] = json!(error.map(ErrorParts::from));
        self.write("session", line);
    }

    /// Logs a step of the janitor: the start of a removal, its result, or, in a dry run, the
    /// removal that the janitor would do.
    ///
    /// # Errors
    /// If the line cannot be written. The janitor must not remove a file without a line in the log.
    pub fn swept(&self, line: Value) -> Result<()> {
        self.try_write("swept", line).map_err(|error| {
            Error::new(ErrorKind::Io, End::Here, "write the audit log")
                .cause(error.to_string())
                .remedy(
                    "free space on the file system of `audit.file`; the janitor removes no files \
                    until it can write the log",
                )
        })
    }

    /// Logs a caller whose authentication failed.
    pub fn stranger(&self, peer: &str, error: &Error) {
        let mut strangers = self.strangers.lock_unpoisoned();
        if strangers
            .last
            .is_some_and(|last| last.elapsed() < STRANGERS_INTERVAL)
        {
            strangers.unsaid += 1;
            return;
        }
        strangers.last = Some(Instant::now());
        let unsaid = std::mem::take(&mut strangers.unsaid);
        drop(strangers);
        let line = json!({
            "peer": peer,
            "error": ErrorParts::from(error),
            "others_since": unsaid,
        });
        self.write("turned_away", line);
    }

    /// Writes a line about a finished action. A failed write is only reported in the program's log,
    /// because the action cannot be undone.
    fn write(&self, kind: &str, line: Value) {
        if let Err(error) = self.try_write(kind, line) {
            tracing::error!("cannot write the audit log: {error}");
        }
    }

    fn try_write(&self, kind: &str, mut line: Value) -> std::io::Result<()> {
        line["at"] = json!(clock::now());
        line["audit"] = json!(kind);
        let line = dray_api::without_tickets(&line.to_string()).into_owned();
        tracing::info!(target: "audit", "{line}");
        let Some(book) = &self.book else {
            return Ok(());
        };
        let mut book = book.lock_unpoisoned();
        // One write call per line keeps the lines of several programs apart. After a torn line,
        // this line starts with a newline.
        let start = if book.is_torn { "\n" } else { "" };
        let written = book.file.write_all(format!("{start}{line}\n").as_bytes());
        book.is_torn = written.is_err();
        written
    }
}

fn of(deed: &Deed) -> Value {
    json!({
        "owner": deed.owner,
        "principal": deed.principal,
        "peer": deed.peer,
        "what": deed.what,
        "transfer": deed.transfer,
        "paths": deed.paths.iter().take(PATHS_MAX).collect::<Vec<_>>(),
        "paths_total": deed.paths.len(),
    })
}
