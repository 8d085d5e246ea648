//! Who did what: one JSON object a line, added to a file and never changed.
//!
//! Not for: tokens, tickets, anything that opens something. What is written here may be read by
//! people who may not do what it tells of.

use crate::api::types::ErrorParts;
use crate::moment::Moment;
use crate::tickets;
use dray_core::{End, Error, ErrorKind, Result};
use dray_session::Progress;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Strangers that are turned away fill one line in so much time, not the disk.
const STRANGERS_INTERVAL: Duration = Duration::from_secs(1);

/// Paths of one deed that are written down.
const PATHS_MAX: usize = 16;

/// What somebody does.
#[derive(Debug, Clone)]
pub struct Deed {
    /// Who, as the mapping says.
    pub owner: String,
    /// Who, as the credential says.
    pub principal: String,
    /// From where, or with whom; empty within this endpoint.
    pub peer: String,
    /// What, in a word.
    pub what: String,
    /// For which transfer.
    pub transfer: Option<String>,
    /// To what.
    pub paths: Vec<String>,
}

#[derive(Default)]
struct Strangers {
    last: Option<Instant>,
    unsaid: u64,
}

/// The log.
#[derive(Default)]
pub struct Audit {
    file: Option<Mutex<File>>,
    strangers: Mutex<Strangers>,
}

impl Audit {
    /// Adds to `path`; without one everything goes to the program's own log alone.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| {
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o640)
                .open(path);
            file.map(Mutex::new).map_err(|error| {
                let operation = format!("open the audit log {}", path.display());
                Error::new(ErrorKind::Io, End::Here, operation)
                    .cause(error.to_string())
                    .remedy("name a file in a folder that this user may write")
            })
        };
        Ok(Self {
            file: path.map(open).transpose()?,
            strangers: Mutex::default(),
        })
    }

    /// Somebody did something by the control API; `error` when it was refused.
    pub fn call(&self, deed: &Deed, error: Option<&Error>) {
        let mut line = of(deed);
        line["error"] = json!(error.map(ErrorParts::from));
        self.write("call", line);
    }

    /// A session was refused.
    pub fn refused(&self, deed: &Deed, error: &Error) {
        self.session(deed, &Progress::default(), Some(error));
    }

    /// A session ended.
    pub fn session(&self, deed: &Deed, progress: &Progress, error: Option<&Error>) {
        let mut line = of(deed);
        line["files_done"] = json!(progress.files_done);
        line["files_failed"] = json!(progress.files_failed);
        line["bytes_durable"] = json!(progress.bytes_durable);
        line["error"] = json!(error.map(ErrorParts::from));
        self.write("session", line);
    }

    /// The janitor removed something, or would have.
    pub fn swept(&self, line: Value) {
        self.write("swept", line);
    }

    /// Somebody was turned away before anything was known of him.
    pub fn stranger(&self, peer: &str, error: &Error) {
        let mut strangers = self
            .strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
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

    fn write(&self, kind: &str, mut line: Value) {
        line["at"] = json!(Moment::now());
        line["audit"] = json!(kind);
        let line = tickets::without_tickets(&line.to_string()).into_owned();
        tracing::info!(target: "audit", "{line}");
        if let Some(file) = &self.file {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            // One write, so that lines of several programs stay whole.
            if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
                tracing::error!("cannot write the audit log: {error}");
            }
        }
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
