//! Checks signatures with the algorithms that the checks of certificates accept.

use super::der;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use webpki::{ALL_VERIFICATION_ALGS, RawPublicKeyEntity};

/// Returns true if the holder of a key has signed a value, with one of the algorithms that the
/// checks of certificates accept. `key` is the DER of a SubjectPublicKeyInfo.
pub(super) fn has_signed(key: &[u8], signed: &der::Signed<'_>) -> bool {
    let key = SubjectPublicKeyInfoDer::from(key);
    let Ok(key) = RawPublicKeyEntity::try_from(&key) else {
        return false;
    };
    ALL_VERIFICATION_ALGS
        .iter()
        .filter(|algorithm| algorithm.signature_alg_id().as_ref() == signed.algorithm)
        .any(|algorithm| {
            key.verify_signature(*algorithm, signed.message, signed.signature)
                .is_ok()
        })
}
