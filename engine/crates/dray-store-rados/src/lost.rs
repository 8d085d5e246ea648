//! Space and age of dray's own files, and the search for abandoned objects.
//!
//! A file is visible only by its first object. If a deletion stops after the removal of the first
//! object, or another program deletes a file with another layout, the further objects stay, and no
//! listing shows them. This module makes a partial file of such objects, so that a sweep of partial
//! files removes them.
//!
//! Invariant: this module touches only objects with a generation, because dray has written them.

use crate::errors::Errno;
use crate::files::{Files, absent, is_own};
use crate::names::{self, State};
use crate::note::{GENERATION, Generation};
use crate::partial::{DIRECT, FINAL, HOLDER, PLACE, Part, striper_steps, striper_texts};
use crate::pool::{Got, Job, Query, Step};
use crate::publish::batches;
use crate::url::FileLayout;
use dray_core::{ModifiedTime, RelPath, Result};
use dray_store::Holding;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;

const OPERATION: &str = "search for abandoned objects";

/// Maximum number of abandoned objects, and of claims, that one search examines. Later searches
/// find the others.
const EXAMINED_MAX: usize = 100_000;

/// Maximum number of an object. A file of this many objects of 4 MiB has 16 PiB.
const NUMBER_MAX: u64 = 1 << 32;

/// Numbers and newest change of the objects of one generation.
#[derive(Debug, Clone, Copy, Default)]
struct Remains {
    last: u64,
    changed: i64,
}

impl Files {
    /// Returns the space that a file occupies, and the time of the last change of the file. The
    /// file may be one of dray's own files.
    pub(crate) fn holding(&self, path: &RelPath) -> Result<Option<Holding>> {
        if !is_own(path) {
            let state = self.entry(path)?.map(|entry| entry.state(self.data.number));
            return Ok(state.map(|state| Holding {
                bytes: state.size,
                changed: state.modified,
            }));
        }
        let full = self.full(path)?;
        if let Some(got) = self.about(self.state_of(&full), OPERATION, path)? {
            let (part, size) = self.part_of(&got, path, full)?;
            return self.holding_of(&part, size, &got).map(Some);
        }
        let control = absent(self.state.one(Job::look(State::Control.object(&full))));
        let control = self.about(control, OPERATION, path)?;
        Ok(control.map(|got| holding(got.size, got.time)))
    }

    /// Returns the space of the partial file `part`. `state` is the answer about its state object,
    /// which shows only the last write to the first object. So this function also asks for the size
    /// and time of the further objects.
    fn holding_of(&self, part: &Part, size: u64, state: &Got) -> Result<Holding> {
        let (mut bytes, mut changed) = (state.size, state.time);
        let generation = part.generation.text();
        batches(1..part.layout.objects(size), |numbers| {
            let jobs = numbers.map(|number| {
                let query = Query {
                    equals: Some((GENERATION, generation.as_bytes())),
                    ..Query::default()
                };
                Job::read(part.object(number), query)
            });
            for answer in part.pool(self).run(jobs.collect()) {
                match answer {
                    Ok(got) => {
                        bytes += got.size;
                        changed = changed.max(got.time);
                    }
                    Err(Errno::NOT_FOUND | Errno::CANCELED) => {}
                    Err(errno) => return Err(self.failed(errno, OPERATION, &part.path)),
                }
            }
            Ok(())
        })?;
        Ok(holding(bytes, changed))
    }

    /// Makes a partial file of the objects of each abandoned file below the root, if none of these
    /// objects has changed after `before` (seconds since 1970). Returns the number of new partial
    /// files. Also deletes claims whose partial file does not exist.
    pub(crate) fn gather_lost(&self, before: i64) -> Result<u64> {
        self.drop_claims(before)?;
        let mut made = 0;
        for (full, numbers) in self.without_first()? {
            made += self.gather(&full, &numbers, before)?;
        }
        Ok(made)
    }

    /// Returns the numbers of the objects of each file below the root that has no first object.
    fn without_first(&self) -> Result<BTreeMap<Vec<u8>, Vec<u64>>> {
        let (root, top) = (RelPath::root(), self.names.top());
        // Keep hashes, because they need less memory than names. If a visible and an abandoned file
        // have the same hash, the abandoned file is not found.
        let hasher = RandomState::new();
        let mut visible = HashSet::new();
        let listed = self.data.each_object(&mut |object| {
            visible.extend(names::file_of_first(object).map(|full| hasher.hash_one(full)));
            ControlFlow::Continue(())
        });
        self.about(listed, OPERATION, &root)?;
        let (mut found, mut count) = (BTreeMap::<Vec<u8>, Vec<u64>>::new(), 0);
        let listed = self.data.each_object(&mut |object| {
            let further = names::file_of_further(object).filter(|(full, number)| {
                *number <= NUMBER_MAX
                    && self.names.below(&top, full).is_some()
                    && !visible.contains(&hasher.hash_one(full))
            });
            if let Some((full, number)) = further {
                found.entry(full.to_vec()).or_default().push(number);
                count += 1;
            }
            match count < EXAMINED_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        self.about(listed, OPERATION, &root)?;
        Ok(found)
    }

    fn gather(&self, full: &[u8], numbers: &[u64], before: i64) -> Result<u64> {
        let root = RelPath::root();
        let first = self.firsts(&[full]).pop().unwrap_or(Ok(None));
        if self.about(first, OPERATION, &root)?.is_some() || self.is_claimed(full)? {
            return Ok(0);
        }
        let mut remains: BTreeMap<Generation, Remains> = BTreeMap::new();
        for chunk in numbers.chunks(crate::partial::BATCH) {
            let jobs = chunk
                .iter()
                .map(|number| Job::look(names::object(full, *number)));
            for (number, answer) in chunk.iter().zip(self.data.run(jobs.collect())) {
                let Some(got) = self.about(absent(answer), OPERATION, &root)? else {
                    continue;
                };
                let generation = got.attribute(GENERATION).and_then(Generation::parse);
                if let Some(generation) = generation {
                    let one = remains.entry(generation).or_default();
                    one.last = one.last.max(*number);
                    one.changed = one.changed.max(got.time);
                }
            }
        }
        // One recent write shows that a writer may still be active.
        if remains.values().any(|one| one.changed > before) {
            return Ok(0);
        }
        let made = remains
            .into_iter()
            .map(|(of, one)| self.make_lost(full, of, one));
        made.sum()
    }

    /// Makes the state object of a partial file for abandoned objects. Returns the number of new
    /// partial files.
    fn make_lost(&self, full: &[u8], generation: Generation, remains: Remains) -> Result<u64> {
        let layout = FileLayout::default();
        let size = (remains.last + 1) * layout.object_size;
        let folder = full.iter().rposition(|byte| *byte == b'/');
        let folder = &full[..folder.map_or(0, |end| end + 1)];
        let text = generation.text();
        let partial = [folder, format!(".dray-{text}.part").as_bytes()].concat();
        let texts = striper_texts(&layout, size);
        let mut steps = vec![
            Step::CreateNew,
            Step::Set(GENERATION, text.as_bytes()),
            Step::Set(FINAL, full),
            Step::Set(PLACE, DIRECT),
        ];
        steps.extend(striper_steps(&texts));
        let mut job = Job::write(State::Partial.object(&partial), steps);
        // The partial file is as old as its objects.
        job.time = Some(remains.changed);
        match self.state.one(job) {
            Ok(_) => Ok(1),
            Err(Errno::EXISTS) => Ok(0),
            Err(errno) => Err(self.failed(errno, OPERATION, &RelPath::root())),
        }
    }

    /// Returns true if a partial file that exists has claimed the final name.
    fn is_claimed(&self, full: &[u8]) -> Result<bool> {
        let claim = absent(self.state.one(Job::look(State::Claim.object(full))));
        match self.about(claim, OPERATION, &RelPath::root())? {
            Some(claim) => self.has_holder(&claim),
            None => Ok(false),
        }
    }

    /// Returns true if the partial file that holds a claim exists.
    fn has_holder(&self, claim: &Got) -> Result<bool> {
        let holder = self.state_of(claim.attribute(HOLDER).unwrap_or_default());
        let holder = self.about(holder, OPERATION, &RelPath::root())?;
        Ok(holder.is_some_and(|got| got.attribute(GENERATION) == claim.attribute(GENERATION)))
    }

    /// Deletes claims below the root whose partial file does not exist.
    fn drop_claims(&self, before: i64) -> Result<()> {
        let (root, top) = (RelPath::root(), self.names.top());
        let mut claims = Vec::new();
        let listed = self.state.each_object(&mut |object| {
            if let Some((State::Claim, full)) = State::of(object)
                && self.names.below(&top, full).is_some()
            {
                claims.push(State::Claim.object(full));
            }
            match claims.len() < EXAMINED_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        self.about(listed, OPERATION, &root)?;
        for object in claims {
            let claim = absent(self.state.one(Job::look(object.clone())));
            let claim = self.about(claim, OPERATION, &root)?;
            let Some(claim) = claim.filter(|claim| claim.time <= before) else {
                continue;
            };
            if !self.has_holder(&claim)? {
                let generation = claim.attribute(GENERATION).unwrap_or_default();
                let steps = vec![Step::Equals(GENERATION, generation), Step::Remove];
                match self.state.one(Job::write(object, steps)) {
                    Ok(_) | Err(Errno::NOT_FOUND | Errno::CANCELED) => {}
                    Err(errno) => return Err(self.failed(errno, OPERATION, &root)),
                }
            }
        }
        Ok(())
    }
}

fn holding(bytes: u64, seconds: i64) -> Holding {
    Holding {
        bytes,
        changed: ModifiedTime {
            seconds,
            nanoseconds: 0,
        },
    }
}
