//! A server with one thread per connection. Each thread has a fixed rate, so a client needs several
//! connections for a higher rate. Each file has a lock. A write holds the lock of its file during a
//! part of the service time of the write. A write that must become durable holds the lock longer.
//! So writes to one file over several connections wait for each other, and a connection whose write
//! waits is blocked.

use dray_core::lock::LockExt;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of bytes in one request.
pub(crate) const BYTES_MAX: usize = 1 << 20;

/// Rates of the server. They are so low that the processor never limits the throughput. So other
/// load on the machine does not change the results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    /// Rate of one connection in bytes per second.
    pub(crate) connection: f64,
    /// Limit on the rate of all connections together in bytes per second; `None` for no limit.
    pub(crate) whole: Option<f64>,
    /// Fraction of the service time of a write during which it holds the lock of its file.
    pub(crate) locked: f64,
    /// Time to make a write durable while the lock of the file is held.
    pub(crate) durable: Duration,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            connection: 16.0 * 1048576.0,
            whole: None,
            locked: 0.25,
            durable: Duration::from_millis(2),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Number of the request. The answer contains the same number.
    pub(crate) id: u64,
    /// Number of the file.
    pub(crate) file: u32,
    /// Number of bytes. For a write, the bytes follow the request. For a read, they follow the
    /// answer.
    pub(crate) bytes: u32,
    pub(crate) is_write: bool,
    /// True if the server answers only after the write is durable.
    pub(crate) is_durable: bool,
}

/// Length in bytes of a request without data.
pub(crate) const REQUEST: usize = 18;
/// Length in bytes of an answer without data.
pub(crate) const ANSWER: usize = 12;

impl Request {
    pub(crate) fn encode(&self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.file.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16] = u8::from(self.is_write);
        bytes[17] = u8::from(self.is_durable);
        bytes
    }

    fn decode(bytes: &[u8; REQUEST]) -> Self {
        let four = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            id: u64::from(four(0)) | u64::from(four(4)) << 32,
            file: four(8),
            bytes: four(12),
            is_write: bytes[16] != 0,
            is_durable: bytes[17] != 0,
        }
    }
}

/// The server. It runs until the program ends.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    rates: Rates,
    files: Mutex<HashMap<u32, Arc<Mutex<()>>>>,
    /// Time at which the limit on all connections permits the next bytes.
    free: Mutex<Instant>,
    /// Number of waits for a lock that another thread held.
    pub(crate) lock_waits: AtomicU64,
    /// Total duration of these waits in nanoseconds.
    pub(crate) lock_nanos: AtomicU64,
}

impl Server {
    pub(crate) fn start(rates: Rates) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            rates,
            files: Mutex::default(),
            free: Mutex::new(Instant::now()),
            lock_waits: AtomicU64::new(0),
            lock_nanos: AtomicU64::new(0),
        });
        let of_all = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = of_all.clone();
                // The thread ends when the client closes the connection.
                thread::spawn(move || shared.serve(stream).is_ok());
            }
        });
        Ok(Self { address, shared })
    }
}

/// On a busy machine a sleep takes longer than requested. The next sleep is then shorter by the
/// excess, but at most by this time.
const LATE_MAX: Duration = Duration::from_millis(5);

/// Clock of a thread. Contains the time by which the last sleep was too long.
struct Pace(Duration);

impl Pace {
    fn spend(&mut self, length: Duration) {
        let began = Instant::now();
        let due = length.saturating_sub(self.0);
        self.0 = self.0.saturating_sub(length);
        thread::sleep(due);
        self.0 += began.elapsed().saturating_sub(due);
        self.0 = self.0.min(LATE_MAX);
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut buffer = vec![0; BYTES_MAX];
        let mut head = [0; REQUEST];
        let mut pace = Pace(Duration::ZERO);
        loop {
            stream.read_exact(&mut head)?;
            let request = Request::decode(&head);
            let data = buffer
                .get_mut(..request.bytes as usize)
                .ok_or(io::ErrorKind::InvalidData)?;
            if request.is_write {
                stream.read_exact(data)?;
            }
            self.work(request, &mut pace);
            let mut answer = [0; ANSWER];
            answer[..8].copy_from_slice(&request.id.to_le_bytes());
            answer[8..]
                .copy_from_slice(&if request.is_write { 0 } else { request.bytes }.to_le_bytes());
            stream.write_all(&answer)?;
            if !request.is_write {
                stream.write_all(data)?;
            }
        }
    }

    fn work(&self, request: Request, pace: &mut Pace) {
        let Rates {
            connection,
            whole,
            locked,
            durable,
        } = self.rates;
        let bytes = f64::from(request.bytes);
        let length = Duration::from_secs_f64(bytes / connection);
        if let Some(whole) = whole {
            let until = {
                let mut free = self.free.lock_unpoisoned();
                *free = (*free).max(Instant::now()) + Duration::from_secs_f64(bytes / whole);
                *free
            };
            thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        if !request.is_write {
            return pace.spend(length);
        }
        pace.spend(length.mul_f64(1.0 - locked));
        let file = self
            .files
            .lock_unpoisoned()
            .entry(request.file)
            .or_default()
            .clone();
        let _held = match file.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let began = Instant::now();
                let held = file.lock_unpoisoned();
                let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.lock_waits.fetch_add(1, Ordering::Relaxed);
                self.lock_nanos.fetch_add(nanos, Ordering::Relaxed);
                held
            }
        };
        let durable = if request.is_durable {
            durable
        } else {
            Duration::ZERO
        };
        pace.spend(length.mul_f64(locked) + durable);
    }
}
