use super::{ByteCounts, EndpointPart, FileCounts, ListPart, ObjectCounts, TransferPart};
use super::{
    CHECKPOINT_TYPE, Chain, Checkpoint, FileLine, Head, KeyRing, ListDigest, PlanPart,
    RECEIPT_TYPE, SigningKey, id_of, sign, verify_checkpoint, verify_receipt,
};
use dray_core::{ErrorKind, Result};
use ring::rand::SystemRandom;

const LINES: &str = "{\"path\":\"a\",\"state\":\"done\",\"size\":1,\"crc32c\":\"00000001\"}\n\
    {\"path\":\"b\",\"state\":\"failed\",\"size\":null}\n";

fn key() -> SigningKey {
    SigningKey::generate(&SystemRandom::new()).expect("a key").0
}

fn ring(key: &SigningKey) -> KeyRing {
    KeyRing::of(key.public().clone())
}

fn list(text: &str) -> ListDigest {
    let mut list = ListDigest::default();
    for line in text.split_inclusive('\n') {
        list.add(line.as_bytes());
    }
    list
}

fn head(sequence: u64, previous: Option<String>, list: ListPart) -> Head {
    let time = || "2026-01-01T00:00:00.000Z".to_owned();
    Head {
        sequence,
        previous,
        issued_at: time(),
        endpoint: EndpointPart {
            name: "a.example".to_owned(),
            version: "0.1.0".to_owned(),
        },
        transfer: TransferPart {
            id: "one".to_owned(),
            attempt: 1,
            tries: 1,
            state: "done".to_owned(),
            owner: "alice".to_owned(),
            sources: vec!["/data/a".to_owned()],
            sources_count: 1,
            destination: "/data/b".to_owned(),
            durability: "file".to_owned(),
            submitted_at: time(),
            started_at: Some(time()),
            ended_at: Some(time()),
        },
        plan: PlanPart::default(),
        files: FileCounts::default(),
        bytes: ByteCounts::default(),
        objects: ObjectCounts::default(),
        breaks: Vec::new(),
        error: None,
        notices: Vec::new(),
        list,
    }
}

/// Verifies a whole receipt, as the programs do.
fn check(receipt: &[u8], keys: &KeyRing) -> Result<Head> {
    let text = std::str::from_utf8(receipt)
        .map_err(|_| super::refused(ErrorKind::InvalidRequest, "not UTF-8", super::CHANGED))?;
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    let first = first.strip_suffix('\n').unwrap_or_default();
    let (head, _) = verify_receipt(first, keys)?;
    let mut digest = ListDigest::default();
    lines.for_each(|line| digest.add(line.as_bytes()));
    digest.compare(&head.list)?;
    Ok(head)
}

#[test]
fn every_flipped_bit_of_a_receipt_is_found() {
    let key = key();
    let ring = ring(&key);
    let line = sign(&key, RECEIPT_TYPE, &head(1, None, list(LINES).finish())).expect("signed");
    let receipt = format!("{line}\n{LINES}").into_bytes();
    let read = check(&receipt, &ring).expect("good");
    assert_eq!(read, head(1, None, list(LINES).finish()));
    for bit in 0..receipt.len() * 8 {
        let mut changed = receipt.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let error = check(&changed, &ring).expect_err("a changed bit");
        assert!(
            !error.cause.is_empty() && !error.remedy.is_empty(),
            "{bit}: {error}"
        );
    }
    for end in 0..receipt.len() {
        check(&receipt[..end], &ring).expect_err("a truncated receipt");
    }
}

#[test]
fn a_list_with_other_lines_is_found() {
    let signed = list(LINES).finish();
    let (a, b) = LINES.split_at(LINES.find('\n').expect("a line") + 1);
    for other in [
        a.to_owned(),
        format!("{b}{a}"),
        format!("{LINES}{a}"),
        String::new(),
    ] {
        let error = list(&other).compare(&signed).expect_err("another list");
        assert_eq!(error.kind, ErrorKind::ChecksumMismatch);
    }
    list(LINES).compare(&signed).expect("the same list");
    assert_eq!(
        FileLine::parse(a.trim().as_bytes()).expect("read").size,
        Some(1)
    );
    assert!(FileLine::parse(b"{}").is_err());
}

#[test]
fn another_key_and_another_type_are_refused() {
    let (key, other) = (key(), self::key());
    let line = sign(&key, RECEIPT_TYPE, &head(1, None, list("").finish())).expect("signed");
    let error = verify_receipt(&line, &ring(&other)).expect_err("another key");
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    assert!(error.cause.contains(key.public().id()), "{error}");
    let mut both = ring(&other);
    assert!(both.change(key.public(), 0).expect("new"));
    assert!(!both.change(key.public(), 0).expect("present"));
    verify_receipt(&line, &both).expect("one of several keys");
    let error = verify_checkpoint(&line, &both).expect_err("another type");
    assert_eq!(error.kind, ErrorKind::InvalidRequest);
}

#[test]
fn a_retired_key_verifies_only_receipts_before_its_retirement() {
    let (old, new) = (key(), key());
    let mut keys = ring(&old);
    assert!(keys.change(new.public(), 10).expect("changed"));
    let kept = KeyRing::parse(keys.jwks().to_string().as_bytes()).expect("read");
    assert_eq!(kept, keys, "the bounds are part of the file");
    let of = |key: &SigningKey, sequence| {
        let line = sign(key, RECEIPT_TYPE, &head(sequence, None, list("").finish()));
        verify_receipt(&line.expect("signed"), &kept).map(|_| ())
    };
    of(&old, 10).expect("the last receipt of the old key");
    of(&new, 11).expect("the first receipt of the new key");
    for (key, sequence, words) in [
        (&old, 11, "was retired after the receipt 10"),
        (&new, 10, "signs receipts from 11"),
    ] {
        let error = of(key, sequence).expect_err("out of bounds");
        assert_eq!(error.kind, ErrorKind::Unauthorized);
        assert!(error.cause.contains(words), "{error}");
    }
    let point = Checkpoint {
        sequence: 3,
        id: String::new(),
        issued_at: String::new(),
    };
    let of = |key| sign(key, CHECKPOINT_TYPE, &point).expect("signed");
    verify_checkpoint(&of(&new), &kept).expect("the present key");
    let error = verify_checkpoint(&of(&old), &kept).expect_err("a retired key");
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    let error = keys.change(old.public(), 12).expect_err("a retired key");
    assert!(error.cause.contains("retired"), "{error}");
    let bad = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "dray_sequence_last":"never"}"#;
    KeyRing::parse(bad.as_bytes()).expect_err("not a number");
}

#[test]
fn keys_are_read_in_every_documented_form() {
    let (key, pem) = SigningKey::generate(&SystemRandom::new()).expect("a key");
    let again = SigningKey::from_pem(pem.as_bytes()).expect("the key");
    assert_eq!(again.public(), key.public());
    let ring = ring(&key);
    let public = key.public();
    let forms = [
        public.jwk().to_string(),
        ring.jwks().to_string(),
        public.pem(),
    ];
    for text in forms {
        assert_eq!(
            KeyRing::parse(text.as_bytes()).expect("read"),
            ring,
            "{text}"
        );
    }
    for bad in [
        "",
        "{}",
        "{\"keys\":[]}",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
    ] {
        assert_eq!(
            KeyRing::parse(bad.as_bytes()).expect_err("bad").kind,
            ErrorKind::InvalidRequest
        );
    }
    // The thumbprint of the key in RFC 8037, appendix A.3.
    let jwk = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    let known = KeyRing::parse(jwk.as_bytes()).expect("read");
    assert!(
        known
            .find("kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k")
            .is_ok()
    );
    assert!(!format!("{key:?}").contains(pem.lines().nth(1).expect("a line")));
}

#[test]
fn a_cut_or_forked_chain_is_found() {
    let key = key();
    let mut all: Vec<(Head, String)> = Vec::new();
    for sequence in 1..=4 {
        let previous = all.last().map(|(_, id)| id.clone());
        let head = head(sequence, previous, list("").finish());
        let id = id_of(&sign(&key, RECEIPT_TYPE, &head).expect("signed"));
        all.push((head, id));
    }
    let run = |chain: &mut Chain, at: &[usize]| {
        at.iter()
            .try_for_each(|at| chain.add(&all[*at].0, &all[*at].1))
    };
    let mut whole = Chain::default();
    run(&mut whole, &[0, 1, 2, 3]).expect("whole");
    assert_eq!(
        (whole.count(), whole.last()),
        (4, Some((4, all[3].1.as_str())))
    );
    for bad in [&[1][..], &[0, 2], &[0, 1, 1], &[1, 0]] {
        run(&mut Chain::default(), bad).expect_err("a broken chain");
    }
    let mut forked = Chain::default();
    forked.add(&all[0].0, "sha256:other").expect("the first");
    run(&mut forked, &[1]).expect_err("the first receipt was replaced");
    let point = |at: usize, id: &str| {
        Chain::new(Some(Checkpoint {
            sequence: at as u64 + 1,
            id: id.to_owned(),
            issued_at: String::new(),
        }))
    };
    // A crash between the checkpoint and the removal leaves older receipts.
    for first in 0..=2 {
        let rest: Vec<usize> = (first..4).collect();
        run(&mut point(1, &all[1].1), &rest).expect("a pruned chain");
    }
    run(&mut point(1, &all[1].1), &[3]).expect_err("a receipt after the checkpoint is missing");
    run(&mut point(1, &all[0].1), &[2]).expect_err("a wrong checkpoint");
    run(&mut point(1, &all[0].1), &[1]).expect_err("a wrong checkpoint");
    let mut after = Chain::after(2, all[1].1.clone());
    run(&mut after, &[2, 3]).expect("the rest");
}
