//! The call about the object log of a transfer: `/v1/transfers/{id}/log`.

use super::Api;
use super::extract::{Caller, Id, Query};
use super::refusal::Answer;
use super::transfers::look;
use crate::session::local_destination;
use axum::Json;
use axum::extract::State;
use dray_api::{
    ErrorAnswer, LOG_RANGES_MAX, LogAnswer, LogFileAnswer, LogQuery, LogRange, LogVerdict,
    Transfer, TransferLogAnswer, api_path::encode,
};
use dray_core::{RelPath, Result, TransferId};
use dray_runtime::sink::{ExplainedFile, FileVerdict, TransferLog};
use std::sync::Arc;

/// Explains the object log of a transfer: its unfinished files, and the ranges that the next
/// session trusts.
#[utoipa::path(get, path = "/v1/transfers/{id}/log", tag = "transfers",
    params(("id" = String, Path, description = "Id of the transfer."), LogQuery),
    responses((status = 200, description = "The log, with one page of its unfinished files.",
        body = TransferLogAnswer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
    Query(query): Query<LogQuery>,
) -> Answer<Json<TransferLogAnswer>> {
    let transfer = look(&api, &caller, &id).await?;
    api.storage_turn(&caller, move |api, _| read(api, &transfer, &query))
        .await
        .map(Json)
}

fn read(api: &Api, transfer: &Transfer, query: &LogQuery) -> Result<TransferLogAnswer> {
    let id = TransferId::new(transfer.id.as_str())?;
    let Some((request, route)) = api.queue.request_and_route(&id)? else {
        return Ok(TransferLogAnswer::default());
    };
    let Some((to, within)) = local_destination(&id, &transfer.owner, &request, &route)? else {
        let address = route.destination().address().map(ToOwned::to_owned);
        return Ok(TransferLogAnswer {
            endpoint: address,
            ..TransferLogAnswer::default()
        });
    };
    let folder = RelPath::parse(&within.folder)?;
    let key = format!("{id} /{}/{}", to.root, encode(folder.as_bytes()));
    let earlier = api.kept_logs.find(&key);
    // The owner of the transfer may read the partial files. An administrator's account may not.
    api.accounts.act_as(&transfer.owner, || {
        let root = api.accounts.root(api.roots.find(to)?)?;
        match root.export.read_log(within, earlier.as_ref())? {
            Some(log) => {
                if !log.is_kept && log.read.shows_changes() {
                    api.kept_logs.keep(key, &log.read);
                }
                answer(&to.root, &folder, &log, query)
            }
            None => Ok(TransferLogAnswer::default()),
        }
    })
}

fn answer(
    root: &str,
    folder: &RelPath,
    log: &TransferLog,
    query: &LogQuery,
) -> Result<TransferLogAnswer> {
    let after = query.after()?;
    let (files, has_more) = log.files(after.as_ref(), query.limit as usize)?;
    let last = files.last().filter(|_| has_more);
    let next = last.map(|file| encode(file.path.as_bytes()));
    let recovery = &log.read.recovery;
    let form = recovery.header.form;
    let path = folder.join_path(&log.path)?;
    Ok(TransferLogAnswer {
        endpoint: None,
        log: Some(LogAnswer {
            path: format!("/{root}/{}", encode(path.as_bytes())),
            form: form.to_string(),
            mechanism: form.mechanism_words().to_owned(),
            method: form.method.word().to_owned(),
            is_async: form.is_async,
            has_sums: form.has_sums,
            transfer: recovery.tenure.transfer.to_string(),
            epoch: recovery.tenure.epoch,
            files: recovery.files.len() as u64,
            bytes: recovery.log_bytes(),
            torn_bytes: recovery.torn_bytes,
            damage: recovery
                .damage
                .as_ref()
                .map(|damage| damage.error("the log").to_string()),
        }),
        files: files.iter().map(in_file).collect(),
        next,
    })
}

fn in_file(file: &ExplainedFile<'_>) -> LogFileAnswer {
    let outlook = &file.outlook;
    let trusted = outlook.trusted.iter().take(LOG_RANGES_MAX);
    let trusted = trusted.map(|range| LogRange {
        offset: range.offset,
        length: range.length,
    });
    LogFileAnswer {
        path: encode(file.path.as_bytes()),
        partial: encode(file.logged.partial.name.as_bytes()),
        size: file.logged.key.size,
        bytes_logged: file.logged.done.bytes(),
        bytes_trusted: outlook.trusted.iter().map(|range| range.length).sum(),
        verdict: match outlook.verdict {
            FileVerdict::Trusted => LogVerdict::Trusted,
            FileVerdict::NotTrusted => LogVerdict::NotTrusted,
            FileVerdict::Refused => LogVerdict::Refused,
        },
        why: outlook.why.clone(),
        trusted: trusted.collect(),
        ranges_more: outlook.trusted.len().saturating_sub(LOG_RANGES_MAX) as u64,
    }
}
