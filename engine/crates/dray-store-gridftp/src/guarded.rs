//! A buffer for text that the library writes without a check of its length.
//!
//! `globus_ftp_client_cksm` copies the server's answer with `sscanf("%s")`. A page without
//! permissions follows the buffer, so a longer answer ends the process instead of overwriting other
//! memory.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::{c_char, c_void};
use std::io;
use std::ptr::null_mut;

/// A buffer that is followed by a page without permissions.
pub(crate) struct GuardedBuffer {
    start: *mut c_void,
    /// Usable bytes, a multiple of the page size.
    bytes: usize,
    page: usize,
}

impl GuardedBuffer {
    /// Maps a buffer of at least `bytes` zero bytes.
    ///
    /// # Errors
    /// The error of the system if it has no memory.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let bytes = bytes.next_multiple_of(page);
        let permissions = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping overlaps no other memory.
        let start =
            unsafe { mmap_anonymous(null_mut(), bytes + page, permissions, MapFlags::PRIVATE)? };
        let buffer = Self { start, bytes, page };
        // SAFETY: the page is the last one of the mapping, and nothing refers to it.
        unsafe { mprotect(start.byte_add(bytes), page, MprotectFlags::empty())? };
        Ok(buffer)
    }

    /// Returns the address of the first byte. It is valid until the buffer is dropped.
    pub(crate) const fn as_mut_ptr(&mut self) -> *mut c_char {
        self.start.cast()
    }

    /// Returns the bytes of the buffer.
    pub(crate) const fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has `bytes` readable bytes, and `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.bytes) }
    }
}

impl Drop for GuardedBuffer {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and nothing refers to it any more. An error
        // leaves the memory mapped.
        let _ = unsafe { munmap(self.start, self.bytes + self.page) };
    }
}

#[cfg(test)]
mod tests {
    use super::GuardedBuffer;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_buffer_is_writable_up_to_its_end() {
        let mut buffer = GuardedBuffer::new(5000).expect("memory");
        let bytes = buffer.bytes().len();
        assert!(bytes >= 5000);
        // SAFETY: the last byte is inside the buffer.
        unsafe { *buffer.as_mut_ptr().add(bytes - 1) = 7 };
        assert_eq!(buffer.bytes().last(), Some(&7));
    }

    /// The test starts itself as another process, because the write ends the process.
    #[test]
    fn a_write_behind_a_buffer_ends_the_process() {
        const NAME: &str = "guarded::tests::a_write_behind_a_buffer_ends_the_process";
        if std::env::var_os("DRAY_WRITES_BEHIND").is_some() {
            let mut buffer = GuardedBuffer::new(1).expect("memory");
            let bytes = buffer.bytes().len();
            // SAFETY: the page behind the buffer belongs to the mapping of the buffer. The write
            // ends this process.
            unsafe { *buffer.as_mut_ptr().add(bytes) = 7 };
            return;
        }
        let program = std::env::current_exe().expect("the path of the test program");
        let ended = std::process::Command::new(program)
            .args([NAME, "--exact"])
            .env("DRAY_WRITES_BEHIND", "1")
            .output()
            .expect("the test program starts");
        assert_eq!(ended.status.signal(), Some(11), "SIGSEGV");
    }
}
