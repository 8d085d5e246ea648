//! The link from an executor to the other end, across a network or within a process.
//!
//! A link gives its executor events to read and senders to write. Control messages pass through a
//! [`ControlSender`] on its own thread; each data stream of a source has a [`BlockSender`] on its
//! own thread. At the sink, a stream's receiver puts [`SinkEvent`]s of arrived blocks directly into
//! the executor's channel.

use crate::open_file::OpenFile;
use crate::origin::Origin;
use crate::pace::{Pace, SharedRates};
use crate::pool::Buffer;
use crossbeam_channel::{Receiver, Sender};
use dray_core::{Error, FileIndex, Result, StreamId};
use dray_wire::message::{BlockHead, Message};
use std::sync::Arc;

/// Sends control messages in sequence; may block.
pub trait ControlSender: Send {
    /// Sends a message.
    ///
    /// # Errors
    /// If the connection is lost; the receiving half reports the loss as a lost peer.
    fn send(&mut self, message: &Message) -> Result<()>;
}

/// Sends objects on a stream in sequence; may block.
pub trait BlockSender: Send {
    /// Sends an object at the rate of `pace`. On return the buffer's content is no longer needed;
    /// an in-process link may have swapped it for another buffer's.
    ///
    /// # Errors
    /// If the stream is lost: the caller does not use it again.
    fn send(
        &mut self,
        head: &BlockHead,
        payload: Option<&mut Buffer>,
        pace: &mut Pace<'_>,
    ) -> Result<()>;

    /// Returns a function that ends the stream from another thread while it sends; sending then
    /// fails. `None`: sending cannot block.
    fn cutter(&self) -> Option<Box<dyn Fn() + Send>> {
        None
    }

    /// Ends the stream for this reason; the caller does not use it again.
    fn give_up(&mut self, _error: &Error) {}
}

/// Events for a source's executor.
pub enum SourceEvent {
    /// Input of its machine.
    Input(dray_session::source::Input),
    /// Rates that it shares with other sessions; sent before any data moves.
    Shared(SharedRates),
    /// A thread of this end has failed: the session cannot continue.
    Broken(Error),
    /// A data stream is ready for use.
    Stream(StreamId, Box<dyn BlockSender>),
    /// The peer has closed a data stream; the error is the reason, as far as it is known.
    Left(StreamId, Error),
    /// Entries of the listing, with the origins of their bytes.
    Listed {
        /// Entries, for the machine.
        entries: Vec<dray_session::source::Listed>,
        /// Origins, for the readers.
        origins: Vec<(FileIndex, Arc<Origin>)>,
        /// Entries that could not be listed.
        failed: Vec<dray_session::Failure>,
        /// True if the listing is complete.
        finished: bool,
    },
}

/// Events for a sink's executor.
pub enum SinkEvent {
    /// Input of its machine.
    Input(dray_session::sink::Input),
    /// A thread of this end has failed: the session cannot continue.
    Broken(Error),
    /// A partial file is open, or cannot be opened.
    Prepared(FileIndex, Result<Arc<OpenFile>>),
}

/// A source's link to its sink.
pub struct SourceLink {
    /// Events from the link and from workers.
    pub events: Receiver<SourceEvent>,
    /// Sender to `events`.
    pub events_in: Sender<SourceEvent>,
    /// Sender of control messages.
    pub control: Box<dyn ControlSender>,
    /// Ends the link, which stops its receivers. Called once, after the last message was sent.
    pub close: Box<dyn FnOnce() + Send>,
}

/// A sink's link to its source.
pub struct SinkLink {
    /// Events from the link and from workers.
    pub events: Receiver<SinkEvent>,
    /// Sender to `events`.
    pub events_in: Sender<SinkEvent>,
    /// Sender of control messages.
    pub control: Box<dyn ControlSender>,
    /// Ends the link, which stops its receivers. Called once, after the last message was sent.
    pub close: Box<dyn FnOnce() + Send>,
}
