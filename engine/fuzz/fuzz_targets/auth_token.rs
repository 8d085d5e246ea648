//! Parses arbitrary bytes as a token, as a key set and as scopes. No input may cause a panic. No
//! token without a valid signature is accepted. No error contains the signature. No scope permits
//! access to a path outside its issuer's base folder.
#![no_main]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_auth::jwk::KeySet;
use dray_auth::{Action, Issuer, Issuers, Resource, Scopes};
use dray_core::{Error, RelPath};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

const NOW: u64 = 1_800_000_000;
const ISSUER: &str = "https://vo.example.org";
/// A public key of RFC 7517. The private key is not in this file.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"2",
    "x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;
/// A signature that matches nothing.
const SIGNATURE: &str =
    "cafecafecafecafecafecafecafecafecafecafecafecafecafecafecafecafecafecafecafecafecafecA";

static ISSUERS: LazyLock<Issuers> = LazyLock::new(|| {
    let issuer = Issuer {
        url: ISSUER.into(),
        audiences: vec!["https://dtn.example.org".into()],
        base: "/base".into(),
        wlcg: true,
    };
    let mut issuers = Issuers::new([issuer]).expect("a good issuer");
    let keys = KeySet::parse(KEYS.as_bytes(), NOW).expect("a key");
    assert!(issuers.set_keys(ISSUER, keys));
    issuers
});

fn refused(token: &[u8]) -> Error {
    match ISSUERS.verify(token, NOW) {
        Ok(verified) => panic!("believed: {verified:?}"),
        Err(refusal) => refusal.into(),
    }
}

fuzz_target!(|data: &[u8]| {
    refused(data);
    // Build a token from the first line as the header and the rest as the claims. Otherwise the
    // fuzzer would test only base64.
    if let Some(end) = data.iter().position(|byte| *byte == b'\n') {
        let (header, claims) = (&data[..end], &data[end + 1..]);
        let token = format!(
            "{}.{}.{SIGNATURE}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(claims)
        );
        assert!(!refused(token.as_bytes()).to_string().contains(SIGNATURE));
    }
    if let Ok(keys) = KeySet::parse(data, NOW) {
        assert!(!keys.keys().is_empty());
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let base = RelPath::parse(b"base").expect("a path");
    if let Ok(scopes) = Scopes::parse(text, &base) {
        for scope in scopes.as_slice() {
            assert!(scope.resource.path.starts_with(&base));
            // The text form of a resource must parse to the same resource.
            let shown = scope.resource.to_string();
            assert_eq!(Resource::parse(&shown), Ok(scope.resource.clone()));
        }
        let outside = Resource::folder(RelPath::parse(b"other").expect("a path"));
        assert!(
            !Action::ALL
                .iter()
                .any(|action| scopes.allows(*action, &outside))
        );
    }
});
