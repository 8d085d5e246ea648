//! Tests of the API. They call the router of the API without a socket.

mod audit;
mod events;
mod load;
mod logins;
pub(crate) mod logs;
mod no_tickets;
mod receipts;
mod rights;
mod staging;
mod storage_calls;
mod storage_errors;
mod test_access;
mod ticket_renewals;
mod transfer_calls;

use super::{About, Api, Parts, openapi, router};
use crate::accounts::Accounts;
use crate::audit::Audit;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::queue_settings::queue_settings;
use crate::receipts::Receipts;
use crate::tier::Tiers;
use crate::traits::Scheduler;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use dray_access::login::Logins;
use dray_api::{Scheduling, SchedulingPatch};
use dray_config::Config;
use dray_config::roots::Roots;
use dray_core::lock::LockExt;
use dray_net::{Identity, Presented};
use dray_queue::Queue;
use dray_queue::clock;
use dray_queue::events::Hub;
use dray_telemetry::Telemetry;
use http_body_util::BodyExt;
use no_tickets::NoTickets;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use test_access::Names;
use tower::ServiceExt;

/// Scheduling rules that are only stored.
struct Rules(Mutex<Scheduling>);

impl Scheduler for Rules {
    fn rules(&self) -> Scheduling {
        let rules = self.0.lock_unpoisoned();
        rules.clone()
    }

    fn change(&self, patch: &SchedulingPatch) -> Scheduling {
        let mut rules = self.0.lock_unpoisoned();
        *rules = patch.apply(&rules);
        rules.clone()
    }
}

pub(crate) struct House {
    _folder: Option<tempfile::TempDir>,
    pub(crate) place: PathBuf,
    pub(crate) api: Arc<Api>,
    pub(crate) router: Router,
}

pub(crate) fn house() -> House {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["slow", "fast"] {
        std::fs::create_dir(folder.path().join(name)).expect("made");
    }
    let mut house = open(folder.path());
    house._folder = Some(folder);
    house
}

/// Opens a test endpoint with further tables at the end of its configuration.
fn house_with(tables: &str) -> House {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["slow", "fast"] {
        std::fs::create_dir(folder.path().join(name)).expect("made");
    }
    let accounts = |config: &Config| Accounts::open(config).expect("opened");
    let mut house = open_roots(folder.path(), "", tables, accounts);
    house._folder = Some(folder);
    house
}

/// Opens a test endpoint with a third root that is neither fast nor slow.
fn with_a_third_root(more: &str, accounts: impl Fn(&Config) -> Accounts) -> House {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["slow", "fast", "third"] {
        std::fs::create_dir(folder.path().join(name)).expect("made");
    }
    let third = folder.path().join("third");
    let roots = format!("[[root]]\nname = \"third\"\npath = {third:?}\n");
    let mut house = open_roots(folder.path(), more, &roots, accounts);
    house._folder = Some(folder);
    house
}

/// Opens a test endpoint with a managed tier of the two roots. No thread of the tier runs.
fn with_a_tier() -> House {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["slow", "fast"] {
        std::fs::create_dir(folder.path().join(name)).expect("made");
    }
    let tier = "[[tier]]\nname = \"burst\"\nfast = [\"fast\"]\nslow = \"slow\"\n\
        capacity = \"1GiB\"\nperiod = 100\nwrite_max = 356\nwrite_min = 300\n\
        read_max = 160\nread_min = 8\nnode_mtbf = 1000\n";
    let accounts = |config: &Config| Accounts::open(config).expect("opened");
    let mut house = open_roots(folder.path(), "", tier, accounts);
    house._folder = Some(folder);
    house
}

fn open(place: &Path) -> House {
    open_with(place, "", |config| Accounts::open(config).expect("opened"))
}

fn open_with(place: &Path, more: &str, accounts: impl Fn(&Config) -> Accounts) -> House {
    open_roots(place, more, "", accounts)
}

fn open_roots(
    place: &Path,
    more: &str,
    roots: &str,
    accounts: impl Fn(&Config) -> Accounts,
) -> House {
    let at = |name: &str| place.join(name);
    let text = format!(
        "{more}name = \"a.example\"\nstate = {:?}\nrate = \"1GiB\"\n\
         [[root]]\nname = \"slow\"\npath = {:?}\ntier = \"slow\"\n\
         [[root]]\nname = \"fast\"\npath = {:?}\ntier = \"fast\"\n\
         {roots}\
         [limits]\nbody_bytes = \"64KiB\"\nevents_listeners_per_owner = 2\n\
         connections_per_owner = 8\nconnections_per_address = 6\nevents_behind = 50\n",
        at("state"),
        at("slow"),
        at("fast"),
    );
    let config = Arc::new(Config::parse("test", &text).expect("good"));
    let accounts = accounts(&config);
    let hub = Arc::new(Hub::new(2, clock::now()));
    let queue = Queue::open(queue_settings(&config), hub).expect("opened");
    let roots = Roots::open(&config).expect("opened");
    let audit = Arc::new(Audit::open(Some(&at("calls.jsonl"))).expect("opened"));
    let accounts = Arc::new(accounts);
    let tiers = Tiers::open(
        &config,
        &queue,
        &roots,
        &accounts,
        &audit,
        &Live::of(&config),
    );
    let receipts = Receipts::open(&config, &queue).expect("opened");
    let parts = Parts {
        queue,
        receipts,
        roots: Arc::new(roots),
        access: Arc::new(Names),
        logins: Logins::open(&config).expect("opened"),
        tickets: Arc::new(NoTickets),
        scheduler: Arc::new(Rules(Mutex::new(Scheduling::from(&config.scheduling)))),
        audit,
        accounts,
        tiers: tiers.expect("opened"),
        live: Live::of(&config),
        peers: Peers::of(&config, None),
        metrics: Arc::new(Metrics::default()),
        about: About {
            identity: Presented::new(Identity::unkept().expect("made")).expect("a key"),
            address: "a.example:4735".to_owned(),
        },
        telemetry: Telemetry::off(),
        config,
    };
    let api = Api::new(parts).expect("made");
    House {
        _folder: None,
        place: place.to_owned(),
        router: router(Arc::clone(&api)),
        api,
    }
}

impl House {
    /// Waits for a line about the call `what` in the audit log. Returns the newest such line.
    async fn audited(&self, what: &str) -> Value {
        for _ in 0..500 {
            let text = std::fs::read_to_string(self.place.join("calls.jsonl")).expect("read");
            let lines = text.lines().rev();
            let mut lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
            if let Some(line) = lines.find(|line| line["what"] == what) {
                return line;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("no line of {what}");
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, Value) {
        let router = self.router.clone();
        let response = router.oneshot(request).await.expect("answered");
        let code = response.status();
        let bytes = response
            .into_body()
            .collect()
            .await
            .expect("whole")
            .to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
        if !code.is_success() && !path_is_health(&body) {
            let error = &body["error"];
            for part in [
                "kind",
                "status",
                "end",
                "operation",
                "cause",
                "remedy",
                "message",
            ] {
                assert!(error[part].is_string(), "{part}: {body}");
            }
            assert!(error.get("file").is_some());
        }
        (code, body)
    }

    async fn call(&self, who: &str, call: &str, body: Value) -> (u16, Value) {
        let (method, path) = call.split_once(' ').expect("METHOD PATH");
        let mut request = Request::builder().method(method).uri(path);
        if !who.is_empty() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {who}"));
        }
        let body = match body {
            Value::Null => Body::empty(),
            Value::String(raw) => Body::from(raw),
            json => Body::from(json.to_string()),
        };
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let (code, body) = self.send(request.body(body).expect("a request")).await;
        (code.as_u16(), body)
    }

    async fn get(&self, who: &str, path: &str) -> (u16, Value) {
        self.call(who, &format!("GET {path}"), Value::Null).await
    }

    pub(crate) async fn post(&self, who: &str, path: &str, body: Value) -> (u16, Value) {
        self.call(who, &format!("POST {path}"), body).await
    }
}

fn path_is_health(body: &Value) -> bool {
    body["status"] == "stopping"
}

fn request(id: &str) -> Value {
    json!({
        "id": id,
        "sources": [{"url": "dray://b.example/data/x", "ticket": "drt_secret"}],
        "destination": {"url": "/slow/x"},
    })
}

#[test]
fn every_call_of_the_reference_is_in_the_document() {
    let document = serde_json::to_value(openapi()).expect("JSON");
    assert!(
        document["openapi"]
            .as_str()
            .expect("a version")
            .starts_with("3.")
    );
    let mut documented = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for method in item.as_object().expect("methods").keys() {
            documented.push(format!("{} {path}", method.to_uppercase()));
        }
    }
    let reference = include_str!("../../../../../docs/reference/api.md");
    let mut named = Vec::new();
    // The text `POST /v1/a`, `/b` means POST /v1/a and POST /v1/b. A query after ? is ignored.
    for line in reference.lines() {
        let mut last = String::new();
        for word in line.split('`').skip(1).step_by(2) {
            let (method, path) = match word.split_once(' ') {
                Some((method @ ("GET" | "POST" | "PATCH" | "DELETE"), path)) => (method, path),
                None if word.starts_with('/') && !last.is_empty() && !word.contains("ROOT") => {
                    let (method, before) = last.split_once(' ').expect("a call");
                    let folder = before.rsplit_once('/').map_or("", |(folder, _)| folder);
                    let call = format!("{method} {folder}{word}");
                    named.push(call);
                    continue;
                }
                _ => continue,
            };
            let path = path.split(['?', ' ']).next().unwrap_or_default();
            let path = path.replace("/ID", "/{id}").replace("/NAME", "/{id}");
            if !path.starts_with('/') {
                continue;
            }
            last = format!("{method} {path}");
            named.push(last.clone());
        }
    }
    named.sort();
    named.dedup();
    assert!(named.len() >= 35, "{named:?}");
    for call in &named {
        assert!(
            documented.contains(call),
            "{call} is not in the document: {documented:?}"
        );
    }
    for call in &documented {
        assert!(
            named.contains(call),
            "{call} is not in docs/reference/api.md"
        );
    }
}

#[test]
fn the_copy_of_the_document_is_the_document() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/reference/openapi.json"
    );
    let mut now = openapi().to_pretty_json().expect("JSON");
    now.push('\n');
    let copy = std::fs::read_to_string(path).unwrap_or_default();
    if copy != now && std::env::var_os("DRAY_WRITE_OPENAPI").is_some() {
        std::fs::write(path, &now).expect("written");
        return;
    }
    assert!(
        copy == now,
        "docs/reference/openapi.json is old: run this test with DRAY_WRITE_OPENAPI=1"
    );
}

#[tokio::test]
async fn every_call_of_the_document_is_routed() {
    let house = house();
    let document = serde_json::to_value(openapi()).expect("JSON");
    for (path, item) in document["paths"].as_object().expect("paths") {
        for method in item.as_object().expect("methods").keys() {
            let call = format!("{} {}", method.to_uppercase(), path.replace("{id}", "x"));
            let (code, body) = house.call("", &call, Value::Null).await;
            let open = [
                "/healthz",
                "/v1/openapi.json",
                "/.well-known/wlcg-tape-rest-api",
            ];
            let is_open = open.contains(&path.as_str());
            let expected = if is_open { 200 } else { 401 };
            assert_eq!(code, expected, "{call}: {body}");
        }
    }
    let (_, served) = house.get("", "/v1/openapi.json").await;
    assert_eq!(served, document);
    assert_eq!(house.get("alice", "/v2").await.0, 404);
    assert_eq!(
        house
            .call("alice", "DELETE /v1/endpoint", Value::Null)
            .await
            .0,
        405
    );
}

#[test]
fn bounds_stand_in_the_document() {
    let document = serde_json::to_value(openapi()).expect("JSON");
    let request = &document["components"]["schemas"]["Request"];
    assert_eq!(request["additionalProperties"], json!(false));
    assert_eq!(request["required"], json!(["sources", "destination"]));
    let field = |name: &str| &request["properties"][name];
    assert_eq!(field("priority")["maximum"], json!(9));
    assert_eq!(field("sources")["maxItems"], json!(256));
    assert_eq!(field("replicas")["maxItems"], json!(15));
    let streams = &document["components"]["schemas"]["Streams"]["oneOf"];
    assert_eq!(streams[0]["maximum"], json!(64));
    assert_eq!(streams[1]["enum"], json!(["auto"]));
    assert!(field("id")["pattern"].is_string());
    // Every `$ref` names an existing schema.
    let text = document.to_string();
    for part in text.split("\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().expect("a name");
        let schemas = &document["components"]["schemas"];
        assert!(schemas[name].is_object(), "{name}");
    }
}
