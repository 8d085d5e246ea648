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
    /// [`ErrorKind::InvalidRequest`] if the URL is not an `http://` or `https://` URL, or if it
    /// contains a user name or a password.
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
        let headers = set("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
            .or_else(|| set("OTEL_EXPORTER_OTLP_HEADERS"))
            .unwrap_or_default();
        let pairs = headers.split(',').filter_map(|pair| pair.split_once('='));
        let pairs = pairs.map(|(key, value)| (key.trim().to_owned(), plain(value.trim())));
        Ok(Some(Self {
            url,
            headers: pairs.collect(),
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
mod tests {
    use super::{Sampler, Settings};
    use dray_core::ErrorKind;

    fn of(base: Option<&str>, variables: &[(&str, &str)]) -> Option<Settings> {
        let find = |name: &str| {
            let mut all = variables.iter();
            all.find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Settings::of(base, "dray", find).expect("valid")
    }

    #[test]
    fn spans_are_exported_only_on_request() {
        assert_eq!(of(None, &[]), None);
        assert_eq!(of(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), None);
        let disabled = ("OTEL_SDK_DISABLED", "true");
        assert_eq!(of(Some("http://c:4318"), &[disabled]), None);
        let settings = of(Some("http://c:4318/"), &[]).expect("on");
        assert_eq!(settings.url, "http://c:4318/v1/traces");
        assert_eq!(settings.service, "dray");
        assert_eq!(settings.sampler, Sampler::default());
    }

    #[test]
    fn the_standard_variables_are_honoured() {
        let settings = of(
            None,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/base/"),
                ("OTEL_SERVICE_NAME", "dtn1"),
                (
                    "OTEL_EXPORTER_OTLP_HEADERS",
                    "authorization=Basic%20YQ==, x = y",
                ),
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ],
        )
        .expect("on");
        assert_eq!(settings.url, "https://c/base/v1/traces");
        assert_eq!(settings.service, "dtn1");
        let headers = [("authorization", "Basic YQ=="), ("x", "y")];
        let headers = headers.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(settings.headers, headers);
        assert!(settings.sampler.follows_parent && settings.sampler.ratio == 0.25);
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/spans");
        let both = of(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), own]);
        assert_eq!(both.expect("on").url, "http://t:1/spans");
    }

    #[test]
    fn samplers_have_the_standard_names() {
        let ratio = |name: &str, argument: &str| {
            let sampler = Sampler::named(name, Some(argument));
            (sampler.follows_parent, sampler.ratio)
        };
        assert_eq!(ratio("always_on", "0"), (false, 1.0));
        assert_eq!(ratio("always_off", "1"), (false, 0.0));
        assert_eq!(ratio("traceidratio", "0.5"), (false, 0.5));
        assert_eq!(ratio("traceidratio", "7"), (false, 1.0));
        assert_eq!(ratio("parentbased_always_off", ""), (true, 0.0));
        assert_eq!(ratio("unknown", "0.5"), (true, 1.0));
    }

    #[test]
    fn a_wrong_url_is_refused_with_a_remedy() {
        for url in [
            "collector:4318",
            "ftp://c",
            "http://",
            "http:// x",
            "http:///",
        ] {
            let error = Settings::of(Some(url), "dray", |_| None).expect_err(url);
            assert_eq!(error.kind, ErrorKind::InvalidRequest);
            assert!(error.remedy.contains("http://localhost:4318"), "{error}");
        }
    }

    #[test]
    fn a_url_with_credentials_is_refused_and_not_repeated() {
        for url in ["http://user:secret@c:4318", "https://secret@c/base"] {
            let error = Settings::of(Some(url), "dray", |_| None).expect_err(url);
            assert_eq!(error.kind, ErrorKind::InvalidRequest);
            assert!(!error.to_string().contains("secret@"), "{error}");
        }
        assert!(of(Some("http://c:4318/a@b"), &[]).is_some());
    }
}
