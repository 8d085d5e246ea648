//! Injects the faults of the schedule when their moments have come.

use super::{FAULT_GAP, Run};
use crate::attempt::Attempt;
use crate::events::Event;
use crate::plan::{At, Fault, Plan, Target};
use crate::schedule::Planned;
use crate::verdict::FaultReport;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A fault of the schedule, and its injections so far.
pub(super) struct FaultState {
    planned: Planned,
    begun: Option<Begun>,
    /// Reason why the target could not get the fault.
    refusal: Option<String>,
}

struct Begun {
    seconds: f64,
    attempt: Option<u32>,
    injections: Arc<AtomicU32>,
}

impl FaultState {
    pub(super) const fn new(planned: Planned) -> Self {
        Self {
            planned,
            begun: None,
            refusal: None,
        }
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    fn injections(&self) -> u32 {
        let begun = self.begun.as_ref();
        begun.map_or(0, |begun| begun.injections.load(Ordering::Relaxed))
    }

    /// Returns the fault and the number of its injections.
    pub(super) fn counted(&self) -> (Fault, u32) {
        (self.planned.fault, self.injections())
    }

    fn words(&self, plan: &Plan) -> String {
        format!(
            "{}: {}",
            plan.name_of(self.planned.target),
            self.planned.fault
        )
    }

    pub(super) fn report(&self, plan: &Plan) -> FaultReport {
        FaultReport {
            number: self.planned.number,
            kind: self.planned.fault.kind().name(),
            target: plan.name_of(self.planned.target).to_owned(),
            at: self.planned.at.to_string(),
            words: self.words(plan),
            injections: self.injections(),
            refusal: (self.refusal.clone()).filter(|_| self.begun.is_none()),
            attempt: self.begun.as_ref().and_then(|begun| begun.attempt),
            seconds: (self.begun.as_ref()).map(|begun| (begun.seconds * 1000.0).round() / 1000.0),
        }
    }
}

impl Run<'_> {
    /// Injects each fault whose moment has come and whose target runs. Other faults wait.
    pub(super) fn inject_due(&mut self, mut attempt: Option<&mut Attempt>) {
        for index in 0..self.faults.len() {
            if self
                .last_fault
                .is_some_and(|last| last.elapsed() < FAULT_GAP)
            {
                return;
            }
            let planned = &self.faults[index].planned;
            let is_due = match planned.at {
                At::Share(share) => self.share() >= share,
                At::Time(time) => self.began.elapsed() >= time,
            };
            // Before the first attempt, no time has passed.
            let has_started = attempt.is_some() || !self.attempts.is_empty();
            if !is_due || !has_started || self.faults[index].has_begun() {
                continue;
            }
            let planned = planned.clone();
            let injections = match self.inject(&planned, attempt.as_deref_mut()) {
                Ok(Some(injections)) => injections,
                Ok(None) => continue,
                Err(refusal) => {
                    self.faults[index].refusal = Some(refusal);
                    continue;
                }
            };
            self.last_fault = Some(Instant::now());
            let seconds = self.began.elapsed().as_secs_f64();
            let number = attempt.as_ref().map(|attempt| attempt.number);
            if let Some(attempt) = attempt.as_deref_mut() {
                attempt.faults.push(planned.number);
            }
            self.faults[index].begun = Some(Begun {
                seconds,
                attempt: number,
                injections,
            });
            self.observer.event(&Event::Injected {
                number: planned.number,
                words: self.faults[index].words(self.plan),
                seconds,
                share: self.share(),
            });
            self.watch.watched().look();
        }
    }

    /// Carries out a fault. Returns its counter of injections, or `None` if its target cannot get
    /// the fault at the moment: the target is not running, or has no open connection.
    ///
    /// # Errors
    /// The reason if a running target cannot get the fault.
    fn inject(
        &mut self,
        planned: &Planned,
        attempt: Option<&mut Attempt>,
    ) -> Result<Option<Arc<AtomicU32>>, String> {
        let once = Arc::new(AtomicU32::new(1));
        let seed = self.options.seed ^ u64::from(planned.number);
        match planned.target {
            Target::Client => {
                let Some(attempt) = attempt.filter(|attempt| attempt.is_up()) else {
                    return Ok(None);
                };
                match planned.fault {
                    Fault::Kill { .. } => attempt.kill(),
                    Fault::Stop { duration } => attempt.stop(duration),
                    Fault::ClockStep { step_ms } => match &mut self.clock {
                        Some(clock) => attempt.step_clock(clock, step_ms)?,
                        None => return Ok(None),
                    },
                    // The plan refuses the client as the target of faults of connections.
                    fault => {
                        let hub = self.hub.as_ref();
                        return Ok(hub.and_then(|hub| hub.begin(planned.number, &fault, seed)));
                    }
                }
                Ok(Some(once))
            }
            Target::Endpoint(index) => {
                let endpoint = self.endpoints.get_mut(index);
                let Some(endpoint) = endpoint.filter(|endpoint| endpoint.is_up()) else {
                    return Ok(None);
                };
                match planned.fault {
                    Fault::Kill { restart_after } => endpoint.kill(restart_after),
                    Fault::Stop { duration } => endpoint.stop(duration),
                    Fault::ClockStep { step_ms } => endpoint.step_clock(step_ms)?,
                    Fault::Cut => return Ok((endpoint.proxy.cut() > 0).then_some(once)),
                    fault if fault.kind().is_storage() => {
                        let hub = endpoint.hub.as_ref();
                        return Ok(hub.and_then(|hub| hub.begin(planned.number, &fault, seed)));
                    }
                    fault => return Ok(endpoint.proxy.begin(&fault, seed)),
                }
                Ok(Some(once))
            }
        }
    }
}
