//! The refusal of a request, with alternatives if the request cannot be promised.

use crate::promises::Asked;
use dray_api::{Admitted, ErrorParts};
use dray_core::Error;

/// The refusal of a request.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The reason.
    pub error: Error,
    /// The alternatives, if the request cannot be promised.
    pub admission: Option<Box<Admitted>>,
    /// Requests whose alternatives must still be searched, after the write.
    pub(super) untold: Option<Box<Untold>>,
}

/// Refused requests whose alternatives were not searched yet.
#[derive(Debug, Clone)]
pub(super) struct Untold {
    pub(super) asked: Vec<Asked>,
    /// Indices of these requests in the batch.
    pub(super) places: Vec<usize>,
}

impl Refused {
    pub(super) fn untold(error: Error, asked: Vec<Asked>) -> Self {
        let places = Vec::new();
        Self {
            untold: Some(Box::new(Untold { asked, places })),
            ..Self::from(error)
        }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self {
            error,
            admission: None,
            untold: None,
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::ops::Deref for Refused {
    type Target = Error;

    fn deref(&self) -> &Error {
        &self.error
    }
}

impl From<Refused> for ErrorParts {
    fn from(refused: Refused) -> Self {
        Self {
            admission: refused.admission,
            ..Self::from(&refused.error)
        }
    }
}
