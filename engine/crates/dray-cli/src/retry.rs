//! `dray retry`: new attempts of transfers of an endpoint that have ended.

use crate::args::Retry;
use crate::exit::{Exit, Stop};
use crate::output;
use crate::transfers::{client, is_away, line, quoted};
use crate::units::count;
use dray_api::{EndpointAnswer, Transfer, TransferList};
use dray_client::Client;
use dray_core::{End, Error, ErrorKind, Result};
use hyper::Method;

/// Runs `dray retry`. Continues with the next transfer after an error.
pub(crate) fn run(retry: &Retry) -> Result<Exit, Stop> {
    let client = client(retry.endpoint.as_deref(), &retry.ask)?;
    let ids = match retry.all_failed {
        true => failed_ids(&client, owner_to_retry(&client, retry)?.as_deref())?,
        false => retry.ids.iter().map(ToString::to_string).collect(),
    };
    let mut exit = Exit::Safe;
    for id in ids {
        let path = format!("/v1/transfers/{}/retry", quoted(&id));
        match client.ask::<Transfer>(Method::POST, &path, None) {
            Ok(transfer) if retry.ask.json => output::result(&transfer.json.to_string()),
            Ok(transfer) => output::result(&line(&transfer.read)),
            Err(error) if is_away(&error) => return Err(error.into()),
            Err(error) => {
                output::note(&format!("{id} is not retried: {error}"));
                exit = Exit::SomeFailed;
            }
        }
    }
    Ok(exit)
}

/// Returns the owner whose transfers are retried; `None` for all owners. The endpoint shows the
/// transfers of all owners to an administrator, who must name them explicitly.
fn owner_to_retry(client: &Client, retry: &Retry) -> Result<Option<String>> {
    let endpoint = client.ask::<EndpointAnswer>(Method::GET, "/v1/endpoint", None)?;
    let you = endpoint.read.you;
    if !retry.all_owners && retry.owner.is_none() {
        return Ok(Some(you.owner));
    }
    if you.administrator || retry.owner.as_ref() == Some(&you.owner) {
        return Ok(retry.owner.clone());
    }
    Err(Error::new(
        ErrorKind::PermissionDenied,
        End::Here,
        "retry the transfers",
    )
    .cause(format!(
        "{} is not an administrator of the endpoint, so only its own transfers can be \
                    retried",
        you.principal
    ))
    .remedy("omit --owner and --all-owners, or use the token of an administrator"))
}

/// Returns the ids of the failed transfers of an owner, or of all owners, whose error is not
/// permanent.
fn failed_ids(client: &Client, owner: Option<&str>) -> Result<Vec<String>> {
    let (mut ids, mut permanent) = (Vec::new(), 0_u64);
    let owner = owner.map_or_else(String::new, |owner| format!("&owner={}", quoted(owner)));
    let first = format!("/v1/transfers?state=failed&limit=1000{owner}");
    let mut query = first.clone();
    loop {
        let page = client.ask::<TransferList>(Method::GET, &query, None)?.read;
        for transfer in page.transfers {
            let error = transfer.error.as_ref();
            match error.is_some_and(|error| error.status == "permanent") {
                true => permanent += 1,
                false => ids.push(transfer.id),
            }
        }
        match page.next {
            Some(next) => query = format!("{first}&cursor={}", quoted(&next)),
            None => break,
        }
    }
    if permanent > 0 {
        output::note(&format!(
            "{} not retried, because the error is permanent: correct the cause, then give the ids",
            count(permanent, "transfer")
        ));
    }
    Ok(ids)
}
