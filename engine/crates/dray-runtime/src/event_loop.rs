//! The event loop of both executors. The loop waits for events, passes them to the state machine
//! and executes the state machine's effects, until the session ends.

use crate::observe::Observer;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use dray_core::{End, Error, ErrorKind, Result};
use dray_link::link::ControlSender;
use dray_link::panic_guard::caught;
use dray_link::threads;
use dray_session::{Outcome, Progress};
use dray_wire::message::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Interval between reports of the counters to the observer.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of events that the machine gets before the loop executes its effects.
const EVENTS_AT_ONCE: usize = 64;

/// Maximum number of items that wait in control messages to the peer. Items are decisions, ends of
/// entries and states of blocks. A session has at most a few items for each unclosed entry and each
/// block. The maximum takes about 64 MiB of memory. The value is estimated, not measured.
const UNREAD_MAX: usize = 1 << 18;

/// The part of an executor that the event loop calls.
pub(crate) trait Executor {
    /// Type of the executor's events.
    type Event;

    /// Passes an event to the machine.
    fn hand_in(&mut self, event: Self::Event);

    /// Executes all pending effects of the machine.
    fn carry_out(&mut self);

    /// Returns the outcome once the session has ended.
    fn outcome(&mut self) -> Option<Outcome>;

    /// Returns the time until the machine's next wake-up, or `None` if the machine has set no
    /// wake-up.
    fn until_wake(&self) -> Option<Duration>;

    /// Wakes the machine.
    fn tick(&mut self);

    /// Returns the machine's present counters.
    fn progress(&self) -> Progress;

    /// Passes the state of the storage targets to the observer, and the unclosed files if the
    /// observer wants them.
    fn report(&self);
}

/// Runs an executor until its session ends.
pub(crate) fn run<C: Executor>(
    executor: &mut C,
    events: &Receiver<C::Event>,
    observer: &dyn Observer,
) -> Outcome {
    let mut next_progress = Instant::now();
    loop {
        executor.carry_out();
        if let Some(outcome) = executor.outcome() {
            observer.progress(&executor.progress());
            return outcome;
        }
        let now = Instant::now();
        if now >= next_progress {
            next_progress = now + PROGRESS_INTERVAL;
            observer.progress(&executor.progress());
            executor.report();
        }
        let until_progress = next_progress.saturating_duration_since(now);
        let wait = executor
            .until_wake()
            .map_or(until_progress, |wake| wake.min(until_progress));
        match events.recv_timeout(wait) {
            Ok(event) => {
                executor.hand_in(event);
                for event in events.try_iter().take(EVENTS_AT_ONCE) {
                    executor.hand_in(event);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let error = Error::new(ErrorKind::Internal, End::Here, "run the transfer")
                    .cause("the event channel of the transfer was closed")
                    .remedy("report this error; run the same command again");
                return Outcome::Failed(error);
            }
        }
        // A due wake-up runs even if more events are waiting. Otherwise a constant flow of events
        // would delay the wake-up without limit.
        if executor.until_wake().is_some_and(|wake| wake.is_zero()) {
            executor.tick();
        }
    }
}

/// The executor's end of the queue of control messages. The outbox counts the waiting items and not
/// the messages, because one message may have tens of thousands of items.
pub(crate) struct Outbox {
    messages: Sender<Message>,
    waiting: Arc<AtomicUsize>,
}

/// The sending thread's end of an [`Outbox`].
struct Unsent {
    messages: Receiver<Message>,
    waiting: Arc<AtomicUsize>,
}

fn outbox() -> (Outbox, Unsent) {
    let (to, from) = unbounded();
    let waiting = Arc::new(AtomicUsize::new(0));
    let unsent = Unsent {
        messages: from,
        waiting: Arc::clone(&waiting),
    };
    (
        Outbox {
            messages: to,
            waiting,
        },
        unsent,
    )
}

impl Outbox {
    /// Queues a message. Returns an error if the number of queued items exceeds `UNREAD_MAX`,
    /// because the peer reads its messages too slowly. If the peer reads its messages and respects
    /// its limits, the number stays far below this maximum.
    pub(crate) fn send(&self, message: Message, peer: End) -> Option<Error> {
        let items = items(&message);
        let before = self.waiting.fetch_add(items, Ordering::Relaxed);
        // If the sending thread has ended, it has already reported that to the event channel.
        let _ = self.messages.send(message);
        (before + items > UNREAD_MAX).then(|| {
            Error::new(ErrorKind::LimitExceeded, peer, "answer the other end")
                .cause(format!(
                    "{UNREAD_MAX} answers are waiting, because the other end does not read them"
                ))
                .remedy("check the other end and the network, then run the same command again")
        })
    }
}

/// Returns the number of items in a message, as a measure of its size.
fn items(message: &Message) -> usize {
    1 + match message {
        Message::NewFiles(items) => items.len(),
        Message::Stripes(items) => items.len(),
        Message::ListFailed(items) => items.len(),
        Message::Done { ranges, .. } => ranges.len(),
        Message::FileIds(items) => items.len(),
        Message::BlockSync(items) => items.len(),
        Message::FileClose(items) => items.len(),
        Message::Credit(items) => items.len(),
        Message::StreamLost { blocks, .. } => blocks.len(),
        _ => 0,
    }
}

/// The sender of control messages to the peer, and a function that closes the link.
pub(crate) type Control = (Box<dyn ControlSender>, Box<dyn FnOnce() + Send>);

/// Starts the thread that sends the control messages of `end`, and returns the queue of these
/// messages. The thread closes the link when it ends. `broken` receives the error if the thread
/// panics.
///
/// # Errors
/// If the system cannot start another thread. In that case the peer has received the error, and the
/// link is closed.
pub(crate) fn start_control<'scope>(
    scope: &'scope Scope<'scope, '_>,
    control: Control,
    end: End,
    broken: impl FnOnce(Error) + Send + 'scope,
) -> Result<Outbox> {
    let (outbox, unsent) = outbox();
    let (control_in, waiting) = bounded(1);
    let started = threads::start(scope, move || {
        if let Ok(control) = waiting.recv()
            && let Err(error) = run_control(control, &unsent)
        {
            broken(error);
        }
    });
    if let Err(error) = started {
        return Err(turn_away(control, error.at(end)));
    }
    // The new thread receives exactly one value, so this send does not block.
    let _ = control_in.send(control);
    Ok(outbox)
}

/// Sends the peer the reason for refusing the link, and closes the link.
pub(crate) fn turn_away((mut control, close): Control, error: Error) -> Error {
    let _ = control.send(&Message::GoAway(error.clone()));
    close();
    error
}

/// Sends the queued control messages until the executor drops its [`Outbox`] or the link breaks.
/// Then closes the link.
///
/// # Errors
/// If the sender panicked.
fn run_control((mut control, close): Control, unsent: &Unsent) -> Result<()> {
    let sent = caught("send control messages", || {
        for message in &unsent.messages {
            if control.send(&message).is_err() {
                // Stop sending: the link is broken, and the receiving thread reports that to the
                // machine.
                break;
            }
            unsent.waiting.fetch_sub(items(&message), Ordering::Relaxed);
        }
    });
    close();
    sent
}

#[cfg(test)]
mod tests {
    use super::{UNREAD_MAX, outbox};
    use dray_core::{BlockId, End, ErrorKind};
    use dray_wire::message::{BlockState, Message};

    #[test]
    fn a_peer_that_does_not_read_is_given_up() {
        let (out, _unsent) = outbox();
        let states = vec![(BlockId(1), BlockState::Durable); 1023];
        for _ in 0..UNREAD_MAX / 1024 {
            assert_eq!(
                out.send(Message::BlockSync(states.clone()), End::Source),
                None
            );
        }
        let error = out.send(Message::Ping(1), End::Source);
        assert_eq!(
            error.map(|error| error.kind),
            Some(ErrorKind::LimitExceeded)
        );
    }
}
