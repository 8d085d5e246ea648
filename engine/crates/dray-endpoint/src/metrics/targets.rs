//! The metrics of storage targets.

use super::{head, line};
use dray_api::{TargetAnswer, TargetEnd, TargetState};

/// A metric: its name, its help text and its value for a target.
type Gauge = (&'static str, &'static str, fn(&TargetAnswer) -> Option<f64>);

const GAUGES: [Gauge; 3] = [
    (
        "dray_target_under_way",
        "Objects that are being read from the target, or that wait to be written to it.",
        |target| Some(f64::from(target.under_way)),
    ),
    (
        "dray_target_service_seconds",
        "Average time in seconds for which an object is read from the target, or waits to be \
            written to it.",
        |target| target.service_seconds,
    ),
    (
        "dray_target_congested",
        "1 while a session limits its objects on the target because the target is slow, else 0.",
        |target| Some(f64::from(u8::from(target.state != TargetState::Fair))),
    ),
];

/// Adds the metrics of all targets that running sessions use.
pub(super) fn push(text: &mut String, targets: &[TargetAnswer]) {
    if targets.is_empty() {
        return;
    }
    for (name, help, value) in GAUGES {
        head(text, name, "gauge", help);
        for target in targets {
            let end = match target.end {
                TargetEnd::Source => "source",
                TargetEnd::Sink => "sink",
            };
            let labels = format!("end=\"{end}\",target=\"{}\"", quoted(&target.name));
            if let Some(value) = value(target) {
                line(text, name, &labels, value);
            }
        }
    }
}

/// Escapes the value of a label.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}
