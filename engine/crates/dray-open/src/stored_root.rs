//! An exported root that is a folder in a store that a URL names.

use crate::beneath::{below, beneath};
use crate::registry::Registry;
use crate::store_kind::{Location, OpenedSource, Writable, writable_with};
use crate::swept::walk_root;
use crate::targets::Targets;
use dray_core::options::Options;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_runtime::sweep::WalkRoot;
use dray_store::{Capabilities, FileKind, Store};
use std::path::PathBuf;
use std::sync::Arc;

/// A folder in a store. Calls of the API use `store`. Each transfer opens the store again.
pub(crate) struct StoredRoot {
    location: Arc<dyn Location>,
    pub(crate) store: Arc<dyn Store>,
    is_read_only: bool,
    targets: Targets,
}

impl StoredRoot {
    /// Opens the folder that `url` names. A writable store must be able to hold object logs,
    /// because the log of a transfer lies beside its data.
    pub(crate) fn open(url: &str, is_read_only: bool, targets: Targets) -> Result<Self> {
        let location = Registry::default().keeping().parse(url.as_bytes())?;
        if url.starts_with("dray://") {
            return Err(wrong(
                "a root cannot be at another endpoint (dray://), because an endpoint offers no \
                 calls to delete, compare and list the root's files",
            )
            .remedy(
                "mount the storage on this host and give its path, or submit transfers to copy \
                 to the other endpoint",
            ));
        }
        let location = location.ok_or_else(|| {
            wrong("dray supports no storage system with URLs of this form").remedy(
                "write root://HOST//PATH or rados://POOL/PATH; with `read_only = true` also \
                    https://HOST/PATH or gsiftp://HOST/PATH",
            )
        })?;
        if !location.folders().is_empty() {
            return Err(
                wrong("the URL of a root must not name folders of this host")
                    .remedy("give the folders in the setting `dirs`, not in the URL"),
            );
        }
        Self::open_at(location, is_read_only, targets)
    }

    /// Opens the folder at `location`.
    pub(crate) fn open_at(
        location: Arc<dyn Location>,
        is_read_only: bool,
        targets: Targets,
    ) -> Result<Self> {
        let writable = match is_read_only {
            true => None,
            false => {
                let read_only = |error: Error| error.remedy("set `read_only = true` for this root");
                Some(location.writable().map_err(read_only)?)
            }
        };
        let read = source(&location)?;
        match read.stat(&RelPath::root())?.map(|state| state.kind) {
            Some(FileKind::Directory) => {}
            found => {
                let what = found.map_or("does not exist", |_| "is not a folder");
                return Err(wrong(format!("{} {what}", location.words()))
                    .remedy("create the folder at the storage server, or choose another folder"));
            }
        }
        let store = match writable {
            None => read,
            Some(writable) => {
                // `open_sink` would make a missing folder. The `match` above has already refused a
                // missing folder.
                let store = writable.open_sink()?.store;
                refuse_lacking(&location.words(), &store.capabilities())?;
                store
            }
        };
        Ok(Self {
            store: targets.limit(store),
            location,
            is_read_only,
            targets,
        })
    }

    /// Returns the folders of this host in which the store has its files.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.location.folders()
    }

    /// Returns the URL, without secrets.
    pub(crate) fn words(&self) -> String {
        self.location.words()
    }

    /// Returns the object size that suits the store; see [`Location::object_bytes`].
    pub(crate) fn object_bytes(&self) -> Option<u64> {
        self.location.object_bytes()
    }

    /// Returns the folders that a sweep walks. Returns `None` if a sweep cannot search the store.
    pub(crate) fn walk_root(&self) -> Result<Option<WalkRoot>> {
        if self.is_read_only || !self.location.writable().is_ok_and(Writable::is_swept) {
            return Ok(None);
        }
        let in_store = || Ok(WalkRoot::in_store(Arc::clone(&self.store), None));
        walk_root(self.location.as_ref(), in_store).map(Some)
    }

    fn writable(&self) -> Result<&dyn Writable> {
        if self.is_read_only {
            let error = Error::new(ErrorKind::ReadOnly, End::Sink, "write to the root");
            return Err(error
                .cause(format!("{} is read-only", self.words()))
                .remedy("choose another destination"));
        }
        self.location.writable()
    }

    /// Refuses transfer options that the store does not support.
    pub(crate) fn refuse_options(&self, options: &Options) -> Result<()> {
        self.writable()?;
        writable_with(&self.location, options).map(|_| ())
    }

    /// Opens a folder below the root for writing.
    pub(crate) fn sink(&self, folder: &RelPath) -> Result<Arc<dyn Store>> {
        self.writable()?;
        let at = self
            .location
            .with_path(&below(&self.location.path(), folder)?);
        let opened = at.writable()?.open_sink()?;
        Ok(self.targets.limit(opened.store))
    }

    /// Opens the root as a store for reading.
    pub(crate) fn source(&self) -> Result<Arc<dyn Store>> {
        Ok(self.targets.limit(source(&self.location)?))
    }
}

fn source(location: &Arc<dyn Location>) -> Result<Arc<dyn Store>> {
    let OpenedSource { store, .. } = location.open_source(false)?;
    Ok(beneath(store, location.path()))
}

/// Refuses a store that lacks a capability which a writable root needs.
fn refuse_lacking(words: &str, can: &Capabilities) -> Result<()> {
    let lacks = [
        (
            can.can_hold_log,
            "store the log of a transfer beside its data",
        ),
        (can.atomic_rename, "rename a finished file in one step"),
        (can.publish_replace, "replace a file"),
    ];
    let Some((_, what)) = lacks.iter().find(|(has, _)| !has) else {
        return Ok(());
    };
    Err(wrong(format!("{words}: the storage system cannot {what}"))
        .remedy("set `read_only = true` for this root, or choose a folder of this host"))
}

fn wrong(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "open the root").cause(cause)
}
