//! The cryptography of TLS connections: the library ring, and the order of the ciphers.

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite;
use std::sync::Arc;

/// Returns the cryptography provider, with AES-128 as first choice. The processors of data transfer
/// nodes have instructions for AES, so AES needs little processor time. AES-128 needs less time per
/// byte than AES-256 (ten rounds instead of fourteen), and is strong enough.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(provider)
}
