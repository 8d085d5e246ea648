//! Tests of the calls about logins that need no provider. The integration tests use a real one.

use super::{House, house_with};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

const UI: &str = "[ui]\nenabled = true\nurl = \"https://a.example:4735\"\n\
    [[ui.login]]\nid = \"iam\"\nname = \"IAM of CMS\"\nissuer = \"https://127.0.0.1:1\"\n\
    client = \"dray\"\n\
    [[ui.login.grants]]\ngroup = \"cms\"\nscope = \"storage.read:/\"\n";
const COOKIE: &str = "__Secure-dray-session-4735=stranger";

async fn ask(house: &House, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).expect("a request");
    let answered = house.router.clone().oneshot(request).await;
    answered.expect("answered")
}

async fn text(response: Response) -> String {
    let bytes = response.into_body().collect().await.expect("whole");
    String::from_utf8(bytes.to_bytes().to_vec()).expect("text")
}

async fn json_of(response: Response) -> Value {
    serde_json::from_str(&text(response).await).expect("JSON")
}

#[tokio::test]
async fn everybody_may_ask_which_logins_exist() {
    let house = house_with(UI);
    let answer = ask(&house, Method::GET, "/ui/session", &[]).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-store");
    assert_eq!(
        json_of(answer).await,
        json!({
            "logins": [
                {"name": "IAM of CMS", "address": "https://a.example:4735/ui/login/iam"}
            ],
            "user": null,
            "has_ended": false,
        })
    );
    let stale = [("cookie", COOKIE), ("dray-console", "idle")];
    let answer = ask(&house, Method::GET, "/ui/session", &stale).await;
    assert_eq!(json_of(answer).await["has_ended"], json!(true));
}

#[tokio::test]
async fn without_a_login_there_is_no_session() {
    let house = house_with("[ui]\nenabled = true\n");
    let answer = ask(&house, Method::GET, "/ui/session", &[]).await;
    assert_eq!(json_of(answer).await["logins"], json!([]));
    let start = ask(&house, Method::GET, "/ui/login/iam", &[]).await;
    assert_eq!(start.status(), StatusCode::NOT_FOUND);
    let off = house_with("");
    let answer = ask(&off, Method::GET, "/ui/session", &[]).await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_call_with_a_session_needs_the_header_of_the_console() {
    let house = house_with(UI);
    let cookie = ("cookie", COOKIE);
    for (headers, said) in [
        (vec![cookie], "Dray-Console"),
        (vec![cookie, ("dray-console", "idle")], "has ended"),
        (
            vec![
                cookie,
                ("dray-console", "idle"),
                ("sec-fetch-site", "cross-site"),
            ],
            "another site",
        ),
        (
            vec![("cookie", &*format!("{COOKIE}; {COOKIE}"))],
            "two cookies",
        ),
    ] {
        let answer = ask(&house, Method::GET, "/v1/endpoint", &headers).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{headers:?}");
        let error = json_of(answer).await["error"].clone();
        assert!(error["cause"].to_string().contains(said), "{error}");
    }
    // A token counts more than the cookie of an ended session.
    let headers = [cookie, ("authorization", "Bearer alice")];
    let answer = ask(&house, Method::GET, "/v1/endpoint", &headers).await;
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_answer_without_a_started_login_is_refused_as_a_page() {
    let house = house_with(UI);
    let path = "/ui/login/iam/done?code=c&state=s&error=%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for headers in [vec![], vec![("cookie", "__Secure-dray-login-4735=1.x.y")]] {
        let answer = ask(&house, Method::GET, path, &headers).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        assert!(answer.headers().get(header::SET_COOKIE).is_none());
        let policy = &answer.headers()[header::CONTENT_SECURITY_POLICY];
        assert!(
            policy
                .to_str()
                .expect("text")
                .contains("default-src 'none'")
        );
        let page = text(answer).await;
        assert!(page.contains("Login failed"), "{page}");
        assert!(page.contains("start the login again"), "{page}");
        assert!(!page.contains("script"), "{page}");
    }
    let cookie = ("cookie", "__Secure-dray-login-4735=1.x.y");
    let answer = ask(&house, Method::GET, path, &[cookie, cookie]).await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let page = text(answer).await;
    assert!(page.contains("Login failed"), "{page}");
    assert!(page.contains("two cookies with the name"), "{page}");
    let twice = "/ui/login/iam/done?code=c&code=d&state=s";
    let answer = ask(&house, Method::GET, twice, &[]).await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_provider_that_does_not_answer_is_reported_as_a_page() {
    let house = house_with(UI);
    let answer = ask(&house, Method::GET, "/ui/login/iam?page=%23%2Fsite", &[]).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let page = text(answer).await;
    assert!(
        page.contains("provider&#39;s configuration failed"),
        "{page}"
    );
    assert!(page.contains("try again later"), "{page}");
}

#[test]
fn text_in_a_page_is_escaped() {
    let error = dray_core::Error::new(
        dray_core::ErrorKind::Unauthorized,
        dray_core::End::Here,
        "log in",
    )
    .cause("<img src=x onerror='a()'>\"&")
    .remedy("<b>");
    let response = crate::console::message("Login failed", &error, "#/\"><script>");
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let page = runtime.expect("a runtime").block_on(text(response));
    assert!(
        page.contains("&lt;img src=x onerror=&#39;a()&#39;&gt;&quot;&amp;"),
        "{page}"
    );
    for tag in ["<img", "<b>", "<script"] {
        assert!(!page.contains(tag), "{tag}: {page}");
    }
}
