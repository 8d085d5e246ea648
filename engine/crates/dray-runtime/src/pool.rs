//! The buffer pool: preallocated, page-aligned (direct I/O asks for it), named by id.
//!
//! Each buffer has a lock of its own, taken by the one thread that works on it; the one that all
//! threads share guards the list of free ones alone, for a push or a pop. Memory is reserved at once
//! and touched as it is used: what came back last goes out first, so that a transfer touches as many
//! buffers as it needs at once, and the bytes of its next object lie in the processor's cache.

use crate::extent::Extent;
use crate::lock::lock;
use crate::numa::node_here;
use dray_core::{BufferId, End, Error, ErrorKind, Result};
use memmap2::{MmapMut, MmapOptions};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

const PAGE: usize = 4096;

/// Bytes read and summed at once, wherever that is done: they fit the second-level cache of any
/// machine of the last ten years. Guess, revisit.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// From here on a buffer is a mapping of its own. What an allocator gives out again it clears, all of a pool
/// for the smallest copy: in an endpoint that was up to 0.2 s of processor time for each session. Smaller
/// buffers would be too many mappings for one process (guess, revisit).
const MAPPED_BYTES: usize = 512 << 10;

/// What the other threads of the process may still ask for once a pool has been made: a few stacks, and
/// buffers of sockets (guess, revisit).
const SPARE_BYTES: usize = 32 << 20;

/// Asks for so much at once, and gives it back. Taken piece by piece, a pool that is not to be had would use
/// up the rest of what the process may have, and a thread that asks for a few bytes meanwhile would end the
/// process, with sessions that have nothing to do with this one.
fn probe(bytes: usize) -> Result<()> {
    let mut all = MmapOptions::new();
    // Whether so much is there besides what was promised to others is not the question: untouched buffers
    // cost nothing.
    all.len(bytes.saturating_add(SPARE_BYTES)).no_reserve_swap();
    all.map_anon().map(drop).map_err(|_| refused(bytes))
}

/// Where a buffer's bytes are.
enum Memory {
    Mapped(MmapMut),
    /// From a page's boundary on.
    Allocated(Vec<u8>, usize),
}

impl Memory {
    fn new(bytes: usize) -> Result<Self> {
        let mapped = (bytes >= MAPPED_BYTES).then(|| MmapMut::map_anon(bytes));
        // A process may have so many mappings and no more.
        if let Some(Ok(mapped)) = mapped {
            return Ok(Self::Mapped(mapped));
        }
        let bytes = bytes.saturating_add(PAGE);
        // Asked for twice: what is given here is not cleared, and what is given cleared cannot be refused.
        let mut asked = Vec::<u8>::new();
        asked.try_reserve_exact(bytes).map_err(|_| refused(bytes))?;
        // Unused, it might never be asked for.
        drop(std::hint::black_box(asked));
        // Of ordinary alignment: asked for with the page's it would be cleared by hand, always.
        let memory = vec![0; bytes];
        let address = memory.as_ptr().addr();
        Ok(Self::Allocated(
            memory,
            address.next_multiple_of(PAGE) - address,
        ))
    }
}

/// What it means when the system has no memory for a buffer.
fn refused(bytes: usize) -> Error {
    Error::new(ErrorKind::Busy, End::Here, "take memory for the objects")
        .cause(format!("the system gives no further {bytes} bytes"))
        .remedy(
            "give a smaller --pool or --object-size, or raise the limit of memory (ulimit -v, MemoryMax of \
             a service), then run the same command again",
        )
}

/// A page-aligned piece of memory.
pub struct Buffer {
    memory: Memory,
    bytes: usize,
    /// Where its bytes lie as well. Of no meaning to a link that sends the bytes.
    pub(crate) extent: Option<Extent>,
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

    /// The memory.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Mapped(memory) => memory,
            Memory::Allocated(memory, start) => &memory[*start..start + self.bytes],
        }
    }

    /// The memory, to be filled.
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

/// All buffers of one end of one transfer.
#[derive(Debug)]
pub struct Pool {
    buffers: Box<[Mutex<Buffer>]>,
    /// Used as a stack.
    free: Mutex<Vec<BufferId>>,
    /// The memory node that each buffer was first filled near, as a number above it; 0: none yet, or
    /// there is but one. The system gives pages near whoever touches them first.
    nodes: Box<[AtomicU32]>,
    buffer_bytes: usize,
}

impl Pool {
    /// `count` buffers of `buffer_bytes` (rounded up to pages).
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when the system has no memory for them.
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

    /// Number of buffers.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.buffers.len()).unwrap_or(u32::MAX)
    }

    /// Bytes of each that may be used.
    #[must_use]
    pub const fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// The buffer of this id, for the thread that was given it; `None` for an unknown id.
    #[must_use]
    pub fn buffer(&self, id: BufferId) -> Option<MutexGuard<'_, Buffer>> {
        // A thread that panicked left bytes, not structure: the buffer is as good as any.
        let buffer = self.buffers.get(id.0 as usize)?;
        Some(lock(buffer))
    }

    fn free(&self) -> MutexGuard<'_, Vec<BufferId>> {
        lock(&self.free)
    }

    /// Takes a free buffer (receivers; a source's buffers are dealt out by its machine): on hosts with
    /// several memory nodes one near the calling thread, if there is one.
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

    /// Gives a taken buffer back.
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

    /// Bytes of memory that this process has.
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
            // Others hold memory beside it that stays, so that what is given back is given out again.
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
        // With none of its own left, what nobody has had, and then another's.
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
