//! Parses the text of the file to a [`Config`]. An error names the line.

use super::{Config, Tier};
use dray_api::STREAMS_MAX;
use dray_core::{End, Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

/// Maximum size of the file in bytes; a larger file is refused. A configuration with a thousand
/// roots is smaller. The value is estimated, not measured.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Maximum of `limits.transfers_active`. The number is bounded because each transfer needs threads.
/// The value is estimated, not measured.
const TRANSFERS_ACTIVE_MAX: u32 = 1_000;

/// Maximum of `limits.streams_per_session`. The maximum of `dray cp` is the same.
const SESSION_STREAMS_MAX: u16 = 256;

/// Maximum of `limits.body_bytes`.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// Minimum lifetime of a ticket in seconds. It must be longer than the interval of the renewal,
/// which runs once per second.
const LIFETIME_MIN: u64 = 4;

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// `NotFound` or another error of the file system if the file cannot be read. `InvalidRequest`
    /// for invalid content; the error names the file, the line and the key.
    pub fn load(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let failed = |error: std::io::Error| {
            Error::new(error.kind().into(), End::Here, format!("read {place}"))
                .cause(error.to_string())
                .remedy("give the endpoint's configuration with --config FILE")
        };
        let size = std::fs::metadata(path).map_err(failed)?.len();
        if size > FILE_BYTES_MAX {
            return Err(
                Error::new(ErrorKind::LimitExceeded, End::Here, format!("read {place}"))
                    .cause(format!(
                        "the file has {size} bytes; at most {FILE_BYTES_MAX} bytes are allowed"
                    ))
                    .remedy("check that the file is the configuration of an endpoint"),
            );
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Self::parse(&place, &text)
    }

    /// Parses a configuration. Errors name the file as `place`.
    ///
    /// # Errors
    /// `InvalidRequest`; the error names the line and the key.
    pub fn parse(place: &str, text: &str) -> Result<Self> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map(|span| line_of(text, span.start));
            refused(place, at, &dray_api::with_valid_name(error.message()))
        })?;
        config
            .check()
            .map_err(|(key, cause)| refused(place, line_with(text, key), &cause))?;
        Ok(config)
    }

    /// Checks that the values are consistent. An error consists of the wrong key and the cause.
    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.name.is_empty() || self.name.contains(['/', ':', '@', ' ']) {
            let cause = format!(
                "`name` is {:?}, which is not a host name: write the name of the host without a \
                    port",
                self.name
            );
            return Err(("name", cause));
        }
        if self.listen.is_empty() && self.listen_plain.addresses.is_empty() {
            return Err((
                "listen",
                "`listen` has no address, so no client could connect".to_owned(),
            ));
        }
        if self.tls.certificate.is_some() != self.tls.key.is_some() {
            let cause = "`certificate` and `key` must be set together".to_owned();
            return Err(("certificate", cause));
        }
        self.trust.check()?;
        self.check_roots()?;
        self.check_tiers()?;
        self.check_peers()?;
        if self.tape.lifetime == 0 {
            let cause = "`lifetime` of [tape] is 0, but the endpoint must keep a fast copy for at \
                least 1 second"
                .to_owned();
            return Err(("lifetime", cause));
        }
        self.check_rules()?;
        self.check_ui()?;
        self.check_scheduling()?;
        self.check_limits()
    }

    fn check_roots(&self) -> Result<(), (&'static str, String)> {
        if self.root.is_empty() {
            let cause = "the configuration has no [[root]], so the endpoint has nothing to read \
                or write"
                .to_owned();
            return Err(("root", cause));
        }
        let mut names = BTreeSet::new();
        for root in &self.root {
            if !names.insert(&root.name) {
                return Err(("root", format!("two roots have the name {}", root.name)));
            }
            self.check_location(root)?;
            for limit in &root.limit_targets {
                let is_disk = |dir: &PathBuf| dir.display().to_string() == limit.target;
                if !root.targets.iter().any(|t| t.target == limit.target)
                    && !root.dirs.iter().any(is_disk)
                {
                    let cause = format!(
                        "limit_targets of root {} names {}, which is not a target \
                        of this root",
                        root.name, limit.target
                    );
                    return Err(("limit_targets", cause));
                }
            }
        }
        for tier in [Tier::Fast, Tier::Slow] {
            let of_tier = self.root.iter().filter(|root| root.tier == Some(tier));
            if of_tier.count() > 1 {
                let cause = "at most one root may be fast and at most one root may be slow, \
                    because staging copies between these two roots";
                return Err(("tier", cause.to_owned()));
            }
        }
        Ok(())
    }

    /// Checks that a root is either a folder of this host or a folder in a store that a URL names.
    fn check_location(&self, root: &super::Root) -> Result<(), (&'static str, String)> {
        let name = &root.name;
        match (&root.path, &root.store, root.dirs.is_empty()) {
            (Some(path), None, true) if path.is_absolute() => return Ok(()),
            (Some(_), None, true) => {
                return Err(("path", format!("the path of root {name} is not absolute")));
            }
            (None, None, false) => return self.check_disks(root),
            (None, Some(_), true) => {}
            _ => {
                let cause = format!(
                    "root {name} must set exactly one of the keys `path`, `store` and `dirs`"
                );
                return Err(("path", cause));
            }
        }
        for (key, is_set) in [
            ("tier", root.tier == Some(Tier::Fast)),
            ("targets", !root.targets.is_empty()),
            ("limit_targets", !root.limit_targets.is_empty()),
            ("direct_io", root.direct_io),
            ("preallocate", root.preallocate),
            ("stripe", root.stripe.is_some()),
            ("log", root.log.is_some()),
        ] {
            if is_set {
                let what = match key {
                    "tier" => "tier = \"fast\"",
                    key => key,
                };
                let cause = format!(
                    "root {name} is a store, but {what} needs a folder of this host: remove \
                         {key}, or give the root a path"
                );
                return Err((key, cause));
            }
        }
        if self.setuid {
            let cause = format!(
                "root {name} is a store, whose files all belong to one account of its server: \
                    remove `setuid`, or give the root a `path`"
            );
            return Err(("setuid", cause));
        }
        Ok(())
    }

    fn check_disks(&self, root: &super::Root) -> Result<(), (&'static str, String)> {
        let name = &root.name;
        if let Some(dir) = root.dirs.iter().find(|dir| !dir.is_absolute()) {
            let cause = format!("root {name}: {} is not an absolute path", dir.display());
            return Err(("dirs", cause));
        }
        for (key, what, is_set) in [
            ("tier", "tier = \"fast\"", root.tier == Some(Tier::Fast)),
            ("targets", "targets", !root.targets.is_empty()),
            ("stripe", "stripe", root.stripe.is_some()),
            ("log", "log", root.log.is_some()),
            ("setuid", "setuid", self.setuid),
        ] {
            if is_set {
                let cause = format!(
                    "root {name} has several folders (dirs), and {what} needs a root with one \
                        folder: remove {key}, or give the root a path"
                );
                return Err((key, cause));
            }
        }
        Ok(())
    }

    fn check_scheduling(&self) -> Result<(), (&'static str, String)> {
        let rules = &self.scheduling;
        for (key, is_zero) in [
            ("max_running", rules.max_running == Some(0)),
            ("quota", rules.quota.0 == 0),
            ("aging_seconds", rules.aging_seconds == 0),
        ] {
            if is_zero {
                return Err((key, format!("{key} must be at least 1")));
            }
        }
        Ok(())
    }

    fn check_rules(&self) -> Result<(), (&'static str, String)> {
        for issuer in &self.issuer {
            if !issuer.base.starts_with('/') {
                return Err((
                    "base",
                    format!("`base` is {:?}, which does not begin with /", issuer.base),
                ));
            }
            let first = issuer.base.split('/').nth(1).unwrap_or_default();
            let is_known = |root: &super::Root| root.name.as_str() == first;
            if !first.is_empty() && !self.root.iter().any(is_known) {
                // Refuse the issuer: its tokens would be accepted but would permit nothing.
                return Err((
                    "base",
                    format!(
                        "`base` is {:?}, which does not begin with the name of a root",
                        issuer.base
                    ),
                ));
            }
            let keys = issuer.keys.as_deref().unwrap_or("/");
            if !keys.starts_with("https://") && !Path::new(keys).is_absolute() {
                let cause = format!(
                    "`keys` is {keys:?}, which is neither an absolute path nor an https:// URL"
                );
                return Err(("keys", cause));
            }
            if issuer.audiences.is_empty() {
                let cause = format!(
                    "the issuer {} needs an audience that identifies this endpoint",
                    issuer.url
                );
                return Err(("audiences", cause));
            }
        }
        if let Err(error) = self.map.check() {
            return Err(("rules", error.cause));
        }
        for share in &self.share {
            if share.peer.is_some() == share.owner.is_some() {
                return Err((
                    "share",
                    "a [[share]] must set exactly one of the keys `peer` and `owner`".to_owned(),
                ));
            }
            if share.weight == 0 {
                return Err((
                    "weight",
                    "the weight of the share is 0, so the share would get no rate".to_owned(),
                ));
            }
            if share.owner.is_none() && !share.activities.is_empty() {
                let cause = "a [[share]] with `activities` must also name the owner of the \
                    activities in `owner`"
                    .to_owned();
                return Err(("activities", cause));
            }
            if share.activities.values().any(|weight| *weight == 0) {
                let cause = "an activity of the share has the weight 0, so it would get no \
                    rate"
                    .to_owned();
                return Err(("activities", cause));
            }
            if let (Some(low), Some(high)) = (share.rate_min, share.rate_max)
                && low > high
            {
                return Err(("rate_min", "rate_min is greater than rate_max".to_owned()));
            }
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), (&'static str, String)> {
        let limits = &self.limits;
        if !(1..=TRANSFERS_ACTIVE_MAX).contains(&limits.transfers_active) {
            let cause = format!("1 to {TRANSFERS_ACTIVE_MAX} transfers can run concurrently");
            return Err(("transfers_active", cause));
        }
        if !self.streams.is_possible() {
            let cause = format!("`streams` must be a number from 1 to {STREAMS_MAX}, or \"auto\"");
            return Err(("streams", cause));
        }
        if !(1..=SESSION_STREAMS_MAX).contains(&limits.streams_per_session) {
            let cause = format!("a session can have 1 to {SESSION_STREAMS_MAX} data connections");
            return Err(("streams_per_session", cause));
        }
        if !(1024..=BODY_BYTES_MAX).contains(&limits.body_bytes.0) {
            return Err(("body_bytes", "body_bytes must be 1KiB to 64MiB".to_owned()));
        }
        if limits.connections == 0 || limits.connections_per_address == 0 {
            return Err((
                "connections",
                "a limit of 0 connections would refuse all clients".to_owned(),
            ));
        }
        let tickets = &self.tickets;
        if tickets.lifetime < LIFETIME_MIN || tickets.lifetime > tickets.lifetime_max {
            let cause = format!(
                "`lifetime` of [tickets] must be at least {LIFETIME_MIN} seconds and at most \
                    `lifetime_max`"
            );
            return Err(("lifetime", cause));
        }
        Ok(())
    }
}

fn refused(place: &str, line: Option<usize>, cause: &str) -> Error {
    let place = match line {
        Some(line) => format!("{place}, line {line}"),
        None => place.to_owned(),
    };
    // The parser's message may have several lines. An error must fit on one line.
    let cause = cause.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    Error::new(
        ErrorKind::InvalidRequest,
        End::Here,
        format!("read {place}"),
    )
    .cause(cause)
    .remedy("drayd.example.toml, which `dray endpoint init` writes, explains each key")
}

fn line_of(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    text.as_bytes()[..at]
        .iter()
        .filter(|b| **b == b'\n')
        .count()
        + 1
}

/// Returns the number of the first line that sets `key`, or that begins a table of that name.
fn line_with(text: &str, key: &str) -> Option<usize> {
    let sets = |line: &str| {
        let line = line.trim_start().trim_start_matches('[');
        line.strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with(['=', ']', '.']))
    };
    text.lines().position(sets).map(|index| index + 1)
}

#[cfg(test)]
mod tests;
