//! The program's heap: a service clears memory when it is freed.
//!
//! A token passes through buffers of TLS, of HTTP, of parsers and of text before it is judged, and most of
//! them belong to libraries. Clearing what they free keeps tokens out of a core dump, a swap file and a
//! block that somebody else is given, whoever held them.
//!
//! Commands that end soon do not pay for that: their memory goes back to the system with them.
//!
//! Non-goals: memory that is still held (the buffer of an open connection, a token that is needed again),
//! stacks, and what C libraries allocate.

#![expect(unsafe_code, reason = "an allocator has no other form")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

#[global_allocator]
static HEAP: Cleared = Cleared;

/// A block of more bytes is grown by the system, which moves pages instead of copying them: of a list of
/// millions of entries two copies would be held else. No token lies in one: a call's body is smaller.
const COPIED_BYTES_MAX: usize = 8 << 20;

/// True in a service: freed blocks are cleared.
static CLEARS: AtomicBool = AtomicBool::new(false);

/// Clears what is freed from now on: called before a service reads its first secret.
pub(crate) fn clear_from_now_on() {
    CLEARS.store(true, Ordering::Relaxed);
}

/// The system's allocator; what is freed is cleared first.
struct Cleared;

/// Most blocks are smaller than this, and a call that clears them costs more than the writes.
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
        // SAFETY: the block has a word at least; its last one may overlap one that is cleared.
        unsafe { block.add(bytes - WORD).cast::<u64>().write_unaligned(0) };
    } else {
        // SAFETY: by this function's contract.
        unsafe { block.write_bytes(0, bytes) };
    }
    // Else the compiler may drop writes to memory that is about to be freed.
    std::hint::black_box(block);
}

// SAFETY: every block is the system allocator's, with the layout that the caller gave.
unsafe impl GlobalAlloc for Cleared {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps to the contract of `GlobalAlloc::alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives up a block of this allocator that has this layout.
        unsafe {
            if CLEARS.load(Ordering::Relaxed) {
                clear(block, layout.size());
            }
            System.dealloc(block, layout);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if layout.size() > COPIED_BYTES_MAX || !CLEARS.load(Ordering::Relaxed) {
            // SAFETY: the caller keeps to the contract of `GlobalAlloc::realloc`.
            return unsafe { System.realloc(block, layout, bytes) };
        }
        // SAFETY: the caller gives a size that, with this alignment, is a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        // SAFETY: the size is not 0 by the contract of `GlobalAlloc::realloc`.
        let grown = unsafe { self.alloc(wanted) };
        if !grown.is_null() {
            // SAFETY: both blocks are valid for that many bytes, and they are two; the old one, which has
            // `layout`, is given up.
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
            // From each alignment of a word.
            for at in 0..8 {
                let mut memory = vec![0xAA_u8; at + bytes + 8];
                // SAFETY: so many bytes follow `at`.
                unsafe { clear(memory.as_mut_ptr().add(at), bytes) };
                let (before, rest) = memory.split_at(at);
                let (block, after) = rest.split_at(bytes);
                assert!(block.iter().all(|byte| *byte == 0), "{bytes} at {at}");
                assert!(before.iter().chain(after).all(|byte| *byte == 0xAA));
            }
        }
    }
}
