//! Requests that change files on a server.

use super::{Client, RemoteFile, ask, call, words};
use dray_core::{ErrorKind, Result};
use std::ffi::c_char;

/// Maximum length in bytes of the value of dray's attributes.
const ATTRIBUTE_BYTES: u64 = 512;

impl Client {
    /// Returns the value of a configuration variable of the server.
    pub(crate) fn config(&self, server: &str, name: &str) -> Result<String> {
        ask(
            "ask the server for its capabilities",
            self.config,
            server,
            name,
        )
    }

    /// Returns the server's answer about the free space below a path.
    pub(crate) fn space(&self, server: &str, path: &[u8]) -> Result<String> {
        ask("read the free space", self.space, server, path)
    }

    /// Creates a folder. If `above` is true, also creates missing parents and accepts an existing
    /// folder.
    pub(crate) fn make_dir(&self, server: &str, path: &[u8], mode: u32, above: bool) -> Result<()> {
        let (server, path) = (words(server)?, words(path)?);
        call("create the folder", |error| {
            // SAFETY: the texts and the error structure live until the call returns.
            unsafe { (self.make_dir)(server.as_ptr(), path.as_ptr(), mode, above.into(), error) }
                .into()
        })
        .map(|_| ())
    }

    /// Deletes a file, or an empty folder if `folder` is true. A missing entry is not an error.
    pub(crate) fn remove(&self, server: &str, path: &[u8], folder: bool) -> Result<()> {
        let (server, path) = (words(server)?, words(path)?);
        let removed = call("remove", |error| {
            // SAFETY: the texts and the error structure live until the call returns.
            unsafe { (self.remove)(server.as_ptr(), path.as_ptr(), folder.into(), error) }.into()
        });
        match removed {
            Err(error) if error.kind != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Sets the permission bits of an entry.
    pub(crate) fn set_mode(&self, server: &str, path: &[u8], mode: u32) -> Result<()> {
        let (server, path) = (words(server)?, words(path)?);
        call("set the permissions", |error| {
            // SAFETY: the texts and the error structure live until the call returns.
            unsafe { (self.set_mode)(server.as_ptr(), path.as_ptr(), mode, error) }.into()
        })
        .map(|_| ())
    }

    /// Sets an extended attribute.
    pub(crate) fn set_attribute(
        &self,
        server: &str,
        path: &[u8],
        name: &str,
        value: &str,
    ) -> Result<()> {
        let (server, path) = (words(server)?, words(path)?);
        let (name, value) = (words(name)?, words(value)?);
        call("set the attribute", |error| {
            let (server, path) = (server.as_ptr(), path.as_ptr());
            // SAFETY: the texts and the error structure live until the call returns.
            unsafe { (self.set_attribute)(server, path, name.as_ptr(), value.as_ptr(), error) }
                .into()
        })
        .map(|_| ())
    }

    /// Returns the value of an extended attribute. The error is [`ErrorKind::NotFound`] if the
    /// attribute does not exist.
    pub(crate) fn attribute(&self, server: &str, path: &[u8], name: &str) -> Result<Vec<u8>> {
        let (server, path, name) = (words(server)?, words(path)?, words(name)?);
        let mut value = vec![0_u8; ATTRIBUTE_BYTES as usize];
        let to: *mut c_char = value.as_mut_ptr().cast();
        let length = call("read the attribute", |error| {
            let (server, path) = (server.as_ptr(), path.as_ptr());
            // SAFETY: `value` has ATTRIBUTE_BYTES bytes. The texts live until the call returns.
            unsafe { (self.attribute)(server, path, name.as_ptr(), to, ATTRIBUTE_BYTES, error) }
        })?;
        value.truncate(usize::try_from(length).unwrap_or(0));
        Ok(value)
    }
}

impl RemoteFile {
    /// Writes all of `bytes`. If `pages` is true, each page of 4 KiB is sent with a checksum.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8], pages: bool) -> Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            let piece = &bytes[at..bytes.len().min(at + WRITE_BYTES_MAX)];
            let length = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            let (handle, from) = (self.file.as_ptr(), piece.as_ptr().cast());
            let offset = offset + at as u64;
            call("write the file", |error| {
                // SAFETY: the handle is open. `piece` has `length` bytes until the call returns.
                unsafe { (self.client.write)(handle, offset, from, length, pages.into(), error) }
                    .into()
            })?;
            at += piece.len();
        }
        Ok(())
    }

    /// Makes all writes of this handle durable.
    pub(crate) fn sync(&self) -> Result<()> {
        call("make the file durable", |error| {
            // SAFETY: the handle is open. The error structure lives until the call returns.
            unsafe { (self.client.sync)(self.file.as_ptr(), error) }.into()
        })
        .map(|_| ())
    }

    /// Sets the length of the file.
    pub(crate) fn truncate(&self, bytes: u64) -> Result<()> {
        call("set the file's length", |error| {
            // SAFETY: the handle is open. The error structure lives until the call returns.
            unsafe { (self.client.truncate)(self.file.as_ptr(), bytes, error) }.into()
        })
        .map(|_| ())
    }
}

/// Maximum length of one write in bytes. Objects are smaller.
const WRITE_BYTES_MAX: usize = 1 << 30;
