//! Refused tokens: wrong claims, headers and forms.

use super::*;

fn assert_refused_with_reason(table: Vec<(Value, &str)>) {
    let fixture = fixture();
    for (claims, reason) in table {
        let token = fixture.p256.token(&header(), &claims);
        let error = refused(&fixture.issuers, &token);
        assert_eq!(error.kind, ErrorKind::Unauthorized);
        assert!(error.cause.contains(reason), "{claims}: {error}");
        assert!(!error.remedy.is_empty());
        assert_does_not_quote(&token, &error);
    }
}

#[test]
fn wrong_time_issuer_or_audience_is_refused_with_the_reason() {
    assert_refused_with_reason(vec![
        (
            with(claims(), "exp", json!(NOW - 90)),
            "the token expired 90 seconds ago",
        ),
        (
            with(claims(), "exp", json!(NOW - 60)),
            "the token expired 60 seconds ago",
        ),
        (with(claims(), "exp", json!(0)), "days ago"),
        (without(claims(), "exp"), "has no expiry time"),
        (with(claims(), "exp", json!(-1)), "wrong type"),
        (with(claims(), "exp", json!("soon")), "wrong type"),
        (with(claims(), "exp", json!(1e300)), "wrong type"),
        (
            with(claims(), "nbf", json!(NOW + 61)),
            "not yet valid: the start of its validity (nbf) is 61 seconds ahead of",
        ),
        (
            with(claims(), "iat", json!(NOW + 61)),
            "not yet valid: its time of issue (iat) is 61 seconds ahead of",
        ),
        (
            with(claims(), "iss", json!("https://evil.example.org")),
            "this endpoint does not trust the token's issuer https://evil.example.org",
        ),
        (
            with(claims(), "iss", json!(format!("{ISSUER}/"))),
            "does not trust the token's issuer",
        ),
        (without(claims(), "iss"), "names no issuer"),
        (
            with(claims(), "aud", json!("https://other.example.org")),
            "the audience of the token is https://other.example.org, but the audience of this \
                endpoint is \
             https://dtn.example.org or https://alias.example.org",
        ),
        (with(claims(), "aud", json!([])), "names no audience"),
        (
            with(claims(), "aud", json!(vec![AUDIENCE; LIST_MAX + 1])),
            "the audience of the token",
        ),
        (without(claims(), "aud"), "names no audience"),
    ]);
}

#[test]
fn bad_subjects_and_names_are_refused_with_the_reason() {
    assert_refused_with_reason(vec![
        (without(claims(), "sub"), "names no subject"),
        (with(claims(), "sub", json!("")), "names no subject"),
        (with(claims(), "sub", json!("a\nb")), "control characters"),
        (
            with(claims(), "sub", json!("x".repeat(256))),
            "more than 255 bytes",
        ),
        (
            with(claims(), "jti", json!("x".repeat(256))),
            "more than 255 bytes",
        ),
    ]);
}

#[test]
fn bad_permissions_are_refused_with_the_reason() {
    assert_refused_with_reason(vec![
        (without(claims(), "wlcg.ver"), "no wlcg.ver"),
        (with(claims(), "wlcg.ver", json!("2.0")), "wlcg.ver is 2.0"),
        (with(claims(), "wlcg.ver", json!("1.")), "wlcg.ver is 1."),
        (with(claims(), "wlcg.ver", json!("1.x")), "wlcg.ver is 1.x"),
        (with(claims(), "wlcg.ver", json!(1.0)), "wrong type"),
        (with(claims(), "scope", json!(["a"])), "wrong type"),
        (
            with(claims(), "scope", json!("storage.read")),
            "storage.read names no path",
        ),
        (
            with(claims(), "scope", json!("storage.read:/a/../b")),
            "leaves its root",
        ),
        (
            with(claims(), "scope", json!("storage.read:/%2e%2e")),
            "leaves its root",
        ),
        (with(claims(), "wlcg.groups", json!(["vo"])), "wlcg.groups"),
        (
            with(claims(), "wlcg.groups", json!(["/vo/../x"])),
            "wlcg.groups",
        ),
        (
            with(claims(), "wlcg.groups", json!(vec!["/vo"; LIST_MAX + 1])),
            "groups",
        ),
        (with(claims(), "cnf", json!({"jkt": "x"})), "bound to a key"),
    ]);
}

#[test]
fn bad_headers_are_refused_with_the_reason() {
    let fixture = fixture();
    let table = [
        (
            json!({"alg": "none"}),
            "algorithm none of the token is not accepted",
        ),
        (
            json!({"alg": "None"}),
            "algorithm None of the token is not accepted",
        ),
        (json!({}), "algorithm none of the token is not accepted"),
        (
            json!({"alg": "HS256", "kid": "rsa"}),
            "algorithm HS256 of the token is not accepted",
        ),
        (
            json!({"alg": "PS256", "kid": "rsa"}),
            "algorithm PS256 of the token is not accepted",
        ),
        (json!({"alg": 5}), "wrong type"),
        (
            json!({"alg": "ES256", "kid": "rsa"}),
            "is not for the signature algorithm ES256",
        ),
        (
            json!({"alg": "RS256", "kid": "ec"}),
            "is not for the signature algorithm RS256",
        ),
        (
            json!({"alg": "ES256", "kid": "ec", "crit": ["exp"]}),
            "critical extensions",
        ),
        (
            json!({"alg": "ES256", "kid": "ec", "typ": "dpop+jwt"}),
            "of type dpop+jwt",
        ),
    ];
    for (header, reason) in table {
        let token = fixture.p256.token(&header, &claims());
        let error = refused(&fixture.issuers, &token);
        assert!(error.cause.contains(reason), "{header}: {error}");
        assert_does_not_quote(&token, &error);
    }
}

#[test]
fn public_key_is_not_accepted_as_hmac_secret() {
    // The attack in RFC 8725, section 2.1: an HMAC signature, with the issuer's public key as the
    // secret.
    let fixture = fixture();
    let Signer::Rsa(pair) = &fixture.rsa else {
        panic!("an RSA key");
    };
    for secret in [
        pair.public().as_ref().to_vec(),
        fixture.rsa.jwk("rsa").to_string().into(),
    ] {
        for name in ["HS256", "hs256", "RS256"] {
            let header = json!({"alg": name, "kid": "rsa"});
            let message = format!("{}.{}", b64(header.to_string()), b64(claims().to_string()));
            let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
            let tag = ring::hmac::sign(&key, message.as_bytes());
            let token = format!("{message}.{}", b64(tag));
            refused(&fixture.issuers, &token);
        }
    }
}

#[test]
fn malformed_tokens_are_refused() {
    let fixture = fixture();
    let good = fixture.p256.token(&header(), &claims());
    let parts: Vec<_> = good.split('.').collect();
    let table = [
        (String::new(), "empty"),
        (".".into(), "three parts"),
        ("..".into(), "not a JSON object"),
        ("a.b".into(), "three parts"),
        (format!("{good}."), "three parts"),
        (format!("{good}.a"), "three parts"),
        (format!("{good}.a.b"), "encrypted"),
        (format!("{good}.a.b.c"), "three parts"),
        (format!(" {good}"), "not base64url"),
        (format!("{good}="), "signature is not base64url"),
        (
            format!("{}.{}.!", parts[0], parts[1]),
            "signature is not base64url",
        ),
        (
            format!("{}.{}.", parts[0], parts[1]),
            "the token's signature by",
        ),
        (
            format!("{}.{}.{}", b64("{"), parts[1], parts[2]),
            "header is not a JSON object",
        ),
        (
            format!("{}.{}.{}", parts[0], b64("[]"), parts[2]),
            "not a JSON object",
        ),
        ("a".repeat(TOKEN_BYTES_MAX + 1), "more than 16384 bytes"),
        (
            format!("{}.{}.", parts[0], b64("[".repeat(9_000))),
            "not a JSON object",
        ),
    ];
    for (token, reason) in table {
        let error = refused(&fixture.issuers, &token);
        assert!(error.cause.contains(reason), "{token}: {error}");
    }
    let twice = claims().to_string().replacen('{', r#"{"sub":"bob","#, 1);
    let token = fixture.p256.token_of_text(&header().to_string(), &twice);
    let error = refused(&fixture.issuers, &token);
    assert!(error.cause.contains("occurs twice"), "{error}");
}

#[test]
fn json_lists_are_not_accepted_as_objects() {
    let fixture = fixture();
    let list = r#"["ES256", "ec", null, null]"#;
    let token = fixture.p256.token_of_text(list, &claims().to_string());
    let error = refused(&fixture.issuers, &token);
    assert!(error.cause.contains("not a JSON object"), "{error}");
}
