//! The WLCG Tape REST API, version 1: `/v1/tape`.
//!
//! The calls store requests and change them. [`crate::staging::Recalls`] stages the files.

use super::Api;
use super::extract::{Body, Caller, Id};
use super::refusal::{Answer, Refusal, ShownError};
use crate::actor::actor;
use crate::connection::ClearText;
use crate::staging::{Pair, locality};
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use dray_access::{Action, Principal};
use dray_api::{
    TapeDiscovery, TapeFileInfo, TapeFileState, TapeFileStatus, TapePaths, TapeProblem,
    TapeStageRequest, TapeStageStatus, TapeStaged, TapeVersion, Timestamp, without_doubled_slashes,
};
use dray_config::Tier;
use dray_core::{End, Error, ErrorKind, Result};
use dray_queue::{TapeFile, TapeRequest, clock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Shared = State<Arc<Api>>;

/// Path before the paths of the calls.
const BASE: &str = "/v1/tape";

/// Id that gfal2 sends in a release if its user gives no id of a request.
const ANY_REQUEST: &str = "gfal2-placeholder-id";

/// Maximum duration of a look-up of localities. The answer contains the files looked up so far.
const LOOK_UP_TIME: Duration = Duration::from_secs(45);

fn refused(kind: ErrorKind, operation: &str, cause: String, remedy: &str) -> Error {
    Error::new(kind, End::Here, operation)
        .cause(cause)
        .remedy(remedy)
}

/// Returns the URL of the tape API as the caller reaches it.
fn base(api: &Api, headers: &HeaderMap, uri: &Uri, clear: bool) -> String {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let host = host.or_else(|| uri.authority().map(axum::http::uri::Authority::as_str));
    let is_host = |text: &&str| {
        let is_good = |b: u8| b.is_ascii_alphanumeric() || b".-_[]:".contains(&b);
        !text.is_empty() && text.bytes().all(is_good)
    };
    let host = host.filter(is_host).unwrap_or(&api.about.address);
    // A proxy in front of the endpoint may have removed TLS.
    let forwarded = headers.get("x-forwarded-proto");
    let scheme = match clear && forwarded.is_none_or(|proto| proto != "https") {
        true => "http",
        false => "https",
    };
    format!("{scheme}://{host}{BASE}")
}

/// Describes the tape API.
#[utoipa::path(get, path = "/.well-known/wlcg-tape-rest-api", tag = "tape", security(()),
    responses((status = 200, description = "The versions of the tape API.", body = TapeDiscovery),
        (status = "default", description = "The request was refused.",
            body = dray_api::ErrorAnswer)))]
pub(super) async fn discover(State(api): Shared, at: Reached) -> Answer<Json<TapeDiscovery>> {
    let has = |tier| api.roots.of_tier(tier).is_some();
    if !(has(Tier::Slow) && has(Tier::Fast)) {
        let cause = "this endpoint has no pair of a slow root and a fast root".to_owned();
        let remedy = "ask the administrator to set tier = \"fast\" for one root of this endpoint \
            and tier = \"slow\" for another root";
        return Err(refused(ErrorKind::NotFound, "find the tape API", cause, remedy).into());
    }
    Ok(Json(TapeDiscovery {
        sitename: api.sitename().to_owned(),
        description: api.config.tape.description.clone(),
        endpoints: vec![TapeVersion {
            uri: at.0,
            version: "v1".to_owned(),
            metadata: BTreeMap::new(),
        }],
    }))
}

/// Stages files in.
#[utoipa::path(post, path = "/v1/tape/stage", tag = "tape", request_body = TapeStageRequest,
    responses((status = 201, description = "The request is stored.", body = TapeStaged,
            headers(("Location" = String, description = "URL of the request."))),
        (status = "default", description = "The request was refused.", body = TapeProblem,
            content_type = "application/problem+json")))]
pub(super) async fn stage(
    State(api): Shared,
    caller: Caller,
    at: Reached,
    Body(request): Body<TapeStageRequest>,
) -> Answer<Response> {
    let principal = caller.clone();
    let stored = api
        .call(move |api| Ok(api.store(&principal, &request)))
        .await?;
    let request_id = stored?;
    let location = format!("{}/stage/{request_id}", at.0);
    let location = HeaderValue::from_str(&location).map_err(Refusal::internal)?;
    let answer = (StatusCode::CREATED, Json(TapeStaged { request_id }));
    Ok(([(header::LOCATION, location)], answer).into_response())
}

/// Returns the progress of a request.
#[utoipa::path(get, path = "/v1/tape/stage/{id}", tag = "tape",
    params(("id" = String, Path, description = "Id of the request.")),
    responses((status = 200, description = "The progress.", body = TapeStageStatus),
        (status = "default", description = "The request was refused.", body = TapeProblem,
            content_type = "application/problem+json")))]
pub(super) async fn show(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
) -> Answer<Json<TapeStageStatus>> {
    let principal = caller.clone();
    let shown = api.call(move |api| api.queue.tape().show(&actor(&principal), &id));
    let (request, files) = shown.await?;
    Ok(Json(status(&request, files)))
}

/// Deletes a request. Files that are not staged yet are cancelled, and pins end.
#[utoipa::path(delete, path = "/v1/tape/stage/{id}", tag = "tape",
    params(("id" = String, Path, description = "Id of the request.")),
    responses((status = 200, description = "The request is deleted."),
        (status = "default", description = "The request was refused.", body = TapeProblem,
            content_type = "application/problem+json")))]
pub(super) async fn delete(State(api): Shared, caller: Caller, Id(id): Id) -> Answer<StatusCode> {
    let principal = caller.clone();
    api.call(move |api| {
        let (request, files) = api.queue.tape().show(&actor(&principal), &id)?;
        api.let_go(&principal, &files)?;
        api.queue.tape().delete(&request.id)
    })
    .await?;
    Ok(StatusCode::OK)
}

/// Cancels files of a request.
#[utoipa::path(post, path = "/v1/tape/stage/{id}/cancel", tag = "tape",
    params(("id" = String, Path, description = "Id of the request.")), request_body = TapePaths,
    responses((status = 200, description = "The files are cancelled."),
        (status = "default", description = "The request was refused.", body = TapeProblem,
            content_type = "application/problem+json")))]
pub(super) async fn cancel(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
    Body(paths): Body<TapePaths>,
) -> Answer<StatusCode> {
    let principal = caller.clone();
    api.call(move |api| {
        let (_, files) = api.queue.tape().show(&actor(&principal), &id)?;
        api.let_go(&principal, &chosen(files, &paths)?)
    })
    .await?;
    Ok(StatusCode::OK)
}

/// Releases files: their pins end, and the endpoint may delete their fast copies.
#[utoipa::path(post, path = "/v1/tape/release/{id}", tag = "tape",
    params(("id" = String, Path, description = "Id of the request.")), request_body = TapePaths,
    responses((status = 200, description = "The files are released."),
        (status = "default", description = "The request was refused.", body = TapeProblem,
            content_type = "application/problem+json")))]
pub(super) async fn release(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
    Body(paths): Body<TapePaths>,
) -> Answer<StatusCode> {
    let principal = caller.clone();
    api.call(move |api| {
        let files = match id.as_str() {
            ANY_REQUEST => {
                let texts: Vec<_> = paths
                    .paths
                    .iter()
                    .map(|p| without_doubled_slashes(p))
                    .collect();
                api.queue.tape().files_of(&principal.owner, &texts)?
            }
            id => api.queue.tape().show(&actor(&principal), id)?.1,
        };
        api.let_go(&principal, &chosen(files, &paths)?)
    })
    .await?;
    Ok(StatusCode::OK)
}

/// Returns the localities of files.
#[utoipa::path(post, path = "/v1/tape/archiveinfo", tag = "tape", request_body = TapePaths,
    responses((status = 200, description = "One object for each path.",
            body = Vec<TapeFileInfo>),
        (status = "default", description = "The request was refused.", body = TapeProblem,
            content_type = "application/problem+json")))]
pub(super) async fn archive_info(
    State(api): Shared,
    caller: Caller,
    Body(paths): Body<TapePaths>,
) -> Answer<Json<Vec<TapeFileInfo>>> {
    let principal = caller.clone();
    api.storage_call(&caller, move |api, given| {
        let until = Instant::now() + LOOK_UP_TIME;
        let mut found = Vec::with_capacity(paths.paths.len());
        for path in paths.paths {
            // The WLCG document demands a partial answer if there are too many files.
            if given.is_up() || (Instant::now() >= until && !found.is_empty()) {
                break;
            }
            let looked = api.locality(&principal, &without_doubled_slashes(&path));
            found.push(TapeFileInfo {
                path,
                locality: looked.as_ref().ok().copied(),
                error: looked.err().map(|error| error.to_string()),
            });
        }
        Ok(found)
    })
    .await
    .map(Json)
}

/// The URL of the tape API as the caller reaches it.
#[derive(Debug)]
pub(super) struct Reached(String);

impl FromRequestParts<Arc<Api>> for Reached {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Answer<Self> {
        let clear = parts.extensions.get::<ClearText>().is_some();
        Ok(Self(base(api, &parts.headers, &parts.uri, clear)))
    }
}

/// Adds the paths of the tape API with a slash at the end. gfal2 2.21 calls some of them.
pub(super) fn with_slashes(router: Router<Arc<Api>>) -> Router<Arc<Api>> {
    router
        .route("/v1/tape/stage/", post(stage))
        .route("/v1/tape/stage/{id}/", get(show).delete(delete))
        .route("/v1/tape/stage/{id}/cancel/", post(cancel))
        .route("/v1/tape/release/{id}/", post(release))
        .route("/v1/tape/archiveinfo/", post(archive_info))
}

/// Gives a refusal of the tape API the form of RFC 7807. Other answers are returned unchanged.
pub(super) fn problem(mut response: Response) -> Response {
    let Some(ShownError(error)) = response.extensions_mut().remove() else {
        return response;
    };
    let status = response.status();
    let body = Json(TapeProblem {
        status: status.as_u16(),
        title: status.canonical_reason().unwrap_or("Error").to_owned(),
        detail: error.message.clone(),
        error,
    });
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let kind = HeaderValue::from_static("application/problem+json");
    parts.headers.insert(header::CONTENT_TYPE, kind);
    Response::from_parts(parts, body.into_response().into_body())
}

/// Returns true for the routes of the tape API.
pub(super) fn is_route(route: &str) -> bool {
    route.starts_with("/v1/tape/")
}

impl Api {
    fn sitename(&self) -> &str {
        self.config
            .tape
            .sitename
            .as_deref()
            .unwrap_or(&self.config.name)
    }

    /// Stores a request that stages files. A file that cannot be staged is stored with its error.
    /// Returns the id of the request.
    fn store(&self, caller: &Principal, request: &TapeStageRequest) -> Answer<String> {
        let now = clock::now();
        let mut known = BTreeSet::new();
        let mut files = Vec::with_capacity(request.files.len());
        let mut denied = None;
        for asked in &request.files {
            let path = without_doubled_slashes(&asked.path);
            if !known.insert(path.clone()) {
                continue;
            }
            let lifetime = asked.lifetime_seconds()?;
            let mut file = TapeFile {
                path,
                copy: dray_open::prepare::new_transfer_id()?.to_string(),
                slow_path: String::new(),
                fast_path: String::new(),
                activity: asked.activity(self.sitename())?.map(ToOwned::to_owned),
                priority: asked.priority(self.sitename()),
                // Use at least one second, because a pin of zero seconds would be refused.
                lifetime_seconds: lifetime.unwrap_or(self.config.tape.lifetime).max(1),
                state: TapeFileState::Submitted,
                started_at: None,
                finished_at: None,
                error: None,
            };
            match self.pair(caller, &file.path) {
                Ok(pair) => {
                    file.slow_path = pair.slow.text();
                    file.fast_path = pair.fast.text();
                }
                // The endpoint has no slow root or no fast root.
                Err(error) if error.kind == ErrorKind::Unsupported => return Err(error.into()),
                Err(error) => {
                    file.state = TapeFileState::Failed;
                    file.finished_at = Some(now);
                    file.error = Some(error.to_string());
                    if error.kind == ErrorKind::PermissionDenied {
                        denied = Some(error);
                    }
                }
            }
            files.push(file);
        }
        let is_live = |file: &TapeFile| file.finished_at.is_none();
        match denied {
            Some(error) if !files.iter().any(is_live) => return Err(error.into()),
            _ => {}
        }
        let request = TapeRequest {
            id: dray_open::prepare::new_transfer_id()?.to_string(),
            owner: caller.owner.clone(),
            principal: caller.name.clone(),
            created_at: now,
        };
        let id = request.id.clone();
        match self.queue.tape().submit(request, files) {
            Err(error) if error.kind == ErrorKind::Busy => Err(Refusal::own_limit(error)),
            other => Ok(other.map(|()| id)?),
        }
    }

    /// Returns the two paths of a file that the caller may stage. The root's rules for owners must
    /// allow writes to the fast root, but a token needs only the scope for staging.
    fn pair(&self, caller: &Principal, path: &str) -> Result<Pair> {
        let pair = Pair::of(&self.roots, path)?;
        self.access.allow(caller, Action::Stage, &pair.slow)?;
        self.access.allow(caller, Action::Stage, &pair.fast)?;
        self.access
            .still_allow(&caller.owner, &caller.name, Action::Modify, &pair.fast)?;
        Ok(pair)
    }

    fn locality(&self, caller: &Principal, path: &str) -> Result<dray_api::TapeLocality> {
        let pair = Pair::of(&self.roots, path)?;
        let allowed = self.access.allow(caller, Action::Stage, &pair.slow);
        allowed.or_else(|_| self.access.allow(caller, Action::Read, &pair.slow))?;
        locality(&self.roots, &self.accounts, &pair)
    }

    /// Cancels files that are not staged yet, and ends the pins of all other files.
    fn let_go(&self, caller: &Principal, files: &[TapeFile]) -> Result<()> {
        let live = files.iter().filter(|file| file.finished_at.is_none());
        let live: Vec<String> = live.map(|file| file.copy.clone()).collect();
        for copy in self.queue.tape().cancelled(live)? {
            match self.queue.cancel(&actor(caller), &copy, true) {
                // Ignore these errors: the file has no transfer yet, or its transfer has ended.
                Err(error)
                    if !matches!(error.kind, ErrorKind::NotFound | ErrorKind::AlreadyExists) =>
                {
                    return Err(error);
                }
                _ => {}
            }
        }
        let copies = files.iter().map(|file| file.copy.clone()).collect();
        self.queue.tape().release(copies)
    }
}

/// Returns the files with the given paths.
fn chosen(files: Vec<TapeFile>, paths: &TapePaths) -> Result<Vec<TapeFile>> {
    let wanted: BTreeSet<String> = paths
        .paths
        .iter()
        .map(|p| without_doubled_slashes(p))
        .collect();
    let files: Vec<_> = files
        .into_iter()
        .filter(|file| wanted.contains(&file.path))
        .collect();
    let known: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    match wanted.iter().find(|path| !known.contains(path.as_str())) {
        None => Ok(files),
        Some(path) => {
            let shown: String = path.chars().take(256).collect();
            let cause =
                format!("{shown:?} is not a file of the stage request; nothing was changed");
            let remedy = "use only paths of the stage request; GET /v1/tape/stage/ID lists them";
            Err(refused(
                ErrorKind::InvalidRequest,
                "find the files",
                cause,
                remedy,
            ))
        }
    }
}

fn seconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_ms() / 1_000).unwrap_or(0)
}

fn status(request: &TapeRequest, files: Vec<TapeFile>) -> TapeStageStatus {
    let started_at = files.iter().filter_map(|file| file.started_at).min();
    let is_over = files.iter().all(|file| file.finished_at.is_some());
    let finished_at = files.iter().filter_map(|file| file.finished_at).max();
    let one = |file: TapeFile| TapeFileStatus {
        path: file.path,
        state: file.state,
        started_at: file.started_at.map(seconds),
        finished_at: file.finished_at.map(seconds),
        error: file.error,
        disk_path: Some(file.fast_path).filter(|path| !path.is_empty()),
    };
    TapeStageStatus {
        id: request.id.clone(),
        created_at: seconds(request.created_at),
        started_at: seconds(started_at.unwrap_or(request.created_at)),
        completed_at: finished_at.filter(|_| is_over).map(seconds),
        files: files.into_iter().map(one).collect(),
    }
}
