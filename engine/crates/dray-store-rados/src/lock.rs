//! Locks on objects, as librbd takes them: an exclusive lock of the OSD class `lock`, and a watch.
//!
//! The lock has no expiry. Its holder also watches the object, and a thread of the library answers
//! the notifications that the holder receives. Another client that finds the lock sends a
//! notification. If the holder does not answer, its process has ended or is stopped. The other
//! client then puts the holder on the blocklist of the cluster and breaks the lock. The holder
//! cannot write any more, even if it continues later.

use crate::errors::{Answer, Errno};
use crate::library::Library;
use crate::pool::Pool;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// Name of the lock in the OSD class.
const NAME: &CStr = c"dray.lease";

/// Value of `LIBRADOS_LOCK_FLAG_MAY_RENEW` in the header.
const MAY_RENEW: u8 = 1;

/// Time in milliseconds in which a holder must answer. A holder that is stopped for longer loses
/// the lock.
const ANSWER_MILLISECONDS: u64 = 5_000;

/// Time in seconds for which an OSD keeps a watch without a connection.
const WATCH_SECONDS: u32 = 5;

/// The holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Name of the client: `client.NUMBER`.
    client: CString,
    cookie: CString,
    address: CString,
}

impl Holder {
    fn number(&self) -> Option<u64> {
        let client = self.client.to_str().ok()?;
        client.rsplit('.').next()?.parse().ok()
    }
}

/// Argument of the callback of a watch.
struct Watched {
    library: &'static Library,
    pool: *mut c_void,
    object: CString,
}

/// A watch on an object.
struct Watch {
    pool: Arc<Pool>,
    number: u64,
    watched: *mut Watched,
}

// SAFETY: the pointer is used by the callback, which only reads, and freed once in `drop`.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

/// Answers a notification. Runs on a thread of the library.
unsafe extern "C" fn on_notify(
    watched: *mut c_void,
    notification: u64,
    watch: u64,
    _notifier: u64,
    _data: *mut c_void,
    _length: usize,
) {
    // SAFETY: the pointer is that of `Watch::new`. It is freed after the last callback.
    let watched = unsafe { &*watched.cast::<Watched>() };
    let object = watched.object.as_ptr();
    // SAFETY: the pool is open, because `Watch` holds a reference to it.
    unsafe {
        (watched.library.notify_ack)(watched.pool, object, notification, watch, null(), 0);
    }
}

/// Called if a watch is lost. Does nothing, because the holder of the lock notices the loss when it
/// next checks its lease.
unsafe extern "C" fn on_error(_watched: *mut c_void, _watch: u64, _error: c_int) {}

impl Watch {
    fn new(pool: &Arc<Pool>, object: &CStr) -> Answer<Self> {
        let library = pool.cluster.library;
        let watched = Box::into_raw(Box::new(Watched {
            library,
            pool: pool.raw,
            object: object.to_owned(),
        }));
        let mut number = 0;
        // SAFETY: `watched` lives until the watch is removed and its callbacks have ended.
        let made = unsafe {
            (library.watch3)(
                pool.raw,
                object.as_ptr(),
                &raw mut number,
                on_notify,
                on_error,
                WATCH_SECONDS,
                watched.cast(),
            )
        };
        if let Err(errno) = pool.cluster.note(Errno::check(made)) {
            // SAFETY: the watch does not exist, so no callback uses the pointer.
            drop(unsafe { Box::from_raw(watched) });
            return Err(errno);
        }
        Ok(Self {
            pool: Arc::clone(pool),
            number,
            watched,
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let library = self.pool.cluster.library;
        // SAFETY: the watch exists. After the flush no callback runs, so the pointer can be freed.
        unsafe {
            (library.unwatch2)(self.pool.raw, self.number);
            (library.watch_flush)(self.pool.cluster.raw);
            drop(Box::from_raw(self.watched));
        }
    }
}

/// A held lock. Dropping the value releases the lock.
pub(crate) struct Lock {
    pool: Arc<Pool>,
    object: CString,
    cookie: CString,
    _watch: Watch,
}

impl Lock {
    /// Takes the lock on an existing object. Returns `None` if another client holds the lock and is
    /// alive. `cookie` distinguishes the locks of one client.
    pub(crate) fn take(pool: &Arc<Pool>, object: &CStr, cookie: &CStr) -> Answer<Option<Self>> {
        // Watch first, so that another client never finds a lock whose holder does not answer.
        let watch = Watch::new(pool, object)?;
        let mut locked = lock(pool, object, cookie);
        if locked == Err(Errno::BUSY) {
            for holder in holders(pool, object)? {
                let pulse = pulse(pool, object, &holder)?;
                // If the holder has this client's number, this process has failed to release an
                // earlier lock. Do not exclude such a holder, because this would exclude the
                // process itself.
                let is_own = holder.number() == Some(pool.cluster.client);
                if pulse == Pulse::Answers || !(is_own || exclude(pool, &holder, pulse)?) {
                    return Ok(None);
                }
                release(pool, object, &holder)?;
            }
            locked = lock(pool, object, cookie);
        }
        match locked {
            Ok(()) => Ok(Some(Self {
                pool: Arc::clone(pool),
                object: object.to_owned(),
                cookie: cookie.to_owned(),
                _watch: watch,
            })),
            Err(Errno::BUSY) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Returns true if this client still holds the lock.
    pub(crate) fn is_held(&self) -> Answer<bool> {
        let holders = holders(&self.pool, &self.object)?;
        Ok(holders.iter().any(|holder| holder.cookie == self.cookie))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let library = self.pool.cluster.library;
        // SAFETY: the texts live until the call returns. After an error the lock stays, and the
        // next client finds that its holder does not answer.
        unsafe {
            let (object, cookie) = (self.object.as_ptr(), self.cookie.as_ptr());
            (library.unlock)(self.pool.raw, object, NAME.as_ptr(), cookie);
        }
    }
}

fn lock(pool: &Pool, object: &CStr, cookie: &CStr) -> Answer<()> {
    // SAFETY: the texts live until the call returns. A null duration means no expiry.
    let locked = unsafe {
        (pool.cluster.library.lock_exclusive)(
            pool.raw,
            object.as_ptr(),
            NAME.as_ptr(),
            cookie.as_ptr(),
            c"".as_ptr(),
            null_mut(),
            MAY_RENEW,
        )
    };
    pool.cluster.note(Errno::check(locked)).map(drop)
}

/// State of the holder of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pulse {
    Answers,
    /// The OSD still has the watch of the holder, but the holder does not answer.
    Silent,
    /// The OSD has no watch of the holder, so the holder has no connection any more.
    Gone,
}

/// Excludes a holder that does not answer. Returns false if this client has no permission to
/// exclude the holder and the holder may still have a connection.
fn exclude(pool: &Pool, holder: &Holder, pulse: Pulse) -> Answer<bool> {
    match pool.cluster.exclude(&holder.address) {
        Err(Errno::PERMISSION | Errno::ACCESS) => Ok(pulse == Pulse::Gone),
        excluded => excluded.map(|()| true),
    }
}

fn release(pool: &Pool, object: &CStr, holder: &Holder) -> Answer<()> {
    // SAFETY: the texts live until the call returns.
    let broken = unsafe {
        (pool.cluster.library.break_lock)(
            pool.raw,
            object.as_ptr(),
            NAME.as_ptr(),
            holder.client.as_ptr(),
            holder.cookie.as_ptr(),
        )
    };
    match pool.cluster.note(Errno::check(broken)) {
        Err(Errno::NOT_FOUND) => Ok(()),
        broken => broken.map(drop),
    }
}

/// Returns the holders of the lock on an object: one or none.
fn holders(pool: &Pool, object: &CStr) -> Answer<Vec<Holder>> {
    const BYTES: usize = 4096;
    let mut buffers = [[0u8; BYTES]; 4];
    let mut lengths = [BYTES; 4];
    let mut exclusive = 0;
    let [tag, clients, cookies, addresses] = &mut buffers;
    let [tag_bytes, client_bytes, cookie_bytes, address_bytes] = &mut lengths;
    // SAFETY: the library writes at most the given number of bytes to each buffer.
    let found = unsafe {
        (pool.cluster.library.list_lockers)(
            pool.raw,
            object.as_ptr(),
            NAME.as_ptr(),
            &raw mut exclusive,
            tag.as_mut_ptr().cast::<c_char>(),
            tag_bytes,
            clients.as_mut_ptr().cast::<c_char>(),
            client_bytes,
            cookies.as_mut_ptr().cast::<c_char>(),
            cookie_bytes,
            addresses.as_mut_ptr().cast::<c_char>(),
            address_bytes,
        )
    };
    let count = i32::try_from(found).unwrap_or(i32::MIN);
    let count = match pool.cluster.note(Errno::check(count)) {
        Err(Errno::NOT_FOUND) => 0,
        count => usize::try_from(count?).unwrap_or(0),
    };
    let texts = |buffer: &[u8; BYTES]| -> Vec<CString> {
        let texts = buffer.split(|byte| *byte == 0).take(count);
        texts
            .map(|text| CString::new(text).unwrap_or_default())
            .collect()
    };
    let [_, clients, cookies, addresses] = &buffers;
    let all = texts(clients)
        .into_iter()
        .zip(texts(cookies))
        .zip(texts(addresses));
    let all = all.map(|((client, cookie), address)| Holder {
        client,
        cookie,
        address,
    });
    Ok(all.collect())
}

/// Sends a notification to the holder of a lock.
fn pulse(pool: &Pool, object: &CStr, holder: &Holder) -> Answer<Pulse> {
    let Some(number) = holder.number() else {
        return Ok(Pulse::Silent);
    };
    let (mut reply, mut length) = (null_mut(), 0);
    // SAFETY: the texts live until the call returns. The reply is freed below.
    let sent = unsafe {
        (pool.cluster.library.notify2)(
            pool.raw,
            object.as_ptr(),
            null(),
            0,
            ANSWER_MILLISECONDS,
            &raw mut reply,
            &raw mut length,
        )
    };
    // SAFETY: the library returned this buffer. It does so also after a timeout.
    let reply = unsafe { pool.cluster.taken(reply, length) };
    match pool.cluster.note(Errno::check(sent)) {
        Ok(_) | Err(Errno(110)) => {}
        Err(errno) => return Err(errno),
    }
    let (answered, silent) = clients(&reply).unwrap_or_default();
    // This client watches the object too, so it always answers once. If this client is also the
    // holder, another handle of this process holds the lock. In this case two answers show that the
    // holder is alive.
    let needed = if number == pool.cluster.client { 2 } else { 1 };
    let answers = answered.iter().filter(|one| **one == number).count();
    Ok(match (answers >= needed, silent.contains(&number)) {
        (true, _) => Pulse::Answers,
        (false, true) => Pulse::Silent,
        (false, false) => Pulse::Gone,
    })
}

/// Returns the numbers of the clients that have answered a notification, and of those that have
/// not. The reply begins with the number of answers (4 bytes). Each answer consists of the client's
/// number (8 bytes), the client's watch (8), a length (4) and bytes of this length. After the
/// answers comes the number of clients without an answer (4 bytes). Each of these clients has its
/// number (8) and its watch (8). All numbers are little endian.
fn clients(reply: &[u8]) -> Option<(Vec<u64>, Vec<u64>)> {
    fn word<const N: usize>(reply: &mut &[u8]) -> Option<[u8; N]> {
        let (word, rest) = reply.split_first_chunk::<N>()?;
        *reply = rest;
        Some(*word)
    }
    let mut reply = reply;
    let (mut answered, mut silent) = (Vec::new(), Vec::new());
    for _ in 0..u32::from_le_bytes(word(&mut reply)?) {
        answered.push(u64::from_le_bytes(word(&mut reply)?));
        word::<8>(&mut reply)?;
        let length = u32::from_le_bytes(word(&mut reply)?);
        reply = reply.get(usize::try_from(length).ok()?..)?;
    }
    for _ in 0..u32::from_le_bytes(word(&mut reply)?) {
        silent.push(u64::from_le_bytes(word(&mut reply)?));
        word::<8>(&mut reply)?;
    }
    Some((answered, silent))
}

#[cfg(test)]
mod tests {
    use super::clients;

    #[test]
    fn replies_name_the_clients_that_answered() {
        let mut reply = vec![2, 0, 0, 0];
        reply.extend(7u64.to_le_bytes());
        reply.extend([0; 8]);
        reply.extend([1, 0, 0, 0, 99]);
        reply.extend(8u64.to_le_bytes());
        reply.extend([0; 8]);
        reply.extend([0; 4]);
        // One client did not answer.
        reply.extend([1, 0, 0, 0]);
        reply.extend(9u64.to_le_bytes());
        reply.extend([0; 8]);
        assert_eq!(clients(&reply), Some((vec![7, 8], vec![9])));
        for length in 0..reply.len() {
            assert_eq!(clients(&reply[..length]), None, "{length} bytes");
        }
    }
}
