//! The buffer pool: preallocated, page-aligned buffers (for direct I/O) that are named by id.
//!
//! Each buffer has its own lock. A thread that works on a buffer holds the lock of that buffer. One
//! more lock, which all threads share, guards only the list of free buffers. The pool reserves its
//! address space immediately; the kernel allocates a page when a thread first touches the page. The
//! pool hands out the most recently returned buffer first. So a transfer touches only as many
//! buffers as it uses concurrently, and the next object is likely to find its buffer in the
//! processor's cache.

use crate::extent::Extent;
use crate::numa::node_here;
use bytes::BytesMut;
use dray_core::lock::LockExt;
use dray_core::{BufferId, End, Error, ErrorKind, Result};
use memmap2::{MmapMut, MmapOptions};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

const PAGE: usize = 4096;

/// Number of bytes that are read and summed in one step. A piece fits the second-level cache of
/// common processors of the last ten years. The value is an estimate.
pub const PIECE_BYTES: usize = 256 << 10;

/// Minimum size in bytes of a buffer that gets its own memory mapping. All smaller buffers of a pool
/// share one block of memory: with a mapping for each of them, a process could exceed its maximum
/// number of mappings. The value is estimated, not measured.
const MAPPED_BYTES: usize = 512 << 10;

/// Number of bytes that must remain available to other threads of the process after a pool was
/// made, for a few stacks and socket buffers. The value is estimated, not measured.
const SPARE_BYTES: usize = 32 << 20;

/// Checks the memory limit of the process: maps `bytes` in one piece and unmaps them. Without this
/// check, the process would allocate the buffers one by one, and a pool that is too large would use
/// all memory. A small allocation in another thread would then fail and end the process with all
/// its sessions.
fn probe(bytes: usize) -> Result<()> {
    let mut all = MmapOptions::new();
    // Check address space only, not free memory: untouched pages are never allocated.
    all.len(bytes.saturating_add(SPARE_BYTES)).no_reserve_swap();
    all.map_anon().map(drop).map_err(|_| refused(bytes))
}

enum Memory {
    Mapped(MmapMut),
    /// A part of a block that several buffers share.
    Part(BytesMut),
}

/// A block of memory that is divided into buffers. The kernel clears a page of a large block when a
/// thread first touches the page. The allocator clears small blocks itself: with one block for each
/// buffer of 64 KiB, a pool of 256 MiB took half a second.
struct Block(BytesMut);

impl Block {
    /// Allocates memory for `bytes` bytes from a page boundary on.
    fn new(bytes: usize) -> Result<Self> {
        let bytes = bytes.saturating_add(PAGE);
        // Allocate twice: `try_reserve_exact` reports a failure but does not clear the memory, and
        // an allocation of cleared memory ends the process if it fails.
        let mut asked = Vec::<u8>::new();
        asked.try_reserve_exact(bytes).map_err(|_| refused(bytes))?;
        // `black_box` keeps the compiler from removing the unused allocation.
        drop(std::hint::black_box(asked));
        // Allocate with ordinary alignment. With page alignment the allocator would always clear
        // the memory itself, even if the kernel has just cleared it.
        let mut memory = BytesMut::zeroed(bytes);
        let address = memory.as_ptr().addr();
        let _ = memory.split_to(address.next_multiple_of(PAGE) - address);
        Ok(Self(memory))
    }

    /// Takes the next `bytes` bytes, or the rest if fewer remain.
    fn part(&mut self, bytes: usize) -> BytesMut {
        self.0.split_to(bytes.min(self.0.len()))
    }
}

fn refused(bytes: usize) -> Error {
    Error::new(
        ErrorKind::Busy,
        End::Here,
        "allocate memory for the objects",
    )
    .cause(format!("the system cannot allocate {bytes} more bytes"))
    .remedy(
        "use a smaller --pool or --object-size, or raise the memory limit (ulimit -v, \
                MemoryMax of a service), then run the same command again",
    )
}

/// A page-aligned piece of memory.
pub struct Buffer {
    memory: Memory,
    /// Location of the buffer's bytes in the source file, if the sink may share blocks. A link that
    /// sends the bytes ignores this field.
    pub extent: Option<Extent>,
}

impl Buffer {
    const fn of(memory: Memory) -> Self {
        Self {
            memory,
            extent: None,
        }
    }

    /// Allocates a buffer of its own, in its own mapping if possible.
    fn alone(bytes: usize) -> Result<Self> {
        // A process has a limited number of mappings; if the limit is reached, allocate instead.
        Ok(Self::of(match MmapMut::map_anon(bytes) {
            Ok(mapped) => Memory::Mapped(mapped),
            Err(_) => Memory::Part(Block::new(bytes)?.part(bytes)),
        }))
    }

    /// Returns the memory of the buffer.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Mapped(memory) => memory,
            Memory::Part(memory) => memory,
        }
    }

    /// Returns the memory of the buffer for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Mapped(memory) => memory,
            Memory::Part(memory) => memory,
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes().len())
    }
}

/// Allocates `count` buffers of `bytes` bytes each, rounded up to whole pages.
fn buffers(count: usize, bytes: usize) -> Result<Box<[Mutex<Buffer>]>> {
    let bytes = bytes.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
    if bytes >= MAPPED_BYTES {
        return (0..count)
            .map(|_| Buffer::alone(bytes).map(Mutex::new))
            .collect();
    }
    let mut block = Block::new(count.saturating_mul(bytes))?;
    let part = |_| Mutex::new(Buffer::of(Memory::Part(block.part(bytes))));
    Ok((0..count).map(part).collect())
}

/// All buffers of one end of a transfer.
#[derive(Debug)]
pub struct Pool {
    buffers: Box<[Mutex<Buffer>]>,
    /// Ids of free buffers, used as a stack.
    free: Mutex<Vec<BufferId>>,
    /// For each buffer, the number of the memory node near which it was first filled, plus one. 0
    /// if the node is unknown, or if the host has one node. The kernel allocates a page near the
    /// thread that first touches the page.
    nodes: Box<[AtomicU32]>,
    buffer_bytes: usize,
}

impl Pool {
    /// Creates a pool of `count` buffers of `buffer_bytes` bytes each, rounded up to whole pages.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if the system has no memory for the buffers.
    pub fn new(count: u32, buffer_bytes: u64) -> Result<Self> {
        let buffer_bytes = usize::try_from(buffer_bytes).unwrap_or(usize::MAX);
        let number = usize::try_from(count).unwrap_or(usize::MAX);
        probe(number.saturating_mul(buffer_bytes))?;
        Ok(Self {
            buffers: buffers(number, buffer_bytes)?,
            free: Mutex::new((0..count).rev().map(BufferId).collect()),
            nodes: (0..count).map(|_| AtomicU32::new(0)).collect(),
            buffer_bytes,
        })
    }

    /// Returns the number of buffers in the pool.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.buffers.len()).unwrap_or(u32::MAX)
    }

    /// Returns the usable size of each buffer in bytes.
    #[must_use]
    pub const fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Locks and returns the buffer `id` for the thread that owns it. Returns `None` for an unknown
    /// id.
    #[must_use]
    pub fn buffer(&self, id: BufferId) -> Option<MutexGuard<'_, Buffer>> {
        // A thread that panicked leaves arbitrary bytes, but the buffer stays valid.
        let buffer = self.buffers.get(id.0 as usize)?;
        Some(buffer.lock_unpoisoned())
    }

    fn free(&self) -> MutexGuard<'_, Vec<BufferId>> {
        self.free.lock_unpoisoned()
    }

    /// Takes a free buffer. Receivers of a sink call this; at a source the machine assigns the
    /// buffers. On a host with several memory nodes, a buffer near the calling thread is preferred.
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
    use super::{BufferId, ErrorKind, PAGE, Pool};

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
    fn small_buffers_share_a_block_and_no_byte_of_it() {
        let (count, bytes) = (20_u8, 3 << 12);
        let pool = Pool::new(count.into(), bytes).expect("memory");
        for id in 0..count {
            let mut buffer = pool.buffer(BufferId(id.into())).expect("known");
            assert_eq!(buffer.bytes().len() as u64, bytes);
            assert_eq!(buffer.bytes().as_ptr() as usize % PAGE, 0);
            assert!(buffer.bytes().iter().all(|byte| *byte == 0), "{id}");
            buffer.bytes_mut().fill(id + 1);
        }
        for id in 0..count {
            let buffer = pool.buffer(BufferId(id.into())).expect("known");
            assert!(buffer.bytes().iter().all(|byte| *byte == id + 1), "{id}");
        }
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
            let (count, bytes) = [(96, 1 << 20), (1536, 1 << 16)][usize::from(round % 2)];
            let pool = Pool::new(count, bytes).expect("memory");
            let taken = pool.take().expect("one");
            pool.buffer(taken).expect("known").bytes_mut().fill(round);
            let more = resident().saturating_sub(before);
            assert!(more < 48 << 20, "{} MiB in round {round}", more >> 20);
            // These allocations keep freed pieces apart, so that the allocator reuses freed memory.
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
        // A thread of node 0 takes its own node's buffers first, then unused buffers, then buffers
        // of other nodes.
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
