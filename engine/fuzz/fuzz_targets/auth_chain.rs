//! Parses arbitrary bytes as a chain of certificates, as an authority and as a revocation list. No
//! input may cause a panic. The only accepted identity is that of the one client certificate that
//! the trusted authority has signed.
#![no_main]

use dray_auth::x509::{Revocation, Trust, public_key};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

const NOW: u64 = 1_800_000_000;

static TRUST: LazyLock<Trust> = LazyLock::new(|| {
    let mut trust = Trust::new(Revocation::default());
    let root = include_bytes!("../../crates/dray-auth/src/testdata/openssl/ca.der");
    trust.add_authority(root).expect("an authority");
    trust
});

/// Splits the data into at most 20 parts at the lengths in the DER headers. A part without a valid
/// length takes the rest.
fn cut(mut data: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while !data.is_empty() && parts.len() < 20 {
        let length = match data {
            [_, 0x82, high, low, ..] => 4 + usize::from(*high) * 256 + usize::from(*low),
            [_, short, ..] if *short < 0x80 => 2 + usize::from(*short),
            _ => data.len(),
        };
        let (part, rest) = data.split_at(length.min(data.len()));
        parts.push(part);
        data = rest;
    }
    parts
}

fuzz_target!(|data: &[u8]| {
    let chain = cut(data);
    if let Ok(client) = TRUST.verify_client(&chain, NOW) {
        assert_eq!(
            client.subject.slash(),
            "/DC=org/DC=example/CN=Alice Example"
        );
        assert_eq!(public_key(chain[0]), Ok(client.key));
        assert!(client.expires >= NOW);
    }
    assert!(TRUST.verify_server(&chain, "dtn.example.org", NOW).is_err());
    let mut trust = Trust::default();
    let _ = trust.add_authority(data);
    let _ = trust.add_revocation_list(data);
});
