use super::{idle_words, is_certificate, read_certificates, revocation_lists};
use dray_config::Tls;
use dray_core::ErrorKind;
use std::collections::BTreeSet;

const CUT: &str = "-----BEGIN X509 CRL-----\nMIIBBzCBrgIBATAKBggqhkjOPQQDAjA";
const NO_BASE64: &str = "-----BEGIN X509 CRL-----\n!!!!\n-----END X509 CRL-----\n";
const A_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n";

#[test]
fn a_token_is_no_certificate_whatever_its_subject_says() {
    for subject in ["/DC=ch/CN=alice", "/CN=a/emailAddress=a@example.org"] {
        assert!(is_certificate(subject), "{subject}");
        // The queue may still have transfers of such a principal of a token, for example after
        // the token's issuer was removed from the configuration.
        assert!(!is_certificate(&format!("{subject}@https://i.example")));
    }
    assert!(!is_certificate("alice@https://i.example"));
}

#[test]
fn a_signing_policy_without_an_authority_is_reported_once_with_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let der = include_bytes!("../../../dray-auth/src/x509/lists/rsa2048.crt.der");
    let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n");
    let policy = |name: &str| {
        format!(
            "access_id_CA X509 '{name}'\npos_rights globus CA:sign\n\
             cond_subjects globus '\"/CN=*\"'\n"
        )
    };
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("written");
    };
    write("strong.pem", &pem);
    write("strong.signing_policy", &policy("/CN=Strong CA"));
    write("lone.signing_policy", &policy("/CN=Strong CB"));
    let link = folder.path().join("1f2e3d4c.signing_policy");
    std::os::unix::fs::symlink("lone.signing_policy", link).expect("linked");
    let tls = Tls {
        client_ca: Some(folder.path().to_owned()),
        ..Tls::default()
    };
    let first = read_certificates(&tls).expect("read");
    let words = idle_words(&first.idle, &BTreeSet::new());
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(words[0].contains("lone.signing_policy"), "{words:?}");
    write(
        "strong.namespaces",
        "TO Issuer SELF PERMIT Subject \"/CN=.*\"\n",
    );
    write(
        "other.namespaces",
        "TO Issuer \"/CN=a\" PERMIT Subject \"/CN=.*\"\n",
    );
    let second = read_certificates(&tls).expect("read");
    let words = idle_words(&second.idle, &first.idle);
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(words[0].contains("other.namespaces"), "{words:?}");
    write(
        "other.namespaces",
        "TO Issuer SELF PERMIT Subject \"/CN=.*\"\n",
    );
    let read = read_certificates(&tls).expect("read");
    let causes: Vec<&str> = read.damaged.values().map(|error| &*error.cause).collect();
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert!(
        causes[0].contains("other.namespaces: line 1: SELF"),
        "{causes:?}"
    );
    write(
        "other.namespaces",
        "TO Issuer \"/CN=strong ca\" PERMIT Subject \"/CN=.*\"\n",
    );
    let again = read_certificates(&tls).expect("read");
    assert!(idle_words(&again.idle, &first.idle).is_empty());
    write("lone.signing_policy", &policy("/CN=Strong CA"));
    assert!(read_certificates(&tls).expect("read").idle.is_empty());
}

#[test]
fn a_file_that_should_be_a_list_and_is_none_is_named_with_cause_and_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, is_named) in [("a.crl", false), ("1f2e.r0", false), ("any.pem", true)] {
        let file = folder.path().join(name);
        let said = || {
            let error = revocation_lists(&file, is_named).expect_err(name);
            let words = error.to_string();
            assert!(words.contains(name), "{words}");
            assert!(words.contains("fetch the revocation list again"), "{words}");
            error
        };
        assert_eq!(said().kind, ErrorKind::NotFound);
        for garbage in ["", "no list at all", CUT, NO_BASE64, A_KEY] {
            std::fs::write(&file, garbage).expect("written");
            assert_eq!(said().kind, ErrorKind::InvalidRequest, "{garbage}");
        }
    }
}

#[test]
fn a_folder_of_authorities_holds_other_files_too() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("ca.pem", A_KEY), ("ca.info", "alias = ca"), ("x.r", "")] {
        let file = folder.path().join(name);
        std::fs::write(&file, text).expect("written");
        assert_eq!(revocation_lists(&file, false), Ok(Vec::new()), "{name}");
    }
}
