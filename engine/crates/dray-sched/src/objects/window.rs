//! The window of a striped file: the objects that wait in the queues of their pairs. The other
//! unsent objects of the file wait as ranges, so the memory of a file does not grow with its size.

use super::{File, Objects};
use dray_core::{ByteRange, FileIndex};

/// Number of objects of a file that may always wait in the queues, even if the windows of all files
/// together are full.
const WINDOW_LEAST: u64 = 4;

/// One file may use at most 1 / `WINDOW_PART` of [`super::Limits::striped_max`].
const WINDOW_PART: u64 = 16;

impl File {
    /// Returns the number of objects in the queues, computed from the number of bytes.
    fn objects_open(&self) -> u64 {
        self.open_bytes.div_ceil(self.grid.object_bytes().get())
    }

    /// Returns the number of unsent bytes.
    pub(super) fn unsent_bytes(&self) -> u64 {
        self.open_bytes + self.later.bytes()
    }
}

impl Objects {
    /// Counts the objects of a striped file again after a change of its queues.
    pub(super) fn recount(&mut self, index: FileIndex) {
        let Some(file) = self.files.get_mut(&index).filter(|file| file.is_striped) else {
            return;
        };
        let now = file.objects_open();
        self.striped = (self.striped + now).saturating_sub(file.counted);
        file.counted = now;
    }

    /// Moves unsent objects of a file to the queues, if at most half of its window is full.
    pub(super) fn refill(&mut self, index: FileIndex) {
        self.recount(index);
        let striped_max = self.limits.striped_max;
        let window = (striped_max / WINDOW_PART).max(WINDOW_LEAST);
        let Some(file) = self.files.get(&index) else {
            return;
        };
        if file.later.is_empty() || file.counted > window / 2 {
            return;
        }
        let free = striped_max.saturating_sub(self.striped);
        let least = WINDOW_LEAST.saturating_sub(file.counted);
        let mut count = (window - file.counted).min(free).max(least);
        while count > 0 {
            let Some(file) = self.files.get_mut(&index) else {
                return;
            };
            let Some(run) = file.later.first() else {
                break;
            };
            let object = file.grid.range(file.grid.index_of(run.offset));
            let part = ByteRange::between(run.offset, run.end().min(object.end()));
            file.later.remove(part);
            self.insert(index, part);
            count -= 1;
        }
        self.recount(index);
    }
}
