//! The progress of a transfer at one moment, as words for a terminal and as JSON.

use crate::report::held_up_by;
use crate::units::{duration, human};
use dray_core::profile::Stage;
use dray_session::Progress;
use serde_json::json;

/// Progress of a transfer at one moment.
pub(super) struct View {
    /// Counters of the transfer.
    pub(super) progress: Progress,
    /// Rate of durable bytes over the last window, in bytes per second.
    pub(super) rate: u64,
    /// Bottleneck during the last window.
    pub(super) bottleneck: Option<Stage>,
    /// Number of seconds since bytes last moved, if the transfer is silent.
    pub(super) silent_seconds: Option<u64>,
}

impl View {
    /// Returns the number of listed files that are neither done nor failed. More files may follow
    /// while the listing is incomplete.
    fn files_remaining(&self) -> u64 {
        let ended = self.progress.files_done + self.progress.files_failed;
        self.progress.files_listed.saturating_sub(ended)
    }

    fn bytes_remaining(&self) -> u64 {
        let progress = &self.progress;
        progress.bytes_listed.saturating_sub(progress.bytes_durable)
    }

    fn eta_seconds(&self) -> Option<u64> {
        // A silent transfer has no estimated finish.
        (self.progress.listing_done && self.rate > 0 && self.silent_seconds.is_none())
            .then(|| self.bytes_remaining().div_ceil(self.rate))
    }

    /// Returns the line for a terminal.
    pub(super) fn words(&self) -> String {
        let progress = &self.progress;
        let more = if progress.listing_done { "" } else { "+" };
        let failed = match progress.files_failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let eta = self
            .eta_seconds()
            .map_or_else(String::new, |eta| format!(", ETA {}", duration(eta)));
        if let Some(seconds) = self.silent_seconds {
            return format!(
                "{} of {}{more}, files {} of {}{more}{failed}, {} silent for {}",
                human(progress.bytes_durable),
                human(progress.bytes_listed),
                progress.files_done,
                progress.files_listed,
                silent_end(self.bottleneck),
                duration(seconds),
            );
        }
        let held = self
            .bottleneck
            .map_or_else(String::new, |stage| format!(" ({})", held_up_by(stage)));
        let read_back = match progress.bytes_read_back {
            0 => String::new(),
            bytes => format!(", {} read back", human(bytes)),
        };
        format!(
            "{} of {}{more}, files {} of {}{more}{failed}{read_back}, {}/s{held}{eta}",
            human(progress.bytes_durable),
            human(progress.bytes_listed),
            progress.files_done,
            progress.files_listed,
            human(self.rate),
        )
    }

    /// Returns the JSON line. `seconds` is the time since the start of the transfer.
    pub(super) fn json(&self, seconds: f64) -> serde_json::Value {
        let progress = &self.progress;
        json!({
            "event": "progress",
            "seconds": (seconds * 1000.0).round() / 1000.0,
            "listing_done": progress.listing_done,
            "files_listed": progress.files_listed,
            "files_done": progress.files_done,
            "files_failed": progress.files_failed,
            "files_remaining": self.files_remaining(),
            "bytes_listed": progress.bytes_listed,
            "bytes_durable": progress.bytes_safe(),
            "bytes_remaining": self.bytes_remaining(),
            "bytes_read_back": progress.bytes_read_back,
            "bytes_per_second": self.rate,
            "eta_seconds": self.eta_seconds(),
            "silent_seconds": self.silent_seconds,
            "profile": progress.profile,
            "bottleneck": self.bottleneck,
            "streams": progress.streams,
            "readers": progress.readers,
            "writers": progress.writers,
        })
    }
}

/// Returns a phrase that names the end for which the transfer waits.
const fn silent_end(bottleneck: Option<Stage>) -> &'static str {
    match bottleneck {
        Some(Stage::List | Stage::Read) => "the source has been",
        Some(Stage::Credit | Stage::Write | Stage::Sync | Stage::Publish | Stage::Decide) => {
            "the destination has been"
        }
        Some(Stage::Rate) => "the transfer is at its rate limit and has been",
        _ => "the other end has been",
    }
}

#[cfg(test)]
mod tests {
    use super::View;
    use dray_core::profile::Stage;
    use dray_session::Progress;

    #[test]
    fn words_while_listing_goes_on() {
        let progress = Progress {
            files_listed: 3,
            files_done: 1,
            files_failed: 1,
            bytes_listed: 4096,
            bytes_durable: 1024,
            ..Progress::default()
        };
        let view = View {
            progress,
            rate: 1024,
            bottleneck: None,
            silent_seconds: None,
        };
        assert_eq!(
            view.words(),
            "1.0 KiB of 4.0 KiB+, files 1 of 3+, 1 failed, 1.0 KiB/s"
        );
        assert_eq!(view.files_remaining(), 1);
        assert_eq!(view.eta_seconds(), None, "unknown while listing goes on");
        let held = View {
            bottleneck: Some(Stage::Rate),
            ..view
        };
        assert!(
            held.words()
                .ends_with(", 1.0 KiB/s (the rate limit of the transfer)")
        );
        let silent = View {
            progress: Progress {
                listing_done: true,
                ..held.progress
            },
            bottleneck: Some(Stage::Read),
            silent_seconds: Some(37),
            ..held
        };
        let words = silent.words();
        assert!(
            words.ends_with(", the source has been silent for 37s"),
            "{words}"
        );
        assert_eq!(silent.eta_seconds(), None);
    }
}
