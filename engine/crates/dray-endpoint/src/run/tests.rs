use super::Endpoint;
use dray_config::Config;
use dray_core::{Error, ErrorKind};
use dray_net::Identity;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// Returns the error for a configuration with the additional lines `more`, in which HERE is
/// replaced by `folder`.
fn refused(folder: &Path, more: &str) -> Error {
    let more = more.replace("HERE", &folder.display().to_string());
    let text = format!(
        "name = \"a.example\"\nlisten = [\"127.0.0.1:0\"]\nstate = {:?}\n\
         [[root]]\nname = \"data\"\npath = {folder:?}\n{more}",
        folder.join("state"),
    );
    let config = Config::parse("test", &text).expect("good");
    Endpoint::open(config).map(|_| ()).expect_err("a mistake")
}

#[test]
fn a_janitor_that_cannot_remove_anything_reports_this() {
    let word = super::unswept(true, false).expect("a word");
    assert!(word.contains("dray log sweep"), "{word}");
    assert!(super::unswept(true, true).is_none() && super::unswept(false, false).is_none());
}

#[test]
fn an_unusable_file_named_in_the_configuration_is_a_configuration_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    std::fs::write(here.join("none.pem"), "").expect("written");
    for (more, word) in [
        ("[audit]\nfile = \"HERE/none/audit\"\n", "audit.file"),
        ("[audit]\nfile = \"HERE/none.pem/audit\"\n", "audit.file"),
        ("[audit]\nfile = \"HERE\"\n", "audit.file"),
        (
            "[tls]\nclient_ca = \"HERE\"\ncrl = \"HERE/none\"\n",
            "tls.crl",
        ),
        (
            "[tls]\ncertificate = \"HERE/none\"\nkey = \"HERE/none\"\n",
            "tls.certificate",
        ),
        ("[tls]\ncrl = \"HERE/none\"\n", "tls.crl"),
        ("[tls]\npeers_ca = \"HERE/none\"\n", "tls.peers_ca"),
    ] {
        let error = refused(here, more);
        assert_eq!(error.kind, ErrorKind::InvalidRequest, "{error}");
        let said = error.to_string();
        assert!(said.contains(word), "{said}");
        assert!(said.contains(&*here.to_string_lossy()), "{said}");
    }
}

#[test]
fn a_key_that_is_another_certificates_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    let parts = ["a", "b"].map(|name| {
        let own = here.join(name);
        let made = Identity::load_or_create_for(&own, &[name.to_owned()]);
        drop(made.expect("made"));
        let pem = std::fs::read_to_string(own.join("identity.pem")).expect("read");
        let begin = |label: &str| format!("-----BEGIN {label}-----");
        let (key, certificate) = (begin("PRIVATE KEY"), begin("CERTIFICATE"));
        let section = |from: &str, other: &str| {
            let at = pem.find(from).expect("there");
            let rest = &pem[at..];
            rest[..rest.find(other).unwrap_or(rest.len())].to_owned()
        };
        (section(&certificate, &key), section(&key, &certificate))
    });
    std::fs::write(here.join("cert.pem"), &parts[0].0).expect("written");
    std::fs::write(here.join("key.pem"), &parts[1].1).expect("written");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(here.join("key.pem"), private).expect("set");
    let more = "[tls]\ncertificate = \"HERE/cert.pem\"\nkey = \"HERE/key.pem\"\n";
    let error = refused(here, more);
    assert_eq!(error.kind, ErrorKind::InvalidRequest, "{error}");
    let said = error.to_string();
    for word in ["key.pem", "tls.key", "does not belong to the certificate"] {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn an_endpoint_that_is_asked_by_plain_http_alone_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "name = \"a.example\"\nlisten = []\nstate = {:?}\n\
         [listen_plain]\naddresses = [\"127.0.0.1:0\"]\n[[root]]\nname = \"data\"\npath = {:?}\n",
        folder.path().join("state"),
        folder.path(),
    );
    let config = Config::parse("test", &text).expect("good");
    let endpoint = Endpoint::open(config).expect("opened");
    let (address, stopper) = (endpoint.plain_addresses()[0], endpoint.stopper());
    let running = std::thread::spawn(move || endpoint.run());
    std::thread::sleep(Duration::from_millis(500));
    assert!(!running.is_finished(), "nobody asked it to stop");
    let mut stream = TcpStream::connect(address).expect("connected");
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stopper.stop();
    running.join().expect("no defect").expect("ended");
}
