//! The collector, the name of the service and the sampling.

use dray_core::{End, Error, ErrorKind, Result};
use std::fmt;

/// Path of the collector's service for spans, below its base URL (OTLP 1.x, "OTLP/HTTP Request").
const TRACES: &str = "/v1/traces";

/// Maximum length of a URL in bytes.
const URL_BYTES_MAX: usize = 2048;

/// The rule that decides which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// True if a trace that a caller has begun is recorded exactly if the caller records it.
    pub follows_parent: bool,
    /// Fraction of the other traces that are recorded, from 0 to 1.
    pub ratio: f64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self {
            follows_parent: true,
            ratio: 1.0,
        }
    }
}

impl Sampler {
    /// Returns the sampler for the values of `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`.
    /// Unknown names and invalid ratios give the default, as the specification demands
    /// (OpenTelemetry, "General SDK Configuration").
    fn named(name: &str, argument: Option<&str>) -> Self {
        let ratio = argument.and_then(|text| text.trim().parse().ok());
        let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
        let (follows_parent, ratio) = match name.trim() {
            "always_on" => (false, 1.0),
            "always_off" => (false, 0.0),
            "traceidratio" => (false, ratio.unwrap_or(1.0)),
            "parentbased_always_off" => (true, 0.0),
            "parentbased_traceidratio" => (true, ratio.unwrap_or(1.0)),
            _ => return Self::default(),
        };
        Self {
            follows_parent,
            ratio,
        }
    }
}

/// The collector and the properties of the spans.
#[derive(Clone, PartialEq)]
pub struct Settings {
    /// URL to which spans are posted.
    pub url: String,
    /// Headers of each request, such as credentials for the collector.
    pub headers: Vec<(String, String)>,
    /// Name of the service (`service.name`).
    pub service: String,
    /// Name of this instance of the service (`service.instance.id`). Empty if it has none.
    pub instance: String,
    /// The rule that decides which traces are recorded.
    pub sampler: Sampler,
}

impl fmt::Debug for Settings {
    /// Leaves out the headers, because they may contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("url", &self.url)
            .field("service", &self.service)
            .field("instance", &self.instance)
            .field("sampler", &self.sampler)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Returns the settings. `base` is the configured base URL of the collector; it overrides the
    /// variables. Returns `None` if neither names a collector, or if `OTEL_SDK_DISABLED` is true.
    /// `variable` reads the environment.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the URL is not an `http://` or `https://` URL, if it contains
    /// a user name or a password, or if a header has no valid name or value.
    pub fn of(
        base: Option<&str>,
        service: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        if set("OTEL_SDK_DISABLED").is_some_and(|text| text.trim().eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let below = |base: &str| format!("{}{TRACES}", base.trim().trim_end_matches('/'));
        let url = base
            .map(below)
            .or_else(|| set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").map(|url| url.trim().to_owned()))
            .or_else(|| set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|url| below(&url)));
        let Some(url) = url else { return Ok(None) };
        check(&url).map_err(|error| match base {
            Some(_) => error,
            None => {
                let remedy = format!(
                    "correct the variable OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or \
                     OTEL_EXPORTER_OTLP_ENDPOINT: {}",
                    error.remedy
                );
                error.remedy(remedy)
            }
        })?;
        let sampler = set("OTEL_TRACES_SAMPLER").map_or_else(Sampler::default, |name| {
            Sampler::named(&name, set("OTEL_TRACES_SAMPLER_ARG").as_deref())
        });
        let variables = [
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
            "OTEL_EXPORTER_OTLP_HEADERS",
        ];
        let named = variables
            .into_iter()
            .find_map(|name| Some((name, set(name)?)));
        let headers = named.map_or(Ok(Vec::new()), |(name, text)| headers(name, &text))?;
        Ok(Some(Self {
            url,
            headers,
            service: set("OTEL_SERVICE_NAME").unwrap_or_else(|| service.to_owned()),
            instance: String::new(),
            sampler,
        }))
    }
}

fn check(url: &str) -> Result<()> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let authority = rest.unwrap_or(url).split(['/', '?', '#']).next();
    if authority.is_some_and(|authority| authority.contains('@')) {
        // Messages and logs contain the URL, so the error does not repeat it.
        let cause = "the URL of the collector contains a user name or a password";
        let remedy = "remove it from the URL, and send credentials in a header \
                      (OTEL_EXPORTER_OTLP_HEADERS)";
        return Err(
            Error::new(ErrorKind::InvalidRequest, End::Here, "export spans")
                .cause(cause)
                .remedy(remedy),
        );
    }
    let is_url = rest.is_some_and(|rest| !rest.starts_with(['/', ':']) && !rest.is_empty());
    if is_url && url.len() <= URL_BYTES_MAX && url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let shown: String = url.chars().take(100).collect();
    Err(
        Error::new(ErrorKind::InvalidRequest, End::Here, "export spans")
            .cause(format!("{shown:?} is not the URL of a collector"))
            .remedy("give the base URL of the collector, such as http://localhost:4318"),
    )
}

/// Parses the headers of a variable. The client would refuse a wrong header in every request.
fn headers(variable: &str, text: &str) -> Result<Vec<(String, String)>> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let parsed = pairs.enumerate().map(|(at, pair)| {
        // The error does not repeat the pair, because it may contain credentials.
        let wrong = |what: &str| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "export spans")
                .cause(format!("the header {} of {variable} {what}", at + 1))
                .remedy(format!(
                    "correct the variable {variable}: NAME=VALUE,NAME=VALUE, with commas and \
                        special characters of a value as %HH"
                ))
        };
        let (name, value) = pair.split_once('=').ok_or_else(|| wrong("has no \"=\""))?;
        let (name, value) = (name.trim(), plain(value.trim()));
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(wrong("has a name that is not a name of an HTTP header"));
        }
        match value
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
        {
            true => Ok((name.to_owned(), value)),
            false => Err(wrong(&format!(
                "({name}) has a value with line breaks or characters outside ASCII"
            ))),
        }
    });
    parsed.collect()
}

/// Returns true for a character of the name of a header (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns a header's value without the escapes `%XX` (W3C Baggage, section 3.3.1.3, whose form the
/// variable has).
fn plain(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let escaped = more.get(..2).filter(|_| *first == b'%');
        let byte = escaped
            .and_then(|pair| str::from_utf8(pair).ok())
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = match byte {
            Some(_) => more.get(2..).unwrap_or_default(),
            None => more,
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
