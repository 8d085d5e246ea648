//! Answers admission requests. A caller sends such a request before it submits transfers.

use super::{Ask, Given, Promises};
use crate::clock;
use dray_api::{AdmissionAnswer, Decision, Request, Route};
use dray_core::TransferId;

impl Promises {
    /// Returns the promise that each of these requests of `owner` would get.
    #[must_use]
    pub fn admission(&self, owner: &str, requests: &[(Request, Route)]) -> AdmissionAnswer {
        let ids: Vec<String> = (requests.iter().enumerate())
            .map(|(at, (request, _))| match &request.id {
                Some(id) => TransferId::as_str(id).to_owned(),
                None => format!("number {}", at + 1),
            })
            .collect();
        // These keys count down from the largest number. Sequence numbers of transfers count up
        // from one, so no transfer has one of these keys.
        let keys = (0..requests.len()).map(|at| u64::MAX - at as u64);
        let asks = requests.iter().zip(&ids).zip(keys);
        let asks = asks.map(|(((request, route), id), key)| Ask {
            key,
            id,
            owner,
            request,
            route,
            source: 0,
            bytes: request.bytes_stated(),
            done: 0,
        });
        let asks: Vec<Ask<'_>> = asks.collect();
        match self.would(&asks, clock::now()) {
            Ok(given) => AdmissionAnswer {
                decision: Decision::Accept,
                transfers: given
                    .into_iter()
                    .map(|Given { answer, .. }| answer)
                    .collect(),
            },
            Err(refused) => AdmissionAnswer {
                decision: Decision::Refuse,
                transfers: refused.answers,
            },
        }
    }
}
