//! A running control connection: full duplex over one TLS connection.
//!
//! Three threads share a connection. The executor's control thread sends. The receiver reads raw
//! bytes without a lock. The keeper sends and answers pings, and detects silence and closed
//! streams. Both directions share one TLS state behind a lock that no thread holds while a socket
//! blocks: a sender encrypts into its own buffer, and holds only the lock of the order while it
//! writes the buffer. Otherwise two ends that both write much would each wait for the other to
//! read.

use super::Timing;
use super::fail;
use super::handshake::Greeted;
use super::hub::Hub;
use super::socket::{Socket, shut};
use crate::link::ControlSender;
use crossbeam_channel::{Receiver, RecvTimeoutError, SendError, Sender, bounded};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_session::PING_VALUE;
use dray_wire::codec::{Decoder, encode};
use dray_wire::message::{Limits, Message};
use rustls::Connection;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum plaintext per encryption, in bytes: below the TLS buffer's limit, so TLS always takes
/// all of it.
const ENCRYPT_BYTES: usize = 64 << 10;

/// Maximum ciphertext per read, in bytes.
const READ_BYTES: usize = 64 << 10;

/// Interval at which the keeper checks if the peer has closed streams of a source (guess, revisit).
const LOOK: Duration = Duration::from_millis(250);

/// Value of [`Shared::reading_since`] while the receiver handles the bytes it has read.
const NOT_READING: u64 = u64::MAX;

/// State shared by the threads of a control connection.
pub(super) struct Shared {
    socket: Socket,
    tls: Mutex<Connection>,
    /// Guards writes to the socket; holds the next ciphertext to write.
    out: Mutex<Vec<u8>>,
    limits: Limits,
    timing: Timing,
    start: Instant,
    /// Time of the last send, in nanoseconds after `start`.
    last_sent: AtomicU64,
    /// Time at which the receiver began to wait for the peer, in nanoseconds after `start`;
    /// [`NOT_READING`] while it waits for its executor, as that says nothing about the peer.
    reading_since: AtomicU64,
    /// Reason for which the connection ends; the first reason counts.
    reason: Mutex<Option<Error>>,
    closing: AtomicBool,
    /// Encoded GOAWAY to send before this end's direction ends. The thread that sends it takes it
    /// under the lock of `out`.
    last_words: Mutex<Option<Vec<u8>>>,
    said_bye: AtomicBool,
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(NOT_READING - 1)
    }

    fn since(&self, then: u64) -> Duration {
        Duration::from_nanos(self.now().saturating_sub(then))
    }

    /// Ends the connection for this reason; an earlier reason is kept.
    fn fail(&self, error: Error) {
        self.reason.lock_unpoisoned().get_or_insert(error);
        shut(self.socket.stream());
    }

    /// Encrypts and writes, in the order of the calls.
    fn transmit(&self, plain: &[u8]) -> io::Result<()> {
        self.transmit_in(&mut self.out.lock_unpoisoned(), plain)
    }

    /// As [`Self::transmit`], with the lock of `out` held.
    fn transmit_in(&self, cipher: &mut Vec<u8>, plain: &[u8]) -> io::Result<()> {
        let mut pieces = plain.chunks(ENCRYPT_BYTES);
        loop {
            let piece = pieces.next();
            self.encrypt(piece.unwrap_or_default(), cipher)?;
            let written = (&**self.socket.stream()).write_all(cipher);
            cipher.clear();
            written?;
            if piece.is_none() {
                break;
            }
        }
        self.last_sent.store(self.now(), Ordering::Relaxed);
        Ok(())
    }

    /// Encrypts `plain`, and also appends TLS's own pending records.
    fn encrypt(&self, plain: &[u8], cipher: &mut Vec<u8>) -> io::Result<()> {
        let mut tls = self.tls.lock_unpoisoned();
        tls.writer().write_all(plain)?;
        while tls.wants_write() {
            tls.write_tls(cipher)?;
        }
        Ok(())
    }

    fn send(&self, message: &Message, frames: &mut Vec<u8>) -> Result<()> {
        frames.clear();
        let encoded = encode(message, &self.limits, frames).map(|_| ());
        let sent = encoded.and_then(|()| {
            self.transmit(frames)
                .map_err(|error| fail::io_error("send to the peer", &error))
        });
        match &sent {
            Err(error) => self.fail(error.clone()),
            Ok(()) if *message == Message::Bye => self.said_bye.store(true, Ordering::Release),
            Ok(()) => {}
        }
        sent
    }

    /// Returns true if BYE was sent, after which this end sends no further message of the session.
    pub(super) fn has_said_bye(&self) -> bool {
        self.said_bye.load(Ordering::Acquire)
    }

    /// Ends this end's direction; the receiver continues until the peer has ended its own.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        // A peer that does not read gets the same time as a peer that does not answer.
        let _ = self
            .socket
            .stream()
            .set_write_timeout(Some(self.timing.linger));
        self.say_last_words();
        self.tls.lock_unpoisoned().send_close_notify();
        let _ = self.transmit(&[]);
        let _ = self.socket.stream().shutdown(Shutdown::Write);
    }

    /// Stores the reason for which this end leaves, for the peer. The connection does not close
    /// before the reason was sent or sending it has failed.
    pub(super) fn note_go_away(&self, error: &Error) {
        let mut words = Vec::new();
        let message = Message::GoAway(error.clone());
        if encode(&message, &self.limits, &mut words).is_ok() {
            self.last_words.lock_unpoisoned().get_or_insert(words);
        }
    }

    /// Sends the stored reason to the peer, if it was not sent. May block if the peer does not
    /// read.
    pub(super) fn say_last_words(&self) {
        let mut cipher = self.out.lock_unpoisoned();
        let words = self.last_words.lock_unpoisoned().take();
        if let Some(words) = words {
            let _ = self.transmit_in(&mut cipher, &words);
        }
    }

    /// Ends both directions.
    pub(super) fn cut(&self) {
        self.closing.store(true, Ordering::Release);
        shut(self.socket.stream());
    }
}

/// The sending half of a control connection.
pub(super) struct Out {
    shared: Arc<Shared>,
    frames: Vec<u8>,
}

impl ControlSender for Out {
    fn send(&mut self, message: &Message) -> Result<()> {
        self.shared.send(message, &mut self.frames)
    }
}

/// Threads of a connection that is not greeted yet: they wait for the connection, and end if it
/// never comes. With these threads reserved, an end can accept a session.
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

/// Starts the reserved threads with a greeted connection. The receiver passes messages to the hub's
/// inbox, and reports the end of the connection as a lost peer.
pub(super) fn start(
    greeted: Greeted,
    timing: Timing,
    hub: &Arc<Hub>,
    threads: &Threads,
) -> Result<(Out, Arc<Shared>)> {
    let Greeted {
        mut socket,
        tls,
        raw,
        decoder,
        plain,
        limits,
    } = greeted;
    socket
        .settle(timing.lost_after)
        .map_err(|error| fail::io_error("set up the connection", &error))?;
    let shared = Arc::new(Shared {
        socket,
        tls: Mutex::new(tls),
        out: Mutex::new(Vec::new()),
        limits,
        timing,
        start: Instant::now(),
        last_sent: AtomicU64::new(0),
        reading_since: AtomicU64::new(NOT_READING),
        reason: Mutex::new(None),
        closing: AtomicBool::new(false),
        last_words: Mutex::new(None),
        said_bye: AtomicBool::new(false),
    });
    // At most one PONG is queued: a peer that pings faster than it reads gets fewer answers.
    let (pongs, pongs_due) = bounded(1);
    let receiver = ReceiverThread {
        shared: Arc::clone(&shared),
        hub: Arc::clone(hub),
        decoder,
        pongs,
    };
    let (keeper, keepers_hub) = (Arc::clone(&shared), Arc::clone(hub));
    // Each thread waits for its work and takes a single item.
    let gone = |_: SendError<Work>| {
        fail::internal("begin a session", "a thread of its connection has ended")
    };
    let keeping: Work = Box::new(move || keep(&keeper, &keepers_hub, &pongs_due));
    threads.keeper.send(keeping).map_err(gone)?;
    let receiving: Work = Box::new(move || receiver.run(&plain, raw.held()));
    threads.receiver.send(receiving).map_err(gone)?;
    let out = Out {
        shared: Arc::clone(&shared),
        frames: Vec::new(),
    };
    Ok((out, shared))
}

/// Sends pings and pongs, and detects silence and closed streams, until the receiver ends.
fn keep(shared: &Shared, hub: &Hub, pongs_due: &Receiver<u64>) {
    let Timing {
        ping_after,
        lost_after,
        ..
    } = shared.timing;
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
            Ok(value) => shared.send(&Message::Pong(value), &mut frames),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let reading_since = shared.reading_since.load(Ordering::Acquire);
                if reading_since != NOT_READING && shared.since(reading_since) >= lost_after {
                    shared.fail(silent(lost_after));
                    return;
                }
                let last_sent = shared.last_sent.load(Ordering::Relaxed);
                if shared.since(last_sent) < ping_after || shared.closing.load(Ordering::Acquire) {
                    continue;
                }
                pings += 1;
                shared.send(&Message::Ping(pings), &mut frames)
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn silent(lost_after: Duration) -> Error {
    Error::new(ErrorKind::TimedOut, End::Network, "receive from the peer")
        .cause(format!("silent for {} seconds", lost_after.as_secs_f64()))
        .remedy("check the network and the other end, then run the same command again")
}

struct ReceiverThread {
    shared: Arc<Shared>,
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
        let reason = self.shared.reason.lock_unpoisoned().take();
        let is_its_fault = matches!(error.kind, ErrorKind::Protocol | ErrorKind::LimitExceeded);
        if reason.is_none() && is_its_fault {
            self.say_why(&error);
        }
        shut(self.shared.socket.stream());
        self.hub.peer_lost(reason.unwrap_or(error));
    }

    /// Reads until the peer ends its direction.
    fn receive(&mut self) -> Result<()> {
        let mut raw = vec![0; READ_BYTES];
        loop {
            let now = self.shared.now();
            self.shared.reading_since.store(now, Ordering::Release);
            let read = (&**self.shared.socket.stream()).read(&mut raw);
            self.shared
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
                let mut tls = self.shared.tls.lock_unpoisoned();
                let taken = tls
                    .read_tls(&mut raw)
                    .map_err(|error| fail::io_error("receive from the peer", &error))?;
                if taken == 0 {
                    // Bytes after the peer's close notification are ignored.
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

    /// Sends TLS's pending records, unless another thread is sending: that thread or the next
    /// sender includes them.
    fn answer(&self) {
        if let Ok(mut cipher) = self.shared.out.try_lock() {
            if self.shared.encrypt(&[], &mut cipher).is_ok() {
                let _ = (&**self.shared.socket.stream()).write_all(&cipher);
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
                // A PONG answers this connection's keeper, not the machine.
                Message::Pong(value) if value != PING_VALUE => {}
                // The machine has ended; this end only waits for the peer's end.
                _ if self.shared.closing.load(Ordering::Acquire) => {}
                message => self.hub.message(message, before - plain.len()),
            }
        }
    }

    /// Sends the peer the error in its data, if this needs no waiting for the lock of `out`.
    fn say_why(&self, error: &Error) {
        let mut frames = Vec::new();
        let message = Message::GoAway(error.clone());
        if encode(&message, &self.shared.limits, &mut frames).is_ok()
            && let Ok(mut cipher) = self.shared.out.try_lock()
            && self.shared.encrypt(&frames, &mut cipher).is_ok()
        {
            let _ = (&**self.shared.socket.stream()).write_all(&cipher);
        }
    }
}
