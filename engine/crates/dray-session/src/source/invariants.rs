//! Checks of the invariants that are visible in the state of a source.

use super::{Phase, Source};
use crate::invariants::{
    ATTEMPT, Breach, CHECKED_BLOCKS_MAX, POOL, VERDICT, are_of_pool, ensure, overlap,
};
#[cfg(feature = "mutants")]
use crate::mutants::{Mutant, Planted};

impl Source {
    /// Plants a defect in this machine, for a test of the invariants.
    #[cfg(feature = "mutants")]
    pub fn plant(&mut self, mutant: Mutant) {
        self.planted = Planted::new(mutant);
    }

    /// Checks the invariants. Tests and the simulator call this after each input.
    ///
    /// # Errors
    ///
    /// The name of an invariant that does not hold.
    pub fn check_invariants(&self) -> Result<(), &'static str> {
        let held = self.blocks.values().filter_map(|block| block.buffer);
        let sending = self.sending.values().filter_map(|sending| sending.buffer);
        let buffers = self.free.iter().copied().chain(held).chain(sending);
        ensure(are_of_pool(buffers, self.config.buffers), POOL)?;
        let parts = self.blocks.values().flat_map(|block| &block.parts);
        let live = parts.filter(|(file, _)| self.files.contains_key(file));
        ensure(!overlap(live.copied()), ATTEMPT)?;
        let is_closing = matches!(self.phase, Phase::Closing(_));
        ensure(!is_closing || self.files.is_empty(), VERDICT)
    }

    /// Checks the invariants in debug builds. Skips the check if the machine has more than
    /// [`CHECKED_BLOCKS_MAX`] blocks, or if a defect is planted, because the simulator must detect
    /// that defect by itself.
    pub(super) fn check_if_small(&self) -> Result<(), Breach> {
        match self.planted.is_any() || self.blocks.len() > CHECKED_BLOCKS_MAX {
            true => Ok(()),
            false => self.check_invariants(),
        }
    }
}
