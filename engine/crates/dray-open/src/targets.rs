//! The configured storage targets of this host, and the stores that use them.

use dray_core::{End, Error, ErrorKind, LogChoice, RelPath, Result, StripeChoice};
use dray_runtime::assembly::Threads;
use dray_store::wrap::limit::{LimitOptions, TargetLimits};
use dray_store::{LinkScope, PosixOptions, PosixStore, Store, TargetMap, WrapOptions, wrap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Storage targets of this host, with their folders and limits.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// Absolute path of each folder, with the name of its storage target.
    pub folders: Vec<(PathBuf, String)>,
    /// Maximum rate of each storage target, by name. All stores of these targets and of their clones
    /// share the rate.
    pub limits: TargetLimits,
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
    /// Requested object log of a copy to this host; `None` for a stored log of the default form.
    pub log: Option<LogChoice>,
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
            targets: target_map(&self.folders, root)?,
            create,
            direct: self.direct,
            preallocates: self.preallocates,
            shares_blocks: self.shares_blocks,
            stripes: self.stripes,
            lustre_attribute: self.lustre_attribute.clone(),
            ..PosixOptions::default()
        };
        Ok(self.limit(Arc::new(PosixStore::open(root, end, options)?)))
    }

    /// Returns these targets with the stripes that a transfer requests. Without a request, the
    /// stripes stay as they are.
    #[must_use]
    pub fn with_stripes(&self, stripes: Option<StripeChoice>) -> Self {
        Self {
            stripes: stripes.or(self.stripes),
            ..self.clone()
        }
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
            |name: &&str| !is_named(name) && !name.starts_with("device ") && !is_ost(name);
        let Some(name) = self.limits.names().find(unknown) else {
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
            "name the target with --target DIR=NAME, or write a device as \"device \
                        MAJOR:MINOR\"",
        ))
    }

    /// Returns a store that applies the rate limits of these targets to `store`.
    #[must_use]
    pub fn limit(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let limit = (!self.limits.is_empty()).then(|| LimitOptions {
            whole: None,
            targets: self.limits.clone(),
        });
        let wrapped = WrapOptions {
            limit,
            ..WrapOptions::default()
        };
        wrap(store, wrapped)
    }
}

/// Returns the storage targets of a store at `root`: the targets of folders below `root`, and the
/// target of the nearest folder that contains `root`.
pub(crate) fn target_map(targets: &[(PathBuf, String)], root: &Path) -> Result<TargetMap> {
    let mut folders = Vec::new();
    let mut around: Option<&(PathBuf, String)> = None;
    for target in targets {
        let (folder, name) = target;
        if let Ok(below) = folder.strip_prefix(root) {
            folders.push((RelPath::parse(below.as_os_str().as_bytes())?, name.clone()));
        } else if root.starts_with(folder)
            && around.is_none_or(|(other, _)| folder.starts_with(other))
        {
            around = Some(target);
        }
    }
    if let (Some((_, name)), false) = (around, folders.iter().any(|(path, _)| path.is_root())) {
        folders.push((RelPath::root(), name.clone()));
    }
    Ok(TargetMap::new(folders))
}

#[cfg(test)]
mod tests {
    use super::{Targets, target_map};
    use crate::export::Export;
    use dray_core::rate::BytesPerSecond;
    use dray_core::{Name, RelPath};
    use dray_store::PartialRequest;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    #[test]
    fn targets_as_a_root_sees_them() {
        let given = |folder: &str, name: &str| (PathBuf::from(folder), name.to_owned());
        let targets = [given("/d/in/slow", "s"), given("/d", "d"), given("/x", "x")];
        let map = target_map(&targets, Path::new("/d/in")).expect("good");
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("good");
        assert_eq!(map.name_of(&path("slow/a")), Some("s"));
        assert_eq!(map.name_of(&path("a")), Some("d"));
    }

    #[test]
    fn the_sessions_of_a_root_share_the_rate_of_a_target() {
        let folder = tempfile::tempdir().expect("a folder");
        let limit = ("slow".to_owned(), BytesPerSecond(500_000).into());
        let targets = Targets {
            folders: vec![(folder.path().to_owned(), "slow".to_owned())],
            limits: std::iter::once(limit).collect(),
            ..Targets::default()
        };
        let export = Export::open(folder.path().to_owned(), targets).expect("a root");
        // With `setuid`, each session opens the root anew.
        let anew = export.anew().expect("a root");
        let began = Instant::now();
        std::thread::scope(|scope| {
            for (number, export) in [&export, &anew].into_iter().enumerate() {
                scope.spawn(move || {
                    let path = RelPath::parse(format!("file{number}").as_bytes());
                    let request = PartialRequest {
                        name: Name::new(format!(".dray-{number}").as_bytes()).expect("a name"),
                        reuse: None,
                    };
                    let partial = export
                        .store()
                        .begin(&path.expect("a path"), 100_000, &request);
                    let partial = partial.expect("begun");
                    partial.write_at(0, &[1; 100_000]).expect("written");
                });
            }
        });
        // 200 000 bytes at 500 KB/s take 400 ms, minus one burst of 20 ms.
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(370), "{took:?}");
    }
}
