//! The driver's data streams: dialled at first, and dialled again when one dies.

use super::ahead::{Ahead, Ready, Way};
use super::channel::Channel;
use super::hub::{Hub, Note};
use super::{fail, join};
use crossbeam_channel::Receiver;
use dray_core::retry::{RetryPolicy, Verdict};
use dray_core::{Error, ErrorKind, Result, StreamId};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a waiting redialler looks whether the link is over.
const LOOK: Duration = Duration::from_millis(20);

/// How to reach one session's streams.
pub(super) struct Streams {
    /// Where streams may join, each `host:port`; at least one.
    pub(super) addresses: Vec<String>,
    pub(super) way: Arc<Way>,
    pub(super) ticket: [u8; 16],
    pub(super) key: [u8; 32],
    pub(super) next: AtomicU32,
}

impl Streams {
    /// Dials a new stream. Numbers go round over the addresses of both sides, so that each pair of
    /// interfaces gets its share and a second try takes another way.
    fn dial(&self, hub: &Arc<Hub>) -> Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = usize::try_from(number).unwrap_or(0);
        let address = turn
            .checked_rem(self.addresses.len())
            .and_then(|place| self.addresses.get(place))
            .ok_or_else(|| fail::internal("dial a stream", "there is no address"))?;
        self.join(hub, StreamId(number), self.way.connect(address, turn)?)
    }

    fn join(&self, hub: &Arc<Hub>, stream: StreamId, ready: Ready) -> Result<()> {
        let mut channel: Channel = ready.channel;
        let challenge = &ready.challenge;
        join::join(&mut channel, challenge, &self.ticket, &self.key, stream)?;
        hub.attach(stream, channel)
    }

    /// Takes one that was connected ahead, or else dials.
    fn open(&self, hub: &Arc<Hub>, ahead: &Ahead) -> Result<()> {
        match ahead.next() {
            Some(ready) => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                self.join(hub, StreamId(number), ready?)
            }
            None => self.dial(hub),
        }
    }

    /// Opens the first streams of a session, each taken in as soon as it is there. One is enough to
    /// go on, and the others are then tried again.
    pub(super) fn open_first(&self, hub: &Arc<Hub>, ahead: &Ahead, count: usize) {
        let mut errors = at_once(count, || self.open(hub, ahead));
        if hub.is_over() {
            return;
        }
        match errors.pop() {
            Some(error) if errors.len() + 1 == count => hub.break_off(error),
            last => errors
                .into_iter()
                .chain(last)
                .for_each(|error| hub.stream_lost(error)),
        }
    }
}

/// Opens so many streams at once, and gives what went wrong.
fn at_once(count: usize, open: impl Fn() -> Result<()> + Sync) -> Vec<Error> {
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, &open);
        let threads: Vec<_> = (0..count).map(start).collect();
        let join = |thread: io::Result<thread::ScopedJoinHandle<'_, _>>| {
            let thread = thread.map_err(|error| fail::system("start a thread", error))?;
            let died = |_| fail::internal("dial a stream", "its thread panicked");
            thread.join().map_err(died)?
        };
        threads
            .into_iter()
            .filter_map(|one| join(one).err())
            .collect()
    })
}

/// Dials a new stream for each that is noted lost, and those that are wanted, until the link is over.
pub(super) fn run(hub: &Arc<Hub>, streams: &Streams, notes: &Receiver<Note>, retry: RetryPolicy) {
    // Tries since something came through. That a stream was made, or took bytes, says little: a
    // refused join looks the same from here until the connection breaks.
    let mut tries = 0;
    let mut seen = 0;
    // As many as were wanted last, where somebody says so.
    let mut wanted = usize::MAX;
    for note in notes {
        let mut last = match note {
            // Without TLS a stream that is refused looks like one that breaks: it is not missed.
            Note::Lost(_) if hub.live_streams() >= wanted => continue,
            Note::Lost(error) => error,
            Note::Want(count) => {
                wanted = count;
                let more = count.saturating_sub(hub.live_streams());
                for _lost in at_once(more, || streams.dial(hub)) {
                    if !hub.is_over() {
                        hub.count_error();
                    }
                }
                continue;
            }
        };
        let progress = hub.progress();
        if progress != seen {
            seen = progress;
            tries = 0;
        }
        loop {
            tries += 1;
            let draw = join::random().map_or(0, u32::from_le_bytes);
            let wait = match retry.verdict(last.status, tries, draw) {
                Verdict::RetryAfter(wait) => wait,
                Verdict::GiveUp => break give_up(hub, notes, last),
            };
            if !rest(hub, wait) {
                return;
            }
            match streams.dial(hub) {
                Ok(()) => break,
                Err(error) => last = error,
            }
        }
    }
}

/// Whether the link still wants streams after this long.
fn rest(hub: &Hub, wait: Duration) -> bool {
    let until = Instant::now() + wait;
    while !hub.is_over() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(LOOK));
    }
    false
}

/// Without any stream nothing can ever move again, whatever the control connection says.
fn give_up(hub: &Hub, notes: &Receiver<Note>, last: Error) {
    if hub.live_streams() == 0 && notes.is_empty() {
        let mut error = last;
        error.cause = format!("all data streams are lost, the last by: {}", error.cause);
        if error.kind == ErrorKind::Protocol {
            // Seen from here a stream that is refused and one that breaks look alike.
            error.kind = ErrorKind::Unreachable;
        }
        hub.break_off(error);
    }
}
