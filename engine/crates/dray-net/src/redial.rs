//! The driver's data streams: dialled at the start, and dialled again after a loss.

use super::attach::attach;
use super::channel::Channel;
use super::hub::{Hub, Note};
use super::preconnect::{Dialer, Preconnected, Ready};
use super::{fail, join};
use crossbeam_channel::Receiver;
use dray_core::retry::{RetryPolicy, Verdict};
use dray_core::{Error, ErrorKind, Result, StreamId};
use dray_link::threads;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which a waiting redialler checks if the link is over.
const LOOK: Duration = Duration::from_millis(20);

/// Time for which a link without streams waits for the other end's reason: a session that ends
/// there loses its streams first (guess, revisit).
const WORD_WAIT: Duration = Duration::from_millis(500);

/// Parameters to dial the streams of a session.
pub(super) struct Streams {
    /// Addresses at which streams may join, each `host:port`; at least one.
    pub(super) addresses: Vec<String>,
    pub(super) way: Arc<Dialer>,
    pub(super) ticket: [u8; 16],
    pub(super) key: [u8; 32],
    pub(super) next: AtomicU32,
    /// Number of streams opened at the start.
    pub(super) first: usize,
}

impl Streams {
    /// Dials a new stream. Stream numbers rotate through the addresses of both sides: each pair of
    /// interfaces gets an equal number of streams, and a second attempt takes another path.
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
        attach(hub, stream, channel)
    }

    /// Joins with a connection that was made ahead, or else dials.
    fn open(&self, hub: &Arc<Hub>, ahead: &Preconnected) -> Result<()> {
        match ahead.next() {
            Some(ready) => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                self.join(hub, StreamId(number), ready?)
            }
            None => self.dial(hub),
        }
    }

    /// Opens the first streams of a session concurrently, and attaches each as soon as it is
    /// connected. The session can run with a single stream; the redialler then replaces the others.
    pub(super) fn open_first(&self, hub: &Arc<Hub>, ahead: &Preconnected) {
        let mut errors = at_once(self.first, || self.open(hub, ahead));
        if hub.is_over() {
            return;
        }
        match errors.pop() {
            Some(error) if errors.len() + 1 == self.first => {
                if rest(hub, WORD_WAIT) {
                    hub.break_off(error);
                }
            }
            last => {
                for error in errors.into_iter().chain(last) {
                    hub.stream_lost(error);
                }
                hub.first_opened();
            }
        }
    }
}

/// Calls `open` `count` times concurrently, and returns the errors.
fn at_once(count: usize, open: impl Fn() -> Result<()> + Sync) -> Vec<Error> {
    thread::scope(|scope| {
        let opening: Vec<_> = (0..count).map(|_| threads::start(scope, &open)).collect();
        let join = |thread: Result<thread::ScopedJoinHandle<'_, _>>| {
            let died = |_| fail::internal("dial a stream", "its thread panicked");
            thread?.join().map_err(died)?
        };
        opening
            .into_iter()
            .filter_map(|one| join(one).err())
            .collect()
    })
}

/// Dials a new stream for each lost stream that is reported and for each stream requested, until
/// the link is over.
pub(super) fn run(hub: &Arc<Hub>, streams: &Streams, notes: &Receiver<Note>, retry: RetryPolicy) {
    Redialler {
        hub,
        streams,
        notes,
        retry,
        noted: VecDeque::new(),
        tries: 0,
        seen: 0,
        wanted: None,
        opening: streams.first,
    }
    .run();
}

struct Redialler<'a> {
    hub: &'a Arc<Hub>,
    streams: &'a Streams,
    notes: &'a Receiver<Note>,
    retry: RetryPolicy,
    /// Notes that arrived while another was handled, in order.
    noted: VecDeque<Note>,
    /// Attempts since the last progress of the session. A stream that was made or accepted bytes is
    /// no proof of progress: to this end, a refused join looks the same until the connection
    /// breaks.
    tries: u32,
    seen: u64,
    /// Number of streams last requested; `None` if no number was requested.
    wanted: Option<usize>,
    /// Number of first streams that may still be connecting.
    opening: usize,
}

impl Redialler<'_> {
    fn run(&mut self) {
        while let Some(note) = self.next() {
            let lost = match note {
                Note::Lost(error) => self.is_missed().then_some(error),
                Note::FirstOpened => {
                    // The streams that could not be opened have been reported as lost.
                    self.opening = 0;
                    None
                }
                Note::Want(count) => {
                    self.wanted = Some(count);
                    self.dial_wanted()
                }
            };
            if let Some(error) = lost {
                self.replace(error);
            }
        }
    }

    fn next(&mut self) -> Option<Note> {
        self.noted.pop_front().or_else(|| self.notes.recv().ok())
    }

    /// Returns true if fewer streams are live than are requested. Without TLS, a refused stream
    /// looks like a broken one: it is not replaced unless fewer are live than requested.
    fn is_missed(&self) -> bool {
        self.wanted
            .is_none_or(|wanted| self.hub.live_streams() < wanted)
    }

    /// Dials the missing streams, each once. Returns an error if no stream is left, so that the
    /// caller tries again: no further loss would ever be reported.
    fn dial_wanted(&self) -> Option<Error> {
        let there = self.hub.live_streams().max(self.opening);
        let more = self.wanted?.saturating_sub(there);
        let errors = at_once(more, || self.streams.dial(self.hub));
        if self.hub.is_over() {
            return None;
        }
        errors.iter().for_each(|_| self.hub.count_error());
        let is_none_left = self.opening == 0 && self.hub.live_streams() == 0;
        errors.into_iter().last().filter(|_| is_none_left)
    }

    /// Dials until a stream replaces the lost one, or until the retries are exhausted.
    fn replace(&mut self, lost: Error) {
        let mut last = lost;
        let progress = self.hub.progress();
        if progress != self.seen {
            self.seen = progress;
            self.tries = 0;
        }
        loop {
            self.tries += 1;
            let draw = join::random().map_or(0, u32::from_le_bytes);
            let wait = match self.retry.verdict(last.status, self.tries, draw) {
                Verdict::RetryAfter(wait) => wait,
                Verdict::GiveUp => return self.give_up(last),
            };
            if !rest(self.hub, wait) {
                return;
            }
            match self.streams.dial(self.hub) {
                Ok(()) => return,
                Err(error) => last = error,
            }
        }
    }

    /// Ends the link if no stream is left: without streams no data can move, whatever the control
    /// connection reports. Another lost stream may have retries left; a request for more streams
    /// does not count.
    fn give_up(&mut self, last: Error) {
        self.noted.extend(self.notes.try_iter());
        let is_another = self.noted.iter().any(|note| matches!(note, Note::Lost(_)));
        if self.hub.live_streams() == 0 && !is_another && rest(self.hub, WORD_WAIT) {
            let mut error = last;
            error.cause = format!("all data streams are lost; the last one: {}", error.cause);
            if error.kind == ErrorKind::Protocol {
                // To this end, a refused stream and a broken one look alike.
                error.kind = ErrorKind::Unreachable;
            }
            self.hub.break_off(error);
        }
    }
}

/// Waits for `wait`. Returns true if the link still needs streams then.
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
