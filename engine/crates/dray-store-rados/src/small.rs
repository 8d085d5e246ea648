//! Batches of small files.
//!
//! A small file is written as the state object of a partial file. This write makes the small file
//! durable. The bytes also stay in memory until the file is published, so that publishing need not
//! read them.

use crate::attributes::FileAttributes;
use crate::errors::{Answer, Errno};
use crate::files::Files;
use crate::names::{self, State};
use crate::note::{GENERATION, Generation};
use crate::partial::{BATCH, FINAL, PLACE, Part, STAGED, id, striper_steps, striper_texts};
use crate::pool::{Got, Job, Query, Step};
use crate::unpublished::UnpublishedFile;
use dray_core::lock::LockExt;
use dray_core::{ErrorKind, Result};
use dray_store::{Partial as _, PartialId, SmallFile, SmallName};
use std::sync::Arc;

const WRITE: &str = "write the small file";
const PUBLISH: &str = "publish the small file";

/// A small file that is being written, with the texts of its write operation.
struct Written<'a, 'f> {
    file: &'a SmallFile<'f>,
    part: Part,
    file_attributes: FileAttributes,
    texts: [String; 4],
    generation: String,
}

impl Files {
    /// Writes small files. A file with the result `Ok` is durable.
    pub(crate) fn write_small(self: &Arc<Self>, files: &[SmallFile<'_>]) -> Vec<Result<PartialId>> {
        let parts = files.iter().map(|file| self.prepared(file));
        let mut parts: Vec<Result<Written<'_, '_>>> = parts.collect();
        let answers = {
            let single = parts
                .iter()
                .flatten()
                .filter(|one| self.is_single(one.file));
            let jobs = single.map(|one| {
                let mut steps = vec![
                    Step::CreateNew,
                    Step::WriteFull(one.file.bytes),
                    Step::Set(GENERATION, one.generation.as_bytes()),
                    Step::Set(FINAL, &one.part.full),
                    Step::Set(PLACE, STAGED),
                ];
                steps.extend(striper_steps(&one.texts));
                steps.extend(one.file_attributes.steps());
                Job::write(one.part.state(), steps)
            });
            let jobs: Vec<_> = jobs.collect();
            let mut answers: Vec<Answer<Got>> = Vec::with_capacity(jobs.len());
            let mut jobs = jobs.into_iter();
            while jobs.len() > 0 {
                answers.extend(self.state.run(jobs.by_ref().take(BATCH).collect()));
            }
            answers
        };
        let mut answers = answers.into_iter();
        let each = parts.drain(..).map(|one| {
            let one = one?;
            if !self.is_single(one.file) {
                return self.write_large(&one);
            }
            let answer = answers.next().unwrap_or(Err(Errno(22)));
            self.about(answer, WRITE, one.file.path)?;
            let kept = UnpublishedFile {
                generation: one.part.generation,
                bytes: one.file.bytes.to_vec(),
                file_attributes: one.file_attributes,
            };
            self.kept.lock_unpoisoned().put(one.part.partial, kept);
            Ok(id(self, one.part.generation))
        });
        each.collect()
    }

    /// Returns true if the file has only one object.
    fn is_single(&self, file: &SmallFile<'_>) -> bool {
        self.url.layout.objects(file.bytes.len() as u64) == 1
    }

    fn prepared<'a, 'f>(&self, file: &'a SmallFile<'f>) -> Result<Written<'a, 'f>> {
        let size = file.bytes.len() as u64;
        let generation = Generation::random();
        let part = Part {
            path: file.path.clone(),
            full: self.full(file.path)?,
            partial: self.beside(file.path, file.partial)?,
            generation,
            layout: self.url.layout,
            is_direct: false,
        };
        self.need_folder(file.path, WRITE)?;
        Ok(Written {
            file,
            texts: striper_texts(&part.layout, size),
            part,
            file_attributes: FileAttributes::new(
                size,
                file.attributes.metadata,
                file.attributes.sums,
            ),
            generation: generation.text(),
        })
    }

    /// Writes a file of several objects.
    fn write_large(self: &Arc<Self>, one: &Written<'_, '_>) -> Result<PartialId> {
        let file = one.file;
        let partial = self.create(file.path, file.partial, file.bytes.len() as u64)?;
        let state = one.part.state();
        let written = partial.write_at(0, file.bytes).and_then(|()| {
            let dressed = self
                .state
                .one(Job::write(state, one.file_attributes.steps()));
            self.about(dressed, WRITE, file.path)
        });
        match written {
            Ok(_) => Ok(partial.id()),
            Err(error) => {
                // A failed call leaves no file behind.
                let _ = partial.abort();
                Err(error)
            }
        }
    }

    /// Gives small files their final names.
    pub(crate) fn publish_small(&self, files: &[SmallName<'_>]) -> Vec<Result<()>> {
        let mut results: Vec<Option<Result<()>>> = files.iter().map(|_| None).collect();
        let mut kept: Vec<(usize, Part, UnpublishedFile)> = Vec::new();
        for (number, file) in files.iter().enumerate() {
            match self.kept_part(file) {
                Ok(Some((part, file))) => kept.push((number, part, file)),
                Ok(None) => {}
                Err(error) => results[number] = Some(Err(error)),
            }
        }
        for chunk in kept.chunks(BATCH) {
            let names: Vec<&SmallName<'_>> =
                chunk.iter().map(|(number, ..)| &files[*number]).collect();
            for ((number, ..), answer) in chunk.iter().zip(self.publish_kept(chunk, &names)) {
                results[*number] = answer;
            }
        }
        let each = files.iter().zip(results);
        each.map(|(file, result)| result.unwrap_or_else(|| self.publish_one(file)))
            .collect()
    }

    fn kept_part(&self, file: &SmallName<'_>) -> Result<Option<(Part, UnpublishedFile)>> {
        let partial = self.beside(file.path, file.partial)?;
        let full = self.full(file.path)?;
        let mut all = self.kept.lock_unpoisoned();
        let is_same = |kept: &UnpublishedFile| id(self, kept.generation).is(&file.id);
        let Some(kept) = all.take_if(&partial, is_same) else {
            return Ok(None);
        };
        let part = Part {
            path: file.path.clone(),
            full,
            partial,
            generation: kept.generation,
            layout: self.url.layout,
            is_direct: false,
        };
        Ok(Some((part, kept)))
    }

    /// Publishes files whose bytes are in memory. A result is `None` if the file must be published
    /// separately, because a file has the final name, or an error occurred.
    fn publish_kept(
        &self,
        kept: &[(usize, Part, UnpublishedFile)],
        names: &[&SmallName<'_>],
    ) -> Vec<Option<Result<()>>> {
        let texts: Vec<(String, [String; 4])> = kept
            .iter()
            .map(|(_, part, file)| {
                let texts = striper_texts(&part.layout, file.bytes.len() as u64);
                (part.generation.text(), texts)
            })
            .collect();
        // Check that no folder has the final name, and that the partial file is still the same.
        let jobs = kept
            .iter()
            .zip(&texts)
            .flat_map(|((_, part, _), (generation, _))| {
                let query = Query {
                    equals: Some((GENERATION, generation.as_bytes())),
                    ..Query::default()
                };
                [
                    Job::look(State::Folder.object(&part.full)),
                    Job::read(part.state(), query),
                ]
            });
        let looked = self.state.run(jobs.collect());
        let is_free = |pair: &[Answer<Got>]| matches!(pair, [Err(Errno::NOT_FOUND), Ok(_)]);
        let free: Vec<bool> = looked.chunks(2).map(is_free).collect();
        let chosen = kept
            .iter()
            .zip(&texts)
            .zip(&free)
            .filter(|(_, is_free)| **is_free);
        let jobs = chosen.map(|(((_, part, file), (generation, texts)), _)| {
            let mut steps = vec![
                Step::CreateNew,
                Step::WriteFull(&file.bytes),
                Step::Set(GENERATION, generation.as_bytes()),
            ];
            steps.extend(striper_steps(texts));
            steps.extend(file.file_attributes.steps());
            let object = names::object(&part.full, 0);
            let osd = self.osd(&object);
            let mut job = Job::write(object, steps).on(osd);
            job.time = Some(file.file_attributes.time);
            job
        });
        let mut committed = self.data.run(jobs.collect()).into_iter();
        let done: Vec<bool> = free
            .iter()
            .map(|is_free| *is_free && matches!(committed.next(), Some(Ok(_))))
            .collect();
        let ended = kept
            .iter()
            .zip(&texts)
            .zip(&done)
            .filter(|(_, is_done)| **is_done);
        let jobs = ended.map(|(((_, part, _), (generation, _)), _)| {
            let steps = vec![
                Step::Equals(GENERATION, generation.as_bytes()),
                Step::Remove,
            ];
            Job::write(part.state(), steps)
        });
        let mut removed = self.state.run(jobs.collect()).into_iter();
        let each = names.iter().zip(done).map(|(name, is_done)| {
            is_done.then(|| match removed.next() {
                None | Some(Ok(_) | Err(Errno::NOT_FOUND | Errno::CANCELED)) => Ok(()),
                Some(Err(errno)) => Err(errno.at(self.end, PUBLISH, name.path)),
            })
        });
        each.collect()
    }

    /// Publishes a small file from its state object.
    fn publish_one(&self, file: &SmallName<'_>) -> Result<()> {
        let partial = self.beside(file.path, file.partial)?;
        let got = self.about(self.state_of(&partial), PUBLISH, file.path)?;
        let gone = || {
            self.error(ErrorKind::NotFound, PUBLISH, file.path)
                .cause("the partial file was removed or replaced")
                .remedy("run the same command again")
        };
        let got = got.ok_or_else(gone)?;
        let (mut part, size) = self.part_of(&got, file.path, partial)?;
        if !part.id(self).is(&file.id) {
            return Err(gone());
        }
        let full = self.full(file.path)?;
        if !part.is_direct {
            part.full = full;
        }
        self.publish(&part, size, file.how, None)
    }
}
