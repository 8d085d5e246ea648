//! The section `[telemetry]`: the export of spans.

use serde::Deserialize;

/// The export of spans to a collector of OpenTelemetry.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// Base URL of the collector. Default: the variables `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`; without them the endpoint exports no spans.
    pub otlp: Option<String>,
}
