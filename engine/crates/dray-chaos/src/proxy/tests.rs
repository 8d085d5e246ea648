//! Tests of the proxy with real connections.

use super::{PIECE_BYTES, Proxy};
use crate::plan::{Fault, Injections};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ONCE: Injections = Injections {
    probability: 1.0,
    count: 1,
};

struct Scene {
    proxy: Proxy,
    dialler: TcpStream,
    arrived: JoinHandle<Vec<u8>>,
}

/// Connects to a listener that collects all bytes until the end of the connection.
fn scene() -> Scene {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let arrived = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        let mut bytes = Vec::new();
        // A cut connection ends with an error. The bytes before it are kept.
        let _ = stream.read_to_end(&mut bytes);
        bytes
    });
    let proxy = Proxy::start("127.0.0.1:0", address).expect("a port");
    let dialler = TcpStream::connect(proxy.address()).expect("connected");
    Scene {
        proxy,
        dialler,
        arrived,
    }
}

impl Scene {
    /// Sends each piece after the one before it has passed the proxy.
    fn send(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            let before = self.proxy.carried().up_bytes;
            self.dialler.write_all(piece).expect("sent");
            while self.proxy.carried().up_bytes < before + piece.len() as u64 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn arrived(self) -> Vec<u8> {
        drop(self.dialler);
        self.arrived.join().expect("no panic")
    }
}

fn injected(counter: Option<&Arc<AtomicU32>>) -> u32 {
    counter.expect("a counter").load(Ordering::Relaxed)
}

#[test]
fn bytes_pass_unchanged_and_are_counted() {
    let mut scene = scene();
    let sent = vec![7; 3 * PIECE_BYTES + 1];
    scene.send(&[&sent]);
    let carried = scene.proxy.carried();
    assert_eq!((carried.down_bytes, carried.connections), (0, 1));
    assert_eq!(scene.arrived(), sent);
}

#[test]
fn one_bit_is_flipped_once() {
    let mut scene = scene();
    let counter = scene.proxy.begin(&Fault::Corrupt(ONCE), 5);
    scene.send(&[b"first", b"second"]);
    assert_eq!(injected(counter.as_ref()), 1);
    let arrived = scene.arrived();
    let bits = arrived.iter().zip(b"firstsecond");
    assert_eq!(bits.map(|(a, b)| (a ^ b).count_ones()).sum::<u32>(), 1);
    assert!(arrived.ends_with(b"second"));
}

#[test]
fn a_piece_is_repeated() {
    let mut scene = scene();
    let counter = scene.proxy.begin(&Fault::Duplicate(ONCE), 5);
    scene.send(&[b"ab", b"cd"]);
    assert_eq!(injected(counter.as_ref()), 1);
    assert_eq!(scene.arrived(), b"ababcd");
}

#[test]
fn two_pieces_change_places_and_a_single_piece_does_not_wait_for_ever() {
    let mut scene = scene();
    let counter = scene.proxy.begin(&Fault::Reorder(ONCE), 5);
    scene.send(&[b"ab"]);
    std::thread::sleep(super::SWAP_WAIT * 3);
    assert_eq!(injected(counter.as_ref()), 0, "there was no other piece");
    scene.send(&[b"cd", b"ef"]);
    let arrived = scene.arrived();
    assert_eq!(arrived, b"abefcd");
    assert_eq!(injected(counter.as_ref()), 1);
}

#[test]
fn pieces_wait_for_the_length_of_the_fault() {
    let mut scene = scene();
    let fault = Fault::Delay {
        duration: Duration::from_millis(200),
        delay: Duration::from_millis(150),
        probability: 1.0,
    };
    let counter = scene.proxy.begin(&fault, 5);
    let began = Instant::now();
    scene.send(&[b"ab"]);
    std::thread::sleep(Duration::from_millis(300));
    scene.send(&[b"cd"]);
    assert_eq!(injected(counter.as_ref()), 1);
    assert_eq!(scene.arrived(), b"abcd");
    assert!(began.elapsed() >= Duration::from_millis(150));
}

#[test]
fn a_refused_connection_does_not_keep_the_processor_busy() {
    let scene = scene();
    let until = Instant::now() + super::REFUSED_PAUSE * 4;
    let mut refused = 0;
    let errors = std::iter::from_fn(|| {
        refused += 1;
        let error = std::io::Error::from(rustix::io::Errno::MFILE);
        (Instant::now() < until).then_some(Err(error))
    });
    super::accept(&scene.proxy.shared, errors);
    assert!((2..=6).contains(&refused), "{refused} calls in 200 ms");
}

#[test]
fn a_cut_ends_both_sides() {
    let mut scene = scene();
    scene.send(&[b"ab"]);
    assert_eq!(scene.proxy.cut(), 1);
    let mut rest = Vec::new();
    let read = scene.dialler.read_to_end(&mut rest);
    assert!(read.is_err() || rest.is_empty());
    assert!(scene.proxy.begin(&Fault::Cut, 5).is_none());
    scene.arrived();
}
