//! The files of the web console, which are embedded in the program.
//!
//! Purpose: answers `GET` and `HEAD` below `/ui/` with the files in `console/built`, and with the
//! headers that restrict the page in the browser (docs/design/console.md).
//!
//! Not for: data about transfers. The page gets its data from the control API, like any client.
//!
//! Invariant owned here: these answers depend on the program alone, never on a caller, so they need
//! no credentials.

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use dray_core::Error;
use ring::digest::{SHA256, digest};
use std::fmt::Write;
use std::sync::LazyLock;

const PAGE: &str = include_str!("../console/built/index.html");
const SCRIPT: &str = include_str!("../console/built/app.js");
const STYLES: &str = include_str!("../console/built/app.css");
const ICON: &str = include_str!("../console/built/icon.svg");
const LICENCES: &str = include_str!("../console/built/licences.txt");

/// Number of bytes of a digest that are part of a file's name.
const NAME_DIGEST_BYTES: usize = 8;

/// Caching of a file whose name contains the digest of its content.
const CACHED: &str = "public, max-age=31536000, immutable";
/// Caching of a file whose name stays the same: a browser asks for a new version each time.
const REVALIDATED: &str = "no-cache";

/// Headers of every file. The policy permits only scripts and styles of this endpoint, and only
/// connections to it. `trusted-types` forbids all conversions of text to HTML.
const GUARDS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
            img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
            require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// One file of the console.
#[derive(Debug)]
struct File {
    name: String,
    kind: &'static str,
    caching: &'static str,
    tag: String,
    /// Content. All answers share its memory.
    content: Bytes,
}

static FILES: LazyLock<Vec<File>> = LazyLock::new(files);

fn hex(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn file(name: &str, kind: &'static str, caching: &'static str, text: &str) -> File {
    File {
        name: name.to_owned(),
        kind,
        caching,
        tag: format!("\"{}\"", hex(text)),
        content: Bytes::from(text.to_owned()),
    }
}

/// Returns `app.js` with the digest of the file: `app.0123456789abcdef.js`.
fn named_by_content(name: &str, text: &str) -> String {
    let digest = &hex(text)[..2 * NAME_DIGEST_BYTES];
    match name.rsplit_once('.') {
        Some((stem, ending)) => format!("{stem}.{digest}.{ending}"),
        None => format!("{name}.{digest}"),
    }
}

fn files() -> Vec<File> {
    let script = named_by_content("app.js", SCRIPT);
    let styles = named_by_content("app.css", STYLES);
    let page = PAGE
        .replace("\"app.js\"", &format!("\"{script}\""))
        .replace("\"app.css\"", &format!("\"{styles}\""));
    vec![
        file("", "text/html; charset=utf-8", REVALIDATED, &page),
        file(&script, "text/javascript; charset=utf-8", CACHED, SCRIPT),
        file(&styles, "text/css; charset=utf-8", CACHED, STYLES),
        file("icon.svg", "image/svg+xml", REVALIDATED, ICON),
        file(
            "licences.txt",
            "text/plain; charset=utf-8",
            REVALIDATED,
            LICENCES,
        ),
    ]
}

/// Returns true if the browser has the version `tag` of a file (RFC 9110, section 13.1.2).
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|each| each.trim().trim_start_matches("W/"));
    tags.any(|each| each == tag || each == "*")
}

fn answer(name: &str, headers: &HeaderMap) -> Response {
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        let text = "The web console has no such file. Open /ui/.\n";
        return (StatusCode::NOT_FOUND, GUARDS, text).into_response();
    };
    let caching = [
        (header::CACHE_CONTROL, file.caching),
        (header::ETAG, file.tag.as_str()),
    ];
    if is_known(headers, &file.tag) {
        return (StatusCode::NOT_MODIFIED, GUARDS, caching).into_response();
    }
    let kind = [(header::CONTENT_TYPE, file.kind)];
    (GUARDS, caching, kind, file.content.clone()).into_response()
}

async fn page(headers: HeaderMap) -> Response {
    answer("", &headers)
}

/// The name is an error if it is not text after decoding. No file has such a name.
async fn named(name: Result<Path<String>, PathRejection>, headers: HeaderMap) -> Response {
    let name = name.as_ref().map_or("\0", |Path(name)| name);
    answer(name, &headers)
}

/// Replaces the characters that have a meaning in HTML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(character),
        }
    }
    safe
}

/// Returns a page that shows an error and a link to the console. `page` is the part of the
/// console's address after `/ui/`.
pub(crate) fn message(heading: &str, error: &Error, page: &str) -> Response {
    let styles = named_by_content("app.css", STYLES);
    let [heading, cause, remedy, page] =
        [heading, error.cause.as_str(), error.remedy.as_str(), page].map(escaped);
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>dray</title>\
         <link rel=\"icon\" href=\"/ui/icon.svg\">\
         <link rel=\"stylesheet\" href=\"/ui/{styles}\"></head>\
         <body><div id=\"app\"><main class=\"login\"><h1>{heading}</h1>\
         <div class=\"error\" role=\"alert\"><dl><dt>Cause</dt><dd>{cause}</dd>\
         <dt>Remedy</dt><dd>{remedy}</dd></dl></div>\
         <p><a href=\"/ui/{page}\">Back to the console</a></p></main></div></body></html>\n"
    );
    let private = [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    ];
    (GUARDS, private, text).into_response()
}

/// Returns the routes of the console.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/ui", get(|| async { Redirect::permanent("/ui/") }))
        .route("/ui/", get(page))
        .route("/ui/{file}", get(named))
}

#[cfg(test)]
mod tests;
