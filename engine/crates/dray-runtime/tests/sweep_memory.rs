//! Tests the peak memory of a sweep's walk. This is a separate test program, because it replaces
//! the allocator.

use dray_runtime::sweep::{WalkEvent, WalkRoot, walk};
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator cannot be counted otherwise")]
// SAFETY: both calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the block came from `alloc` above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_walk_holds_no_more_for_a_larger_tree() {
    // Use a folder in memory if possible. On a busy disk, so many folders take minutes.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.expect("a folder");
    for outer in 0..100 {
        for inner in 0..1000 {
            let at = folder.path().join(format!("{outer}/{inner}"));
            fs::create_dir_all(at).expect("a folder");
        }
    }
    let deep = folder.path().join("99/999");
    fs::write(deep.join(".dray-0123456789abcdef.part"), b"x").expect("a file");
    let place = WalkRoot::open(folder.path()).expect("opens");
    let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    let (mut folders, mut found) = (0, 0);
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    walk(&place, tomorrow, &mut |met| {
        match met {
            WalkEvent::Folder => folders += 1,
            WalkEvent::PartialData(_) => found += 1,
            WalkEvent::Young(one) => panic!("young: {one:?}"),
            WalkEvent::Unreadable(error) => panic!("{error}"),
        }
        ControlFlow::Continue(())
    })
    .expect("the root is there");
    assert_eq!((folders, found), (100_101, 1));
    let peak = PEAK.load(Ordering::Relaxed) - before;
    // The walk needs memory for a batch of names of each folder on the path, and for the folders
    // that the store keeps open.
    assert!(peak < 1 << 20, "{peak} bytes");
}
