//! Threads that read or write through a pool of connections. Each thread has its own file.

use super::server::{ANSWER, BYTES_MAX, Rates, Request, Server};
use dray_core::connections::{Direction, Flow, Rule, Setting};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind};
use dray_store::connections::{Carried, ConnectionOptions, Connections, Lease};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum length of a call in bytes.
const CALL_BYTES: u32 = 512 * 1024;
/// Maximum random reduction of the length of a call in bytes. With calls of equal length, all
/// threads would start their calls at the same moments.
const LESS_BYTES: u32 = 128 * 1024;

/// Maximum number of concurrent calls on a connection.
const DEPTH: u32 = 4;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) flow: Flow,
    pub(crate) threads: u32,
    pub(crate) connections: usize,
    pub(crate) rule: Rule,
    /// Time before the measurement. In it, the pool opens connections and compares settings.
    pub(crate) before: Duration,
    /// Length of the measurement.
    pub(crate) length: Duration,
}

/// Results of a run.
pub(crate) struct Came {
    /// Throughput in bytes per second.
    pub(crate) rate: f64,
    pub(crate) carried: Vec<Carried>,
    /// Number of waits for locks of files at the server.
    pub(crate) lock_waits: u64,
    /// Total duration of these waits.
    pub(crate) lock_seconds: f64,
    /// Current setting at the end of the run.
    pub(crate) setting: Setting,
}

/// A connection. Callers send requests at any time, and a separate thread receives the answers.
struct Wire {
    writer: Mutex<TcpStream>,
    open: Arc<Mutex<HashMap<u64, Open>>>,
    next: AtomicU64,
}

/// A request that is not answered yet.
struct Open {
    lease: Lease<Arc<Wire>>,
    answered: Sender<()>,
}

impl Wire {
    fn dial(address: SocketAddr) -> io::Result<Arc<Self>> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let reader = stream.try_clone()?;
        let open = Arc::new(Mutex::default());
        let of_reader = Arc::clone(&open);
        thread::spawn(move || {
            // The thread ends when the connection is closed. No caller waits for the remaining
            // requests.
            let _ = take_answers(reader, &of_reader);
            of_reader.lock_unpoisoned().clear();
        });
        let (writer, next) = (Mutex::new(stream), AtomicU64::new(0));
        Ok(Arc::new(Self { writer, open, next }))
    }
}

fn take_answers(mut stream: TcpStream, open: &Mutex<HashMap<u64, Open>>) -> io::Result<()> {
    let mut data = vec![0; BYTES_MAX];
    loop {
        let (mut id, mut bytes) = ([0; 8], [0; ANSWER - 8]);
        stream.read_exact(&mut id)?;
        stream.read_exact(&mut bytes)?;
        let bytes = u32::from_le_bytes(bytes) as usize;
        let data = data.get_mut(..bytes).ok_or(io::ErrorKind::InvalidData)?;
        stream.read_exact(data)?;
        let answered = open.lock_unpoisoned().remove(&u64::from_le_bytes(id));
        if let Some(Open { lease, answered }) = answered {
            lease.carried();
            // Ignore an error. A caller that does not wait for the answer has dropped the receiver.
            let _ = answered.send(());
        }
    }
}

fn submit(lease: Lease<Arc<Wire>>, mut request: Request, data: &[u8]) -> io::Result<Receiver<()>> {
    let wire = Arc::clone(&lease);
    let (answered, answer) = channel();
    request.id = wire.next.fetch_add(1, Ordering::Relaxed);
    wire.open
        .lock_unpoisoned()
        .insert(request.id, Open { lease, answered });
    let mut writer = wire.writer.lock_unpoisoned();
    writer.write_all(&request.encode())?;
    if request.is_write {
        writer.write_all(&data[..request.bytes as usize])?;
    }
    Ok(answer)
}

/// Runs one thread. The thread makes one call after the other until the run ends.
fn call(
    pool: &Connections<Arc<Wire>>,
    flow: Flow,
    file: u32,
    is_over: &AtomicBool,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let data = vec![0; CALL_BYTES as usize];
    let mut drawn = file;
    while !is_over.load(Ordering::Relaxed) {
        let mut answers = Vec::new();
        drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let bytes = CALL_BYTES - (drawn >> 8) % LESS_BYTES;
        for part in pool.lease_parts(flow, u64::from(bytes))? {
            let request = Request {
                id: 0,
                file,
                bytes: u32::try_from(part.bytes)?,
                is_write: flow.direction == Direction::Write,
                is_durable: flow.waits,
            };
            answers.push(submit(part.lease, request, &data)?);
        }
        if flow.waits {
            for answer in answers {
                answer.recv()?;
            }
        }
    }
    Ok(())
}

/// Runs a case with its own server.
pub(crate) fn run(case: &Case, rates: Rates) -> Result<Came, Box<dyn std::error::Error>> {
    let server = Server::start(rates)?;
    let address = server.address;
    let wires: Arc<Mutex<Vec<Arc<Wire>>>> = Arc::default();
    let opened = Arc::clone(&wires);
    let options = ConnectionOptions {
        most: case.connections,
        depth: DEPTH,
        rule: case.rule,
    };
    let pool = Connections::new(&options, move |_| {
        let wire = Wire::dial(address).map_err(|cause| {
            Error::new(
                ErrorKind::Unreachable,
                End::Source,
                format!("dial {address}: {cause}"),
            )
        })?;
        opened.lock_unpoisoned().push(Arc::clone(&wire));
        Ok(wire)
    });
    let is_over = AtomicBool::new(false);
    let all = |pool: &Connections<_>| -> u64 { pool.carried().iter().map(|each| each.bytes).sum() };
    let counter = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let came = thread::scope(|scope| {
        let callers: Vec<_> = (0..case.threads)
            .map(|file| {
                scope.spawn({
                    let (pool, is_over) = (&pool, &is_over);
                    move || call(pool, case.flow, file, is_over)
                })
            })
            .collect();
        thread::sleep(case.before);
        let (began, before) = (Instant::now(), all(&pool));
        let (waits, nanos) = (
            counter(&server.shared.lock_waits),
            counter(&server.shared.lock_nanos),
        );
        thread::sleep(case.length);
        let (bytes, seconds) = (all(&pool) - before, began.elapsed().as_secs_f64());
        let (waits_after, nanos_after) = (
            counter(&server.shared.lock_waits),
            counter(&server.shared.lock_nanos),
        );
        let setting = pool.setting(case.flow);
        is_over.store(true, Ordering::Relaxed);
        for caller in callers {
            match caller.join() {
                Ok(ended) => ended.map_err(|error| error.to_string())?,
                Err(_) => return Err("a thread fell over".to_owned()),
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "megabytes")]
        let rate = bytes as f64 / seconds;
        Ok(Came {
            rate,
            carried: pool.carried(),
            lock_waits: waits_after - waits,
            lock_seconds: Duration::from_nanos(nanos_after - nanos).as_secs_f64(),
            setting,
        })
    });
    for wire in wires.lock_unpoisoned().drain(..) {
        wire.writer.lock_unpoisoned().shutdown(Shutdown::Both)?;
    }
    Ok(came?)
}
