//! URL of a file or folder in a pool.

use dray_core::{End, Error, ErrorKind, RelPath, Result, plan};
use std::fmt;
use std::path::PathBuf;

/// The URL scheme with its separator.
pub const SCHEME: &str = "rados://";

/// Largest object size in bytes that [`FileLayout::transfer_bytes`] returns. A larger object needs
/// larger buffers, and a fault loses more of its bytes.
const TRANSFER_BYTES_MAX: u64 = 4 << 20;

/// Layout of new files. The default is the layout that XrdCeph and `rados --striper` use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileLayout {
    /// Maximum size of an object in bytes.
    pub object_size: u64,
    /// Number of consecutive bytes of a file in one object.
    pub stripe_unit: u64,
    /// Number of objects over which consecutive units are spread.
    pub stripe_count: u64,
}

impl Default for FileLayout {
    fn default() -> Self {
        Self {
            object_size: 4 << 20,
            stripe_unit: 4 << 20,
            stripe_count: 1,
        }
    }
}

impl FileLayout {
    /// Returns the object size in bytes that a transfer should use with this layout: the stripe
    /// unit, but at least [`plan::OBJECT_BYTES_DEFAULT`] and at most 4 MiB. With the default
    /// layout, one write fills an object of the pool.
    #[must_use]
    pub fn transfer_bytes(&self) -> u64 {
        self.stripe_unit
            .clamp(plan::OBJECT_BYTES_DEFAULT, TRANSFER_BYTES_MAX)
    }
}

/// Access to a cluster: the parameters of a URL that are not part of the name of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// Configuration file of Ceph; `None` for the file that the Ceph tools use (`CEPH_CONF`).
    pub conf: Option<PathBuf>,
    /// Name of the Ceph user without `client.`; `None` for `admin`.
    pub user: Option<String>,
    /// Keyring file; `None` for the keyring in the configuration file.
    pub keyring: Option<PathBuf>,
}

/// URL of a file or folder: `rados://POOL[@NAMESPACE]/PATH[?PARAMETERS]`.
///
/// The parameters are `conf`, `user` and `keyring` ([`Access`]), and `object_size`, `stripe_unit`
/// and `stripe_count` ([`FileLayout`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Name of the pool.
    pub pool: String,
    /// Namespace in the pool; the empty text is the default namespace.
    pub namespace: String,
    /// True if the names of files begin with a slash (`rados://POOL//PATH`).
    pub is_absolute: bool,
    /// Path in the namespace, without a leading slash.
    pub path: RelPath,
    /// Access to the cluster.
    pub access: Access,
    /// Layout of new files.
    pub layout: FileLayout,
}

/// Suffix of the namespace that holds the objects which are not files.
const STATE_SUFFIX: &str = ".dray";

fn bad(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "read the URL")
        .cause(why)
        .remedy("write the URL as rados://POOL[@NAMESPACE]/PATH")
}

impl Url {
    /// Returns true if `text` starts with the scheme.
    #[must_use]
    pub fn is_meant(text: &[u8]) -> bool {
        text.starts_with(SCHEME.as_bytes())
    }

    /// Returns the namespace of the objects that are not files.
    pub(crate) fn state_namespace(&self) -> String {
        format!("{}{STATE_SUFFIX}", self.namespace)
    }

    /// Parses a URL. The path may contain any bytes except zero and a question mark.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`].
    pub fn parse(whole: &[u8]) -> Result<Self> {
        if whole.contains(&0) {
            return Err(bad("the URL contains a zero byte"));
        }
        let rest = whole.strip_prefix(SCHEME.as_bytes());
        let rest = rest.ok_or_else(|| bad("the URL does not begin with rados://"))?;
        let end = rest.iter().position(|byte| *byte == b'?');
        let (place, parameters) = rest.split_at(end.unwrap_or(rest.len()));
        let at = place.iter().position(|byte| *byte == b'/');
        let (head, path) = place.split_at(at.unwrap_or(place.len()));
        let head = std::str::from_utf8(head).map_err(|_| bad("the pool is not UTF-8 text"))?;
        let (pool, namespace) = head.split_once('@').unwrap_or((head, ""));
        if pool.is_empty() {
            return Err(bad("the URL has no pool"));
        }
        let path = path.get(1..).unwrap_or_default();
        let relative = path.strip_prefix(b"/");
        let trimmed = relative.unwrap_or(path);
        let trimmed = trimmed.strip_suffix(b"/").unwrap_or(trimmed);
        let path = match trimmed {
            b"" => RelPath::root(),
            _ => RelPath::parse(trimmed)?,
        };
        let mut url = Self {
            pool: pool.to_owned(),
            namespace: namespace.to_owned(),
            is_absolute: relative.is_some(),
            path,
            access: Access::default(),
            layout: FileLayout::default(),
        };
        let parameters = std::str::from_utf8(parameters.get(1..).unwrap_or_default());
        let parameters = parameters.map_err(|_| bad("the parameters are not UTF-8 text"))?;
        for parameter in parameters.split('&').filter(|one| !one.is_empty()) {
            url.set(parameter)?;
        }
        url.layout.check()?;
        Ok(url)
    }

    fn set(&mut self, parameter: &str) -> Result<()> {
        let known = "use only the parameters `conf`, `user`, `keyring`, `object_size`, \
            `stripe_unit` and `stripe_count`";
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if value.is_empty() {
            return Err(bad(format!("the parameter {name} has no value")));
        }
        let number = || {
            let number = value.parse::<u64>();
            number.map_err(|_| bad(format!("{name}={value}: the value is not a whole number")))
        };
        match name {
            "conf" => self.access.conf = Some(value.into()),
            "user" => self.access.user = Some(value.to_owned()),
            "keyring" => self.access.keyring = Some(value.into()),
            "object_size" => self.layout.object_size = number()?,
            "stripe_unit" => self.layout.stripe_unit = number()?,
            "stripe_count" => self.layout.stripe_count = number()?,
            _ => return Err(bad(format!("unknown parameter {name}")).remedy(known)),
        }
        Ok(())
    }

    /// Returns the URL of another path in the same namespace.
    #[must_use]
    pub fn with_path(&self, path: &RelPath) -> Self {
        Self {
            path: path.clone(),
            ..self.clone()
        }
    }

    /// Returns the URL without path and parameters, with the separator before a path.
    #[must_use]
    pub fn top(&self) -> String {
        let Self {
            pool, namespace, ..
        } = self;
        let at = if namespace.is_empty() { "" } else { "@" };
        let slash = if self.is_absolute { "/" } else { "" };
        format!("{SCHEME}{pool}{at}{namespace}/{slash}")
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.top(), self.path)
    }
}

/// Sizes in a layout must be multiples of this number of bytes (libradosstriper).
const GRAIN_BYTES: u64 = 64 << 10;

/// Maximum size of an object. Publishing a file writes its first object in one operation, and an
/// OSD refuses operations of more than 90 MB (`osd_max_write_size`).
pub const OBJECT_BYTES_MAX: u64 = 64 << 20;

/// Maximum stripe count of a new file, which bounds the number of objects that one read uses.
const COUNT_MAX: u64 = 4096;

impl FileLayout {
    /// Checks the rules of libradosstriper for the layout of new files.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`].
    pub fn check(&self) -> Result<()> {
        let Self {
            object_size,
            stripe_unit,
            stripe_count,
        } = *self;
        let is_grained = |bytes: u64| {
            bytes > 0 && bytes <= OBJECT_BYTES_MAX && bytes.is_multiple_of(GRAIN_BYTES)
        };
        let is_good = is_grained(object_size)
            && is_grained(stripe_unit)
            && object_size.is_multiple_of(stripe_unit)
            && (1..=COUNT_MAX).contains(&stripe_count);
        match is_good {
            true => Ok(()),
            false => Err(bad(format!(
                "object_size={object_size}, stripe_unit={stripe_unit}, \
                 stripe_count={stripe_count} is not a layout of libradosstriper"
            ))
            .remedy(
                "give `object_size` and `stripe_unit` as multiples of 65536 up to 64 MiB, \
                 `object_size` as a multiple of `stripe_unit`, and `stripe_count` from 1 to 4096",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Url;

    #[test]
    fn a_url_names_pool_namespace_and_path() {
        let url = Url::parse(b"rados://bulk@ns//d/e/f?user=me&stripe_count=4").expect("good");
        assert_eq!((url.pool.as_str(), url.namespace.as_str()), ("bulk", "ns"));
        assert!(url.is_absolute);
        assert_eq!(url.path.as_bytes(), b"d/e/f");
        assert_eq!(url.access.user.as_deref(), Some("me"));
        assert_eq!(url.layout.stripe_count, 4);
        assert_eq!(url.to_string(), "rados://bulk@ns//d/e/f");
        let url = Url::parse(b"rados://bulk/a/").expect("good");
        assert!(!url.is_absolute);
        assert_eq!(url.path.as_bytes(), b"a");
        assert_eq!(url.to_string(), "rados://bulk/a");
        assert!(Url::parse(b"rados://bulk").expect("good").path.is_root());
    }

    #[test]
    fn malformed_urls_are_refused() {
        for bad in [
            "rados:///a",
            "rados://p/a/../b",
            "rados://p/a?x=1",
            "rados://p/a?user",
            "rados://p/a?stripe_unit=5",
            "rados://p/a?object_size=134217728",
            "rados://p/a?stripe_count=0",
        ] {
            assert!(Url::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
