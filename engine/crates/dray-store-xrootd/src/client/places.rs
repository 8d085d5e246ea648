//! Finds the servers of a cluster that have a file, and the state of the file on each server.

use super::{Client, RawError, RawState, RemoteState, Words, call, failed, words};
use dray_core::Result;
use std::ffi::{CStr, CString};

/// Maximum length in bytes of the list of a file's servers. It suffices for several dozen
/// addresses.
const PLACES_BYTES: u32 = 4096;

/// The structure `dray_xrdcl_looked` of the header.
#[repr(C)]
pub(super) struct RawLooked {
    url: Words<'static>,
    path: Words<'static>,
    state: RawState,
    error: RawError,
}

impl Client {
    /// Returns the servers of a cluster that have a file now, as HOST:PORT. If the manager makes
    /// the client wait longer than `seconds`, the call fails.
    pub(crate) fn locate(&self, manager: &str, path: &[u8], seconds: u32) -> Result<Vec<String>> {
        let (manager, path) = (words(manager)?, words(path)?);
        let mut answer = vec![0_u8; PLACES_BYTES as usize];
        call("find the servers that have the file", |error| {
            let (manager, path) = (manager.as_ptr(), path.as_ptr());
            let to = answer.as_mut_ptr().cast();
            // SAFETY: `answer` has the size that is passed to the library. The texts live until the
            // call returns.
            unsafe { (self.locate)(manager, path, seconds, to, PLACES_BYTES, error) }.into()
        })?;
        let text = CStr::from_bytes_until_nul(&answer).map(CStr::to_string_lossy);
        Ok(text
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect())
    }

    /// Asks for the states of many paths concurrently, each at its own server. Returns one result
    /// for each path. `seconds` is the maximum duration of a query; 0 means the client's own
    /// setting.
    pub(crate) fn look_each<'a>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, Vec<u8>)>,
        seconds: u32,
    ) -> Result<Vec<Result<RemoteState>>> {
        let texts = asked
            .into_iter()
            .map(|(server, path)| Ok((words(server)?, words(path)?)));
        let texts: Vec<(CString, CString)> = texts.collect::<Result<_>>()?;
        let raw = texts.iter().map(|(url, path)| RawLooked {
            url: url.as_ptr(),
            path: path.as_ptr(),
            state: RawState::default(),
            error: RawError::none(),
        });
        let mut raw: Vec<RawLooked> = raw.collect();
        call("read the attributes of the files", |error| {
            let (each, count) = (raw.as_mut_ptr(), raw.len() as u64);
            // SAFETY: the array has `count` structures. All memory to which they point lives until
            // the call returns.
            unsafe { (self.look_each)(each, count, seconds, error) }.into()
        })?;
        let answer = |raw: &RawLooked| match raw.error.is_none() {
            true => Ok(RemoteState::of(&raw.state)),
            false => Err(failed("read the attributes of the file", &raw.error)),
        };
        Ok(raw.iter().map(answer).collect())
    }
}
