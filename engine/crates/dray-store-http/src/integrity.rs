//! Checksums in header fields: `Repr-Digest` (RFC 9530) and the older `Digest` (RFC 3230).
//!
//! dray requests both fields, because a server usually supports only one of them. Of the registered
//! algorithms, dray supports adler32 and crc32c. The two fields use different names and encodings
//! for adler32: `Digest: adler32=0a1b2c3d`, but `Repr-Digest: adler=:ChssPQ==:`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_core::Checksum;

/// Header fields that request the checksum of a file.
///
/// XRootD 6 ignores `Want-Repr-Digest` in a request that also has `Want-Digest`, and answers with
/// `Digest`.
pub(crate) const WANT: [(&str, &str); 2] = [
    ("Want-Digest", "adler32"),
    ("Want-Repr-Digest", "adler=10, crc32c=5"),
];

/// Returns the checksum in the fields of an answer. Prefers `Repr-Digest`, because `Digest` is
/// obsolete.
pub(crate) fn read_fields(repr_digest: Option<&str>, digest: Option<&str>) -> Option<Checksum> {
    let modern = repr_digest.and_then(read_repr_digest);
    modern.or_else(|| digest.and_then(read_digest))
}

/// Returns the first supported checksum in a field `Repr-Digest`: a dictionary of byte sequences
/// (RFC 9530, section 3; RFC 8941, section 3.2). Returns `None` if the field has no supported
/// algorithm, or is malformed.
#[must_use]
pub fn read_repr_digest(text: &str) -> Option<Checksum> {
    text.split(',').find_map(|member| {
        let (algorithm, value) = member.trim().split_once('=')?;
        let value = value.split(';').next()?.trim();
        let value = value.strip_prefix(':')?.strip_suffix(':')?;
        let bytes: [u8; 4] = STANDARD.decode(value).ok()?.try_into().ok()?;
        let value = u32::from_be_bytes(bytes);
        match algorithm.trim() {
            // The registered name is `adler`. XRootD also sends `adler32`.
            "adler" | "adler32" => Some(Checksum::Adler32(value)),
            "crc32c" => Some(Checksum::Crc32c(value)),
            _ => None,
        }
    })
}

/// Returns the value of a field `Repr-Digest` with this checksum.
pub(crate) fn repr_digest(checksum: Checksum) -> String {
    let (algorithm, value) = match checksum {
        Checksum::Adler32(value) => ("adler", value),
        Checksum::Crc32c(value) => ("crc32c", value),
    };
    format!("{algorithm}=:{}:", STANDARD.encode(value.to_be_bytes()))
}

/// Returns the adler32 in a list of digests (RFC 3230). The value has at most eight hexadecimal
/// digits.
fn read_digest(text: &str) -> Option<Checksum> {
    text.split(',').find_map(|one| {
        let (algorithm, value) = one.trim().split_once('=')?;
        let is_adler = algorithm.eq_ignore_ascii_case("adler32");
        is_adler.then(|| Checksum::parse(&format!("adler32:{}", value.trim())))?
    })
}

#[cfg(test)]
mod tests {
    use super::{read_digest, read_fields, read_repr_digest, repr_digest};
    use dray_core::Checksum;

    #[test]
    fn a_digest_is_read() {
        let adler = |value| Some(Checksum::Adler32(value));
        assert_eq!(read_digest("adler32=cc536433"), adler(0xcc53_6433));
        assert_eq!(read_digest("MD5=abc=, ADLER32=1"), adler(1));
        for nothing in ["", "md5=abc", "adler32", "adler32=xyz", "adler32="] {
            assert_eq!(read_digest(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_repr_digest_is_read() {
        let adler = Some(Checksum::Adler32(0x0a1b_2c3d));
        assert_eq!(read_repr_digest("adler=:ChssPQ==:"), adler);
        assert_eq!(read_repr_digest("adler32=:ChssPQ==:"), adler);
        assert_eq!(
            read_repr_digest("sha-256=:AAAA:, adler=:ChssPQ==:;x=1"),
            adler
        );
        assert_eq!(
            read_repr_digest("crc32c=:ChssPQ==:"),
            Some(Checksum::Crc32c(0x0a1b_2c3d))
        );
        for nothing in [
            "",
            "adler",
            "adler=ChssPQ==",
            "adler=:ChssPQ==",
            "adler=:Chss:",
            "adler=:ChssPQ=!:",
            "Adler=:ChssPQ==:",
            "md5=:ChssPQ==:",
        ] {
            assert_eq!(read_repr_digest(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_written_repr_digest_is_read_back() {
        for checksum in [Checksum::Adler32(1), Checksum::Crc32c(u32::MAX)] {
            assert_eq!(read_repr_digest(&repr_digest(checksum)), Some(checksum));
        }
    }

    #[test]
    fn the_older_field_is_used_only_without_the_newer_one() {
        let both = read_fields(Some("adler=:AAAAAQ==:"), Some("adler32=2"));
        assert_eq!(both, Some(Checksum::Adler32(1)));
        let old = read_fields(Some("sha-256=:AAAA:"), Some("adler32=2"));
        assert_eq!(old, Some(Checksum::Adler32(2)));
        assert_eq!(read_fields(None, None), None);
    }
}
