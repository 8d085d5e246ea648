//! The steps of publishing, which give a partial file its final name, and of deleting a partial
//! file or a published file.
//!
//! One operation on the first object makes a file visible: it writes the bytes of this object, the
//! attributes of libradosstriper and dray's own attributes. All other objects of the file exist
//! before this operation.

use crate::attributes::FileAttributes;
use crate::errors::{Answer, Errno};
use crate::files::{Files, Found, absent};
use crate::names::{self, State};
use crate::note::{GENERATION, NOTE, Note};
use crate::partial::{BATCH, DIRECT, OLD, PLACE, Part, striper_steps, striper_texts};
use crate::pool::{Got, Job, Pool, Query, Step};
use dray_core::{Error, ErrorKind, Metadata, Result};
use dray_store::{Attributes, Publish};
use std::ffi::CString;
use std::ops::Range;

const PUBLISH: &str = "publish the file";

/// Returns the attributes that [`Files::write_small`](crate::small) has stored with a partial
/// file.
fn stored_attributes(got: &Got, size: u64) -> FileAttributes {
    let note = got.attribute(NOTE).and_then(Note::parse);
    let metadata = Metadata {
        mode: note.map_or(crate::files::FILE_MODE, |note| note.mode),
        modified: note.map(|note| note.file.modified).unwrap_or_default(),
        xattrs: Found::of(got).map(|found| found.xattrs).unwrap_or_default(),
    };
    FileAttributes::new(size, &metadata, note.and_then(|note| note.file.sums))
}

/// The first object of a file that is about to be published.
struct First<'a> {
    part: &'a Part,
    size: u64,
    bytes: &'a [u8],
    file_attributes: &'a FileAttributes,
}

impl First<'_> {
    /// Makes the file visible. `begin` are the first steps of the operation.
    fn commit(&self, files: &Files, begin: &[Step<'_>]) -> Answer<Got> {
        let generation = self.part.generation.text();
        let texts = striper_texts(&self.part.layout, self.size);
        let mut steps = begin.to_vec();
        steps.extend([
            Step::WriteFull(self.bytes),
            Step::Set(GENERATION, generation.as_bytes()),
        ]);
        steps.extend(striper_steps(&texts));
        steps.extend(self.file_attributes.steps());
        let object = names::object(&self.part.full, 0);
        let osd = files.osd(&object);
        let mut job = Job::write(object, steps).on(osd);
        job.time = Some(self.file_attributes.time);
        files.data.one(job)
    }
}

/// Calls `each` for parts of `numbers` that are small enough for one batch.
pub(crate) fn batches(
    numbers: Range<u64>,
    mut each: impl FnMut(Range<u64>) -> Result<()>,
) -> Result<()> {
    let mut at = numbers.start;
    while at < numbers.end {
        let end = numbers.end.min(at + BATCH as u64);
        each(at..end)?;
        at = end;
    }
    Ok(())
}

impl Files {
    /// Gives a partial file its final name. Without `attributes`, the file gets the attributes that
    /// are stored with the partial file.
    pub(crate) fn publish(
        &self,
        part: &Part,
        size: u64,
        how: Publish,
        attributes: Option<&Attributes<'_>>,
    ) -> Result<()> {
        self.refuse_folder(part)?;
        let (got, bytes) = self.first_of(part, size)?;
        let file_attributes = match attributes {
            Some(attributes) => FileAttributes::new(size, attributes.metadata, attributes.sums),
            None => stored_attributes(&got, size),
        };
        self.check_objects(part, size)?;
        let first = First {
            part,
            size,
            bytes: &bytes,
            file_attributes: &file_attributes,
        };
        loop {
            let old = self.firsts(&[&part.full]).pop().unwrap_or(Ok(None));
            let old = self.about(old, PUBLISH, &part.path)?;
            let answer = match old {
                None => {
                    self.copy_staged(part, size)?;
                    first.commit(self, &[Step::CreateNew])
                }
                Some(old) if self.is_generation(&old, part) => Ok(got.clone()),
                Some(_) if how == Publish::IfAbsent => return Err(self.exists(part)),
                Some(old) => self.replace(&first, &old)?,
            };
            match answer {
                // Another writer was faster, so look again.
                Err(Errno::EXISTS | Errno::NOT_FOUND | Errno::CANCELED) => {}
                answer => {
                    self.about(answer, PUBLISH, &part.path)?;
                    break;
                }
            }
        }
        self.clean_up(part, size)
    }

    /// Replaces the file with the first object `old`. The inner result is that of the commit.
    fn replace(&self, first: &First<'_>, old: &Got) -> Result<Answer<Got>> {
        let part = first.part;
        let objects = Found::of(old).map_or(1, |old| old.objects());
        if objects > 1 {
            // If this process ends before it has deleted the objects of the old file, a later
            // process finds the number of these objects in this attribute of the partial file.
            let known = self.state.one(Job::look(part.state()));
            let known = self.about(known, PUBLISH, &part.path)?;
            let (before, _) = old_objects(&known);
            let of = old.attribute(GENERATION).unwrap_or_default();
            let of = String::from_utf8_lossy(of);
            let text = format!("{} {of}", objects.max(before));
            let generation = part.generation.text();
            let steps = vec![
                Step::Equals(GENERATION, generation.as_bytes()),
                Step::Set(OLD, text.as_bytes()),
            ];
            let noted = self.state.one(Job::write(part.state(), steps));
            self.about(noted, PUBLISH, &part.path)?;
        }
        if part.layout.objects(first.size) > 1 && (objects > 1 || !part.is_direct) {
            // The objects of both files have the same names. Remove the first object of the old
            // file, so that no reader sees a mixture, and then copy the staged objects.
            let steps = vec![Step::Remove];
            match self
                .data
                .one(Job::write(names::object(&part.full, 0), steps))
            {
                Ok(_) | Err(Errno::NOT_FOUND) => {}
                Err(errno) => return Err(self.failed(errno, PUBLISH, &part.path)),
            }
            self.copy_staged(part, first.size)?;
            return Ok(first.commit(self, &[Step::CreateNew]));
        }
        Ok(first.commit(self, &[Step::Exists, Step::Remove, Step::Touch]))
    }

    fn is_generation(&self, got: &Got, part: &Part) -> bool {
        got.attribute(GENERATION) == Some(part.generation.text().as_bytes())
    }

    pub(crate) fn exists(&self, part: &Part) -> Error {
        self.error(ErrorKind::AlreadyExists, PUBLISH, &part.path)
            .cause("a file with this name exists")
            .remedy("choose another destination, or permit the copy to replace files")
    }

    fn gone(&self, part: &Part) -> Error {
        self.error(ErrorKind::NotFound, PUBLISH, &part.path)
            .cause("the partial file was removed or replaced")
            .remedy("run the same command again")
    }

    fn refuse_folder(&self, part: &Part) -> Result<()> {
        match self.about(self.folder(&part.full), PUBLISH, &part.path)? {
            None => Ok(()),
            Some(_) => Err(self
                .error(ErrorKind::IsADirectory, PUBLISH, &part.path)
                .cause("a folder with this name exists")
                .remedy("move the existing folder away, or choose another destination")),
        }
    }

    /// Reads the state object: its attributes and the bytes of the first object.
    fn first_of(&self, part: &Part, size: u64) -> Result<(Got, Vec<u8>)> {
        let length = part.layout.object_bytes(size, 0);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let generation = part.generation.text();
        let query = Query {
            equals: Some((GENERATION, generation.as_bytes())),
            attributes: true,
            data: Some((0, &mut bytes)),
        };
        match self.state.one(Job::read(part.state(), query)) {
            Ok(got) if got.read as u64 == length => Ok((got, bytes)),
            Ok(_) => Err(self.lost(part, 0)),
            Err(Errno::NOT_FOUND | Errno::CANCELED) => Err(self.gone(part)),
            Err(errno) => Err(self.failed(errno, PUBLISH, &part.path)),
        }
    }

    fn lost(&self, part: &Part, number: u64) -> Error {
        self.error(ErrorKind::Io, PUBLISH, &part.path)
            .cause(format!(
                "the object {} of the partial file is missing or too short",
                part.object(number).to_string_lossy()
            ))
            .remedy("check the cluster with `ceph -s`; delete the partial file and copy again")
    }

    /// Checks that all further objects exist with their full lengths. A reader of libradosstriper
    /// would see zeros in place of a lost object.
    fn check_objects(&self, part: &Part, size: u64) -> Result<()> {
        let generation = part.generation.text();
        let pool = part.pool(self);
        batches(1..part.layout.objects(size), |numbers| {
            let jobs = numbers.clone().map(|number| {
                let query = Query {
                    equals: Some((GENERATION, generation.as_bytes())),
                    ..Query::default()
                };
                Job::read(part.object(number), query)
            });
            for (number, answer) in numbers.clone().zip(pool.run(jobs.collect())) {
                match answer {
                    Ok(got) if got.size >= part.layout.object_bytes(size, number) => {}
                    Ok(_) | Err(Errno::NOT_FOUND | Errno::CANCELED) => {
                        return Err(self.lost(part, number));
                    }
                    Err(errno) => return Err(self.failed(errno, PUBLISH, &part.path)),
                }
            }
            Ok(())
        })
    }

    /// Copies the staged objects to their final names.
    fn copy_staged(&self, part: &Part, size: u64) -> Result<()> {
        if part.is_direct {
            return Ok(());
        }
        let generation = part.generation.text();
        for number in 1..part.layout.objects(size) {
            let length = part.layout.object_bytes(size, number);
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            let query = Query {
                equals: Some((GENERATION, generation.as_bytes())),
                attributes: false,
                data: Some((0, &mut bytes)),
            };
            let read = self.state.one(Job::read(part.object(number), query));
            if self.about(read, PUBLISH, &part.path)?.read as u64 != length {
                return Err(self.lost(part, number));
            }
            let object = names::object(&part.full, number);
            let osd = self.osd(&object);
            let steps = vec![
                Step::WriteFull(&bytes),
                Step::Set(GENERATION, generation.as_bytes()),
            ];
            let written = self.data.one(Job::write(object, steps).on(osd));
            self.about(written, PUBLISH, &part.path)?;
        }
        Ok(())
    }

    /// Deletes what is left after publishing: further objects of the replaced file, staged objects
    /// or the claim, and last the state object.
    fn clean_up(&self, part: &Part, size: u64) -> Result<()> {
        let known = absent(self.state.one(Job::look(part.state())));
        let Some(known) = self.about(known, PUBLISH, &part.path)? else {
            return Ok(());
        };
        let new = part.layout.objects(size);
        let (old, of) = old_objects(&known);
        let full = |number| names::object(&part.full, number);
        self.remove_all((&self.data, of.as_deref()), new..old.max(new), &full, part)?;
        if !part.is_direct {
            let staged = |number| part.object(number);
            self.remove_all((&self.state, None), 1..new, &staged, part)?;
        } else {
            self.release_claim(part);
        }
        self.remove_state(part)
    }

    fn remove_state(&self, part: &Part) -> Result<()> {
        let generation = part.generation.text();
        let steps = vec![
            Step::Equals(GENERATION, generation.as_bytes()),
            Step::Remove,
        ];
        match self.state.one(Job::write(part.state(), steps)) {
            Err(Errno::NOT_FOUND | Errno::CANCELED) => Ok(()),
            removed => self
                .about(removed, "delete the partial file", &part.path)
                .map(drop),
        }
    }

    /// Deletes objects. If a generation is given, keeps objects with another generation.
    fn remove_all(
        &self,
        (pool, only): (&Pool, Option<&[u8]>),
        numbers: Range<u64>,
        object: &dyn Fn(u64) -> CString,
        part: &Part,
    ) -> Result<()> {
        batches(numbers, |numbers| {
            let jobs = numbers.map(|number| {
                let mut steps = Vec::new();
                steps.extend(only.map(|only| Step::Equals(GENERATION, only)));
                steps.push(Step::Remove);
                Job::write(object(number), steps)
            });
            self.all_removed(pool.run(jobs.collect()), part)
        })
    }

    fn all_removed(&self, answers: Vec<Answer<Got>>, part: &Part) -> Result<()> {
        for answer in answers {
            match answer {
                Ok(_) | Err(Errno::NOT_FOUND | Errno::CANCELED) => {}
                Err(errno) => return Err(errno.at(self.end, "delete the objects", &part.path)),
            }
        }
        Ok(())
    }

    /// Deletes those of the objects `numbers` that have the generation of the partial file.
    pub(crate) fn remove_objects(&self, part: &Part, numbers: Range<u64>) -> Result<()> {
        let generation = part.generation.text();
        batches(numbers, |numbers| {
            let jobs = numbers.map(|number| {
                let steps = vec![
                    Step::Equals(GENERATION, generation.as_bytes()),
                    Step::Remove,
                ];
                Job::write(part.object(number), steps)
            });
            self.all_removed(part.pool(self).run(jobs.collect()), part)
        })
    }

    /// Deletes a partial file with all its objects. If the file is already published, deletes only
    /// what publishing has left.
    pub(crate) fn discard_part(&self, part: &Part, size: u64) -> Result<()> {
        let first = self.firsts(&[&part.full]).pop().unwrap_or(Ok(None));
        let first = self.about(first, "delete the partial file", &part.path)?;
        if first.is_some_and(|first| self.is_generation(&first, part)) {
            return self.clean_up(part, size);
        }
        let known = absent(self.state.one(Job::look(part.state())));
        let known = self.about(known, "delete the partial file", &part.path)?;
        let is_own = known
            .as_ref()
            .is_some_and(|known| self.is_generation(known, part));
        if !is_own {
            return Ok(());
        }
        self.remove_objects(part, 1..part.layout.objects(size))?;
        if let Some(known) = &known
            && known.attribute(PLACE) == Some(DIRECT)
        {
            self.release_claim(part);
        }
        self.remove_state(part)
    }

    /// Deletes the file with the first object `got`: the first object, then all others.
    pub(crate) fn remove_file(&self, part: &Part, got: &Got) -> Result<()> {
        const OPERATION: &str = "delete the file";
        let generation = got.attribute(GENERATION);
        let mut steps: Vec<Step<'_>> = Vec::new();
        steps.extend(generation.map(|value| Step::Equals(GENERATION, value)));
        steps.push(Step::Remove);
        match self
            .data
            .one(Job::write(names::object(&part.full, 0), steps))
        {
            Ok(_) | Err(Errno::NOT_FOUND) => {}
            Err(errno) => return Err(self.failed(errno, OPERATION, &part.path)),
        }
        let objects = Found::of(got).map_or(1, |found| found.objects());
        let full = |number| names::object(&part.full, number);
        self.remove_all((&self.data, generation), 1..objects, &full, part)
    }

    /// Returns the state object of a partial file, if it exists.
    pub(crate) fn state_of(&self, partial: &[u8]) -> Answer<Option<Got>> {
        absent(self.state.one(Job::look(State::Partial.object(partial))))
    }
}

/// Returns the number of objects of the file that a partial file replaces, and their generation.
/// The number is 0 if no file is recorded.
fn old_objects(state: &Got) -> (u64, Option<Vec<u8>>) {
    let text = state
        .attribute(OLD)
        .and_then(|text| std::str::from_utf8(text).ok());
    let (number, of) = text
        .and_then(|text| text.split_once(' '))
        .unwrap_or(("0", ""));
    let of = (!of.is_empty()).then(|| of.as_bytes().to_vec());
    (number.parse().unwrap_or(0), of)
}
