//! A distant listener. Bytes arrive after a fixed delay. Their rate is not limited.
//!
//! The TCP handshake is not delayed, because it ends before the proxy sees the connection.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Returns an address from which bytes take the time `one_way` to reach `target`.
pub fn far(target: SocketAddr, one_way: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(target) else {
                continue;
            };
            let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
            carry(copy(&client), copy(&server), one_way);
            carry(server, client, one_way);
        }
    });
    address
}

fn carry(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
    let (sent, under_way) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            let due = Instant::now() + one_way;
            if sent.send((due, bytes[..read].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        let _ = to.set_nodelay(true);
        for (due, bytes) in under_way {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
