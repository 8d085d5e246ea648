//! Tests of the renewal of the endpoint's certificate.

use super::{DAY, Files, Renewal, Watch, now};
use crate::metrics::Metrics;
use dray_net::{Identity, Presented};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Returns the certificate and the key of a new identity, in PEM form.
fn pair() -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    drop(Identity::load_or_create(folder.path()).expect("made"));
    let pem = fs::read_to_string(folder.path().join("identity.pem")).expect("read");
    let at = pem.find("-----BEGIN CERTIFICATE").expect("a certificate");
    (pem[at..].to_owned(), pem[..at].to_owned())
}

fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("written");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("set");
    fs::rename(&new, path).expect("renamed");
}

/// The part under test, and its files.
struct Scene {
    _folder: tempfile::TempDir,
    renewal: Renewal,
    watch: Watch,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let files = Files {
            certificate: folder.path().join("cert.pem"),
            key: folder.path().join("key.pem"),
        };
        let (certificate, key) = pair();
        write(&files.certificate, &certificate);
        write(&files.key, &key);
        let presented = files.open().expect("a good pair");
        let renewal = Renewal {
            files: Some(files),
            presented,
            metrics: Arc::new(Metrics::default()),
        };
        Self {
            _folder: folder,
            renewal,
            watch: Watch::default(),
        }
    }

    fn files(&self) -> &Files {
        self.renewal.files.as_ref().expect("set above")
    }

    /// Checks the files once. Returns the presented certificate.
    fn look(&mut self) -> Vec<u8> {
        self.renewal.look(&mut self.watch, now());
        self.presented()
    }

    fn presented(&self) -> Vec<u8> {
        self.renewal.presented.identity().certificates()[0].to_vec()
    }

    fn is_rejected(&self) -> bool {
        let rejected = &self.renewal.metrics.certificate_rejected;
        rejected.load(Ordering::Relaxed) == 1
    }
}

#[test]
fn a_new_pair_is_presented_and_the_metric_is_set() {
    let mut scene = Scene::new();
    let first = scene.presented();
    assert_eq!(scene.look(), first);
    let clone: Presented = scene.renewal.presented.clone();
    let (certificate, key) = pair();
    write(&scene.files().certificate, &certificate);
    write(&scene.files().key, &key);
    let second = scene.look();
    assert_ne!(second, first);
    assert_eq!(clone.identity().certificates()[0].to_vec(), second);
    let expires = &scene.renewal.metrics.certificate_expires;
    let whole = clone.identity().validity().expect("parsed");
    assert_eq!(
        expires.load(Ordering::Relaxed).cast_unsigned(),
        whole.not_after
    );
    assert!(!scene.is_rejected());
}

#[test]
fn a_wrong_pair_is_reported_once_and_the_previous_pair_stays() {
    let mut scene = Scene::new();
    let first = scene.look();
    let (good, _) = pair();
    let certificate = scene.files().certificate.clone();
    for wrong in [&good[..good.len() / 2], "no certificate", good.as_str()] {
        write(&certificate, wrong);
        // A program that renews may be between its two writes, so the first check reports nothing.
        assert_eq!(scene.look(), first);
        assert!(!scene.is_rejected());
        for _ in 0..2 {
            assert_eq!(scene.look(), first);
            assert!(scene.is_rejected());
        }
    }
    fs::remove_file(&certificate).expect("removed");
    assert_eq!(scene.look(), first);
    let (certificate, key) = pair();
    write(&scene.files().certificate, &certificate);
    write(&scene.files().key, &key);
    assert_ne!(scene.look(), first);
    assert!(!scene.is_rejected());
}

#[test]
fn an_error_names_the_wrong_file_and_the_cause() {
    let mut scene = Scene::new();
    scene.look();
    let error = |scene: &Scene| {
        let loaded = scene.renewal.load(scene.files(), now());
        loaded.expect_err("a wrong pair").to_string()
    };
    let key = scene.files().key.clone();
    write(&key, "no key");
    let told = error(&scene);
    assert!(
        told.contains("key.pem") && told.contains("does not hold a private key"),
        "{told}"
    );
    write(&key, &pair().1);
    let told = error(&scene);
    assert!(
        told.contains("does not belong to the certificate"),
        "{told}"
    );
    assert!(
        told.contains("cert.pem") && told.contains("key.pem"),
        "{told}"
    );
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("set");
    let told = error(&scene);
    assert!(told.contains("key.pem") && told.contains("0644"), "{told}");
    write(&scene.files().certificate, "no certificate");
    write(&key, &pair().1);
    let told = error(&scene);
    assert!(
        told.contains("cert.pem") && told.contains("certificate chain"),
        "{told}"
    );
}

#[test]
fn the_expiry_is_told_once_a_day() {
    let mut scene = Scene::new();
    let end = scene.renewal.presented.identity().validity();
    let end = end.expect("parsed").not_after;
    let mut told = Vec::new();
    for now in [end - 10 * DAY, end - 10 * DAY + 60, end - 9 * DAY, end + 1] {
        let before = scene.watch.warned;
        scene.renewal.look(&mut scene.watch, now);
        told.push(scene.watch.warned != before);
    }
    assert_eq!(told, [true, false, true, true]);
}
