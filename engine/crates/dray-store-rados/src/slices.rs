//! Lists the names of all objects of a namespace.
//!
//! librados orders the objects of a pool by the hashes of their names, and lists any range of the
//! hashes. Each placement group has a range of the hashes, and answers a request in one round trip.
//! So the hashes are divided into slices, and several threads list slices concurrently. A slice is
//! a range of hashes, so it contains the same objects before and after a split of a group.

use crate::errors::{Answer, Errno};
use crate::library::{Handle, ListItem};
use crate::pool::Pool;
use std::ops::ControlFlow;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::Builder;

/// Maximum number of threads of a listing. Each thread has one request in flight, and an OSD
/// executes at most 64 operations of this process ([`crate::slots`]). The value is estimated, not
/// measured.
const THREADS_MAX: usize = 16;

/// Maximum number of names in the answer to a request. The default limit of an OSD
/// (`osd_max_pgls`) is the same. The number bounds the memory of a listing: each thread holds one
/// answer, and the channel of the listing holds one answer for each thread.
const NAMES_MAX: usize = 1024;

/// Function that gets some names. It returns `Break` to end the listing.
type Give<'a> = dyn FnMut(Vec<Vec<u8>>) -> ControlFlow<()> + 'a;

/// A position in the order of the hashes.
struct Cursor<'a> {
    pool: &'a Pool,
    raw: Handle,
}

impl<'a> Cursor<'a> {
    fn begin(pool: &'a Pool) -> Self {
        // SAFETY: the handle of the pool is open.
        let raw = unsafe { (pool.cluster.library.object_list_begin)(pool.raw) };
        Self { pool, raw }
    }

    fn end(pool: &'a Pool) -> Self {
        // SAFETY: as above.
        let raw = unsafe { (pool.cluster.library.object_list_end)(pool.raw) };
        Self { pool, raw }
    }

    /// Returns the begin and the end of slice `number` of `count`.
    fn slice(pool: &'a Pool, number: usize, count: usize) -> (Self, Self) {
        let (all, all_end) = (Self::begin(pool), Self::end(pool));
        let (mut begin, mut end) = (Self::begin(pool), Self::end(pool));
        // SAFETY: all four positions are positions of this pool, and the library copies them.
        unsafe {
            (pool.cluster.library.object_list_slice)(
                pool.raw,
                all.raw,
                all_end.raw,
                number,
                count,
                &raw mut begin.raw,
                &raw mut end.raw,
            );
        }
        (begin, end)
    }

    fn is_before(&self, other: &Self) -> bool {
        let compare = self.pool.cluster.library.object_list_cursor_cmp;
        // SAFETY: both positions are positions of this pool.
        unsafe { compare(self.pool.raw, self.raw, other.raw) < 0 }
    }

    /// Returns the next names before `end`, and moves the position behind them.
    fn advance(&mut self, end: &Self, items: &mut [ListItem; NAMES_MAX]) -> Answer<Vec<Vec<u8>>> {
        let library = self.pool.cluster.library;
        // SAFETY: the library writes at most `NAMES_MAX` items. `object_list` permits that one
        // position is the begin and also receives the next begin.
        let listed = unsafe {
            (library.object_list)(
                self.pool.raw,
                self.raw,
                end.raw,
                NAMES_MAX,
                null(),
                0,
                items.as_mut_ptr(),
                &raw mut self.raw,
            )
        };
        let count = usize::try_from(Errno::check(listed)?).unwrap_or(0);
        let names = items[..count.min(NAMES_MAX)].iter().map(|item| {
            // SAFETY: the library has written a name of this length.
            unsafe { std::slice::from_raw_parts(item.name.cast::<u8>(), item.name_length) }.to_vec()
        });
        let names = names.collect();
        // SAFETY: the library has written these items, and no reference to them is left.
        unsafe { (library.object_list_free)(count.min(NAMES_MAX), items.as_mut_ptr()) };
        Ok(names)
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        let free = self.pool.cluster.library.object_list_cursor_free;
        // SAFETY: the library made the position, and nothing uses it afterwards.
        unsafe { free(self.pool.raw, self.raw) };
    }
}

/// The slices of a namespace that no thread has begun to list.
struct Slices<'a> {
    pool: &'a Pool,
    count: usize,
    next: AtomicUsize,
}

impl Slices<'_> {
    /// Lists slices until none is left.
    fn list(&self, give: &mut Give<'_>) -> Answer<()> {
        let mut items = Box::new([ListItem::EMPTY; NAMES_MAX]);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return Ok(());
            }
            let (mut at, end) = Cursor::slice(self.pool, number, self.count);
            while at.is_before(&end) {
                let names = at.advance(&end, &mut items)?;
                if give(names).is_break() {
                    return Ok(());
                }
            }
        }
    }
}

impl Pool {
    /// Passes the name of each object of the namespace to `take`, in no order.
    pub(crate) fn each_object(&self, take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Answer<()> {
        let places = self.cluster.places(&self.name).now(&self.cluster);
        let slices = Slices {
            pool: self,
            // If the number of groups is a power of two, each slice is one group. Otherwise some
            // groups consist of two slices.
            count: places.group_count(&self.name).next_power_of_two(),
            next: AtomicUsize::new(0),
        };
        let listed = list_concurrently(&slices, &mut |names| {
            names.iter().try_for_each(|name| take(name))
        });
        self.cluster.note(listed)
    }
}

/// Lists all slices, and passes the names to `give` on this thread.
fn list_concurrently(slices: &Slices<'_>, give: &mut Give<'_>) -> Answer<()> {
    let threads = slices.count.min(THREADS_MAX);
    if threads == 1 {
        return slices.list(give);
    }
    std::thread::scope(|scope| {
        let (sender, batches) = sync_channel(threads);
        let is_started = (0..threads).fold(false, |is_started, _| {
            let sender = sender.clone();
            let list = move || {
                // A send fails if the receiver has ended the listing.
                let listed = slices.list(&mut |names| match sender.send(Ok(names)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                });
                if let Err(errno) = listed {
                    let _ = sender.send(Err(errno));
                }
            };
            let thread = Builder::new().name("dray-list".to_owned());
            thread.spawn_scoped(scope, list).is_ok() || is_started
        });
        drop(sender);
        if !is_started {
            return slices.list(give);
        }
        for names in batches {
            if give(names?).is_break() {
                break;
            }
        }
        Ok(())
    })
}
