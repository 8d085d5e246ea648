//! Parses arbitrary text as a signing policy and as a namespaces file, and checks a chain with the
//! parsed policy. No input may cause a panic or take long. The policy of the only authority decides
//! the same each time, and a refusal names the authority.
#![no_main]

use dray_auth::x509::{Policy, Revocation, Trust};
use libfuzzer_sys::fuzz_target;

const NOW: u64 = 1_800_000_000;
const ROOT: &[u8] = include_bytes!("../../crates/dray-auth/src/testdata/openssl/ca.der");
const ALICE: &[u8] = include_bytes!("../../crates/dray-auth/src/testdata/openssl/alice.der");

fuzz_target!(|text: &str| {
    for policy in [Policy::signing(text), Policy::namespaces(text, &[ROOT])] {
        let Ok(policy) = policy else { continue };
        let mut trust = Trust::new(Revocation::default());
        trust.add_authority(ROOT).expect("an authority");
        let is_idle = trust.is_policy_idle(&policy);
        trust.add_policy(&policy);
        let checked = trust.verify_client(&[ALICE], NOW);
        assert_eq!(checked, trust.verify_client(&[ALICE], NOW));
        assert!(!is_idle || checked.is_ok());
    }
});
