//! Adds a data stream to the link of its session after the stream has joined the session. Starts
//! the stream's sender or receiver.

use super::channel::Channel;
use super::data::StreamSender;
use super::hub::{Hub, Registration};
use super::inbox::Inbox;
use super::receive::StreamReceiver;
use dray_core::{End, ErrorKind, Result, StreamId};
use dray_link::link::SourceEvent;
use std::sync::Arc;

/// Adds a data stream to its link `hub`, after the stream has joined the session.
///
/// # Errors
/// - If the link has ended.
/// - If the stream number was used before, or if the link already has the number of streams that
///   the session granted.
/// - If the system refuses a thread. If a passive end then has no other stream, it ends the link
///   and sends the reason to the driver. Without this message, the driver would only see that its
///   streams close.
pub(super) fn attach(hub: &Arc<Hub>, stream: StreamId, mut channel: Channel) -> Result<()> {
    let registration = hub.register(stream, channel.socket().stream())?;
    let started = hub
        .settle(channel.socket_mut())
        .and_then(|()| start(channel, registration));
    if let (Err(error), Inbox::Sink(..)) = (&started, hub.inbox()) {
        // The stream's number counts as used, and the source may already consider the stream
        // usable, so the sink's machine must learn that the stream is lost.
        hub.inbox().stream_lost(stream);
        let is_lack = error.kind == ErrorKind::Busy;
        if is_lack && !hub.is_driver() && hub.live_streams() == 0 {
            hub.break_off(error.clone().at(End::Sink));
        }
    }
    started
}

/// Passes a sender to the source's executor, or starts the sink's receiver.
fn start(channel: Channel, registration: Registration) -> Result<()> {
    let hub = Arc::clone(registration.hub());
    match hub.inbox() {
        Inbox::Source(events) => {
            let stream = registration.stream();
            let sender = StreamSender::new(channel, registration);
            let _ = events.send(SourceEvent::Stream(stream, Box::new(sender)));
            Ok(())
        }
        Inbox::Sink(events, pool, shared) => {
            let (events, pool) = (events.clone(), Arc::clone(pool));
            let shared = shared.clone();
            let receiver = StreamReceiver::new(channel, registration, events, pool, shared);
            hub.spawn("dray-stream", move || receiver.run())
        }
    }
}
