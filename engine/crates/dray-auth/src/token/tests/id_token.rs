//! Tests of ID tokens, with a signature of a real key.

use super::{Fixture, NOW, fixture, header, with, without};
use crate::token::{ExpectedLogin, LoggedIn, Refusal, groups_in, name_in};
use serde_json::{Map, Value, json};

const PLAIN: &str = "https://plain.example.org";
const CLIENT: &str = "https://dtn.example.org";

fn claims() -> Value {
    json!({
        "iss": PLAIN, "sub": "u1", "aud": CLIENT, "nonce": "n1",
        "iat": NOW - 10, "exp": NOW + 300,
        "name": "Alice Adams", "groups": ["cms", "/cms/ops"],
    })
}

fn verify(fixture: &Fixture, header: &Value, claims: &Value) -> Result<LoggedIn, Refusal> {
    let expected = ExpectedLogin {
        client: CLIENT,
        nonce: "n1",
        groups_claim: "groups",
        name_claim: "name",
    };
    let token = fixture.p256.token(header, claims);
    (fixture.issuers).verify_id_token(token.as_bytes(), &expected, NOW)
}

#[test]
fn a_login_has_subject_name_and_groups() {
    let fixture = fixture();
    let user = verify(&fixture, &header(), &claims()).expect("accepted");
    assert_eq!(user.issuer, PLAIN);
    assert_eq!(user.subject, "u1");
    assert_eq!(user.name.as_deref(), Some("Alice Adams"));
    assert_eq!(
        user.groups,
        Some(vec!["cms".to_owned(), "/cms/ops".to_owned()])
    );
    let bare = without(without(claims(), "groups"), "name");
    let user = verify(&fixture, &header(), &bare).expect("accepted");
    assert_eq!((user.name, user.groups), (None, None));
    let several = with(claims(), "aud", json!(["other", CLIENT]));
    let several = with(several, "azp", json!(CLIENT));
    assert!(verify(&fixture, &header(), &several).is_ok());
}

#[test]
fn an_id_token_of_another_login_client_or_time_is_refused() {
    let fixture = fixture();
    let claims = claims();
    for (wrong, said) in [
        (with(claims.clone(), "nonce", json!("n2")), "another login"),
        (without(claims.clone(), "nonce"), "another login"),
        (with(claims.clone(), "aud", json!("other")), "audience"),
        (
            // An access token for all services is not a login at this endpoint.
            with(claims.clone(), "aud", json!(super::ANY_AUDIENCE)),
            "not for the client",
        ),
        (
            with(claims.clone(), "aud", json!(["other", CLIENT])),
            "several clients",
        ),
        (
            with(claims.clone(), "azp", json!("other")),
            "another client",
        ),
        (with(claims.clone(), "exp", json!(NOW - 100)), "expired"),
        (without(claims.clone(), "exp"), "no expiry time"),
        (without(claims.clone(), "iat"), "no time of issue"),
        (without(claims.clone(), "sub"), "no subject"),
        (
            with(claims.clone(), "iss", json!("https://evil.example")),
            "does not trust",
        ),
        (
            with(claims.clone(), "groups", json!({"cms": true})),
            "not a list",
        ),
        (
            with(claims.clone(), "groups", json!(["cms", 1])),
            "not text",
        ),
        (
            with(claims.clone(), "groups", json!(["c\nms"])),
            "control characters",
        ),
        (
            with(claims.clone(), "groups", json!(vec!["g"; 257])),
            "more than 256",
        ),
    ] {
        let error = match verify(&fixture, &header(), &wrong) {
            Err(Refusal::Refused(error)) => error,
            other => panic!("{wrong}: {other:?}"),
        };
        assert!(error.cause.contains(said), "{wrong}: {error}");
        assert!(!error.to_string().contains("n1"), "{error}");
    }
    let kind = json!({"alg": "ES256", "kid": "ec", "typ": "at+jwt"});
    let error = verify(&fixture, &kind, &claims).expect_err("an access token");
    assert!(format!("{error:?}").contains("access token"), "{error:?}");
}

#[test]
fn an_id_token_with_another_signature_is_refused() {
    let fixture = fixture();
    let expected = ExpectedLogin {
        client: CLIENT,
        nonce: "n1",
        groups_claim: "groups",
        name_claim: "name",
    };
    let good = fixture.p256.token(&header(), &claims());
    let other = fixture
        .p256
        .token(&header(), &with(claims(), "sub", json!("u2")));
    let (signed, _) = other.rsplit_once('.').expect("three parts");
    let (_, signature) = good.rsplit_once('.').expect("three parts");
    let forged = format!("{signed}.{signature}");
    let said = (fixture.issuers).verify_id_token(forged.as_bytes(), &expected, NOW);
    assert!(
        matches!(&said, Err(Refusal::Refused(error)) if error.cause.contains("is wrong")),
        "{said:?}"
    );
    let unsigned = fixture.p256.token(&json!({"alg": "none"}), &claims());
    let said = (fixture.issuers).verify_id_token(unsigned.as_bytes(), &expected, NOW);
    assert!(matches!(said, Err(Refusal::Refused(_))), "{said:?}");
    let unknown = fixture
        .p256
        .token(&json!({"alg": "ES256", "kid": "new"}), &claims());
    let said = (fixture.issuers).verify_id_token(unknown.as_bytes(), &expected, NOW);
    assert!(matches!(said, Err(Refusal::UnknownKey { .. })), "{said:?}");
}

#[test]
fn groups_and_names_come_from_claims_of_any_name() {
    let claims = json!({"roles": "ops", "nick": " a\u{7}", "who": " Bob "});
    let claims: &Map<String, Value> = claims.as_object().expect("an object");
    assert_eq!(
        groups_in(claims, "roles").expect("good"),
        Some(vec!["ops".to_owned()])
    );
    assert_eq!(groups_in(claims, "groups").expect("good"), None);
    assert_eq!(name_in(claims, "nick"), None);
    assert_eq!(name_in(claims, "who").as_deref(), Some("Bob"));
}
