//! The storage targets of this host as configured, and stores that use them.

use super::RateInTime;
use crate::locations;
use dray_core::{End, Error, ErrorKind, Result};
use dray_runtime::assembly::Threads;
use dray_store::wrap::limit::LimitOptions;
use dray_store::{LinkScope, PosixOptions, PosixStore, Store, WrapOptions, wrap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Storage targets of this host, by folder, and their limits.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// Absolute folders and the names of the targets they lie on.
    pub folders: Vec<(PathBuf, String)>,
    /// Targets, with the maximum rate of each.
    pub limits: Vec<(String, RateInTime)>,
    /// True if large files bypass the page cache, where the file system permits it.
    pub direct: bool,
    /// True if the space of large files is allocated when they start, where the file system can do
    /// that.
    pub preallocates: bool,
    /// True if files may share blocks with their copies, where the file system can do that.
    pub shares_blocks: bool,
    /// Thread count of each target.
    pub threads: Threads,
}

impl Targets {
    /// Opens a store with these targets.
    ///
    /// # Errors
    /// As [`PosixStore::open`].
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
            ..PosixOptions::default()
        };
        Ok(self.limit(Arc::new(PosixStore::open(root, end, options)?)))
    }

    /// Refuses a limit of an unknown target: it would limit nothing.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] names the limit and the known targets.
    pub fn check_limits(&self) -> Result<()> {
        let is_named = |name: &str| self.folders.iter().any(|(_, other)| other == name);
        let unknown = |name: &&String| !is_named(name) && !name.starts_with("device ");
        let Some(name) = self.limits.iter().map(|(name, _)| name).find(unknown) else {
            return Ok(());
        };
        let known: Vec<&str> = self.folders.iter().map(|(_, name)| name.as_str()).collect();
        Err(
            Error::new(ErrorKind::InvalidRequest, End::Here, "limit the target")
                .cause(format!(
                    "no target is called {name:?}; known: {}",
                    known.join(", ")
                ))
                .remedy(
                    "name it with --target DIR=NAME, or limit a device by \"device MAJOR:MINOR\"",
                ),
        )
    }

    /// Wraps a store with the targets' limits.
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
