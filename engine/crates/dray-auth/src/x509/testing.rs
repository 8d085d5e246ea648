//! Builds certificates and revocation lists byte by byte, so that a test can build invalid ones.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

/// Encodes one DER value.
pub(crate) fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut out = vec![tag];
    match u32::try_from(content.len()).expect("short") {
        short @ 0..0x80 => out.push(u8::try_from(short).expect("short")),
        long => {
            let octets = long.to_be_bytes();
            let start = octets.iter().position(|octet| *octet != 0).expect("not 0");
            out.push(0x80 + u8::try_from(4 - start).expect("short"));
            out.extend(&octets[start..]);
        }
    }
    out.extend(content);
    out
}

/// Encodes a name with these attributes.
pub(crate) fn name(attributes: &[(&str, &str)]) -> Vec<u8> {
    let sets: Vec<_> = attributes
        .iter()
        .map(|(kind, value)| {
            let oid: &[u8] = match *kind {
                "CN" => &[0x55, 4, 3],
                "C" => &[0x55, 4, 6],
                "O" => &[0x55, 4, 10],
                "DC" => &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
                "UID" => &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1],
                "emailAddress" => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
                other => panic!("{other}"),
            };
            let pair = tlv(0x30, &[&tlv(6, &[oid]), &tlv(0x0c, &[value.as_bytes()])]);
            tlv(0x31, &[&pair])
        })
        .collect();
    let sets: Vec<_> = sets.iter().map(Vec::as_slice).collect();
    tlv(0x30, &sets)
}

pub(crate) fn extension(oid: &[u8], is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[1, 1, 0xff] } else { &[] };
    tlv(0x30, &[&tlv(6, &[oid]), critical, &tlv(4, &[value])])
}

pub(crate) fn basic_constraints(is_authority: bool) -> Vec<u8> {
    let inside: &[u8] = if is_authority { &[1, 1, 0xff] } else { &[] };
    extension(&[0x55, 0x1d, 19], true, &tlv(0x30, &[inside]))
}

/// Encodes the key usage extension. Bits of the first octet: 0x80 digitalSignature, 0x40
/// nonRepudiation, 0x04 keyCertSign.
pub(crate) fn key_usage(bits: u8) -> Vec<u8> {
    let unused = u8::try_from(bits.trailing_zeros().min(7)).expect("short");
    extension(&[0x55, 0x1d, 15], true, &tlv(3, &[&[unused, bits]]))
}

pub(crate) fn host(name: &str) -> Vec<u8> {
    let names = tlv(0x30, &[&tlv(0x82, &[name.as_bytes()])]);
    extension(&[0x55, 0x1d, 17], false, &names)
}

pub(crate) const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
pub(crate) const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];

pub(crate) fn extended_key_usage(purpose: &[u8]) -> Vec<u8> {
    let purposes = tlv(0x30, &[&tlv(6, &[purpose])]);
    extension(&[0x55, 0x1d, 37], false, &purposes)
}

pub(crate) const PROXY_CERT_INFO: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 14];
pub(crate) const INHERIT_ALL: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 1];
pub(crate) const INDEPENDENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 2];
pub(crate) const LIMITED: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];

pub(crate) fn proxy_info_value(language: &[u8], path_length: Option<u8>) -> Vec<u8> {
    let length = path_length.map_or(vec![], |length| tlv(2, &[&[length]]));
    tlv(0x30, &[&length, &tlv(0x30, &[&tlv(6, &[language])])])
}

pub(crate) fn proxy_info(language: &[u8], path_length: Option<u8>) -> Vec<u8> {
    let value = proxy_info_value(language, path_length);
    extension(PROXY_CERT_INFO, true, &value)
}

pub(crate) struct Key(EcdsaKeyPair);

impl Key {
    pub(crate) fn new() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        Self(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("a key"))
    }

    pub(crate) fn info(&self) -> Vec<u8> {
        let algorithm = tlv(
            0x30,
            &[
                &tlv(6, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]]),
                &tlv(6, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7]]),
            ],
        );
        let point = tlv(3, &[&[0], self.0.public_key().as_ref()]);
        tlv(0x30, &[&algorithm, &point])
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        let signature = self.0.sign(&random, message).expect("signed");
        tlv(
            0x30,
            &[message, &ecdsa(), &tlv(3, &[&[0], signature.as_ref()])],
        )
    }
}

pub(crate) fn ecdsa() -> Vec<u8> {
    tlv(
        0x30,
        &[&tlv(6, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]])],
    )
}

/// The content of a certificate before it is signed. Times are `YYMMDDhhmmssZ`.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) serial: u8,
    pub(crate) issuer: Vec<u8>,
    pub(crate) subject: Vec<u8>,
    pub(crate) not_before: &'static str,
    pub(crate) not_after: &'static str,
    pub(crate) extensions: Vec<Vec<u8>>,
    /// Identifier of the signature algorithm inside the signed bytes.
    pub(crate) algorithm: Vec<u8>,
}

impl Draft {
    /// Returns the certificate of `key`, signed with the key `signer`.
    pub(crate) fn signed(&self, key: &Key, signer: &Key) -> Vec<u8> {
        let extensions: Vec<_> = self.extensions.iter().map(Vec::as_slice).collect();
        let extensions = match extensions.as_slice() {
            [] => vec![],
            some => tlv(0xa3, &[&tlv(0x30, some)]),
        };
        let validity = tlv(
            0x30,
            &[
                &tlv(0x17, &[self.not_before.as_bytes()]),
                &tlv(0x17, &[self.not_after.as_bytes()]),
            ],
        );
        let message = tlv(
            0x30,
            &[
                &tlv(0xa0, &[&tlv(2, &[&[2]])]),
                &tlv(2, &[&[self.serial]]),
                &self.algorithm,
                &self.issuer,
                &validity,
                &self.subject,
                &key.info(),
                &extensions,
            ],
        );
        signer.sign(&message)
    }
}

/// Returns a revocation list of `issuer` that contains these serial numbers.
pub(crate) fn revocation_list(
    issuer: &[u8],
    signer: &Key,
    next_update: &str,
    serials: &[u8],
) -> Vec<u8> {
    let time = tlv(0x17, &[b"270101000000Z"]);
    let revoked: Vec<_> = serials
        .iter()
        .map(|serial| tlv(0x30, &[&tlv(2, &[&[*serial]]), &time]))
        .collect();
    let revoked: Vec<_> = revoked.iter().map(Vec::as_slice).collect();
    let revoked = match revoked.as_slice() {
        [] => vec![],
        some => tlv(0x30, some),
    };
    let number = extension(&[0x55, 0x1d, 20], false, &tlv(2, &[&[1]]));
    let message = tlv(
        0x30,
        &[
            &tlv(2, &[&[1]]),
            &ecdsa(),
            issuer,
            &time,
            &tlv(0x17, &[next_update.as_bytes()]),
            &revoked,
            &tlv(0xa0, &[&tlv(0x30, &[&number])]),
        ],
    );
    signer.sign(&message)
}
