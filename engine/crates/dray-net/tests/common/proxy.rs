//! A proxy between the two ends. It forwards all bytes until a test makes it damage the traffic.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

/// A bit that the proxy flips once in a data connection.
#[derive(Clone, Copy)]
pub struct Flip {
    /// True for bytes to the listener, false for bytes to the dialler.
    pub is_to_listener: bool,
    /// Number of bytes in that direction before the byte to change.
    pub offset: u64,
}

#[derive(Default)]
struct State {
    target: OnceLock<SocketAddr>,
    pairs: Mutex<Vec<(bool, TcpStream, TcpStream)>>,
    flip: Mutex<Option<Flip>>,
    is_frozen: AtomicBool,
    refuses: AtomicBool,
    cuts_after_join: AtomicBool,
    data_connections: AtomicU64,
}

pub struct Proxy {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State::default());
        let theirs = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&theirs);
                thread::spawn(move || state.forward(client));
            }
        });
        Self { address, state }
    }

    pub fn set_target(&self, target: SocketAddr) {
        self.state.target.set(target).expect("set once");
    }

    pub fn flip(&self, flip: Flip) {
        *self.state.flip.lock().expect("whole") = Some(flip);
    }

    /// Stops forwarding bytes, and keeps all connections open.
    pub fn freeze(&self) {
        self.state.is_frozen.store(true, Ordering::SeqCst);
    }

    pub fn refuse(&self, refuses: bool) {
        self.state.refuses.store(refuses, Ordering::SeqCst);
    }

    /// From now on, cuts each data connection at the first bytes after its JOIN.
    pub fn cut_after_join(&self) {
        self.state.cuts_after_join.store(true, Ordering::SeqCst);
    }

    pub fn cut_data(&self) {
        let mut pairs = self.state.pairs.lock().expect("whole");
        pairs.retain(|(is_data, client, target)| {
            if *is_data {
                let _ = client.shutdown(Shutdown::Both);
                let _ = target.shutdown(Shutdown::Both);
            }
            !*is_data
        });
    }

    /// Returns the number of data connections that the proxy has seen.
    pub fn data_connections(&self) -> u64 {
        self.state.data_connections.load(Ordering::SeqCst)
    }
}

impl State {
    fn forward(self: &Arc<Self>, mut client: TcpStream) {
        if self.refuses.load(Ordering::SeqCst) {
            return;
        }
        let mut preamble = [0; 8];
        let target = self
            .target
            .get()
            .and_then(|target| TcpStream::connect(target).ok());
        let (Some(mut target), Ok(())) = (target, client.read_exact(&mut preamble)) else {
            return;
        };
        let is_data = preamble[4] == 2;
        self.data_connections
            .fetch_add(u64::from(is_data), Ordering::SeqCst);
        if target.write_all(&preamble).is_err() {
            return;
        }
        let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
        let pair = (is_data, copy(&client), copy(&target));
        self.pairs.lock().expect("whole").push(pair);
        let (back_from, back_to) = (copy(&target), copy(&client));
        let state = Arc::clone(self);
        thread::spawn(move || state.pump(back_from, back_to, is_data, false, 0));
        self.pump(client, target, is_data, true, preamble.len() as u64);
    }

    fn pump(
        &self,
        mut from: TcpStream,
        mut to: TcpStream,
        is_data: bool,
        is_to_listener: bool,
        mut passed: u64,
    ) {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            while self.is_frozen.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(20));
            }
            let is_past_join = is_data && is_to_listener && passed + read as u64 > 72;
            if is_past_join && self.cuts_after_join.load(Ordering::SeqCst) {
                let _ = from.shutdown(Shutdown::Both);
                // Read the bytes that have already arrived. The client's later bytes cause a reset
                // of the connection, and unread bytes would delay this reset.
                while from.read(&mut bytes).is_ok_and(|read| read > 0) {}
                break;
            }
            let bytes = &mut bytes[..read];
            let mut flip = self.flip.lock().expect("whole");
            if is_data
                && let Some(rule) = *flip
                && rule.is_to_listener == is_to_listener
                && (passed..passed + read as u64).contains(&rule.offset)
            {
                bytes[(rule.offset - passed) as usize] ^= 0x10;
                *flip = None;
            }
            drop(flip);
            passed += read as u64;
            if to.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}
