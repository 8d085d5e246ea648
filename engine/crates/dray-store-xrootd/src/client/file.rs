//! An open file on a server.

use super::{ANSWER_BYTES, Client, RawFile, RawState, RemoteState, call, said, words};
use dray_core::Result;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::time::Duration;

/// Maximum length of one read in bytes. It is larger than every object and below the limit of the
/// protocol.
const READ_BYTES_MAX: u32 = 1 << 30;
/// Maximum length in bytes of the answer of a server plug-in. Servers send at most 2 KiB.
const PLUGIN_ANSWER_BYTES: u32 = 4096;

/// An open file on a server. Dropping the value closes the file.
pub(crate) struct RemoteFile {
    pub(super) client: &'static Client,
    pub(super) file: NonNull<RawFile>,
    /// Maximum duration of a call in seconds; 0 means the client's own setting.
    pub(super) seconds: u32,
}

// SAFETY: any thread may use a file of XrdCl, because XrdCl locks the file internally. Any thread
// may close it.
unsafe impl Send for RemoteFile {}
// SAFETY: XrdCl supports concurrent calls of several threads for one file.
unsafe impl Sync for RemoteFile {}

impl RemoteFile {
    /// Reads at `offset` until the buffer is full or the file ends.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8], pages: bool) -> Result<usize> {
        let bytes = u32::try_from(buffer.len()).unwrap_or(READ_BYTES_MAX);
        let bytes = bytes.min(READ_BYTES_MAX);
        let to = buffer.as_mut_ptr().cast();
        let (file, pages, seconds) = (self.file.as_ptr(), pages.into(), self.seconds);
        let came = call("read the file", |error| {
            // SAFETY: the handle is open. `buffer` has at least `bytes` bytes, and no other code
            // uses it until the call returns.
            unsafe { (self.client.read)(file, offset, to, bytes, pages, seconds, error) }
        })?;
        Ok(usize::try_from(came)
            .unwrap_or(usize::MAX)
            .min(buffer.len()))
    }

    /// Returns the server of the file as host and port.
    pub(crate) fn server(&self) -> Result<String> {
        said("find the server that has the file", |to, error| {
            // SAFETY: the handle is open. `to` has ANSWER_BYTES bytes.
            unsafe { (self.client.server_of)(self.file.as_ptr(), to, ANSWER_BYTES, error) }
        })
    }

    /// Returns the size and modification time of the file. If `anew` is true, asks the server
    /// again.
    pub(crate) fn state(&self, anew: bool) -> Result<RemoteState> {
        let mut state = RawState::default();
        call("read the attributes of the file", |error| {
            let (handle, anew, to) = (self.file.as_ptr(), anew.into(), &raw mut state);
            // SAFETY: the handle is open. The buffers for the results live until the call returns.
            unsafe { (self.client.state_of)(handle, anew, self.seconds, to, error) }.into()
        })?;
        Ok(RemoteState::of(&state))
    }

    /// Sends a question to a plug-in of the server and returns the answer.
    pub(crate) fn ask(&self, question: &str, wait: Duration) -> Result<String> {
        let question = words(question)?;
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
        let mut answer = vec![0_u8; PLUGIN_ANSWER_BYTES as usize];
        call("ask the server about the file", |error| {
            let (file, to) = (self.file.as_ptr(), answer.as_mut_ptr().cast());
            let (text, room) = (question.as_ptr(), PLUGIN_ANSWER_BYTES);
            // SAFETY: the handle is open. `answer` has the size that is passed to the library. The
            // text lives until the call returns.
            let asked = unsafe { (self.client.ask)(file, text, seconds, to, room, error) };
            asked.into()
        })?;
        let text = CStr::from_bytes_until_nul(&answer).map(CStr::to_string_lossy);
        Ok(text.unwrap_or_default().trim().to_owned())
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and no other code can use it any more.
        unsafe { (self.client.close)(self.file.as_ptr()) };
    }
}
