//! Tests of the files of the console, through its routes.

use super::{FILES, LICENCES, PAGE, SCRIPT, STYLES, hex, router};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use std::path::{Path, PathBuf};
use tower::ServiceExt;

/// Maximum size of all files together. They are sent without compression.
const BYTES_MAX: usize = 300 << 10;

async fn ask(method: Method, path: &str, known: Option<&str>) -> Response {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(tag) = known {
        request = request.header(header::IF_NONE_MATCH, tag);
    }
    let request = request.body(Body::empty()).expect("a request");
    let answered = router::<()>().oneshot(request).await;
    answered.expect("answered")
}

fn value(response: &Response, name: header::HeaderName) -> String {
    let value = response.headers().get(name).expect("the header");
    value.to_str().expect("text").to_owned()
}

async fn text(response: Response) -> String {
    let bytes = response.into_body().collect().await.expect("whole");
    String::from_utf8(bytes.to_bytes().to_vec()).expect("text")
}

#[tokio::test]
async fn the_page_names_its_files_by_their_content() {
    let page = ask(Method::GET, "/ui/", None).await;
    assert_eq!(page.status(), StatusCode::OK);
    assert_eq!(value(&page, header::CACHE_CONTROL), "no-cache");
    assert_eq!(
        value(&page, header::CONTENT_TYPE),
        "text/html; charset=utf-8"
    );
    let page = text(page).await;
    for (ending, kind, content) in [
        ("js", "text/javascript; charset=utf-8", SCRIPT),
        ("css", "text/css; charset=utf-8", STYLES),
    ] {
        let name = format!("app.{}.{ending}", &hex(content)[..16]);
        assert!(page.contains(&format!("\"{name}\"")), "{name} in {page}");
        let file = ask(Method::GET, &format!("/ui/{name}"), None).await;
        assert_eq!(file.status(), StatusCode::OK, "{name}");
        assert_eq!(value(&file, header::CONTENT_TYPE), kind);
        assert!(value(&file, header::CACHE_CONTROL).contains("immutable"));
        assert_eq!(text(file).await, content);
        // A name with another digest belongs to another version of the program.
        let other = ask(Method::GET, &format!("/ui/app.0.{ending}"), None).await;
        assert_eq!(other.status(), StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn a_known_version_is_not_sent_again() {
    for file in FILES.iter() {
        let path = format!("/ui/{}", file.name);
        let first = ask(Method::GET, &path, None).await;
        let tag = value(&first, header::ETAG);
        for known in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
            let again = ask(Method::GET, &path, Some(&known)).await;
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{path} {known}");
            assert_eq!(value(&again, header::ETAG), tag);
            assert_eq!(text(again).await, "");
        }
        let changed = ask(Method::GET, &path, Some("\"other\"")).await;
        assert_eq!(changed.status(), StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn head_sends_the_headers_and_other_methods_are_refused() {
    let head = ask(Method::HEAD, "/ui/", None).await;
    assert_eq!(head.status(), StatusCode::OK);
    let length: usize = value(&head, header::CONTENT_LENGTH).parse().expect("bytes");
    assert!(length >= PAGE.len(), "{length}");
    assert_eq!(text(head).await, "");
    let post = ask(Method::POST, "/ui/", None).await;
    assert_eq!(post.status(), StatusCode::METHOD_NOT_ALLOWED);
    let folder = ask(Method::GET, "/ui", None).await;
    assert_eq!(value(&folder, header::LOCATION), "/ui/");
}

#[tokio::test]
async fn every_answer_restricts_the_page() {
    for path in ["/ui/", "/ui/licences.txt", "/ui/none"] {
        let answer = ask(Method::GET, path, None).await;
        let policy = value(&answer, header::CONTENT_SECURITY_POLICY);
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "trusted-types 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(value(&answer, header::X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert_eq!(value(&answer, header::REFERRER_POLICY), "no-referrer");
    }
    // The policy would block such code.
    for refused in [
        "<script>", "<style", "style=", "onload=", "http://", "https://",
    ] {
        assert!(!PAGE.contains(refused), "{refused} in index.html");
    }
}

#[tokio::test]
async fn no_name_reaches_another_file() {
    for name in [
        "none",
        ".",
        "..",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e%2fbuilt%2fapp.js",
        "app.js",
        "index.html",
        "%00",
        "%ff",
        "icon.svg%00",
        "ICON.SVG",
    ] {
        let answer = ask(Method::GET, &format!("/ui/{name}"), None).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{name}");
        let kind = value(&answer, header::CONTENT_TYPE);
        assert!(kind.starts_with("text/plain"), "{name}: {kind}");
        let policy = value(&answer, header::CONTENT_SECURITY_POLICY);
        assert!(policy.contains("default-src 'none'"), "{name}");
        // The answer never repeats the name.
        let text = text(answer).await;
        assert!(
            text.starts_with("The web console has no such file."),
            "{text}"
        );
    }
}

#[test]
fn the_files_are_small_and_name_their_licences() {
    let sum = PAGE.len() + SCRIPT.len() + STYLES.len() + LICENCES.len();
    assert!(sum < BYTES_MAX, "{sum} bytes");
    for library in ["preact", "uplot"] {
        assert!(LICENCES.contains(library), "{library}");
    }
}

/// Lists the sources of the console: all files except the built files and installed libraries.
fn sources(top: &Path, folder: &Path, found: &mut Vec<(String, PathBuf)>) {
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        let name = path.strip_prefix(top).expect("below");
        let name = name.to_str().expect("text").to_owned();
        match path.is_dir() {
            true if name == "built" || name == "node_modules" => {}
            true => sources(top, &path, found),
            false => found.push((name, path)),
        }
    }
}

#[test]
fn the_built_files_belong_to_their_sources() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
    let mut found = Vec::new();
    sources(&top, &top, &mut found);
    let built = [
        "app.css",
        "app.js",
        "icon.svg",
        "index.html",
        "licences.txt",
    ];
    found.extend(built.map(|name| {
        let name = format!("built/{name}");
        let path = top.join(&name);
        (name, path)
    }));
    found.sort();
    assert!(found.len() > 12, "{found:?}");
    let mut list = String::new();
    for (name, path) in found {
        let text = std::fs::read_to_string(&path).expect("text");
        list += &format!("{}  {name}\n", hex(&text));
    }
    let recorded = std::fs::read_to_string(top.join("built/digests.txt")).expect("the digests");
    assert!(
        list == recorded,
        "the built files of the console are not those of its sources; run `make console` and \
            commit the result"
    );
}
