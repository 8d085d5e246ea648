//! Tests of the injector with real files.

use super::{Armed, Injector, Kind};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

/// Number of a fault whose confirmations nobody receives.
const UNHEARD: u32 = 99;

struct Scene {
    injector: Injector,
    confirmed: Arc<Mutex<Vec<u32>>>,
    file: File,
}

fn scene() -> Scene {
    let confirmed = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&confirmed);
    Scene {
        injector: Injector::new(Box::new(move |number| {
            own.lock().expect("no panic").push(number);
            number != UNHEARD
        })),
        confirmed,
        file: tempfile::tempfile().expect("a file"),
    }
}

impl Scene {
    fn arm(&self, kind: Kind, count: u32, probability: f64) {
        self.injector.arm(Armed {
            number: kind as u32,
            kind,
            count,
            probability,
            seed: 5,
        });
    }

    fn write(&self, bytes: &[u8], offset: u64, unit: usize) -> rustix::io::Result<usize> {
        let injector = &self.injector;
        injector.pwrite(self.file.as_fd(), bytes, offset, unit)
    }

    fn sync(&self) -> rustix::io::Result<()> {
        let fd = self.file.as_fd();
        (self.injector).sync_one(fd, || rustix::fs::fdatasync(fd))
    }

    fn confirmed(&self) -> Vec<u32> {
        self.confirmed.lock().expect("no panic").clone()
    }

    fn content(&self) -> Vec<u8> {
        let size = self.file.metadata().expect("a size").len();
        let mut bytes = vec![9; usize::try_from(size).expect("small")];
        self.file.read_exact_at(&mut bytes, 0).expect("read");
        bytes
    }
}

#[test]
fn a_write_fails_as_often_as_the_fault_says_and_writes_nothing() {
    let scene = scene();
    assert_eq!(scene.write(b"ab", 0, 1), Ok(2));
    scene.arm(Kind::NoSpace, 2, 1.0);
    scene.arm(Kind::IoError, 1, 1.0);
    for errno in [Errno::NOSPC, Errno::NOSPC, Errno::IO] {
        assert_eq!(scene.write(b"cd", 0, 1), Err(errno));
    }
    assert_eq!(scene.write(b"ef", 2, 1), Ok(2));
    assert_eq!(scene.content(), b"abef");
    let (space, io) = (Kind::NoSpace as u32, Kind::IoError as u32);
    assert_eq!(scene.confirmed(), [space, space, io]);
}

#[test]
fn a_short_write_writes_the_bytes_that_it_returns_and_spares_writes_that_have_no_half() {
    let scene = scene();
    scene.arm(Kind::ShortWrite, 2, 1.0);
    assert_eq!(scene.write(b"a", 0, 1), Ok(1));
    assert!(scene.confirmed().is_empty());
    assert_eq!(scene.write(b"abcde", 0, 1), Ok(2));
    assert_eq!(scene.content(), b"ab");
    let blocks = [7; 3 * 512];
    assert_eq!(scene.write(&blocks[..512], 0, 512), Ok(512));
    assert_eq!(scene.write(&blocks, 0, 512), Ok(512));
    assert_eq!(scene.confirmed().len(), 2);
    assert_eq!(scene.write(&blocks, 0, 512), Ok(blocks.len()));
}

#[test]
fn a_failed_sync_loses_the_bytes_since_the_last_sync_and_fails_once() {
    let scene = scene();
    let watched = (scene.injector.watch(scene.file.as_fd())).expect("a descriptor");
    let write = |bytes: &[u8], offset: u64| {
        assert_eq!(scene.write(bytes, offset, 1), Ok(bytes.len()));
        watched.written(offset, bytes.len() as u64);
    };
    write(b"safe", 0);
    scene.sync().expect("synced");
    write(b"lost", 4);
    write(b"gone", 12);
    scene.arm(Kind::FailedSync, 1, 1.0);
    assert_eq!(
        scene.write(b"more", 8, 1),
        Ok(4),
        "a write has no such fault"
    );
    assert_eq!(scene.sync(), Err(Errno::IO));
    assert_eq!(scene.content(), b"safe\0\0\0\0more\0\0\0\0");
    write(b"next", 4);
    scene.sync().expect("synced");
    assert_eq!(scene.content(), b"safenextmore\0\0\0\0");
    assert_eq!(scene.confirmed(), [Kind::FailedSync as u32]);
}

#[test]
fn a_failed_sync_of_the_file_system_reports_the_error_once() {
    let scene = scene();
    let sync = || (scene.injector).sync_all(|| rustix::fs::syncfs(&scene.file));
    scene.arm(Kind::FailedSync, 1, 1.0);
    assert_eq!(sync(), Err(Errno::IO));
    assert_eq!(sync(), Ok(()));
}

#[test]
fn the_probability_spreads_the_fault_over_the_calls() {
    let scene = scene();
    scene.arm(Kind::IoError, u32::MAX, 0.25);
    let failed = (0..1000).filter(|_| scene.write(b"a", 0, 1).is_err());
    let failed = failed.count();
    assert!(
        (200..300).contains(&failed),
        "{failed} of 1000 calls failed"
    );
}

#[test]
fn a_fault_without_calls_or_without_a_listener_does_not_happen() {
    let scene = scene();
    scene.arm(Kind::IoError, 0, 1.0);
    assert_eq!(scene.write(b"abcd", 0, 1), Ok(4));
    assert!(scene.confirmed().is_empty());
    scene.injector.arm(Armed {
        number: UNHEARD,
        kind: Kind::IoError,
        count: 1,
        probability: 1.0,
        seed: 5,
    });
    assert_eq!(scene.write(b"abcd", 0, 1), Ok(4));
    assert_eq!(scene.confirmed(), [UNHEARD]);
}
