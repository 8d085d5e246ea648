//! Batches of small files: writing, renaming and deleting.

use crate::client::{Renaming, Small};
use crate::note::{self, ATTRIBUTE};
use crate::partial::{Partials, file_mode};
use crate::server::{Server, folder_of, id_of, number_of};
use dray_core::lock::LockExt;
use dray_core::{Name, RelPath, Result};
use dray_store::{FileNote, PartialId, Publish, SmallFile, SmallName};

/// Returns the path of the partial file `partial` of the file at `path`.
pub(crate) fn beside(path: &RelPath, partial: &Name) -> Result<RelPath> {
    folder_of(path).join(partial)
}

/// Separates the successful values from the results. The second list keeps each error at its place,
/// and has `Ok` at the place of each successful value.
fn sift<T>(made: Vec<Result<T>>) -> (Vec<T>, Vec<Result<()>>) {
    let mut good = Vec::with_capacity(made.len());
    let said = made
        .into_iter()
        .map(|made| made.map(|made| good.push(made)));
    let said = said.collect();
    (good, said)
}

/// Joins the two lists of [`sift`] again. `answers` has the final results of the successful values,
/// in the same order.
fn unsift<T>(said: Vec<Result<()>>, answers: Vec<Result<T>>) -> Vec<Result<T>> {
    let mut answers = answers.into_iter();
    let each = said.into_iter().map(|said| {
        said?;
        // The client returns one result for each request, so a result is always left.
        answers.next().unwrap_or_else(|| Err(Server::unanswered()))
    });
    each.collect()
}

/// Writes small files. A file with the result `Ok` is durable.
pub(crate) fn write(
    server: &Server,
    partials: &Partials,
    files: &[SmallFile<'_>],
) -> Vec<Result<PartialId>> {
    let made = files.iter().enumerate().map(|(count, file)| {
        server.full(file.path)?;
        let at = beside(file.path, file.partial)?;
        let attributes = &file.attributes;
        let note = FileNote {
            size: file.bytes.len() as u64,
            modified: attributes.metadata.modified,
            sums: attributes.sums,
        };
        let small = Small {
            url: server.at(&at, count % server.connections)?,
            bytes: file.bytes,
            attribute: ATTRIBUTE,
            value: note::text(&note),
            mode: file_mode(attributes.metadata.mode),
        };
        Ok((file, at, small))
    });
    let (good, said) = sift(made.collect());
    let (about, small): (Vec<_>, Vec<_>) = good
        .into_iter()
        .map(|(file, at, small)| ((file, at), small))
        .unzip();
    let written = match Server::client().and_then(|client| client.write_small(&small)) {
        Ok(written) => written,
        Err(error) => {
            return files
                .iter()
                .map(|file| Server::about(file.path, Err(error.clone())))
                .collect();
        }
    };
    let answers = about.into_iter().zip(written);
    let answers = answers.map(|((file, at), written)| match written {
        Ok(written) => {
            let id = id_of(written.id);
            // If the server did not compare checksums on arrival, request a checksum of the stored
            // file.
            if let (true, Some(sums)) = (written.is_plain, &file.attributes.sums)
                && let Err(error) = server.compare(&at, sums)
            {
                let _ = server.discard(file.path, &at, Some(id));
                return Err(error.file(file.path));
            }
            partials.clean.lock_unpoisoned().insert(at);
            Ok(id)
        }
        Err(failed) => {
            if let Some(number) = failed.left {
                // Ignore an error here, because the first error is reported. A file without a known
                // number is not deleted, because another writer may own it.
                let _ = server.discard(file.path, &at, Some(id_of(number)));
            }
            Server::about(file.path, Err(failed.error))
        }
    });
    unsift(said, answers.collect())
}

/// Gives small files their final names.
pub(crate) fn publish(
    server: &Server,
    partials: &Partials,
    files: &[SmallName<'_>],
) -> Vec<Result<()>> {
    let made = files.iter().map(|file| {
        let at = beside(file.path, file.partial)?;
        let renaming = Renaming {
            from: server.asked(&at)?,
            to: server.asked(file.path)?,
            id: number_of(file.id),
            if_absent: file.how == Publish::IfAbsent,
        };
        Ok((file, at, renaming))
    });
    let (good, said) = sift(made.collect());
    let (about, each): (Vec<_>, Vec<_>) = good
        .into_iter()
        .map(|(file, at, renaming)| ((file, at), renaming))
        .unzip();
    let moved = match Server::client().and_then(|client| client.move_each(&server.login(), &each)) {
        Ok(moved) => moved,
        Err(error) => {
            return files
                .iter()
                .map(|file| Server::about(file.path, Err(error.clone())))
                .collect();
        }
    };
    let answers = about.into_iter().zip(moved).map(|((file, at), moved)| {
        Server::about(file.path, moved)?;
        partials.clean.lock_unpoisoned().remove(&at);
        Ok(())
    });
    unsift(said, answers.collect())
}

impl Server {
    /// Renames a file within its folder. The rename fails if the file does not have the identity
    /// `id`.
    pub(crate) fn give_name(
        &self,
        path: &RelPath,
        partial: &RelPath,
        id: PartialId,
        how: Publish,
    ) -> Result<()> {
        let renaming = Renaming {
            from: self.asked(partial)?,
            to: self.asked(path)?,
            id: number_of(id),
            if_absent: how == Publish::IfAbsent,
        };
        let moved = Self::client()?.move_each(&self.login(), &[renaming]);
        let moved = moved.and_then(|each| each.into_iter().collect::<Result<()>>());
        Self::about(path, moved)
    }

    /// Deletes a partial file if it has the given identity.
    pub(crate) fn discard(
        &self,
        path: &RelPath,
        partial: &RelPath,
        only: Option<PartialId>,
    ) -> Result<()> {
        if let Some(only) = only {
            match self.look(partial)? {
                Some(found) if Self::is_that(&found, only) => {}
                _ => return Ok(()),
            }
        }
        let asked = self.asked(partial)?;
        Self::about(path, Self::client()?.remove(&self.login(), &asked, false))
    }
}
