//! A control connection: one TLS connection that several threads share.
//!
//! Both directions share one TLS state behind the lock `tls`. No thread holds this lock while it
//! waits for the socket: a sender encrypts into a buffer, releases `tls`, and then writes the
//! buffer. During the write the sender holds only the lock `out`, which keeps senders in order. If
//! the write held `tls`, two ends that both send much could each wait for the other end to read.

use super::Timing;
use super::fail;
use super::socket::{Socket, shut};
use dray_core::lock::LockExt;
use dray_core::{Error, Result};
use dray_link::link::ControlSender;
use dray_wire::codec::encode;
use dray_wire::message::{Limits, Message};
use rustls::Connection;
use std::io::{self, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of plaintext bytes that are encrypted in one step. The number is below the limit
/// of the TLS buffer, so TLS always accepts all of them.
const ENCRYPT_BYTES: usize = 64 << 10;

/// Value of [`ControlConnection::reading_since`] while the receiver processes bytes that it has
/// read.
pub(super) const NOT_READING: u64 = u64::MAX;

/// State shared by the threads of a control connection.
pub(super) struct ControlConnection {
    pub(super) socket: Socket,
    pub(super) tls: Mutex<Connection>,
    /// Lock that the senders take to keep their writes in order. Contains the ciphertext of the
    /// next write.
    pub(super) out: Mutex<Vec<u8>>,
    pub(super) limits: Limits,
    /// True if the peer reads every kind of layout. Otherwise this end sends only single and
    /// striped layouts.
    pub(super) peer_reads_layouts: bool,
    pub(super) timing: Timing,
    start: Instant,
    /// Time of the last send, in nanoseconds after `start`.
    pub(super) last_sent: AtomicU64,
    /// Time at which the receiver began to wait for the peer, in nanoseconds after `start`.
    /// [`NOT_READING`] while the receiver waits for its executor: such a wait is no sign of a
    /// silent peer.
    pub(super) reading_since: AtomicU64,
    /// Reason for the end of the connection. Only the first reason is stored.
    pub(super) reason: Mutex<Option<Error>>,
    pub(super) closing: AtomicBool,
    /// Encoded GOAWAY message that this end must send before it closes its direction of the
    /// connection. The sending thread takes the message out of this field while the thread holds
    /// the lock `out`.
    last_words: Mutex<Option<Vec<u8>>>,
    said_bye: AtomicBool,
}

impl ControlConnection {
    pub(super) fn new(socket: Socket, tls: Connection, limits: Limits, timing: Timing) -> Self {
        Self {
            socket,
            tls: Mutex::new(tls),
            out: Mutex::new(Vec::new()),
            limits,
            peer_reads_layouts: false,
            timing,
            start: Instant::now(),
            last_sent: AtomicU64::new(0),
            reading_since: AtomicU64::new(NOT_READING),
            reason: Mutex::new(None),
            closing: AtomicBool::new(false),
            last_words: Mutex::new(None),
            said_bye: AtomicBool::new(false),
        }
    }

    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(NOT_READING - 1)
    }

    pub(super) fn since(&self, then: u64) -> Duration {
        Duration::from_nanos(self.now().saturating_sub(then))
    }

    /// Ends the connection because of `error`. If an earlier reason is stored, that reason stays.
    pub(super) fn fail(&self, error: Error) {
        self.reason.lock_unpoisoned().get_or_insert(error);
        shut(self.socket.stream());
    }

    /// Encrypts and writes `plain`. Concurrent calls write one after the other.
    fn transmit(&self, plain: &[u8]) -> io::Result<()> {
        self.transmit_in(&mut self.out.lock_unpoisoned(), plain)
    }

    /// Does the same as [`Self::transmit`], for a caller that holds the lock `out`.
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

    /// Encrypts `plain` and appends the result to `cipher`, together with pending records of TLS
    /// itself.
    pub(super) fn encrypt(&self, plain: &[u8], cipher: &mut Vec<u8>) -> io::Result<()> {
        let mut tls = self.tls.lock_unpoisoned();
        tls.writer().write_all(plain)?;
        while tls.wants_write() {
            tls.write_tls(cipher)?;
        }
        Ok(())
    }

    pub(super) fn send(&self, message: &Message, frames: &mut Vec<u8>) -> Result<()> {
        frames.clear();
        let simpler = match self.peer_reads_layouts {
            true => None,
            false => message.with_simple_layouts(),
        };
        let message = simpler.as_ref().unwrap_or(message);
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

    /// Returns true if this end has sent BYE. After BYE this end sends no further message of the
    /// session.
    pub(super) fn has_said_bye(&self) -> bool {
        self.said_bye.load(Ordering::Acquire)
    }

    /// Ends the sending direction of this end. The receiver continues until the peer has ended its
    /// direction.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        // If the peer does not read, give up after the same time as for a peer that does not close.
        let _ = self
            .socket
            .stream()
            .set_write_timeout(Some(self.timing.linger));
        self.say_last_words();
        self.tls.lock_unpoisoned().send_close_notify();
        let _ = self.transmit(&[]);
        let _ = self.socket.stream().shutdown(Shutdown::Write);
    }

    /// Stores the reason why this end leaves, as a GOAWAY message for the peer. The connection
    /// closes only after this message was sent, or after sending it has failed.
    pub(super) fn note_go_away(&self, error: &Error) {
        let mut words = Vec::new();
        let message = Message::GoAway(error.clone());
        if encode(&message, &self.limits, &mut words).is_ok() {
            self.last_words.lock_unpoisoned().get_or_insert(words);
        }
    }

    /// Sends the stored GOAWAY message to the peer, if no thread has sent it yet. May block if the
    /// peer does not read.
    pub(super) fn say_last_words(&self) {
        let mut cipher = self.out.lock_unpoisoned();
        let words = self.last_words.lock_unpoisoned().take();
        if let Some(words) = words {
            let _ = self.transmit_in(&mut cipher, &words);
        }
    }

    /// Ends both directions immediately.
    pub(super) fn cut(&self) {
        self.closing.store(true, Ordering::Release);
        shut(self.socket.stream());
    }
}

/// The sending half of a control connection.
pub(super) struct Out {
    connection: Arc<ControlConnection>,
    frames: Vec<u8>,
}

impl Out {
    pub(super) const fn new(connection: Arc<ControlConnection>) -> Self {
        Self {
            connection,
            frames: Vec::new(),
        }
    }
}

impl ControlSender for Out {
    fn send(&mut self, message: &Message) -> Result<()> {
        self.connection.send(message, &mut self.frames)
    }
}
