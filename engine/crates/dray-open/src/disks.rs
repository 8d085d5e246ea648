//! Folders of this host, one on each disk, as one source or destination
//! ([`dray_store::disks`]).

use crate::beneath::beneath;
use crate::store_kind::{Location, Looked, OpenedSink, OpenedSource, StoreKind, Writable};
use crate::targets::Targets;
use dray_core::options::Options;
use dray_core::url::{decode, encode, shown};
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_store::{DisksOptions, DisksStore, FileKind, Store, StoreExt};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

/// URL scheme of several disks.
const SCHEME: &str = "disks://";

/// The kind of store of several disks of this host.
pub(crate) struct Disks;

impl StoreKind for Disks {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn parse(&self, typed: &[u8]) -> Result<Option<Arc<dyn Location>>> {
        let Some(rest) = typed.strip_prefix(SCHEME.as_bytes()) else {
            return Ok(None);
        };
        let split = rest.windows(2).position(|pair| pair == b"//");
        let (dirs, path) = match split {
            Some(at) => (&rest[..at], &rest[at + 2..]),
            None => (rest, &b""[..]),
        };
        let malformed = |cause: String| {
            let cause = format!("{}: {cause}", shown(typed));
            usage(cause).remedy("write disks:///DIR,/DIR//PATH; write a comma in DIR as %2C")
        };
        let dir = |dir: &[u8]| {
            let trimmed = dir.strip_suffix(b"/").unwrap_or(dir);
            let dir = decode(trimmed).map_err(|cause| malformed(cause.to_owned()))?;
            let dir = PathBuf::from(OsString::from_vec(dir));
            match dir.is_absolute() {
                true => Ok(dir),
                false => Err(malformed(
                    "one of the folders in the URL is not an absolute path".to_owned(),
                )),
            }
        };
        let dirs: Result<Vec<PathBuf>> = dirs.split(|byte| *byte == b',').map(dir).collect();
        let trimmed = path.strip_suffix(b"/").unwrap_or(path);
        let is_folder = trimmed.len() < path.len() || path.is_empty();
        let decoded = decode(trimmed).map_err(|cause| malformed(cause.to_owned()))?;
        Ok(Some(Arc::new(DisksLocation {
            path: RelPath::parse(&decoded)?,
            is_folder,
            ..DisksLocation::new(dirs?, DisksOptions::default())
        })))
    }
}

fn usage(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run the command").cause(cause)
}

/// A path below the folders of several disks.
#[derive(Debug)]
pub(crate) struct DisksLocation {
    dirs: Vec<PathBuf>,
    path: RelPath,
    is_folder: bool,
    options: DisksOptions,
}

impl DisksLocation {
    /// Returns the location of the root of `dirs`, which are absolute paths.
    pub(crate) fn new(dirs: Vec<PathBuf>, options: DisksOptions) -> Self {
        Self {
            dirs,
            path: RelPath::root(),
            is_folder: true,
            options,
        }
    }

    fn dirs_in_words(&self) -> String {
        let encoded = |dir: &PathBuf| encode(dir.as_os_str().as_bytes()).replace(',', "%2C");
        let dirs: Vec<String> = self.dirs.iter().map(encoded).collect();
        format!("{SCHEME}{}", dirs.join(","))
    }

    fn open(&self, end: End) -> Result<DisksStore> {
        DisksStore::open(&self.dirs, end, &self.options)
    }

    fn at(&self, path: &RelPath, options: DisksOptions) -> Self {
        Self {
            dirs: self.dirs.clone(),
            path: path.clone(),
            is_folder: self.is_folder,
            options,
        }
    }
}

/// Returns the options of the disks that `targets` contains.
pub(crate) const fn options_of(targets: &Targets) -> DisksOptions {
    DisksOptions {
        direct: targets.direct,
        preallocates: targets.preallocates,
        shares_blocks: targets.shares_blocks,
        only_looks: false,
    }
}

impl Location for DisksLocation {
    fn words(&self) -> String {
        let slash = match self.is_folder && !self.path.is_root() {
            true => "/",
            false => "",
        };
        let path = encode(self.path.as_bytes());
        format!("{}//{path}{slash}", self.dirs_in_words())
    }

    fn path(&self) -> RelPath {
        self.path.clone()
    }

    fn is_folder(&self) -> bool {
        self.is_folder
    }

    fn top(&self) -> String {
        format!("{}//", self.dirs_in_words())
    }

    fn with_path(&self, path: &RelPath) -> Arc<dyn Location> {
        Arc::new(self.at(path, self.options))
    }

    fn identity(&self, end: End) -> String {
        let Self {
            dirs,
            path,
            is_folder,
            ..
        } = self;
        match end {
            End::Sink => format!("Disks({dirs:?}, {path:?})"),
            _ => format!("Disks({dirs:?}, {path:?}, contents: {is_folder})"),
        }
    }

    fn shared_store(&self) -> Option<String> {
        Some(self.dirs_in_words())
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.dirs.clone()
    }

    fn on_host(&self, targets: &Targets) -> Option<Arc<dyn Location>> {
        Some(Arc::new(self.at(&self.path, options_of(targets))))
    }

    fn open_source(&self, _is_compared: bool) -> Result<OpenedSource> {
        Ok(OpenedSource::of(Arc::new(self.open(End::Source)?)))
    }

    fn writable(&self) -> Result<&dyn Writable> {
        Ok(self)
    }
}

impl Writable for DisksLocation {
    fn refuse_options(&self, _options: &Options) -> Result<()> {
        Ok(())
    }

    fn is_swept(&self) -> bool {
        true
    }

    fn open_sink(&self) -> Result<OpenedSink> {
        let root = self.open(End::Sink)?;
        root.make_dirs(&self.path, dray_store::posix::default_folder_mode())?;
        let store: Arc<dyn Store> = Arc::new(root.open_folder(&self.path)?);
        Ok(OpenedSink {
            store,
            above: Some((Arc::new(root), self.path.clone())),
            owner: None,
        })
    }

    fn look(&self) -> Result<Looked> {
        let options = DisksOptions {
            only_looks: true,
            ..self.options
        };
        let root = DisksStore::open(&self.dirs, End::Sink, &options)?;
        let near: Arc<dyn Store> = Arc::new(root.clone());
        let exists = |top: &PathBuf| {
            let path = top.join(OsStr::from_bytes(self.path.as_bytes()));
            path.symlink_metadata().is_ok_and(|state| state.is_dir())
        };
        let store: Arc<dyn Store> = match root.stat(&self.path)?.map(|state| state.kind) {
            Some(FileKind::Directory) if self.dirs.iter().all(exists) => {
                Arc::new(root.open_folder(&self.path)?)
            }
            // Do not open the folder: that would create the folder on the disks that do not have
            // it.
            Some(FileKind::Directory) => beneath(Arc::clone(&near), self.path.clone()),
            _ => return Ok(Looked { near, folder: None }),
        };
        Ok(Looked {
            near: Arc::clone(&store),
            folder: Some(OpenedSink {
                store,
                above: Some((near, self.path.clone())),
                owner: None,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Disks;
    use crate::store_kind::StoreKind;
    use dray_core::End;

    #[test]
    fn urls_name_the_disks_and_a_path() {
        let read = |text: &str| Disks.parse(text.as_bytes()).expect("good").expect("disks");
        let file = read("disks:///mnt/a,/mnt/b%2Cc//run/x%20y");
        assert_eq!(file.path().as_bytes(), b"run/x y");
        assert!(!file.is_folder());
        assert_eq!(file.words(), "disks:///mnt/a,/mnt/b%2Cc//run/x y");
        assert_eq!(file.top(), "disks:///mnt/a,/mnt/b%2Cc//");
        let folder = read("disks:///mnt/a,/mnt/b//run/");
        assert!(folder.is_folder());
        assert_eq!(folder.words(), "disks:///mnt/a,/mnt/b//run/");
        for root in ["disks:///mnt/a,/mnt/b", "disks:///mnt/a/,/mnt/b//"] {
            let root = read(root);
            assert!(root.path().is_root() && root.is_folder());
        }
        assert_ne!(file.identity(End::Sink), folder.identity(End::Sink));
        assert_eq!(
            folder.shared_store(),
            read("disks:///mnt/a,/mnt/b").shared_store()
        );
        assert!(Disks.parse(b"/mnt/a,/mnt/b").expect("good").is_none());
        for wrong in [
            "disks://mnt/a",
            "disks:///a,b",
            "disks://",
            "disks:///a//x?y",
            "disks:///a//..",
        ] {
            Disks.parse(wrong.as_bytes()).expect_err(wrong);
        }
    }
}
