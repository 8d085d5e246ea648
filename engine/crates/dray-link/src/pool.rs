//! The buffer pool: preallocated, page-aligned (for direct I/O), addressed by id.
//!
//! Each buffer has a lock of its own, taken by the one thread that works on it. The lock that all
//! threads share guards only the list of free buffers, for a push or a pop. Address space is
//! reserved immediately, and pages are touched on use. The last returned buffer is taken first: so
//! a transfer touches only as many buffers as it uses concurrently, and the bytes of its next
//! object are in the processor's cache.

use crate::extent::Extent;
use crate::numa::node_here;
use dray_core::lock::LockExt;
use dray_core::{BufferId, End, Error, ErrorKind, Result};
use memmap2::{MmapMut, MmapOptions};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

const PAGE: usize = 4096;

/// Bytes read and checksummed in one step, everywhere: they fit the second-level cache of any
/// machine of the last ten years. Guess, revisit.
pub const PIECE_BYTES: usize = 256 << 10;

/// Minimum size of a buffer with a mapping of its own. An allocator clears reused memory, which
/// cleared a whole pool for the smallest copy: in an endpoint up to 0.2 s of processor time for
/// each session. Smaller buffers would be too many mappings for one process (guess, revisit).
const MAPPED_BYTES: usize = 512 << 10;

/// Bytes that other threads of the process may still allocate after a pool was made: a few stacks,
/// and socket buffers (guess, revisit).
const SPARE_BYTES: usize = 32 << 20;

/// Maps this many bytes in one piece, and unmaps them. If an infeasible pool were allocated piece
/// by piece, it would first use up the rest of the process's limit. A small allocation of another
/// thread would then fail and end the process, with sessions that are not concerned.
fn probe(bytes: usize) -> Result<()> {
    let mut all = MmapOptions::new();
    // Check address space only, not free memory: untouched pages are never allocated.
    all.len(bytes.saturating_add(SPARE_BYTES)).no_reserve_swap();
    all.map_anon().map(drop).map_err(|_| refused(bytes))
}

/// Memory of a buffer.
enum Memory {
    Mapped(MmapMut),
    /// Memory, and the offset of the first page boundary in it.
    Allocated(Vec<u8>, usize),
}

impl Memory {
    fn new(bytes: usize) -> Result<Self> {
        let mapped = (bytes >= MAPPED_BYTES).then(|| MmapMut::map_anon(bytes));
        // The number of mappings of a process is limited.
        if let Some(Ok(mapped)) = mapped {
            return Ok(Self::Mapped(mapped));
        }
        let bytes = bytes.saturating_add(PAGE);
        // Allocate twice: `try_reserve` memory is not zeroed, and a zeroed allocation cannot fail
        // gracefully.
        let mut asked = Vec::<u8>::new();
        asked.try_reserve_exact(bytes).map_err(|_| refused(bytes))?;
        // Otherwise the compiler may remove the unused allocation.
        drop(std::hint::black_box(asked));
        // With ordinary alignment: with the page's, the allocator would always clear it by hand.
        let memory = vec![0; bytes];
        let address = memory.as_ptr().addr();
        Ok(Self::Allocated(
            memory,
            address.next_multiple_of(PAGE) - address,
        ))
    }
}

/// Returns the error for a failed allocation.
fn refused(bytes: usize) -> Error {
    Error::new(ErrorKind::Busy, End::Here, "take memory for the objects")
        .cause(format!("the system has no further {bytes} bytes"))
        .remedy(
            "give a smaller --pool or --object-size, or raise the limit of memory (ulimit -v, MemoryMax of \
             a service), then run the same command again",
        )
}

/// A page-aligned piece of memory.
pub struct Buffer {
    memory: Memory,
    bytes: usize,
    /// Location of its bytes in the source file, if shared blocks are possible. Unused by a link
    /// that sends the bytes.
    pub extent: Option<Extent>,
}

impl Buffer {
    fn new(bytes: usize) -> Result<Self> {
        let bytes = bytes.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
        Ok(Self {
            memory: Memory::new(bytes)?,
            bytes,
            extent: None,
        })
    }

    /// Returns the memory.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Mapped(memory) => memory,
            Memory::Allocated(memory, start) => &memory[*start..start + self.bytes],
        }
    }

    /// Returns the memory for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Mapped(memory) => memory,
            Memory::Allocated(memory, start) => &mut memory[*start..*start + self.bytes],
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}

/// All buffers of one end of a transfer.
#[derive(Debug)]
pub struct Pool {
    buffers: Box<[Mutex<Buffer>]>,
    /// Free buffers, used as a stack.
    free: Mutex<Vec<BufferId>>,
    /// Memory node near which each buffer was first filled, plus one; 0 if unknown, or if there is
    /// only one. The system allocates pages near the thread that touches them first.
    nodes: Box<[AtomicU32]>,
    buffer_bytes: usize,
}

impl Pool {
    /// Returns a pool of `count` buffers of `buffer_bytes` (rounded up to pages).
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if the system has no memory for them.
    pub fn new(count: u32, buffer_bytes: u64) -> Result<Self> {
        let buffer_bytes = usize::try_from(buffer_bytes).unwrap_or(usize::MAX);
        let number = usize::try_from(count).unwrap_or(usize::MAX);
        probe(number.saturating_mul(buffer_bytes))?;
        let buffers: Result<_> = (0..count)
            .map(|_| Buffer::new(buffer_bytes).map(Mutex::new))
            .collect();
        Ok(Self {
            buffers: buffers?,
            free: Mutex::new((0..count).rev().map(BufferId).collect()),
            nodes: (0..count).map(|_| AtomicU32::new(0)).collect(),
            buffer_bytes,
        })
    }

    /// Returns the number of buffers.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.buffers.len()).unwrap_or(u32::MAX)
    }

    /// Returns the usable bytes of each buffer.
    #[must_use]
    pub const fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Returns the buffer of this id, for the thread that owns it; `None` for an unknown id.
    #[must_use]
    pub fn buffer(&self, id: BufferId) -> Option<MutexGuard<'_, Buffer>> {
        // A panicked thread leaves arbitrary bytes, but a valid buffer.
        let buffer = self.buffers.get(id.0 as usize)?;
        Some(buffer.lock_unpoisoned())
    }

    fn free(&self) -> MutexGuard<'_, Vec<BufferId>> {
        self.free.lock_unpoisoned()
    }

    /// Takes a free buffer (for receivers; a source's machine assigns its buffers). On hosts with
    /// several memory nodes prefers one near the calling thread.
    #[must_use]
    pub fn take(&self) -> Option<BufferId> {
        self.take_near(node_here())
    }

    fn take_near(&self, node: Option<u32>) -> Option<BufferId> {
        let mut free = self.free();
        let Some(node) = node.map(|node| node.saturating_add(1)) else {
            return free.pop();
        };
        let last = |wanted: u32| {
            let is_there = |id: &BufferId| {
                let node = self.nodes.get(id.0 as usize);
                node.is_some_and(|node| node.load(Ordering::Relaxed) == wanted)
            };
            free.iter().rposition(is_there)
        };
        let found = last(node).or_else(|| last(0));
        let id = match found {
            Some(index) => free.remove(index),
            None => free.pop()?,
        };
        if let Some(near) = self.nodes.get(id.0 as usize) {
            let _ = near.compare_exchange(0, node, Ordering::Relaxed, Ordering::Relaxed);
        }
        Some(id)
    }

    /// Returns a taken buffer to the pool.
    pub fn give(&self, id: BufferId) {
        self.free().push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorKind, Pool};

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let pool = Pool::new(2, 5000).expect("memory");
        let (first, second) = (pool.take().expect("one"), pool.take().expect("two"));
        assert!(pool.take().is_none());
        let buffer = pool.buffer(first).expect("known");
        assert_eq!(buffer.bytes().as_ptr() as usize % 4096, 0);
        assert_eq!(buffer.bytes().len(), 8192);
        drop(buffer);
        pool.give(second);
        assert_eq!(pool.take(), Some(second));
    }

    #[test]
    fn as_many_buffers_are_touched_as_are_used_at_once() {
        let pool = Pool::new(100, 5000).expect("memory");
        for _ in 0..100 {
            let taken = [pool.take().expect("one"), pool.take().expect("another")];
            assert!(taken.iter().all(|id| id.0 < 2), "{taken:?}");
            pool.give(taken[0]);
            pool.give(taken[1]);
        }
    }

    /// Returns the resident memory of this process in bytes.
    fn resident() -> u64 {
        let said = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        let pages = said.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        pages.map_or(0, |pages: u64| pages * 4096)
    }

    #[test]
    fn a_pool_after_another_touches_no_more_than_it_uses() {
        let mut between = Vec::new();
        for round in 0..6 {
            let before = resident();
            let pool = Pool::new(96, 1 << 20).expect("memory");
            let taken = pool.take().expect("one");
            pool.buffer(taken).expect("known").bytes_mut().fill(round);
            let more = resident().saturating_sub(before);
            assert!(more < 48 << 20, "{} MiB in round {round}", more >> 20);
            // Keep other allocations beside it, so that freed memory is reused.
            between.push(vec![round; 600_000]);
            assert_eq!(pool.buffer(taken).expect("known").bytes()[4096], round);
        }
        assert_eq!(between.len(), 6);
    }

    #[test]
    fn buffers_go_to_the_node_that_filled_them_first() {
        let pool = Pool::new(4, 5000).expect("memory");
        let take = |node| pool.take_near(Some(node)).expect("one");
        let (here, there) = (take(0), take(1));
        pool.give(there);
        pool.give(here);
        assert_eq!((take(1), take(0)), (there, here));
        // After its own buffers it takes unused ones, then another node's.
        let more = [take(0), take(0)];
        assert!(!more.contains(&here) && !more.contains(&there));
        assert_eq!(pool.take_near(Some(0)), None);
        pool.give(there);
        assert_eq!(take(0), there);
        pool.give(there);
        assert_eq!(take(1), there, "it stays where its pages are");
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let error = Pool::new(1, 1 << 60).expect_err("no machine has so much");
        assert_eq!(error.kind, ErrorKind::Busy);
        assert!(error.remedy.contains("--pool"), "{error}");
    }
}
