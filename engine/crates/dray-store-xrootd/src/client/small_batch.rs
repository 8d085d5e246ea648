//! Requests for batches: writing small files, renaming, and syncing.

use super::{Client, RawError, RawFile, RemoteFile, Words, call, failed, words};
use dray_core::{Error, Result};
use std::ffi::{CString, c_char, c_void};

/// The structure `dray_xrdcl_small` of the header.
#[repr(C)]
pub(super) struct RawSmall {
    url: *const c_char,
    bytes: *const c_void,
    size: u64,
    attribute: *const c_char,
    value: *const c_char,
    mode: u32,
    is_made: u32,
    id: u64,
    is_plain: u32,
    zero: u32,
    error: RawError,
}

/// The structure `dray_xrdcl_renaming` of the header.
#[repr(C)]
pub(super) struct RawRenaming {
    from: *const c_char,
    to: *const c_char,
    id: u64,
    if_absent: i32,
    error: RawError,
}

/// A small file to write.
pub(crate) struct Small<'a> {
    /// URL of the file. The file must not exist.
    pub(crate) url: Vec<u8>,
    pub(crate) bytes: &'a [u8],
    /// Name of the attribute to set.
    pub(crate) attribute: &'a str,
    /// Value of the attribute. The client library appends a space and the file's modification time
    /// at the server.
    pub(crate) value: String,
    pub(crate) mode: u32,
}

/// A small file that was written.
pub(crate) struct Written {
    /// Number of the file at the server.
    pub(crate) id: u64,
    /// True if the server did not compare checksums of the data on arrival.
    pub(crate) is_plain: bool,
}

/// A file that could not be written. `left` is the file number of the file that has the requested
/// name now. `left` is `None` if no file has the name, or if the file number is unknown.
pub(crate) struct NotWritten {
    pub(crate) error: Error,
    pub(crate) left: Option<u64>,
}

/// A file to rename.
pub(crate) struct Renaming {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
    /// Number of the file to rename; 0 for any file.
    pub(crate) id: u64,
    pub(crate) if_absent: bool,
}

impl Client {
    /// Writes small files, makes them durable and closes them. If the server supports it, the
    /// checksum of each page is compared on arrival. Returns one result for each file.
    pub(crate) fn write_small(
        &self,
        files: &[Small<'_>],
    ) -> Result<Vec<std::result::Result<Written, NotWritten>>> {
        let text = |file: &Small<'_>| -> Result<[CString; 3]> {
            Ok([
                words(&file.url)?,
                words(file.attribute)?,
                words(&file.value)?,
            ])
        };
        let texts: Vec<[CString; 3]> = files.iter().map(text).collect::<Result<_>>()?;
        let raw = files.iter().zip(&texts);
        let raw = raw.map(|(file, [url, attribute, value])| RawSmall {
            url: url.as_ptr(),
            bytes: file.bytes.as_ptr().cast(),
            size: file.bytes.len() as u64,
            attribute: attribute.as_ptr(),
            value: value.as_ptr(),
            mode: file.mode,
            is_made: 0,
            id: 0,
            is_plain: 0,
            zero: 0,
            error: RawError::none(),
        });
        let mut raw: Vec<RawSmall> = raw.collect();
        call("write the files", |error| {
            // SAFETY: the array has the length that is passed. All memory to which the structures
            // point lives until the call returns.
            unsafe { (self.write_small)(raw.as_mut_ptr(), raw.len() as u64, error) }.into()
        })?;
        let answer = |raw: &RawSmall| match raw.error.is_none() {
            true => Ok(Written {
                id: raw.id,
                is_plain: raw.is_plain != 0,
            }),
            false => Err(NotWritten {
                error: failed("write the file", &raw.error),
                left: (raw.is_made != 0 && raw.id != 0).then_some(raw.id),
            }),
        };
        Ok(raw.iter().map(answer).collect())
    }

    /// Makes the writes to each of these files durable. Each file is given with its length in
    /// bytes. Returns one result for each file.
    pub(crate) fn sync_each(&self, files: &[(&RemoteFile, u64)]) -> Result<Vec<Result<()>>> {
        let handles = files.iter().map(|(file, _)| file.file.as_ptr());
        let handles: Vec<*mut RawFile> = handles.collect();
        let bytes: Vec<u64> = files.iter().map(|(_, bytes)| *bytes).collect();
        let mut errors: Vec<RawError> = files.iter().map(|_| RawError::none()).collect();
        call("make the files durable", |error| {
            let (handles, count) = (handles.as_ptr(), handles.len() as u64);
            let (bytes, errors) = (bytes.as_ptr(), errors.as_mut_ptr());
            // SAFETY: the handles are open. The arrays have `count` handles, lengths and errors.
            unsafe { (self.sync_each)(handles, bytes, errors, count, error) }.into()
        })?;
        let answer = |raw: &RawError| match raw.is_none() {
            true => Ok(()),
            false => Err(failed("make the file durable", raw)),
        };
        Ok(errors.iter().map(answer).collect())
    }

    /// Renames files. Returns one result for each file.
    pub(crate) fn move_each(&self, server: &str, each: &[Renaming]) -> Result<Vec<Result<()>>> {
        let server = words(server)?;
        let text =
            |one: &Renaming| -> Result<[CString; 2]> { Ok([words(&one.from)?, words(&one.to)?]) };
        let texts: Vec<[CString; 2]> = each.iter().map(text).collect::<Result<_>>()?;
        let raw = each
            .iter()
            .zip(&texts)
            .map(|(one, [from, to])| RawRenaming {
                from: from.as_ptr(),
                to: to.as_ptr(),
                id: one.id,
                if_absent: one.if_absent.into(),
                error: RawError::none(),
            });
        let mut raw: Vec<RawRenaming> = raw.collect();
        let named: Words<'_> = server.as_ptr();
        call("rename the files to their final names", |error| {
            // SAFETY: the array has the length that is passed. All memory to which the structures
            // point lives until the call returns.
            unsafe { (self.move_each)(named, raw.as_mut_ptr(), raw.len() as u64, error) }.into()
        })?;
        let answer = |raw: &RawRenaming| match raw.error.is_none() {
            true => Ok(()),
            false => Err(failed("rename the file to its final name", &raw.error)),
        };
        Ok(raw.iter().map(answer).collect())
    }
}
