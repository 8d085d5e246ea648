//! Tests of the calls about transfers: submission, changes of state, batches and lists.

use super::{house, open, request};
use axum::body::Body;
use axum::http::{Request, header};
use dray_queue::clock;
use serde_json::{Value, json};

#[tokio::test]
async fn submission_answers_as_the_reference_says() {
    let house = house();
    let (code, first) = house.post("alice", "/v1/transfers", request("t")).await;
    assert_eq!(code, 201);
    assert_eq!(
        (&first["state"], &first["attached"]),
        (&json!("queued"), &json!(false))
    );
    assert!(!first.to_string().contains("drt_"), "{first}");
    let (code, again) = house.post("alice", "/v1/transfers", request("t")).await;
    assert_eq!((code, &again["attached"]), (200, &json!(true)));
    let mut other = request("t");
    other["verify"] = json!(true);
    let (code, error) = house.post("alice", "/v1/transfers", other).await;
    assert_eq!(
        (code, &error["error"]["kind"]),
        (409, &json!("already_exists"))
    );
    assert_eq!(
        house.post("bob", "/v1/transfers", request("t")).await.0,
        409
    );
    let (code, made) = house
        .post(
            "alice",
            "/v1/transfers",
            json!({
        "sources": [{"url": "/slow/a"}], "destination": {"url": "dray://A.EXAMPLE:4735/fast/a"}}),
        )
        .await;
    assert_eq!(code, 201);
    assert!(made["id"].as_str().expect("an id").len() > 8);
    assert_eq!(
        house
            .post("alice", "/v1/transfers/t/cancel", Value::Null)
            .await
            .0,
        200
    );
    let (code, anew) = house.post("alice", "/v1/transfers", request("t")).await;
    assert_eq!((code, &anew["attempt"]), (201, &json!(2)));
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_its_reason() {
    let house = house();
    let place = |url: &str| json!({"url": url});
    let pair = |source: &str, destination: &str| {
        let (source, destination) = (place(source), place(destination));
        json!({"sources": [source], "destination": destination})
    };
    for (body, code, kind) in [
        (
            pair("dray://b.example/x/y", "dray://c.example/x/y"),
            400,
            "invalid_request",
        ),
        (
            pair("/slow/../etc", "dray://c.example/x/y"),
            400,
            "path_escapes",
        ),
        (
            pair("/slow/%2e%2e/etc", "dray://c.example/x/y"),
            400,
            "path_escapes",
        ),
        (
            pair("/slow/.dray-log/x", "dray://c.example/x/y"),
            400,
            "invalid_name",
        ),
        (pair("/none/x", "dray://c.example/x/y"), 404, "not_found"),
        (pair("/slow/x", "/slow/x"), 400, "invalid_request"),
        (pair("http://b/x", "/slow/x"), 400, "invalid_request"),
        (json!({"sources": []}), 400, "invalid_request"),
        (
            json!({"sources": [place("/a/b")], "destination": 7}),
            400,
            "invalid_request",
        ),
        (json!([]), 400, "invalid_request"),
        (json!("no JSON"), 400, "invalid_request"),
        (Value::Null, 400, "invalid_request"),
        (json!("[".repeat(20_000)), 400, "invalid_request"),
        (
            json!(format!("{{\"id\": {}", "{\"a\":".repeat(5_000))),
            400,
            "invalid_request",
        ),
        (json!("x".repeat(70_000)), 413, "limit_exceeded"),
    ] {
        let (told, answer) = house.post("alice", "/v1/transfers", body.clone()).await;
        assert_eq!(
            (told, &answer["error"]["kind"]),
            (code, &json!(kind)),
            "{answer}"
        );
    }
    let mut unknown = request("t");
    unknown["prority"] = json!(1);
    let (code, answer) = house.post("alice", "/v1/transfers", unknown).await;
    assert_eq!(code, 400);
    let cause = answer["error"]["cause"].as_str().expect("words");
    assert!(cause.contains("prority") && cause.len() <= 500, "{cause}");
    let form = Request::post("/v1/transfers")
        .header(header::AUTHORIZATION, "Bearer alice")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from("a=b"))
        .expect("a request");
    let (code, answer) = house.send(form).await;
    assert_eq!(code, 400);
    assert!(
        answer["error"]["cause"]
            .as_str()
            .expect("words")
            .contains("JSON")
    );
}

#[tokio::test]
async fn a_repeated_change_of_state_changes_nothing() {
    let house = house();
    house.post("alice", "/v1/transfers", request("t")).await;
    let call = async |verb: &str| {
        let (code, body) = house
            .post("alice", &format!("/v1/transfers/t/{verb}"), Value::Null)
            .await;
        (
            code,
            body["state"].as_str().unwrap_or_default().to_owned(),
            body["version"].as_u64(),
        )
    };
    let paused = call("pause").await;
    assert_eq!((paused.0, paused.1.as_str()), (200, "paused"));
    assert_eq!(call("pause").await, paused);
    assert_eq!(call("retry").await.0, 409);
    assert_eq!(call("resume").await.1, "queued");
    assert_eq!(
        house
            .call("alice", "DELETE /v1/transfers/t", Value::Null)
            .await
            .0,
        409
    );
    let cancelled = call("cancel").await;
    assert_eq!(cancelled.1, "cancelled");
    assert_eq!(call("cancel").await, cancelled);
    assert_eq!(call("pause").await.0, 409);
    let patch = json!({"priority": 7});
    assert_eq!(
        house.call("alice", "PATCH /v1/transfers/t", patch).await.0,
        409
    );
    assert_eq!(
        house
            .call("alice", "DELETE /v1/transfers/t", Value::Null)
            .await
            .0,
        200
    );
    assert_eq!(house.get("alice", "/v1/transfers/t").await.0, 404);
    let bad = house
        .post("alice", "/v1/transfers/t/cancel", json!({"purg": true}))
        .await;
    assert_eq!(bad.0, 400);
}

#[tokio::test]
async fn batches_answer_in_order() {
    let house = house();
    let mut bad = request("two");
    bad["streams"] = json!(0);
    let body = json!({"transfers": [request("one"), bad, request("three")]});
    let (code, answer) = house
        .post("alice", "/v1/transfers/batch", body.clone())
        .await;
    assert_eq!(code, 200);
    let results = answer["results"].as_array().expect("results");
    assert_eq!(results[0]["transfer"]["id"], "one");
    assert_eq!(results[1]["error"]["kind"], "invalid_request");
    let cause = results[1]["error"]["cause"].as_str().expect("a cause");
    assert!(cause.starts_with("transfers[1]: streams: "), "{cause}");
    assert_eq!(results[2]["transfer"]["id"], "three");
    let mut atomic = json!({"transfers": [request("four"), request("one")], "atomic": true});
    atomic["transfers"][1]["verify"] = json!(true);
    let (_, answer) = house.post("alice", "/v1/transfers/batch", atomic).await;
    assert_eq!(answer["results"][0]["error"]["kind"], "cancelled");
    assert_eq!(answer["results"][1]["error"]["kind"], "already_exists");
    assert_eq!(house.get("alice", "/v1/transfers/four").await.0, 404);
    // If one request of a batch cannot be parsed, only that request is refused. The refusal is at
    // the index of that request.
    let mut unreadable = request("six");
    unreadable["priority"] = json!("high");
    let body = json!({"transfers": [request("five"), unreadable, 7, request("seven")]});
    let (code, answer) = house
        .post("alice", "/v1/transfers/batch", body.clone())
        .await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["results"][0]["transfer"]["id"], "five");
    assert_eq!(answer["results"][3]["transfer"]["id"], "seven");
    for at in [1, 2] {
        let error = &answer["results"][at]["error"];
        assert_eq!(error["kind"], "invalid_request");
        let cause = error["cause"].as_str().expect("a cause");
        assert!(cause.starts_with(&format!("transfers[{at}]: ")), "{cause}");
    }
    let atomic = json!({"transfers": [request("eight"), {}], "atomic": true});
    let (_, answer) = house.post("alice", "/v1/transfers/batch", atomic).await;
    assert_eq!(answer["results"][0]["error"]["kind"], "cancelled");
    assert_eq!(answer["results"][1]["error"]["kind"], "invalid_request");
    let many: Vec<_> = (0..1001).map(|at| at.to_string()).collect();
    let (code, _) = house
        .post("alice", "/v1/transfers/query", json!({"ids": many}))
        .await;
    assert_eq!(code, 413);
    let empty = json!({"transfers": []});
    assert_eq!(
        house.post("alice", "/v1/transfers/batch", empty).await.0,
        400
    );
}

#[tokio::test]
async fn lists_are_paged_and_invalid_queries_refused() {
    let house = house();
    for at in 0..5 {
        house
            .post("alice", "/v1/transfers", request(&format!("t{at}")))
            .await;
    }
    let mut seen = Vec::new();
    let mut path = "/v1/transfers?limit=2".to_owned();
    loop {
        let (code, page) = house.get("alice", &path).await;
        assert_eq!(code, 200);
        for transfer in page["transfers"].as_array().expect("a page") {
            seen.push(transfer["id"].as_str().expect("an id").to_owned());
        }
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/transfers?limit=2&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["t4", "t3", "t2", "t1", "t0"]);
    for (query, code) in [
        ("limit=0", 400),
        ("limit=1001", 413),
        ("limit=x", 400),
        ("cursor=x", 400),
        ("state=running", 400),
        ("label=x", 400),
        ("lable=a:b", 400),
        ("submitted_after=yesterday", 400),
        (
            "class=deadline&submitted_after=2020-01-01T00:00:00Z&label=a:b",
            200,
        ),
    ] {
        let told = house.get("alice", &format!("/v1/transfers?{query}")).await;
        assert_eq!(told.0, code, "{query}: {}", told.1);
    }
    assert_eq!(house.get("alice", "/v1/transfers/t0/files").await.0, 200);
    assert_eq!(
        house
            .get("alice", "/v1/transfers/t0/files?state=broken")
            .await
            .0,
        400
    );
    assert_eq!(
        house
            .get("alice", "/v1/transfers/t0/wait?timeout=61")
            .await
            .0,
        400
    );
}

#[tokio::test]
async fn an_impossible_deadline_is_refused_with_a_possible_one() {
    use std::time::Duration;

    let house = house();
    let wanted = |id: &str, deadline: Value, more: Value| {
        let mut wanted = request(id);
        let fields = json!({"deadline": deadline, "bytes_expected": 60_u64 << 30});
        for fields in [fields, more] {
            let fields = fields.as_object().cloned().unwrap_or_default();
            wanted.as_object_mut().expect("an object").extend(fields);
        }
        wanted
    };
    // At 1 GiB/s, each transfer takes one minute.
    let soon = json!(clock::now().after(Duration::from_secs(100)));
    let one = wanted("one", soon.clone(), json!({}));
    let (code, taken) = house.post("alice", "/v1/transfers", one).await;
    assert_eq!((code, &taken["promised"]), (201, &json!(true)), "{taken}");
    let two = wanted("two", soon.clone(), json!({}));
    let asked = json!({"transfers": [two.clone()]});
    let (_, dry) = house.post("alice", "/v1/admission", asked).await;
    assert_eq!(dry["decision"], json!("refuse"));
    // In a refusal, a request without an id is named by its number in the batch.
    let mut nameless = two.clone();
    nameless.as_object_mut().expect("an object").remove("id");
    let later = clock::now().after(Duration::from_secs(10_000));
    let easy = wanted("easy", json!(later), json!({"bytes_expected": 1}));
    let asked = json!({"transfers": [easy, nameless]});
    let (_, dry) = house.post("alice", "/v1/admission", asked).await;
    let reasons = dry["transfers"][0]["reasons"].to_string();
    assert!(reasons.contains("number 2"), "{dry}");
    let (code, refused) = house.post("alice", "/v1/transfers", two.clone()).await;
    assert_eq!(
        (code, &refused["error"]["kind"]),
        (409, &json!("not_admitted"))
    );
    let offer = &refused["error"]["admission"];
    assert!(offer["rate_needed"].as_u64() > offer["rate_available"].as_u64());
    assert_eq!(offer["obstacle"]["transfers"], json!(["one"]));
    // In a refusal, transfers of other owners are only counted and not named.
    let (_, bobs) = house.post("bob", "/v1/transfers", two.clone()).await;
    let obstacle = &bobs["error"]["admission"]["obstacle"];
    assert_eq!(
        (&obstacle["promises"], &obstacle["transfers"]),
        (&json!(1), &json!([]))
    );
    let batch = json!({"transfers": [two], "atomic": true});
    let (_, none) = house.post("alice", "/v1/transfers/batch", batch).await;
    let error = &none["results"][0]["error"];
    assert_eq!(error["kind"], json!("not_admitted"));
    assert!(error["admission"]["earliest_finish"].is_string(), "{error}");
    let later = wanted("two", offer["earliest_finish"].clone(), json!({}));
    let (code, taken) = house.post("alice", "/v1/transfers", later).await;
    assert_eq!((code, &taken["promised"]), (201, &json!(true)), "{taken}");
    let (_, shown) = house.get("alice", "/v1/transfers/two").await;
    assert_eq!(
        shown["eta_between"]["late"], offer["earliest_finish"],
        "{shown}"
    );
    let anyway = wanted("three", soon.clone(), json!({"admission": "best_effort"}));
    let (code, taken) = house.post("alice", "/v1/transfers", anyway).await;
    assert_eq!((code, &taken["promised"]), (201, &json!(false)), "{taken}");
}

#[tokio::test]
async fn transfers_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["slow", "fast"] {
        std::fs::create_dir(folder.path().join(name)).expect("made");
    }
    let before = open(folder.path());
    before.post("alice", "/v1/transfers", request("t")).await;
    before
        .post("alice", "/v1/transfers/t/pause", Value::Null)
        .await;
    drop(before);
    let after = open(folder.path());
    let (code, transfer) = after.get("alice", "/v1/transfers/t").await;
    assert_eq!((code, &transfer["state"]), (200, &json!("paused")));
    assert_eq!(
        after.post("alice", "/v1/transfers", request("t")).await.0,
        200
    );
}

#[tokio::test]
async fn the_size_limit_counts_the_stored_request() {
    let house = house();
    let sized = |last: usize| {
        let mut request = request("t");
        let mut patterns = vec!["x".repeat(1000); 64];
        patterns.push("x".repeat(last));
        request["selection"] = json!({"exclude": patterns});
        request
    };
    // The body is below the limit for bodies. The stored request, with all default values, exceeds
    // `REQUEST_BYTES_MAX`.
    let (code, told) = house.post("alice", "/v1/transfers", sized(1000)).await;
    assert_eq!(
        (code, &told["error"]["kind"]),
        (413, &json!("limit_exceeded"))
    );
    let cause = told["error"]["cause"].as_str().expect("a text");
    assert!(cause.contains("at most 65536 bytes are allowed"), "{cause}");
    assert_eq!(house.post("alice", "/v1/transfers", sized(1)).await.0, 201);
}
