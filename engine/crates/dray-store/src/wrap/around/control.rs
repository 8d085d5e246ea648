//! Control files of a wrapped store. The hook sees each call.

use super::{Handle, Hook, Operation};
use crate::store::ControlFile;
use dray_core::Result;

impl<H: Hook> ControlFile for Handle<dyn ControlFile, H> {
    fn len(&self) -> Result<u64> {
        self.call(Operation::ControlRead, |inner| inner.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read(Operation::ControlRead, offset, buffer, |inner, buffer| {
            inner.read_at(offset, buffer)
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(Operation::ControlWrite, offset, bytes, |inner, bytes| {
            inner.write_at(offset, bytes)
        })
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.write(Operation::ControlWrite, 0, bytes, |inner, bytes| {
            inner.append(bytes)
        })
    }

    fn sync(&self) -> Result<()> {
        self.call(Operation::ControlSync, |inner| inner.sync())
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.call(Operation::ControlTruncate, |inner| {
            inner.truncate(size_bytes)
        })
    }

    fn replace(&self, bytes: &[u8]) -> Result<()> {
        self.write(Operation::ControlReplace, 0, bytes, |inner, bytes| {
            inner.replace(bytes)
        })
    }

    fn try_lock(&self) -> Result<bool> {
        self.call(Operation::ControlLock, |inner| inner.try_lock())
    }

    fn unlock(&self) -> Result<()> {
        self.call(Operation::ControlLock, |inner| inner.unlock())
    }
}
