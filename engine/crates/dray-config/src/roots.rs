//! The exported roots: finds the folder for a root's name, and contains the root's rules.

use crate::{Config, Owners, Tier};
use dray_api::api_path::ApiPath;
use dray_core::rate::BytesPerSecond;
use dray_core::{End, Error, ErrorKind, LogChoice, RelPath, Result};
use dray_open::export::Export;
use dray_open::prepare::Targets;
use dray_store::Store;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open exported root.
pub struct Root {
    name: String,
    /// The folder of the root. The export opens no file outside this folder.
    pub export: Export,
    /// Owners who may read.
    pub read: Option<Owners>,
    /// Owners who may write.
    pub write: Option<Owners>,
    /// Owners who may stage.
    pub stage: Option<Owners>,
    /// True if no caller may change anything in the root.
    pub is_read_only: bool,
    /// True if transfers that read the root record their listings.
    pub records_listings: bool,
    /// Tier of the root in staging.
    pub tier: Option<Tier>,
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Root({} at {})", self.name, self.export.words())
    }
}

impl Root {
    /// Returns the root's name, the first part of an API path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the absolute path of the root's folder, with all symbolic links resolved. Returns
    /// `None` if the root is not a folder of this host.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.export.path()
    }

    /// Returns the object size in bytes that suits the storage system of the root. Returns `None` if
    /// the default size suits it.
    #[must_use]
    pub fn object_bytes(&self) -> Option<u64> {
        self.export.object_bytes()
    }

    /// Opens the same root again under the account of the calling thread.
    ///
    /// # Errors
    /// The errors of [`Export::anew`].
    pub fn anew(&self) -> Result<Self> {
        Ok(Self {
            name: self.name.clone(),
            export: self.export.anew()?,
            read: self.read.clone(),
            write: self.write.clone(),
            stage: self.stage.clone(),
            is_read_only: self.is_read_only,
            records_listings: self.records_listings,
            tier: self.tier,
        })
    }

    /// Returns the whole root as a store that follows no links.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        self.export.store()
    }

    /// Opens the entry at `path`, without following any link.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn beneath(&self, path: &RelPath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        self.export.beneath(path, flags)
    }
}

/// All exported roots.
#[derive(Debug, Clone)]
pub struct Roots(Arc<[Arc<Root>]>);

impl Roots {
    /// Opens the roots of the configuration.
    ///
    /// # Errors
    /// If a folder does not exist or cannot be opened. If two roots have the same name, or their
    /// folders overlap. The error names the root.
    pub fn open(config: &Config) -> Result<Self> {
        let mut roots: Vec<Arc<Root>> = Vec::with_capacity(config.root.len());
        for root in &config.root {
            let name = root.name.as_str();
            if roots.iter().any(|other| other.name == name) {
                let cause = format!("two roots are named {name:?}");
                return Err(wrong(name, cause, "give each root a different name"));
            }
            let export = match (&root.path, &root.store) {
                (_, Some(url)) => open_store(root, url)?,
                (Some(path), None) => open_folder(root, path, &roots)?,
                (None, None) if !root.dirs.is_empty() => open_disks(root, &roots)?,
                // The check of the configuration excludes this case.
                (None, None) => {
                    return Err(wrong(
                        name,
                        "the root has no path".to_owned(),
                        "give the \
                    root a path or a store",
                    ));
                }
            };
            roots.push(Arc::new(Root {
                name: name.to_owned(),
                export: export.called(&format!("/{name}/")),
                read: root.read.clone(),
                write: root.write.clone(),
                stage: root.stage.clone(),
                is_read_only: root.read_only,
                records_listings: root.listing_checkpoint,
                tier: root.tier,
            }));
        }
        Ok(Self(roots.into()))
    }

    /// Returns the root called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none.
    pub fn named(&self, name: &str) -> Result<&Arc<Root>> {
        self.0.iter().find(|root| root.name == name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, End::Here, "find the root")
                .cause(format!("this endpoint exports no root {:?}", shown(name)))
                .remedy("GET /v1/endpoint lists the roots")
        })
    }

    /// Returns the root of a path.
    ///
    /// # Errors
    /// The errors of [`Roots::named`].
    pub fn find(&self, path: &ApiPath) -> Result<&Arc<Root>> {
        self.named(&path.root)
    }

    /// Returns all roots, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Root>> {
        self.0.iter()
    }

    /// Returns the first root of a staging tier.
    #[must_use]
    pub fn of_tier(&self, tier: Tier) -> Option<&Arc<Root>> {
        self.iter().find(|root| root.tier == Some(tier))
    }

    /// Splits the path of a session, `/ROOT/PATH` as bytes, into the root and the path below it.
    /// Keeps a slash at the end, because [`Export`] needs it to recognize a folder.
    ///
    /// # Errors
    /// The errors of [`Roots::named`].
    pub fn split<'p>(&self, path: &'p [u8]) -> Result<(&Arc<Root>, &'p [u8])> {
        let whole = path.strip_prefix(b"/").unwrap_or(path);
        let end = whole.iter().position(|byte| *byte == b'/');
        let (name, rest) = match end {
            Some(end) => (&whole[..end], &whole[end + 1..]),
            None => (whole, &whole[whole.len()..]),
        };
        let root = self.named(&String::from_utf8_lossy(name))?;
        Ok((root, rest))
    }
}

/// Converts a path of a session to a path of the API, for permissions and for messages.
///
/// # Errors
/// The errors of [`RelPath::parse`].
pub fn api_path(root: &Root, below: &[u8]) -> Result<ApiPath> {
    let trimmed = below.strip_suffix(b"/").unwrap_or(below);
    let path = RelPath::parse(trimmed)?;
    Ok(ApiPath {
        root: root.name.clone(),
        is_folder: below.ends_with(b"/") || path.is_root(),
        path,
    })
}

/// Opens a root that is a folder of this host. The folder must not overlap with any of `others`.
fn open_folder(root: &crate::Root, path: &Path, others: &[Arc<Root>]) -> Result<Export> {
    let name = root.name.as_str();
    let path = path.canonicalize().map_err(|error| {
        let cause = format!("{}: {error}", path.display());
        wrong(name, cause, "create the folder, or choose another folder")
    })?;
    refuse_overlap(name, &path, others)?;
    Export::open(path.clone(), targets_of(root, &path))
}

/// Opens a root of several folders of this host, one on each disk.
fn open_disks(root: &crate::Root, others: &[Arc<Root>]) -> Result<Export> {
    let name = root.name.as_str();
    for dir in &root.dirs {
        let real = dir.canonicalize().map_err(|error| {
            let cause = format!("{}: {error}", dir.display());
            wrong(name, cause, "mount the disk, or create the folder")
        })?;
        refuse_overlap(name, &real, others)?;
    }
    let targets = targets_of(root, Path::new("/"));
    Export::open_disks(&root.dirs, root.read_only, targets).map_err(|error| Error {
        operation: format!("open the root {name:?}"),
        ..error
    })
}

/// Refuses a folder that overlaps with a folder of another root.
fn refuse_overlap(name: &str, path: &Path, others: &[Arc<Root>]) -> Result<()> {
    let overlaps = |other: &&Arc<Root>| {
        let folders = other.export.folders();
        let real = |other: PathBuf| other.canonicalize().unwrap_or(other);
        let mut folders = folders.into_iter().map(real);
        folders.any(|other| path.starts_with(&other) || other.starts_with(path))
    };
    if let Some(other) = others.iter().find(overlaps) {
        // A path in two overlapping roots would be subject to two sets of rules, and a caller could
        // choose the weaker rules. A copy from one root to the other could read the files that it
        // has written. The eviction of a fast copy could delete the original.
        let cause = format!(
            "the folder of this root overlaps with the folder of the root {:?}",
            other.name()
        );
        return Err(wrong(name, cause, "give each root a separate folder"));
    }
    Ok(())
}

/// Returns the storage targets of a root on this host. The folder of the root is `path`.
fn targets_of(root: &crate::Root, path: &Path) -> Targets {
    let folder = |target: &crate::TargetFolder| {
        // `join` leaves an absolute folder unchanged.
        (path.join(&target.folder), target.target.clone())
    };
    let limit =
        |limit: &crate::TargetLimit| (limit.target.clone(), BytesPerSecond(limit.rate).into());
    Targets {
        folders: root.targets.iter().map(folder).collect(),
        limits: root.limit_targets.iter().map(limit).collect(),
        direct: root.direct_io,
        preallocates: root.preallocate,
        shares_blocks: false,
        stripes: root.stripe,
        lustre_attribute: None,
        threads: root.threads.0,
        log: root.log.map(LogChoice::Stored),
    }
}

/// Opens a root that is a folder in a store that a URL names.
fn open_store(root: &crate::Root, url: &str) -> Result<Export> {
    let targets = Targets {
        threads: root.threads.0,
        ..Targets::default()
    };
    Export::open_stored(url, root.read_only, targets).map_err(|error| Error {
        operation: format!("open the root {:?}", root.name.as_str()),
        ..error
    })
}

/// Returns at most the first 64 characters of a text that a caller sent.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

fn wrong(name: &str, cause: String, remedy: &str) -> Error {
    let operation = format!("open the root {name:?}");
    Error::new(ErrorKind::InvalidRequest, End::Here, operation)
        .cause(cause)
        .remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::Roots;
    use crate::Config;

    #[test]
    fn roots_that_overlap_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["slow/cache", "slower", "fast"] {
            std::fs::create_dir_all(folder.path().join(name)).expect("made");
        }
        std::os::unix::fs::symlink("slow/cache", folder.path().join("link")).expect("linked");
        let open = |slow: &str, fast: &str, tier: &str| {
            let at = folder.path().display();
            let text = format!(
                "name = \"a\"\nstate = \"{at}/state\"\n\
                 [[root]]\nname = \"slow\"\npath = \"{at}/{slow}\"\ntier = \"slow\"\n\
                 [[root]]\nname = \"fast\"\npath = \"{at}/{fast}\"\n{tier}\n"
            );
            Roots::open(&Config::parse("test", &text).expect("good"))
        };
        let is_fast = "tier = \"fast\"";
        // Each pair of folders overlaps: nested in both orders, identical, or through a link.
        for (slow, fast) in [
            ("slow", "slow/cache"),
            ("slow/cache", "slow"),
            ("slow", "slow"),
            ("slow", "link"),
        ] {
            for tier in [is_fast, ""] {
                let error = open(slow, fast, tier).expect_err("they overlap");
                let said = error.to_string();
                assert!(
                    said.contains("\"fast\"") && said.contains("overlap"),
                    "{said}"
                );
            }
        }
        open("slow", "fast", is_fast).expect("apart");
        // A common prefix of two names is not an overlap.
        open("slow", "slower", "").expect("apart");
    }
}
