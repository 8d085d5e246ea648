//! The allocator of the program. In a service, the allocator overwrites memory with zeros when the
//! memory is freed.
//!
//! A token passes through buffers of TLS, HTTP, parsers and text before it is checked. Most of
//! these buffers belong to libraries. Clearing all freed blocks keeps tokens out of core dumps,
//! swap files and later allocations, whichever library allocated the block. Blocks that are too
//! large for a token are not cleared ([`CLEARED_BYTES_MAX`]).
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
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static HEAP: Cleared = Cleared;

/// Smallest value of [`CLEARED_BYTES_MAX`] in a service.
const CLEARED_BYTES_MIN: usize = 8 << 20;

/// Maximum size in bytes of a block that is cleared: 0 before the first call of [`clear_up_to`], and
/// in a short-lived command. A token is never in a larger block: the body of an API call is smaller,
/// also after a vector has doubled its block. The system grows larger blocks without a copy by moving
/// pages: a list of millions of entries would otherwise need twice its memory. The block of a
/// session's small buffers is usually larger too. Clearing this block touched all its pages, which
/// took 0.2 s for each session.
static CLEARED_BYTES_MAX: AtomicUsize = AtomicUsize::new(0);

/// Clears every block that is freed after this call, if the block has at most twice `body_bytes`
/// bytes, or 8 MiB if this is more. A service calls this function before it reads its first secret.
pub(crate) fn clear_up_to(body_bytes: u64) {
    let doubled = usize::try_from(body_bytes.saturating_mul(2)).unwrap_or(usize::MAX);
    CLEARED_BYTES_MAX.store(doubled.max(CLEARED_BYTES_MIN), Ordering::Relaxed);
}

fn is_cleared(bytes: usize) -> bool {
    bytes <= CLEARED_BYTES_MAX.load(Ordering::Relaxed)
}

/// An allocator that clears blocks, and then frees them with the system's allocator.
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
            if is_cleared(layout.size()) {
                clear(block, layout.size());
            }
            System.dealloc(block, layout);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !is_cleared(layout.size()) {
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
    use super::*;

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

    #[test]
    fn bodies_of_calls_are_cleared_whatever_their_limit() {
        assert!(!is_cleared(1), "a short-lived command");
        clear_up_to(1 << 20);
        assert!(is_cleared(CLEARED_BYTES_MIN) && !is_cleared(CLEARED_BYTES_MIN + 1));
        let body: usize = 64 << 20;
        clear_up_to(body as u64);
        assert!(is_cleared(2 * body) && !is_cleared(2 * body + 1));
        CLEARED_BYTES_MAX.store(0, Ordering::Relaxed);
    }
}
