//! One session of one transfer, driven by this endpoint. Builds the task for dray-runtime from the
//! request and its route, and returns the outcome.
//!
//! Not for: deciding when a transfer runs, or its state after the session (`dispatch`).

mod checkpoint;
mod place;

use crate::accounts::Accounts;
use crate::live::Bounds;
use crate::session::place::{Destination, destination, session_path, with_slash};
use dray_api::timestamp::time;
use dray_api::{ApiPath, Place, Request, Route, Side, Streams};
use dray_config::Config;
use dray_config::roots::{Root, Roots};
use dray_core::options::Options;
use dray_core::{ByteRange, End, Error, ErrorKind, FileKind, Result, TransferId, plan};
use dray_net::{Authority, Dial, Fingerprint, Identity, Presented, Token, Trust};
use dray_open::export::Within;
use dray_queue::{SessionInput, clock};
use dray_runtime::assembly::{self, Buffers, Content, Threads, TransferPlan};
use dray_runtime::drive::{self, Ended, Ending, StreamCount, Task, Tuning, Watch};
use dray_runtime::handle::Handle;
use dray_runtime::listing::Checkpoint;
use dray_runtime::sweep::Purged;
use dray_runtime::tune::memory::{self, Pairs};
use dray_runtime::{sink, source};
use dray_sched::tuner::memory::Pair;
use dray_session::{Event, Progress};
use dray_wire::message::Selection;
use std::sync::Arc;

/// The memory that a session may use.
#[derive(Debug, Clone, Copy)]
pub struct SessionBudget {
    /// Bytes of the session's buffers.
    pub memory: u64,
    /// Maximum number of announced and not closed entries.
    pub live_entries: u32,
}

/// The arguments of one call of [`SessionRunner::run`].
#[derive(Clone, Copy)]
struct Call<'a> {
    input: &'a SessionInput,
    budget: SessionBudget,
    handle: &'a Handle,
    watch: &'a dyn Watch,
    checkpoint: Option<&'a Arc<Checkpoint>>,
}

/// Runs the sessions that this endpoint drives.
pub struct SessionRunner {
    config: Arc<Config>,
    roots: Roots,
    identity: Presented,
    /// Trusted authorities for certificates of other endpoints without a pinned key.
    authority: Option<Authority>,
    accounts: Arc<Accounts>,
    /// Results of the tuner for each pair of endpoints.
    pairs: Pairs,
}

impl SessionRunner {
    /// Creates a runner. All sessions share its parts.
    #[must_use]
    pub const fn new(
        config: Arc<Config>,
        roots: Roots,
        identity: Presented,
        authority: Option<Authority>,
        accounts: Arc<Accounts>,
        pairs: Pairs,
    ) -> Self {
        Self {
            config,
            roots,
            identity,
            authority,
            accounts,
            pairs,
        }
    }

    /// Returns the key and the certificate that this endpoint presents to other endpoints now.
    #[must_use]
    pub fn identity(&self) -> Arc<Identity> {
        self.identity.identity()
    }

    /// Returns the trusted authorities for certificates of other endpoints.
    #[must_use]
    pub const fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// Runs a session to its end on the calling thread.
    pub fn run(
        &self,
        input: &SessionInput,
        budget: SessionBudget,
        handle: &Handle,
        watch: &dyn Watch,
    ) -> Ended {
        // The endpoint's account opens the checkpoint, because the owner's account has no access to
        // the state folder.
        let checkpoint = checkpoint::open(&self.config, &self.roots, input);
        let call = Call {
            input,
            budget,
            handle,
            watch,
            checkpoint: checkpoint.as_ref(),
        };
        let ended = self.accounts.act_as(&input.owner, || self.session(call));
        if let Some(checkpoint) = &checkpoint {
            checkpoint.remove_if_finished();
        }
        let ended = ended.unwrap_or_else(|error| {
            let ending = match error.kind {
                ErrorKind::Unreachable | ErrorKind::TimedOut => Ending::Unreachable(error),
                _ => Ending::Refused(error),
            };
            Ended {
                ending,
                progress: Progress::default(),
                found: None,
            }
        });
        // `act_as` has returned, so this code writes the file with the endpoint's account.
        if let (Some(found), Ok(Some(pair))) = (ended.found, self.pair(input)) {
            self.pairs.keep(pair, found, time(clock::now()));
        }
        ended
    }

    /// Checks that the local sides of a route are in existing roots. The configuration may have
    /// changed since the submission.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], with the name of the root.
    pub fn check_roots(&self, route: &Route) -> Result<()> {
        for root in route.sides().filter_map(Side::root) {
            self.roots.named(&root).map_err(|error| {
                error
                    .cause(format!(
                        "the configuration has changed: this endpoint no longer exports the root \
                            {root:?}"
                    ))
                    .remedy(
                        "export the root again and retry the transfer, or submit the transfer \
                        with another root",
                    )
            })?;
        }
        Ok(())
    }

    /// Returns the two endpoints of the session, in the direction of the bytes. Returns `None` for
    /// a copy within this endpoint. If the other endpoint's key is pinned, the key identifies that
    /// endpoint. If the other endpoint's certificate is checked, the dialled address identifies
    /// that endpoint.
    fn pair(&self, input: &SessionInput) -> Result<Option<Pair>> {
        let (request, route, source) = (&input.request, &input.route, input.source as usize);
        let to = (&request.destination, route.destination(), true);
        let from = request.origin(source).iter().zip(route.origin(source));
        let from = from.map(|(place, side)| (place, side, false)).next();
        for (place, side, reads_here) in std::iter::once(to).chain(from) {
            if let Some(address) = side.address() {
                let key: Option<Fingerprint> = place.key.as_deref().map(str::parse).transpose()?;
                let address = place.address.as_deref().unwrap_or(address);
                let other = key.map_or_else(|| address.to_owned(), |key| key.to_string());
                return Ok(Some(memory::pair(&other, reads_here)));
            }
        }
        Ok(None)
    }

    fn session(&self, call: Call<'_>) -> Result<Ended> {
        let (handle, watch) = (call.handle, call.watch);
        let SessionInput { request, route, .. } = call.input;
        let origin = call.input.source as usize;
        let sources = route.origin(origin);
        let (from, source) = (request.origin(origin).first())
            .zip(sources.first())
            .ok_or_else(|| {
                Error::new(ErrorKind::Internal, End::Here, "choose a source")
                    .cause("the request has no source")
            })?;
        let to = route.destination();
        let paths: Vec<&ApiPath> = sources.iter().map(Side::path).collect();
        let place = destination(request, &paths, to.path())?;
        if !(source.is_local() && to.is_local()) {
            check_clear_data(request, &self.config)?;
        }
        let object_bytes_max = Bounds::of(&self.config).object_bytes_max();
        if let Some(asked) = request
            .object_size
            .filter(|asked| *asked > object_bytes_max)
        {
            watch.event(&Event::Notice(smaller_objects(asked, object_bytes_max)));
        }
        let object_bytes = self.object_bytes(call.input).min(object_bytes_max);
        let mut task = task(call, &place, object_bytes, self.streams(call.input)?);
        if request.origins() > 1 {
            task.selection.size = task.selection.size.or(self.agreed_size(call.input)?);
        }
        // Only for a session with one local side. If both sides are local, `copy` reads the thread
        // counts of both roots itself.
        if let (Side::Local(own), Side::Remote { .. }) | (Side::Remote { .. }, Side::Local(own)) =
            (source, to)
        {
            task.threads = self.threads(own)?;
        }
        match (source, to) {
            (Side::Local(_), Side::Local(to)) => self.copy(call, &task, &paths, to, &place),
            (Side::Local(_), Side::Remote { address, path }) => {
                let dial = self.dial(&request.destination, address, call, &task)?;
                let folder = session_path(&path.root, &place.folder, true);
                let claims = place.claims.iter().map(|claim| claim.as_bytes().to_vec());
                let written: Vec<_> = std::iter::once(folder).chain(claims).collect();
                let open = || self.read(&paths, request);
                task.checkpoint = call.checkpoint.cloned();
                drive::push(&task, &dial, &written, open, handle, watch)
            }
            (Side::Remote { address, .. }, Side::Local(to)) => {
                let dial = self.dial(from, address, call, &task)?;
                let path = |path: &&ApiPath| session_path(&path.root, &path.path, path.is_folder);
                let paths: Vec<_> = paths.iter().map(path).collect();
                let open = || self.write(call.input, &task.options, to, &place);
                drive::pull(&task, &dial, &paths, open, handle, watch)
            }
            (Side::Remote { .. }, Side::Remote { .. }) => Err(neither_is_local()),
        }
        .map(|ended| ended.with_least(request.files_min(), "set files_min to 0"))
    }

    /// Returns the size that all replicas of the file have, if it is known. The size of a replica
    /// at another endpoint is checked later, when the transfer reads it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`], with the names of two replicas of different size.
    fn agreed_size(&self, input: &SessionInput) -> Result<Option<u64>> {
        let request = &input.request;
        let mut known: Option<(&str, u64)> = None;
        for (place, side) in (request.origin_places().zip(input.route.origin_sides()))
            .filter(|_| !request.selection.recursive)
        {
            let size = match side {
                Side::Local(path) => self.size_of(path).or(place.size),
                Side::Remote { .. } => place.size,
            };
            let Some(size) = size else { continue };
            if let Some((other, before)) = known.filter(|(_, before)| *before != size) {
                let url = &place.url;
                // `InvalidRequest` is permanent, so the transfer tries no other replica.
                let error = Error::new(
                    ErrorKind::InvalidRequest,
                    End::Here,
                    "compare the sizes of the \
                        replicas",
                );
                return Err(error
                    .cause(format!(
                        "replicas must be equal, but {other} has {before} bytes and {url} has \
                            {size} bytes"
                    ))
                    .remedy("give only replicas of equal size"));
            }
            known = Some((&place.url, size));
        }
        Ok(known.map(|(_, size)| size))
    }

    /// Returns the size of a file. Returns `None` if the size cannot be read; the transfer reports
    /// the error when it reads the file.
    fn size_of(&self, path: &ApiPath) -> Option<u64> {
        let root = self.accounts.root(self.roots.find(path).ok()?).ok()?;
        let state = root.store().stat(&path.path).ok()??;
        (state.kind == FileKind::File).then_some(state.size)
    }

    /// Returns the number of data streams, and whether the tuner may change it. The number is at
    /// most the configured number per session.
    fn streams(&self, input: &SessionInput) -> Result<(StreamCount, Tuning)> {
        let streams_most = self.config.limits.streams_per_session;
        let (count, known) = match input.request.streams.unwrap_or(self.config.streams) {
            Streams::Count(count) => (StreamCount::Fixed(count.min(streams_most)), None),
            Streams::Auto => {
                let pair = self.pair(input)?;
                let known = pair.and_then(|pair| self.pairs.of(&pair, time(clock::now())));
                (StreamCount::Tuned, known)
            }
        };
        let tuning = Tuning {
            streams_most,
            known,
        };
        Ok((count, tuning))
    }

    /// Removes the partial data of a transfer in a root of this endpoint. Returns `None` if the
    /// destination of the transfer is not at this endpoint.
    ///
    /// # Errors
    /// The errors of [`dray_runtime::sink::DestinationRequest::purge`], of the account and of the
    /// root.
    pub fn purge(&self, input: &SessionInput) -> Result<Option<Purged>> {
        let found = local_destination(&input.id, &input.owner, &input.request, &input.route)?;
        let Some((to, within)) = found else {
            return Ok(None);
        };
        let purge = || {
            let root = self.writable(to)?;
            (self.accounts.root(root)?.export).purge(within)
        };
        self.accounts.act_as(&input.owner, purge).map(Some)
    }

    fn read(&self, sources: &[&ApiPath], request: &Request) -> Result<Vec<source::Root>> {
        let first = sources.first().ok_or_else(neither_is_local)?;
        let root = self.roots.find(first)?;
        let path = |source: &&ApiPath| with_slash(source.path.as_bytes(), source.is_folder);
        let paths: Vec<_> = sources.iter().map(path).collect();
        self.accounts
            .root(root)?
            .export
            .roots(&paths, request.selection.links, request.stripe)
    }

    fn write(
        &self,
        input: &SessionInput,
        options: &Options,
        to: &ApiPath,
        place: &Destination,
    ) -> Result<(sink::Destination, dray_store::Capabilities)> {
        let root = self.writable(to)?;
        let asked = &input.request.selection;
        let selection = Selection {
            include: input.request.include(),
            exclude: asked.exclude.clone(),
            ..Selection::default()
        };
        let root = self.accounts.root(root)?;
        root.export.refuse_options(options)?;
        root.export.destination_for(
            within(&input.id, &input.owner, &input.request, place),
            &selection,
        )
    }

    /// Returns the object size in bytes: that of the request, otherwise the largest size that suits
    /// the roots of the transfer at this endpoint.
    fn object_bytes(&self, input: &SessionInput) -> u64 {
        let ends = input.route.ends(input.source as usize);
        let roots = ends.filter_map(|side| match side {
            Side::Local(path) => self.roots.find(path).ok(),
            Side::Remote { .. } => None,
        });
        let suitable = roots.filter_map(|root| root.object_bytes());
        plan::object_bytes(input.request.object_size, suitable)
    }

    fn threads(&self, path: &ApiPath) -> Result<Threads> {
        Ok(self.roots.find(path)?.export.threads())
    }

    fn writable(&self, to: &ApiPath) -> Result<&Root> {
        let root = self.roots.find(to)?;
        if root.is_read_only {
            return Err(
                Error::new(ErrorKind::ReadOnly, End::Sink, "write to this endpoint")
                    .cause(format!("the root {} is read-only", root.name()))
                    .remedy("write to another root, or ask the endpoint's administrator"),
            );
        }
        Ok(root)
    }

    fn copy(
        &self,
        call: Call<'_>,
        task: &Task,
        sources: &[&ApiPath],
        to: &ApiPath,
        place: &Destination,
    ) -> Result<Ended> {
        let input = call.input;
        let (destination, _) = self.write(input, &task.options, to, place)?;
        let (options, content) = (task.options.clone(), task.content.clone());
        let pool = task.pool_bytes;
        let plan = TransferPlan::local(options, content, pool, &destination, input.session)
            .with_live_entries(call.budget.live_entries);
        let roots = self.read(sources, &input.request)?;
        let from = sources.first().ok_or_else(neither_is_local)?;
        let source_can = roots.first().map(|root| root.store.capabilities());
        let source = plan
            .source(roots, task.selection.clone(), self.threads(from)?)
            .continued(call.checkpoint.cloned());
        let sink = plan.sink(destination, source_can, self.threads(to)?);
        drive::copy(source, sink, call.handle, call.watch)
    }

    fn dial(&self, place: &Place, address: &str, call: Call<'_>, task: &Task) -> Result<Dial> {
        let trust = match (&place.key, &self.authority) {
            (Some(key), _) => Trust::Key(key.parse()?),
            (None, Some(authority)) => Trust::Authority(authority.clone()),
            (None, None) => {
                return Err(Error::new(
                    ErrorKind::Unauthorized,
                    End::Network,
                    "identify the other endpoint",
                )
                .cause(
                    "this endpoint trusts neither the key nor the certificate authority of the \
                    other endpoint",
                )
                .remedy(
                    "in the request, set the field `key` of this source or destination to the \
                        `key` that POST /v1/tickets returned with the ticket, or ask the \
                        endpoint's administrator to set tls.peers_ca",
                ));
            }
        };
        let ticket = place.ticket.as_deref().ok_or_else(|| {
            Error::new(
                ErrorKind::Unauthorized,
                End::Network,
                "ask the other endpoint",
            )
            .cause(format!("the request contains no ticket for {}", place.url))
            .remedy(
                "get a ticket with POST /v1/tickets from the endpoint that this URL names, and set \
                    the field `ticket` of this source or destination in the request",
            )
        })?;
        let address = place.address.as_deref().unwrap_or(address);
        let mut dial = Dial::new(address, trust, Token::new(ticket.as_bytes())?);
        dial.identity = Some(self.identity());
        dial.bind.clone_from(&call.input.request.bind);
        let buffers = Buffers::new(task.pool_bytes, task.options.object_bytes);
        dial.limits = assembly::limits(buffers);
        dial.limits.live_entries_max = call.budget.live_entries;
        Ok(dial)
    }
}

/// Checks that the configuration of the endpoint allows data without TLS, if the request asks for
/// data without TLS.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the request asks for data without TLS and the configuration does
/// not allow this.
pub fn check_clear_data(request: &Request, config: &Config) -> Result<()> {
    if config.clear_data || !request.clear_data {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        End::Here,
        "send data without encryption",
    )
    .cause("this endpoint's configuration does not allow unencrypted data")
    .remedy("omit clear_data, or ask the endpoint's administrator to set clear_data = true"))
}

/// Returns the error for a request whose source and destination are both at other endpoints.
#[must_use]
pub fn neither_is_local() -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run the transfer")
        .cause("neither the source nor the destination is at this endpoint")
        .remedy("submit the request to the endpoint of the source or of the destination")
}

/// Returns the destination of a transfer, if it is at this endpoint: its path, and the folder with
/// the partial data. Returns `None` for a destination at another endpoint.
pub(crate) fn local_destination<'r>(
    id: &TransferId,
    owner: &str,
    request: &Request,
    route: &'r Route,
) -> Result<Option<(&'r ApiPath, Within)>> {
    let Side::Local(to) = route.destination() else {
        return Ok(None);
    };
    let sources: Vec<&ApiPath> = route.origin(0).iter().map(Side::path).collect();
    let place = destination(request, &sources, to)?;
    Ok(Some((to, within(id, owner, request, &place))))
}

fn within(id: &TransferId, owner: &str, request: &Request, place: &Destination) -> Within {
    Within {
        folder: place.folder.as_bytes().to_vec(),
        claims: place.claims.clone(),
        transfer: id.clone(),
        owner: owner.as_bytes().to_vec(),
        durability: request.durability,
        stripes: request.stripe,
    }
}

/// Returns the notice that the transfer uses smaller objects than requested.
fn smaller_objects(asked: u64, object_bytes_max: u64) -> Error {
    let cause = format!(
        "the request asks for objects of {asked} bytes, but the memory of a session of this \
            endpoint allows at most {object_bytes_max} bytes"
    );
    Error::new(
        ErrorKind::Unsupported,
        End::Here,
        "divide the files into objects",
    )
    .cause(cause)
    .remedy("to allow larger objects, raise limits.memory or lower limits.transfers_active")
}

fn task(
    call: Call<'_>,
    place: &Destination,
    object_bytes: u64,
    (streams, tuning): (StreamCount, Tuning),
) -> Task {
    let request = &call.input.request;
    let selection = &request.selection;
    let range = selection.range.map(|range| ByteRange {
        offset: range.offset,
        length: range.length,
    });
    let content = request.content.as_ref();
    Task {
        transfer: call.input.id.clone(),
        first_session: call.input.session,
        selection: Selection {
            recursive: selection.recursive,
            include: request.include(),
            exclude: selection.exclude.clone(),
            range,
            size: content.and_then(|content| content.size),
            rename: place.rename.clone(),
            links: selection.links,
        },
        options: Options {
            durability: request.durability,
            overwrite: request.overwrite,
            order: request.order.into(),
            object_bytes,
            verify: request.verify,
            resume: request.resume,
            xattrs: request.xattrs,
            checksum_attributes: request.checksum_attributes,
            // The rounds of shares set the rate during the session.
            rate: None,
            stripes: request.stripe,
        },
        content: Content {
            demanded: content.and_then(|content| content.demanded()),
            required: request.required(),
            range,
            ..Content::default()
        },
        pool_bytes: call.budget.memory,
        streams,
        tuning,
        threads: Threads::Usual,
        clear_data: request.clear_data,
        // The session does not retry. The queue does, so that users can see the retries.
        retries: 0,
        checkpoint: None,
    }
}
