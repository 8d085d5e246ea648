//! Measures the memory of a long listing. This is a separate test program, because it replaces the
//! allocator.

use dray_core::{End, RelPath};
use dray_store::{ListOptions, NullStore, NullTree, PosixOptions, PosixStore, Store};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator cannot be counted otherwise")]
// SAFETY: both methods pass their arguments unchanged to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller obeys the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the block was allocated by `alloc` above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn peak_of(store: &dyn Store) -> (usize, usize) {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let listed = store
        .list(&RelPath::root(), &ListOptions::default())
        .expect("lists");
    let count = listed.filter(Result::is_ok).count();
    (count, PEAK.load(Ordering::Relaxed) - before)
}

#[test]
fn a_listing_holds_a_batch_and_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    for index in 0..100_000 {
        std::fs::File::create(folder.path().join(format!("file-{index:08}"))).expect("creates");
    }
    let store =
        PosixStore::open(folder.path(), End::Source, PosixOptions::default()).expect("opens");
    let (count, peak) = peak_of(&store);
    assert_eq!(count, 100_000);
    // 4096 entries and one buffer of further names need about 250 bytes per name.
    assert!(peak < 3 << 20, "{peak} bytes");

    let tree = NullTree {
        folders: 1000,
        files_per_folder: 1000,
        ..NullTree::default()
    };
    let (count, peak) = peak_of(&NullStore::new(End::Source, tree));
    assert_eq!(count, 1_002_000);
    assert!(peak < 64 << 10, "{peak} bytes");
}
