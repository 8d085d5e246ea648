//! Calls on files and folders: `/v1/storage`.

use super::Api;
use super::extract::{Body, Caller, Query};
use super::refusal::Answer;
use crate::storage;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use dray_access::{Action, Principal};
use dray_api::api_path::ApiPath;
use dray_api::{
    ChecksumAnswer, ChecksumRequest, Entry, EntryList, ErrorAnswer, ListQuery, MkdirRequest,
    PathQuery, RenameRequest, RmAnswer, RmRequest, SpaceAnswer,
};
use dray_config::roots::Root;
use dray_core::Result;
use std::sync::Arc;

type Shared = State<Arc<Api>>;

impl Api {
    /// Parses a path, checks that the caller may do `action` there, and finds its root.
    fn allowed(
        &self,
        caller: &Principal,
        action: Action,
        text: &str,
    ) -> Result<(&Arc<Root>, ApiPath)> {
        let path = ApiPath::parse(text)?;
        self.access.allow(caller, action, &path)?;
        Ok((self.roots.find(&path)?, path))
    }
}

/// Returns the entry at a path.
#[utoipa::path(get, path = "/v1/storage/stat", tag = "storage", params(PathQuery),
    responses((status = 200, description = "The attributes of the entry.", body = Entry),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn stat(
    State(api): Shared,
    caller: Caller,
    Query(query): Query<PathQuery>,
) -> Answer<Json<Entry>> {
    let principal = caller.clone();
    api.storage_call(&caller, move |api, _| {
        let (root, path) = api.allowed(&principal, Action::Read, &query.path)?;
        storage::stat(&*api.accounts.root(root)?, &path)
    })
    .await
    .map(Json)
}

/// Lists a folder.
#[utoipa::path(get, path = "/v1/storage/list", tag = "storage", params(ListQuery),
    responses((status = 200, description = "One page of the list of entries in the folder.",
        body = EntryList),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn list(
    State(api): Shared,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Answer<Json<EntryList>> {
    let principal = caller.clone();
    api.storage_call(&caller, move |api, given| {
        let (root, path) = api.allowed(&principal, Action::Read, &query.path)?;
        storage::list(
            &*api.accounts.root(root)?,
            &path,
            storage::PageOf {
                owner: principal.owner.as_str(),
                limit: query.limit,
                cursor: query.cursor.as_deref(),
            },
            &api.listings,
            given,
        )
    })
    .await
    .map(Json)
}

/// Creates a folder.
#[utoipa::path(post, path = "/v1/storage/mkdir", tag = "storage", request_body = MkdirRequest,
    responses((status = 201, description = "The attributes of the new folder.", body = Entry),
        (status = 200, description = "The folder already existed.", body = Entry),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn mkdir(
    State(api): Shared,
    caller: Caller,
    Body(request): Body<MkdirRequest>,
) -> Answer<(StatusCode, Json<Entry>)> {
    let principal = caller.clone();
    let (entry, is_made) = api
        .storage_call(&caller, move |api, _| {
            let (root, path) = api.allowed(&principal, Action::MakeFolder, &request.path)?;
            storage::make_folder(&*api.accounts.root(root)?, &path, request.parents)
        })
        .await?;
    let code = if is_made {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((code, Json(entry)))
}

/// Removes a file, a link or a folder.
#[utoipa::path(post, path = "/v1/storage/rm", tag = "storage", request_body = RmRequest,
    responses((status = 200, description = "Number of removed entries.", body = RmAnswer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn rm(
    State(api): Shared,
    caller: Caller,
    Body(request): Body<RmRequest>,
) -> Answer<Json<RmAnswer>> {
    let principal = caller.clone();
    let removed = api
        .storage_call(&caller, move |api, given| {
            let (root, path) = api.allowed(&principal, Action::Modify, &request.path)?;
            storage::remove(&*api.accounts.root(root)?, &path, request.recursive, given)
        })
        .await?;
    Ok(Json(RmAnswer { removed }))
}

/// Renames a file, a link or a folder.
#[utoipa::path(post, path = "/v1/storage/rename", tag = "storage", request_body = RenameRequest,
    responses((status = 200, description = "The entry under its new name.", body = Entry),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn rename(
    State(api): Shared,
    caller: Caller,
    Body(request): Body<RenameRequest>,
) -> Answer<Json<Entry>> {
    let principal = caller.clone();
    api.storage_call(&caller, move |api, _| {
        let (root, from) = api.allowed(&principal, Action::Modify, &request.from)?;
        let (_, to) = api.allowed(&principal, Action::Modify, &request.to)?;
        storage::rename(&*api.accounts.root(root)?, &from, &to, request.replace)
    })
    .await
    .map(Json)
}

/// Returns the checksum of a file.
#[utoipa::path(post, path = "/v1/storage/checksum", tag = "storage",
    request_body = ChecksumRequest,
    responses((status = 200, description = "The checksum of the file.", body = ChecksumAnswer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn checksum(
    State(api): Shared,
    caller: Caller,
    Body(request): Body<ChecksumRequest>,
) -> Answer<Json<ChecksumAnswer>> {
    let principal = caller.clone();
    api.storage_call(&caller, move |api, given| {
        let (root, path) = api.allowed(&principal, Action::Read, &request.path)?;
        storage::checksum(&*api.accounts.root(root)?, &path, request.algorithm, given)
    })
    .await
    .map(Json)
}

/// Returns the space of the storage that holds a path.
#[utoipa::path(get, path = "/v1/storage/space", tag = "storage", params(PathQuery),
    responses((status = 200, description = "The total and the free space in bytes.",
        body = SpaceAnswer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn space(
    State(api): Shared,
    caller: Caller,
    Query(query): Query<PathQuery>,
) -> Answer<Json<SpaceAnswer>> {
    let principal = caller.clone();
    api.storage_call(&caller, move |api, _| {
        let (root, path) = api.allowed(&principal, Action::Read, &query.path)?;
        storage::space(&*api.accounts.root(root)?, &path)
    })
    .await
    .map(Json)
}
