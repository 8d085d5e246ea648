//! The events of a session, and their order.

use dray_core::Time;
use dray_session::{sink, source};

/// A future event of a session.
#[derive(Debug)]
pub enum Event {
    /// An input of the source.
    Source(source::Input),
    /// An input of the sink.
    Sink(sink::Input),
    /// Control bytes arrive at the source.
    ControlToSource(Vec<u8>),
    /// Control bytes arrive at the sink.
    ControlToSink(Vec<u8>),
    /// The network card of the source has sent the first object of a stream.
    Transmitted(u32),
    /// An object arrives at the sink on a stream.
    Arrived(u32, Vec<u8>),
    /// An effect of the source is complete.
    SourceDone(source::Effect),
    /// An effect of the sink is complete. The number is that of the latest disk change when the
    /// effect began.
    SinkDone(Box<sink::Effect>, u64),
    /// The sink gets the report that a stream is lost.
    StreamLostAtSink(u32),
    /// The source's tick is due.
    WakeSource,
    /// The sink's tick is due.
    WakeSink,
}

/// An event with its time. Events with equal times occur in the order of their numbers.
#[derive(Debug)]
pub struct Scheduled {
    /// Time of the event.
    pub at: Time,
    /// Number of the event.
    pub number: u64,
    /// Session of the event.
    pub session: usize,
    /// The event.
    pub event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
