//! The table of the kinds of stores that a URL can name. A new kind needs its own crate and one
//! entry in [`STORES`].

use crate::disks::Disks;
use crate::gridftp::GridFtpServers;
use crate::null::NullEnds;
use crate::rados::RadosPools;
use crate::store_kind::{Location, StoreKind};
use crate::web::WebServers;
use crate::xrootd::XrootdServers;
use dray_core::Result;
use std::sync::Arc;

/// All kinds of stores that a URL can name.
static STORES: [&dyn StoreKind; 6] = [
    &WebServers,
    &XrootdServers,
    &RadosPools,
    &GridFtpServers,
    &Disks,
    &NullEnds,
];

/// A list of kinds of stores, to find the kind that a URL names.
#[derive(Clone)]
pub struct Registry(Vec<&'static dyn StoreKind>);

impl Default for Registry {
    fn default() -> Self {
        Self(STORES.to_vec())
    }
}

impl Registry {
    /// Adds another kind of store.
    #[must_use]
    pub fn with(mut self, kind: &'static dyn StoreKind) -> Self {
        self.0.push(kind);
        self
    }

    /// Returns the registry without null ends.
    #[must_use]
    pub(crate) fn keeping(&self) -> Self {
        let keeps = |kind: &&&'static dyn StoreKind| !kind.keeps_nothing();
        Self(self.0.iter().filter(keeps).copied().collect())
    }

    /// Parses a location as typed. Returns `None` if it does not begin like a URL of any registered
    /// kind.
    ///
    /// # Errors
    /// The errors of [`StoreKind::parse`].
    pub fn parse(&self, typed: &[u8]) -> Result<Option<Arc<dyn Location>>> {
        for kind in &self.0 {
            if let Some(location) = kind.parse(typed)? {
                return Ok(Some(location));
            }
        }
        Ok(None)
    }

    /// Returns the URL schemes of all writable, or all read-only, stores as a text for messages.
    pub(crate) fn schemes(&self, are_writable: bool) -> String {
        let kinds = self.0.iter().filter(|kind| !kind.keeps_nothing());
        let named = kinds.filter(|kind| kind.is_writable() == are_writable);
        let schemes: Vec<&str> = named.map(|kind| kind.scheme()).collect();
        schemes.join(" or ")
    }
}
