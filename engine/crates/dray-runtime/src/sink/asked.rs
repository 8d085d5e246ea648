//! Compares the entries that a source announces with the driver's request.
//!
//! A source can announce any entry. Without this check, the source of a one-file pull could also
//! send a folder, a link, or entries that `--exclude` names.

use crate::select::Filter;
use dray_core::maps::HashSet;
use dray_core::options::Links;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use dray_session::sink::InspectTask;
use dray_wire::message::Selection;

/// The request, with which a sink compares the source's entries.
pub struct Asked {
    filter: Filter,
    /// Names of the requested sources. The patterns do not apply to these names.
    named: HashSet<Name>,
    is_recursive: bool,
    keeps_links: bool,
    size: Option<u64>,
}

impl Asked {
    /// Returns the request of a pull. `paths` are the requested paths as CONNECT contains them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] for an invalid pattern.
    pub fn new(selection: &Selection, paths: &[Vec<u8>]) -> Result<Self> {
        let is_one = |path: &&Vec<u8>| !path.is_empty() && !path.ends_with(b"/");
        let own = paths.iter().filter(is_one);
        let own = own.filter_map(|path| RelPath::parse(path).ok()?.name());
        Ok(Self {
            filter: Filter::new(selection)?,
            named: own.chain(selection.rename.clone()).collect(),
            is_recursive: selection.recursive,
            keeps_links: selection.links == Links::Keep,
            size: selection.range.map(|range| range.length).or(selection.size),
        })
    }

    /// Checks that an entry at `path` was requested.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] names the reason.
    pub(super) fn check(&self, path: &RelPath, task: &InspectTask) -> Result<()> {
        let is_top = path.parent().is_none_or(|above| above.is_root());
        let is_named = is_top && path.name().is_some_and(|name| self.named.contains(&name));
        let cause = match task {
            InspectTask::Directory if !self.is_recursive => {
                "the entry is a folder, but a single file was requested"
            }
            // Include patterns do not apply to folders: a source may announce every folder.
            InspectTask::Directory if !is_named && self.filter.excludes(path) => {
                "the patterns of the request exclude the folder"
            }
            InspectTask::Symlink { .. } if !self.keeps_links => {
                "the entry is a symbolic link, but links were not requested"
            }
            InspectTask::File(key) if self.size.is_some_and(|size| size != key.size) => {
                "the size of the file differs from the requested size"
            }
            InspectTask::File(_) | InspectTask::Symlink { .. }
                if !is_named && !self.filter.takes(path) =>
            {
                "the patterns of the request exclude the entry"
            }
            _ => return Ok(()),
        };
        Err(
            Error::new(ErrorKind::Protocol, End::Source, "accept the entry")
                .cause(cause)
                .remedy(
                    "do not copy from this source again, because it sends entries that were \
                    not requested",
                ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Asked;
    use dray_core::options::Links;
    use dray_core::{ContentKey, Metadata, ModifiedTime, RelPath};
    use dray_session::sink::InspectTask;
    use dray_wire::message::Selection;

    fn file(size: u64) -> InspectTask {
        InspectTask::File(ContentKey {
            size,
            demanded: None,
            modified: ModifiedTime::default(),
            precision_nanoseconds: 1,
            identity: Vec::new(),
        })
    }

    fn link() -> InspectTask {
        InspectTask::Symlink {
            target: b"x".to_vec(),
            metadata: Metadata::default(),
        }
    }

    fn takes(selection: &Selection, asked: &str, path: &str, task: &InspectTask) -> bool {
        let asked = Asked::new(selection, &[asked.as_bytes().to_vec()]).expect("good patterns");
        let path = RelPath::parse(path.as_bytes()).expect("a path");
        asked.check(&path, task).is_ok()
    }

    #[test]
    fn one_file_brings_no_folder_and_no_other_size() {
        let one = Selection {
            size: Some(3),
            ..Selection::default()
        };
        assert!(takes(&one, "data/a", "a", &file(3)));
        assert!(!takes(&one, "data/a", "a", &file(4)));
        assert!(!takes(&one, "data/a", "a", &InspectTask::Directory));
    }

    #[test]
    fn excluded_entries_are_refused_unless_named() {
        let some = Selection {
            recursive: true,
            include: vec!["*.root".into()],
            exclude: vec![".ssh".into(), "run".into()],
            ..Selection::default()
        };
        assert!(takes(&some, "data/run", "run", &InspectTask::Directory));
        assert!(takes(&some, "data/run", "run/a.root", &file(1)));
        assert!(!takes(&some, "data/run", "run/a.txt", &file(1)));
        assert!(!takes(
            &some,
            "data/run",
            "run/.ssh",
            &InspectTask::Directory
        ));
        assert!(!takes(&some, "data/", ".ssh", &InspectTask::Directory));
        assert!(!takes(&some, "data/", "a.txt", &file(1)));
    }

    #[test]
    fn links_come_only_where_they_are_kept() {
        let with = |links| Selection {
            links,
            ..Selection::default()
        };
        assert!(takes(&with(Links::Keep), "a", "a", &link()));
        assert!(!takes(&with(Links::Follow), "a", "a", &link()));
        assert!(!takes(&with(Links::Refuse), "a", "a", &link()));
    }
}
