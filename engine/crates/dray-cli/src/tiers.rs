//! `dray tier`: the state of the tiers of an endpoint. [`crate::calibrate`] measures their devices.

use crate::args::{ListWrites, ShowTier, Tier};
use crate::exit::{Exit, Stop};
use crate::output;
use crate::peer;
use crate::transfers::quoted;
use crate::units::{count, human};
use dray_api::{
    TierAnswer, TierDetail, TierDevice, TierList, TierPattern, TierVersionAnswer, WriteJob,
    WriteList,
};
use hyper::Method;

/// Runs `dray tier`.
pub(crate) fn run(tier: &Tier) -> Result<Exit, Stop> {
    match tier {
        Tier::Show(show) => self::show(show),
        Tier::Writes(list) => writes(list),
        Tier::Calibrate(calibrate) => crate::calibrate::run(calibrate),
    }
}

fn show(show: &ShowTier) -> Result<Exit, Stop> {
    let address = peer::endpoint(show.endpoint.as_deref())?;
    let client = peer::client(&show.ask.who, &address)?;
    let Some(name) = &show.name else {
        let answer = client.ask::<TierList>(Method::GET, "/v1/tiers", None)?;
        match show.ask.json {
            true => output::result(&answer.json.to_string()),
            false => answer
                .read
                .tiers
                .iter()
                .flat_map(lines)
                .for_each(|line| output::result(&line)),
        }
        return Ok(Exit::Safe);
    };
    let path = format!("/v1/tiers/{}", quoted(name));
    let answer = client.ask::<TierDetail>(Method::GET, &path, None)?;
    if show.ask.json {
        output::result(&answer.json.to_string());
        return Ok(Exit::Safe);
    }
    lines(&answer.read.tier)
        .iter()
        .for_each(|line| output::result(line));
    answer
        .read
        .versions
        .iter()
        .map(version)
        .for_each(|line| output::result(&line));
    Ok(Exit::Safe)
}

fn writes(list: &ListWrites) -> Result<Exit, Stop> {
    let address = peer::endpoint(list.endpoint.as_deref())?;
    let client = peer::client(&list.ask.who, &address)?;
    let (name, limit) = (quoted(&list.name), list.limit);
    let mut query = format!("/v1/tiers/{name}/writes?limit={limit}");
    if let Some(application) = &list.application {
        query += &format!("&application={}", quoted(application));
    }
    if let Some(state) = list.state {
        query += &format!("&state={}", state.word());
    }
    let answer = client.ask::<WriteList>(Method::GET, &query, None)?;
    if list.ask.json {
        output::result(&answer.json.to_string());
        return Ok(Exit::Safe);
    }
    for job in &answer.read.writes {
        output::result(&write(job));
    }
    if answer.read.next.is_some() {
        output::note("there are more jobs: raise --limit, or narrow the list with --state");
    }
    Ok(Exit::Safe)
}

/// Describes a write job in one line.
fn write(job: &WriteJob) -> String {
    let mut line = format!(
        "{} {}: {} {}, {} to {}",
        output::one_line(&job.id),
        job.state.word(),
        output::one_line(&job.application),
        job.version,
        human(job.bytes),
        output::one_line(&job.path),
    );
    let details = [
        job.reason.as_ref().map(|reason| output::one_line(reason)),
        job.starts_at.map(|at| format!("starts at {at}")),
        job.expires_at.map(|at| format!("lease until {at}")),
        job.ended_at.map(|at| format!("ended at {at}")),
    ];
    for detail in details.into_iter().flatten() {
        line.push_str("; ");
        line.push_str(&detail);
    }
    line
}

/// Describes a tier: space, written bytes with their thresholds, and rates.
pub(crate) fn lines(tier: &TierAnswer) -> Vec<String> {
    let name = output::one_line(&tier.name);
    let fast = tier.fast.iter().map(|root| output::one_line(root));
    let fast: Vec<_> = fast.collect();
    let place = format!(
        "{name}: {} -> {}",
        fast.join(", "),
        output::one_line(&tier.slow)
    );
    if tier.rounds == 0 {
        let capacity = human(tier.capacity);
        let mut lines = vec![
            format!("{place}, capacity {capacity}"),
            "  the endpoint has not examined the tier yet, so the used space and the rates are not \
                known".to_owned(),
        ];
        lines.extend(error_of(tier));
        return lines;
    }
    let mut lines = vec![format!(
        "{place}, {} of {} used, fast copies deleted above {}",
        human(tier.used),
        human(tier.capacity),
        human(tier.watermark),
    )];
    lines.extend(rates(tier));
    lines.extend(space(tier));
    lines.extend(error_of(tier));
    lines
}

/// Describes the written bytes with their thresholds, and the rates.
fn rates(tier: &TierAnswer) -> Vec<String> {
    let pattern = match tier.pattern {
        Some(TierPattern::WhenIdle) => "demotes while no application writes".to_owned(),
        Some(TierPattern::FromThreshold) => {
            format!(
                "demotes even during writes once {} are written",
                human(tier.start)
            )
        }
        Some(TierPattern::FromStart) => format!(
            "demotes from the first written byte on, and at the maximum rate once {} are written",
            human(tier.full)
        ),
        None => "applications write more per period than the tier can demote".to_owned(),
    };
    let bound = tier.dwpp_max.map_or_else(String::new, |bound| {
        format!(", at most {} possible", human(bound))
    });
    let mut lines = vec![format!(
        "  period of {} s: {} written, {} expected{bound}; {pattern}",
        tier.period_seconds,
        human(tier.dwsf),
        human(tier.dwpp),
    )];
    let writing = match tier.is_writing {
        true => "an application writes",
        false => "no application writes",
    };
    lines.push(format!(
        "  {writing}: demotions at {}/s, writes up to {}/s ({})",
        human(tier.demotion_rate),
        human(tier.write_rate),
        match (tier.is_write_limited, &tier.limit_error) {
            (true, _) => "limit enforced".to_owned(),
            (false, Some(why)) => format!("limit not enforced: {}", output::one_line(why)),
            (false, None) => "limit not enforced".to_owned(),
        },
    ));
    if let Some(why) = &tier.trim_error {
        lines.push(format!(
            "  the fast devices are not trimmed: {}",
            output::one_line(why)
        ));
    }
    let is_named = tier.devices.len() > 1 || tier.devices.iter().any(|one| one.error.is_some());
    lines.extend(tier.devices.iter().filter(|_| is_named).map(device));
    lines
}

/// Describes the space that is claimed or missing, and the restarts.
fn space(tier: &TierAnswer) -> Vec<String> {
    let mut lines = Vec::new();
    if tier.incoming > 0 {
        lines.push(format!(
            "  running transfers will write {} more to the fast roots",
            human(tier.incoming)
        ));
    }
    if tier.restarts > 0 {
        lines.push(format!(
            "  {} of {} found the fast copy ({} %)",
            tier.hits,
            count(tier.restarts, "restart"),
            tier.hits.saturating_mul(100) / tier.restarts,
        ));
    }
    if tier.waiting > 0 {
        lines.push(format!(
            "  requests for {} wait for space",
            human(tier.waiting)
        ));
    }
    if tier.missing > 0 {
        lines.push(format!(
            "  {} of the needed space could not be freed",
            human(tier.missing)
        ));
    }
    lines
}

/// Describes a fast root in one line.
fn device(one: &TierDevice) -> String {
    let root = output::one_line(&one.root);
    match &one.error {
        Some(why) => format!("  /{root} cannot be reached: {}", output::one_line(why)),
        None => format!(
            "  /{root}: {} used, {} free",
            human(one.used),
            human(one.free)
        ),
    }
}

fn error_of(tier: &TierAnswer) -> Option<String> {
    let error = tier.error.as_ref()?;
    Some(format!("  error: {}", output::one_line(error)))
}

/// Describes a version in one line.
fn version(version: &TierVersionAnswer) -> String {
    let mut line = format!(
        "  {} {}: {}, {}",
        output::one_line(&version.application),
        version.version,
        version.state.word(),
        human(version.bytes),
    );
    let reasons = [
        version
            .pinned_until
            .map(|until| format!("pinned until {until}")),
        version
            .kept
            .as_ref()
            .map(|kept| format!("kept: {}", output::one_line(kept))),
        version
            .error
            .as_ref()
            .map(|error| format!("error: {}", output::one_line(error))),
    ];
    for replica in &version.replicas {
        let root = output::one_line(&replica.root);
        line.push_str(&format!("; replica on {root}: {}", replica.state.word()));
        if let Some(error) = &replica.error {
            line.push_str(&format!(" ({})", output::one_line(error)));
        }
    }
    for reason in reasons.into_iter().flatten() {
        line.push_str("; ");
        line.push_str(&reason);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::lines;
    use dray_api::TierAnswer;
    use serde_json::json;

    fn answer(rounds: u64, error: Option<&str>) -> TierAnswer {
        let answer = json!({
            "name": "burst", "fast": ["fast"], "slow": "slow", "capacity": 1000, "watermark": 800,
            "rounds": rounds, "used": 100, "incoming": 0, "period_seconds": 60, "dwsf": 10,
            "dwpp": 900, "dwpp_max": 2000, "pattern": "when_idle", "start": 900, "full": 900,
            "is_writing": false, "demotion_rate": 160, "write_rate": 356,
            "is_write_limited": false, "limit_error": null, "trim_error": null, "missing": 0,
            "restarts": 0, "hits": 0, "error": error,
        });
        serde_json::from_value(answer).expect("an answer")
    }

    #[test]
    fn no_rates_are_shown_before_the_first_round() {
        let shown = lines(&answer(0, Some("not mounted"))).join("\n");
        assert!(
            shown.contains("the endpoint has not examined the tier yet"),
            "{shown}"
        );
        assert!(shown.contains("error: not mounted"), "{shown}");
        assert!(!shown.contains("/s"), "{shown}");
        let shown = lines(&answer(1, None)).join("\n");
        assert!(shown.contains("demotions at 160 B/s"), "{shown}");
        assert!(!shown.contains("not examined"), "{shown}");
    }
}
