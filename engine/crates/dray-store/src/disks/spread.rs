//! Chooses the disk of a new file by free space. Pure: the caller passes the free space in.

/// Bytes that are added to the size of each file. Without them, all empty files would go to one
/// disk. The value is estimated, not measured.
const FILE_COST: u64 = 64 * 1024;

#[derive(Debug, Clone, Copy, Default)]
struct Load {
    /// Free bytes at the last reading.
    free: u64,
    /// Bytes that open partial files will still take.
    promised: u64,
    /// Weighted number of bytes that were assigned to the disk. The weight of a byte is the largest
    /// room of any disk, divided by the room of this disk ([`Spread::room`]).
    assigned: f64,
}

/// Distributes new files over the disks in proportion to free space.
///
/// Each new file goes to the disk that would then have the fewest assigned bytes for each byte of
/// its free space (weighted fair queueing, with the free space as the weight). So disks with equal
/// free space get equal bytes, and a disk with half the free space gets half the bytes.
#[derive(Debug)]
pub(super) struct Spread(Vec<Load>);

impl Spread {
    pub(super) fn new(count: usize) -> Self {
        Self(vec![Load::default(); count])
    }

    pub(super) fn set_free(&mut self, disk: usize, bytes: u64) {
        if let Some(load) = self.0.get_mut(disk) {
            load.free = bytes;
        }
    }

    /// Counts bytes that a partial file will still take.
    pub(super) fn promise(&mut self, disk: usize, bytes: u64) {
        if let Some(load) = self.0.get_mut(disk) {
            load.promised = load.promised.saturating_add(bytes);
        }
    }

    /// Counts promised bytes that were written, or that will not be written.
    pub(super) fn settle(&mut self, disk: usize, bytes: u64) {
        if let Some(load) = self.0.get_mut(disk) {
            load.promised = load.promised.saturating_sub(bytes);
        }
    }

    /// Returns the free bytes of a disk that are not promised to open partial files.
    pub(super) fn room(&self, disk: usize) -> u64 {
        let load = self.0.get(disk).copied().unwrap_or_default();
        load.free.saturating_sub(load.promised)
    }

    /// Returns the disk of a new file of `size` bytes, and assigns the bytes to it. Disks with too
    /// little room, and the disk `except`, are left out. If all disks are too small, returns the
    /// disk with the most room.
    pub(super) fn choose(&mut self, size: u64, except: Option<usize>) -> Option<usize> {
        let others = (0..self.0.len()).filter(|disk| Some(*disk) != except);
        let largest = others.clone().map(|disk| self.room(disk)).max()?;
        let least = size.min(largest).max(1);
        let fits = |disk: &usize| self.room(*disk) >= least;
        let is_any = others.clone().any(|disk| fits(&disk));
        let candidates = others.filter(|disk| !is_any || fits(disk));
        let after = |disk: usize| {
            let share = self.room(disk).max(1) as f64 / largest.max(1) as f64;
            self.0[disk].assigned + size.saturating_add(FILE_COST) as f64 / share
        };
        let (chosen, assigned) = candidates
            .map(|disk| (disk, after(disk)))
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        self.0[chosen].assigned = assigned;
        let fitting = (0..self.0.len()).filter(|disk| !is_any || self.room(*disk) >= least);
        let lowest = fitting
            .map(|disk| self.0[disk].assigned)
            .min_by(f64::total_cmp)?;
        for load in &mut self.0 {
            // Raise low values to `lowest`. Otherwise a disk that was full for some time would get
            // all new files afterwards.
            load.assigned = load.assigned.max(lowest) - lowest;
        }
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    /// A small generator of numbers (xorshift), so that the cases are the same in each run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % limit
        }
    }

    fn spread(free: &[u64]) -> Spread {
        let mut spread = Spread::new(free.len());
        for (disk, bytes) in free.iter().enumerate() {
            spread.set_free(disk, *bytes);
        }
        spread
    }

    #[test]
    fn equal_disks_get_equal_bytes_for_any_sizes() {
        for seed in 1..200 {
            let mut numbers = Numbers(seed);
            let mut spread = spread(&[1 << 50; 4]);
            let mut bytes = [0_u64; 4];
            let largest = 1 << 30;
            for _ in 0..400 {
                // Every other file is small, as data files with their index files are.
                let is_large = numbers.below(2) == 0;
                let size = numbers.below(if is_large { largest } else { 4096 });
                let disk = spread.choose(size, None).expect("a disk");
                bytes[disk] += size + super::FILE_COST;
            }
            let (low, high) = (bytes.iter().min(), bytes.iter().max());
            let apart = high.expect("some") - low.expect("some");
            assert!(apart <= largest + super::FILE_COST, "{seed}: {bytes:?}");
        }
    }

    #[test]
    fn bytes_follow_the_free_space() {
        let mut spread = spread(&[3 << 40, 1 << 40]);
        let mut files = [0; 2];
        for _ in 0..4000 {
            files[spread.choose(1 << 20, None).expect("a disk")] += 1;
        }
        assert!((2950..3050).contains(&files[0]), "{files:?}");
    }

    #[test]
    fn a_full_disk_gets_no_file_and_does_not_catch_up_later() {
        let mut spread = spread(&[1 << 40, 10, 1 << 40]);
        for _ in 0..1000 {
            assert_ne!(spread.choose(1 << 20, None), Some(1));
        }
        spread.set_free(1, 1 << 40);
        let mut files = [0; 3];
        for _ in 0..30 {
            files[spread.choose(1 << 20, None).expect("a disk")] += 1;
        }
        assert!(files[1] <= 11, "{files:?}");
    }

    #[test]
    fn promised_bytes_are_not_free() {
        let mut spread = spread(&[100, 90]);
        spread.promise(0, 50);
        assert_eq!(spread.room(0), 50);
        assert_eq!(spread.choose(60, None), Some(1));
        assert_eq!(spread.choose(60, Some(1)), Some(0), "the only other disk");
        assert_eq!(
            spread.choose(1000, None),
            Some(1),
            "the disk with the most room"
        );
        spread.settle(0, 50);
        assert_eq!(spread.choose(95, None), Some(0));
    }

    #[test]
    fn every_choice_has_room_if_a_disk_has_room() {
        for seed in 1..500 {
            let mut numbers = Numbers(seed);
            let free: Vec<u64> = (0..1 + numbers.below(6))
                .map(|_| numbers.below(1000))
                .collect();
            let mut spread = spread(&free);
            for _ in 0..50 {
                let size = numbers.below(1200);
                let disk = spread.choose(size, None).expect("a disk");
                let best = (0..free.len()).map(|disk| spread.room(disk)).max();
                assert!(
                    spread.room(disk) >= size || Some(spread.room(disk)) == best,
                    "{seed}: {size} on {disk} of {free:?}"
                );
                spread.promise(disk, size.min(spread.room(disk)));
            }
        }
    }
}
