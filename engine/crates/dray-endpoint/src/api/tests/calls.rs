use super::{House, house, open, open_with, request};
use axum::body::Body;
use axum::http::{Request, header};
use dray_queue::clock;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use tower::ServiceExt;

#[tokio::test]
async fn nobody_is_let_in_without_a_credential() {
    let house = house();
    for headers in [
        vec![],
        vec!["Basic YTpi"],
        vec!["Bearer bad"],
        vec!["Bearer alice", "Bearer bob"],
        vec!["Bearer"],
    ] {
        let mut request = Request::builder().uri("/v1/transfers");
        for value in &headers {
            request = request.header(header::AUTHORIZATION, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        let response = house
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("answered");
        assert_eq!(response.status(), 401, "{headers:?}");
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
    }
}

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
async fn a_request_that_makes_no_sense_is_refused_in_words() {
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
async fn a_token_that_does_not_reach_is_refused() {
    let house = house();
    let (code, error) = house
        .post("alice-reads", "/v1/transfers", request("t"))
        .await;
    assert_eq!(
        (code, &error["error"]["kind"]),
        (403, &json!("permission_denied"))
    );
    for (path, body) in [
        ("/v1/storage/mkdir", json!({"path": "/slow/a"})),
        ("/v1/storage/rm", json!({"path": "/slow/a"})),
        (
            "/v1/storage/rename",
            json!({"from": "/slow/a", "to": "/slow/b"}),
        ),
        ("/v1/staging/in", json!({"path": "/slow/a"})),
    ] {
        assert_eq!(house.post("alice-reads", path, body).await.0, 403, "{path}");
    }
    let (code, read) = house.get("alice-reads", "/v1/endpoint").await;
    assert_eq!(code, 200);
    assert_eq!(
        read["roots"][0],
        json!({"name": "slow", "read": true, "write": false, "stage": false})
    );
    assert_eq!(read["you"]["owner"], "alice");
}

#[tokio::test]
async fn a_retry_asks_for_rights_as_a_submission_does() {
    let house = house();
    let sent = house.post("alice", "/v1/transfers", request("t")).await;
    assert_eq!(sent.0, 201);
    let retry = "/v1/transfers/t/retry";
    let cancel = house.post("alice", "/v1/transfers/t/cancel", Value::Null);
    assert_eq!(cancel.await.0, 200);
    // The same owner, with a token that has no permission to write.
    let (code, error) = house.post("alice-reads", retry, Value::Null).await;
    assert_eq!(
        (code, &error["error"]["kind"]),
        (403, &json!("permission_denied"))
    );
    let (_, kept) = house.get("alice", "/v1/transfers/t").await;
    assert_eq!(
        (&kept["state"], &kept["attempt"]),
        (&json!("cancelled"), &json!(1))
    );
    let (code, again) = house.post("alice", retry, Value::Null).await;
    assert_eq!((code, &again["attempt"]), (200, &json!(2)));
}

#[tokio::test]
async fn administrators_change_the_policy_and_everybody_sees_it() {
    let house = house();
    let call = "PATCH /v1/endpoint/scheduling";
    let (_, before) = house.get("alice", "/v1/endpoint").await;
    assert_eq!(before["scheduling"]["policy"], "fair");
    let round = json!({"policy": "round_robin", "quota": 5, "max_running": 2});
    assert_eq!(house.call("alice", call, round.clone()).await.0, 403);
    for wrong in [
        json!({"policy": "lifo"}),
        json!({"quota": 0}),
        json!({"max_running": 0}),
        json!({"speed": 3}),
    ] {
        assert_eq!(
            house.call("root", call, wrong.clone()).await.0,
            400,
            "{wrong}"
        );
    }
    let (code, refused) = house.call("root", call, json!({"at_once": 2})).await;
    let cause = refused["error"]["cause"].as_str().unwrap_or_default();
    assert_eq!(code, 400);
    assert!(
        cause.contains("`at_once` is now called `max_running`"),
        "{refused}"
    );
    let (code, now) = house.call("root", call, round).await;
    assert_eq!(
        (code, &now["policy"], &now["max_running"]),
        (200, &json!("round_robin"), &json!(2))
    );
    assert_eq!(
        now["patience_seconds"],
        before["scheduling"]["patience_seconds"]
    );
    let (_, now) = house.call("root", call, json!({"max_running": null})).await;
    assert_eq!(
        (&now["max_running"], &now["quota"]),
        (&json!(null), &json!(5))
    );
    let (_, seen) = house.get("alice", "/v1/endpoint").await;
    assert_eq!(seen["scheduling"], now);
}

#[tokio::test]
async fn transfers_are_their_owners_alone() {
    let house = house();
    house.post("alice", "/v1/transfers", request("t")).await;
    for call in [
        "GET /v1/transfers/t",
        "GET /v1/transfers/t/files",
        "GET /v1/transfers/t/wait?timeout=0",
        "POST /v1/transfers/t/cancel",
        "POST /v1/transfers/t/pause",
        "POST /v1/transfers/t/resume",
        "POST /v1/transfers/t/retry",
        "DELETE /v1/transfers/t",
        "GET /v1/events?transfer=t&timeout=0",
    ] {
        let (code, body) = house.call("bob", call, Value::Null).await;
        assert_eq!(code, 404, "{call}: {body}");
        assert!(!body.to_string().contains("alice"));
    }
    assert_eq!(
        house
            .call("bob", "PATCH /v1/transfers/t", json!({"priority": 1}))
            .await
            .0,
        404
    );
    let (_, list) = house.get("bob", "/v1/transfers").await;
    assert_eq!(list, json!({"transfers": [], "next": null}));
    let (_, found) = house
        .post("bob", "/v1/transfers/query", json!({"ids": ["t", "u"]}))
        .await;
    assert_eq!(found, json!({"transfers": {"t": null, "u": null}}));
    let (_, all) = house
        .get("root", "/v1/transfers?owner=alice&state=queued&state=live")
        .await;
    assert_eq!(all["transfers"][0]["id"], "t");
    assert_eq!(
        house
            .post("root", "/v1/transfers/t/pause", Value::Null)
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn states_allow_what_they_allow_and_twice_is_once() {
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
    // If one request of a batch cannot be parsed, only that request is refused, with its index.
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
async fn lists_are_paged_and_odd_queries_refused() {
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

fn fill(house: &House) {
    let slow = house.place.join("slow");
    std::fs::create_dir_all(slow.join("run/deep")).expect("made");
    std::fs::write(slow.join("run/a"), b"123456789").expect("written");
    std::fs::write(slow.join("run/deep/100%"), b"x").expect("written");
    symlink("/etc", slow.join("etc")).expect("linked");
}

#[tokio::test]
async fn storage_calls_stay_beneath_their_root() {
    let house = house();
    fill(&house);
    for (path, code) in [
        ("/slow/run/a", 200),
        ("/slow/run", 200),
        ("/slow", 200),
        ("/slow/run/deep/100%2525", 200),
        ("/slow/etc", 200),
        ("/slow/etc/passwd", 400),
        ("/slow/../slow/run", 400),
        ("/slow/%2e%2e/fast", 400),
        ("/slow/%252e%252e/fast", 400),
        ("/slow/run%2F..%2F..", 400),
        ("/slow/.dray-log", 400),
        ("/slow/none", 404),
        ("/none", 404),
        ("slow", 400),
        ("", 400),
    ] {
        let (told, body) = house
            .get("alice", &format!("/v1/storage/stat?path={path}"))
            .await;
        assert_eq!(told, code, "{path}: {body}");
    }
    let (_, link) = house.get("alice", "/v1/storage/stat?path=/slow/etc").await;
    assert_eq!(
        (&link["type"], &link["link"]),
        (&json!("symlink"), &json!("/etc"))
    );
    assert_eq!(
        house
            .get("alice", "/v1/storage/list?path=/slow/etc")
            .await
            .0,
        400
    );
    let sum = json!({"path": "/slow/etc/passwd", "algorithm": "adler32"});
    assert_eq!(
        house.post("alice", "/v1/storage/checksum", sum).await.0,
        400
    );
}

#[tokio::test]
async fn storage_calls_do_what_the_reference_says() {
    let house = house();
    fill(&house);
    let (code, page) = house
        .get("alice", "/v1/storage/list?path=/slow/run&limit=1")
        .await;
    assert_eq!(
        (code, &page["entries"][0]["path"]),
        (200, &json!("/slow/run/a"))
    );
    let next = page["next"].as_str().expect("more");
    let path = format!("/v1/storage/list?path=/slow/run&cursor={next}");
    let (_, page) = house.get("alice", &path).await;
    assert_eq!(
        (&page["entries"][0]["name"], &page["next"]),
        (&json!("deep"), &Value::Null)
    );
    let post = async |path: &str, body| {
        house
            .post("alice", &format!("/v1/storage/{path}"), body)
            .await
    };
    let made = json!({"path": "/fast/a/b"});
    assert_eq!(post("mkdir", made.clone()).await.0, 201);
    assert_eq!(post("mkdir", made).await.0, 200);
    assert_eq!(
        post("mkdir", json!({"path": "/fast/x/y", "parents": false}))
            .await
            .0,
        404
    );
    let sum = json!({"path": "/slow/run/a", "algorithm": "adler32"});
    let (_, sum) = post("checksum", sum).await;
    assert_eq!(
        (&sum["checksum"], &sum["from"]),
        (&json!("091e01de"), &json!("read"))
    );
    let md5 = json!({"path": "/slow/run/a", "algorithm": "md5"});
    assert_eq!(post("checksum", md5).await.0, 400);
    let (code, entry) = post("rename", json!({"from": "/slow/run/a", "to": "/slow/b"})).await;
    assert_eq!((code, &entry["path"]), (200, &json!("/slow/b")));
    assert_eq!(
        post("rename", json!({"from": "/slow/b", "to": "/fast/b"}))
            .await
            .0,
        400
    );
    let (_, space) = house.get("alice", "/v1/storage/space?path=/slow").await;
    assert!(space["total"].as_u64() >= space["free"].as_u64());
    assert_eq!(post("rm", json!({"path": "/slow/run"})).await.0, 409);
    let (code, gone) = post("rm", json!({"path": "/slow/run", "recursive": true})).await;
    assert_eq!((code, gone), (200, json!({"removed": 3})));
    assert_eq!(post("rm", json!({"path": "/slow/run"})).await.0, 404);
}

#[tokio::test]
async fn what_is_not_there_says_so() {
    let house = house();
    let ticket = json!({"transfer": "t", "direction": "read", "paths": ["/slow/a"],
        "peer_key": format!("sha256:{}", "0".repeat(64))});
    assert_eq!(
        house.post("alice", "/v1/tickets", ticket.clone()).await.0,
        501
    );
    assert_eq!(house.get("alice", "/v1/tickets").await.0, 501);
    let mut bad = ticket.clone();
    bad["peer_key"] = json!("sha256:0");
    assert_eq!(house.post("alice", "/v1/tickets", bad).await.0, 400);
    let mut out = ticket;
    out["paths"] = json!(["/slow/../x"]);
    assert_eq!(house.post("alice", "/v1/tickets", out).await.0, 400);
    let many = json!({"path": "/slow/a", "replicas": 2});
    let (code, refused) = house.post("alice", "/v1/staging/in", many).await;
    assert_eq!(code, 400);
    assert!(
        refused
            .to_string()
            .contains("the request asks for 2 replicas, but at most 1 can be made"),
        "{refused}"
    );
    let admit = json!({"transfers": [request("t")]});
    let (code, answer) = house.post("alice", "/v1/admission", admit).await;
    assert_eq!((code, &answer["decision"]), (200, &json!("accept")));
    let nothing = json!({"promised": false, "rate": null, "finish": null, "latest": null,
        "earliest_finish": null, "rate_needed": null, "rate_available": null, "reasons": []});
    assert_eq!(answer["transfers"], json!([nothing]), "it asks for nothing");
    assert_eq!(
        house.get("alice", "/v1/transfers/t").await.0,
        404,
        "it changed nothing"
    );
}

#[tokio::test]
async fn a_deadline_that_cannot_be_promised_is_refused_with_one_that_can() {
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
async fn counters_are_for_administrators() {
    let house = house();
    house.post("alice", "/v1/transfers", request("t")).await;
    assert_eq!(house.get("alice", "/metrics").await.0, 403);
    let (code, text) = house.get("root", "/metrics").await;
    let text = text.as_str().expect("text");
    assert_eq!(code, 200);
    for line in [
        "dray_transfers{state=\"queued\"} 1",
        "dray_api_requests_total{method=\"POST\",route=\"/v1/transfers\",code=\"201\"} 1",
        "dray_bytes_sent_total 0",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("alice"));
}

#[tokio::test]
async fn storage_is_asked_as_the_owners_account() {
    use crate::accounts::Accounts;
    use crate::accounts::tests::{ALICE, Made, make, may_act};
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().expect("a folder");
    let is_allowed = may_act();
    let owner = if is_allowed { ALICE } else { 0 };
    for name in ["slow", "fast", "slow/hers"] {
        let at = folder.path().join(name);
        match is_allowed {
            true => make(&at, if name == "slow/hers" { owner } else { 0 }, 0o755),
            false => std::fs::create_dir(&at).expect("made"),
        }
    }
    let house = open_with(folder.path(), "", |_| Accounts::made(Box::new(Made)));
    let refused = |(code, error): (u16, Value), words: &str| {
        assert_eq!(
            (code, &error["error"]["kind"]),
            (403, &json!("permission_denied"))
        );
        assert!(
            error["error"]["cause"].to_string().contains(words),
            "{error}"
        );
    };
    let stat = "/v1/storage/stat?path=/slow/hers";
    refused(house.get("mallory", stat).await, "mapping");
    if !is_allowed {
        refused(house.get("alice", stat).await, "CAP_SETUID");
        eprintln!("left out: acting as another account, which this process may not");
        return;
    }
    std::fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("its mode");
    let private = "/slow/hers/private";
    let (code, made) = house
        .post("alice", "/v1/storage/mkdir", json!({"path": private}))
        .await;
    assert_eq!(code, 201, "{made}");
    let at = folder.path().join("slow/hers/private");
    let state = std::fs::metadata(&at).expect("it stands");
    assert_eq!((state.uid(), state.gid()), (ALICE, ALICE));
    make(&at, ALICE, 0o700);
    std::fs::write(at.join("x"), b"hers").expect("a file");
    let list = format!("/v1/storage/list?path={private}");
    assert_eq!(house.get("alice", &list).await.0, 200);
    refused(house.get("bob", &list).await, "ermission");
    let file = format!("/v1/storage/stat?path={private}/x");
    assert_eq!(house.get("alice", &file).await.0, 200);
    refused(house.get("bob", &file).await, "ermission");
    let rm = json!({"path": private, "recursive": true});
    refused(
        house.post("bob", "/v1/storage/rm", rm.clone()).await,
        "ermission",
    );
    assert!(at.join("x").exists());
    assert_eq!(house.post("alice", "/v1/storage/rm", rm).await.0, 200);
    assert!(!at.exists());
}

#[tokio::test]
async fn a_restart_takes_everything_up() {
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
async fn a_copy_is_staged_pinned_and_evicted() {
    use dray_queue::Ending;
    let house = house();
    fill(&house);
    let wanted = json!({"id": "s", "path": "/slow/run", "recursive": true, "pin_seconds": 3600,
        "application": "xgc", "lifetime_seconds": 7200});
    let (code, staged) = house.post("alice", "/v1/staging/in", wanted.clone()).await;
    assert_eq!(code, 201, "{staged}");
    assert_eq!(
        (&staged["to"], &staged["state"]),
        (&json!("/fast/run"), &json!("queued"))
    );
    assert_eq!(house.post("alice", "/v1/staging/in", wanted).await.0, 200);
    let (_, transfer) = house.get("alice", "/v1/transfers/s").await;
    assert_eq!(transfer["request"]["destination"]["url"], "/fast/run/");
    let evict = async || {
        house
            .post("alice", "/v1/staging/s/evict", Value::Null)
            .await
    };
    assert_eq!(evict().await.0, 409, "not there yet");
    let queue = &house.api.queue;
    let id = dray_core::TransferId::new("s").expect("good");
    queue.begin(&id, 1).expect("written").expect("queued");
    assert_eq!(
        house.get("alice", "/v1/staging/s").await.1["state"],
        "moving"
    );
    let copy = std::process::Command::new("cp")
        .args(["-a", "slow/run", "fast/run"])
        .current_dir(&house.place)
        .status();
    assert!(copy.expect("ran").success());
    queue.ended(&id, Ending::Done).expect("ended");
    let (_, staged) = house.get("alice", "/v1/staging/s").await;
    assert_eq!(staged["state"], "staged");
    assert!(staged["pinned_until"].is_string() && staged["expires_at"].is_string());
    assert_eq!(evict().await.0, 409, "pinned");
    assert_eq!(
        house
            .post("bob", "/v1/staging/s/evict", Value::Null)
            .await
            .0,
        404
    );
    let pin = json!({"lifetime_seconds": 1});
    assert_eq!(house.post("alice", "/v1/staging/s/pin", pin).await.0, 200);
    std::fs::write(house.place.join("fast/run/new"), b"only here").expect("written");
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let (code, error) = evict().await;
    assert_eq!(code, 409);
    assert!(error.to_string().contains("/fast/run/new"), "{error}");
    std::fs::remove_file(house.place.join("fast/run/new")).expect("removed");
    let (code, gone) = evict().await;
    assert_eq!((code, &gone["state"]), (200, &json!("evicted")));
    assert!(!house.place.join("fast/run").exists() && house.place.join("slow/run/a").exists());
    assert_eq!(evict().await.0, 200, "twice is once");
    let (_, list) = house
        .get("alice", "/v1/staging?application=xgc&state=evicted")
        .await;
    assert_eq!(list["staging"].as_array().expect("a list").len(), 1);
    let (code, _) = house
        .post("alice", "/v1/staging/out", json!({"path": "/slow/run"}))
        .await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn a_request_is_bounded_as_it_is_kept() {
    let house = house();
    let sized = |last: usize| {
        let mut request = request("t");
        let mut patterns = vec!["x".repeat(1000); 64];
        patterns.push("x".repeat(last));
        request["selection"] = json!({"exclude": patterns});
        request
    };
    // The body is below its limit, but the stored request with all default values exceeds the limit
    // for requests.
    let (code, told) = house.post("alice", "/v1/transfers", sized(1000)).await;
    assert_eq!(
        (code, &told["error"]["kind"]),
        (413, &json!("limit_exceeded"))
    );
    let cause = told["error"]["cause"].as_str().expect("a text");
    assert!(cause.contains("at most 65536 bytes are allowed"), "{cause}");
    assert_eq!(house.post("alice", "/v1/transfers", sized(1)).await.0, 201);
}
