//! The configured storage targets of this host, and the stores that use them.

use super::RateInTime;
use crate::locations;
use dray_core::{End, Error, ErrorKind, Result};
use dray_runtime::assembly::Threads;
use dray_store::lustre::StripeChoice;
use dray_store::wrap::limit::LimitOptions;
use dray_store::{LinkScope, PosixOptions, PosixStore, Store, WrapOptions, wrap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Storage targets of this host, with their folders and limits.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// Absolute path of each folder, with the name of its storage target.
    pub folders: Vec<(PathBuf, String)>,
    /// Maximum rate of each storage target, by name.
    pub limits: Vec<(String, RateInTime)>,
    /// True if large files are read and written without the page cache, where the file system
    /// supports that.
    pub direct: bool,
    /// True if the space of a large file is allocated before its first write, where the file system
    /// supports that.
    pub preallocates: bool,
    /// True if a copy may share blocks with its source file, where the file system supports that.
    pub shares_blocks: bool,
    /// Lustre stripes of new files; `None` leaves the choice to the folder.
    pub stripes: Option<StripeChoice>,
    /// Extended attribute that is read instead of `lustre.lov`. For tests without Lustre.
    pub lustre_attribute: Option<String>,
    /// Number of threads of each storage target.
    pub threads: Threads,
}

impl Targets {
    /// Opens a store that has these storage targets.
    ///
    /// # Errors
    /// The errors of [`PosixStore::open`].
    pub fn open(
        &self,
        root: &Path,
        end: End,
        links: LinkScope,
        create: bool,
    ) -> Result<Arc<dyn Store>> {
        let options = PosixOptions {
            links,
            targets: locations::target_map(&self.folders, root)?,
            create,
            direct: self.direct,
            preallocates: self.preallocates,
            shares_blocks: self.shares_blocks,
            stripes: self.stripes.clone(),
            lustre_attribute: self.lustre_attribute.clone(),
            ..PosixOptions::default()
        };
        Ok(self.limit(Arc::new(PosixStore::open(root, end, options)?)))
    }

    /// Refuses a rate limit with an unknown target name, because it would have no effect.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`]; the error names the limit and the known targets.
    pub fn check_limits(&self) -> Result<()> {
        let is_named = |name: &str| self.folders.iter().any(|(_, other)| other == name);
        // The name of an OST may be the name of a file system and the OST's index.
        let is_ost = |name: &str| {
            let index = name
                .rsplit('-')
                .next()
                .and_then(|last| last.strip_prefix("OST"));
            index.is_some_and(|index| u16::from_str_radix(index, 16).is_ok())
        };
        let unknown =
            |name: &&String| !is_named(name) && !name.starts_with("device ") && !is_ost(name);
        let Some(name) = self.limits.iter().map(|(name, _)| name).find(unknown) else {
            return Ok(());
        };
        let known: Vec<&str> = self.folders.iter().map(|(_, name)| name.as_str()).collect();
        Err(Error::new(
            ErrorKind::InvalidRequest,
            End::Here,
            "limit the storage target",
        )
        .cause(format!(
            "no target has the name {name:?}; the targets are: {}",
            known.join(", ")
        ))
        .remedy(
            "name the target with --target DIR=NAME, or limit a device as \"device \
                        MAJOR:MINOR\"",
        ))
    }

    /// Returns a store that applies the rate limits of these targets to `store`.
    #[must_use]
    pub fn limit(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let limits = self.limits.iter();
        let limit = (!self.limits.is_empty()).then(|| LimitOptions {
            whole: None,
            targets: limits.cloned().collect(),
        });
        let wrapped = WrapOptions {
            limit,
            ..WrapOptions::default()
        };
        wrap(store, wrapped)
    }
}
