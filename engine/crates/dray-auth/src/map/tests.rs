use super::{Mapping, Owner, Principal, Rule, Unmapped, fit};
use crate::x509::Subject;
use crate::x509::testing::name;
use dray_core::ErrorKind;
use proptest::prelude::*;

fn token(issuer: &str, subject: &str, groups: &[&str]) -> Principal {
    Principal::Token {
        issuer: issuer.into(),
        subject: subject.into(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
    }
}

fn certificate(attributes: &[(&str, &str)]) -> Principal {
    Principal::Certificate {
        subject: Subject::read(&name(attributes)).expect("a name"),
    }
}

fn rules(json: serde_json::Value) -> Mapping {
    let mapping: Mapping = serde_json::from_value(json).expect("rules");
    mapping.check().expect("good rules");
    mapping
}

const VO: &str = "https://vo.example.org/one";

#[test]
fn first_matching_rule_decides() {
    let mapping = rules(serde_json::json!({"unmapped": "refuse", "rules": [
        {"issuer": VO, "subject": "mallory", "refuse": true},
        {"issuer": VO, "subject": "alice", "owner": "alice"},
        {"issuer": VO, "subject": "svc-*", "group": "/vo/production", "owner": "prod"},
        {"issuer": "https://site.example.org", "subject": "*@site", "owner": "*"},
        {"issuer": "https://*.example.org*", "group": "/vo", "owner": "vo"},
        {"subject": "/DC=org/CN=Alice", "owner": "alice"},
        {"subject": "CN=Bob,DC=org", "owner": "bob"},
        {"subject": "/DC=org/DC=users/CN=*", "owner": "*"},
    ]}));
    let owner = |principal| mapping.owner(&principal).map(|owner| owner.to_string());
    let table = [
        (token(VO, "alice", &[]), Some("alice")),
        (token(VO, "svc-1", &["/vo/production"]), Some("prod")),
        (token(VO, "svc-1", &["/vo"]), Some("vo")),
        (token(VO, "svc-1", &["/vo/production/x"]), None),
        (token(VO, "mallory", &["/vo"]), None),
        (
            token("https://site.example.org", "carol@site", &[]),
            Some("carol"),
        ),
        (token("https://site.example.org", "../x@site", &[]), None),
        (token("https://site.example.org", "@site", &[]), None),
        (token("https://elsewhere.org", "alice", &["/vo"]), None),
        (token(VO, "/DC=org/CN=Alice", &[]), None),
        (
            certificate(&[("DC", "org"), ("CN", "Alice")]),
            Some("alice"),
        ),
        (certificate(&[("DC", "org"), ("CN", "Bob")]), Some("bob")),
        (
            certificate(&[("DC", "org"), ("DC", "users"), ("CN", "dan")]),
            Some("dan"),
        ),
        (
            certificate(&[("DC", "org"), ("DC", "users"), ("CN", "d/CN=e")]),
            None,
        ),
        (certificate(&[("CN", "alice")]), None),
    ];
    for (principal, expected) in table {
        let found = owner(principal.clone());
        assert_eq!(found.as_deref().ok(), expected, "{principal}");
        if let Err(error) = found {
            assert_eq!(error.kind, ErrorKind::PermissionDenied);
            assert!(!error.cause.is_empty() && !error.remedy.is_empty());
        }
    }
}

#[test]
fn principal_without_a_rule_is_its_own_owner() {
    let mapping = Mapping::default();
    let owner = |principal| mapping.owner(&principal).expect("an owner").to_string();
    assert_eq!(owner(token(VO, "alice", &[])), "alice@vo.example.org/one");
    assert_eq!(
        owner(token("https://vo.example.org/two", "/CN=x", &[])),
        "\\x2fCN=x@vo.example.org/two"
    );
    assert_eq!(
        owner(certificate(&[("DC", "org"), ("CN", "A")])),
        "/DC=org/CN=A"
    );
}

#[test]
fn invalid_rules_are_refused() {
    let rule = || Rule {
        issuer: Some(VO.into()),
        subject: Some("*".into()),
        owner: Some("x".into()),
        ..Rule::default()
    };
    let some = |text: &str| Some(text.to_owned());
    let bad = [
        Rule::default(),
        Rule {
            owner: None,
            ..rule()
        },
        Rule {
            refuse: true,
            ..rule()
        },
        Rule {
            issuer: None,
            subject: None,
            ..rule()
        },
        Rule {
            issuer: None,
            group: some("/vo"),
            ..rule()
        },
        Rule {
            owner: some("*"),
            subject: some("*/*"),
            ..rule()
        },
        Rule {
            owner: some("*"),
            subject: None,
            ..rule()
        },
        Rule {
            owner: some("../x"),
            ..rule()
        },
        Rule {
            owner: some(".x"),
            ..rule()
        },
        Rule {
            owner: some(""),
            ..rule()
        },
        Rule {
            owner: some("a@b"),
            ..rule()
        },
        Rule {
            owner: Some("x".repeat(33)),
            ..rule()
        },
    ];
    for rule in bad {
        let mapping = Mapping {
            rules: vec![rule.clone()],
            unmapped: Unmapped::Refuse,
        };
        let error = mapping.check().expect_err("no sense");
        assert!(error.cause.starts_with("rule 1: "), "{error}");
    }
    let misspelt = serde_json::json!({"rules": [{"isuer": "x"}]});
    assert!(serde_json::from_value::<Mapping>(misspelt).is_err());
}

#[test]
fn owners_are_plain_text_in_json() {
    let owner = Owner::named("alice");
    assert_eq!(serde_json::to_string(&owner).expect("json"), "\"alice\"");
}

fn fits_slowly(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|at| fits_slowly(rest, &text[at..])),
        Some((first, rest)) => text
            .split_first()
            .is_some_and(|(own, text)| own == first && fits_slowly(rest, text)),
    }
}

proptest! {
    #[test]
    fn patterns_match_literally_except_stars(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
        let expected = fits_slowly(pattern.as_bytes(), text.as_bytes());
        prop_assert_eq!(fit(&pattern, &text).is_some(), expected);
    }

    #[test]
    fn default_owners_of_different_principals_differ(
        subjects in prop::collection::vec("[a/@x\\\\2f]{1,6}", 2),
        places in prop::collection::vec("[a/x2f]{1,4}", 2),
    ) {
        let mapping = Mapping::default();
        let one = token(&format!("https://{}", places[0]), &subjects[0], &[]);
        let other = token(&format!("https://{}", places[1]), &subjects[1], &[]);
        let owners = (mapping.owner(&one), mapping.owner(&other));
        prop_assert_eq!(one == other, owners.0 == owners.1);
        let name = [("CN", subjects[0].as_str())];
        prop_assert_ne!(mapping.owner(&certificate(&name)), mapping.owner(&other));
    }
}
