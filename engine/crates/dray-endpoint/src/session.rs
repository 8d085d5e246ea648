//! One session of one transfer, driven by this endpoint: makes the input of dray-runtime from the
//! request, and returns the outcome.
//!
//! Not for: the time at which a transfer runs, and the consequences of its outcome (`dispatch`).

use crate::accounts::Accounts;
use crate::live::Bounds;
use dray_api::Streams;
use dray_api::api_path::{ApiPath, Side};
use dray_api::timestamp::time;
use dray_api::{Place, Request};
use dray_config::Config;
use dray_config::roots::{Root, Roots};
use dray_core::options::Options;
use dray_core::{
    ByteRange, End, Error, ErrorKind, FileKind, Name, RelPath, Result, TransferId, plan,
};
use dray_net::{Authority, Dial, Fingerprint, Identity, Token, Trust};
use dray_open::export::Within;
use dray_queue::clock;
use dray_runtime::assembly::{self, Buffers, Content, Threads, TransferPlan};
use dray_runtime::drive::{self, Ended, Ending, StreamCount, Task, Tuning, Watch};
use dray_runtime::handle::Handle;
use dray_runtime::sweep::Purged;
use dray_runtime::tune::memory::{self, Pairs};
use dray_runtime::{sink, source};
use dray_sched::tuner::memory::Pair;
use dray_session::{Event, Progress};
use dray_wire::message::Selection;
use std::sync::Arc;

/// The input of one session.
#[derive(Debug, Clone)]
pub struct Job {
    /// The transfer.
    pub transfer: TransferId,
    /// The request as submitted, with its tickets.
    pub request: Request,
    /// The owner of the transfer.
    pub owner: String,
    /// Number of this session.
    pub session: u32,
    /// Index of the source.
    pub source: usize,
    /// Bytes of the session's buffers.
    pub memory: u64,
    /// Maximum number of entries that are announced and not closed.
    pub live_entries: u32,
}

/// Runs sessions.
pub struct SessionRunner {
    config: Arc<Config>,
    roots: Roots,
    identity: Arc<Identity>,
    /// Authorities of certificates that other endpoints may present instead of a pinned key.
    authority: Option<Authority>,
    accounts: Arc<Accounts>,
    /// The tuner's results per pair of endpoints.
    pairs: Pairs,
}

/// The folder and the names that a session writes.
struct Destination {
    folder: RelPath,
    rename: Option<Name>,
    claims: Vec<RelPath>,
}

impl SessionRunner {
    /// Creates a runner from the parts that all sessions share.
    #[must_use]
    pub const fn new(
        config: Arc<Config>,
        roots: Roots,
        identity: Arc<Identity>,
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

    /// Returns the key that this endpoint presents.
    #[must_use]
    pub const fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Returns the authorities of certificates that other endpoints may present.
    #[must_use]
    pub const fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// Runs a session to its end, on the calling thread.
    pub fn run(&self, job: &Job, handle: &Handle, watch: &dyn Watch) -> Ended {
        let session = || self.session(job, handle, watch);
        let ended = self.accounts.act_as(&job.owner, session);
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
        // `act_as` has returned, so this writes as the endpoint's account.
        if let (Some(found), Ok(Some(pair))) = (ended.found, self.pair(job)) {
            self.pairs.keep(pair, found, time(clock::now()));
        }
        ended
    }

    /// Returns this endpoint and the other one, in the direction of the bytes; `None` for a copy
    /// within this endpoint. The other one is named by its key or, if it is checked by an
    /// authority, by the dialled address.
    fn pair(&self, job: &Job) -> Result<Option<Pair>> {
        let request = &job.request;
        let Some(from) = request.origin(job.source).first() else {
            return Ok(None);
        };
        for (place, reads_here) in [(&request.destination, true), (from, false)] {
            if let Side::Remote { address, .. } = self.config.side(&place.url)? {
                let key: Option<Fingerprint> = place.key.as_deref().map(str::parse).transpose()?;
                let address = place.address.as_ref().unwrap_or(&address);
                let other = key.map_or_else(|| address.clone(), |key| key.to_string());
                return Ok(Some(memory::pair(&other, reads_here)));
            }
        }
        Ok(None)
    }

    fn session(&self, job: &Job, handle: &Handle, watch: &dyn Watch) -> Result<Ended> {
        let request = &job.request;
        let origin = request.origin(job.source);
        let from = origin.first().ok_or_else(|| {
            Error::new(ErrorKind::Internal, End::Here, "choose a source").cause("there is none")
        })?;
        let source = self.config.side(&from.url)?;
        let to = self.config.side(&request.destination.url)?;
        let paths = self.paths(origin)?;
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
        let mut task = task(job, &place, object_bytes_max, self.streams(job)?);
        if request.origins() > 1 {
            task.selection.size = task.selection.size.or(self.agreed_size(request)?);
        }
        // With one local side. If both are local, `copy` takes the threads of each side's root.
        if let (Side::Local(own), Side::Remote { .. }) | (Side::Remote { .. }, Side::Local(own)) =
            (&source, &to)
        {
            task.threads = self.threads(own)?;
        }
        match (&source, &to) {
            (Side::Local(_), Side::Local(to)) => {
                self.copy(job, &task, &paths, to, place, handle, watch)
            }
            (Side::Local(_), Side::Remote { address, path }) => {
                let dial = self.dial(&request.destination, address, job, &task)?;
                let folder = session_path(&path.root, &place.folder, true);
                let claims = place.claims.iter().map(|claim| claim.as_bytes().to_vec());
                let written: Vec<_> = std::iter::once(folder).chain(claims).collect();
                let open = || self.read(&paths, request);
                drive::push(&task, &dial, &written, open, handle, watch)
            }
            (Side::Remote { address, .. }, Side::Local(to)) => {
                let dial = self.dial(from, address, job, &task)?;
                let path = |path: &ApiPath| session_path(&path.root, &path.path, path.is_folder);
                let paths: Vec<_> = paths.iter().map(path).collect();
                let open = || self.write(job, &task.options, to, &place);
                drive::pull(&task, &dial, &paths, open, handle, watch)
            }
            (Side::Remote { .. }, Side::Remote { .. }) => Err(neither_is_local()),
        }
        .map(|ended| ended.with_least(request.files_min(), "set files_min to 0"))
    }

    /// Returns the common size of all replicas of a file, as far as it is known. The size of a
    /// replica at another endpoint is checked when the transfer reads from it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`], which names two replicas of different size.
    fn agreed_size(&self, request: &Request) -> Result<Option<u64>> {
        let mut known: Option<(&str, u64)> = None;
        for place in request
            .origin_places()
            .filter(|_| !request.selection.recursive)
        {
            let size = match self.config.side(&place.url)? {
                Side::Local(path) => self.size_of(&path).or(place.size),
                Side::Remote { .. } => place.size,
            };
            let Some(size) = size else { continue };
            if let Some((other, before)) = known.filter(|(_, before)| *before != size) {
                let url = &place.url;
                // `InvalidRequest`, so that no other replica is tried.
                let error =
                    Error::new(ErrorKind::InvalidRequest, End::Here, "compare the replicas");
                return Err(error
                    .cause(format!("{other} has {before} bytes, {url} has {size}"))
                    .remedy("name equal replicas"));
            }
            known = Some((&place.url, size));
        }
        Ok(known.map(|(_, size)| size))
    }

    /// Returns the size of an existing file. A missing file is reported when it is read.
    fn size_of(&self, path: &ApiPath) -> Option<u64> {
        let root = self.accounts.root(self.roots.find(path).ok()?).ok()?;
        let state = root.store().stat(&path.path).ok()??;
        (state.kind == FileKind::File).then_some(state.size)
    }

    /// Returns the paths of an origin, whose places are in one root.
    fn paths(&self, origin: &[Place]) -> Result<Vec<ApiPath>> {
        let path = |place: &Place| Ok(self.config.side(&place.url)?.path().clone());
        origin.iter().map(path).collect()
    }

    /// Returns the number of data streams, at most the configured number per session.
    fn streams(&self, job: &Job) -> Result<(StreamCount, Tuning)> {
        let streams_most = self.config.limits.streams_per_session;
        let (count, known) = match job.request.streams.unwrap_or(self.config.streams) {
            Streams::Count(count) => (StreamCount::Fixed(count.min(streams_most)), None),
            Streams::Auto => {
                let pair = self.pair(job)?;
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
    /// transfer wrote elsewhere.
    ///
    /// # Errors
    /// As [`dray_runtime::sink::DestinationRequest::purge`], and those of the account and of the
    /// root.
    pub fn purge(&self, job: &Job) -> Result<Option<Purged>> {
        let Side::Local(to) = self.config.side(&job.request.destination.url)? else {
            return Ok(None);
        };
        let sources = self.paths(&job.request.sources)?;
        let place = destination(&job.request, &sources, &to)?;
        let purge = || {
            let root = self.writable(&to)?;
            self.accounts.root(root)?.export.purge(within(job, &place))
        };
        self.accounts.act_as(&job.owner, purge).map(Some)
    }

    fn read(&self, sources: &[ApiPath], request: &Request) -> Result<Vec<source::Root>> {
        let first = sources.first().ok_or_else(neither_is_local)?;
        let root = self.roots.find(first)?;
        let path = |source: &ApiPath| with_slash(source.path.as_bytes(), source.is_folder);
        let paths: Vec<_> = sources.iter().map(path).collect();
        self.accounts
            .root(root)?
            .export
            .roots(&paths, request.selection.links)
    }

    fn write(
        &self,
        job: &Job,
        options: &Options,
        to: &ApiPath,
        place: &Destination,
    ) -> Result<(sink::Destination, dray_store::Capabilities)> {
        let root = self.writable(to)?;
        let asked = &job.request.selection;
        let selection = Selection {
            include: asked.include.clone(),
            exclude: asked.exclude.clone(),
            ..Selection::default()
        };
        let root = self.accounts.root(root)?;
        root.export.refuse_options(options)?;
        root.export.destination_for(within(job, place), &selection)
    }

    fn threads(&self, path: &ApiPath) -> Result<Threads> {
        Ok(self.roots.find(path)?.export.threads())
    }

    fn writable(&self, to: &ApiPath) -> Result<&Root> {
        let root = self.roots.find(to)?;
        if root.is_read_only {
            return Err(
                Error::new(ErrorKind::ReadOnly, End::Sink, "write to this endpoint")
                    .cause(format!("the root {} may only be read", root.name()))
                    .remedy("write to another root, or ask the endpoint's administrator"),
            );
        }
        Ok(root)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "both sides of a copy are parsed once"
    )]
    fn copy(
        &self,
        job: &Job,
        task: &Task,
        sources: &[ApiPath],
        to: &ApiPath,
        place: Destination,
        handle: &Handle,
        watch: &dyn Watch,
    ) -> Result<Ended> {
        let (destination, _) = self.write(job, &task.options, to, &place)?;
        let (options, content) = (task.options.clone(), task.content.clone());
        let pool = task.pool_bytes;
        let plan = TransferPlan::local(options, content, pool, &destination, job.session)
            .with_live_entries(job.live_entries);
        let roots = self.read(sources, &job.request)?;
        let from = sources.first().ok_or_else(neither_is_local)?;
        let source_can = roots.first().map(|root| root.store.capabilities());
        let source = plan.source(roots, task.selection.clone(), self.threads(from)?);
        let sink = plan.sink(destination, source_can, self.threads(to)?);
        drive::copy(source, sink, handle, watch)
    }

    fn dial(&self, place: &Place, address: &str, job: &Job, task: &Task) -> Result<Dial> {
        let trust = match (&place.key, &self.authority) {
            (Some(key), _) => Trust::Key(key.parse()?),
            (None, Some(authority)) => Trust::Authority(authority.clone()),
            (None, None) => {
                return Err(Error::new(
                    ErrorKind::Unauthorized,
                    End::Network,
                    "know the other endpoint",
                )
                .cause("neither its key nor the authority of its certificate is trusted")
                .remedy(
                    "put the `key` that came with the ticket beside it, \
                     or have tls.peers_ca set at this endpoint",
                ));
            }
        };
        let ticket = place.ticket.as_deref().ok_or_else(|| {
            Error::new(
                ErrorKind::Unauthorized,
                End::Network,
                "ask the other endpoint",
            )
            .cause(format!("the request holds no ticket for {}", place.url))
            .remedy("get one there with POST /v1/tickets, and put it beside the URL")
        })?;
        let address = place.address.as_deref().unwrap_or(address);
        let mut dial = Dial::new(address, trust, Token::new(ticket.as_bytes())?);
        dial.identity = Some(Arc::clone(&self.identity));
        dial.bind.clone_from(&job.request.bind);
        let buffers = Buffers::new(task.pool_bytes, task.options.object_bytes);
        dial.limits = assembly::limits(buffers);
        dial.limits.live_entries_max = job.live_entries;
        Ok(dial)
    }
}

/// Checks that data may be sent without TLS: only this endpoint's administrator may allow it,
/// whatever a request asks.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the request asks for it and the configuration does not allow it.
pub fn check_clear_data(request: &Request, config: &Config) -> Result<()> {
    if config.clear_data || !request.clear_data {
        return Ok(());
    }
    Err(
        Error::new(ErrorKind::Unsupported, End::Here, "send data in clear")
            .cause("this endpoint's configuration does not allow it")
            .remedy("leave out clear_data, or have clear_data = true set there"),
    )
}

/// Returns the error for a request with neither side at this endpoint.
#[must_use]
pub fn neither_is_local() -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run the transfer")
        .cause("neither side of it is at this endpoint")
        .remedy("submit it to the endpoint of its source or of its destination")
}

fn within(job: &Job, place: &Destination) -> Within {
    Within {
        folder: place.folder.as_bytes().to_vec(),
        claims: place.claims.clone(),
        transfer: job.transfer.clone(),
        owner: job.owner.clone().into_bytes(),
        durability: job.request.durability,
    }
}

/// Returns the notice that objects are smaller than requested.
fn smaller_objects(asked: u64, object_bytes_max: u64) -> Error {
    let cause = format!(
        "objects of {asked} bytes were asked for, and {object_bytes_max} fit what each of this \
         endpoint's sessions has of its memory"
    );
    Error::new(ErrorKind::Unsupported, End::Here, "cut the files")
        .cause(cause)
        .remedy("raise limits.memory, or lower limits.transfers_active, to have larger ones")
}

fn task(
    job: &Job,
    place: &Destination,
    object_bytes_max: u64,
    (streams, tuning): (StreamCount, Tuning),
) -> Task {
    let request = &job.request;
    let selection = &request.selection;
    let range = selection.range.map(|range| ByteRange {
        offset: range.offset,
        length: range.length,
    });
    let content = request.content.as_ref();
    Task {
        transfer: job.transfer.clone(),
        first_session: job.session,
        selection: Selection {
            recursive: selection.recursive,
            include: selection.include.clone(),
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
            object_bytes: request
                .object_size
                .unwrap_or(plan::OBJECT_BYTES_DEFAULT)
                .min(object_bytes_max),
            verify: request.verify,
            resume: request.resume,
            xattrs: request.xattrs,
            checksum_attributes: request.checksum_attributes,
            // The rate is set by the shares, also during the session.
            rate: None,
        },
        content: Content {
            demanded: content.and_then(|content| content.demanded()),
            range,
            ..Content::default()
        },
        pool_bytes: job.memory,
        streams,
        tuning,
        threads: Threads::Usual,
        clear_data: request.clear_data,
        // The queue retries, so that retries are visible to users.
        retries: 0,
    }
}

/// Interprets the destination, as `dray cp` does: a folder if the request copies into a folder or
/// the URL ends with a slash, otherwise the new name of the one file.
fn destination(request: &Request, sources: &[ApiPath], to: &ApiPath) -> Result<Destination> {
    let is_about_one = request.content.is_some() || request.selection.range.is_some();
    if is_about_one && request.selection.recursive {
        return Err(
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the request")
                .cause("content and range need a single file, and the request is recursive")
                .remedy("leave out one of them"),
        );
    }
    if request.is_into_folder() || to.is_folder {
        // The names in a source folder are not known here.
        let claims = match sources.iter().any(|source| source.is_folder) {
            true => Vec::new(),
            false => {
                let names = sources.iter().filter_map(|source| source.path.name());
                let claim = |name: Name| RelPath::root().join(&name);
                names.map(claim).collect::<Result<_>>()?
            }
        };
        return Ok(Destination {
            folder: to.path.clone(),
            rename: None,
            claims,
        });
    }
    let name = to.path.name().ok_or_else(|| {
        Error::new(ErrorKind::InvalidRequest, End::Here, "read the destination")
            .cause("it is the root itself")
            .remedy("write a slash at its end to copy into it")
    })?;
    Ok(Destination {
        folder: to.path.parent().unwrap_or_else(RelPath::root),
        claims: vec![RelPath::root().join(&name)?],
        rename: Some(name),
    })
}

/// Returns a path in the form of sessions between endpoints.
fn session_path(root: &str, path: &RelPath, is_folder: bool) -> Vec<u8> {
    let mut bytes = format!("/{root}").into_bytes();
    if !path.is_root() {
        bytes.push(b'/');
        bytes.extend_from_slice(path.as_bytes());
    }
    with_slash(&bytes, is_folder)
}

fn with_slash(path: &[u8], is_folder: bool) -> Vec<u8> {
    let mut path = path.to_vec();
    if is_folder && !path.is_empty() {
        path.push(b'/');
    }
    path
}
