//! Counters, in the text format of Prometheus.
//!
//! The format is written without a library, because a dozen numbers and one histogram need less
//! code than the calls of a library.

mod outcomes;
mod space;
mod targets;
mod tiers;

pub use space::RootSpace;
pub use tiers::TierSample;

use crate::live::SinkCounts;
use axum::http::Method;
use dray_api::TargetAnswer;
use dray_core::Result;
use dray_core::lock::LockExt;
use dray_queue::{Queue, clock};
use dray_telemetry::Counts;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the histogram's buckets, in seconds.
const BUCKETS: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Maximum number of series. A series is a combination of route, method and status code. Beyond the
/// limit, new series are not counted. The API has about fifty routes and a dozen codes, so the
/// limit is reached only if a defect lets callers choose a label.
const SERIES_MAX: usize = 2_000;

#[derive(Debug, Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
}

/// Values that other parts of the endpoint have at the moment of a call.
#[derive(Debug, Default)]
pub struct Samples {
    /// The tiers.
    pub tiers: Vec<TierSample>,
    /// The storage targets that running sessions use.
    pub targets: Vec<TargetAnswer>,
    /// Sums of the counters of all sinks.
    pub sinks: SinkCounts,
    /// Space of the roots.
    pub roots: Vec<RootSpace>,
    /// Numbers of exported and dropped spans. `None` if the endpoint exports no spans.
    pub spans: Option<Counts>,
}

/// The counters of the endpoint.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(String, String, u16), u64>>,
    latency: Mutex<BTreeMap<(String, String), Histogram>>,
    /// Number of running sessions, active and passive.
    pub sessions: AtomicI64,
    /// Number of open connections of callers.
    pub connections: AtomicI64,
    /// Number of connections that were refused or closed because all slots were taken.
    pub connections_refused: AtomicU64,
    /// Number of partial files that the janitor has removed.
    pub janitor_removed: AtomicU64,
    /// Time of the expiry of the endpoint's certificate, in seconds since 1970.
    pub certificate_expires: AtomicI64,
    /// 1 while the files of the certificate hold a pair that the endpoint refuses, else 0.
    pub certificate_rejected: AtomicI64,
}

impl Metrics {
    /// Counts an answered call and its duration.
    pub fn answered(&self, method: &Method, route: &str, code: u16, took: Duration) {
        let method = match *method {
            Method::GET | Method::POST | Method::PATCH | Method::DELETE => method.as_str(),
            // A caller may send any method name, so unknown names share one label.
            _ => "other",
        };
        let seconds = took.as_secs_f64();
        let mut requests = self.requests.lock_unpoisoned();
        let key = (method.to_owned(), route.to_owned(), code);
        if requests.len() < SERIES_MAX || requests.contains_key(&key) {
            *requests.entry(key).or_default() += 1;
        }
        drop(requests);
        let mut latency = self.latency.lock_unpoisoned();
        let key = (method.to_owned(), route.to_owned());
        if latency.len() < SERIES_MAX || latency.contains_key(&key) {
            let histogram = latency.entry(key).or_default();
            histogram.count += 1;
            histogram.seconds += seconds;
            if let Some(at) = BUCKETS.iter().position(|end| seconds <= *end) {
                histogram.buckets[at] += 1;
            }
        }
    }

    /// Returns all metrics as text, including the samples of other parts.
    ///
    /// # Errors
    /// The errors of the queue's database.
    pub fn text(&self, queue: &Queue, samples: &Samples) -> Result<String> {
        let mut text = String::new();
        head(&mut text, "dray_transfers", "gauge", "Transfers by state.");
        for (state, count) in queue.count_by_state()? {
            line(
                &mut text,
                "dray_transfers",
                &format!("state=\"{}\"", state.word()),
                count,
            );
        }
        let bytes = "Bytes of file content sent since the process started.";
        head(&mut text, "dray_bytes_sent_total", "counter", bytes);
        line(&mut text, "dray_bytes_sent_total", "", queue.bytes_sent());
        for (name, kind, help, value) in self.values(queue).into_iter().chain(promises(queue)) {
            head(&mut text, name, kind, help);
            line(&mut text, name, "", value);
        }
        outcomes::push(&mut text, queue.tally());
        outcomes::push_sinks(&mut text, &samples.sinks);
        space::push(&mut text, &samples.roots);
        tiers::push(&mut text, &samples.tiers);
        targets::push(&mut text, &samples.targets);
        spans(&mut text, samples.spans);
        self.api(&mut text);
        Ok(text)
    }

    /// Returns all metrics without labels.
    fn values(&self, queue: &Queue) -> Vec<Plain> {
        let holds = queue.holds();
        vec![
            (
                "dray_sessions",
                "gauge",
                "Running sessions.",
                self.sessions.load(Ordering::Relaxed),
            ),
            (
                "dray_connections",
                "gauge",
                "Open connections of callers.",
                self.connections.load(Ordering::Relaxed),
            ),
            (
                "dray_connections_refused_total",
                "counter",
                "Connections rejected because a limit of connections was reached.",
                signed(&self.connections_refused),
            ),
            (
                "dray_janitor_removed_total",
                "counter",
                "Partial files removed by the janitor.",
                signed(&self.janitor_removed),
            ),
            (
                "dray_certificate_expiry_seconds",
                "gauge",
                "Seconds until the endpoint's certificate expires; negative after its expiry.",
                self.certificate_expires.load(Ordering::Relaxed) - clock::now().as_ms() / 1_000,
            ),
            (
                "dray_certificate_rejected",
                "gauge",
                "1 while the endpoint refuses the changed files of its certificate, else 0.",
                self.certificate_rejected.load(Ordering::Relaxed),
            ),
            (
                "dray_policy_held",
                "gauge",
                "Transfers with a session that the policy holds at present in favour of other \
                    transfers.",
                whole(queue.held_now()),
            ),
            (
                "dray_policy_holds_total",
                "counter",
                "Number of times that the policy held a running transfer in favour of other \
                    transfers.",
                signed(&holds.begun),
            ),
            (
                "dray_policy_let_go_total",
                "counter",
                "Sessions that transfers gave up because the policy preferred other transfers.",
                signed(&holds.release),
            ),
            (
                "dray_event_listeners",
                "gauge",
                "Clients that listen to events.",
                i64::from(queue.hub().listeners()),
            ),
        ]
    }

    fn api(&self, text: &mut String) {
        let name = "dray_api_requests_total";
        head(
            text,
            name,
            "counter",
            "API calls that were answered, by method, route and HTTP code.",
        );
        let requests = self.requests.lock_unpoisoned();
        for ((method, route, code), count) in &*requests {
            let labels = format!("method=\"{method}\",route=\"{route}\",code=\"{code}\"");
            line(text, name, &labels, count);
        }
        drop(requests);
        let name = "dray_api_seconds";
        head(
            text,
            name,
            "histogram",
            "Duration of API calls in seconds, by method and route.",
        );
        let latency = self.latency.lock_unpoisoned();
        for ((method, route), histogram) in &*latency {
            let labels = format!("method=\"{method}\",route=\"{route}\"");
            let mut sum = 0;
            for (end, count) in BUCKETS.iter().zip(histogram.buckets) {
                sum += count;
                let labels = format!("{labels},le=\"{end}\"");
                line(text, &format!("{name}_bucket"), &labels, sum);
            }
            let all = format!("{labels},le=\"+Inf\"");
            line(text, &format!("{name}_bucket"), &all, histogram.count);
            line(text, &format!("{name}_sum"), &labels, histogram.seconds);
            line(text, &format!("{name}_count"), &labels, histogram.count);
        }
    }
}

fn signed(counter: &AtomicU64) -> i64 {
    i64::try_from(counter.load(Ordering::Relaxed)).unwrap_or(i64::MAX)
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Name, kind, help text and value of a metric without labels.
type Plain = (&'static str, &'static str, &'static str, i64);

fn promises(queue: &Queue) -> Vec<Plain> {
    let promises = queue.promises().standing();
    vec![
        (
            "dray_promises",
            "gauge",
            "Promises of transfers that have not ended.",
            whole(promises.held),
        ),
        (
            "dray_promises_moving",
            "gauge",
            "Promised transfers that have a planned rate at present.",
            whole(promises.moving),
        ),
        (
            "dray_promises_missing",
            "gauge",
            "Promises that will be missed under present conditions.",
            whole(promises.missing),
        ),
        (
            "dray_promises_seatless",
            "gauge",
            "Promised transfers that have a planned rate at present, but no session.",
            whole(promises.seatless),
        ),
        (
            "dray_promises_kept_total",
            "counter",
            "Promises that were kept.",
            signed(&queue.promises().counts.kept),
        ),
        (
            "dray_promises_missed_total",
            "counter",
            "Promises that were not kept.",
            signed(&queue.promises().counts.missed),
        ),
        (
            "dray_promises_foretold_total",
            "counter",
            "Promises for which the endpoint reported, before the deadline, that they would be \
                missed.",
            signed(&queue.promises().counts.foretold),
        ),
        (
            "dray_promises_refused_total",
            "counter",
            "Submissions and changes of transfers for which the endpoint refused a promise.",
            signed(&queue.promises().counts.refused),
        ),
    ]
}

fn spans(text: &mut String, counts: Option<Counts>) {
    let Some(counts) = counts else { return };
    for (name, help, value) in [
        (
            "dray_spans_exported_total",
            "Spans that the collector has accepted.",
            counts.exported,
        ),
        (
            "dray_spans_dropped_total",
            "Spans dropped because the queue was full, or because the collector was unreachable or \
                rejected them.",
            counts.dropped,
        ),
    ] {
        head(text, name, "counter", help);
        line(text, name, "", value);
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // `writeln!` to a `String` cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = match labels.is_empty() {
        true => writeln!(text, "{name} {value}"),
        false => writeln!(text, "{name}{{{labels}}} {value}"),
    };
}

#[cfg(test)]
mod tests;
