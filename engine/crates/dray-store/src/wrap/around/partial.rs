//! The partial files of a store with a hook.

use super::{Handle, Hook, Operation};
use crate::store::Partial;
use crate::types::{Attributes, PartialId, Publish};
use dray_core::{ByteRange, Layout, Result};

impl<H: Hook> Partial for Handle<dyn Partial, H> {
    fn id(&self) -> PartialId {
        self.inner.id()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(Operation::Write, offset, bytes, |inner, bytes| {
            inner.write_at(offset, bytes)
        })
    }

    fn take_space(&self, size_bytes: u64) -> Result<bool> {
        self.inner.take_space(size_bytes)
    }

    fn layout(&self) -> Option<Layout> {
        self.inner.layout()
    }

    fn takes_one_writer(&self) -> bool {
        !H::DELAYS && self.inner.takes_one_writer()
    }

    fn punch_hole(&self, range: ByteRange) -> Result<()> {
        // Report no length, because a hole moves no bytes.
        self.call(Operation::PunchHole, |inner| inner.punch_hole(range))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read(Operation::ReadBack, offset, buffer, |inner, buffer| {
            inner.read_at(offset, buffer)
        })
    }

    fn set_len(&self, size_bytes: u64) -> Result<()> {
        self.call(Operation::SetLen, |inner| inner.set_len(size_bytes))
    }

    fn sync(&self) -> Result<()> {
        self.call(Operation::Sync, |inner| inner.sync())
    }

    fn ready(&self, attributes: &Attributes<'_>) -> Result<()> {
        self.inner.ready(attributes) // The hook sees only the call of `publish`.
    }

    fn publish(&self, how: Publish, attributes: &Attributes<'_>) -> Result<()> {
        let call = self.describe(Operation::Publish, 0, 0);
        let others = self.hook.to_publish(&call, attributes)?;
        let attributes = attributes.with(others.as_ref());
        self.call(Operation::Publish, |inner| inner.publish(how, &attributes))
    }

    fn abort(&self) -> Result<()> {
        self.call(Operation::Discard, |inner| inner.abort())
    }
}
