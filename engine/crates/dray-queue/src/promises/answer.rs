//! Converts the broker's decisions to types of the API.

use super::wish::{Ask, Resources};
use super::{Promise, PromisedTransfer, SETTLE, settled};
use dray_api::{Admitted, MissAnswer, ObstacleAnswer, ReasonWord, Request};
use dray_core::units::human;
use dray_core::{End, Error, ErrorKind, Time};
use dray_sched::broker::{Cause, Grant, Miss, Obstacle, Reason, Refusal, TransferKey};
use std::collections::BTreeMap;

/// The decision for one request.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The promise; `None` if the request needs no promise or cannot get one.
    pub promise: Option<Promise>,
    /// The answer to the caller, with its reasons.
    pub answer: Admitted,
    /// Present planned rate of the transfer in bytes per second.
    pub(super) present: u64,
}

/// Notice for a best-effort request that gets no promise. It names no alternative deadline, because
/// the search for one would take too long.
pub(crate) const NO_ROOM: &str = "not promised: the endpoint cannot move the transfer in time \
    without breaking other promises; POST /v1/admission returns a deadline that is possible";

/// Maximum number of the caller's own transfers that a refusal names in its text. The field
/// `obstacle` of the answer names all of them.
const HOLDERS_NAMED_MAX: usize = 3;

impl Given {
    pub(super) fn unpromised(reasons: Vec<String>) -> Self {
        let answer = Admitted {
            reasons,
            ..Admitted::default()
        };
        Self {
            answer,
            ..Self::default()
        }
    }

    pub(super) fn no_room() -> Self {
        Self::unpromised(vec![NO_ROOM.to_owned()])
    }
}

/// The refusal of a set of requests. The broker promised none of them.
#[derive(Debug, Clone)]
pub struct NotAdmitted {
    /// Index of the request that does not fit.
    pub at: usize,
    /// For each request, the alternative that could be promised.
    pub answers: Vec<Admitted>,
    /// The same refusal as an error.
    pub error: Error,
}

impl NotAdmitted {
    /// Returns the refusal for requests that could not be promised at submission, but can be
    /// promised now that the refusal is explained.
    pub(super) fn late(asks: &[Ask<'_>]) -> Self {
        let error = Error::new(
            ErrorKind::NotAdmitted,
            End::Here,
            "promise the rate or the deadline of the transfer",
        )
        .cause("the transfer could not be promised at first, but can be promised now")
        .remedy("submit the transfer again");
        Self {
            at: 0,
            answers: asks.iter().map(|_| Admitted::default()).collect(),
            error,
        }
    }
}

pub(super) fn granted(grant: &Grant) -> Admitted {
    Admitted {
        promised: true,
        rate: Some(grant.rate.0),
        finish: grant.finish.map(settled),
        latest: grant.latest.map(settled),
        ..Admitted::default()
    }
}

/// Ids of transfers and names of resources, for answers to one owner.
pub(super) struct Names<'a> {
    places: &'a Resources,
    ids: BTreeMap<TransferKey, (&'a str, &'a str)>,
    owner: &'a str,
}

impl<'a> Names<'a> {
    pub(super) fn new(
        places: &'a Resources,
        held: &'a BTreeMap<TransferKey, PromisedTransfer>,
        asks: &[Ask<'a>],
    ) -> Self {
        let kept = held.iter();
        let kept = kept.map(|(key, held)| (*key, (&*held.id, &*held.owner)));
        let asked = asks.iter();
        let asked = asked.map(|ask| (TransferKey(ask.key), (ask.id, ask.owner)));
        Self {
            places,
            ids: kept.chain(asked).collect(),
            owner: asks.first().map_or("", |ask| ask.owner),
        }
    }

    /// Returns the ids of those transfers in `keys` that belong to the caller. Transfers of other
    /// owners are only counted, and never named.
    fn seen(&self, keys: &[TransferKey]) -> Vec<String> {
        let ids = keys.iter().filter_map(|key| self.ids.get(key));
        let own = ids.filter(|(_, owner)| *owner == self.owner);
        own.map(|(id, _)| (*id).to_owned()).collect()
    }

    pub(super) fn refused(&self, asks: &[&Ask<'_>], refusal: &Refusal) -> NotAdmitted {
        let at = asks
            .iter()
            .position(|ask| TransferKey(ask.key) == refusal.key);
        let at = at.unwrap_or(0);
        let offers: BTreeMap<TransferKey, Time> = (refusal.offer.iter().flatten())
            .map(|(key, deadline)| (*key, *deadline))
            .collect();
        let request = asks.get(at).map(|ask| ask.request);
        let (why, obstacle) = self.obstacle(&refusal.obstacle, request);
        let mut words = vec![why];
        if let (Some(needed), Some(there)) = (refusal.rate_needed, refusal.rate_there_is) {
            words.push(format!(
                "the transfer needs {}/s, but only {}/s can be promised",
                human(needed.0),
                human(there.0)
            ));
        }
        let answers = asks.iter().enumerate().map(|(index, ask)| {
            let earliest = offers.get(&TransferKey(ask.key)).copied().map(settled);
            let mut answer = Admitted {
                earliest_finish: earliest,
                ..Admitted::default()
            };
            if index == at {
                answer.rate_needed = refusal.rate_needed.map(|rate| rate.0);
                answer.rate_available = refusal.rate_there_is.map(|rate| rate.0);
                answer.obstacle = Some(obstacle.clone());
                answer.reasons.clone_from(&words);
            } else {
                answer.reasons = vec![format!(
                    "the endpoint promises all transfers of the request or none, and it refuses \
                        transfer {}",
                    asks[at].id
                )];
            }
            if let Some(earliest) = earliest {
                answer.reasons.push(format!(
                    "the endpoint could promise the deadline {earliest}"
                ));
            }
            answer
        });
        let answers: Vec<Admitted> = answers.collect();
        let earliest = answers.get(at).and_then(|answer| answer.earliest_finish);
        let instead = match earliest {
            Some(earliest) => format!(
                "submit the transfer with the deadline {earliest} or a \
                later deadline"
            ),
            None if refusal.obstacle == Obstacle::Window => {
                "submit the transfer with a later deadline".to_owned()
            }
            None => "request a lower rate or a later deadline".to_owned(),
        };
        let operation = match asks.get(at) {
            Some(ask) => format!("promise the rate or the deadline of transfer {}", ask.id),
            None => "promise the rate or the deadline of the transfer".to_owned(),
        };
        let error = Error::new(ErrorKind::NotAdmitted, End::Here, operation)
            .cause(words.join("; "))
            .remedy(format!(
                "{instead}, or submit the transfer without a promise (\"admission\": \"best_effort\")"
            ));
        NotAdmitted { at, answers, error }
    }

    fn obstacle(&self, obstacle: &Obstacle, request: Option<&Request>) -> (String, ObstacleAnswer) {
        let plain = |kind: &str| ObstacleAnswer {
            kind: kind.to_owned(),
            ..ObstacleAnswer::default()
        };
        match obstacle {
            Obstacle::Resource(id, promises) => {
                let words = self.places.words(*id);
                let seen = self.seen(promises);
                let holders = holders(&seen);
                let why = match promises.len() {
                    0 => format!("{words} is too low for the transfer"),
                    1 => {
                        format!(
                            "{words} is promised to another transfer in the requested time{holders}"
                        )
                    }
                    many => format!(
                        "{words} is promised to {many} other transfers in the requested \
                            time{holders}"
                    ),
                };
                let answer = ObstacleAnswer {
                    kind: "resource".to_owned(),
                    resource: Some(self.places.name(*id).to_owned()),
                    promises: u32::try_from(promises.len()).unwrap_or(u32::MAX),
                    transfers: seen,
                };
                (why, answer)
            }
            Obstacle::Ceiling => (
                "`rate_max` of the transfer is too low for the deadline".to_owned(),
                plain("rate_max"),
            ),
            Obstacle::Window => (over(request), plain("deadline")),
            Obstacle::Full(most) => (
                format!("{most} transfers already have promises, which is the limit"),
                plain("full"),
            ),
            // `Taken` and `Unknown` are not expected, because the keys of transfers differ and all
            // resources are configured. The text describes `Taken`.
            _ => (
                "the request contains the same transfer twice".to_owned(),
                plain("twice"),
            ),
        }
    }

    pub(super) fn miss(&self, miss: &Miss, held: &PromisedTransfer, now: Time) -> MissAnswer {
        let deadline = held.promise.deadline;
        let interrupted = held.interruptions.cause(miss.earliest, deadline, now);
        MissAnswer {
            cause: interrupted.unwrap_or_else(|| self.cause(miss)),
            deadline,
            earliest_finish: miss.earliest.map(settled),
        }
    }

    fn cause(&self, miss: &Miss) -> String {
        match &miss.cause {
            Cause::Resource(id, others) => format!(
                "{} no longer suffices for all promises: the endpoint breaks this promise, and \
                    keeps the promises of {} other transfers",
                self.places.words(*id),
                others.len()
            ),
            Cause::Slow => "the transfer does not reach the rate that this endpoint permits, \
                because the other endpoint, a disk or the files are slow"
                .to_owned(),
            _ => "the deadline, or the end of the time with a promised rate, has passed".to_owned(),
        }
    }
}

/// Returns the ids of the caller's own transfers that hold a resource, as a text in brackets.
/// Returns an empty text if no holder belongs to the caller.
fn holders(ids: &[String]) -> String {
    let named = ids.iter().take(HOLDERS_NAMED_MAX).map(String::as_str);
    let named: Vec<&str> = named.collect();
    match ids.len() {
        0 => String::new(),
        all if all <= HOLDERS_NAMED_MAX => format!(" ({})", named.join(", ")),
        all => format!(" ({} and {} more)", named.join(", "), all - named.len()),
    }
}

/// Returns a text that explains why the transfer has no time before its deadline.
fn over(request: Option<&Request>) -> String {
    let times = request.and_then(|request| Some((request.deadline?, request.not_before)));
    match times {
        Some((deadline, Some(begin))) if begin.after(SETTLE) >= deadline => {
            format!(
                "the deadline {deadline} of the transfer leaves no time after `not_before` \
                ({begin})"
            )
        }
        Some((deadline, _)) => format!("the deadline {deadline} of the transfer has passed"),
        None => "the deadline of the transfer has passed".to_owned(),
    }
}

/// Returns the API's word for a reason of the broker.
pub(super) const fn reason_word(reason: Reason) -> ReasonWord {
    match reason {
        Reason::NotBefore => ReasonWord::NotBefore,
        Reason::Spare => ReasonWord::Spare,
        Reason::Short => ReasonWord::Short,
        Reason::Ceiling => ReasonWord::Ceiling,
        Reason::Suspended => ReasonWord::Suspended,
        _ => ReasonWord::Planned,
    }
}
