//! Measures the local sources of transfers into a tier: a tier needs the size of a transfer to
//! admit it.

use super::Api;
use super::refusal::Answer;
use dray_access::{Action, Principal};
use dray_api::api_path::{ApiPath, Side};
use dray_api::{Request, StagedDirection, StagingRequest};
use std::sync::Arc;

/// Local sources to measure, and the permission that the caller needs for them.
pub(super) struct Sources(Action, Vec<ApiPath>);

impl Api {
    /// Returns the local sources of a transfer into a fast root of a tier, if the request does not
    /// state its size. Sources at other endpoints, sources with patterns, and listed files have no known
    /// size.
    pub(super) fn unsized_transfer(&self, request: &Request) -> Option<Sources> {
        let route = self.config.route(request).ok()?;
        let selection = &request.selection;
        let is_whole = selection.include.is_empty()
            && selection.exclude.is_empty()
            && request.files.is_empty();
        let Side::Local(to) = route.destination() else {
            return None;
        };
        if !is_whole || request.bytes_stated().is_some() || !self.tiers.has_fast(&to.root) {
            return None;
        }
        let local = |side: &Side| match side {
            Side::Local(path) => Some(path.clone()),
            _ => None,
        };
        let sources: Option<Vec<ApiPath>> = route.origin(0).iter().map(local).collect();
        sources.map(|sources| Sources(Action::Read, sources))
    }

    /// Returns the source of a staging request that copies a path into a fast root of a tier.
    pub(super) fn unsized_staging(
        &self,
        request: &StagingRequest,
        direction: StagedDirection,
    ) -> Option<Sources> {
        let from = ApiPath::parse(&request.path).ok()?;
        let is_in = direction == StagedDirection::In && !request.bypass;
        is_in.then(|| Sources(Action::Stage, vec![from]))
    }

    /// Measures sources with the account of the caller. A source that cannot be measured has no
    /// known size; the transfer itself reports the error.
    pub(super) async fn sizes(
        self: &Arc<Self>,
        caller: &Principal,
        all: Vec<Option<Sources>>,
    ) -> Answer<Vec<Option<u64>>> {
        if all.iter().all(Option::is_none) {
            return Ok(vec![None; all.len()]);
        }
        let principal = caller.clone();
        self.storage_call(caller, move |api, _| {
            let size = |sources: &Sources| {
                let Sources(action, paths) = sources;
                let bytes = paths.iter().map(|path| {
                    api.access.allow(&principal, *action, path).ok()?;
                    api.tiers.size_of(path).ok().flatten()
                });
                bytes.sum::<Option<u64>>()
            };
            Ok(all.iter().map(|one| one.as_ref().and_then(size)).collect())
        })
        .await
    }
}
