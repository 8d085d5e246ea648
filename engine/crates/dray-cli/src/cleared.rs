//! The program's heap: a service clears memory when it is freed.
//!
//! A token passes through buffers of TLS, of HTTP, of parsers and of text before it is checked, and
//! most of them belong to libraries. Clearing freed blocks keeps tokens out of core dumps, swap
//! files and later allocations, whichever library held them.
//!
//! Short-lived commands do not clear: the system takes their memory back when they end.
//!
//! Non-goals: memory still in use (the buffer of an open connection, a token that is needed again),
//! stacks, and allocations of C libraries.

#![expect(unsafe_code, reason = "an allocator has no other form")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

#[global_allocator]
static HEAP: Cleared = Cleared;

/// Largest block that is reallocated by copying. The system grows larger blocks by moving pages,
/// which avoids a second copy of a list of millions of entries. No token is in such a block: the
/// body of a call is smaller.
const COPIED_BYTES_MAX: usize = 8 << 20;

/// True in a service: freed blocks are cleared.
static CLEARS: AtomicBool = AtomicBool::new(false);

/// Clears every block that is freed from now on. A service calls this before it reads its first
/// secret.
pub(crate) fn clear_from_now_on() {
    CLEARS.store(true, Ordering::Relaxed);
}

/// The system's allocator, which clears blocks before it frees them.
struct Cleared;

/// Size up to which separate writes clear a block faster than a call does. Most blocks are smaller.
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
        // SAFETY: the block holds at least one word; its last word may overlap a cleared word.
        unsafe { block.add(bytes - WORD).cast::<u64>().write_unaligned(0) };
    } else {
        // SAFETY: the contract of this function.
        unsafe { block.write_bytes(0, bytes) };
    }
    // Without this, the compiler may remove writes to memory that is about to be freed.
    std::hint::black_box(block);
}

// SAFETY: every block comes from the system allocator, with the layout that the caller passed.
unsafe impl GlobalAlloc for Cleared {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block comes from this allocator and has this layout, and the caller no
        // longer uses it.
        unsafe {
            if CLEARS.load(Ordering::Relaxed) {
                clear(block, layout.size());
            }
            System.dealloc(block, layout);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if layout.size() > COPIED_BYTES_MAX || !CLEARS.load(Ordering::Relaxed) {
            // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
            return unsafe { System.realloc(block, layout, bytes) };
        }
        // SAFETY: the caller passes a size that is a valid layout with this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        // SAFETY: the size is not 0 by the contract of `GlobalAlloc::realloc`.
        let grown = unsafe { self.alloc(wanted) };
        if !grown.is_null() {
            // SAFETY: both blocks are valid for that many bytes and do not overlap. The old block
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
            // At each alignment of a word.
            for at in 0..8 {
                let mut memory = vec![0xAA_u8; at + bytes + 8];
                // SAFETY: at least `bytes` bytes follow `at`.
                unsafe { clear(memory.as_mut_ptr().add(at), bytes) };
                let (before, rest) = memory.split_at(at);
                let (block, after) = rest.split_at(bytes);
                assert!(block.iter().all(|byte| *byte == 0), "{bytes} at {at}");
                assert!(before.iter().chain(after).all(|byte| *byte == 0xAA));
            }
        }
    }
}
