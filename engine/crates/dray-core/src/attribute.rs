//! Decides which extended attributes a transfer copies. The decision depends only on the name of
//! the attribute.
//!
//! The source lists only attributes that may be copied. The sink drops attributes that a storage
//! system trusts, and rejects entries with reserved attributes. The store refuses reserved
//! attributes too.

/// Prefix of the attributes that a user may set without privileges. The other namespaces (security,
/// system, trusted) belong to the host. An attribute in another namespace can grant rights:
/// `security.capability` can give a program rights of root.
const USER_PREFIX: &[u8] = b"user.";

/// Prefix of dray's own attributes. Such an attribute describes one file on one storage system, so
/// it must not be copied.
const OWN_PREFIX: &[u8] = b"user.dray.";

/// Prefixes of attributes that a storage system trusts when it reports about a file: XRootD's
/// checksums and other notes, StoRM's and EOS's checksums, and the layers of overlayfs.
const STORAGE_PREFIXES: [&[u8]; 5] = [
    b"user.Xrd",
    b"user.storm.",
    b"user.eos.",
    b"user.overlay.",
    b"user.fuseoverlayfs.",
];

/// Name of the attribute in which a source sends the Lustre stripes of a file to the sink. The
/// source generates the value of this attribute. No store writes this attribute to a file.
pub const STRIPES_NAME: &[u8] = b"user.lustre.stripes";

/// Says whether a transfer copies an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeRule {
    /// The attribute is copied with the file if the request asks for attributes.
    Carried,
    /// The attribute is not copied, because a storage system trusts its value. Earlier versions of
    /// dray sent such attributes.
    OfStorage,
    /// The attribute is not copied, because it belongs to the host or to dray. No version of dray
    /// sends such attributes.
    Reserved,
}

/// Returns the rule for an attribute of this name.
#[must_use]
pub fn attribute_rule(name: &[u8]) -> AttributeRule {
    if !name.starts_with(USER_PREFIX) || name.starts_with(OWN_PREFIX) {
        AttributeRule::Reserved
    } else if STORAGE_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
    {
        AttributeRule::OfStorage
    } else {
        AttributeRule::Carried
    }
}

#[cfg(test)]
mod tests {
    use super::{AttributeRule, attribute_rule};

    #[test]
    fn only_what_users_set_travels() {
        for name in ["user.note", "user.", "user.dray", "user.xrd"] {
            assert_eq!(attribute_rule(name.as_bytes()), AttributeRule::Carried);
        }
        for name in ["user.XrdCks.adler32", "user.storm.checksum.adler32"] {
            assert_eq!(attribute_rule(name.as_bytes()), AttributeRule::OfStorage);
        }
        for name in [
            "",
            "User.note",
            "security.capability",
            "security.ima",
            "system.posix_acl_access",
            "trusted.overlay.opaque",
            "user.dray.sums",
        ] {
            assert_eq!(attribute_rule(name.as_bytes()), AttributeRule::Reserved);
        }
    }
}
