//! The data port: decides whether a driver may open a session here, and which paths the session may
//! touch.
//!
//! A driver presents a ticket or a bearer token. An endpoint that runs a transfer presents a
//! ticket. A user who copies with a program presents a bearer token. In both cases the session is
//! limited to paths in exported roots, and the files that it writes belong to an owner.

use crate::accounts::Accounts;
use crate::audit::{Audit, Deed};
use crate::live::{Live, Moving, SessionSlot, Way};
use dray_access::tickets::{self, Grant};
use dray_access::{Access, Action, Credentials, Principal};
use dray_api::RateWish;
use dray_api::api_path::ApiPath;
use dray_config::Config;
use dray_config::roots::{Root, Roots, api_path};
use dray_core::options::Overwrite;
use dray_core::{End, Error, ErrorKind, RelPath, Result, StreamId};
use dray_link::link::{SinkLink, SourceLink};
use dray_net::{Caller, Fingerprint, Handler, Prepared, Request};
use dray_runtime::observe::{Observer, TargetLoad};
use dray_runtime::{sink, source};
use dray_session::{Event, Outcome, Progress};
use dray_telemetry::{Kind, SessionSpans, Telemetry, Traced};
use dray_wire::message::{BlockHead, Connect, Role};
use std::future::{Future, ready};
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::runtime::Handle as Tokio;
use tokio::sync::Semaphore;

/// Maximum number of logged notices of one session. Further notices are dropped, so that a source
/// with a million changed files does not fill the log.
const NOTICES_MAX: u32 = 100;

/// Maximum number of characters of a path in the audit line of a refused session. A longer path is
/// cut.
const PATH_LETTERS_MAX: usize = 256;

/// Divisor of the listener's maximum number of pending connections: the result is the number of
/// drivers that may wait for an issuer's keys concurrently. Each waiting driver occupies a thread
/// of the listener until the keys arrive, even if the driver has disconnected. The other threads
/// serve drivers with a ticket or with known keys. The value is estimated, not measured.
const KEY_WAITS_PART: usize = 4;

/// Returns the permits for drivers that wait for an issuer's keys concurrently. `pending_max` is
/// the maximum number of the listener's connections whose session has not begun.
#[must_use]
pub fn key_waits(pending_max: usize) -> Semaphore {
    Semaphore::new((pending_max / KEY_WAITS_PART).max(1))
}

/// The part of the endpoint that knows the tickets.
pub trait TicketBook: Send + Sync {
    /// Returns the rights of the ticket whose secret has the digest `digest`, if the holder of
    /// `key` may use the ticket now.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if there is no such ticket, or if the ticket is no longer valid.
    fn present(&self, digest: &[u8; 32], key: Option<Fingerprint>) -> Result<Grant>;

    /// Checks that a tier has admitted the claim of the ticket `id` on the tier's space.
    ///
    /// # Errors
    /// [`ErrorKind::NoPlace`] while the claim waits.
    fn check_space(&self, id: &str) -> Result<()>;

    /// Ends the claim of a ticket on the space of a tier, because its transfer is done.
    fn ended(&self, id: &str);

    /// Reports that a session of the ticket `id` is running, so that the ticket is extended while
    /// its transfer lives.
    fn used(&self, id: &str);
}

/// A function that takes over connections to the control API. Such connections begin with a TLS
/// handshake. The function returns a connection that it refuses.
pub type Front = Box<dyn Fn(TcpStream) -> Result<(), TcpStream> + Send + Sync>;

/// First byte of a TLS handshake record (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// Accepts the sessions that other programs drive.
pub struct Passive {
    /// The configuration, with the limits of the rate.
    pub config: Arc<Config>,
    /// The exported roots.
    pub roots: Roots,
    /// The running sessions.
    pub live: Live,
    /// Authentication by bearer token, and permissions.
    pub access: Arc<dyn Access>,
    /// The tickets of this endpoint.
    pub tickets: Arc<dyn TicketBook>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// Runtime on which an authentication can wait.
    pub tokio: Tokio,
    /// Function that takes over connections that begin with a TLS handshake.
    pub front: Front,
    /// The system accounts of sessions.
    pub accounts: Arc<Accounts>,
    /// Permits of [`key_waits`].
    pub key_waits: Semaphore,
    /// Export of spans.
    pub telemetry: Telemetry,
}

/// The credential that opened a session.
enum Right {
    Ticket(Grant),
    Principal(Principal),
}

impl Right {
    fn principal(&self) -> &str {
        match self {
            Self::Ticket(grant) => &grant.principal,
            Self::Principal(principal) => &principal.name,
        }
    }

    fn owner(&self) -> &str {
        match self {
            Self::Ticket(grant) => &grant.owner,
            Self::Principal(principal) => &principal.owner,
        }
    }
}

/// The paths of a session: a root, and paths below the root in the form that [`dray_open::export`]
/// takes.
struct Touch<'r> {
    root: &'r Root,
    /// Paths as the root's export takes them.
    below: Vec<Vec<u8>>,
    /// Paths for the check of permissions.
    paths: Vec<ApiPath>,
}

impl Passive {
    fn right(&self, caller: &Caller) -> Result<Right> {
        let shown = caller.token();
        if dray_api::is_ticket(shown) {
            let digest = tickets::digest_of(shown);
            return self
                .tickets
                .present(&digest, caller.key())
                .map(Right::Ticket);
        }
        // A caller that authenticates by certificate only must still send a token. It sends `-`.
        let bearer = str::from_utf8(shown).ok().filter(|text| *text != "-");
        let credentials = Credentials {
            bearer,
            certificates: &caller.certificates,
        };
        self.tokio
            .block_on(as_one_of_few(
                &self.key_waits,
                self.access.authenticate(credentials),
            ))
            .map(Right::Principal)
    }

    /// Converts the paths of a request, which must all be in one root.
    fn touch(&self, connect: &Connect) -> Result<Touch<'_>> {
        let end = connect.passive_role.end();
        let invalid = |cause: &str| {
            Error::new(ErrorKind::InvalidRequest, end, "read the request").cause(cause)
        };
        let named = match connect.passive_role {
            Role::Source => connect.paths.as_slice(),
            // For a sink, the first path is the destination folder. The other paths are names in
            // it.
            Role::Sink => connect.paths.get(..1).unwrap_or_default(),
        };
        let first = named
            .first()
            .ok_or_else(|| invalid("the session request names no path"))?;
        let (root, _) = self.roots.split(first).map_err(|error| error.at(end))?;
        let (mut below, mut paths) = (Vec::new(), Vec::new());
        for path in named {
            let (other, rest) = self.roots.split(path).map_err(|error| error.at(end))?;
            if other.name() != root.name() {
                return Err(
                    invalid("the paths of the session request are in several roots")
                        .remedy("submit one transfer for each root"),
                );
            }
            paths.push(api_path(root, rest).map_err(|error| error.at(end))?);
            below.push(rest.to_vec());
        }
        if connect.passive_role == Role::Sink {
            let folder = paths
                .pop()
                .ok_or_else(|| invalid("the session request names no path"))?;
            let claims = connect.paths.get(1..).unwrap_or_default();
            // Permissions are checked on the paths that are written. A ticket for one file must not
            // give access to the whole folder.
            for claim in claims {
                let claim = RelPath::parse(claim).map_err(|error| error.at(end))?;
                // Refused, because the sink would create the intermediate folders and set their
                // attributes without a check of permissions.
                if claim.parent().is_some_and(|above| !above.is_root()) {
                    return Err(invalid(
                        "the session request has a path to write that is more than one level \
                            below the destination folder",
                    )
                    .remedy(
                        "use the folder that directly contains the path as the destination \
                        folder",
                    ));
                }
                paths.push(folder.with(folder.path.join_path(&claim)?));
            }
            if claims.is_empty() {
                paths.push(folder);
            }
            below.extend_from_slice(claims);
        }
        Ok(Touch { root, below, paths })
    }

    /// Returns the strongest overwrite rule that the session may use on existing files.
    ///
    /// # Errors
    /// If the session has no permission at all.
    fn allowed(&self, right: &Right, connect: &Connect, touch: &Touch<'_>) -> Result<Overwrite> {
        let principal = match right {
            Right::Ticket(grant) => {
                grant.allows(connect.passive_role, &connect.transfer, &touch.paths)?;
                let action = match (connect.passive_role, grant.overwrite) {
                    (Role::Source, _) => Action::Read,
                    (Role::Sink, Overwrite::Never) => Action::Create,
                    (Role::Sink, _) => Action::Modify,
                };
                let mut paths = touch.paths.iter();
                let (owner, principal) = (&grant.owner, &grant.principal);
                let ask = |path| self.access.still_allow(owner, principal, action, path);
                return paths.try_for_each(ask).map(|()| grant.overwrite);
            }
            Right::Principal(principal) => principal,
        };
        let all = |action| {
            let mut paths = touch.paths.iter();
            paths.try_for_each(|path| self.access.allow(principal, action, path))
        };
        match connect.passive_role {
            Role::Source => all(Action::Read).map(|()| Overwrite::Never),
            Role::Sink if all(Action::Modify).is_ok() => Ok(Overwrite::Always),
            Role::Sink => all(Action::Create).map(|()| Overwrite::Never),
        }
    }

    fn take_slot(
        &self,
        right: &Right,
        connect: &Connect,
        caller: &Caller,
        touch: &Touch<'_>,
    ) -> Result<SessionSlot> {
        let way = match connect.passive_role {
            Role::Source => Way::Out,
            Role::Sink => Way::In,
        };
        let owner = right.owner().to_owned();
        let peer = caller.peer.ip().to_string();
        let wish = match right {
            Right::Ticket(grant) => grant.wish,
            Right::Principal(_) => RateWish {
                rate_max: connect.options.rate,
                ..RateWish::default()
            },
        };
        let mut moving = Moving::new(connect.transfer.clone(), owner, peer, way, wish);
        if let Right::Ticket(grant) = right {
            moving.ticket = Some(grant.id.clone());
        }
        moving.grain = connect.options.object_bytes;
        moving.roots = touch.paths.iter().map(|path| path.root.clone()).collect();
        moving.paths = touch.paths.iter().map(ApiPath::text).collect();
        moving.roots.sort_unstable();
        moving.roots.dedup();
        // Name the end of this endpoint in the error. The driver then knows that a limit of this
        // endpoint is exhausted, and not a limit of the driver.
        let end = connect.passive_role.end();
        self.live.enter(moving).map_err(|error| error.at(end))
    }
}

/// Describes the session for the audit log, with the paths in the form that the driver sent.
fn deed(right: &Right, connect: &Connect, caller: &Caller) -> Deed {
    let named = |path: &Vec<u8>| {
        let text = String::from_utf8_lossy(path);
        text.chars().take(PATH_LETTERS_MAX).collect::<String>()
    };
    Deed {
        owner: right.owner().to_owned(),
        principal: right.principal().to_owned(),
        peer: caller.peer.to_string(),
        what: match connect.passive_role {
            Role::Source => "read".to_owned(),
            Role::Sink => "write".to_owned(),
        },
        transfer: Some(connect.transfer.to_string()),
        paths: connect.paths.iter().map(named).collect(),
    }
}

/// Returns the weaker of two overwrite rules.
const fn lower(asked: Overwrite, allowed: Overwrite) -> Overwrite {
    match (asked, allowed) {
        (Overwrite::Never, _) | (_, Overwrite::Never) => Overwrite::Never,
        (Overwrite::IfDifferent, _) | (_, Overwrite::IfDifferent) => Overwrite::IfDifferent,
        (Overwrite::Always, Overwrite::Always) => Overwrite::Always,
    }
}

/// Returns the result of `work`. If `work` does not finish immediately, it must get a permit of
/// `waits` to continue. If no permit is free, returns `Busy`.
async fn as_one_of_few<T>(waits: &Semaphore, work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = ready(()) => {}
    }
    let _wait = waits.try_acquire().map_err(|_| {
        Error::new(ErrorKind::Busy, End::Here, "identify the caller")
            .cause("too many callers are waiting for an issuer's keys")
            .remedy("run the same command again later")
    })?;
    work.await
}

impl Handler for Passive {
    fn admit(&self, caller: &Caller) -> Result<()> {
        self.right(caller).map(|_| ())
    }

    fn prepare<'h>(&'h self, request: Request) -> Result<Prepared<'h>> {
        let spans = Arc::new(self.begin_spans(&request));
        let mut admission = spans.child("admission");
        let prepared = self.prepared(request, &spans);
        if let Err(error) = &prepared {
            admission.fail(error);
            spans.end(Some(error));
        }
        admission.end();
        prepared
    }

    fn foreign(&self, stream: TcpStream, first: u8) -> Result<(), TcpStream> {
        match first {
            TLS_HANDSHAKE => (self.front)(stream),
            _ => Err(stream),
        }
    }

    fn nobody_gets_in(&self, error: &Error) {
        tracing::error!("{error}");
    }

    fn rejected(&self, peer: SocketAddr, error: &Error) {
        self.audit.stranger(&peer.to_string(), error);
    }

    fn unprepared(&self, _: SocketAddr, _: &Error) {
        // Not logged again: the audit log already has the refusal, with the principal's name.
    }
}

impl Passive {
    /// Begins the span of a session whose driver is authenticated.
    fn begin_spans(&self, request: &Request) -> SessionSpans {
        let connect = &request.connect;
        let attributes = vec![
            ("dray.transfer.id", connect.transfer.as_str().into()),
            ("dray.session.number", connect.attempt.into()),
            (
                "client.address",
                request.caller.peer.ip().to_string().as_str().into(),
            ),
        ];
        let has_sink = connect.passive_role == Role::Sink;
        let telemetry = &self.telemetry;
        SessionSpans::begin(telemetry, connect.trace, Kind::Server, has_sink, attributes)
    }

    fn prepared<'h>(&'h self, request: Request, spans: &Arc<SessionSpans>) -> Result<Prepared<'h>> {
        let Request {
            mut connect,
            mut agreed,
            caller,
            ..
        } = request;
        let stranger = |error: &Error| self.rejected(caller.peer, error);
        let right = self.right(&caller).inspect_err(stranger)?;
        // The principal is authenticated from here on, so the audit log names it in a refusal.
        let mut deed = deed(&right, &connect, &caller);
        let touch = self.touch(&connect);
        let touch = touch.inspect_err(|error| self.audit.refused(&deed, error))?;
        deed.paths = touch.paths.iter().map(ApiPath::text).collect();
        let refused = |error: &Error| self.audit.refused(&deed, error);
        let allowed = self.allowed(&right, &connect, &touch);
        let allowed = allowed.inspect_err(refused)?;
        connect.options.overwrite = lower(connect.options.overwrite, allowed);
        connect.paths.clone_from(&touch.below);
        if let (Right::Ticket(grant), Role::Sink) = (&right, connect.passive_role) {
            self.tickets.check_space(&grant.id).inspect_err(refused)?;
        }
        let slot = self.take_slot(&right, &connect, &caller, &touch);
        let session = Session {
            slot: slot.inspect_err(refused)?,
            deed,
            notices: AtomicU32::new(0),
        };
        if let Right::Ticket(grant) = &right {
            self.tickets.used(&grant.id);
        }
        let entries = &mut agreed.limits.live_entries_max;
        *entries = session.slot.live_entries.min(*entries);
        // Change the account here, because `prepare` runs on the session's own thread. Threads
        // started by that thread inherit its account.
        let refused = |error: &Error| self.audit.refused(&session.deed, error);
        let entered = self.accounts.enter(right.owner());
        let root = entered.and_then(|()| self.accounts.root(touch.root));
        let export = &root.inspect_err(refused)?.export;
        match connect.passive_role {
            Role::Sink => {
                let owner = right.owner().as_bytes().to_vec();
                let memory = session.slot.memory;
                let shared = session.slot.moving.handle.shared_rates();
                let made = export.passive_sink(&connect, &agreed.limits, owner, memory);
                let (setup, pool) = made.inspect_err(refused)?;
                let own = Arc::clone(&pool);
                let spans = Arc::clone(spans);
                let run = move |link: SinkLink| {
                    session.slot.moving.handle.attach_sink(&link.events_in);
                    for notice in setup.destination.notices() {
                        session.event(&Event::Notice(notice.clone()));
                    }
                    let watch = Traced {
                        inner: &session,
                        spans: &spans,
                    };
                    let (outcome, progress) = sink::run(setup, &own, link, &watch);
                    self.ended(&session, &spans, &outcome, &progress);
                };
                let run = Box::new(run);
                Ok(Prepared::Sink { pool, shared, run })
            }
            Role::Source => {
                let memory = session.slot.memory;
                let made = export.passive_source(&connect, &agreed, memory);
                let setup = made.inspect_err(refused)?;
                let spans = Arc::clone(spans);
                let run = move |link: SourceLink| {
                    session.slot.moving.handle.attach_source(&link.events_in);
                    let watch = Traced {
                        inner: &session,
                        spans: &spans,
                    };
                    let (outcome, progress) = source::run(setup, link, &watch)
                        .unwrap_or_else(|error| (Outcome::Refused(error), Progress::default()));
                    self.ended(&session, &spans, &outcome, &progress);
                };
                Ok(Prepared::Source { run: Box::new(run) })
            }
        }
    }

    fn ended(
        &self,
        session: &Session,
        spans: &SessionSpans,
        outcome: &Outcome,
        progress: &Progress,
    ) {
        let error = match outcome {
            Outcome::Refused(error) | Outcome::Failed(error) => Some(error),
            Outcome::Done(_) | Outcome::Cancelled => None,
        };
        spans.end(error);
        self.audit.session(&session.deed, progress, error);
        let moving = &session.slot.moving;
        if let (Outcome::Done(_), Way::In, Some(id)) = (outcome, moving.way, &moving.ticket) {
            self.tickets.ended(id);
        }
    }
}

/// A session that another program drives.
struct Session {
    deed: Deed,
    slot: SessionSlot,
    notices: AtomicU32,
}

impl Observer for Session {
    fn event(&self, event: &Event) {
        let Event::Notice(error) = event else {
            return;
        };
        if self.notices.fetch_add(1, Ordering::Relaxed) < NOTICES_MAX {
            let transfer = self.deed.transfer.as_deref().unwrap_or_default();
            tracing::warn!(transfer, peer = %self.deed.peer, "{error}");
        }
    }

    fn progress(&self, progress: &Progress) {
        self.slot.moving.note(progress);
    }

    fn targets(&self, end: End, targets: &[TargetLoad]) {
        self.slot.moving.note_targets(end, targets);
    }

    fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        // For a source, bytes are counted when they are sent.
        if stream.is_none() {
            // The sum saturates, because a hole may have any length.
            let bytes = head.segments.iter().map(|segment| segment.range.length);
            self.slot.moving.arrived(bytes.fold(0, u64::saturating_add));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{as_one_of_few, key_waits};
    use dray_core::ErrorKind;
    use std::future::{pending, ready};
    use tokio::sync::Semaphore;

    #[test]
    fn drivers_that_wait_for_keys_never_occupy_all_pending_connections() {
        for pending_max in [16, 32, 128] {
            let permits = key_waits(pending_max).available_permits();
            assert!(permits > 0 && permits < pending_max / 2, "{pending_max}");
        }
    }

    #[test]
    fn a_caller_that_need_not_wait_is_identified_while_others_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let waits = Semaphore::new(1);
        runtime.expect("a runtime").block_on(async {
            let waiting = as_one_of_few::<()>(&waits, pending());
            let other = async {
                let refused = as_one_of_few::<()>(&waits, pending()).await;
                assert_eq!(refused.expect_err("no room").kind, ErrorKind::Busy);
                as_one_of_few(&waits, ready(Ok(7))).await
            };
            tokio::select! {
                biased;
                _ = waiting => panic!("it waits"),
                judged = other => assert_eq!(judged.expect("judged"), 7),
            }
            // The permit is returned although the caller has disconnected.
            assert_eq!(waits.available_permits(), 1);
        });
    }
}
