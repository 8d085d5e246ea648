//! The control API: maps HTTP requests to calls, and errors to status codes.
//!
//! Not for: the states of transfers (`queue`), permissions (`access`), sockets (`server`).
//!
//! Invariant owned here: every refusal has the form that docs/reference/api.md describes, whichever
//! layer refuses.

mod about;
mod events;
mod extract;
mod fair_semaphore;
mod kept_logs;
mod live;
mod load;
mod login;
mod logs;
mod outgoing;
mod peers;
mod receipts;
mod record;
mod refusal;
mod session;
mod sizes;
mod spaces;
mod spans;
mod staging;
mod storage;
mod submission;
mod tape;
mod targets;
mod tickets;
mod tiers;
mod transfers;
mod writes;

pub use refusal::{Refusal, code_of};

use crate::accounts::Accounts;
use crate::audit::Audit;
use crate::connection::SlotReference;
use crate::console;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::receipts::Receipts;
use crate::storage::{Given, Listings, in_plain_words};
use crate::tier::Tiers;
use crate::traits::{Scheduler, Tickets};
use crate::workers::Workers;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use dray_access::login::Logins;
use dray_access::{Access, Principal};
use dray_config::Config;
use dray_config::roots::Roots;
use dray_core::{End, Error, ErrorKind, Result};
use dray_net::Presented;
use dray_queue::Queue;
use dray_telemetry::Telemetry;
use extract::{CallHold, Places};
use fair_semaphore::{FairSemaphore, TURN_TIME, busy};
use kept_logs::KeptLogs;
use refusal::{Answer, CallerError};
use spaces::Spaces;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Maximum number of concurrent calls to the database of the queue.
const CALLS_MAX: usize = 256;

/// Maximum number of concurrent storage calls. Each call may occupy a thread for as long as the
/// storage takes.
const STORAGE_CALLS_MAX: usize = 16;

/// Maximum number of concurrent ticket renewals. Everybody may send a renewal, so renewals have
/// their own permits: callers that guess tickets must not use up the permits of authenticated
/// callers.
const RENEWALS_MAX: usize = 8;

/// Maximum duration of a call: one minute for a long poll, and a margin. Does not apply to the
/// calls in [`LASTING`].
const CALL_TIME: Duration = Duration::from_secs(75);

/// Calls without a time limit. Such a call lasts until its caller stops waiting.
const LASTING: [&str; 4] = [
    "/v1/events",
    "/v1/storage/checksum",
    "/v1/storage/rm",
    "/v1/staging/{id}/evict",
];

/// Facts about the endpoint that the API reports to callers.
#[derive(Debug, Clone)]
pub struct About {
    /// Key that the endpoint presents to callers.
    pub identity: Presented,
    /// Address for sessions, as other hosts reach it.
    pub address: String,
}

/// The state that all handlers share.
pub struct Api {
    /// The configuration.
    pub config: Arc<Config>,
    /// The queue.
    pub queue: Arc<Queue>,
    /// The exported roots.
    pub roots: Arc<Roots>,
    /// Authentication and permissions.
    pub access: Arc<dyn Access>,
    /// Logins to the console, and their sessions.
    pub logins: Logins,
    /// Tickets.
    pub tickets: Arc<dyn Tickets>,
    /// The rules that decide which transfers run.
    pub scheduler: Arc<dyn Scheduler>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// The system accounts that read and write files for callers.
    pub accounts: Arc<Accounts>,
    /// The tiers.
    pub tiers: Arc<Tiers>,
    /// The running sessions.
    pub live: Live,
    /// The other endpoints in the configuration.
    pub peers: Peers,
    /// The receipts. `None` if the configuration turns receipts off.
    pub receipts: Option<Arc<Receipts>>,
    /// Facts about the endpoint that the API reports to callers.
    pub about: About,
    /// Export of spans.
    pub telemetry: Telemetry,
    places: Arc<Places>,
    calls: Arc<Semaphore>,
    renewals: Arc<Semaphore>,
    storage_calls: FairSemaphore,
    listings: Listings,
    kept_logs: KeptLogs,
    /// Threads for calls to the queue, and for writing lines of the audit log.
    workers: Workers,
    /// Threads for storage calls. A storage call may take hours and must not delay other calls.
    storage_workers: Workers,
    spaces: Spaces,
    stopping: watch::Sender<bool>,
    document: Bytes,
}

/// The parts from which [`Api::new`] assembles an [`Api`].
pub struct Parts {
    /// The configuration.
    pub config: Arc<Config>,
    /// The queue.
    pub queue: Arc<Queue>,
    /// The exported roots.
    pub roots: Arc<Roots>,
    /// Authentication and permissions.
    pub access: Arc<dyn Access>,
    /// Logins to the console, and their sessions.
    pub logins: Logins,
    /// Tickets.
    pub tickets: Arc<dyn Tickets>,
    /// The rules that decide which transfers run.
    pub scheduler: Arc<dyn Scheduler>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// The system accounts that read and write files for callers.
    pub accounts: Arc<Accounts>,
    /// The tiers.
    pub tiers: Arc<Tiers>,
    /// The running sessions.
    pub live: Live,
    /// The other endpoints in the configuration.
    pub peers: Peers,
    /// The receipts. `None` if the configuration turns receipts off.
    pub receipts: Option<Arc<Receipts>>,
    /// Facts about the endpoint that the API reports to callers.
    pub about: About,
    /// Export of spans.
    pub telemetry: Telemetry,
}

impl Api {
    /// Assembles the API.
    ///
    /// # Errors
    /// `Internal` if the OpenAPI document cannot be serialised. `Busy` if the system refuses a
    /// thread.
    pub fn new(parts: Parts) -> Result<Arc<Self>> {
        let document = openapi().to_json().map_err(|error| {
            Error::new(ErrorKind::Internal, End::Here, "describe the API").cause(error.to_string())
        })?;
        let spaces = Spaces::new(&parts.roots)?;
        Ok(Arc::new(Self {
            config: parts.config,
            queue: parts.queue,
            roots: parts.roots,
            access: parts.access,
            logins: parts.logins,
            tickets: parts.tickets,
            scheduler: parts.scheduler,
            metrics: parts.metrics,
            audit: parts.audit,
            accounts: parts.accounts,
            tiers: parts.tiers,
            live: parts.live,
            peers: parts.peers,
            receipts: parts.receipts,
            about: parts.about,
            telemetry: parts.telemetry,
            places: Arc::default(),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            renewals: Arc::new(Semaphore::new(RENEWALS_MAX)),
            storage_calls: FairSemaphore::new(STORAGE_CALLS_MAX),
            listings: Listings::default(),
            kept_logs: KeptLogs::default(),
            workers: Workers::new(CALLS_MAX)?,
            storage_workers: Workers::new(STORAGE_CALLS_MAX)?,
            spaces,
            stopping: watch::Sender::new(false),
            document: Bytes::from(document),
        }))
    }

    /// Waits until all calls to the queue are done and logged, but at most `patience`.
    pub fn finish(&self, patience: Duration) {
        self.workers.wait(patience);
    }

    /// Starts to report that the endpoint is stopping, and answers all long polls and event
    /// listeners immediately.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Does blocking `work` on a worker thread.
    async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        let Ok(permit) = Arc::clone(&self.calls).try_acquire_owned() else {
            let cause = format!("{CALLS_MAX} API calls are in progress, which is the limit");
            return Err(busy("answer", cause).into());
        };
        let api = Arc::clone(self);
        let done = self.workers.call(move || {
            let _permit = permit;
            work(&api)
        });
        Ok(done.await.map_err(|_| broken())??)
    }

    /// Same as [`Api::call`], but with the separate permits for renewals, because the caller is not
    /// authenticated yet.
    async fn renewal<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        let turn = Arc::clone(&self.renewals).acquire_owned();
        match tokio::time::timeout(TURN_TIME, turn).await {
            // Keep the permit until the call is done, even if the caller disconnects.
            Ok(Ok(turn)) => {
                self.call(move |api| {
                    let _turn = turn;
                    work(api)
                })
                .await
            }
            Ok(Err(_)) | Err(_) => {
                let cause = format!(
                    "{RENEWALS_MAX} ticket renewals are in progress, which is the \
                    limit"
                );
                Err(busy("renew the ticket", cause).into())
            }
        }
    }

    /// Same as [`Api::call`], for storage calls that run with the caller's account. If the caller
    /// disconnects, [`Given`] tells `work` to stop.
    async fn storage_call<T: Send + 'static>(
        self: &Arc<Self>,
        caller: &Principal,
        work: impl FnOnce(&Self, &Given) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        let owner = caller.owner.clone();
        self.storage_turn(caller, move |api, given| {
            api.accounts.act_as(&owner, || work(api, given))
        })
        .await
    }

    /// Same as [`Api::storage_call`], but with the endpoint's account, for work that also writes
    /// the endpoint's own state.
    async fn storage_turn<T: Send + 'static>(
        self: &Arc<Self>,
        caller: &Principal,
        work: impl FnOnce(&Self, &Given) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        struct SetWhenDropped(Arc<Given>);
        impl Drop for SetWhenDropped {
            fn drop(&mut self) {
                self.0.up();
            }
        }
        let entering = self
            .storage_calls
            .enter(&caller.owner, "carry out the storage call");
        let turn = entering.await?;
        let api = Arc::clone(self);
        let given = Arc::new(Given::default());
        let guard = SetWhenDropped(Arc::clone(&given));
        let done = self.storage_workers.call(move || {
            let _turn = turn;
            // A store's error may mention the other end of a transfer or options of a command,
            // which this caller does not have.
            work(&api, &given).map_err(|error| match error.end {
                End::Here => error,
                _ => in_plain_words(error),
            })
        });
        let answer = done.await.map_err(|_| broken())?;
        drop(guard);
        Ok(answer?)
    }
}

/// Returns the refusal for a call that panicked.
fn broken() -> Refusal {
    Refusal::internal("an internal error occurred; see the endpoint's log")
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "The control API of a dray endpoint",
        description = "docs/reference/api.md describes the API in prose."
    ),
    security(("bearer" = []), ("certificate" = []))
)]
struct Document;

fn routes() -> OpenApiRouter<Arc<Api>> {
    let mut document = Document::openapi();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(
        "bearer",
        SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)),
    );
    components.add_security_scheme(
        "certificate",
        SecurityScheme::MutualTls {
            description: Some("X.509, RFC 3820 proxies".to_owned()),
            deprecated: None,
            extensions: None,
        },
    );
    OpenApiRouter::with_openapi(document)
        .routes(routes!(transfers::submit, transfers::list))
        .routes(routes!(transfers::batch))
        .routes(routes!(transfers::query))
        .routes(routes!(
            transfers::show,
            transfers::patch,
            transfers::delete
        ))
        .routes(routes!(transfers::files))
        .routes(routes!(receipts::show))
        .routes(routes!(receipts::keys))
        .routes(routes!(live::live))
        .routes(routes!(logs::show))
        .routes(routes!(transfers::wait))
        .routes(routes!(transfers::cancel))
        .routes(routes!(transfers::pause))
        .routes(routes!(transfers::resume))
        .routes(routes!(transfers::retry))
        .routes(routes!(events::events))
        .routes(routes!(tickets::mint, tickets::list))
        .routes(routes!(tickets::renew))
        .routes(routes!(tickets::show, tickets::change, tickets::revoke))
        .routes(routes!(storage::stat))
        .routes(routes!(storage::list))
        .routes(routes!(storage::mkdir))
        .routes(routes!(storage::rm))
        .routes(routes!(storage::rename))
        .routes(routes!(storage::checksum))
        .routes(routes!(storage::space))
        .routes(routes!(about::admission))
        .routes(routes!(staging::stage_in))
        .routes(routes!(staging::stage_out))
        .routes(routes!(staging::list))
        .routes(routes!(staging::show))
        .routes(routes!(staging::pin))
        .routes(routes!(staging::evict))
        .routes(routes!(tape::discover))
        .routes(routes!(tape::stage))
        .routes(routes!(tape::show, tape::delete))
        .routes(routes!(tape::cancel))
        .routes(routes!(tape::release))
        .routes(routes!(tape::archive_info))
        .routes(routes!(tiers::list))
        .routes(routes!(tiers::show))
        .routes(routes!(writes::submit, writes::list))
        .routes(routes!(writes::show, writes::give_up))
        .routes(routes!(writes::renew))
        .routes(routes!(writes::complete))
        .routes(routes!(peers::list))
        .routes(routes!(peers::endpoint))
        .routes(routes!(peers::folder))
        .routes(routes!(peers::mkdir))
        .routes(routes!(peers::ticket))
        .routes(routes!(targets::list))
        .routes(routes!(about::endpoint))
        .routes(routes!(about::scheduling))
        .routes(routes!(load::show))
        .routes(routes!(about::healthz))
        .routes(routes!(about::metrics))
        .routes(routes!(about::document))
}

/// Returns the OpenAPI document, as `GET /v1/openapi.json` serves it.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    routes().into_openapi()
}

/// Returns the router of all calls.
pub fn router(api: Arc<Api>) -> Router {
    let (router, _) = routes().split_for_parts();
    let mut router = tape::with_slashes(router);
    if api.config.ui.enabled {
        router = router.merge(console::router()).merge(login::router());
    }
    router
        .fallback(refusal::no_such_call)
        .method_not_allowed_fallback(refusal::no_such_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&api), around))
        .with_state(api)
}

/// Returns true for calls that are answered even if all connections are busy. A monitor must see
/// that the endpoint is alive, and an owner must be able to cancel a transfer.
fn is_spared(method: &Method, route: &str) -> bool {
    match route {
        "/healthz" | "/metrics" => true,
        "/v1/transfers/{id}/cancel" => method == Method::POST,
        _ => false,
    }
}

fn no_connection() -> Error {
    Error::new(ErrorKind::Busy, End::Here, "answer")
        .cause(
            "the endpoint permits no more connections (from the caller's address, or in total), \
                and all existing connections are waiting for answers",
        )
        .remedy("try again later, or send several API calls over one connection")
}

/// Wraps every call: limits its duration, counts it, and logs it.
async fn around(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route
        .as_ref()
        .map_or("none", MatchedPath::as_str)
        .trim_end_matches('/')
        .to_owned();
    let method = request.method().clone();
    let call = record::Call::of(&mut request);
    let hold = CallHold::default();
    request.extensions_mut().insert(hold.clone());
    let is_spare = request
        .extensions()
        .get::<SlotReference>()
        .is_some_and(SlotReference::is_spare);
    let is_refused = is_spare && !is_spared(&method, &route);
    let work = next.run(request);
    let mut response = if is_refused {
        drop(work);
        Refusal::from(no_connection()).into_response()
    } else if LASTING.contains(&route.as_str()) {
        work.await
    } else {
        match tokio::time::timeout(CALL_TIME, work).await {
            Ok(response) => response,
            Err(_) => Refusal::from(
                Error::new(ErrorKind::TimedOut, End::Here, "answer")
                    .cause(format!(
                        "the endpoint did not finish the API call within {} seconds",
                        CALL_TIME.as_secs()
                    ))
                    .remedy(
                        "check with a GET request whether the endpoint has carried out the \
                        API call; if not, send the API call again",
                    ),
            )
            .into_response(),
        }
    };
    if tape::is_route(&route) {
        response = tape::problem(response);
    }
    let code = response.status().as_u16();
    api.metrics.answered(&method, &route, code, began.elapsed());
    if is_spare {
        // The connection has a reserved slot. Closing it lets the next call of this peer get a
        // regular slot.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    let status = response.status();
    let told = response
        .extensions_mut()
        .remove()
        .map(|CallerError(error)| error);
    // Written by a worker thread, because the audit log may be on a slow disk.
    let audit = Arc::clone(&api.audit);
    api.workers
        .hand_in(move || call.answered(&audit, &route, status, told));
    outgoing::held(response, hold.take())
}

#[cfg(test)]
pub(crate) mod tests;
