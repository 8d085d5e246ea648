mod policies;
mod proxies;

use super::testing::{
    CLIENT_AUTH, Draft, INDEPENDENT, INHERIT_ALL, Key, LIMITED, PROXY_CERT_INFO, SERVER_AUTH,
    basic_constraints, ecdsa, extended_key_usage, extension, host, key_usage, name, proxy_info,
    proxy_info_value, revocation_list, tlv,
};
use super::{CHAIN_MAX, Client, Revocation, Trust, public_key};
use dray_core::{ErrorKind, Result};
use proptest::prelude::*;

/// The current time of all tests: 2027-01-15T08:00:00Z.
const NOW: u64 = 1_800_000_000;
const LAST_YEAR: &str = "260115080000Z";
const YESTERDAY: &str = "270114080000Z";
const TOMORROW: &str = "270116080000Z";
const NEXT_YEAR: &str = "280115080000Z";

type Attributes<'a> = &'a [(&'a str, &'a str)];

const ROOT: Attributes<'_> = &[("DC", "org"), ("CN", "Root")];
const SUB: Attributes<'_> = &[("DC", "org"), ("CN", "Sub")];
const ALICE: Attributes<'_> = &[("DC", "org"), ("CN", "Alice")];
const PROXY: Attributes<'_> = &[("DC", "org"), ("CN", "Alice"), ("CN", "1")];
const PROXY_2: Attributes<'_> = &[("DC", "org"), ("CN", "Alice"), ("CN", "1"), ("CN", "2")];

fn draft(issuer: Attributes<'_>, subject: Attributes<'_>, extensions: Vec<Vec<u8>>) -> Draft {
    Draft {
        serial: 7,
        issuer: name(issuer),
        subject: name(subject),
        not_before: YESTERDAY,
        not_after: TOMORROW,
        extensions,
        algorithm: ecdsa(),
    }
}

fn authority(issuer: Attributes<'_>, subject: Attributes<'_>) -> Draft {
    let extensions = vec![basic_constraints(true), key_usage(0x06)];
    Draft {
        serial: 3,
        not_before: LAST_YEAR,
        not_after: NEXT_YEAR,
        ..draft(issuer, subject, extensions)
    }
}

fn alice() -> Draft {
    let extensions = vec![
        basic_constraints(false),
        key_usage(0xa0),
        extended_key_usage(CLIENT_AUTH),
    ];
    draft(SUB, ALICE, extensions)
}

fn proxy(language: &[u8], path_length: Option<u8>) -> Draft {
    let extensions = vec![proxy_info(language, path_length), key_usage(0xa0)];
    draft(ALICE, PROXY, extensions)
}

fn proxy_2(language: &[u8]) -> Draft {
    draft(
        PROXY,
        PROXY_2,
        vec![proxy_info(language, None), key_usage(0x80)],
    )
}

/// The keys of a chain: root, sub-authority, Alice, a proxy, and a proxy of the proxy.
struct TestChain {
    root: Key,
    sub: Key,
    alice: Key,
    one: Key,
    two: Key,
}

impl TestChain {
    fn new() -> Self {
        Self {
            root: Key::new(),
            sub: Key::new(),
            alice: Key::new(),
            one: Key::new(),
            two: Key::new(),
        }
    }

    fn root_certificate(&self) -> Vec<u8> {
        authority(ROOT, ROOT).signed(&self.root, &self.root)
    }

    fn trust(&self, revocation: Revocation) -> Trust {
        let mut trust = Trust::new(revocation);
        trust
            .add_authority(&self.root_certificate())
            .expect("an authority");
        trust
    }

    fn sub(&self) -> Vec<u8> {
        authority(ROOT, SUB).signed(&self.sub, &self.root)
    }

    fn alice(&self) -> Vec<u8> {
        alice().signed(&self.alice, &self.sub)
    }

    fn proxy(&self, draft: &Draft) -> Vec<u8> {
        draft.signed(&self.one, &self.alice)
    }

    fn proxy_2(&self, draft: &Draft) -> Vec<u8> {
        draft.signed(&self.two, &self.one)
    }

    fn verify(&self, chain: &[Vec<u8>]) -> Result<Client> {
        verify(&self.trust(Revocation::default()), chain)
    }

    /// Verifies a chain that consists of a proxy with these fields and valid certificates above the
    /// proxy.
    fn verify_proxy(&self, draft: &Draft) -> Result<Client> {
        self.verify(&[self.proxy(draft), self.alice(), self.sub()])
    }
}

fn verify(trust: &Trust, chain: &[Vec<u8>]) -> Result<Client> {
    let chain: Vec<_> = chain.iter().map(Vec::as_slice).collect();
    trust.verify_client(&chain, NOW)
}

fn assert_refused(result: Result<Client>, reason: &str) {
    let error = result.expect_err(reason);
    assert_eq!(error.kind, ErrorKind::Unauthorized, "{error}");
    assert!(error.cause.contains(reason), "not `{reason}`: {error}");
    assert!(!error.remedy.is_empty(), "{error}");
}

#[test]
fn a_good_certificate_names_its_subject() {
    let chain_keys = TestChain::new();
    let client = chain_keys
        .verify(&[chain_keys.alice(), chain_keys.sub()])
        .expect("good");
    assert_eq!(client.subject.slash(), "/DC=org/CN=Alice");
    assert_eq!(client.subject.rfc2253(), "CN=Alice,DC=org");
    assert_eq!(client.issuer.slash(), "/DC=org/CN=Sub");
    assert_eq!((client.proxies, client.is_limited), (0, false));
    assert_eq!(client.expires, NOW + 86_400);
    assert_eq!(client.key, chain_keys.alice.info());
    assert_eq!(
        public_key(&chain_keys.alice()).ok(),
        Some(chain_keys.alice.info())
    );
    // The chain is valid with and without the root.
    let chain = [
        chain_keys.alice(),
        chain_keys.sub(),
        chain_keys.root_certificate(),
    ];
    assert!(chain_keys.verify(&chain).is_ok());
    // A certificate without the key usage extension permits all uses.
    let plain = draft(SUB, ALICE, vec![]).signed(&chain_keys.alice, &chain_keys.sub);
    assert!(chain_keys.verify(&[plain, chain_keys.sub()]).is_ok());
}

#[test]
fn certificates_outside_their_validity_are_refused() {
    let chain_keys = TestChain::new();
    let verify = |draft: Draft| {
        chain_keys.verify(&[
            draft.signed(&chain_keys.alice, &chain_keys.sub),
            chain_keys.sub(),
        ])
    };
    let expired = Draft {
        not_after: "270115075900Z",
        ..alice()
    };
    assert_refused(
        verify(expired),
        "the certificate of /DC=org/CN=Alice expired 60 seconds ago",
    );
    let early = Draft {
        not_before: "270115080100Z",
        ..alice()
    };
    assert_refused(
        verify(early),
        "is not yet valid: it becomes valid in 60 seconds",
    );
    let authority = Draft {
        not_after: YESTERDAY,
        ..authority(ROOT, SUB)
    };
    let chain = [
        chain_keys.alice(),
        authority.signed(&chain_keys.sub, &chain_keys.root),
    ];
    assert_refused(
        chain_keys.verify(&chain),
        "contains an authority whose certificate",
    );
    let root = Draft {
        not_after: YESTERDAY,
        ..self::authority(ROOT, ROOT)
    };
    let mut trust = Trust::default();
    trust
        .add_authority(&root.signed(&chain_keys.root, &chain_keys.root))
        .expect("an authority");
    assert_refused(
        self::verify(&trust, &[chain_keys.alice(), chain_keys.sub()]),
        "has expired",
    );
}

#[test]
fn certificates_of_untrusted_issuers_are_refused() {
    let chain_keys = TestChain::new();
    let other = TestChain::new();
    let chain = [chain_keys.alice(), chain_keys.sub()];
    assert_refused(
        verify(&Trust::default(), &chain),
        "which this endpoint does not trust",
    );
    // These certificates have the same names but other keys.
    assert_refused(
        verify(&other.trust(Revocation::default()), &chain),
        "signature",
    );
    let stranger = draft(&[("CN", "Elsewhere")], ALICE, vec![]);
    let chain = [
        stranger.signed(&chain_keys.alice, &other.sub),
        chain_keys.sub(),
    ];
    assert_refused(chain_keys.verify(&chain), "is /CN=Elsewhere, which");
    // This chain lacks the intermediate authority.
    assert_refused(
        chain_keys.verify(&[chain_keys.alice()]),
        "is /DC=org/CN=Sub, which",
    );
    // The issuer of this certificate is not an authority.
    let bob = draft(ALICE, &[("DC", "org"), ("CN", "Bob")], vec![]);
    let chain = [
        bob.signed(&chain_keys.one, &chain_keys.alice),
        chain_keys.alice(),
        chain_keys.sub(),
    ];
    assert_refused(chain_keys.verify(&chain), "is not allowed to issue");
}

#[test]
fn certificates_for_other_uses_are_refused() {
    let chain_keys = TestChain::new();
    let verify = |extensions| {
        let leaf = draft(SUB, ALICE, extensions).signed(&chain_keys.alice, &chain_keys.sub);
        chain_keys.verify(&[leaf, chain_keys.sub()])
    };
    assert_refused(
        verify(vec![key_usage(0x20)]),
        "does not allow digital signatures",
    );
    assert_refused(
        verify(vec![extended_key_usage(SERVER_AUTH)]),
        "extended key usage",
    );
    let unknown = extension(&[0x2a, 3, 4], true, &[5, 0]);
    assert_refused(verify(vec![unknown]), "has a critical extension");
    let nobody = draft(SUB, &[], vec![]).signed(&chain_keys.alice, &chain_keys.sub);
    assert_refused(
        chain_keys.verify(&[nobody, chain_keys.sub()]),
        "names no subject",
    );
}

#[test]
fn revoked_certificates_are_refused() {
    let chain_keys = TestChain::new();
    let chain = [chain_keys.alice(), chain_keys.sub()];
    let with = |revocation, lists: &[Vec<u8>]| {
        let mut trust = chain_keys.trust(revocation);
        for list in lists {
            trust.add_revocation_list(list).expect("a list");
        }
        verify(&trust, &chain)
    };
    let list = |next, serials: &[u8]| revocation_list(&name(SUB), &chain_keys.sub, next, serials);
    let root = |serials: &[u8]| revocation_list(&name(ROOT), &chain_keys.root, NEXT_YEAR, serials);
    let lax = Revocation::default();
    let strict = Revocation {
        demanded: true,
        stale: false,
    };
    let stale = Revocation {
        demanded: false,
        stale: true,
    };
    assert!(with(lax, &[list(NEXT_YEAR, &[8])]).is_ok());
    assert!(with(strict, &[list(NEXT_YEAR, &[]), root(&[])]).is_ok());
    assert_refused(with(lax, &[list(NEXT_YEAR, &[8, 7])]), "was revoked");
    assert_refused(with(lax, &[root(&[3])]), "was revoked");
    assert_refused(
        with(strict, &[list(NEXT_YEAR, &[])]),
        "no revocation list that covers",
    );
    assert_refused(with(strict, &[]), "no revocation list that covers");
    assert_refused(
        with(lax, &[list("270115075900Z", &[])]),
        "the revocation list for the certificate of /DC=org/CN=Alice has been out of date for 60",
    );
    assert!(with(stale, &[list(YESTERDAY, &[])]).is_ok());
    assert_refused(with(stale, &[list(YESTERDAY, &[7])]), "was revoked");
    // A revocation list that another key has signed is not accepted.
    let forged = revocation_list(&name(SUB), &chain_keys.one, NEXT_YEAR, &[]);
    assert_refused(with(lax, &[forged]), "is not signed by its authority");
    let mut trust = chain_keys.trust(lax);
    assert!(trust.add_revocation_list(b"no list").is_err());
    // A proxy below a revoked certificate is refused.
    trust
        .add_revocation_list(&list(NEXT_YEAR, &[7]))
        .expect("a list");
    let chain = [
        chain_keys.proxy(&proxy(INHERIT_ALL, None)),
        chain_keys.alice(),
        chain_keys.sub(),
    ];
    assert_refused(verify(&trust, &chain), "was revoked");
}

#[test]
fn chains_in_the_wrong_order_are_refused() {
    let chain_keys = TestChain::new();
    let one = chain_keys.proxy(&proxy(INHERIT_ALL, None));
    let two = chain_keys.proxy_2(&proxy_2(INHERIT_ALL));
    let (alice, sub) = (chain_keys.alice(), chain_keys.sub());
    for chain in [
        vec![&sub, &alice],
        vec![&alice, &one, &sub],
        vec![&one, &two, &alice, &sub],
        vec![&one, &sub, &alice],
        vec![&sub, &alice, &one],
    ] {
        let chain: Vec<_> = chain.into_iter().cloned().collect();
        assert_refused(chain_keys.verify(&chain), "chain is in the wrong order");
    }
    assert_refused(
        chain_keys.verify(std::slice::from_ref(&one)),
        "the certificate that issued the proxy is missing",
    );
    assert_refused(chain_keys.verify(&[]), "the caller sent no certificate");
    assert_refused(
        chain_keys.verify(&vec![alice.clone(); CHAIN_MAX + 1]),
        "more than 16",
    );
    assert_refused(
        chain_keys.verify(&[b"no certificate".to_vec()]),
        "does not hold a certificate",
    );
    assert_refused(
        chain_keys.verify(&[[alice, vec![0]].concat()]),
        "does not hold a certificate",
    );
    assert_refused(chain_keys.verify(&[sub]), "is an authority's");
}

#[test]
fn server_certificate_must_match_the_dialled_host() {
    let chain_keys = TestChain::new();
    let trust = chain_keys.trust(Revocation::default());
    let dtn: Attributes<'_> = &[("DC", "org"), ("CN", "other.example.org")];
    let good = Draft {
        extensions: vec![host("dtn.example.org"), extended_key_usage(SERVER_AUTH)],
        ..draft(SUB, dtn, vec![])
    };
    let verify = |draft: &Draft, host: &str| {
        let (leaf, sub) = (
            draft.signed(&chain_keys.one, &chain_keys.sub),
            chain_keys.sub(),
        );
        trust.verify_server(&[&leaf, &sub], host, NOW)
    };
    assert_eq!(verify(&good, "dtn.example.org"), Ok(()));
    let error = verify(&good, "evil.example.org").expect_err("another");
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    assert!(
        error
            .cause
            .contains("is not valid for the host evil.example.org"),
        "{error}"
    );
    // The common name is never used as a host name.
    assert!(verify(&good, "other.example.org").is_err());
    assert!(verify(&good, "192.0.2.1").is_err());
    let error = verify(&good, "not a host").expect_err("no name");
    assert!(error.cause.contains("is not a host name"), "{error}");
    let expired = Draft {
        not_after: YESTERDAY,
        ..good.clone()
    };
    let error = verify(&expired, "dtn.example.org").expect_err("expired");
    assert!(error.cause.contains("expired 24 hours ago"), "{error}");
    let client = Draft {
        extensions: vec![host("dtn.example.org"), extended_key_usage(CLIENT_AUTH)],
        ..good
    };
    let error = verify(&client, "dtn.example.org").expect_err("a client's");
    assert!(error.cause.contains("extended key usage"), "{error}");
}

#[test]
fn only_authorities_are_trusted() {
    let chain_keys = TestChain::new();
    let mut trust = Trust::default();
    let error = trust
        .add_authority(&chain_keys.alice())
        .expect_err("a person");
    assert!(
        error
            .cause
            .contains("/DC=org/CN=Alice is not a certificate authority"),
        "{error}"
    );
    assert!(trust.add_authority(b"x").is_err());
    assert_eq!(
        format!("{trust:?}"),
        "Trust(0 authorities, 0 revocation lists)"
    );
}

proptest! {
    #[test]
    fn any_changed_byte_of_a_chain_is_refused(which in 0..3usize, at in any::<usize>(), bit in 0..8u32) {
        let chain_keys = TestChain::new();
        let mut chain =
            [chain_keys.proxy(&proxy(INHERIT_ALL, None)), chain_keys.alice(), chain_keys.sub()];
        let at = at % chain[which].len();
        chain[which][at] ^= 1 << bit;
        prop_assert!(chain_keys.verify(&chain).is_err());
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(
        chain in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..4),
    ) {
        prop_assert!(TestChain::new().verify(&chain).is_err());
    }
}
