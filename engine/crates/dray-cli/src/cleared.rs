//! The program's heap: memory is cleared when it is freed.
//!
//! A token passes through buffers of TLS, of HTTP, of parsers and of text before it is judged, and most of
//! them belong to libraries. Clearing what they free keeps tokens out of a core dump, a swap file and a
//! block that somebody else is given, whoever held them.
//!
//! Non-goals: memory that is still held (the buffer of an open connection, a token that is needed again),
//! stacks, and what C libraries allocate.

#![expect(unsafe_code, reason = "an allocator has no other form")]

use std::alloc::{GlobalAlloc, Layout, System};

#[global_allocator]
static HEAP: Cleared = Cleared;

/// A block of more bytes is grown by the system, which moves pages instead of copying them: of a list of
/// millions of entries two copies would be held else. No token lies in one: a call's body is smaller.
const COPIED_BYTES_MAX: usize = 8 << 20;

/// The system's allocator; what is freed is cleared first.
struct Cleared;

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
            block.write_bytes(0, layout.size());
            // Else the compiler may drop writes to memory that is about to be freed.
            std::hint::black_box(block);
            System.dealloc(block, layout);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if layout.size() > COPIED_BYTES_MAX {
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
