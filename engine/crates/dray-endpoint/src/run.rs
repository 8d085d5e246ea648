//! Assembles an endpoint from its parts, and defines the order in which the parts start and end.

mod stages;

use crate::accounts::Accounts;
use crate::api::{About, Api, Parts, router};
use crate::audit::Audit;
use crate::certificate::{self, Renewal};
use crate::dispatch::{Dispatcher, Shares};
use crate::janitor::Janitor;
use crate::listen::listen_patiently;
use crate::live::{Bounds, Live};
use crate::metrics::Metrics;
use crate::passive::{Front, Passive, key_waits};
use crate::peers::Peers;
use crate::process;
use crate::queue_settings::queue_settings;
use crate::receipts::Receipts;
use crate::server::Server;
use crate::session::SessionRunner;
use crate::staging::{Expiry, Recalls};
use crate::storage::Given;
use crate::supervisor::Supervisor;
use crate::ticket_store::TicketStore;
use crate::tier::Tiers;
use crate::trust_timer;
use dray_access::login::Logins;
use dray_access::{Access, Authenticator, authorities};
use dray_api::timestamp::time;
use dray_config::Config;
use dray_config::roots::Roots;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result, plan};
use dray_net::{Fingerprint, Listener, Presented, Serve, server_config};
use dray_queue::Queue;
use dray_queue::clock;
use dray_queue::events::Hub;
use dray_runtime::assembly::{self, Buffers};
use dray_runtime::tune::memory::Pairs;
use dray_telemetry::{Settings, Telemetry};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Interval between two rounds of shares, which divide the rate.
const SHARES_INTERVAL: Duration = Duration::from_millis(200);

/// Interval between two checks of the tickets in use.
const TICKETS_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of connections whose protocol is not known yet. Each of them occupies a thread.
/// The value is estimated, not measured.
const PENDING_MAX: u32 = 128;

/// Returns the maximum number of the listener's connections whose session has not begun.
fn pending_max(config: &Config) -> usize {
    limit(config.limits.connections.clamp(16, PENDING_MAX))
}

/// Maximum time that answers in progress get when the endpoint stops.
const ANSWERS_LEAVE: Duration = Duration::from_secs(5);

/// Maximum time that the last spans get when the endpoint stops.
const SPANS_LEAVE: Duration = Duration::from_secs(2);

/// An endpoint that listens and does not yet serve connections.
pub struct Endpoint {
    config: Arc<Config>,
    presented: Presented,
    renewal: Renewal,
    listener: Listener,
    plain: Vec<SocketAddr>,
    passive: Passive,
    dispatcher: Dispatcher,
    shares: Shares,
    book: Arc<TicketStore>,
    janitor: Janitor,
    expiry: Expiry,
    recalls: Recalls,
    metrics: Arc<Metrics>,
    api: Arc<Api>,
    server: Arc<Server>,
    telemetry: Telemetry,
    stop: Arc<Stop>,
}

#[derive(Default)]
struct Stop {
    is_asked: AtomicBool,
    lock: Mutex<()>,
    asked: Condvar,
}

impl Stop {
    fn ask(&self) {
        self.is_asked.store(true, Ordering::Release);
        let _held = self.lock.lock_unpoisoned();
        self.asked.notify_all();
    }

    fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// Sleeps for `wait`, or until a stop is requested. Returns false if a stop was requested.
    fn sleep(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut held = self.lock.lock_unpoisoned();
        while !self.is_asked() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.asked.wait_timeout(held, left);
            held = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

/// Stops an [`Endpoint`] from another thread.
#[derive(Clone)]
pub struct Stopper(Arc<Stop>);

impl Stopper {
    /// Asks the endpoint to stop. The endpoint starts no new work and ends its sessions. Durable
    /// data is kept. Then [`Endpoint::run`] returns.
    pub fn stop(&self) {
        self.0.ask();
    }
}

/// Returns a warning if the janitor lacks the rights to remove partial data of other accounts.
const fn unswept(is_setuid: bool, is_root: bool) -> Option<&'static str> {
    if is_setuid && !is_root {
        return Some(
            "with setuid = true the janitor cannot remove partial data, which belongs to other \
                accounts: run `dray log sweep ROOT --older-than 30d` regularly as root",
        );
    }
    None
}

/// Returns the session runner. It accepts certificates of other endpoints that the configured
/// authorities have issued.
fn session_runner(
    config: &Arc<Config>,
    roots: &Roots,
    identity: &Presented,
    accounts: &Arc<Accounts>,
) -> Result<SessionRunner> {
    let peers_ca = config.tls.peers_ca.as_deref();
    let authority = match peers_ca {
        Some(_) => Some(configured("tls.peers_ca", authorities(peers_ca))?),
        // A system without authorities is not an error, because other endpoints can be identified
        // by their keys.
        None => authorities(None).ok(),
    };
    let pairs = Pairs::open(&config.state, time(clock::now()), |words| {
        tracing::warn!("{words}")
    });
    Ok(SessionRunner::new(
        Arc::clone(config),
        roots.clone(),
        identity.clone(),
        authority,
        Arc::clone(accounts),
        pairs,
    ))
}

/// Returns the janitor. It keeps the data of transfers that this endpoint drives, and of transfers
/// for which another endpoint still holds a valid ticket.
fn janitor(
    config: &Config,
    roots: &Roots,
    audit: &Arc<Audit>,
    metrics: &Arc<Metrics>,
    queue: &Arc<Queue>,
) -> Janitor {
    if let Some(word) = unswept(config.setuid, rustix::process::geteuid().is_root()) {
        tracing::warn!("{word}");
    }
    let transfers = Arc::clone(queue);
    Janitor::new(
        roots.clone(),
        (&config.janitor).into(),
        Arc::clone(audit),
        Arc::clone(metrics),
        Box::new(move |transfer| {
            let awaited = transfers
                .tickets()
                .is_awaited(transfer.as_str(), clock::now());
            Ok(transfers.is_live(transfer)? || awaited?)
        }),
    )
}

fn ticket_store(
    config: &Config,
    queue: &Arc<Queue>,
    live: &Live,
    identity: &Presented,
    address: &str,
) -> Arc<TicketStore> {
    Arc::new(TicketStore::new(
        Arc::clone(queue),
        live.clone(),
        &config.tickets,
        identity.clone(),
        address.to_owned(),
    ))
}

fn open_queue(config: &Config) -> Result<Arc<Queue>> {
    let hub = Hub::new(config.limits.events_listeners_per_owner, clock::now());
    Queue::open(queue_settings(config), Arc::new(hub))
}

/// Opens the audit log and the rules of access.
fn open_access(config: &Config, roots: &Roots) -> Result<(Arc<Audit>, Arc<dyn Access>)> {
    let audit = config.audit.as_ref().map(|audit| audit.file.as_path());
    let audit = configured("audit.file", Audit::open(audit))?;
    let authenticator = Authenticator::open(config, roots.clone());
    let authenticator = configured("tls.client_ca, tls.crl or issuer_local.key", authenticator)?;
    Ok((Arc::new(audit), Arc::new(authenticator)))
}

/// Listens on the addresses of plain HTTP.
fn listen_plain(config: &Config, server: &Arc<Server>) -> Result<Vec<SocketAddr>> {
    let addresses = config.listen_plain.addresses.iter();
    let plain = addresses.map(|address| {
        let addresses = [address.as_str().to_owned()];
        listen_patiently(&addresses, || server.listen_plain(address.as_str()))
    });
    plain.collect()
}

/// Returns the dispatcher, which runs the queue's transfers.
fn dispatcher(
    config: &Arc<Config>,
    queue: &Arc<Queue>,
    runner: SessionRunner,
    live: &Live,
    (access, audit): (&Arc<dyn Access>, &Arc<Audit>),
    telemetry: &Telemetry,
) -> Dispatcher {
    Dispatcher::new(
        Arc::clone(queue),
        Arc::new(runner),
        Arc::clone(config),
        live.clone(),
        Arc::clone(access),
        Arc::clone(audit),
        telemetry.clone(),
    )
}

/// Starts the export of spans, if the configuration or the environment names a collector.
fn telemetry(config: &Config) -> Result<Telemetry> {
    let variable = |name: &str| std::env::var(name).ok();
    let settings = Settings::of(config.telemetry.otlp.as_deref(), "dray", variable);
    let settings = match settings {
        // The variable may be meant for other programs, so it does not make the endpoint fail.
        Err(error) if config.telemetry.otlp.is_none() => {
            tracing::warn!("{error}");
            None
        }
        settings => configured("telemetry.otlp", settings)?,
    };
    let Some(mut settings) = settings else {
        return Ok(Telemetry::off());
    };
    settings.instance.clone_from(&config.name);
    Telemetry::start(settings, |words| tracing::warn!("{words}"))
}

/// Returns the function that takes over HTTP connections that arrive at the data port.
///
/// # Errors
/// If rustls rejects the algorithms of TLS.
fn front(server: &Arc<Server>, identity: &Presented) -> Result<Front> {
    let mut tls = (*server_config(identity)?).clone();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tls = Arc::new(tls);
    let server = Arc::clone(server);
    Ok(Box::new(move |stream| {
        // The result is ignored, because `serve_connection` itself counts and closes a refused
        // connection.
        drop(server.serve_connection(stream, Some(Arc::clone(&tls))));
        Ok(())
    }))
}

fn about(identity: &Presented, address: String) -> About {
    About {
        identity: identity.clone(),
        address,
    }
}

impl Endpoint {
    /// Opens all files and folders that the configuration names, and starts to listen.
    ///
    /// # Errors
    /// If a file, a folder or an address cannot be opened. The error has a remedy.
    pub fn open(mut config: Config) -> Result<Self> {
        process::check(&config)?;
        let identity = open_identity(&config)?;
        let accounts = Arc::new(Accounts::open(&config)?);
        let roots = Roots::open(&config)?;
        let bounds = Bounds::of(&config);
        let live = Live::of(&config);
        let (audit, access) = open_access(&config, &roots)?;
        dray_runtime::select::bound_memory(bounds.patterns());
        let listener = listen(&config, &identity, &bounds)?;
        config.listens_at(listener.addresses());
        let config = Arc::new(config);
        let queue = open_queue(&config)?;
        let receipts = Receipts::open(&config, &queue)?;
        let runner = session_runner(&config, &roots, &identity, &accounts)?;
        let peers = Peers::of(&config, runner.authority());
        let address = config.advertised(listener.addresses());
        let book = ticket_store(&config, &queue, &live, &identity, &address);
        let metrics = Arc::new(Metrics::default());
        let janitor = janitor(&config, &roots, &audit, &metrics, &queue);
        let tiers = Tiers::open(&config, &queue, &roots, &accounts, &audit, &live)?;
        let expiry = stages::expiry(&config, &roots, &accounts, &audit, &queue, &tiers);
        let recalls = stages::recalls(&roots, &accounts, &queue, &tiers);
        let telemetry = telemetry(&config)?;
        let by = (&access, &audit);
        let dispatcher = dispatcher(&config, &queue, runner, &live, by, &telemetry);
        let logins = configured("the key secret_file in [[ui.login]]", Logins::open(&config))?;
        let api = Api::new(Parts {
            config: Arc::clone(&config),
            queue: Arc::clone(&queue),
            roots: Arc::new(roots.clone()),
            access: Arc::clone(&access),
            logins,
            tickets: Arc::clone(&book) as _,
            scheduler: Arc::new(dispatcher.clone()),
            metrics: Arc::clone(&metrics),
            audit: Arc::clone(&audit),
            accounts: Arc::clone(&accounts),
            tiers,
            live: live.clone(),
            peers,
            receipts,
            about: about(&identity, address),
            telemetry: telemetry.clone(),
        })?;
        let routes = router(Arc::clone(&api));
        let server = Arc::new(Server::new(routes, &config.limits, Arc::clone(&metrics))?);
        let plain = listen_plain(&config, &server)?;
        let passive = Passive {
            config: Arc::clone(&config),
            roots,
            live: live.clone(),
            access,
            tickets: Arc::clone(&book) as _,
            audit,
            accounts,
            tokio: server.handle().clone(),
            front: front(&server, &identity)?,
            key_waits: key_waits(pending_max(&config)),
            telemetry: telemetry.clone(),
        };
        Ok(Self {
            plain,
            shares: Shares::new(Arc::clone(&config), live, queue),
            renewal: Renewal::new(&config, identity.clone(), Arc::clone(&metrics)),
            config,
            presented: identity,
            listener,
            passive,
            dispatcher,
            book,
            janitor,
            expiry,
            recalls,
            metrics,
            api,
            server,
            telemetry,
            stop: Arc::default(),
        })
    }

    /// Returns the host name that URLs of this endpoint contain.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the fingerprint of the endpoint's key, for other hosts to pin.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.presented.fingerprint()
    }

    /// Returns the addresses of the data port, with actual port numbers.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        self.listener.addresses()
    }

    /// Returns the addresses for plain HTTP, with actual port numbers.
    #[must_use]
    pub fn plain_addresses(&self) -> Vec<SocketAddr> {
        self.plain.clone()
    }

    /// Returns a handle that stops the endpoint.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Runs until the endpoint is stopped.
    ///
    /// # Errors
    /// If the queue cannot be read, or the system refuses a thread for one of the parts.
    pub fn run(self) -> Result<()> {
        let asked = Arc::clone(&self.stop);
        trust_timer::start(&self.config, move |wait| asked.sleep(wait))?;
        let Self {
            listener,
            passive,
            dispatcher,
            mut shares,
            book,
            janitor,
            expiry,
            recalls,
            renewal,
            metrics,
            api,
            server,
            telemetry,
            stop,
            ..
        } = self;
        let sessions = listener.stopper();
        let given = Given::default();
        let ask = || stop.ask();
        let ran = std::thread::scope(|scope| {
            // If one part ends unexpectedly, the whole endpoint ends, so that the service manager
            // restarts the endpoint.
            let parts = Supervisor::new(scope, &ask);
            // If the endpoint serves only plain HTTP, the listener of the data port has no
            // addresses. Do not start this listener then: it would return immediately, and the
            // supervisor would end the other parts.
            let listens = !listener.addresses().is_empty();
            let listening = listens.then(|| parts.spawn(|| listener.run(&passive)));
            let tiers = api.tiers.workers().map(|tier| {
                let (given, stop) = (&given, &stop);
                parts.spawn(move || tier.run(given, &|wait| stop.sleep(wait)))
            });
            let mut others: Vec<_> = tiers.collect();
            others.extend(api.receipts.iter().map(|receipts| {
                let stop = &stop;
                parts.spawn(move || receipts.run(&|| stop.is_asked()))
            }));
            others.extend([
                parts.spawn(|| {
                    while stop.sleep(SHARES_INTERVAL) {
                        let count = shares.round();
                        metrics.sessions.store(count, Ordering::Relaxed);
                    }
                }),
                parts.spawn(|| {
                    while stop.sleep(TICKETS_INTERVAL) {
                        book.look();
                    }
                }),
                parts.spawn(|| janitor.run(&|wait| stop.sleep(wait))),
                parts.spawn(|| expiry.run(&given, &|wait| stop.sleep(wait))),
                parts.spawn(|| recalls.run(&|wait| stop.sleep(wait))),
                parts.spawn(|| renewal.run(&|wait| stop.sleep(wait))),
            ]);
            // The dispatcher starts transfers, so it runs only if all other parts have started.
            let is_whole = listening.iter().all(Result::is_ok) && others.iter().all(Result::is_ok);
            let dispatching = is_whole.then(|| parts.spawn(|| dispatcher.run()));
            while stop.sleep(Duration::from_secs(3_600)) {}
            given.up();
            api.stop();
            dispatcher.stop();
            sessions.stop();
            api.receipts.iter().for_each(|receipts| receipts.wake());
            let ended = |part: Result<ScopedJoinHandle<'_, Result<()>>>, work| {
                let died = |_| Err(Error::new(ErrorKind::Internal, End::Here, work));
                part?.join().unwrap_or_else(died)
            };
            dispatching.map_or(Ok(()), |part| ended(part, "run transfers"))?;
            listening.map_or(Ok(()), |part| ended(part, "listen"))?;
            others.into_iter().try_for_each(|part| part.map(drop))
        });
        server.stop(ANSWERS_LEAVE);
        api.finish(ANSWERS_LEAVE);
        telemetry.finish(SPANS_LEAVE);
        ran
    }
}

/// Converts an error about a file that the configuration names under `key` to a configuration
/// error. A configuration error tells the service manager that a restart would fail in the same
/// way.
fn configured<T>(key: &str, opened: Result<T>) -> Result<T> {
    opened.map_err(|error| match error.kind {
        ErrorKind::Io
        | ErrorKind::NotFound
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::AlreadyExists
        | ErrorKind::NoSpace
        | ErrorKind::ReadOnly
        | ErrorKind::PermissionDenied
        | ErrorKind::InvalidRequest => {
            let remedy = match error.remedy.is_empty() {
                true => format!("correct {key} in the configuration"),
                false => format!("{} ({key} in the configuration)", error.remedy),
            };
            Error {
                kind: ErrorKind::InvalidRequest,
                ..error.remedy(remedy)
            }
        }
        _ => error,
    })
}

/// Opens the certificate and the key with which the endpoint proves its identity.
fn open_identity(config: &Config) -> Result<Presented> {
    let opened = certificate::open(config);
    match config.tls.certificate {
        Some(_) => configured("tls.certificate, tls.key", opened),
        None => opened,
    }
}

fn listen(config: &Config, identity: &Presented, bounds: &Bounds) -> Result<Listener> {
    let largest = bounds.object_bytes_max();
    if largest < plan::OBJECT_BYTES_MIN {
        return Err(Error::new(
            ErrorKind::InvalidRequest,
            End::Here,
            "divide the memory of the endpoint among sessions",
        )
        .cause(format!(
            "limits.memory is too small for {} sessions",
            bounds.sessions
        ))
        .remedy("raise limits.memory or lower limits.transfers_active"));
    }
    let settings = || {
        let mut settings = Serve::new(identity.clone());
        settings.limits = assembly::limits(Buffers::new(bounds.least(), largest));
        settings.limits.live_entries_max = bounds.live_entries_max();
        settings.allow_clear_data = config.clear_data;
        settings.streams_max = config.limits.streams_per_session;
        settings.sessions_max = limit(config.limits.transfers_active);
        settings.pending_max = pending_max(config);
        settings
    };
    let addresses: Vec<String> = config
        .listen
        .iter()
        .map(|address| address.as_str().to_owned())
        .collect();
    listen_patiently(&addresses, || Listener::bind(&addresses, settings()))
}

fn limit(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
