//! The data of one run of `dray cp`.

use crate::args::Cp;
use crate::progress::Feed;
use dray_core::TransferId;
use dray_core::options::Options;
use dray_open::locations::Places;
use dray_open::prepare::Targets;
use dray_runtime::assembly::Content;
use dray_runtime::drive::Watch;
use dray_runtime::handle::Handle;
use dray_runtime::listing::Checkpoint;
use dray_wire::message::Selection;
use std::sync::Arc;

/// The arguments of a run, for local and remote copies.
pub(crate) struct Run<'a> {
    pub(crate) cp: &'a Cp,
    pub(crate) places: &'a Places,
    pub(crate) transfer: TransferId,
    pub(crate) options: Options,
    pub(crate) content: Content,
    pub(crate) targets: Targets,
    pub(crate) feed: &'a Feed,
    /// The observer of the copy: the feed and the spans.
    pub(crate) watch: &'a dyn Watch,
    pub(crate) handle: Handle,
    /// File that records the listing of the source.
    pub(crate) checkpoint: Option<Arc<Checkpoint>>,
}

impl Run<'_> {
    /// Returns the selection, and the new name of the source if there is one.
    pub(crate) fn selection(&self) -> Selection {
        Selection {
            rename: self.places.rename.clone(),
            ..self.cp.what.selection()
        }
    }
}
