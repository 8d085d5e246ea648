//! `dray serve`: lets others push into, and pull from, what lies beneath one folder.

use crate::args::Serve;
use crate::exit::{Exit, Stop, usage};
use crate::remote::{claims, read_token};
use crate::units::{count, human};
use crate::{output, signals};
use dray_core::path::escape;
use dray_core::{End, Error, ErrorKind, RelPath, Result, plan};
use dray_runtime::link::{SinkLink, SourceLink};
use dray_runtime::net::{self, Handler, Identity, Listener, Prepared, Request};
use dray_runtime::observe::{Observer, Silent};
use dray_runtime::place;
use dray_runtime::pool::Pool;
use dray_runtime::prepare::{self, Buffers, Content, Targets};
use dray_runtime::select::Filter;
use dray_runtime::sink::{Destination, DestinationRequest};
use dray_runtime::source::Root;
use dray_runtime::{sink, source};
use dray_session::{Event, Outcome, Progress};
use dray_store::{LinkScope, Store, StoreExt};
use dray_wire::message::{Connect, Limits, Role};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde_json::json;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Strangers that are turned away fill one line in so much time, not the log.
const REJECTED_INTERVAL: Duration = Duration::from_secs(1);

/// Notices of one session that are said: a source of a million changed files must not fill the log.
const NOTICES_MAX: u32 = 100;

/// Buffers that fit into a transfer's pool at the least, whatever object size a client asks for.
const BUFFERS_MIN: u64 = 8;

/// Runs `dray serve` until it is stopped.
pub(crate) fn run(serve: &Serve) -> Result<Exit, Stop> {
    let root = serve.root.canonicalize().map_err(|error| {
        usage(
            format!("--root {}: {error}", serve.root.display()),
            "name a folder that exists",
        )
    })?;
    let identity = Identity::load_or_create(&identity_folder(serve)?)?;
    let fingerprint = identity.fingerprint();
    let mut settings = net::Serve::new(identity, read_token(&serve.token_file)?);
    let largest = (serve.pool / BUFFERS_MIN).min(plan::OBJECT_BYTES_MAX);
    if largest < plan::OBJECT_BYTES_MIN {
        return Err(usage("--pool is too small", "give it 32KiB at least").into());
    }
    settings.limits = prepare::limits(Buffers::new(serve.pool, largest));
    settings.allow_clear_data = serve.allow_clear_data;
    settings.advertise = addresses(&serve.advertise)?;
    settings.sessions_max = usize::from(serve.transfers_max);
    let house = House::open(serve, root)?;
    let listener = Listener::bind(&addresses(&serve.listen)?, settings)?;
    let stopper = listener.stopper();
    signals::watch("stopping; what is safe stays safe (again to stop at once)")?;
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
            "root": house.root.to_string_lossy(),
        });
        output::result(&line.to_string());
    } else {
        output::result(&format!("key {fingerprint}"));
        for address in &listening {
            output::result(&format!("listening on {address}"));
        }
    }
    listener.run(&house);
    Ok(Exit::Safe)
}

fn addresses(given: &[String]) -> Result<Vec<String>> {
    let read = |text: &String| {
        place::with_port(text).ok_or_else(|| {
            usage(
                format!("{text:?} is no address"),
                "write it as HOST[:PORT], an IPv6 address in brackets",
            )
        })
    };
    given.iter().map(read).collect()
}

fn identity_folder(serve: &Serve) -> Result<PathBuf> {
    if let Some(folder) = &serve.identity {
        return Ok(folder.clone());
    }
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = folder("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| folder("HOME").map(|home| Path::new(&home).join(".local/state")));
    state.map(|state| state.join("dray")).ok_or_else(|| {
        usage(
            "no place for this host's key: neither XDG_STATE_HOME nor HOME is set",
            "give --identity DIR",
        )
    })
}

/// What is served.
struct House {
    root: PathBuf,
    root_fd: OwnedFd,
    /// The root, to write in: no link is followed.
    sink: Arc<dyn Store>,
    targets: Targets,
    pool: u64,
    can_read: bool,
    can_write: bool,
    json: bool,
    rejected: Mutex<(Option<Instant>, u64)>,
}

impl House {
    fn open(serve: &Serve, root: PathBuf) -> Result<Self> {
        let targets = Targets {
            folders: place::targets(&serve.target)?,
            limits: serve.limit_target.clone(),
        };
        targets.check_limits()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_fd = rustix::fs::open(&root, flags, Mode::empty()).map_err(|errno| {
            dray_store::errno::error(End::Here, "open the root", &RelPath::root(), errno)
        })?;
        Ok(Self {
            sink: targets.open(&root, End::Sink, LinkScope::Never, false)?,
            root,
            root_fd,
            targets,
            pool: serve.pool,
            can_read: !serve.write_only,
            can_write: !serve.read_only,
            json: serve.json,
            rejected: Mutex::new((None, 0)),
        })
    }

    /// A store of a folder beneath the root. No link is followed on the way, and none put there
    /// meanwhile is: the folder is opened once, and the store begins at what was opened.
    fn folder(&self, path: &RelPath) -> Result<Arc<dyn Store>> {
        self.sink
            .make_dirs(path, dray_store::posix::default_folder_mode())
            .map_err(|error| match error.kind {
                ErrorKind::NotADirectory => error.remedy("name another destination"),
                _ => error,
            })?;
        if path.is_root() {
            return Ok(Arc::clone(&self.sink));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = rustix::fs::openat2(
            &self.root_fd,
            path.as_bytes(),
            flags,
            Mode::empty(),
            resolve,
        )
        .map_err(|errno| {
            dray_store::errno::error(End::Sink, "open the destination", path, errno)
        })?;
        let held = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        let options = dray_store::PosixOptions {
            targets: place::target_map(
                &self.targets.folders,
                &self.root.join(OsStr::from_bytes(path.as_bytes())),
            )?,
            ..dray_store::PosixOptions::default()
        };
        let store = dray_store::PosixStore::open(&held, End::Sink, options)?;
        Ok(self.targets.limit(Arc::new(store)))
    }

    fn sink_for(&self, connect: &Connect, limits: &Limits) -> Result<(sink::Setup, Arc<Pool>)> {
        if !self.can_write {
            return Err(
                Error::new(ErrorKind::ReadOnly, End::Sink, "write to this host")
                    .cause("it was started with --read-only")
                    .remedy("write to another host, or ask its administrator"),
            );
        }
        let (folder, rest) = connect.paths.split_first().ok_or_else(|| {
            Error::new(ErrorKind::InvalidRequest, End::Sink, "read the destination")
                .cause("the request names none")
        })?;
        let folder_path = beneath(folder, End::Sink)?.0;
        place::refuse_reserved(folder).map_err(|error| error.at(End::Sink))?;
        let store = self.folder(&folder_path)?;
        let can = store.capabilities();
        let destination = Destination::open(DestinationRequest {
            store,
            above: Some((Arc::clone(&self.sink), folder_path)),
            claims: claims(rest).map_err(|error| error.at(End::Sink))?,
            transfer: connect.transfer.clone(),
            owner: prepare::owner(),
            durability: connect.options.durability,
            words: match folder.is_empty() {
                true => "the root".to_owned(),
                false => escape(folder),
            },
        })?;
        let buffers = self.buffers(connect, limits);
        let content = Content {
            demanded: connect.demanded,
            range: connect.selection.range,
        };
        let options = connect.options.clone();
        let machine = prepare::sink_config(
            options,
            &content,
            buffers,
            limits,
            (can, None),
            connect.attempt,
        );
        let setup = sink::Setup {
            destination,
            machine,
            writers_per_target: prepare::THREADS_PER_TARGET,
        };
        Ok((setup, Arc::new(Pool::new(buffers.count, buffers.bytes))))
    }

    fn source_for(&self, connect: &Connect, limits: &Limits) -> Result<source::Setup> {
        if !self.can_read {
            let operation = "read from this host";
            return Err(
                Error::new(ErrorKind::PermissionDenied, End::Source, operation)
                    .cause("it was started with --write-only")
                    .remedy("read from another host, or ask its administrator"),
            );
        }
        Filter::new(&connect.selection).map_err(|error| error.at(End::Source))?;
        let scope = match connect.selection.links {
            dray_core::options::Links::Follow => LinkScope::BeneathRoot,
            _ => LinkScope::Never,
        };
        let store = self.targets.open(&self.root, End::Source, scope, false)?;
        let root = |path: &Vec<u8>| {
            let (path, contents) = beneath(path, End::Source)?;
            Ok(Root {
                store: Arc::clone(&store),
                path,
                contents,
                rename: None,
            })
        };
        let buffers = self.buffers(connect, limits);
        let options = connect.options.clone();
        Ok(source::Setup {
            roots: connect.paths.iter().map(root).collect::<Result<_>>()?,
            selection: connect.selection.clone(),
            machine: prepare::source_config(options, buffers, limits, connect.attempt),
        })
    }

    /// A client may ask for any object size; memory is this host's to give.
    fn buffers(&self, connect: &Connect, limits: &Limits) -> Buffers {
        let asked = connect.options.object_bytes;
        let bytes = asked.clamp(plan::OBJECT_BYTES_MIN, limits.object_bytes_max);
        Buffers::new(self.pool, bytes)
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
                "files": progress.files_done.saturating_sub(progress.files_skipped),
                "files_failed_total": progress.files_failed,
                "bytes": progress.bytes_durable,
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
            human(progress.bytes_durable),
        ));
    }
}

/// A session, for the log.
struct Session {
    transfer: String,
    attempt: u32,
    peer: SocketAddr,
    role: &'static str,
}

/// Says what the machine noticed. The other end is not told, so it must stand in this one's log.
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

impl Handler for House {
    fn prepare<'h>(&'h self, request: Request) -> Result<Prepared<'h>> {
        let Request {
            connect,
            agreed,
            peer,
            ..
        } = request;
        let session = |role| Session {
            transfer: connect.transfer.to_string(),
            attempt: connect.attempt,
            peer,
            role,
        };
        match connect.passive_role {
            Role::Sink => {
                let session = session("push");
                let (setup, pool) = self.sink_for(&connect, &agreed.limits)?;
                let own = Arc::clone(&pool);
                let run = move |link: SinkLink| {
                    let notices = Notices::new(self.json, &session);
                    for notice in setup.destination.notices() {
                        notices.event(&Event::Notice(notice.clone()));
                    }
                    let (outcome, progress) = sink::run(setup, &own, link, &notices);
                    self.ended(&session, &outcome, &progress);
                };
                Ok(Prepared::Sink {
                    pool,
                    run: Box::new(run),
                })
            }
            Role::Source => {
                let session = session("pull");
                let setup = self.source_for(&connect, &agreed.limits)?;
                let run = move |link: SourceLink| {
                    let (outcome, progress) = source::run(setup, link, &Silent)
                        .unwrap_or_else(|error| (Outcome::Refused(error), Progress::default()));
                    self.ended(&session, &outcome, &progress);
                };
                Ok(Prepared::Source { run: Box::new(run) })
            }
        }
    }

    fn rejected(&self, peer: SocketAddr, error: &Error) {
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, unsaid) = &mut *rejected;
        if last.is_some_and(|last| last.elapsed() < REJECTED_INTERVAL) {
            *unsaid += 1;
            return;
        }
        let more = match std::mem::take(unsaid) {
            0 => String::new(),
            more => format!(" (and {more} others since the last line)"),
        };
        *last = Some(Instant::now());
        output::note(&format!("{peer} was turned away: {error}{more}"));
    }
}

/// A path of a request, beneath the root; whether it ends as a folder.
fn beneath(path: &[u8], end: End) -> Result<(RelPath, bool)> {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    let is_folder = trimmed.len() < path.len() || path.is_empty();
    let parsed = RelPath::parse(trimmed).map_err(|error| error.at(end))?;
    Ok((parsed, is_folder))
}
