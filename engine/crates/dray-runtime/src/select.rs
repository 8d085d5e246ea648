//! Selects the entries of a listing by include and exclude patterns.
//!
//! A pattern without a slash is matched against the last name of a path. A pattern with a slash is
//! matched against the whole path below the transfer's root. `*` and `?` match within a name, `**`
//! crosses folders.
//!
//! If all include patterns are paths without wildcards, the listing enters only the folders above
//! these paths.

use dray_core::lock::LockExt;
use dray_core::patterns::{self, COMPILED_BYTES_PER_BYTE, WILD_BYTES_MAX};
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_wire::message::Selection;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Total size in bytes of the compiled wildcard patterns of all sessions of this process.
static COMPILED: AtomicUsize = AtomicUsize::new(0);

/// Maximum of [`COMPILED`]. The default allows two requests at their limit.
static COMPILED_MAX: AtomicUsize = AtomicUsize::new(2 * WILD_BYTES_MAX);

/// Held while patterns with wildcards are compiled.
static COMPILING: Mutex<()> = Mutex::new(());

/// Sets the memory in bytes that the compiled patterns of all sessions may use together. A single
/// request of the maximum size always fits.
pub fn bound_memory(bytes: u64) {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX) / COMPILED_BYTES_PER_BYTE;
    COMPILED_MAX.store(bytes.max(WILD_BYTES_MAX), Ordering::Relaxed);
}

/// One selection's share of [`COMPILED`]. Dropping the share releases it.
#[derive(Debug, Default)]
struct Share(usize);

impl Share {
    /// Reserves `bytes` bytes of patterns.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if the patterns of other sessions use too much of the limit.
    fn take(bytes: usize) -> Result<Self> {
        let most = COMPILED_MAX.load(Ordering::Relaxed);
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= most);
        let taken = COMPILED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(|_| Self(bytes)).map_err(|taken| {
            Error::new(ErrorKind::Busy, End::Here, "read the patterns")
                .cause(format!(
                    "running transfers already use {taken} of the {most} bytes that patterns \
                        with wildcards may use"
                ))
                .remedy("try again later, or use fewer or shorter patterns")
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        COMPILED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Patterns {
    names: GlobSet,
    paths: GlobSet,
    any: bool,
}

impl Patterns {
    fn compile(patterns: &[String]) -> Result<Self> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let text = pattern.trim_start_matches("./").trim_end_matches('/');
            let anchored = text.trim_start_matches('/');
            let glob = GlobBuilder::new(anchored)
                .literal_separator(true)
                .backslash_escape(true)
                .build()
                .map_err(|error| {
                    Error::new(ErrorKind::InvalidRequest, End::Here, "read the pattern")
                        .cause(format!("{pattern:?}: {}", error.kind()))
                        .remedy("use shell patterns such as '*.root' or 'run?/**'")
                })?;
            if text.contains('/') {
                paths.add(glob);
            } else {
                names.add(glob);
            }
        }
        let too_large = |error: globset::Error| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the patterns")
                .cause(error.to_string())
                .remedy("use fewer or simpler patterns")
        };
        Ok(Self {
            names: names.build().map_err(too_large)?,
            paths: paths.build().map_err(too_large)?,
            any: !patterns.is_empty(),
        })
    }

    fn match_path(&self, path: &RelPath) -> bool {
        let name = path.name();
        let name = name.as_ref().map_or(&b""[..], |name| name.as_bytes());
        self.names.is_match(Path::new(OsStr::from_bytes(name)))
            || self
                .paths
                .is_match(Path::new(OsStr::from_bytes(path.as_bytes())))
    }
}

/// The compiled patterns of a selection.
#[derive(Debug, Default)]
pub struct Filter {
    include: Patterns,
    exclude: Patterns,
    /// The included paths in their order; `None` if an include pattern is no plain path.
    paths: Option<Vec<RelPath>>,
    _share: Share,
}

impl Filter {
    /// Compiles the patterns.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidRequest`] names a malformed pattern.
    /// - [`ErrorKind::LimitExceeded`] if there are too many patterns.
    /// - [`ErrorKind::Busy`] if the patterns of other sessions use too much of the limit.
    pub fn new(selection: &Selection) -> Result<Self> {
        let bytes = patterns::check(&selection.include, &selection.exclude)?;
        let share = Share::take(bytes)?;
        // Compiling the patterns temporarily needs more memory than the compiled patterns. So only
        // one thread compiles at a time.
        let _one = COMPILING.lock_unpoisoned();
        Ok(Self {
            _share: share,
            include: Patterns::compile(&selection.include)?,
            exclude: Patterns::compile(&selection.exclude)?,
            paths: plain_paths(&selection.include),
        })
    }

    /// Returns true if the listing enters a folder. The listing does not enter a folder that an
    /// exclude pattern matches. A folder that no include pattern matches may still contain included
    /// entries, so the listing enters it, unless the includes are plain paths that lead elsewhere.
    #[must_use]
    pub fn enters(&self, folder: &RelPath) -> bool {
        let leads = |paths: &Vec<RelPath>| leads_to_one(paths, folder);
        self.paths.as_ref().is_none_or(leads) && !self.excludes(folder)
    }

    /// Returns true if an exclude pattern matches.
    #[must_use]
    pub fn excludes(&self, path: &RelPath) -> bool {
        self.exclude.match_path(path)
    }

    /// Returns true if a file or a link is selected.
    #[must_use]
    pub fn takes(&self, path: &RelPath) -> bool {
        !self.excludes(path) && (!self.include.any || self.include.match_path(path))
    }
}

/// Returns the sorted paths that `patterns` match, if each pattern is a path with a slash and without
/// wildcards.
fn plain_paths(patterns: &[String]) -> Option<Vec<RelPath>> {
    let paths: Option<Vec<RelPath>> = patterns.iter().map(|pattern| plain(pattern)).collect();
    let mut paths = paths.filter(|paths| !paths.is_empty())?;
    paths.sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
    Some(paths)
}

/// Returns true if one of the sorted `paths` is below `folder`.
fn leads_to_one(paths: &[RelPath], folder: &RelPath) -> bool {
    if folder.is_root() {
        return true;
    }
    let start = [folder.as_bytes(), b"/"].concat();
    let first = paths.partition_point(|path| path.as_bytes() < start.as_slice());
    (paths.get(first)).is_some_and(|path| path.as_bytes().starts_with(&start))
}

/// Returns the only path that a pattern matches. Returns `None` for a pattern with wildcards, and
/// for a name without a slash, which matches in every folder.
fn plain(pattern: &str) -> Option<RelPath> {
    let text = pattern.trim_start_matches("./").trim_end_matches('/');
    if !text.contains('/') {
        return None;
    }
    let mut path = String::with_capacity(text.len());
    let mut letters = text.trim_start_matches('/').chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => path.push(letters.next()?),
            '*' | '?' | '[' | ']' | '{' | '}' => return None,
            letter => path.push(letter),
        }
    }
    RelPath::parse(path.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::Filter;
    use dray_core::RelPath;
    use dray_wire::message::Selection;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Filter::new(&Selection {
            include: own(include),
            exclude: own(exclude),
            ..Selection::default()
        })
        .expect("good patterns")
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn names_and_paths() {
        let chosen = filter(&["*.root"], &["tmp", "run/old/**"]);
        assert!(chosen.takes(&path("run/a.root")));
        assert!(!chosen.takes(&path("run/a.txt")));
        assert!(!chosen.takes(&path("run/old/a.root")));
        assert!(chosen.enters(&path("run")));
        assert!(!chosen.enters(&path("run/tmp")));
        assert!(filter(&[], &[]).takes(&path("anything")));
        assert!(!filter(&[], &["a*b"]).takes(&path("x/ab")));
        assert!(
            filter(&[], &["a*b"]).takes(&path("a/b")),
            "a star stays within a name"
        );
    }

    #[test]
    fn plain_paths_lead_only_to_their_folders() {
        let chosen = filter(&["/a/b/x", "a/c/\\[1\\]", "/top"], &[]);
        for folder in ["a", "a/b", "a/c"] {
            assert!(chosen.enters(&path(folder)), "{folder}");
        }
        for folder in ["b", "a/d", "a/b/x", "top"] {
            assert!(!chosen.enters(&path(folder)), "{folder}");
        }
        assert!(chosen.takes(&path("a/c/[1]")) && chosen.takes(&path("top")));
        assert!(!chosen.takes(&path("a/top")));
        for wild in ["a/*", "x"] {
            assert!(filter(&["/a/b/x", wild], &[]).enters(&path("d")), "{wild}");
        }
    }

    #[test]
    fn a_bad_pattern_is_named() {
        let bad = Selection {
            exclude: vec!["[".into()],
            ..Selection::default()
        };
        assert!(Filter::new(&bad).expect_err("bad").cause.contains('['));
    }
}
