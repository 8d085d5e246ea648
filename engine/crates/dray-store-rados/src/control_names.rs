//! The names of the control files in a folder.
//!
//! Ceph cannot list names by prefix, and a list of all names of a large pool takes seconds. A
//! transfer asks for the logs of a folder several times, so the folder's object has an attribute
//! for each control file in the folder.
//!
//! Invariant owned here: from the return of [`RadosControl::open`] until the control file is
//! deleted, the object of its folder exists and has an attribute for the control file.
//!
//! [`RadosControl::open`]: crate::control::RadosControl::open

use crate::errors::Errno;
use crate::files::{Files, absent, folder_of, is_own};
use crate::names::State;
use crate::pool::{Got, Job, Step};
use dray_core::{ErrorKind, Name, RelPath, Result};
use dray_store::CONTROL_NAMES_MAX;
use std::ffi::CString;
use std::sync::Arc;

/// Begin of the attribute of a control file. The name of the file follows.
const PREFIX: &[u8] = b"dray.log.";

/// Maximum length of the name of a control file in bytes. With the prefix, the attribute is shorter
/// than the default of `osd_max_attr_name_len`, which is 100.
const NAME_BYTES_MAX: usize = 80;

/// Number of tries to change a folder that other clients change at the same time.
const TRIES: u32 = 64;

const REMOVE: &str = "delete the folder";

/// Returns the names in the attributes of a folder's object.
fn names_of(got: &Got) -> Vec<Name> {
    let names = got.attributes.iter();
    let names = names.filter_map(|(attribute, _)| attribute.strip_prefix(PREFIX));
    names.filter_map(|name| Name::new(name).ok()).collect()
}

impl Files {
    fn control_attribute(&self, path: &RelPath) -> Result<CString> {
        let name = path.name();
        let name = name.as_ref().map_or(&[][..], |name| name.as_bytes());
        let attribute = CString::new([PREFIX, name].concat()).ok();
        let attribute = attribute.filter(|_| name.len() <= NAME_BYTES_MAX);
        attribute.ok_or_else(|| {
            self.error(ErrorKind::NameTooLong, "create the control file", path)
                .cause(format!(
                    "the name of a control file may have at most {NAME_BYTES_MAX} bytes"
                ))
        })
    }

    /// Adds the name of a new control file to the list of names in its folder. Creates the folder
    /// again if another client has removed it in the meantime.
    pub(crate) fn add_control_name(self: &Arc<Self>, path: &RelPath) -> Result<()> {
        const OPERATION: &str = "create the control file";
        let folder = folder_of(path);
        if !is_own(&folder) {
            return Ok(());
        }
        let attribute = self.control_attribute(path)?;
        let full = self.full(&folder)?;
        for _ in 0..TRIES {
            let steps = vec![Step::Exists, Step::Set(&attribute, b"")];
            let set = Job::write(State::Folder.object(&full), steps);
            match self.state.one(set) {
                Err(Errno::NOT_FOUND) => {
                    self.forget(&full);
                    self.make_control_folder(&folder)?;
                }
                set => return self.about(set, OPERATION, path).map(drop),
            }
        }
        Err(self
            .error(ErrorKind::Busy, OPERATION, path)
            .cause("other clients remove the folder each time that it is created"))
    }

    /// Deletes a control file and its name in the folder.
    pub(crate) fn remove_control(&self, path: &RelPath) -> Result<()> {
        self.remove_object(State::Control.object(&self.full(path)?), path)?;
        let folder = folder_of(path);
        if !is_own(&folder) {
            return Ok(());
        }
        self.remove_control_name(path, &folder)
    }

    /// Deletes the name of a control file from its folder, unless another client has created the
    /// file again.
    fn remove_control_name(&self, path: &RelPath, folder: &RelPath) -> Result<()> {
        const OPERATION: &str = "delete the control file";
        let attribute = self.control_attribute(path)?;
        let file = State::Control.object(&self.full(path)?);
        let object = State::Folder.object(&self.full(folder)?);
        for _ in 0..TRIES {
            let got = absent(self.state.one(Job::look(object.clone())));
            let Some(got) = self.about(got, OPERATION, path)? else {
                return Ok(());
            };
            let again = absent(self.state.one(Job::look(file.clone())));
            if self.about(again, OPERATION, path)?.is_some() || got.attribute(&attribute).is_none()
            {
                return Ok(());
            }
            let steps = vec![Step::AtVersion(got.version), Step::Unset(&attribute)];
            match self.state.one(Job::write(object.clone(), steps)) {
                Err(Errno::OUT_OF_RANGE | Errno::OVERFLOW) => {}
                Err(Errno::NOT_FOUND | Errno::NO_DATA) => return Ok(()),
                removed => return self.about(removed, OPERATION, path).map(drop),
            }
        }
        // A stale name does no harm: other transfers ignore a name without an object.
        Ok(())
    }

    /// Returns the names of the control files in a folder. The answer may contain a file that a
    /// client was deleting when it ended.
    pub(crate) fn control_names(&self, folder: &RelPath) -> Result<Vec<Name>> {
        const OPERATION: &str = "list the control files";
        if !is_own(folder) {
            return self.names_in(folder, CONTROL_NAMES_MAX);
        }
        let object = State::Folder.object(&self.full(folder)?);
        let got = absent(self.state.one(Job::look(object)));
        let got = self.about(got, OPERATION, folder)?;
        let names = got.map_or_else(Vec::new, |got| names_of(&got));
        match names.len() > CONTROL_NAMES_MAX {
            true => Err(self
                .error(ErrorKind::LimitExceeded, OPERATION, folder)
                .cause(format!(
                    "the folder has more than {CONTROL_NAMES_MAX} names"
                ))),
            false => Ok(names),
        }
    }

    /// Deletes a folder of control files, if it is empty. A control file that another client
    /// creates at the same time keeps the folder, or its client creates the folder again.
    pub(crate) fn remove_control_folder(&self, folder: &RelPath) -> Result<()> {
        let full = self.full(folder)?;
        let object = State::Folder.object(&full);
        for _ in 0..TRIES {
            let got = absent(self.state.one(Job::look(object.clone())));
            let Some(got) = self.about(got, REMOVE, folder)? else {
                return Ok(());
            };
            if self.has_controls(folder, &got)? {
                return Err(self
                    .error(ErrorKind::AlreadyExists, REMOVE, folder)
                    .cause("the folder is not empty"));
            }
            self.forget(&full);
            let steps = vec![Step::AtVersion(got.version), Step::Remove];
            match self.state.one(Job::write(object.clone(), steps)) {
                Err(Errno::OUT_OF_RANGE | Errno::OVERFLOW) => {}
                Err(Errno::NOT_FOUND) => return Ok(()),
                removed => return self.about(removed, REMOVE, folder).map(drop),
            }
        }
        Err(self
            .error(ErrorKind::Busy, REMOVE, folder)
            .cause("other clients are changing the folder all the time"))
    }

    /// Returns true if one of the control files that the folder's object names exists.
    fn has_controls(&self, folder: &RelPath, got: &Got) -> Result<bool> {
        let mut jobs = Vec::new();
        for name in names_of(got) {
            let full = self.full(&folder.join(&name)?)?;
            jobs.push(Job::look(State::Control.object(&full)));
        }
        for answer in self.state.run(jobs) {
            if self.about(absent(answer), REMOVE, folder)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
