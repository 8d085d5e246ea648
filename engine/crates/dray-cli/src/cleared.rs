//! The allocator of the program. In a service, the allocator overwrites memory with zeros when the
//! memory is freed.
//!
//! A token passes through buffers of TLS, HTTP, parsers and text before it is checked. Most of
//! these buffers belong to libraries. Clearing all freed blocks keeps tokens out of core dumps,
//! swap files and later allocations, whichever library allocated the block. Only blocks that are too
//! large for a token are not cleared.
//!
//! Short-lived commands do not clear memory, because the kernel takes back the memory of a command
//! when the command ends.
//!
//! Non-goals: memory in use (the buffer of an open connection, a token that is still needed),
//! stacks, and allocations of C libraries.

#![expect(
    unsafe_code,
    reason = "a global allocator must implement an unsafe trait"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

#[global_allocator]
static HEAP: Cleared = Cleared;

/// Largest block that is cleared. A token is never in a larger block, because the body of an API
/// call is smaller. The system grows larger blocks without a copy by moving pages: a list of
/// millions of entries would otherwise need twice its memory. Buffers for the data of a transfer
/// are larger too. To clear them would touch all their pages, which took 0.2 s for each session.
const CLEARED_BYTES_MAX: usize = 8 << 20;

/// True in a service. Freed blocks are then cleared.
static CLEARS: AtomicBool = AtomicBool::new(false);

/// Clears every block of at most [`CLEARED_BYTES_MAX`] bytes that is freed after this call. A service
/// calls this function before it reads its first secret.
pub(crate) fn clear_from_now_on() {
    CLEARS.store(true, Ordering::Relaxed);
}

/// The allocator of the system, which clears blocks before it frees them.
struct Cleared;

/// Blocks up to this size are cleared word by word, which is faster than a call to `memset` for so
/// few bytes. Most blocks are smaller than this size.
const FEW_BYTES: usize = 128;

/// Clears a block that is about to be freed.
///
/// # Safety
///
/// The block is valid for writes of `bytes` bytes.
unsafe fn clear(block: *mut u8, bytes: usize) {
    const WORD: usize = size_of::<u64>();
    if (WORD..=FEW_BYTES).contains(&bytes) {
        let mut at = 0;
        while at + WORD <= bytes {
            // SAFETY: the word lies within the block.
            unsafe { block.add(at).cast::<u64>().write_unaligned(0) };
            at += WORD;
        }
        // SAFETY: the block has at least one word. Its last word may overlap a word that is already
        // cleared.
        unsafe { block.add(bytes - WORD).cast::<u64>().write_unaligned(0) };
    } else {
        // SAFETY: the caller guarantees that the block is valid for `bytes` bytes.
        unsafe { block.write_bytes(0, bytes) };
    }
    // The compiler may otherwise remove the writes above, because the memory is about to be freed.
    std::hint::black_box(block);
}

// SAFETY: every block comes from the system allocator, with the layout that the caller passed.
unsafe impl GlobalAlloc for Cleared {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::alloc`, and `System.alloc` has
        // the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block comes from this allocator and has this layout, and the caller no
        // longer uses it.
        unsafe {
            if CLEARS.load(Ordering::Relaxed) && layout.size() <= CLEARED_BYTES_MAX {
                clear(block, layout.size());
            }
            System.dealloc(block, layout);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if layout.size() > CLEARED_BYTES_MAX || !CLEARS.load(Ordering::Relaxed) {
            // SAFETY: the caller fulfils the contract of `GlobalAlloc::realloc`.
            return unsafe { System.realloc(block, layout, bytes) };
        }
        // SAFETY: the caller passes a size that is a valid layout with this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        // SAFETY: the size is not 0 by the contract of `GlobalAlloc::realloc`.
        let grown = unsafe { self.alloc(wanted) };
        if !grown.is_null() {
            // SAFETY: both blocks are valid for the copied bytes and do not overlap. The old block
            // has `layout`, and the caller no longer uses it.
            unsafe {
                grown.copy_from_nonoverlapping(block, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
        }
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW_BYTES, clear};

    #[test]
    fn a_block_of_any_length_is_cleared_and_nothing_beside_it() {
        for bytes in 0..2 * FEW_BYTES {
            // Test every alignment of the block relative to a word.
            for at in 0..8 {
                let mut memory = vec![0xAA_u8; at + bytes + 8];
                // SAFETY: `memory` has at least `bytes` bytes after `at`.
                unsafe { clear(memory.as_mut_ptr().add(at), bytes) };
                let (before, rest) = memory.split_at(at);
                let (block, after) = rest.split_at(bytes);
                assert!(block.iter().all(|byte| *byte == 0), "{bytes} at {at}");
                assert!(before.iter().chain(after).all(|byte| *byte == 0xAA));
            }
        }
    }
}
