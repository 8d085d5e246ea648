//! A request for a transfer.

use crate::api_path::decode;
use crate::checks::{self, BYTES_MAX, Check, SECONDS_MAX, WORD_BYTES_MAX, refused};
use crate::enums::{self, AdmissionWord, OrderWord};
use crate::files::{self, FileWish};
use crate::parts::{Content, Place, RetryWish, SciTag, Selection};
use crate::streams::{STREAMS_MAX, Streams};
use crate::timestamp::Timestamp;
use dray_core::options::{Durability, Overwrite, ResumeMode};
use dray_core::rate::Class;
use dray_core::{RelPath, Required, Result, StripeChoice, TraceContext, TransferId, plan};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use utoipa::ToSchema;

/// Maximum number of sources of one transfer; equal to the maximum number of paths of a ticket.
const SOURCES_MAX: usize = 256;
/// Maximum number of replicas of a source.
const REPLICAS_MAX: usize = 15;
/// Maximum number of local addresses of one transfer.
const BIND_MAX: usize = 16;

/// Ids that the API uses in its own paths. No transfer may have one of them.
const RESERVED_IDS: [&str; 4] = [".", "..", "batch", "query"];

/// Returns true if no transfer may have this id.
#[must_use]
pub fn reserved_id(id: &str) -> bool {
    RESERVED_IDS.contains(&id)
}

/// A request for a transfer. Only `sources` and `destination` are required.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Id of the transfer, chosen by the caller. The endpoint generates an id if it is left out.
    #[serde(
        default,
        deserialize_with = "id",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<TransferId>,
    /// Files and folders to copy, all in one root of one endpoint. If there are several sources,
    /// the destination is a folder, and each source is copied into it.
    #[schema(min_items = 1, max_items = 256)]
    pub sources: Vec<Place>,
    /// Copies of the source with equal content. If the source fails, the endpoint reads the
    /// replicas one after the other. Each replica must have the size of the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 15)]
    pub replicas: Vec<Place>,
    /// Destination of the copy.
    pub destination: Place,
    /// Expected size and checksum, if the transfer copies a single file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// The files to copy from the source, which is a folder. Each file keeps its path below the
    /// destination. Without a list, the transfer copies all selected files. A list needs a
    /// destination at this endpoint, `recursive`, and no patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1024)]
    pub files: Vec<FileWish>,
    /// Selection of the entries to copy.
    #[serde(default)]
    pub selection: Selection,
    /// Minimum number of files; the transfer fails if it finds fewer files (default: the number of
    /// `files`, or 1 without a list). Files that already exist at the destination count. With 0, a
    /// transfer that finds no file succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_min: Option<u64>,
    /// Scheduling class; default `deadline` with a deadline, else `background`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<enums::Class>)]
    pub class: Option<Class>,
    /// Time by which the transfer should complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Earliest start time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Treatment of the request if the endpoint cannot promise `deadline` or `rate_min`; default
    /// `required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionWord>,
    /// Expected bytes of the transfer, if known. A promised deadline covers this number of bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_expected: Option<u64>,
    /// Priority; 9 is the highest. Within a class, transfers with a higher priority start first.
    #[serde(default = "priority_default")]
    #[schema(minimum = 0, maximum = 9, default = 3)]
    pub priority: u8,
    /// Weight in the sharing of resources with other transfers.
    #[serde(default = "weight_default")]
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    pub weight: u32,
    /// Minimum rate in bytes per second that the transfer should get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub rate_min: Option<u64>,
    /// Maximum rate in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub rate_max: Option<u64>,
    /// Activity that the transfer belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub activity: Option<String>,
    /// Labels to find the transfer by, at most 32.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Packet marking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scitag: Option<SciTag>,
    /// Condition under which bytes count as durable.
    #[serde(default)]
    #[schema(value_type = enums::Durability)]
    pub durability: Durability,
    /// Action for files that already exist at the destination.
    #[serde(default)]
    #[schema(value_type = enums::Overwrite)]
    pub overwrite: Overwrite,
    /// Read each file back and compare it before it gets its final name.
    #[serde(default)]
    pub verify: bool,
    /// Treatment of durable ranges of an earlier run.
    #[serde(default)]
    #[schema(value_type = enums::ResumeMode)]
    pub resume: ResumeMode,
    /// Copy extended attributes.
    #[serde(default)]
    pub xattrs: bool,
    /// Stripes of new files at a destination on Lustre: `source` (the stripes of the source file;
    /// needs `xattrs`), `COUNT` or `COUNT:BYTES`. The COUNT `all` means all object storage targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 64, example = "4:16MiB")]
    pub stripe: Option<StripeChoice>,
    /// Store checksums as extended attributes of the copied files.
    #[serde(default)]
    pub checksum_attributes: bool,
    /// Order in which objects are sent.
    #[serde(default)]
    pub order: OrderWord,
    /// Object size in bytes. Default: 1 MiB, or the size that suits the storage systems of this
    /// endpoint in the transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 4096, maximum = 67108864)]
    pub object_size: Option<u64>,
    /// Number of data connections, or `auto`. Default: the number in the endpoint's configuration,
    /// which is 4 unless an administrator has changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    /// Send file contents outside TLS; checksums still protect them.
    #[serde(default)]
    pub clear_data: bool,
    /// Local addresses to connect from.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 16)]
    pub bind: Vec<IpAddr>,
    /// Number and interval of retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryWish>,
    /// Cancel the transfer if no client queries it for this number of seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub bound_seconds: Option<u64>,
    /// Span to which the spans of the transfer belong, as in the header `traceparent` (W3C Trace
    /// Context). Default: the header of the call. An invalid value is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Default of `files_min`.
const FILES_MIN: u64 = 1;

const fn priority_default() -> u8 {
    3
}

const fn weight_default() -> u32 {
    100
}

fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TransferId>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else {
        return Ok(None);
    };
    match TransferId::new(text) {
        Ok(id) if reserved_id(id.as_str()) => Err(serde::de::Error::custom(format!(
            "id: \"{id}\" is reserved, because the API uses this word in its paths; choose \
                another id"
        ))),
        Ok(id) => Ok(Some(id)),
        Err(error) => Err(serde::de::Error::custom(format!("id: {}", error.cause))),
    }
}

impl Request {
    /// Returns a request that has default values in all other fields.
    #[must_use]
    pub fn new(sources: Vec<Place>, destination: Place) -> Self {
        Self {
            id: None,
            sources,
            replicas: Vec::new(),
            destination,
            content: None,
            files: Vec::new(),
            selection: Selection::default(),
            files_min: None,
            class: None,
            deadline: None,
            not_before: None,
            admission: None,
            bytes_expected: None,
            priority: priority_default(),
            weight: weight_default(),
            rate_min: None,
            rate_max: None,
            activity: None,
            labels: BTreeMap::new(),
            scitag: None,
            durability: Durability::default(),
            overwrite: Overwrite::default(),
            verify: false,
            resume: ResumeMode::default(),
            xattrs: false,
            stripe: None,
            checksum_attributes: false,
            order: OrderWord::default(),
            object_size: None,
            streams: None,
            clear_data: false,
            bind: Vec::new(),
            retry: None,
            bound_seconds: None,
            traceparent: None,
        }
    }

    /// Returns the scheduling class, with its default.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class.unwrap_or(match self.deadline {
            Some(_) => Class::Deadline,
            None => Class::Background,
        })
    }

    /// Returns the expected number of bytes, if the request states it.
    #[must_use]
    pub fn bytes_stated(&self) -> Option<u64> {
        let content = self.content.as_ref().and_then(|content| content.size);
        let range = self.selection.range.map(|range| range.length);
        let listed = files::bytes(&self.files);
        range.or(content).or(listed).or(self.bytes_expected)
    }

    /// Returns the number of origins to choose from. All sources together are one origin, and each
    /// replica is a further origin.
    #[must_use]
    pub const fn origins(&self) -> usize {
        1 + self.replicas.len()
    }

    /// Returns the places that a session reads: all sources for index 0, and one replica for each
    /// index from 1 on.
    #[must_use]
    pub fn origin(&self, index: usize) -> &[Place] {
        match index.checked_sub(1) {
            None => &self.sources,
            Some(replica) => self.replicas.get(replica..=replica).unwrap_or_default(),
        }
    }

    /// Returns all sources and replicas.
    pub fn origin_places(&self) -> impl Iterator<Item = &Place> {
        self.sources.iter().chain(&self.replicas)
    }

    /// Returns true if the destination is a folder, in which each source keeps its name.
    #[must_use]
    pub fn is_into_folder(&self) -> bool {
        let several = self.sources.len() > 1;
        several || self.selection.recursive || self.destination.url.ends_with('/')
    }

    /// Returns the minimum number of files that the transfer must find.
    #[must_use]
    pub fn files_min(&self) -> u64 {
        let listed = u64::try_from(self.files.len()).unwrap_or(u64::MAX);
        self.files_min.unwrap_or(listed.max(FILES_MIN))
    }

    /// Returns the include patterns. If the request lists files, each pattern matches one file.
    #[must_use]
    pub fn include(&self) -> Vec<String> {
        match self.files.is_empty() {
            true => self.selection.include.clone(),
            false => files::patterns(&self.files),
        }
    }

    /// Returns the requirements on the listed files, by the path of each file.
    #[must_use]
    pub fn required(&self) -> BTreeMap<RelPath, Required> {
        files::required(&self.files)
    }

    /// Returns the span to which the spans of the transfer belong.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        self.traceparent.as_deref().and_then(TraceContext::parse)
    }

    /// Returns all places of the request.
    pub fn places_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.sources
            .iter_mut()
            .chain(&mut self.replicas)
            .chain(std::iter::once(&mut self.destination))
    }

    /// Returns the request without its tickets, so that it can be shown.
    #[must_use]
    pub fn without_tickets(mut self) -> Self {
        for place in self.places_mut() {
            place.ticket = None;
        }
        self
    }

    /// Returns the part of the request by which two submissions are compared: everything except the
    /// id, the trace and the values that a ticket call returned.
    #[must_use]
    pub fn essence(mut self) -> Self {
        self.id = None;
        self.traceparent = None;
        // Treat a default value as an absent field: earlier versions of dray stored requests with
        // the default values.
        self.streams = self.streams.filter(|streams| *streams != Streams::USUAL);
        self.files_min = self.files_min.filter(|least| *least != FILES_MIN);
        for place in self.places_mut() {
            (place.ticket, place.key, place.address) = (None, None, None);
            place.size = None;
        }
        self
    }
}

/// Returns the last name of a place's URL. The name is empty if the URL ends with a slash, which
/// means the contents of a folder.
fn name(place: &Place) -> Result<Vec<u8>> {
    decode(place.url.rsplit('/').next().unwrap_or_default())
}

/// Checks the last component of the path of each source and replica. If the destination is a
/// folder, each file keeps its name there. So two sources must have different names, and a replica
/// must have the name of its source.
fn check_names(request: &Request) -> Result<()> {
    if !request.is_into_folder() {
        return Ok(());
    }
    let mut names = BTreeSet::new();
    for source in &request.sources {
        let name = name(source)?;
        if !name.is_empty() && !names.insert(name) {
            let cause = format!(
                "the source {} has the same file or folder name as another source, so the two \
                    would replace each other at the destination",
                source.url
            );
            return Err(refused(
                "sources",
                format!("{cause}. Submit one transfer for each source"),
            ));
        }
    }
    for replica in &request.replicas {
        let own = name(replica)?;
        let is_same = match names.is_empty() {
            true => own.is_empty(),
            false => names.contains(&own),
        };
        if !is_same {
            let remedy = match request.selection.recursive {
                // If every URL ends with a slash, only the contents are copied, so the last names
                // do not matter.
                true => {
                    "End each URL with a slash to copy only the folder's contents into the \
                    destination"
                }
                false => {
                    "Write the destination as the name of the file, without a slash at the end \
                        of the URL"
                }
            };
            let cause = "all replicas of a file that is copied into a folder must have the same \
                name, but the names differ";
            return Err(refused("replicas", format!("{cause}. {remedy}")));
        }
    }
    Ok(())
}

/// Checks that a request with several sources has no replicas and no field about a single file.
fn check_several(request: &Request) -> Result<()> {
    if request.sources.len() <= 1 {
        return Ok(());
    }
    if !request.replicas.is_empty() {
        let cause = "replicas are allowed with a single source only, but this request has several \
            sources";
        return Err(refused("replicas", cause));
    }
    if request.content.is_some() || request.selection.range.is_some() {
        let cause = "`content` and `range` apply to a single file, but this request has several \
            sources";
        return Err(refused("sources", cause));
    }
    Ok(())
}

/// Checks that no other field contradicts a list of files.
fn check_listed(request: &Request) -> Result<()> {
    if request.files.is_empty() {
        return Ok(());
    }
    let selection = &request.selection;
    let mut places = request.origin_places().chain([&request.destination]);
    if request.sources.len() != 1 || !places.all(|place| place.url.ends_with('/')) {
        let cause = "a request with `files` must have exactly one source, and the URLs of the \
            source, the replicas and the destination must end with a slash";
        return Err(refused("files", cause));
    }
    if !selection.recursive {
        let cause = "a request with `files` needs \"recursive\": true";
        return Err(refused("selection.recursive", cause));
    }
    if !selection.include.is_empty() || !selection.exclude.is_empty() {
        let cause = "a request with `files` cannot have patterns in `include` or `exclude`";
        return Err(refused("selection", cause));
    }
    Ok(())
}

/// Checks that the source and all replicas have the same size. A place is not compared if neither
/// the request nor a ticket answer states its size.
fn check_sizes(request: &Request) -> Result<()> {
    let mut known: Option<(&str, u64)> = None;
    let content = request.content.as_ref().and_then(|content| content.size);
    if let Some(size) = content.filter(|_| request.selection.range.is_none()) {
        known = Some(("content.size", size));
    }
    for place in request.origin_places().filter(|_| request.origins() > 1) {
        let Some(size) = place.size else { continue };
        match known {
            Some((other, asked)) if asked != size => {
                let cause = format!(
                    "the request states a size of {size} bytes for {}, but of {asked} bytes for \
                        {other}",
                    place.url
                );
                return Err(refused(
                    "replicas",
                    format!(
                        "{cause}. Replicas must be equal copies of \
                    the source"
                    ),
                ));
            }
            _ => known = Some((&place.url, size)),
        }
    }
    Ok(())
}

impl Check for Request {
    fn transfer(&self) -> Option<&str> {
        self.id.as_ref().map(TransferId::as_str)
    }

    fn about(&self) -> Vec<String> {
        let places = self.origin_places().chain([&self.destination]);
        places.map(|place| place.url.clone()).collect()
    }

    fn check(&self) -> Result<()> {
        checks::count("sources", self.sources.len(), &(1..=SOURCES_MAX))?;
        for (index, place) in self.sources.iter().enumerate() {
            place.check(&format!("sources[{index}]"))?;
        }
        checks::count("replicas", self.replicas.len(), &(0..=REPLICAS_MAX))?;
        for (index, place) in self.replicas.iter().enumerate() {
            place.check(&format!("replicas[{index}]"))?;
        }
        self.destination.check("destination")?;
        check_several(self)?;
        check_names(self)?;
        check_sizes(self)?;
        files::check(&self.files)?;
        check_listed(self)?;
        self.selection.check()?;
        if let Some(content) = &self.content {
            content.check()?;
        }
        if self.selection.recursive && (self.content.is_some() || self.selection.range.is_some()) {
            let cause = "`content` and `range` apply to a single file, but this request copies a \
                folder";
            return Err(refused("selection.recursive", cause));
        }
        checks::within_if("bytes_expected", self.bytes_expected, &(0..=BYTES_MAX))?;
        checks::within("priority", self.priority, &(0..=9))?;
        checks::within("weight", self.weight, &(1..=1_000))?;
        checks::rates(self.rate_min, self.rate_max)?;
        let activity = self.activity.as_deref().unwrap_or_default();
        checks::text("activity", activity, WORD_BYTES_MAX)?;
        checks::labels(&self.labels)?;
        if let Some(scitag) = self.scitag {
            scitag.check()?;
        }
        let sizes = plan::OBJECT_BYTES_MIN..=plan::OBJECT_BYTES_MAX;
        checks::within_if("object_size", self.object_size, &sizes)?;
        if !self.streams.is_none_or(Streams::is_possible) {
            let cause = format!(
                "the value must be a number of data connections from 1 to {STREAMS_MAX}, or \
                    \"auto\""
            );
            return Err(refused("streams", cause));
        }
        if self.stripe == Some(StripeChoice::Source) && !self.xattrs {
            let cause = "the value \"source\" needs `xattrs`, because dray reads the stripes of a \
                source file from an extended attribute. Set `xattrs` to true, or give the number \
                of stripes";
            return Err(refused("stripe", cause));
        }
        checks::count("bind", self.bind.len(), &(0..=BIND_MAX))?;
        if let Some(retry) = self.retry {
            retry.check()?;
        }
        checks::within_if("bound_seconds", self.bound_seconds, &(1..=SECONDS_MAX))
    }
}

#[cfg(test)]
mod tests;
