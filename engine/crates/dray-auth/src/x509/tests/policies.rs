//! Tests of signing policies and namespaces files.

use super::super::{Policy, PolicyFormat, Revocation};
use super::{ALICE, SUB, TestChain, assert_refused, authority, verify};

#[test]
fn a_signing_policy_binds_every_authority_of_the_chain() {
    let keys = TestChain::new();
    // A certificate of the same name as the sub-authority, from an authority without a policy.
    let decoy = authority(ALICE, SUB).signed(&keys.one, &keys.two);
    let plain = [keys.alice(), keys.sub()];
    let hidden = [keys.alice(), decoy, keys.sub()];
    let with = |policies: &[(&str, &str)], chain: &[Vec<u8>]| {
        let mut trust = keys.trust(Revocation::default());
        for (issuer, subject) in policies {
            let text = format!(
                "access_id_CA X509 '/DC=org/CN={issuer}'\npos_rights globus CA:sign\n\
                 cond_subjects globus '\"/DC=org/CN={subject}\"'\n"
            );
            trust.add_policy(&Policy::parse(PolicyFormat::Signing, &text, &[]).expect("a policy"));
        }
        verify(&trust, chain)
    };
    for chain in [plain.as_slice(), hidden.as_slice()] {
        assert!(with(&[], chain).is_ok());
        assert!(with(&[("Root", "Sub"), ("Sub", "*")], chain).is_ok());
        assert!(with(&[("Root", "x"), ("Root", "S?b"), ("Sub", "*")], chain).is_ok());
        // The policy of an authority also limits the authorities below it that have no policy.
        assert_refused(
            with(&[("Root", "Sub")], chain),
            "the signing policy of /DC=org/CN=Root does not permit the certificate of \
                /DC=org/CN=Alice",
        );
        assert!(with(&[("Root", "*")], chain).is_ok());
        assert_refused(
            with(&[("Sub", "Bob")], chain),
            "the signing policy of /DC=org/CN=Sub does not permit the certificate of \
                /DC=org/CN=Alice",
        );
        assert_refused(
            with(&[("Root", "x")], chain),
            "of /DC=org/CN=Root does not permit",
        );
    }
    assert!(with(&[("Root", "Sub"), ("Sub", "Al*")], &plain).is_ok());
    // A policy of an authority that signs nothing here does not matter.
    assert!(with(&[("Alice", "x")], &plain).is_ok());
    assert!(Policy::parse(PolicyFormat::Signing, "no policy", &[]).is_err());
}

#[test]
fn both_formats_of_policies_must_permit_a_certificate() {
    let keys = TestChain::new();
    let chain = [keys.alice(), keys.sub()];
    let signing = |subject: &str| {
        let text = format!(
            "access_id_CA X509 '/DC=org/CN=Sub'\npos_rights globus CA:sign\n\
             cond_subjects globus '\"/DC=org/CN={subject}\"'\n"
        );
        Policy::parse(PolicyFormat::Signing, &text, &[]).expect("a policy")
    };
    let namespaces = |text: &str| {
        let sub = keys.sub();
        Policy::parse(PolicyFormat::Namespaces, text, &[&sub]).expect("a policy")
    };
    let with = |policies: &[Policy]| {
        let mut trust = keys.trust(Revocation::default());
        for policy in policies {
            trust.add_policy(policy);
        }
        verify(&trust, &chain)
    };
    let permit = "TO Issuer SELF PERMIT Subject \"/DC=org/CN=A.*\"\n";
    let other = "TO Issuer SELF PERMIT Subject \"/DC=org/CN=B.*\"\n";
    let deny = "TO Issuer \"/DC=org/CN=Sub\" DENY Subject \".*/CN=alice\"\n";
    let root = "TO Issuer \"/DC=org/CN=Root\" PERMIT Subject \"/DC=org/CN=Sub\"\n";
    assert!(with(&[namespaces(permit), signing("Al*")]).is_ok());
    assert!(with(&[namespaces(&format!("{other}{permit}"))]).is_ok());
    for (policies, cause) in [
        (
            vec![namespaces(other)],
            "the namespaces file of /DC=org/CN=Sub does not permit",
        ),
        (
            vec![namespaces(other), signing("Al*")],
            "the namespaces file",
        ),
        (
            vec![namespaces(permit), signing("B*")],
            "the signing policy",
        ),
        (
            vec![namespaces(&format!("{permit}{deny}"))],
            "denies the certificate of /DC=org/CN=A",
        ),
        (vec![namespaces(deny)], "denies"),
        // The policy of an authority also limits the authorities below it that have no policy.
        (
            vec![namespaces(root)],
            "of /DC=org/CN=Root does not permit the certificate of /DC=org/",
        ),
    ] {
        assert_refused(with(&policies), cause);
    }
    // A rule that denies another subject permits nothing.
    let none = "TO Issuer SELF DENY Subject \"/DC=org/CN=Bob\"\n";
    assert_refused(with(&[namespaces(none)]), "does not permit");
}

#[test]
fn a_damaged_policy_denies_only_its_own_authorities() {
    let keys = TestChain::new();
    let chain = [keys.alice(), keys.sub()];
    let sub = keys.sub();
    let with = |format, text: &str, own: &[&[u8]]| {
        assert!(Policy::parse(format, text, own).is_err(), "{text}");
        let mut trust = keys.trust(Revocation::default());
        trust.add_policy(&Policy::denying(format, text, own).expect("good certificates"));
        verify(&trust, &chain)
    };
    let entry = |name: &str| format!("access_id_CA X509 {name}\npos_rights globus CA:all\n");
    let statement = |name: &str| format!("TO Issuer {name} PERMIT Subject \"(a|b)\"\n");
    let (signing, namespaces) = (PolicyFormat::Signing, PolicyFormat::Namespaces);
    for (format, text) in [
        (signing, entry("'/DC=org/CN=Sub'")),
        (signing, entry("'/DC=org/CN=Sub")),
        (signing, entry("'/DC=org/CN=Root'")),
        (namespaces, statement("\"/DC=org/CN=Sub\"")),
        (namespaces, statement("\"/dc=org/cn=root\"")),
        (
            namespaces,
            format!("{}TO \"", statement("\"/DC=org/CN=Sub\"")),
        ),
    ] {
        let words = match format {
            PolicyFormat::Signing => "the signing policy of /DC=org/CN=",
            PolicyFormat::Namespaces => "the namespaces file of /DC=org/CN=",
        };
        let refused = with(format, &text, &[]);
        assert_refused(refused.clone(), "is damaged");
        assert_refused(refused, words);
    }
    for format in [signing, namespaces] {
        // The file belongs to the authority although it does not name the authority.
        assert_refused(with(format, "<html>", &[&sub]), "CN=Sub is damaged");
        assert!(
            with(format, "<html>", &[]).is_ok(),
            "no authority of the chain"
        );
    }
    assert!(with(signing, &entry("'/DC=org/CN=Other'"), &[]).is_ok());
    assert!(with(namespaces, &statement("\"/DC=org/CN=Other\""), &[]).is_ok());
}
