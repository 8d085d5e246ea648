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
fn a_wrong_header_is_refused_once_and_not_repeated() {
    for (text, words) in [
        ("authorization=Bearer secret,x", "the header 2 of"),
        ("x y=secret", "the header 1 of"),
        ("=secret", "name"),
        ("x=secret%0D%0Ay: z", "line breaks"),
        ("x=secret\u{e9}", "ASCII"),
        ("x=secret%FF", "ASCII"),
    ] {
        let find = |name: &str| (name == "OTEL_EXPORTER_OTLP_HEADERS").then(|| text.to_owned());
        let error = Settings::of(Some("http://c"), "dray", find).expect_err(text);
        assert_eq!(error.kind, ErrorKind::InvalidRequest);
        assert!(error.cause.contains(words), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(
            error.remedy.contains("OTEL_EXPORTER_OTLP_HEADERS"),
            "{error}"
        );
    }
    let header = |text| of(Some("http://c"), &[("OTEL_EXPORTER_OTLP_HEADERS", text)]);
    assert_eq!(header("a=b,").expect("on").headers.len(), 1);
    assert_eq!(header("a=b=c%2C").expect("on").headers[0].1, "b=c,");
    assert_eq!(header("a=").expect("on").headers[0].1, "");
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
