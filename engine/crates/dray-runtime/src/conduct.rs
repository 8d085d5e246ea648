//! What both conductors do alike: wait for events, hand them in, carry effects out, until the end.

use crate::caught::caught;
use crate::link::ControlSender;
use crate::observe::Observer;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use dray_core::{End, Error, ErrorKind, Result};
use dray_session::{Outcome, Progress};
use dray_wire::message::Message;
use std::time::{Duration, Instant};

/// How often the observer hears the counters.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Events handed to the machine before its effects are carried out.
const EVENTS_AT_ONCE: usize = 64;

/// Control messages that may wait to be sent. The most that a session can have to say at once is a few
/// for each live entry and each block (guess, revisit: 32 MiB of short ones).
const UNREAD_MAX: usize = 1 << 18;

/// A conductor, seen from its loop.
pub(crate) trait Conduct {
    /// What it hears.
    type Event;

    /// Takes what happened.
    fn hand_in(&mut self, event: Self::Event);

    /// Does everything the machine says now.
    fn carry_out(&mut self);

    /// How it ended, once it has.
    fn outcome(&mut self) -> Option<Outcome>;

    /// How long until the machine wants to be woken; `None` for not at all.
    fn until_wake(&self) -> Option<Duration>;

    /// Wakes the machine.
    fn tick(&mut self);

    /// The machine's counters.
    fn progress(&self) -> &Progress;
}

/// Runs a conductor to its end.
pub(crate) fn run<C: Conduct>(
    conductor: &mut C,
    events: &Receiver<C::Event>,
    observer: &dyn Observer,
) -> Outcome {
    let mut next_progress = Instant::now();
    loop {
        conductor.carry_out();
        if let Some(outcome) = conductor.outcome() {
            observer.progress(conductor.progress());
            return outcome;
        }
        let now = Instant::now();
        if now >= next_progress {
            next_progress = now + PROGRESS_INTERVAL;
            observer.progress(conductor.progress());
        }
        let until_progress = next_progress.saturating_duration_since(now);
        let wait = conductor
            .until_wake()
            .map_or(until_progress, |wake| wake.min(until_progress));
        match events.recv_timeout(wait) {
            Ok(event) => {
                conductor.hand_in(event);
                for event in events.try_iter().take(EVENTS_AT_ONCE) {
                    conductor.hand_in(event);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let error = Error::new(ErrorKind::Internal, End::Here, "run the transfer")
                    .cause("its event channel was closed")
                    .remedy("report this; run the same command again");
                return Outcome::Failed(error);
            }
        }
        // Also while events keep coming: what is due does not wait for a pause.
        if conductor.until_wake().is_some_and(|wake| wake.is_zero()) {
            conductor.tick();
        }
    }
}

/// A word to the machine when a peer reads so little that it would make this end keep its answers
/// for ever. No peer that keeps to its limits and reads comes near.
pub(crate) fn too_many_unread(waiting: usize, peer: End) -> Option<Error> {
    (waiting > UNREAD_MAX).then(|| {
        Error::new(ErrorKind::LimitExceeded, peer, "answer the other end")
            .cause(format!("it left {UNREAD_MAX} messages unread"))
            .remedy("look at the other end and the network, then run the same command again")
    })
}

/// Sends control messages until the conductor is gone, then ends the link, whatever happened.
///
/// # Errors
/// When the sender panicked.
pub(crate) fn run_control(
    mut control: Box<dyn ControlSender>,
    jobs: &Receiver<Message>,
    close: Box<dyn FnOnce() + Send>,
) -> Result<()> {
    let sent = caught("send control messages", || {
        for message in jobs {
            if control.send(&message).is_err() {
                // The receiving half says so to the machine; what follows has nowhere to go.
                break;
            }
        }
    });
    close();
    sent
}

#[cfg(test)]
mod tests {
    use super::{UNREAD_MAX, too_many_unread};
    use dray_core::{End, ErrorKind};

    #[test]
    fn a_peer_that_does_not_read_is_given_up() {
        assert_eq!(too_many_unread(UNREAD_MAX, End::Source), None);
        let error = too_many_unread(UNREAD_MAX + 1, End::Source).map(|error| error.kind);
        assert_eq!(error, Some(ErrorKind::LimitExceeded));
    }
}
