//! Dials the driver's data streams at the start, and dials again after a loss.

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

/// Interval at which the redialler checks during a wait whether the link has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Time that a link without streams waits for the peer's message with the reason why the session
/// ended. If the session ends at the peer, this end loses its streams before it receives that
/// message. The value is estimated, not measured.
const WORD_WAIT: Duration = Duration::from_millis(500);

/// Parameters with which the streams of a session are dialled.
pub(super) struct Streams {
    /// Addresses at which streams may join, each `host:port`. The list has at least one address.
    pub(super) addresses: Vec<String>,
    pub(super) way: Arc<Dialer>,
    pub(super) ticket: [u8; 16],
    pub(super) key: [u8; 32],
    pub(super) next: AtomicU32,
    /// Number of streams to open at the start.
    pub(super) first: usize,
}

impl Streams {
    /// Dials a new stream. The stream's number selects the addresses of both sides in rotation, so
    /// each pair of interfaces gets an equal number of streams, and a repeated attempt uses another
    /// network path.
    fn dial(&self, hub: &Arc<Hub>) -> Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = usize::try_from(number).unwrap_or(0);
        let address = turn
            .checked_rem(self.addresses.len())
            .and_then(|place| self.addresses.get(place))
            .ok_or_else(|| {
                fail::internal(
                    "dial a stream",
                    "the other host gave no address for data streams",
                )
            })?;
        self.join(hub, StreamId(number), self.way.connect(address, turn)?)
    }

    fn join(&self, hub: &Arc<Hub>, stream: StreamId, ready: Ready) -> Result<()> {
        let mut channel: Channel = ready.channel;
        let challenge = &ready.challenge;
        join::join(&mut channel, challenge, &self.ticket, &self.key, stream)?;
        attach(hub, stream, channel)
    }

    /// Opens a stream on a connection that was made in advance. If no such connection is left,
    /// dials a new one.
    fn open(&self, hub: &Arc<Hub>, ahead: &Preconnected) -> Result<()> {
        match ahead.next() {
            Some(ready) => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                self.join(hub, StreamId(number), ready?)
            }
            None => self.dial(hub),
        }
    }

    /// Opens the first streams of a session concurrently, and attaches each stream as soon as it is
    /// connected. One stream is enough for the session; the redialler then replaces the failed
    /// streams.
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
            let died = |_| {
                fail::internal(
                    "dial a stream",
                    "the thread that dials the stream \
                panicked",
                )
            };
            thread?.join().map_err(died)?
        };
        opening
            .into_iter()
            .filter_map(|one| join(one).err())
            .collect()
    })
}

/// Runs the redialler until the link has ended: dials a replacement for each stream that is
/// reported lost, and each additional stream that is requested.
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
    /// Notes that arrived during the handling of another note, in order.
    noted: VecDeque<Note>,
    /// Number of dial attempts since the session last made progress. A new stream, or a stream that
    /// accepts bytes, does not count as progress, because a stream that the peer has refused also
    /// accepts bytes until its connection breaks.
    tries: u32,
    seen: u64,
    /// Number of open streams requested last; `None` before the first request.
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
                    // `open_first` has reported each stream that failed to open as lost.
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

    /// Returns true if a lost stream must be replaced, because fewer streams are open than
    /// requested. Without TLS this end cannot distinguish a refused stream from a broken one, so a
    /// lost stream is not replaced if enough streams are open.
    fn is_missed(&self) -> bool {
        self.wanted
            .is_none_or(|wanted| self.hub.live_streams() < wanted)
    }

    /// Dials each missing stream once. Returns an error if no stream is open afterwards. The caller
    /// must then try again, because without an open stream no further loss would be reported.
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

    /// Dials until a new stream replaces the lost one, or until the retries are exhausted.
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

    /// Ends the link if no stream is open, because no data can move without streams. The link
    /// continues if the loss of another stream waits to be handled, because that stream may have
    /// retries left. A waiting request for more streams does not keep the link alive.
    fn give_up(&mut self, last: Error) {
        self.noted.extend(self.notes.try_iter());
        let is_another = self.noted.iter().any(|note| matches!(note, Note::Lost(_)));
        if self.hub.live_streams() == 0 && !is_another && rest(self.hub, WORD_WAIT) {
            let mut error = last;
            error.cause = format!(
                "all data streams are lost; error of the last stream: {}",
                error.cause
            );
            if error.kind == ErrorKind::Protocol {
                // This end cannot distinguish a refused stream from a broken one.
                error.kind = ErrorKind::Unreachable;
            }
            self.hub.break_off(error);
        }
    }
}

/// Waits for the duration `wait`, or until the link ends. Returns false if the link has ended.
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
