//! The link from an executor to the other end, across a network or within a process.
//!
//! A link provides a channel on which the executor receives events, and the senders of control
//! messages and blocks. One thread sends control messages through a [`ControlSender`]. Each data
//! stream of a source has a [`BlockSender`] on its own thread. At the sink, the receiver of a
//! stream puts [`SinkEvent`]s of arrived blocks directly into the executor's channel.

use crate::open_file::OpenFile;
use crate::origin::Origin;
use crate::pace::{Pace, SharedRates};
use crate::pool::Buffer;
use crossbeam_channel::{Receiver, Sender};
use dray_core::{Error, FileIndex, Result, StreamId};
use dray_wire::message::{BlockHead, Message};
use std::sync::Arc;

/// Sends control messages in order. May block.
pub trait ControlSender: Send {
    /// Sends a message.
    ///
    /// # Errors
    /// If the connection is lost. The receiving half then also reports a lost peer.
    fn send(&mut self, message: &Message) -> Result<()>;
}

/// Sends objects on one stream, in order. May block.
pub trait BlockSender: Send {
    /// Sends an object at the rate of `pace`. After the call the caller may reuse the buffer. An
    /// in-process link may have swapped the buffer's content with another buffer's.
    ///
    /// # Errors
    /// If the stream is lost. The caller must not use the stream again.
    fn send(
        &mut self,
        head: &BlockHead,
        payload: Option<&mut Buffer>,
        pace: &mut Pace<'_>,
    ) -> Result<()>;

    /// Returns a function with which another thread ends the stream while `send` runs; `send` then
    /// fails. Returns `None` if `send` cannot block.
    fn cutter(&self) -> Option<Box<dyn Fn() + Send>> {
        None
    }

    /// Ends the stream because of `error`. The caller must not use the stream again.
    fn give_up(&mut self, _error: &Error) {}
}

/// Events for a source's executor.
pub enum SourceEvent {
    /// Input for the source machine.
    Input(dray_session::source::Input),
    /// Rates that this session shares with other sessions. Sent before any data moves.
    Shared(SharedRates),
    /// A thread of this end has failed: the session cannot continue.
    Broken(Error),
    /// A new data stream is ready for use.
    Stream(StreamId, Box<dyn BlockSender>),
    /// The peer has closed a data stream. The error is the reason, as far as this end knows it.
    Left(StreamId, Error),
    /// Newly listed entries, with the origins of their bytes.
    Listed {
        /// Entries, for the source machine.
        entries: Vec<dray_session::source::Listed>,
        /// Origins, for the reader threads.
        origins: Vec<(FileIndex, Arc<Origin>)>,
        /// Entries that could not be listed.
        failed: Vec<dray_session::Failure>,
        /// True if the listing is complete.
        finished: bool,
    },
}

/// Events for a sink's executor.
pub enum SinkEvent {
    /// Input for the sink machine.
    Input(dray_session::sink::Input),
    /// A thread of this end has failed: the session cannot continue.
    Broken(Error),
    /// A partial file was opened, or opening it failed.
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
    /// Ends the link and stops its receivers. The executor calls this once, after the last message.
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
    /// Ends the link and stops its receivers. The executor calls this once, after the last message.
    pub close: Box<dyn FnOnce() + Send>,
}
