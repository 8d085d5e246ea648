//! The spans of a transfer's wait and of its sessions.

use super::DispatcherInner;
use crate::live::{Moving, Way};
use dray_core::lock::LockExt;
use dray_core::{Error, TransferId};
use dray_queue::SessionInput;
use dray_runtime::drive;
use dray_telemetry::{Kind, SessionSpans};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of transfers whose last end is remembered. A transfer that is cancelled while it
/// waits stays in the map, so the map is emptied when it is full. The wait of a forgotten transfer
/// then begins with its submission. The value is an estimate.
const ENDS_MAX: usize = 4096;

/// Returns the error that ended a session.
pub(super) const fn error_of(ended: &drive::Ended) -> Option<&Error> {
    match &ended.ending {
        drive::Ending::Refused(error)
        | drive::Ending::Unreachable(error)
        | drive::Ending::Interrupted(error) => Some(error),
        drive::Ending::Done { .. } | drive::Ending::Cancelled => None,
    }
}

impl DispatcherInner {
    /// Ends the span of the wait before a session, and begins the spans of the session.
    pub(super) fn begin_spans(&self, input: &SessionInput, moving: &Moving) -> SessionSpans {
        let parent = input.request.trace();
        let waited = self.telemetry.span("queue", Kind::Internal, parent);
        let ended = self.ended.lock_unpoisoned().remove(&input.id);
        let mut waited = waited.since(ended.unwrap_or_else(|| {
            let ms = u64::try_from(input.submitted_at.as_ms()).unwrap_or(0);
            UNIX_EPOCH + Duration::from_millis(ms)
        }));
        waited.set("dray.transfer.id", input.id.as_str());
        waited.end();
        let kind = match moving.way {
            Way::Out | Way::In => Kind::Client,
            Way::Within => Kind::Internal,
        };
        let mut attributes = vec![
            ("dray.transfer.id", input.id.as_str().into()),
            ("dray.transfer.attempt", input.attempt.into()),
            ("dray.direction", moving.way.word().into()),
        ];
        if kind == Kind::Client {
            attributes.push(("server.address", moving.peer.as_str().into()));
        }
        let has_sink = moving.way != Way::Out;
        SessionSpans::begin(&self.telemetry, parent, kind, has_sink, attributes)
    }

    /// Remembers when a session ended, for the span of the wait before the next session. `is_over`
    /// is true if no session follows.
    pub(super) fn note_end(&self, id: &TransferId, is_over: bool) {
        if !self.telemetry.is_on() {
            return;
        }
        let mut ended = self.ended.lock_unpoisoned();
        if is_over {
            ended.remove(id);
            return;
        }
        if ended.len() >= ENDS_MAX {
            ended.clear();
        }
        ended.insert(id.clone(), SystemTime::now());
    }
}
