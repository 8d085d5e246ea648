//! `dray cp` with the other end on another host: push, pull, and going on after a lost connection.

use crate::cp::{Ended, Run};
use crate::exit::usage;
use crate::report::Ending;
use crate::{output, signals};
use dray_core::retry::{RetryPolicy, Verdict};
use dray_core::{EntryKind, Error, ErrorKind, Name, RelPath, Result, Status, StreamId};
use dray_runtime::link::{SinkEvent, SinkLink, SourceEvent};
use dray_runtime::net::{self, Dial, Fingerprint, Token};
use dray_runtime::observe::Observer;
use dray_runtime::place::{LocalSource, Remote};
use dray_runtime::pool::Pool;
use dray_runtime::prepare::{self, Buffers};
use dray_runtime::{sink, source};
use dray_session::{Event, Outcome, Progress};
use dray_wire::message::{BlockHead, Connect, Message, Role, SegmentKind};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Waits between attempts: doubling from the first to the last, 50 to 100 % of each.
const BACKOFF: Duration = Duration::from_secs(1);
/// See [`BACKOFF`].
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Bytes of a token file that are read: more than any token may have.
const TOKEN_FILE_MAX: u64 = 1 << 16;

/// The mode bit that lets everybody read a file.
const OTHERS_READ: u32 = 0o004;

/// Events that wait for a conductor behind a new name. The others wait in the link's own queue, whose
/// length is what holds the other end back (guess, revisit: as many as a conductor takes at once).
const RENAMED_WAITING: usize = 64;

/// How often a wait looks whether somebody asked to stop.
const STOP_LOOK: Duration = Duration::from_millis(100);

/// Local source, remote sink.
pub(crate) fn push(run: &Run<'_>, sources: &[LocalSource], to: &Remote) -> Result<Ended> {
    let dial = dial(run, &to.address)?;
    let store = prepare::open_source(&run.targets, run.cp.what.links.into())?;
    let roots = prepare::roots(&store, sources, run.places.rename.as_ref())?;
    let buffers = Buffers::new(run.cp.pool, run.options.object_bytes);
    // The destination folder, then what will be written in it.
    let claims = run.places.claims.iter();
    let paths: Vec<Vec<u8>> = std::iter::once(to.path.clone())
        .chain(claims.map(|claim| claim.as_bytes().to_vec()))
        .collect();
    attempts(run, |attempt| {
        let connect = connect(run, attempt, Role::Sink, paths.clone());
        let dialled = net::push(&dial, connect)?;
        let events = dialled.link.events_in.clone();
        signals::on_stop(move || {
            let cancel = dray_session::source::Input::Cancel { purge: false };
            let _ = events.send(SourceEvent::Input(cancel));
        });
        let limits = dialled.agreed.limits;
        let setup = source::Setup {
            roots: roots.clone(),
            selection: run.cp.what.selection(),
            machine: prepare::source_config(run.options.clone(), buffers, &limits, attempt),
        };
        source::run(setup, dialled.link, run.feed)
    })
}

/// Remote source, local sink.
pub(crate) fn pull(
    run: &Run<'_>,
    address: &str,
    paths: &[Vec<u8>],
    folder: &Path,
) -> Result<Ended> {
    let dial = dial(run, address)?;
    let buffers = Buffers::new(run.cp.pool, run.options.object_bytes);
    let pool = Arc::new(Pool::new(buffers.count, buffers.bytes));
    attempts(run, |attempt| {
        let connect = connect(run, attempt, Role::Source, paths.to_vec());
        // The other end first: without it nothing is made here.
        let dialled = net::pull(&dial, connect, Arc::clone(&pool))?;
        let (destination, can) = prepare::open_destination(
            folder,
            run.places,
            &run.targets,
            &run.transfer,
            &run.options,
        )?;
        for notice in destination.notices() {
            run.feed.notice(notice.clone());
        }
        let limits = dialled.agreed.limits;
        let link = match &run.places.rename {
            Some(name) => renamed(dialled.link, name.clone()),
            None => dialled.link,
        };
        let events = link.events_in.clone();
        signals::on_stop(move || {
            let cancel = dray_session::sink::Input::Cancel { purge: false };
            let _ = events.send(SinkEvent::Input(cancel));
        });
        let ends = (can, None);
        let (options, content) = (run.options.clone(), &run.content);
        let setup = sink::Setup {
            destination,
            machine: prepare::sink_config(options, content, buffers, &limits, ends, attempt),
            writers_per_target: prepare::THREADS_PER_TARGET,
        };
        let arrivals = Arrivals::new(run.feed);
        let (outcome, progress) = sink::run(setup, &pool, link, &arrivals);
        Ok((outcome, arrivals.complete(progress)))
    })
}

/// Runs attempt after attempt until one comes to an end.
fn attempts(
    run: &Run<'_>,
    mut attempt: impl FnMut(u32) -> Result<(Outcome, Progress)>,
) -> Result<Ended> {
    let policy = RetryPolicy {
        attempts_max: run.cp.peer.retries.saturating_add(1),
        backoff: BACKOFF,
        backoff_max: BACKOFF_MAX,
    };
    let mut sums = Sent::default();
    let mut last = Progress::default();
    // Tries since more was safe than ever before: a transfer of a week may meet any number of faults.
    let (mut tries, mut most_safe) = (0, (0, 0));
    for number in 1.. {
        tries += 1;
        run.feed.restart();
        let error = match attempt(number) {
            Ok((outcome, progress)) => {
                sums.add(&progress);
                let safe = (progress.bytes_durable, progress.files_done);
                if safe.0 > most_safe.0 || safe.1 > most_safe.1 {
                    tries = 1;
                    most_safe = (safe.0.max(most_safe.0), safe.1.max(most_safe.1));
                }
                last = progress;
                match outcome {
                    Outcome::Failed(error) if is_lost(&error) => error,
                    other => {
                        let ending = Ending::of(other, last.files_failed);
                        return Ok(sums.ended(ending, last));
                    }
                }
            }
            // Whoever cannot be reached at the first try is not there.
            Err(error) if number == 1 => return Err(error),
            Err(error) if is_lost(&error) || error.kind == ErrorKind::LeaseHeld => error,
            Err(error) => return Ok(sums.ended(Ending::Interrupted(error), last)),
        };
        if signals::is_stopped() {
            return Ok(sums.ended(Ending::Cancelled, last));
        }
        let draw = draw();
        let Verdict::RetryAfter(wait) = policy.verdict(Status::Temporary, tries, draw) else {
            return Ok(sums.ended(Ending::Interrupted(error), last));
        };
        run.feed.notice(error.remedy("going on from what is safe"));
        if !sleep(wait) {
            return Ok(sums.ended(Ending::Cancelled, last));
        }
    }
    Ok(sums.ended(Ending::Cancelled, last))
}

/// Whether another attempt may find the other end again.
fn is_lost(error: &Error) -> bool {
    error.status == Status::Temporary
        && matches!(
            error.kind,
            ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::Busy
        )
}

/// Spreads waits; not for secrets.
fn draw() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    // The upper half of 64 mixed bits.
    (RandomState::new().hash_one(0) >> 32) as u32
}

/// Waits; false when somebody asked to stop.
fn sleep(wait: Duration) -> bool {
    let until = Instant::now() + wait;
    while Instant::now() < until {
        if signals::is_stopped() {
            return false;
        }
        std::thread::sleep(STOP_LOOK.min(until.saturating_duration_since(Instant::now())));
    }
    true
}

/// What all attempts together have sent.
#[derive(Default)]
struct Sent {
    objects: u64,
    bytes: u64,
    read: u64,
    /// Resumed by the first attempt: later ones resume what this command itself has sent.
    resumed: Option<(u64, u64)>,
}

impl Sent {
    fn add(&mut self, progress: &Progress) {
        self.objects += progress.objects_sent;
        self.bytes += progress.bytes_sent;
        self.read += progress.bytes_read;
        self.resumed
            .get_or_insert((progress.objects_resumed, progress.bytes_resumed));
    }

    fn ended(&self, ending: Ending, last: Progress) -> Ended {
        let (objects_resumed, bytes_resumed) = self.resumed.unwrap_or_default();
        Ended {
            ending,
            progress: Progress {
                objects_sent: self.objects,
                bytes_sent: self.bytes,
                bytes_read: self.read,
                objects_resumed,
                bytes_resumed,
                ..last
            },
        }
    }
}

fn connect(run: &Run<'_>, attempt: u32, passive_role: Role, paths: Vec<Vec<u8>>) -> Connect {
    Connect {
        transfer: run.transfer.clone(),
        attempt,
        passive_role,
        paths,
        selection: run.cp.what.selection(),
        options: run.options.clone(),
        demanded: run.content.demanded,
        streams: run.cp.streams,
        clear_data: run.cp.peer.clear_data,
        addresses: Vec::new(),
    }
}

fn dial(run: &Run<'_>, address: &str) -> Result<Dial> {
    let peer = &run.cp.peer;
    let key = match &peer.peer_key {
        Some(key) => key.clone(),
        None => std::env::var("DRAY_PEER_KEY").map_err(|_| {
            usage(
                "nothing says which key the other host must have",
                "give --peer-key sha256:..., as dray serve prints it there, or set DRAY_PEER_KEY",
            )
        })?,
    };
    let token = match &peer.token_file {
        Some(file) => read_token(file)?,
        None => {
            let token = std::env::var_os("DRAY_TOKEN").ok_or_else(|| {
                usage(
                    "no token for the other host",
                    "give --token-file FILE, or set DRAY_TOKEN",
                )
            })?;
            Token::new(std::os::unix::ffi::OsStrExt::as_bytes(token.as_os_str()))?
        }
    };
    let pin: Fingerprint = key.parse()?;
    let buffers = Buffers::new(run.cp.pool, run.options.object_bytes);
    let mut dial = Dial::new(address, pin, token);
    dial.bind.clone_from(&peer.bind);
    dial.limits = prepare::limits(buffers);
    Ok(dial)
}

/// Reads a token from a file.
///
/// # Errors
/// When it cannot be read, or holds none.
pub(crate) fn read_token(file: &Path) -> Result<Token> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|opened| opened.take(TOKEN_FILE_MAX).read_to_end(&mut bytes))
        .map_err(|error| {
            usage(
                format!("the token file {}: {error}", file.display()),
                "name a file with one line of random characters",
            )
        })?;
    let mode = std::fs::metadata(file).map_or(0, |metadata| metadata.mode());
    if mode & OTHERS_READ != 0 {
        // Not refused: secrets that a cluster mounts into a container often look so.
        let words = file.display();
        output::note(&format!(
            "note: everybody on this host can read the token file {words}; chmod 600 {words}"
        ));
    }
    Token::new(&bytes)
}

/// Gives the one file that is pulled another name: the source announces its own.
fn renamed(link: SinkLink, name: Name) -> SinkLink {
    let (to_conductor, events) = crossbeam_channel::bounded(RENAMED_WAITING);
    let arriving = link.events;
    std::thread::spawn(move || {
        for mut event in arriving {
            if let SinkEvent::Input(dray_session::sink::Input::Message(
                _,
                Message::NewFiles(entries),
            )) = &mut event
            {
                let files = entries.iter_mut().filter(|entry| entry.parent.is_none());
                for entry in files.filter(|entry| entry.kind != EntryKind::DirectoryEnd) {
                    entry.name = name.clone();
                }
            }
            if to_conductor.send(event).is_err() {
                return;
            }
        }
    });
    SinkLink { events, ..link }
}

/// Counts what arrives: a sink's machine does not know what a source has sent.
struct Arrivals<'a> {
    observer: &'a dyn Observer,
    objects: AtomicU64,
    bytes: AtomicU64,
}

impl<'a> Arrivals<'a> {
    fn new(observer: &'a dyn Observer) -> Self {
        Self {
            observer,
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn complete(&self, progress: Progress) -> Progress {
        let bytes = self.bytes.load(Ordering::Relaxed);
        Progress {
            objects_sent: self.objects.load(Ordering::Relaxed),
            bytes_sent: bytes,
            // What was sent was read; what was read and lost on the way is not known here.
            bytes_read: bytes,
            ..progress
        }
    }
}

impl Observer for Arrivals<'_> {
    fn event(&self, event: &Event) {
        self.observer.event(event);
    }

    fn progress(&self, progress: &Progress) {
        self.observer.progress(progress);
    }

    fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        self.objects.fetch_add(1, Ordering::Relaxed);
        let data = head.segments.iter();
        let data = data.filter(|segment| segment.kind != SegmentKind::Hole);
        let bytes = data.map(|segment| segment.range.length).sum();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.observer.object(stream, head);
    }
}

/// The destination folder and the claims in it, as a push announces them.
pub(crate) fn claims(paths: &[Vec<u8>]) -> Result<Vec<RelPath>> {
    paths.iter().map(|path| RelPath::parse(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::{RENAMED_WAITING, renamed};
    use dray_core::{End, Error, ErrorKind, Name, Result};
    use dray_runtime::link::{ControlSender, SinkEvent, SinkLink};
    use dray_wire::message::Message;
    use std::time::{Duration, Instant};

    struct Nobody;

    impl ControlSender for Nobody {
        fn send(&mut self, _message: &Message) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn behind_a_new_name_what_waits_is_still_seen_by_the_link() {
        let (events_in, events) = crossbeam_channel::unbounded();
        let link = SinkLink {
            events,
            events_in: events_in.clone(),
            control: Box::new(Nobody),
            close: Box::new(|| {}),
        };
        let link = renamed(link, Name::new(b"new").expect("a name"));
        let count = 10 * RENAMED_WAITING;
        for _ in 0..count {
            let event = SinkEvent::Broken(Error::new(ErrorKind::Io, End::Here, "test"));
            events_in.send(event).expect("somebody listens");
        }
        // Long enough for a queue without an end to take all of them.
        let until = Instant::now() + Duration::from_millis(200);
        while Instant::now() < until && !events_in.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(events_in.len(), count - RENAMED_WAITING - 1);
        assert_eq!(link.events.iter().take(count).count(), count);
    }
}
