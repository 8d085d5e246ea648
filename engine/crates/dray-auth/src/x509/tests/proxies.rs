//! Proxy certificates: RFC 3820 and what it forbids.

use super::*;

#[test]
fn proxy_has_the_identity_of_its_issuer() {
    let chain_keys = TestChain::new();
    let table: [(Vec<Vec<u8>>, usize, bool); 5] = [
        (vec![chain_keys.proxy(&proxy(INHERIT_ALL, None))], 1, false),
        (vec![chain_keys.proxy(&proxy(LIMITED, Some(0)))], 1, true),
        (
            vec![
                chain_keys.proxy_2(&proxy_2(INHERIT_ALL)),
                chain_keys.proxy(&proxy(INHERIT_ALL, Some(1))),
            ],
            2,
            false,
        ),
        (
            vec![
                chain_keys.proxy_2(&proxy_2(LIMITED)),
                chain_keys.proxy(&proxy(INHERIT_ALL, None)),
            ],
            2,
            true,
        ),
        (
            // A proxy below a limited proxy is limited too.
            vec![
                chain_keys.proxy_2(&proxy_2(INHERIT_ALL)),
                chain_keys.proxy(&proxy(LIMITED, None)),
            ],
            2,
            true,
        ),
    ];
    for (mut chain, proxies, is_limited) in table {
        chain.extend([chain_keys.alice(), chain_keys.sub()]);
        let client = chain_keys.verify(&chain).expect("good");
        assert_eq!(client.subject.slash(), "/DC=org/CN=Alice");
        assert_eq!((client.proxies, client.is_limited), (proxies, is_limited));
        assert_ne!(client.key, chain_keys.alice.info(), "the key of the leaf");
    }
    // webpki, and the parts of rustls that use webpki, cannot parse a proxy. So `Client` must
    // contain the key.
    let proxy_certificate = chain_keys.proxy(&proxy(INHERIT_ALL, None));
    let end = rustls_pki_types::CertificateDer::from(proxy_certificate.as_slice());
    assert!(webpki::EndEntityCert::try_from(&end).is_err());
    let info = rustls_pki_types::SubjectPublicKeyInfoDer::from(chain_keys.one.info());
    assert!(webpki::RawPublicKeyEntity::try_from(&info).is_ok());
    assert_eq!(
        public_key(&proxy_certificate).ok(),
        Some(chain_keys.one.info())
    );
    let short = Draft {
        not_after: "270115090000Z",
        ..proxy(INHERIT_ALL, None)
    };
    assert_eq!(
        chain_keys.verify_proxy(&short).expect("good").expires,
        NOW + 3_600
    );
}

/// The certificates in `testdata/openssl` were made with OpenSSL 3 and RSA keys, with the
/// configuration `made.cnf`.
#[test]
fn openssl_proxy_of_a_proxy_is_accepted() {
    let mut trust = Trust::default();
    let root = include_bytes!("../../testdata/openssl/ca.der");
    trust.add_authority(root).expect("an authority");
    let alice = include_bytes!("../../testdata/openssl/alice.der").as_slice();
    let one = include_bytes!("../../testdata/openssl/one.der").as_slice();
    let two = include_bytes!("../../testdata/openssl/two.der").as_slice();
    let client = trust.verify_client(&[two, one, alice], NOW).expect("good");
    assert_eq!(
        client.subject.slash(),
        "/DC=org/DC=example/CN=Alice Example"
    );
    assert_eq!(
        client.subject.rfc2253(),
        "CN=Alice Example,DC=example,DC=org"
    );
    assert_eq!((client.proxies, client.is_limited), (2, true));
    let client = trust.verify_client(&[one, alice], NOW).expect("good");
    assert_eq!((client.proxies, client.is_limited), (1, false));
    assert_refused(
        trust.verify_client(&[two, alice], NOW),
        "the issuer of the proxy is not the certificate that signed it",
    );
}

fn with(extensions: Vec<Vec<u8>>) -> Draft {
    Draft {
        extensions,
        ..proxy(INHERIT_ALL, None)
    }
}

fn info() -> Vec<u8> {
    proxy_info(INHERIT_ALL, None)
}

#[test]
fn proxies_with_wrong_time_name_or_policy_are_refused() {
    let chain_keys = TestChain::new();
    let good = proxy(INHERIT_ALL, None);
    let table: Vec<(Draft, &str)> = vec![
        (
            Draft {
                not_after: "270115075900Z",
                ..good.clone()
            },
            "expired 60 seconds ago",
        ),
        (
            Draft {
                not_before: TOMORROW,
                ..good.clone()
            },
            "is not yet valid",
        ),
        (
            Draft {
                issuer: name(&[("DC", "org"), ("CN", "Bob")]),
                ..good.clone()
            },
            "the issuer of the proxy is not the certificate that signed it",
        ),
        (
            Draft {
                subject: name(&[("DC", "org"), ("CN", "Bob"), ("CN", "1")]),
                ..good.clone()
            },
            "is not the subject of its issuer",
        ),
        (
            Draft {
                subject: name(PROXY_2),
                ..good.clone()
            },
            "is not the subject of its issuer",
        ),
        (
            Draft {
                subject: name(ALICE),
                ..good.clone()
            },
            "is not the subject of its issuer",
        ),
        (
            Draft {
                subject: name(&[("DC", "org"), ("CN", "Alice"), ("O", "1")]),
                ..good.clone()
            },
            "is not the subject of its issuer",
        ),
        (proxy(INDEPENDENT, None), "is independent"),
        (
            proxy(&[0x2a, 3, 4], None),
            "the policy of the proxy is not supported",
        ),
    ];
    for (draft, reason) in table {
        assert_refused(chain_keys.verify_proxy(&draft), reason);
    }
}

#[test]
fn proxies_with_extensions_that_the_rfc_forbids_are_refused() {
    let chain_keys = TestChain::new();
    let policy = tlv(0x30, &[&tlv(6, &[INHERIT_ALL]), &tlv(4, &[b"x"])]);
    let table: Vec<(Draft, &str)> = vec![
        (
            with(vec![extension(
                PROXY_CERT_INFO,
                false,
                &proxy_info_value(INHERIT_ALL, None),
            )]),
            "is not marked critical",
        ),
        (
            with(vec![extension(
                PROXY_CERT_INFO,
                true,
                &tlv(0x30, &[&policy]),
            )]),
            "must not have a policy",
        ),
        (
            with(vec![extension(PROXY_CERT_INFO, true, b"x")]),
            "proxyCertInfo of the proxy is malformed",
        ),
        (
            with(vec![extension(
                PROXY_CERT_INFO,
                true,
                &proxy_info_value(INHERIT_ALL, Some(0xff)),
            )]),
            "proxyCertInfo of the proxy is malformed",
        ),
        (with(vec![info(), info()]), "twice"),
        (
            with(vec![info(), basic_constraints(true)]),
            "marked as a certificate authority",
        ),
        (with(vec![info(), key_usage(0x20)]), "digital signatures"),
        (
            with(vec![info(), key_usage(0x84)]),
            "which a proxy must not do",
        ),
        (
            with(vec![info(), key_usage(0xc0)]),
            "which a proxy must not do",
        ),
        (
            with(vec![info(), extended_key_usage(SERVER_AUTH)]),
            "extended key usage",
        ),
        (
            with(vec![info(), host("a.example.org")]),
            "alternative name",
        ),
        (
            with(vec![info(), extension(&[0x2a, 3], true, b"")]),
            "does not support",
        ),
    ];
    for (draft, reason) in table {
        assert_refused(chain_keys.verify_proxy(&draft), reason);
    }
    // Extensions that RFC 3820 permits.
    let fine = with(vec![
        info(),
        basic_constraints(false),
        extended_key_usage(CLIENT_AUTH),
        extension(&[0x2a, 3], false, b""),
    ]);
    assert!(chain_keys.verify_proxy(&fine).is_ok());
}

#[test]
fn proxies_with_a_foreign_signature_are_refused() {
    let chain_keys = TestChain::new();
    let good = proxy(INHERIT_ALL, None);
    // The algorithm identifier in the signed bytes differs from the outer one.
    let other = Draft {
        algorithm: tlv(
            0x30,
            &[&tlv(6, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3]])],
        ),
        ..good.clone()
    };
    assert_refused(
        chain_keys.verify_proxy(&other),
        "the signature of the proxy does not match the key of its issuer",
    );
    // This proxy is signed with a key that is not its issuer's key.
    let forged = good.signed(&chain_keys.one, &chain_keys.two);
    let chain = [forged, chain_keys.alice(), chain_keys.sub()];
    assert_refused(
        chain_keys.verify(&chain),
        "the signature of the proxy does not match the key of its issuer",
    );
}

#[test]
fn path_length_limits_proxies_of_proxies() {
    let chain_keys = TestChain::new();
    let verify = |first: &Draft, second: &Draft| {
        let chain = [
            chain_keys.proxy_2(second),
            chain_keys.proxy(first),
            chain_keys.alice(),
            chain_keys.sub(),
        ];
        chain_keys.verify(&chain)
    };
    assert!(verify(&proxy(INHERIT_ALL, Some(1)), &proxy_2(INHERIT_ALL)).is_ok());
    assert_refused(
        verify(&proxy(INHERIT_ALL, Some(0)), &proxy_2(INHERIT_ALL)),
        "the chain has more proxies than the path length limit of one of its proxies allows",
    );
    let expired = Draft {
        not_after: YESTERDAY,
        ..proxy(INHERIT_ALL, None)
    };
    assert_refused(
        verify(&expired, &proxy_2(INHERIT_ALL)),
        "/DC=org/CN=Alice/CN=1 expired",
    );
    // The certificate of this proxy does not permit signatures with its key. So this proxy cannot
    // issue another proxy.
    let mute = Draft {
        extensions: vec![proxy_info(INHERIT_ALL, None), key_usage(0x20)],
        ..proxy(INHERIT_ALL, None)
    };
    assert_refused(verify(&mute, &proxy_2(INHERIT_ALL)), "digital signatures");
}

#[test]
fn proxies_from_before_the_rfc_are_refused() {
    let chain_keys = TestChain::new();
    for common_name in ["proxy", "limited proxy"] {
        let subject = &[("DC", "org"), ("CN", "Alice"), ("CN", common_name)];
        let old = draft(ALICE, subject, vec![]).signed(&chain_keys.one, &chain_keys.alice);
        let chain = [old, chain_keys.alice(), chain_keys.sub()];
        assert_refused(chain_keys.verify(&chain), "before RFC 3820");
    }
    let globus = [0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 0x81, 0x5e];
    let info = extension(&globus, true, &proxy_info_value(INHERIT_ALL, None));
    let draft = draft(ALICE, PROXY, vec![info]).signed(&chain_keys.one, &chain_keys.alice);
    assert_refused(
        chain_keys.verify(&[draft, chain_keys.alice(), chain_keys.sub()]),
        "before RFC 3820",
    );
}
