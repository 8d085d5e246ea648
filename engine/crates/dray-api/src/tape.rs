//! The WLCG Tape REST API, version 1: its requests and answers. The types and fields have the names
//! of the API's reference document.
//!
//! This document allows fields that an endpoint does not know, so requests with such fields are
//! accepted.

mod duration;

use crate::api_path::TEXT_BYTES_MAX;
use crate::checks::{self, Check, SECONDS_MAX, WORD_BYTES_MAX};
use crate::failure::ErrorParts;
use dray_core::{End, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Maximum number of files of a request, and of paths of a call.
pub const TAPE_FILES_MAX: usize = 10_000;

/// Name that means any endpoint in the metadata of a file.
const ANY_SITE: &str = "dray";

/// Maximum number of paths of a call that the audit log contains.
const PATHS_LOGGED: usize = 100;

/// Description of the tape API for clients that know only the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TapeDiscovery {
    /// Name of the site in the field `targetedMetadata` of requests.
    pub sitename: String,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The supported versions of the tape API.
    pub endpoints: Vec<TapeVersion>,
}

/// A supported version of the tape API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TapeVersion {
    /// URL before the paths of the calls.
    pub uri: String,
    /// Version: `v1`.
    pub version: String,
    /// An empty object.
    pub metadata: BTreeMap<String, String>,
}

/// A request that stages files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TapeStageRequest {
    /// The files.
    #[schema(min_items = 1, max_items = 10000)]
    pub files: Vec<TapeFileRequest>,
}

/// A file to stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TapeFileRequest {
    /// Path of the file in the slow root, or of its fast copy in the fast root.
    pub path: String,
    /// Time for which the fast copy is kept, as an ISO 8601 duration such as `PT12H` or `P2D`.
    /// Default: `tape.lifetime` of the configuration.
    #[serde(
        default,
        rename = "diskLifetime",
        skip_serializing_if = "Option::is_none"
    )]
    pub disk_lifetime: Option<String>,
    /// JSON objects by the name of the site for which each object is meant. The name `dray` means
    /// any endpoint. The transfer uses the fields `activity` and `priority` (0 to 9) of its site's
    /// object.
    #[serde(
        default,
        rename = "targetedMetadata",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Object>)]
    pub targeted_metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

impl TapeFileRequest {
    /// Returns the seconds of `diskLifetime`.
    ///
    /// # Errors
    /// `InvalidRequest` if the text is not an ISO 8601 duration, or exceeds ten years.
    pub fn lifetime_seconds(&self) -> Result<Option<u64>> {
        let Some(text) = &self.disk_lifetime else {
            return Ok(None);
        };
        match duration::seconds(text) {
            Some(seconds) if seconds <= SECONDS_MAX => Ok(Some(seconds)),
            _ => {
                let shown: String = text.chars().take(64).collect();
                let cause = format!("{shown:?} is not a duration such as PT12H or P2D");
                Err(checks::refused("diskLifetime", cause))
            }
        }
    }

    /// Returns the activity that the metadata for `site` contains.
    ///
    /// # Errors
    /// `InvalidRequest` if the activity is too long or has a control character.
    pub fn activity(&self, site: &str) -> Result<Option<&str>> {
        let activity = self
            .metadata(site, "activity")
            .and_then(|value| value.as_str());
        if let Some(activity) = activity {
            checks::text("activity", activity, WORD_BYTES_MAX)?;
        }
        Ok(activity.filter(|activity| !activity.is_empty()))
    }

    /// Returns the priority that the metadata for `site` contains. A value that is not a number
    /// from 0 to 9 is ignored, because other systems may use the same field.
    #[must_use]
    pub fn priority(&self, site: &str) -> Option<u8> {
        let number = self.metadata(site, "priority")?.as_u64()?;
        u8::try_from(number).ok().filter(|priority| *priority <= 9)
    }

    fn metadata(&self, site: &str, field: &str) -> Option<&serde_json::Value> {
        let metadata = self.targeted_metadata.as_ref()?;
        let of = |name: &str| metadata.get(name)?.get(field);
        of(site).or_else(|| of(ANY_SITE))
    }
}

impl Check for TapeStageRequest {
    fn check(&self) -> Result<()> {
        counted("files", self.files.len())?;
        self.files.iter().try_for_each(|file| {
            path_length(&file.path)?;
            file.lifetime_seconds().map(drop)
        })
    }

    fn about(&self) -> Vec<String> {
        let paths = self.files.iter().map(|file| file.path.clone());
        paths.take(PATHS_LOGGED).collect()
    }
}

fn counted(field: &str, count: usize) -> Result<()> {
    match count {
        0 => Err(checks::refused(field, "the array is empty")),
        count if count > TAPE_FILES_MAX => {
            Err(
                Error::new(ErrorKind::LimitExceeded, End::Here, "read the request")
                    .cause(format!(
                        "{field} has {count} items; at most {TAPE_FILES_MAX} items are allowed"
                    ))
                    .remedy("split the list into several requests"),
            )
        }
        _ => Ok(()),
    }
}

fn path_length(path: &str) -> Result<()> {
    match path.len() {
        bytes if bytes > TEXT_BYTES_MAX => {
            let cause = format!("the path has {bytes} bytes; {TEXT_BYTES_MAX} bytes are allowed");
            Err(checks::refused("path", cause))
        }
        _ => Ok(()),
    }
}

/// Answer to a request that stages files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TapeStaged {
    /// Id of the request.
    #[serde(rename = "requestId")]
    pub request_id: String,
}

/// State of a file in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TapeFileState {
    /// The transfer has not started.
    Submitted,
    /// The transfer has started.
    Started,
    /// The client cancelled the file.
    Cancelled,
    /// The fast copy could not be made.
    Failed,
    /// The fast copy is complete.
    Completed,
}

impl TapeFileState {
    /// Returns the name of the state.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Submitted => "SUBMITTED",
            Self::Started => "STARTED",
            Self::Cancelled => "CANCELLED",
            Self::Failed => "FAILED",
            Self::Completed => "COMPLETED",
        }
    }

    /// Returns the state of this name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let all = [
            Self::Submitted,
            Self::Started,
            Self::Cancelled,
            Self::Failed,
            Self::Completed,
        ];
        all.into_iter().find(|state| state.word() == word)
    }
}

/// Progress of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TapeStageStatus {
    /// Id of the request.
    pub id: String,
    /// Time at which the endpoint received the request, in seconds since 1970.
    pub created_at: u64,
    /// Time at which the first file started. Before that, the same as `createdAt`.
    pub started_at: u64,
    /// Time at which the last file ended. Absent before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<u64>,
    /// The files, sorted by path.
    pub files: Vec<TapeFileStatus>,
}

/// Progress of a file in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TapeFileStatus {
    /// Path of the request, without doubled slashes.
    pub path: String,
    /// State of the file.
    pub state: TapeFileState,
    /// Time at which the transfer started, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// Time at which the file ended, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<u64>,
    /// Error of a failed file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Path of the fast copy. Not part of the WLCG document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_path: Option<String>,
}

/// Paths of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TapePaths {
    /// The paths.
    #[schema(min_items = 1, max_items = 10000)]
    pub paths: Vec<String>,
}

impl Check for TapePaths {
    fn check(&self) -> Result<()> {
        counted("paths", self.paths.len())?;
        self.paths.iter().try_for_each(|path| path_length(path))
    }

    fn about(&self) -> Vec<String> {
        self.paths.iter().take(PATHS_LOGGED).cloned().collect()
    }
}

/// Places that hold the data of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TapeLocality {
    /// Only the fast root has the data, or the slow copy is older than the fast copy.
    Disk,
    /// Only the slow root has the data.
    Tape,
    /// Both roots have the data, with the same size and time.
    DiskAndTape,
    /// One of the roots cannot be read now.
    Unavailable,
}

/// Locality of a file, or the error of its look-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TapeFileInfo {
    /// Path of the request.
    pub path: String,
    /// Places of the data. Absent if the file does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality: Option<TapeLocality>,
    /// Error of the look-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A refused call of the tape API, in the form of RFC 7807.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TapeProblem {
    /// HTTP status code.
    pub status: u16,
    /// Summary of the kind of error.
    pub title: String,
    /// The error in one line.
    pub detail: String,
    /// The error in the form of the other calls.
    pub error: ErrorParts,
}

/// Returns a path without doubled slashes and without a slash at its end.
#[must_use]
pub fn without_doubled_slashes(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !text.ends_with('/') {
            text.push(c);
        }
    }
    if text.len() > 1 && text.ends_with('/') {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{TapePaths, TapeStageRequest, without_doubled_slashes};
    use crate::Check;
    use dray_core::ErrorKind;
    use serde_json::json;

    #[test]
    fn doubled_slashes_are_removed() {
        for (text, wanted) in [
            ("//slow///a//b", "/slow/a/b"),
            ("/slow/a/", "/slow/a"),
            ("/", "/"),
            ("//", "/"),
            ("", ""),
        ] {
            assert_eq!(without_doubled_slashes(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_request_is_read_with_fields_that_are_unknown() {
        let text = json!({"files": [{"path": "/slow/a", "diskLifetime": "PT1H", "more": 1,
            "targetedMetadata": {"here": {"activity": "reco", "priority": "high"},
                "there": {"activity": "x"}, "dray": {"activity": "any", "priority": 7}}}],
            "priority": 3});
        let request: TapeStageRequest = serde_json::from_value(text).expect("read");
        request.check().expect("good");
        assert_eq!(
            request.files[0].activity("here").expect("good"),
            Some("reco")
        );
        assert_eq!(
            request.files[0].activity("elsewhere").expect("good"),
            Some("any")
        );
        assert_eq!(request.files[0].priority("here"), None, "not a number");
        assert_eq!(request.files[0].priority("elsewhere"), Some(7));
        assert_eq!(
            request.files[0].lifetime_seconds().expect("good"),
            Some(3_600)
        );
    }

    #[test]
    fn bounds_are_checked() {
        let none = TapePaths { paths: Vec::new() };
        assert_eq!(
            none.check().expect_err("empty").kind,
            ErrorKind::InvalidRequest
        );
        let many = TapePaths {
            paths: vec!["/slow/a".to_owned(); super::TAPE_FILES_MAX + 1],
        };
        assert_eq!(
            many.check().expect_err("many").kind,
            ErrorKind::LimitExceeded
        );
        for wrong in ["1h", "PT", "P1", "PT-1H", "P99Y"] {
            let text = json!({"files": [{"path": "/slow/a", "diskLifetime": wrong}]});
            let request: TapeStageRequest = serde_json::from_value(text).expect("read");
            assert!(request.check().is_err(), "{wrong}");
        }
    }
}
