//! `dray serve`: lets other hosts copy to and from one folder.

use crate::args::Serve;
use crate::cleared;
use crate::exit::{Exit, Stop, usage};
use crate::peer::{read_token, state_folder};
use crate::units::{count, human};
use crate::{output, signals};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result, plan};
use dray_link::link::{SinkLink, SourceLink};
use dray_link::pace::SharedRates;
use dray_link::pool::Pool;
use dray_net::{Caller, Handler, Identity, Listener, Prepared, Presented, Request, Token};
use dray_open::export::Export;
use dray_open::locations;
use dray_open::null::Null;
use dray_open::null_export::NullExport;
use dray_open::prepare::{self, Targets};
use dray_runtime::assembly::{self, Buffers};
use dray_runtime::observe::Observer;
use dray_runtime::{sink, source};
use dray_session::{Event, Outcome, Progress};
use dray_wire::message::{Connect, Limits, Role};
use dray_wire::negotiate::Agreed;
use serde_json::json;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Minimum interval between two log lines about rejected callers, so that such callers cannot fill
/// the log.
const REJECTED_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of logged notices of one session, so that a source with a million changed files
/// does not fill the log.
const NOTICES_MAX: u32 = 100;

/// Runs `dray serve` until it is stopped.
pub(crate) fn run(serve: &Serve) -> Result<Exit, Stop> {
    cleared::clear_up_to(0);
    let null = Null::read(serve.root.as_os_str().as_bytes())?;
    let identity = Identity::load_or_create(&identity_folder(serve)?)?;
    let fingerprint = identity.fingerprint();
    let mut settings = dray_net::Serve::new(Presented::new(identity)?);
    let largest = object_bytes_max(serve.pool);
    if largest < plan::OBJECT_BYTES_MIN {
        return Err(usage("--pool is too small", "set --pool to at least 32KiB").into());
    }
    settings.limits = assembly::limits(Buffers::new(serve.pool, largest));
    settings.allow_clear_data = serve.allow_clear_data;
    settings.advertise = addresses(&serve.advertise)?;
    settings.sessions_max = usize::from(serve.transfers_max);
    settings.keeps_nothing = null.is_some();
    // Allowed, because the log line of each session reports a peer that discards the data.
    settings.may_keep_nothing = true;
    let handler = ServeHandler::open(serve, null)?;
    let listener = Listener::bind(&addresses(&serve.listen)?, settings)?;
    let stopper = listener.stopper();
    signals::watch("stopping; finished data is kept. Press Ctrl-C again to abort.")?;
    signals::on_stop(move || stopper.stop());
    let listening: Vec<_> = listener
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    if serve.json {
        let line = json!({
            "event": "listening",
            "fingerprint": fingerprint.to_string(),
            "addresses": listening,
            "root": handler.root.to_string_lossy(),
        });
        output::result(&line.to_string());
    } else {
        output::result(&format!("key {fingerprint}"));
        for address in &listening {
            output::result(&format!("listening on {address}"));
        }
    }
    listener.run(&handler)?;
    Ok(Exit::Safe)
}

/// Returns the size in bytes of the largest object for a session with `pool` bytes of buffers.
fn object_bytes_max(pool: u64) -> u64 {
    (pool / assembly::BUFFERS_MIN).min(plan::OBJECT_BYTES_MAX)
}

fn addresses(given: &[String]) -> Result<Vec<String>> {
    let read = |text: &String| {
        locations::with_port(text).ok_or_else(|| {
            usage(
                format!("{text:?} is not an address"),
                "write the address as HOST[:PORT], with an IPv6 address in brackets",
            )
        })
    };
    given.iter().map(read).collect()
}

fn identity_folder(serve: &Serve) -> Result<PathBuf> {
    if let Some(folder) = &serve.identity {
        return Ok(folder.clone());
    }
    state_folder().ok_or_else(|| {
        usage(
            "no folder for this host's key: neither XDG_STATE_HOME nor HOME is set",
            "give a folder with --identity DIR",
        )
    })
}

/// The folder or the generated data that the server serves.
enum Served {
    Folder(Box<Export>),
    Null(NullExport),
}

/// Settings of a server: the served data, the token, and the allowed directions.
struct ServeHandler {
    root: PathBuf,
    served: Served,
    token: Token,
    pool: u64,
    can_read: bool,
    can_write: bool,
    json: bool,
    rejected: Mutex<(Option<Instant>, u64)>,
}

impl ServeHandler {
    fn open(serve: &Serve, null: Option<Null>) -> Result<Self> {
        let (root, served) = match null {
            Some(_) if !(serve.target.is_empty() && serve.limit_target.is_empty()) => {
                return Err(usage(
                    "a null end has no storage targets",
                    "run the command without --target and --limit-target",
                ));
            }
            Some(null) => {
                let threads = serve.threads;
                let served = Served::Null(NullExport { null, threads });
                (serve.root.clone(), served)
            }
            None => {
                let root = serve.root.canonicalize().map_err(|error| {
                    usage(
                        format!("--root {}: {error}", serve.root.display()),
                        "choose an existing folder",
                    )
                })?;
                let targets = Targets {
                    folders: locations::targets(&serve.target)?,
                    limits: serve.limit_target.iter().cloned().collect(),
                    direct: serve.direct_io,
                    preallocates: serve.preallocate,
                    stripes: serve.stripe,
                    lustre_attribute: serve.lustre_attribute.clone(),
                    shares_blocks: false,
                    threads: serve.threads,
                    log: serve.log_choice(),
                };
                let export = Export::open(root.clone(), targets)?;
                (root, Served::Folder(Box::new(export)))
            }
        };
        Ok(Self {
            root,
            served,
            token: read_token(&serve.token_file)?,
            pool: serve.pool,
            can_read: !serve.write_only,
            can_write: !serve.read_only,
            json: serve.json,
            rejected: Mutex::new((None, 0)),
        })
    }

    /// Returns a notice if a client requests larger objects than the buffers of this server can
    /// hold.
    fn smaller_objects(&self, asked: u64) -> Option<Error> {
        let most = object_bytes_max(self.pool);
        (asked > most).then(|| {
            let operation = format!("use objects of {}", human(asked));
            Error::new(ErrorKind::LimitExceeded, End::Sink, operation)
                .cause(format!(
                    "the setting --pool of this server allows objects of at most {}",
                    human(most)
                ))
                .remedy("to allow larger objects, raise --pool of this server")
        })
    }

    fn sink_for(&self, connect: &Connect, limits: &Limits) -> Result<(sink::Setup, Arc<Pool>)> {
        if !self.can_write {
            return Err(
                Error::new(ErrorKind::ReadOnly, End::Sink, "write to this host")
                    .cause("the server was started with --read-only")
                    .remedy(
                        "write to a different server, or ask the administrator of this \
                        server for access",
                    ),
            );
        }
        let owner = prepare::owner();
        match &self.served {
            Served::Folder(export) => export.passive_sink(connect, limits, owner, self.pool),
            Served::Null(null) => null.passive_sink(connect, limits, owner, self.pool),
        }
    }

    fn source_for(&self, connect: &Connect, agreed: &Agreed) -> Result<source::Setup> {
        if !self.can_read {
            let operation = "read from this host";
            return Err(
                Error::new(ErrorKind::PermissionDenied, End::Source, operation)
                    .cause("the server was started with --write-only")
                    .remedy(
                        "read from a different server, or ask the administrator of this \
                        server for access",
                    ),
            );
        }
        match &self.served {
            Served::Folder(export) => export.passive_source(connect, agreed, self.pool),
            Served::Null(null) => null.passive_source(connect, agreed, self.pool),
        }
    }

    fn ended(&self, what: &Session, outcome: &Outcome, progress: &Progress) {
        let (state, error) = match outcome {
            Outcome::Done(totals) if totals.files_failed == 0 => ("done", None),
            Outcome::Done(_) => ("failed", None),
            Outcome::Cancelled => ("cancelled", None),
            Outcome::Refused(error) => ("refused", Some(error)),
            Outcome::Failed(error) => ("interrupted", Some(error)),
        };
        if self.json {
            let line = json!({
                "event": "transfer",
                "transfer_id": what.transfer,
                "attempt": what.attempt,
                "peer": what.peer.to_string(),
                "role": what.role,
                "state": state,
                "files": progress.files_safe(),
                "files_failed_total": progress.files_failed,
                "bytes": progress.bytes_safe(),
                "keeps_nothing": progress.keeps_nothing,
                "error": error.map(crate::report::in_json),
            });
            output::result(&line.to_string());
            return;
        }
        let cause = error.map_or_else(String::new, |error| format!("; {error}"));
        output::note(&format!(
            "{} {} {}: {state}, {}, {} safe{cause}",
            what.peer,
            what.role,
            what.transfer,
            count(progress.files_done, "file"),
            human(progress.bytes_safe()),
        ));
    }
}

/// Properties of a session for its log line.
struct Session {
    transfer: String,
    attempt: u32,
    peer: SocketAddr,
    role: &'static str,
}

/// Logs the notices of the server's state machine. The client does not receive these notices.
struct Notices<'a> {
    json: bool,
    session: &'a Session,
    said: AtomicU32,
}

impl<'a> Notices<'a> {
    const fn new(json: bool, session: &'a Session) -> Self {
        Self {
            json,
            session,
            said: AtomicU32::new(0),
        }
    }
}

impl Observer for Notices<'_> {
    fn event(&self, event: &Event) {
        let Event::Notice(error) = event else {
            return;
        };
        if self.said.fetch_add(1, Ordering::Relaxed) >= NOTICES_MAX {
            return;
        }
        let Session { peer, transfer, .. } = self.session;
        if self.json {
            let line = json!({
                "event": "notice",
                "transfer_id": transfer,
                "peer": peer.to_string(),
                "error": crate::report::in_json(error),
            });
            output::result(&line.to_string());
        } else {
            output::note(&format!("{peer} {transfer}: note: {error}"));
        }
    }
}

impl Handler for ServeHandler {
    fn admit(&self, caller: &Caller) -> Result<()> {
        caller.must_show(&self.token)
    }

    fn prepare<'h>(&'h self, request: Request) -> Result<Prepared<'h>> {
        let Request {
            connect,
            agreed,
            caller,
            ..
        } = request;
        let peer = caller.peer;
        let session = |role| Session {
            transfer: connect.transfer.to_string(),
            attempt: connect.attempt,
            peer,
            role,
        };
        let smaller = self.smaller_objects(connect.options.object_bytes);
        match connect.passive_role {
            Role::Sink => {
                let session = session("push");
                let (setup, pool) = self.sink_for(&connect, &agreed.limits)?;
                let own = Arc::clone(&pool);
                let run = move |link: SinkLink| {
                    let notices = Notices::new(self.json, &session);
                    for notice in setup.destination.notices().iter().chain(&smaller) {
                        notices.event(&Event::Notice(notice.clone()));
                    }
                    let keeps_nothing = setup.destination.keeps_nothing();
                    let (outcome, progress) = sink::run(setup, &own, link, &notices);
                    let progress = Progress {
                        keeps_nothing,
                        ..progress
                    };
                    self.ended(&session, &outcome, &progress);
                };
                Ok(Prepared::Sink {
                    pool,
                    shared: SharedRates::default(),
                    run: Box::new(run),
                })
            }
            Role::Source => {
                let session = session("pull");
                let setup = self.source_for(&connect, &agreed)?;
                let run = move |link: SourceLink| {
                    let notices = Notices::new(self.json, &session);
                    let (outcome, progress) = source::run(setup, link, &notices)
                        .unwrap_or_else(|error| (Outcome::Refused(error), Progress::default()));
                    // The log line must state if the sink discarded the data.
                    let progress = Progress {
                        keeps_nothing: agreed.keeps_nothing(),
                        ..progress
                    };
                    self.ended(&session, &outcome, &progress);
                };
                Ok(Prepared::Source { run: Box::new(run) })
            }
        }
    }

    fn nobody_gets_in(&self, error: &Error) {
        output::note(&error.to_string());
    }

    fn rejected(&self, peer: SocketAddr, error: &Error) {
        let mut rejected = self.rejected.lock_unpoisoned();
        let (last, unsaid) = &mut *rejected;
        if last.is_some_and(|last| last.elapsed() < REJECTED_INTERVAL) {
            *unsaid += 1;
            return;
        }
        let more = match std::mem::take(unsaid) {
            0 => String::new(),
            more => format!(" (and {more} other connections since the last message)"),
        };
        *last = Some(Instant::now());
        output::note(&format!(
            "the connection from {peer} was rejected: {error}{more}"
        ));
    }
}
