//! The call about the files under way of a transfer: `/v1/transfers/{id}/live`.

use super::Api;
use super::extract::{Caller, Id};
use super::refusal::Answer;
use super::transfers::look;
use axum::Json;
use axum::extract::State;
use dray_api::{
    ErrorAnswer, FolderSums, LiveFile, LiveFileState, LiveFiles, Transfer, api_path::encode,
};
use dray_session::{FileStage, UnderWay};
use std::sync::Arc;

/// Lists the files under way of a transfer, and sums for its folders.
#[utoipa::path(get, path = "/v1/transfers/{id}/live", tag = "transfers",
    params(("id" = String, Path, description = "Id of the transfer.")),
    responses((status = 200, description = "The files under way and the sums for the folders.",
        body = LiveFiles),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn live(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
) -> Answer<Json<LiveFiles>> {
    let transfer = look(&api, &caller, &id).await?;
    let found = of_session(&api, &transfer).await;
    Ok(Json(found.unwrap_or_default()))
}

async fn of_session(api: &Api, transfer: &Transfer) -> Option<LiveFiles> {
    let mut all = api.live.all().into_iter();
    let session = all.find(|moving| {
        moving.is_own && moving.transfer.as_str() == transfer.id && moving.owner == transfer.owner
    })?;
    let found = session.under_way().await?;
    Some(answer(&found))
}

fn answer(found: &UnderWay) -> LiveFiles {
    let file = |file: &dray_session::LiveFile| LiveFile {
        path: encode(file.path.as_bytes()),
        size: file.size,
        bytes_done: file.bytes_durable,
        state: match file.stage {
            FileStage::Waiting => LiveFileState::Waiting,
            FileStage::Moving => LiveFileState::Moving,
            FileStage::Verifying => LiveFileState::Verifying,
            FileStage::Publishing => LiveFileState::Publishing,
        },
    };
    let folder = |folder: &dray_session::FolderSums| FolderSums {
        path: encode(folder.path.as_bytes()),
        files: folder.counts.files,
        bytes: folder.counts.bytes,
        files_done: folder.counts.files_done,
        bytes_done: folder.counts.bytes_done,
        failed: folder.counts.failed,
        bytes_failed: folder.counts.bytes_failed,
        folders_more: folder.counts.folders_without_row,
    };
    LiveFiles {
        is_reported: true,
        files: found.files.iter().map(file).collect(),
        files_more: found.files_more,
        folders: found.folders.iter().map(folder).collect(),
    }
}
