//! The table of stores that a URL can name. A store is one crate and one line of [`STORES`].

use crate::null::NullEnds;
use crate::store_kind::{Location, StoreKind};
use crate::web::WebServers;
use crate::xrootd::XrootdServers;
use dray_core::Result;
use std::sync::Arc;

/// Every store that a URL can name.
static STORES: [&dyn StoreKind; 3] = [&WebServers, &XrootdServers, &NullEnds];

/// The stores that URLs are looked up in.
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

    /// Returns the registry without stores that keep nothing.
    #[must_use]
    pub(crate) fn keeping(&self) -> Self {
        let keeps = |kind: &&&'static dyn StoreKind| !kind.keeps_nothing();
        Self(self.0.iter().filter(keeps).copied().collect())
    }

    /// Parses a location as typed. `None` if no store claims it.
    ///
    /// # Errors
    /// As [`StoreKind::parse`].
    pub fn parse(&self, typed: &[u8]) -> Result<Option<Arc<dyn Location>>> {
        for kind in &self.0 {
            if let Some(location) = kind.parse(typed)? {
                return Ok(Some(location));
            }
        }
        Ok(None)
    }

    /// Returns the schemes of stores that can be written, or of those that cannot, for a message.
    pub(crate) fn schemes(&self, are_writable: bool) -> String {
        let kinds = self.0.iter().filter(|kind| !kind.keeps_nothing());
        let named = kinds.filter(|kind| kind.is_writable() == are_writable);
        let schemes: Vec<&str> = named.map(|kind| kind.scheme()).collect();
        schemes.join(" or ")
    }
}
