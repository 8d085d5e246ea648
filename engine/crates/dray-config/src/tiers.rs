//! The tiers: fast roots in front of a slow root, which the endpoint manages by itself.

mod choices;
mod meet;

pub use choices::{BypassKeys, TierPolicyName, VictimOrder};

use super::values::{Rate, RootName, Size};
use crate::{Config, Root};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Default fraction of a tier's capacity above which clean fast copies are deleted.
const WATERMARK: f64 = 0.9;

/// Longest period of a tier in seconds: a year.
const PERIOD_MAX: u64 = 366 * 24 * 3_600;

/// Maximum number of parts in a template of version paths.
const DEPTH_MAX: usize = 16;

/// One tier of the endpoint.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagedTier {
    /// Name of the tier.
    pub name: RootName,
    /// Roots that applications write to. Each is one device.
    pub fast: Vec<RootName>,
    /// Root that receives the demoted versions.
    pub slow: RootName,
    /// Other roots that receive a copy of each demoted version. Together with the slow root they
    /// are the replication group.
    #[serde(default)]
    pub replicas: Vec<RootName>,
    /// Capacity of all fast roots together, in bytes.
    pub capacity: Size,
    /// Seconds in which each application writes one version.
    pub period: u64,
    /// Write bandwidth of the fast roots without a demotion.
    pub write_max: Rate,
    /// Write bandwidth of the fast roots while a demotion reads at `read_max`.
    pub write_min: Rate,
    /// Highest bandwidth of a demotion.
    pub read_max: Rate,
    /// Bandwidth of a demotion while applications write at `write_max`.
    pub read_min: Rate,
    /// Fraction of the capacity above which clean fast copies are deleted.
    #[serde(default = "default_watermark")]
    pub watermark: f64,
    /// Path of a version below a fast root. `None`: versions are known from staging calls only.
    pub versions: Option<Template>,
    /// Sign by which a version is complete.
    pub complete: Option<Completion>,
    /// Owner of the demotions of versions that the template finds.
    pub owner: Option<String>,
    /// Bytes of a fast file system that a TRIM covers per second after deletions. `None`: no TRIM.
    pub trim: Option<Rate>,
    /// Folder of the cgroup of the applications, whose writes are limited. `None`: no limit.
    pub limit_writes: Option<PathBuf>,
    /// Mean time between failures of one node, in seconds.
    pub node_mtbf: Option<u64>,
    /// Policy of the demotions and of the write jobs.
    #[serde(default)]
    pub policy: TierPolicyName,
    /// Order of demotions and deletions.
    #[serde(default)]
    pub order: VictimOrder,
    /// Expected mean time between failures of an application before its first restart, in seconds.
    #[serde(default = "default_prior_mtbf")]
    pub prior_mtbf: u64,
    /// Weight of `prior_mtbf`, in restarts.
    #[serde(default = "default_prior_weight")]
    pub prior_weight: f64,
    /// Conditions under which a write job is placed on the slow root.
    #[serde(default)]
    pub bypass: BypassKeys,
}

const fn default_prior_mtbf() -> u64 {
    24 * 3_600
}

const fn default_prior_weight() -> f64 {
    1.0
}

const fn default_watermark() -> f64 {
    WATERMARK
}

/// The sign by which a version is complete.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Completion {
    /// A file of this name is in the version's folder.
    Marker(String),
    /// No file of the version has changed for this many seconds.
    Quiet(u64),
}

impl TryFrom<String> for Completion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither marker:NAME nor quiet:SECONDS");
        match text.split_once(':').ok_or_else(wrong)? {
            ("marker", name) if is_segment(name) => Ok(Self::Marker(name.to_owned())),
            ("quiet", seconds) => {
                let seconds = seconds.parse().ok().filter(|seconds| *seconds > 0);
                seconds.map(Self::Quiet).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

fn is_segment(name: &str) -> bool {
    !name.is_empty() && !matches!(name, "." | "..") && !name.contains('/')
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Application,
    Version,
}

/// One folder or file name of a template: fixed text, or a placeholder between two fixed texts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    before: String,
    holds: Option<Holds>,
    after: String,
}

/// The path of a version below a fast root, such as `{application}/{version}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Template(Vec<Segment>);

/// The values that a path has in place of the placeholders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    /// Name of the application.
    pub application: Option<String>,
    /// Number of the version.
    pub version: Option<u64>,
}

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let segments: Result<Vec<Segment>, String> = text.split('/').map(segment).collect();
        let segments = segments.map_err(|cause| format!("{text:?}: {cause}"))?;
        if segments.len() > DEPTH_MAX {
            return Err(format!(
                "the path {text:?} has more than {DEPTH_MAX} components"
            ));
        }
        for (holds, words) in [
            (Holds::Application, "{application}"),
            (Holds::Version, "{version}"),
        ] {
            let count = segments.iter().filter(|one| one.holds == Some(holds));
            if count.count() != 1 {
                return Err(format!("{text:?} must contain {words} exactly once"));
            }
        }
        if segments
            .last()
            .is_some_and(|last| last.holds != Some(Holds::Version))
        {
            return Err(format!(
                "the last component of the path {text:?} must contain {{version}}"
            ));
        }
        Ok(Self(segments))
    }
}

fn segment(text: &str) -> Result<Segment, String> {
    if !is_segment(text) {
        return Err("a component of the path is empty, `.` or `..`".to_owned());
    }
    for (words, holds) in [
        ("{application}", Holds::Application),
        ("{version}", Holds::Version),
    ] {
        if let Some((before, after)) = text.split_once(words) {
            if before.contains(['{', '}']) || after.contains(['{', '}']) {
                return Err(format!(
                    "the path component {text:?} has more than one placeholder"
                ));
            }
            return Ok(Segment {
                before: before.to_owned(),
                holds: Some(holds),
                after: after.to_owned(),
            });
        }
    }
    if text.contains(['{', '}']) {
        return Err("the only placeholders are {application} and {version}".to_owned());
    }
    Ok(Segment {
        before: text.to_owned(),
        holds: None,
        after: String::new(),
    })
}

impl Template {
    /// Returns the number of parts of the path of a version.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.len()
    }

    /// Returns the path of a version.
    #[must_use]
    pub fn path(&self, application: &str, version: u64) -> String {
        let name = |segment: &Segment| {
            let inner = match segment.holds {
                Some(Holds::Application) => application.to_owned(),
                Some(Holds::Version) => version.to_string(),
                None => String::new(),
            };
            format!("{}{inner}{}", segment.before, segment.after)
        };
        let names: Vec<String> = self.0.iter().map(name).collect();
        names.join("/")
    }

    /// Compares `name` with the part at index `at` of the template. Adds the value of the
    /// placeholder to `values`. Returns false if the name does not fit: a version is a decimal
    /// number, and an application has at least one character.
    pub fn take(&self, at: usize, name: &str, values: &mut Values) -> bool {
        let Some(segment) = self.0.get(at) else {
            return false;
        };
        let inner = name.strip_prefix(segment.before.as_str());
        let inner = inner.and_then(|rest| rest.strip_suffix(segment.after.as_str()));
        match (inner, segment.holds) {
            (None, _) => false,
            (Some(rest), None) => rest.is_empty(),
            (Some(rest), Some(Holds::Application)) => {
                values.application = Some(rest.to_owned());
                !rest.is_empty()
            }
            (Some(rest), Some(Holds::Version)) => {
                let is_number = rest.bytes().all(|byte| byte.is_ascii_digit());
                // The database stores versions as signed 64-bit numbers.
                let number = rest
                    .parse()
                    .ok()
                    .filter(|number| *number <= i64::MAX as u64);
                values.version = number.filter(|_| is_number);
                values.version.is_some()
            }
        }
    }
}

impl Config {
    /// Checks that the values of all tiers are consistent. An error consists of the key with the
    /// wrong value, and the cause.
    pub(super) fn check_tiers(&self) -> Result<(), (&'static str, String)> {
        let mut names = BTreeSet::new();
        let mut fast = BTreeSet::new();
        for tier in &self.tier {
            let name = &tier.name;
            if !names.insert(name) {
                return Err(("tier", format!("two tiers are called {name}")));
            }
            if tier.fast.is_empty() {
                return Err(("fast", format!("tier {name} needs a fast root")));
            }
            for root in &tier.fast {
                self.check_tier_root("fast", tier, root)?;
                if !fast.insert(root) {
                    return Err((
                        "fast",
                        format!(
                            "root {root} is named twice as a fast root; it \
                        can be a fast root of one tier only"
                        ),
                    ));
                }
            }
            self.check_tier_root("slow", tier, &tier.slow)?;
            let mut group = BTreeSet::from([&tier.slow]);
            for root in &tier.replicas {
                self.check_tier_root("replicas", tier, root)?;
                if !group.insert(root) {
                    let cause = format!(
                        "tier {name}: the keys `slow` and `replicas` together name the root {root} \
                            twice"
                    );
                    return Err(("replicas", cause));
                }
            }
            tier.check()?;
        }
        for tier in &self.tier {
            if fast.contains(&tier.slow) {
                return Err((
                    "slow",
                    format!("the slow root {} is also a fast root of a tier", tier.slow),
                ));
            }
            if let Some(root) = tier.replicas.iter().find(|root| fast.contains(root)) {
                return Err((
                    "replicas",
                    format!(
                        "`replicas` names the root {root}, which is also a fast root of a tier"
                    ),
                ));
            }
        }
        meet::check(&self.tier)
    }

    fn check_tier_root(
        &self,
        key: &'static str,
        tier: &ManagedTier,
        name: &RootName,
    ) -> Result<(), (&'static str, String)> {
        let is_named = |root: &&Root| root.name == *name;
        let cause = match self.root.iter().find(is_named) {
            None => format!("tier {}: no root is called {name}", tier.name),
            Some(root) if root.path.is_none() && key == "fast" => {
                let tier = &tier.name;
                format!("tier {tier}: the fast root {name} is a store, not a folder of this host")
            }
            Some(root) if root.read_only => {
                format!("tier {}: the root {name} is read-only", tier.name)
            }
            Some(_) => return Ok(()),
        };
        Err((key, cause))
    }
}

impl ManagedTier {
    /// Returns the roots that receive versions: the slow root and the replication group.
    fn slow_roots(&self) -> impl Iterator<Item = &RootName> {
        std::iter::once(&self.slow).chain(&self.replicas)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let name = &self.name;
        if self.capacity.0 == 0 {
            return Err(("capacity", format!("tier {name}: capacity is 0")));
        }
        if !(1..=PERIOD_MAX).contains(&self.period) {
            let cause = format!("tier {name}: the period must have 1 to {PERIOD_MAX} seconds");
            return Err(("period", cause));
        }
        if !(self.watermark > 0.0 && self.watermark <= 1.0) {
            let cause = format!("tier {name}: the watermark must be above 0 and at most 1");
            return Err(("watermark", cause));
        }
        for (key, low, key_max, high) in [
            ("write_min", self.write_min, "write_max", self.write_max),
            ("read_min", self.read_min, "read_max", self.read_max),
        ] {
            if low > high {
                let cause = format!("tier {name}: {key} is greater than {key_max}");
                return Err((key, cause));
            }
        }
        if self
            .limit_writes
            .as_ref()
            .is_some_and(|path| !path.is_absolute())
        {
            let cause = format!("tier {name}: limit_writes is not an absolute path");
            return Err(("limit_writes", cause));
        }
        if self.node_mtbf == Some(0) {
            let cause = format!("tier {name}: node_mtbf must be at least 1 second");
            return Err(("node_mtbf", cause));
        }
        if self.prior_mtbf == 0 {
            let cause = format!("tier {name}: prior_mtbf must be at least 1 second");
            return Err(("prior_mtbf", cause));
        }
        if !(self.prior_weight > 0.0 && self.prior_weight.is_finite()) {
            let cause = format!("tier {name}: prior_weight must be greater than 0");
            return Err(("prior_weight", cause));
        }
        let BypassKeys { ratio, colder_than } = self.bypass;
        if !(ratio >= 0.0 && (0.0..=1.0).contains(&colder_than)) {
            let cause = format!(
                "tier {name}: bypass.ratio must be at least 0, and bypass.colder_than must be from \
                    0 to 1"
            );
            return Err(("bypass", cause));
        }
        let given = [
            self.versions.is_some(),
            self.complete.is_some(),
            self.owner.is_some(),
        ];
        if given.contains(&true) && given.contains(&false) {
            let cause = format!(
                "tier {name}: set `versions`, `complete` and `owner` together, or set none of \
                    these three keys"
            );
            return Err(("tier", cause));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Completion, Template, Values};

    fn read(template: &str, path: &str) -> Option<Values> {
        let template = Template::try_from(template.to_owned()).expect(template);
        let mut values = Values::default();
        let names: Vec<&str> = path.split('/').collect();
        let fits = names.len() == template.depth()
            && (names.iter().enumerate()).all(|(at, name)| template.take(at, name, &mut values));
        fits.then_some(values)
    }

    #[test]
    fn a_template_finds_application_and_version_in_a_path() {
        let found = |application: &str, version| {
            Some(Values {
                application: Some(application.to_owned()),
                version: Some(version),
            })
        };
        let plain = "{application}/{version}";
        assert_eq!(read(plain, "sim/7"), found("sim", 7));
        assert_eq!(read(plain, "sim/0007"), found("sim", 7));
        assert_eq!(read(plain, "sim/+7"), None);
        assert_eq!(read(plain, "sim/x7"), None);
        assert_eq!(read(plain, "sim/"), None);
        assert_eq!(read(plain, "sim"), None);
        let deep = "runs/job-{application}/step_{version}.ckpt";
        assert_eq!(read(deep, "runs/job-a/step_12.ckpt"), found("a", 12));
        assert_eq!(read(deep, "runs/a/step_12.ckpt"), None);
        assert_eq!(read(deep, "other/job-a/step_12.ckpt"), None);
        let template = Template::try_from(deep.to_owned()).expect(deep);
        assert_eq!(template.path("a", 12), "runs/job-a/step_12.ckpt");
    }

    #[test]
    fn a_template_that_cannot_tell_versions_apart_is_refused() {
        for text in [
            "",
            "{application}",
            "{version}",
            "{application}/{version}/{version}",
            "{version}/{application}",
            "{application}//{version}",
            "{application}/../{version}",
            "{application}/{step}/{version}",
            "{application}{version}",
        ] {
            assert!(Template::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_completion_rule_is_a_marker_or_a_time_without_changes() {
        let read = |text: &str| Completion::try_from(text.to_owned());
        assert_eq!(
            read("marker:DONE"),
            Ok(Completion::Marker("DONE".to_owned()))
        );
        assert_eq!(read("quiet:30"), Ok(Completion::Quiet(30)));
        for text in [
            "",
            "DONE",
            "marker:",
            "marker:a/b",
            "quiet:0",
            "quiet:x",
            "other:1",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
