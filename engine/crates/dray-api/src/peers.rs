//! Other endpoints that callers reach through this endpoint.

use crate::checks::{self, Check, refused};
use crate::enums::{self, Direction};
use crate::page_default;
use dray_core::options::Overwrite;
use dray_core::{Result, TransferId};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Maximum number of paths of one ticket.
const PATHS_MAX: usize = 256;

/// Maximum size of a token in bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Another endpoint in the configuration of this endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerAnswer {
    /// Name in the configuration.
    pub name: String,
    /// `HOST:PORT`, as in the URLs of the endpoint.
    pub address: String,
}

/// The other endpoints in the configuration of this endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerList {
    /// The endpoints, in the order of the configuration.
    pub peers: Vec<PeerAnswer>,
}

/// A token of the caller for the other endpoint.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(max_length = 16384)]
pub struct PeerToken(pub String);

// Debug output must not contain the token.
impl fmt::Debug for PeerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerToken")
    }
}

impl PeerToken {
    /// Checks that the token can be part of an HTTP header.
    fn check(&self) -> Result<()> {
        let is_fit = |byte: u8| byte.is_ascii_graphic();
        match self.0.len() {
            1..=TOKEN_BYTES_MAX if self.0.bytes().all(is_fit) => Ok(()),
            _ => Err(refused(
                "token",
                "write a bearer token: 1 to 16384 printable ASCII characters without spaces",
            )),
        }
    }
}

/// A request for the description of another endpoint.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerQuery {
    /// The caller's token for the other endpoint.
    pub token: PeerToken,
}

impl Check for PeerQuery {
    fn check(&self) -> Result<()> {
        self.token.check()
    }
}

/// A request for the entries of a folder at another endpoint.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerListRequest {
    /// The caller's token for the other endpoint.
    pub token: PeerToken,
    /// `/ROOT/PATH` of the folder at the other endpoint.
    #[schema(max_length = 16384)]
    pub path: String,
    /// Maximum number of items of the page.
    #[serde(default = "page_default")]
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Cursor from `next` of the previous page.
    #[serde(default)]
    pub cursor: Option<String>,
}

impl Check for PeerListRequest {
    fn check(&self) -> Result<()> {
        self.token.check()?;
        crate::ApiPath::parse(&self.path)?;
        checks::page("limit", self.limit.into())
    }
}

/// A request for a new folder at another endpoint.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerMkdirRequest {
    /// The caller's token for the other endpoint.
    pub token: PeerToken,
    /// `/ROOT/PATH` of the folder at the other endpoint.
    #[schema(max_length = 16384)]
    pub path: String,
    /// True to create missing parent folders as well.
    #[serde(default)]
    pub parents: bool,
}

impl Check for PeerMkdirRequest {
    fn about(&self) -> Vec<String> {
        vec![self.path.clone()]
    }

    fn check(&self) -> Result<()> {
        self.token.check()?;
        crate::ApiPath::parse(&self.path)?;
        Ok(())
    }
}

/// A request for a ticket of another endpoint. This endpoint will present the ticket.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerTicketRequest {
    /// The caller's token for the other endpoint.
    pub token: PeerToken,
    /// Id of the transfer that will use the ticket.
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub transfer: String,
    /// Direction of the data: `read` from the other endpoint, or `write` to it.
    pub direction: Direction,
    /// Paths at the other endpoint that the ticket covers, with all paths below them.
    #[schema(min_items = 1, max_items = 256)]
    pub paths: Vec<String>,
    /// Strongest treatment of existing files that the transfer may request.
    #[serde(default)]
    #[schema(value_type = enums::Overwrite)]
    pub overwrite: Overwrite,
}

impl Check for PeerTicketRequest {
    fn transfer(&self) -> Option<&str> {
        Some(&self.transfer)
    }

    fn check(&self) -> Result<()> {
        self.token.check()?;
        TransferId::new(self.transfer.as_str())
            .map_err(|error| refused("transfer", error.cause))?;
        checks::count("paths", self.paths.len(), &(1..=PATHS_MAX))?;
        for path in &self.paths {
            crate::ApiPath::parse(path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::PeerQuery;
    use crate::Check;

    #[test]
    fn a_token_is_neither_shown_nor_put_into_another_header() {
        let query = |text: &str| {
            let json = serde_json::json!({"token": text});
            serde_json::from_value::<PeerQuery>(json).expect("a query")
        };
        let good = query("eyJ.secret");
        assert!(good.check().is_ok());
        assert!(!format!("{good:?}").contains("secret"), "{good:?}");
        for bad in ["", "se cret", "a\r\nHost: b", "\u{e9}", &"x".repeat(16385)] {
            let error = query(bad).check().expect_err("refused");
            assert!(
                bad.is_empty() || !error.to_string().contains(bad),
                "{error}"
            );
        }
    }
}
