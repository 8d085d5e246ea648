//! The driver's data streams: dialled at first, and dialled again when one dies.

use super::channel::Channel;
use super::hub::{Hub, Note};
use super::preconnect::{Dialer, Preconnected, Ready};
use super::{fail, join};
use crate::threads;
use crossbeam_channel::Receiver;
use dray_core::retry::{RetryPolicy, Verdict};
use dray_core::{Error, ErrorKind, Result, StreamId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a waiting redialler looks whether the link is over.
const LOOK: Duration = Duration::from_millis(20);

/// How long a link without streams waits for the other end's word on why: a session that ends there loses
/// its streams first (guess, revisit).
const WORD_WAIT: Duration = Duration::from_millis(500);

/// How to reach one session's streams.
pub(super) struct Streams {
    /// Where streams may join, each `host:port`; at least one.
    pub(super) addresses: Vec<String>,
    pub(super) way: Arc<Dialer>,
    pub(super) ticket: [u8; 16],
    pub(super) key: [u8; 32],
    pub(super) next: AtomicU32,
    /// So many are opened at first.
    pub(super) first: usize,
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
    fn open(&self, hub: &Arc<Hub>, ahead: &Preconnected) -> Result<()> {
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

/// Opens so many streams at once, and gives what went wrong.
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

/// Dials a new stream for each that is noted lost, and those that are wanted, until the link is over.
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
    /// Notes that came while another was seen to, in order.
    noted: VecDeque<Note>,
    /// Tries since something came through. That a stream was made, or took bytes, says little: a
    /// refused join looks the same from here until the connection breaks.
    tries: u32,
    seen: u64,
    /// As many as were wanted last, where somebody says so.
    wanted: Option<usize>,
    /// First streams that may be under way still.
    opening: usize,
}

impl Redialler<'_> {
    fn run(&mut self) {
        while let Some(note) = self.next() {
            let lost = match note {
                Note::Lost(error) => self.is_missed().then_some(error),
                Note::FirstOpened => {
                    // Those that could not be opened have been noted as lost.
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

    /// Whether one that was lost leaves too few. Without TLS a stream that is refused looks like one
    /// that breaks: it is not missed.
    fn is_missed(&self) -> bool {
        self.wanted
            .is_none_or(|wanted| self.hub.live_streams() < wanted)
    }

    /// Dials as many as are missing of those wanted, each once. An error is given back when without
    /// another try no stream would be left: nobody would ever note one as lost again.
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

    /// Dials until there is one in the place of a lost one, or too often.
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

    /// Without any stream nothing can ever move again, whatever the control connection says. One that
    /// was lost too may have tries left; that more are wanted helps nobody.
    fn give_up(&mut self, last: Error) {
        self.noted.extend(self.notes.try_iter());
        let is_another = self.noted.iter().any(|note| matches!(note, Note::Lost(_)));
        if self.hub.live_streams() == 0 && !is_another && rest(self.hub, WORD_WAIT) {
            let mut error = last;
            error.cause = format!("all data streams are lost, the last by: {}", error.cause);
            if error.kind == ErrorKind::Protocol {
                // Seen from here a stream that is refused and one that breaks look alike.
                error.kind = ErrorKind::Unreachable;
            }
            self.hub.break_off(error);
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
