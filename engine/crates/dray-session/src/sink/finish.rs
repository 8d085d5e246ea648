//! Finishes a file: combines and compares its checksums, reads it back if requested, and publishes
//! it.

use super::tree::Stage;
use super::{Effect, PublishItem, Sink};
use dray_core::options::Overwrite;
use dray_core::{End, Error, ErrorKind, FileIndex, Status, Sums, Time};

impl Sink {
    /// Finishes a file whose bytes are all durable.
    pub(super) fn finish(&mut self, index: FileIndex) {
        if !matches!(self.phase, super::Phase::Moving) {
            // The session is stopping, so keep the durable data. The next run finds the file
            // complete.
            return;
        }
        let Some(file) = self.file(index) else { return };
        if file.stage != Stage::Open {
            return;
        }
        let Some(sums) = file.known.whole(file.key.size) else {
            let error = Error::new(ErrorKind::Internal, End::Sink, "combine the checksums")
                .cause(
                    "the source reported the file as complete, but the received ranges have gaps",
                )
                .remedy("report this error; run the same command again");
            self.fail(index, error, true);
            return;
        };
        file.stage = Stage::Finishing;
        file.sums = Some(sums);
        let (demanded, size, small) = (file.key.demanded, file.key.size, file.small);
        if let Some(demanded) = demanded.filter(|demanded| !demanded.matches(&sums)) {
            let found = demanded.same_algorithm(&sums);
            let error = Error::new(ErrorKind::ChecksumMismatch, End::Source, "verify the file")
                .status(Status::Permanent)
                .cause(format!(
                    "the file at the source has the checksum {found}, but the checksum \
                        {demanded} is demanded"
                ))
                .remedy("correct the demanded checksum, or check the file at the source");
            self.fail(index, error, true);
            return;
        }
        self.finishing += 1;
        if self.config.options.verify && size > 0 {
            if let Some(path) = self.live.get(&index).map(|live| live.path.clone()) {
                self.out.push_back(Effect::ReadBack {
                    index,
                    path,
                    size,
                    small,
                });
            }
        } else {
            self.check_written_or_publish(index);
        }
    }

    pub(super) fn on_read_back(&mut self, index: FileIndex, result: Result<Sums, Error>) {
        if !matches!(self.phase, super::Phase::Moving) {
            // The session is stopping, so the read-back does not count. The durable data is kept,
            // and the next run reads the file back.
            self.finishing = self.finishing.saturating_sub(1);
            return;
        }
        let expected = self.file(index).and_then(|file| file.sums);
        match result {
            Ok(sums) if Some(sums) == expected => self.publish(index),
            Ok(_) => {
                self.finishing = self.finishing.saturating_sub(1);
                let error = Error::new(ErrorKind::ChecksumMismatch, End::Sink, "verify the file")
                    .cause("the bytes on storage differ from the bytes that were written")
                    .remedy("check the sink's storage; run the same command again");
                self.fail(index, error, true);
            }
            Err(error) => {
                self.finishing = self.finishing.saturating_sub(1);
                self.fail(index, error, false);
            }
        }
    }

    pub(super) fn publish(&mut self, index: FileIndex) {
        let replace = self.config.options.overwrite != Overwrite::Never;
        let Some(path) = self.live.get(&index).map(|live| live.path.clone()) else {
            return;
        };
        let Some(file) = self.file(index) else { return };
        debug_assert!(
            file.sums.is_some() && file.known.bytes() == file.key.size,
            "a file gets its final name only after its last record is in the log"
        );
        let item = PublishItem {
            index,
            path,
            small: file.small,
            size: file.key.size,
            metadata: file.metadata.clone(),
            sums: file.sums.unwrap_or_default(),
            replace,
        };
        file.stage = Stage::Publishing;
        self.to_publish.push(item);
    }

    pub(super) fn on_published(&mut self, results: Vec<(FileIndex, Result<(), Error>)>, now: Time) {
        for (index, result) in results {
            self.finishing = self.finishing.saturating_sub(1);
            match result {
                Ok(()) => {
                    if let Some(file) = self.file(index) {
                        file.stage = Stage::Published;
                    }
                    self.close_when_durable(index, now);
                }
                Err(error) => {
                    // Data with wrong checksums is useless for a retry, so discard it.
                    let is_wrong = matches!(
                        error.kind,
                        ErrorKind::ChecksumMismatch | ErrorKind::SourceChanged
                    );
                    self.fail(index, error, is_wrong);
                }
            }
        }
    }
}
