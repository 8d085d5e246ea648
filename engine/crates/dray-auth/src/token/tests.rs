mod id_token;
mod refusals;

use super::{ANY_AUDIENCE, Issuer, Issuers, LIST_MAX, Refusal, TOKEN_BYTES_MAX};
use crate::jwk::KeySet;
use crate::{Action, Resource};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_core::{Error, ErrorKind};
use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::rsa;
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
};
use serde_json::{Value, json};

const ISSUER: &str = "https://vo.example.org/one";
const AUDIENCE: &str = "https://dtn.example.org";
const NOW: u64 = 1_800_000_000;
/// An RSA key that only these tests use (2048 bits, made with `openssl genpkey -algorithm RSA`).
const RSA_PKCS8: &[u8] = include_bytes!("../testdata/rsa2048.pk8");

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

enum Signer {
    Ec(Box<EcdsaKeyPair>),
    Rsa(Box<rsa::KeyPair>),
}

impl Signer {
    fn ec(algorithm: &'static signature::EcdsaSigningAlgorithm) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random);
        Self::Ec(Box::new(pair.expect("a key")))
    }

    fn rsa() -> Self {
        Self::Rsa(Box::new(
            rsa::KeyPair::from_pkcs8(RSA_PKCS8).expect("a key"),
        ))
    }

    fn jwk(&self, id: &str) -> Value {
        match self {
            Self::Ec(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "kid": id, "x": b64(x), "y": b64(y)})
            }
            Self::Rsa(pair) => {
                let public = rsa::PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "kid": id, "n": b64(public.n), "e": b64(public.e)})
            }
        }
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ec(pair) => (pair.sign(&random, message).expect("signed").as_ref()).to_vec(),
            Self::Rsa(pair) => {
                let padding: &dyn signature::RsaEncoding = match algorithm {
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut out = vec![0; pair.public().modulus_len()];
                pair.sign(padding, &random, message, &mut out)
                    .expect("signed");
                out
            }
        }
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        self.token_of_text(&header.to_string(), &claims.to_string())
    }

    fn token_of_text(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", b64(header), b64(claims));
        let name = if header.contains("RS384") {
            "RS384"
        } else if header.contains("RS512") {
            "RS512"
        } else {
            "RS256"
        };
        let signature = self.sign(name, message.as_bytes());
        format!("{message}.{}", b64(signature))
    }
}

struct Fixture {
    issuers: Issuers,
    p256: Signer,
    p384: Signer,
    rsa: Signer,
}

fn issuer(url: &str, wlcg: bool) -> Issuer {
    Issuer {
        url: url.into(),
        audiences: vec![AUDIENCE.into(), "https://alias.example.org".into()],
        base: "/vo".into(),
        wlcg,
    }
}

fn fixture() -> Fixture {
    let p256 = Signer::ec(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let p384 = Signer::ec(&ECDSA_P384_SHA384_FIXED_SIGNING);
    let rsa = Signer::rsa();
    let set = json!({"keys": [p256.jwk("ec"), p384.jwk("ec384"), rsa.jwk("rsa")]});
    let keys = KeySet::parse(set.to_string().as_bytes(), NOW).expect("keys");
    let mut issuers = Issuers::new([
        issuer(ISSUER, true),
        issuer("https://plain.example.org", false),
        issuer("https://keyless.example.org", true),
    ])
    .expect("good issuers");
    assert!(issuers.set_keys(ISSUER, keys.clone()));
    assert!(issuers.set_keys("https://plain.example.org", keys.clone()));
    assert!(!issuers.set_keys("https://nobody.example.org", keys));
    Fixture {
        issuers,
        p256,
        p384,
        rsa,
    }
}

fn header() -> Value {
    json!({"alg": "ES256", "kid": "ec"})
}

fn claims() -> Value {
    json!({
        "wlcg.ver": "1.0", "iss": ISSUER, "sub": "alice", "aud": AUDIENCE,
        "scope": "openid storage.read:/data storage.create:/data/out",
        "iat": NOW - 10, "nbf": NOW - 10, "exp": NOW + 3600, "jti": "id-1",
        "wlcg.groups": ["/vo", "/vo/production"], "extra": {"deep": [1, 2]},
    })
}

fn with(mut claims: Value, field: &str, value: Value) -> Value {
    claims[field] = value;
    claims
}

fn without(mut claims: Value, field: &str) -> Value {
    claims.as_object_mut().expect("an object").remove(field);
    claims
}

fn refused(issuers: &Issuers, token: &str) -> Error {
    match issuers.verify(token.as_bytes(), NOW) {
        Err(Refusal::Refused(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

fn assert_does_not_quote(token: &str, error: &Error) {
    let text = format!("{error} {error:?}");
    for part in token.split('.').filter(|part| part.len() > 8) {
        for window in part.as_bytes().windows(12) {
            let window = String::from_utf8_lossy(window);
            assert!(!text.contains(&*window), "{text} holds {window}");
        }
    }
}

#[test]
fn valid_tokens_are_accepted_in_each_algorithm() {
    let fixture = fixture();
    let cases = [
        (&fixture.p256, "ES256", "ec"),
        (&fixture.p384, "ES384", "ec384"),
        (&fixture.rsa, "RS256", "rsa"),
        (&fixture.rsa, "RS384", "rsa"),
        (&fixture.rsa, "RS512", "rsa"),
    ];
    for (signer, algorithm, kid) in cases {
        for header in [
            json!({"alg": algorithm, "kid": kid, "typ": "JWT"}),
            json!({"alg": algorithm, "kid": kid, "typ": "application/at+jwt"}),
            json!({"alg": algorithm}),
        ] {
            let token = signer.token(&header, &claims());
            let verified = fixture
                .issuers
                .verify(token.as_bytes(), NOW)
                .expect(algorithm);
            assert_eq!(verified.issuer, ISSUER);
            assert_eq!(verified.subject, "alice");
            assert_eq!(verified.expires, NOW + 3600);
            assert_eq!(verified.id.as_deref(), Some("id-1"));
            assert_eq!(verified.groups, ["/vo", "/vo/production"]);
        }
    }
}

#[test]
fn valid_claims_in_other_spellings_are_accepted() {
    let fixture = fixture();
    let good = [
        with(claims(), "aud", json!([AUDIENCE])),
        with(
            claims(),
            "aud",
            json!(["https://x.example.org", "https://alias.example.org"]),
        ),
        with(claims(), "aud", json!(ANY_AUDIENCE)),
        with(claims(), "exp", json!(NOW as f64 + 0.5)),
        with(claims(), "exp", json!(NOW - 59)),
        with(claims(), "exp", json!(u64::MAX)),
        with(claims(), "nbf", json!(NOW + 60)),
        with(claims(), "wlcg.ver", json!("1.1")),
        without(claims(), "nbf"),
        without(claims(), "iat"),
        without(claims(), "scope"),
        without(claims(), "jti"),
        without(claims(), "wlcg.groups"),
        without(
            with(claims(), "iss", json!("https://plain.example.org")),
            "wlcg.ver",
        ),
    ];
    for claims in good {
        let token = fixture.p256.token(&header(), &claims);
        let verified = fixture.issuers.verify(token.as_bytes(), NOW);
        assert!(verified.is_ok(), "{claims}: {verified:?}");
    }
}

#[test]
fn key_is_bound_to_its_algorithm() {
    let mut fixture = fixture();
    let mut key = fixture.rsa.jwk("rsa");
    key["alg"] = json!("RS256");
    let set = json!({"keys": [key]}).to_string();
    let keys = KeySet::parse(set.as_bytes(), NOW).expect("a key");
    fixture.issuers.set_keys(ISSUER, keys);
    let token = |name| (fixture.rsa).token(&json!({"alg": name, "kid": "rsa"}), &claims());
    assert!(
        fixture
            .issuers
            .verify(token("RS256").as_bytes(), NOW)
            .is_ok()
    );
    let error = refused(&fixture.issuers, &token("RS512"));
    assert!(
        error
            .cause
            .contains("is not for the signature algorithm RS512"),
        "{error}"
    );
}

#[test]
fn changed_token_is_refused() {
    let fixture = fixture();
    let good = fixture.p256.token(&header(), &claims());
    let mut parts = good.split('.').map(ToOwned::to_owned).collect::<Vec<_>>();
    parts[1] = b64(with(claims(), "sub", json!("root")).to_string());
    let error = refused(&fixture.issuers, &parts.join("."));
    assert!(error.cause.contains("is wrong"), "{error}");
    // The token is signed with another issuer's key, but has the id of one of this issuer's keys.
    let stranger = Signer::ec(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let token = stranger.token(&header(), &claims());
    let error = refused(&fixture.issuers, &token);
    assert!(error.cause.contains("the token's signature by"), "{error}");
    assert_does_not_quote(&token, &error);
}

#[test]
fn only_unknown_keys_request_a_key_fetch() {
    let fixture = fixture();
    let stranger = Signer::ec(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let unknown = |token: &str| match fixture.issuers.verify(token.as_bytes(), NOW) {
        Err(Refusal::UnknownKey { issuer, error }) => {
            assert_eq!(error.kind, ErrorKind::Unauthorized);
            assert_does_not_quote(token, &error);
            issuer
        }
        other => panic!("{other:?}"),
    };
    let new_key = json!({"alg": "ES256", "kid": "new"});
    assert_eq!(unknown(&stranger.token(&new_key, &claims())), ISSUER);
    assert_eq!(
        unknown(&stranger.token(&json!({"alg": "ES256"}), &claims())),
        ISSUER
    );
    let keyless = with(claims(), "iss", json!("https://keyless.example.org"));
    assert_eq!(
        unknown(&fixture.p256.token(&header(), &keyless)),
        "https://keyless.example.org"
    );
    // New keys are fetched only for a token that they could make valid.
    for bad in [
        with(claims(), "exp", json!(NOW - 90)),
        with(claims(), "aud", json!("https://other.example.org")),
        with(claims(), "iss", json!("https://evil.example.org")),
    ] {
        refused(&fixture.issuers, &stranger.token(&new_key, &bad));
    }
    // After the fetch of the new key, the token is valid.
    let mut issuers = fixture.issuers.clone();
    let set = json!({"keys": [stranger.jwk("new")]}).to_string();
    issuers.set_keys(
        ISSUER,
        KeySet::parse(set.as_bytes(), NOW + 1).expect("keys"),
    );
    let token = stranger.token(&new_key, &claims());
    assert!(issuers.verify(token.as_bytes(), NOW).is_ok());
    assert_eq!(issuers.keys(ISSUER).map(KeySet::fetched_at), Some(NOW + 1));
}

#[test]
fn scopes_are_limited_to_the_base_of_the_issuer() {
    let fixture = fixture();
    let token = fixture.p256.token(&header(), &claims());
    let verified = fixture.issuers.verify(token.as_bytes(), NOW).expect("good");
    let allows = |action, at| {
        let resource = Resource::parse(at).expect("good");
        verified.scopes.allows(action, &resource)
    };
    assert!(allows(Action::Read, "/vo/data/file"));
    assert!(allows(Action::Create, "/vo/data/out/file"));
    assert!(!allows(Action::Read, "/data/file"), "outside of the base");
    assert!(!allows(Action::Read, "/vo/database"), "too narrow a scope");
    assert!(
        !allows(Action::Create, "/vo/data/file"),
        "too narrow a scope"
    );
    assert!(
        !allows(Action::Replace, "/vo/data/out/file"),
        "another capability"
    );
}

#[test]
fn invalid_issuer_configurations_are_refused() {
    let bad = [
        Issuer {
            url: "http://a".into(),
            ..issuer(ISSUER, true)
        },
        Issuer {
            url: "https://".into(),
            ..issuer(ISSUER, true)
        },
        Issuer {
            url: "https://a@b".into(),
            ..issuer(ISSUER, true)
        },
        Issuer {
            audiences: vec![],
            ..issuer(ISSUER, true)
        },
        Issuer {
            base: "vo".into(),
            ..issuer(ISSUER, true)
        },
        Issuer {
            base: "/vo/..".into(),
            ..issuer(ISSUER, true)
        },
    ];
    for issuer in bad {
        assert!(Issuers::new([issuer.clone()]).is_err(), "{issuer:?}");
    }
    assert!(Issuers::new([issuer(ISSUER, true), issuer(ISSUER, false)]).is_err());
    let text = r#"{"url": "https://a", "audiences": ["b"]}"#;
    let issuer: Issuer = serde_json::from_str(text).expect("defaults");
    assert!(issuer.wlcg && issuer.base == "/");
    let misspelt = r#"{"url": "https://a", "audiences": ["b"], "wlgc": false}"#;
    assert!(serde_json::from_str::<Issuer>(misspelt).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let issuers = Issuers::new([issuer(ISSUER, true)]).expect("good");
        prop_assert!(issuers.verify(&bytes, NOW).is_err());
    }

    #[test]
    fn any_header_and_claims_are_refused_without_a_panic(
        header in "[{}\":,a-z0-9 \\[\\]]{0,60}",
        claims in "[{}\":,a-z0-9 \\[\\]]{0,60}",
    ) {
        let issuers = Issuers::new([issuer(ISSUER, true)]).expect("good");
        let token = format!("{}.{}.", b64(header), b64(claims));
        prop_assert!(issuers.verify(token.as_bytes(), NOW).is_err());
    }

    #[test]
    fn any_changed_byte_of_a_token_is_refused(at in 0..600usize, bit in 0..8u32) {
        let fixture = fixture();
        let mut token = fixture.p256.token(&header(), &claims()).into_bytes();
        let at = at % token.len();
        token[at] ^= 1 << bit;
        prop_assert!(fixture.issuers.verify(&token, NOW).is_err());
    }
}
