use super::{Check, Request, Streams};
use serde_json::{Value, json};

fn request(change: impl Fn(&mut Value)) -> Result<Request, String> {
    let mut value = json!({
        "sources": [{"url": "/data/a"}],
        "destination": {"url": "dray://b.example/data/a", "ticket": "drt_x"},
    });
    change(&mut value);
    let request: Request = serde_json::from_value(value).map_err(|e| e.to_string())?;
    request.check().map_err(|e| e.to_string())?;
    Ok(request)
}

#[test]
fn omitted_fields_have_defaults() {
    let request = request(|_| {}).expect("good");
    assert_eq!(
        (request.priority, request.weight, request.streams),
        (3, 100, None)
    );
    assert_eq!(request.class(), dray_core::rate::Class::Background);
    assert!(request.id.is_none() && request.labels.is_empty());
}

#[test]
fn replicas_that_go_into_a_folder_have_one_name() {
    let with = |urls: &[&str], to: &str, recursive: bool| {
        request(|value| {
            let mut places: Vec<_> = urls.iter().map(|url| json!({ "url": url })).collect();
            value["replicas"] = places.split_off(1).into();
            value["sources"] = places.into();
            value["destination"]["url"] = to.into();
            value["selection"]["recursive"] = recursive.into();
        })
    };
    let differing = ["/data/a", "dray://b/data/other"];
    assert!(with(&differing, "/data/into", false).is_ok(), "named there");
    assert!(with(&differing, "/data/into/", false).is_err());
    let refused = with(&differing, "/data/into", true).expect_err("differing");
    assert!(refused.to_string().contains("slash"), "{refused}");
    let slashes = ["/data/a/", "dray://b/data/other/"];
    assert!(with(&slashes, "/data/into", true).is_ok(), "as it says");
    let alike = ["/data/a%20b", "dray://b/else/a b"];
    assert!(with(&alike, "/data/into/", false).is_ok());
    assert!(with(&["/data/a/", "dray://b/x/"], "/data/into/", true).is_ok());
    assert!(with(&["/data/a/", "dray://b/a"], "/data/into/", true).is_err());
}

#[test]
fn several_sources_are_one_origin() {
    let with = |urls: &[&str], change: &dyn Fn(&mut Value)| {
        request(|value| {
            let places: Vec<_> = urls.iter().map(|url| json!({ "url": url })).collect();
            value["sources"] = places.into();
            change(value);
        })
    };
    let two = ["/data/a", "/data/b"];
    let good = with(&two, &|_| {}).expect("good");
    assert!(good.is_into_folder() && good.origins() == 1);
    assert_eq!(good.origin(0).len(), 2);
    assert!(good.origin(1).is_empty());
    for (urls, words, change) in [
        (["/data/a", "/else/a"], "replace", json!({})),
        (["/data/a", "/else/%61"], "replace", json!({})),
        (two, "replicas", json!({"replicas": [{"url": "/data/c"}]})),
        (two, "single file", json!({"content": {"size": 1}})),
    ] {
        let refused = with(&urls, &|value| {
            for (field, given) in change.as_object().expect("fields") {
                value[field] = given.clone();
            }
        });
        let refused = refused.expect_err(words);
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn replicas_of_different_sizes_are_refused_by_name() {
    let with = |sizes: [Value; 2], content: Value| {
        request(|value| {
            value["sources"] = json!([{"url": "/data/a", "size": sizes[0]}]);
            value["replicas"] = json!([{"url": "dray://b/data/a", "size": sizes[1]}]);
            value["content"] = content.clone();
        })
    };
    let refused = with([json!(1), json!(2)], json!(null)).expect_err("differ");
    assert!(
        refused.contains("/data/a") && refused.contains("dray://b/data/a"),
        "{refused}"
    );
    assert!(with([json!(1), json!(1)], json!({"size": 2})).is_err());
    assert!(with([json!(1), json!(null)], json!({"size": 1})).is_ok());
}

#[test]
fn default_stream_count_equals_an_omitted_field() {
    let with = |streams: Value| request(|v| v["streams"] = streams.clone()).expect("good");
    let essence = |request: Request| request.essence();
    let none = essence(request(|_| {}).expect("good"));
    assert_eq!(essence(with(json!(4))), none);
    let least = request(|v| v["files_min"] = json!(1)).expect("good");
    assert_eq!(essence(least), none);
    assert_ne!(essence(with(json!(5))), none);
    assert_eq!(with(json!("auto")).streams, Some(Streams::Auto));
    assert_ne!(essence(with(json!("auto"))), none);
}

#[test]
fn deadline_sets_the_default_class() {
    let request = request(|v| v["deadline"] = json!("2030-01-01T00:00:00Z")).expect("good");
    assert_eq!(request.class(), dray_core::rate::Class::Deadline);
}

#[test]
fn out_of_bounds_fields_are_refused() {
    for (field, bad) in [
        ("priority", json!(10)),
        ("priority", json!(-1)),
        ("weight", json!(0)),
        ("weight", json!(1001)),
        ("rate_min", json!(0)),
        ("streams", json!(0)),
        ("streams", json!(65)),
        ("streams", json!("many")),
        ("object_size", json!(4095)),
        ("stripe", json!("0")),
        ("stripe", json!("4:1000")),
        ("stripe", json!("source")),
        ("stripe", json!(4)),
        ("object_size", json!(67_108_865)),
        ("id", json!("a/b")),
        ("id", json!("batch")),
        ("id", json!("..")),
        ("id", json!("x".repeat(65))),
        ("sources", json!([])),
        ("sources", json!(vec![json!({"url": "/a"}); 17])),
        ("sources", json!(vec![json!({"url": "/a/"}); 257])),
        ("replicas", json!(vec![json!({"url": "/a"}); 16])),
        ("labels", json!({"a:b": "c"})),
        ("labels", json!({"a": "c".repeat(257)})),
        ("activity", json!("a\nb")),
        ("scitag", json!({"experiment": 512, "activity": 1})),
        ("content", json!({"checksum": "md5:00"})),
        ("bind", json!(["localhost"])),
        ("retry", json!({"tries": 1001})),
        ("bound_seconds", json!(0)),
        ("deadline", json!("tomorrow")),
        ("class", json!("urgent")),
        ("admission", json!("maybe")),
        ("bytes_expected", json!(-1)),
        ("bytes_expected", json!(1_u64 << 63)),
        ("content", json!({"size": 1_u64 << 63})),
        ("rate_min", json!(1_u64 << 63)),
        ("selection", json!({"range": {"offset": 1, "length": 0}})),
        (
            "selection",
            json!({"range": {"offset": u64::MAX, "length": 2}}),
        ),
        (
            "selection",
            json!({"recursive": true, "range": {"offset": 1, "length": 1}}),
        ),
        ("sorces", json!(1)),
        ("destination", json!({"url": "/a", "tiket": "x"})),
    ] {
        assert!(
            request(|v| v[field] = bad.clone()).is_err(),
            "{field}: {bad}"
        );
    }
    let taken = request(|v| v["id"] = json!("batch")).expect_err("taken");
    let words =
        "id: \"batch\" is reserved, because the API uses this word in its paths; choose another id";
    assert!(taken.to_string().contains(words), "{taken}");
    let high = request(|v| {
        v["rate_min"] = json!(5);
        v["rate_max"] = json!(4);
    });
    assert!(high.is_err());
}

#[test]
fn token_in_the_ticket_field_is_refused_and_not_quoted() {
    let mut value = json!({
        "sources": [{"url": "dray://b.example/data/x", "ticket": "drt_x"}],
        "destination": {"url": "/data/a"},
    });
    let read = |value: &serde_json::Value| -> Request {
        serde_json::from_value(value.clone()).expect("a request")
    };
    read(&value).check().expect("good");
    for wrong in ["eyJhIjoxfQ.eyJiIjoyfQ.c2ln", "", "secret"] {
        value["sources"][0]["ticket"] = json!(wrong);
        let error = read(&value).check().expect_err(wrong);
        assert!(
            error
                .cause
                .contains(".ticket: the value is not a ticket: a ticket begins with drt_"),
            "{error}"
        );
        assert!(wrong.is_empty() || !error.to_string().contains(wrong));
    }
}

#[test]
fn a_renewed_ticket_is_the_same_request() {
    let one = request(|v| v["id"] = json!("one")).expect("good");
    let two = request(|v| {
        v["destination"]["ticket"] = json!("drt_y");
        v["destination"]["address"] = json!("10.0.0.1:4735");
    })
    .expect("good");
    assert_ne!(one, two);
    assert_eq!(one.clone().essence(), two.clone().essence());
    assert!(!format!("{two:?}").contains("drt_"), "{two:?}");
    let shown = serde_json::to_string(&two.without_tickets()).expect("JSON");
    assert!(!shown.contains("drt_"), "{shown}");
    let other = request(|v| v["verify"] = json!(true)).expect("good");
    assert_ne!(one.essence(), other.essence());
}
