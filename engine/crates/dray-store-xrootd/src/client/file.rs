//! A file of a server that is open.

use super::{ANSWER_BYTES, Client, Found, RawFile, RawState, call, said, words};
use dray_core::Result;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::time::Duration;

/// Bytes of one read at the most: far above any object's, below what the protocol's number holds.
const READ_BYTES_MAX: u32 = 1 << 30;
/// Most bytes of an answer of a plug-in: servers hold no longer one (2 KiB).
const PLUGIN_ANSWER_BYTES: u32 = 4096;

/// An open file of a server. Closed when dropped.
pub(crate) struct RemoteFile {
    pub(super) client: &'static Client,
    pub(super) file: NonNull<RawFile>,
    /// How long a call may take; 0: as long as the client's own settings say.
    pub(super) seconds: u32,
}

// SAFETY: XrdCl's file may be used by any thread (it locks by itself), and closed by another than the
// one that opened it.
unsafe impl Send for RemoteFile {}
// SAFETY: as above: calls of several threads at once are what it is made for.
unsafe impl Sync for RemoteFile {}

impl RemoteFile {
    /// Reads at `offset` as much as there is; less than asked for only at the end.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8], pages: bool) -> Result<usize> {
        let bytes = u32::try_from(buffer.len()).unwrap_or(READ_BYTES_MAX);
        let bytes = bytes.min(READ_BYTES_MAX);
        let to = buffer.as_mut_ptr().cast();
        let (file, pages, seconds) = (self.file.as_ptr(), pages.into(), self.seconds);
        let came = call("read the file", |error| {
            // SAFETY: the handle is open; `buffer` has at least `bytes` bytes, and is ours alone until
            // the call returns.
            unsafe { (self.client.read)(file, offset, to, bytes, pages, seconds, error) }
        })?;
        Ok(usize::try_from(came)
            .unwrap_or(usize::MAX)
            .min(buffer.len()))
    }

    /// The server that has it, as host and port.
    pub(crate) fn server(&self) -> Result<String> {
        said("ask which server has the file", |to, error| {
            // SAFETY: the handle is open; `to` has ANSWER_BYTES bytes.
            unsafe { (self.client.server_of)(self.file.as_ptr(), to, ANSWER_BYTES, error) }
        })
    }

    /// Size and time, `anew` from the server.
    pub(crate) fn state(&self, anew: bool) -> Result<Found> {
        let mut state = RawState::default();
        call("look at the file", |error| {
            let (handle, anew, to) = (self.file.as_ptr(), anew.into(), &raw mut state);
            // SAFETY: the handle is open; room for the answer lives until the call returns.
            unsafe { (self.client.state_of)(handle, anew, self.seconds, to, error) }.into()
        })?;
        Ok(Found::of(&state))
    }

    /// Asks the server something that a plug-in of it may understand.
    pub(crate) fn ask(&self, question: &str, wait: Duration) -> Result<String> {
        let question = words(question)?;
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
        let mut answer = vec![0_u8; PLUGIN_ANSWER_BYTES as usize];
        call("ask the server about the file", |error| {
            let (file, to) = (self.file.as_ptr(), answer.as_mut_ptr().cast());
            let (text, room) = (question.as_ptr(), PLUGIN_ANSWER_BYTES);
            // SAFETY: the handle is open; `answer` has as many bytes as are said; the text lives until
            // the call returns.
            let asked = unsafe { (self.client.ask)(file, text, seconds, to, room, error) };
            asked.into()
        })?;
        let text = CStr::from_bytes_until_nul(&answer).map(CStr::to_string_lossy);
        Ok(text.unwrap_or_default().trim().to_owned())
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        // SAFETY: it is open, and nobody has it any more.
        unsafe { (self.client.close)(self.file.as_ptr()) };
    }
}
