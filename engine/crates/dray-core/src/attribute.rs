//! Decides by name which extended attributes a transfer carries.
//!
//! The source lists no others, the sink accepts no others, and the store sets no others.

/// Attributes that users set without a privilege. Other namespaces (security, system, trusted)
/// belong to the host: a capability in one of them grants the rights of root.
const USER_PREFIX: &[u8] = b"user.";

/// dray's own attributes. They describe one file in one place.
const OWN_PREFIX: &[u8] = b"user.dray.";

/// Attributes that a storage system trusts when it reports about a file: XRootD's checksums and
/// other notes, StoRM's and EOS's checksums, and the layers of overlayfs.
const STORAGE_PREFIXES: [&[u8]; 5] = [
    b"user.Xrd",
    b"user.storm.",
    b"user.eos.",
    b"user.overlay.",
    b"user.fuseoverlayfs.",
];

/// Treatment of a file's attribute by a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeRule {
    /// It travels with the file when attributes are asked for.
    Carried,
    /// A storage system trusts it, so it does not travel. Earlier versions sent it.
    OfStorage,
    /// It belongs to the host or to dray. No version sends it.
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
