//! The bounded queue of ended spans, and the thread that sends them to the collector.

use crate::data::Ended;
use crate::otlp;
use crate::settings::Settings;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use dray_core::Result;
use dray_link::threads;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Maximum number of spans that wait for the collector. A span has at most a few KiB.
pub const QUEUE_MAX: usize = 4096;

/// Maximum number of spans in one request.
pub(crate) const BATCH_MAX: usize = 512;

/// Maximum time that a span waits for further spans of its request.
const BATCH_TIME: Duration = Duration::from_secs(1);

/// Interval at which the thread checks if it must end.
const LOOK: Duration = Duration::from_millis(50);

/// Maximum time to connect to the collector.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Maximum time of one request (the default of `OTEL_EXPORTER_OTLP_TIMEOUT`).
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// Maximum number of times that one request is sent, and the wait before its first repetition. The
/// wait doubles each time. The specification demands repetitions after these status codes (OTLP,
/// "Failures"), and leaves the number open; the values are estimates.
const TRIES_MAX: u32 = 4;
const BACKOFF: Duration = Duration::from_secs(1);
const TEMPORARY: [u16; 4] = [429, 502, 503, 504];

/// Maximum size of an answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Numbers of spans since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Spans that the collector has accepted.
    pub exported: u64,
    /// Spans that were dropped because the queue was full, because the collector could not be
    /// reached, or because the collector rejected them.
    pub dropped: u64,
}

#[derive(Default)]
struct Shared {
    is_stopping: AtomicBool,
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// The queue of ended spans, and its counters.
pub(crate) struct Queue {
    spans: Sender<Ended>,
    done: Receiver<()>,
    shared: Arc<Shared>,
}

impl Queue {
    /// Starts the thread that sends spans.
    pub(crate) fn start(settings: Settings, tell: impl Fn(&str) + Send + 'static) -> Result<Self> {
        let (queue, spans) = bounded(QUEUE_MAX);
        let (ended, done) = bounded(1);
        let shared = Arc::new(Shared::default());
        let worker = Worker {
            agent: agent(&settings.url),
            settings,
            spans,
            shared: Arc::clone(&shared),
            tell: Box::new(tell),
            is_failing: false,
        };
        let name = "dray-spans".to_owned();
        let spawned = std::thread::Builder::new().name(name).spawn(move || {
            worker.run();
            let _ = ended.send(());
        });
        spawned.map_err(|error| threads::refused(&error))?;
        Ok(Self {
            spans: queue,
            done,
            shared,
        })
    }

    /// Passes an ended span to the thread. Drops the span if the queue is full.
    pub(crate) fn pass(&self, span: Ended) {
        if self.spans.try_send(span).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            exported: self.shared.exported.load(Ordering::Relaxed),
            dropped: self.shared.dropped.load(Ordering::Relaxed),
        }
    }

    /// Sends the waiting spans and ends the thread. Waits at most `patience`.
    pub(crate) fn finish(&self, patience: Duration) {
        self.shared.is_stopping.store(true, Ordering::Release);
        let _ = self.done.recv_timeout(patience);
    }
}

fn agent(url: &str) -> ureq::Agent {
    let roots = match url.starts_with("https://") {
        true => rustls_native_certs::load_native_certs().certs,
        false => Vec::new(),
    };
    let roots = roots
        .iter()
        .map(|der| Certificate::from_der(der).to_owned());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots.collect())))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    ureq::Agent::config_builder()
        .tls_config(tls)
        .proxy(ureq::Proxy::try_from_env())
        // A redirect could send the spans and the credentials to another host.
        .max_redirects(0)
        .user_agent(concat!("dray/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT_MAX))
        .timeout_global(Some(REQUEST_MAX))
        .build()
        .into()
}

/// The reason why a request was not accepted.
struct Refused {
    text: String,
    is_temporary: bool,
}

struct Worker {
    settings: Settings,
    agent: ureq::Agent,
    spans: Receiver<Ended>,
    shared: Arc<Shared>,
    tell: Box<dyn Fn(&str) + Send>,
    is_failing: bool,
}

impl Worker {
    fn is_stopping(&self) -> bool {
        self.shared.is_stopping.load(Ordering::Acquire)
    }

    fn run(mut self) {
        loop {
            match self.spans.recv_timeout(LOOK) {
                Ok(first) => {
                    let batch = self.batch(first);
                    self.send(&batch);
                }
                Err(RecvTimeoutError::Timeout) if self.is_stopping() => return,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn batch(&self, first: Ended) -> Vec<Ended> {
        let until = Instant::now() + BATCH_TIME;
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX {
            match self.spans.recv_timeout(LOOK) {
                Ok(span) => batch.push(span),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if self.is_stopping() => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= until {
                break;
            }
        }
        batch
    }

    /// Sends spans, with repetitions after temporary errors.
    fn send(&mut self, batch: &[Ended]) {
        let body = otlp::request(&self.settings, batch).to_string();
        let count = batch.len() as u64;
        let mut wait = BACKOFF;
        for attempt in 1..=TRIES_MAX {
            match self.post(&body) {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    (self.shared.exported).fetch_add(count - rejected, Ordering::Relaxed);
                    self.shared.dropped.fetch_add(rejected, Ordering::Relaxed);
                    if std::mem::take(&mut self.is_failing) {
                        let url = &self.settings.url;
                        (self.tell)(&format!("the collector at {url} accepts spans again"));
                    }
                    return;
                }
                Err(refused) => {
                    self.failing(&refused.text);
                    if !refused.is_temporary || attempt == TRIES_MAX || !self.sleep(wait) {
                        break;
                    }
                    wait *= 2;
                }
            }
        }
        self.shared.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Reports the first failure after a success.
    fn failing(&mut self, text: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            (self.tell)(&format!(
                "cannot export spans to {}: {text}; transfers continue, but spans may be lost; \
                 check that a collector accepts OTLP over HTTP at this URL",
                self.settings.url
            ));
        }
    }

    /// Waits. Returns false if the thread must end.
    fn sleep(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        while Instant::now() < until {
            if self.is_stopping() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        !self.is_stopping()
    }

    /// Sends one request. Returns the number of spans that the collector rejected.
    fn post(&self, body: &str) -> std::result::Result<u64, Refused> {
        let mut request = self.agent.post(&self.settings.url);
        request = request.header("content-type", "application/json");
        for (key, value) in &self.settings.headers {
            request = request.header(key, value);
        }
        let mut answer = request.send(body).map_err(|error| Refused {
            is_temporary: match error {
                ureq::Error::StatusCode(code) => TEMPORARY.contains(&code),
                ureq::Error::Http(_) | ureq::Error::BadUri(_) => false,
                _ => true,
            },
            text: error.to_string(),
        })?;
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        Ok(otlp::rejected(&body.read_to_vec().unwrap_or_default()))
    }
}
