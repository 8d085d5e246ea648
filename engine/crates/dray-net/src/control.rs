//! The threads of a running control connection.
//!
//! Three threads share a connection. The executor's control thread sends messages. The receiver
//! reads raw bytes without holding a lock. The keeper sends and answers pings, and detects a silent
//! peer and closed streams.

use super::Timing;
use super::connection::{ControlConnection, NOT_READING, Out};
use super::fail;
use super::handshake::Greeted;
use super::hub::Hub;
use super::socket::shut;
use crossbeam_channel::{Receiver, RecvTimeoutError, SendError, Sender, bounded};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_session::PING_VALUE;
use dray_wire::codec::{Decoder, encode};
use dray_wire::message::Message;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Maximum number of ciphertext bytes in one read.
const READ_BYTES: usize = 64 << 10;

/// Interval at which the keeper of a source checks whether the peer has closed streams. The value
/// is estimated, not measured.
const LOOK: Duration = Duration::from_millis(250);

/// Threads reserved for a control connection whose greeting is not complete. The threads wait for
/// the connection, and end if the greeting fails. An end reserves its threads before its greeting
/// is complete, so that a thread that the system refuses cannot end a session that has begun.
pub(super) struct Threads {
    keeper: Sender<Work>,
    receiver: Sender<Work>,
}

type Work = Box<dyn FnOnce() + Send>;

impl Threads {
    /// Starts the two threads.
    ///
    /// # Errors
    /// If the system refuses another thread.
    pub(super) fn reserve(hub: &Arc<Hub>) -> Result<Self> {
        let begin = |name: &str| -> Result<Sender<Work>> {
            let (work_in, work) = bounded::<Work>(1);
            hub.spawn(name, move || {
                if let Ok(work) = work.recv() {
                    work();
                }
            })?;
            Ok(work_in)
        };
        Ok(Self {
            keeper: begin("dray-keeper")?,
            receiver: begin("dray-control")?,
        })
    }
}

/// Passes a greeted connection to the reserved threads. The receiver passes messages to the hub's
/// inbox, and reports the end of the connection there as a lost peer.
pub(super) fn start(
    greeted: Greeted,
    timing: Timing,
    hub: &Arc<Hub>,
    threads: &Threads,
) -> Result<(Out, Arc<ControlConnection>)> {
    let Greeted {
        mut socket,
        tls,
        raw,
        decoder,
        plain,
        limits,
        peer_reads_layouts,
    } = greeted;
    socket
        .settle(timing.lost_after)
        .map_err(|error| fail::io_error("set up the connection", &error))?;
    let mut connection = ControlConnection::new(socket, tls, limits, timing);
    connection.peer_reads_layouts = peer_reads_layouts;
    let connection = Arc::new(connection);
    // At most one PONG is queued. A peer that sends pings faster than it reads gets fewer answers.
    let (pongs, pongs_due) = bounded(1);
    let receiver = ReceiverThread {
        connection: Arc::clone(&connection),
        hub: Arc::clone(hub),
        decoder,
        pongs,
    };
    let (keeper, keepers_hub) = (Arc::clone(&connection), Arc::clone(hub));
    // Each reserved thread receives exactly one item of work.
    let gone = |_: SendError<Work>| {
        fail::internal("begin a session", "a thread of the connection has ended")
    };
    let keeping: Work = Box::new(move || keep(&keeper, &keepers_hub, &pongs_due));
    threads.keeper.send(keeping).map_err(gone)?;
    let receiving: Work = Box::new(move || receiver.run(&plain, raw.held()));
    threads.receiver.send(receiving).map_err(gone)?;
    let out = Out::new(Arc::clone(&connection));
    Ok((out, connection))
}

/// Sends pings and pongs, and detects a silent peer and closed streams. Returns when the receiver
/// ends.
fn keep(connection: &ControlConnection, hub: &Hub, pongs_due: &Receiver<u64>) {
    let Timing {
        ping_after,
        lost_after,
        ..
    } = connection.timing;
    let tick = (ping_after / 4)
        .min(lost_after / 8)
        .min(LOOK)
        .max(Duration::from_millis(1));
    let mut frames = Vec::new();
    let mut pings = 0;
    let (mut left, mut next_look) = (HashMap::new(), Instant::now() + LOOK);
    loop {
        if Instant::now() >= next_look {
            hub.look_for_left(&mut left);
            next_look = Instant::now() + LOOK;
        }
        let sent = match pongs_due.recv_timeout(tick) {
            Ok(value) => connection.send(&Message::Pong(value), &mut frames),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let reading_since = connection.reading_since.load(Ordering::Acquire);
                if reading_since != NOT_READING && connection.since(reading_since) >= lost_after {
                    connection.fail(silent(lost_after));
                    return;
                }
                let last_sent = connection.last_sent.load(Ordering::Relaxed);
                if connection.since(last_sent) < ping_after
                    || connection.closing.load(Ordering::Acquire)
                {
                    continue;
                }
                pings += 1;
                connection.send(&Message::Ping(pings), &mut frames)
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn silent(lost_after: Duration) -> Error {
    Error::new(ErrorKind::TimedOut, End::Network, "receive from the peer")
        .cause(format!(
            "the peer sent nothing for {} seconds",
            lost_after.as_secs_f64()
        ))
        .remedy(
            "check the network and the program at the other end, then run the same command again",
        )
}

struct ReceiverThread {
    connection: Arc<ControlConnection>,
    hub: Arc<Hub>,
    decoder: Decoder,
    pongs: Sender<u64>,
}

impl ReceiverThread {
    fn run(mut self, plain: &[u8], raw: &[u8]) {
        let outcome = self.hand_up(plain).and_then(|()| self.feed(raw));
        let error = match outcome.and_then(|()| self.receive()) {
            Ok(()) if self.decoder.is_between_frames() => {
                fail::lost("the peer closed the connection")
            }
            Ok(()) => fail::lost("the connection ended in the middle of a message"),
            Err(error) => error,
        };
        let reason = self.connection.reason.lock_unpoisoned().take();
        let is_its_fault = matches!(error.kind, ErrorKind::Protocol | ErrorKind::LimitExceeded);
        if reason.is_none() && is_its_fault {
            self.say_why(&error);
        }
        shut(self.connection.socket.stream());
        self.hub.peer_lost(reason.unwrap_or(error));
    }

    /// Reads and dispatches messages until the peer ends its direction.
    fn receive(&mut self) -> Result<()> {
        let mut raw = vec![0; READ_BYTES];
        loop {
            let now = self.connection.now();
            self.connection.reading_since.store(now, Ordering::Release);
            let read = (&**self.connection.socket.stream()).read(&mut raw);
            self.connection
                .reading_since
                .store(NOT_READING, Ordering::Release);
            match read {
                Ok(0) => return Ok(()),
                Ok(read) => self.feed(raw.get(..read).unwrap_or_default())?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(fail::io_error("receive from the peer", &error)),
            }
        }
    }

    fn feed(&mut self, mut raw: &[u8]) -> Result<()> {
        let mut plain = Vec::new();
        while !raw.is_empty() {
            plain.clear();
            let has_answer = {
                let mut tls = self.connection.tls.lock_unpoisoned();
                let taken = tls
                    .read_tls(&mut raw)
                    .map_err(|error| fail::io_error("receive from the peer", &error))?;
                if taken == 0 {
                    // TLS has received the peer's close notification. Bytes after the notification
                    // are ignored.
                    return Ok(());
                }
                tls.process_new_packets()
                    .map_err(|error| fail::tls(&error))?;
                match tls.reader().read_to_end(&mut plain) {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                        return Err(fail::io_error("receive from the peer", &error));
                    }
                    _ => {}
                }
                tls.wants_write()
            };
            if has_answer {
                self.answer();
            }
            self.hand_up(&plain)?;
        }
        Ok(())
    }

    /// Sends the records that TLS has produced itself, such as a key update, unless another thread
    /// is sending. In that case the other thread, or the next sender, includes the records.
    fn answer(&self) {
        if let Ok(mut cipher) = self.connection.out.try_lock() {
            if self.connection.encrypt(&[], &mut cipher).is_ok() {
                let _ = (&**self.connection.socket.stream()).write_all(&cipher);
            }
            cipher.clear();
        }
    }

    fn hand_up(&mut self, mut plain: &[u8]) -> Result<()> {
        loop {
            let before = self.decoder.bytes_held() + plain.len();
            let Some(message) = self.decoder.next(&mut plain)? else {
                return Ok(());
            };
            match message {
                Message::Ping(value) => {
                    let _ = self.pongs.try_send(value);
                }
                // The keeper sent the PING, so the PONG is not passed to the machine.
                Message::Pong(value) if value != PING_VALUE => {}
                // The session of this end is over. The receiver only waits until the peer closes,
                // and drops messages.
                _ if self.connection.closing.load(Ordering::Acquire) => {}
                message => self.hub.message(message, before - plain.len()),
            }
        }
    }

    /// Sends the peer the error that its data caused. Does nothing if another thread holds the lock
    /// `out`.
    fn say_why(&self, error: &Error) {
        let mut frames = Vec::new();
        let message = Message::GoAway(error.clone());
        if encode(&message, &self.connection.limits, &mut frames).is_ok()
            && let Ok(mut cipher) = self.connection.out.try_lock()
            && self.connection.encrypt(&frames, &mut cipher).is_ok()
        {
            let _ = (&**self.connection.socket.stream()).write_all(&cipher);
        }
    }
}
