//! How a conductor reaches the other end, whatever lies between: a network, or nothing.
//!
//! A link gives its conductor events to read and senders to write. Control messages go through a
//! [`ControlSender`] on a thread of its own; each data stream of a source has a [`BlockSender`] on a
//! thread of its own. At the sink a stream's receiver puts [`SinkEvent`]s of arrived blocks straight
//! into the conductor's channel.

use crate::open_files::OpenFile;
use crate::origin::Origin;
use crate::pace::{Pace, SharedRates};
use crate::pool::Buffer;
use crossbeam_channel::{Receiver, Sender};
use dray_core::{Error, FileIndex, Result, StreamId};
use dray_wire::message::{BlockHead, Message};
use std::sync::Arc;

/// Sends control messages, one after the other; may block.
pub trait ControlSender: Send {
    /// Sends one.
    ///
    /// # Errors
    /// When the connection is gone; the receiving half reports that as a lost peer.
    fn send(&mut self, message: &Message) -> Result<()>;
}

/// Sends objects on one stream, one after the other; may block.
pub trait BlockSender: Send {
    /// Sends an object at the rate of `pace`. On return the buffer's content is no longer needed;
    /// an in-process link may have swapped it for another buffer's.
    ///
    /// # Errors
    /// When the stream is gone: it is not used again.
    fn send(
        &mut self,
        head: &BlockHead,
        payload: Option<&mut Buffer>,
        pace: &mut Pace<'_>,
    ) -> Result<()>;

    /// What ends the stream from another thread while it sends; sending fails from then on. None: it
    /// cannot be stuck.
    fn cutter(&self) -> Option<Box<dyn Fn() + Send>> {
        None
    }

    /// The stream was ended for this reason, and is not used again.
    fn give_up(&mut self, _error: &Error) {}
}

/// What a source's conductor hears.
pub enum SourceEvent {
    /// For its machine.
    Input(dray_session::source::Input),
    /// Rates that it shares with other sessions, before anything moves.
    Shared(SharedRates),
    /// A thread of this end is gone: the session cannot go on.
    Broken(Error),
    /// A data stream is ready for use.
    Stream(StreamId, Box<dyn BlockSender>),
    /// The peer has closed a data stream, for this reason as far as is known.
    Left(StreamId, Error),
    /// Entries of the listing, with where their bytes come from.
    Listed {
        /// For the machine.
        entries: Vec<dray_session::source::Listed>,
        /// For the readers.
        origins: Vec<(FileIndex, Arc<Origin>)>,
        /// What could not be listed.
        failed: Vec<dray_session::Failure>,
        /// Whether that was all.
        finished: bool,
    },
}

/// What a sink's conductor hears.
pub enum SinkEvent {
    /// For its machine.
    Input(dray_session::sink::Input),
    /// A thread of this end is gone: the session cannot go on.
    Broken(Error),
    /// A partial file is open, or cannot be.
    Prepared(FileIndex, Result<Arc<OpenFile>>),
}

/// A source's way to its sink.
pub struct SourceLink {
    /// What comes in, from the link and from workers.
    pub events: Receiver<SourceEvent>,
    /// The other side of it.
    pub events_in: Sender<SourceEvent>,
    /// What goes out.
    pub control: Box<dyn ControlSender>,
    /// Ends the link: its receivers stop. Called once, after the last message was sent.
    pub close: Box<dyn FnOnce() + Send>,
}

/// A sink's way to its source.
pub struct SinkLink {
    /// What comes in, from the link and from workers.
    pub events: Receiver<SinkEvent>,
    /// The other side of it.
    pub events_in: Sender<SinkEvent>,
    /// What goes out.
    pub control: Box<dyn ControlSender>,
    /// Ends the link: its receivers stop. Called once, after the last message was sent.
    pub close: Box<dyn FnOnce() + Send>,
}
