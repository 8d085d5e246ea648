//! Tests of the server over real sockets on the loopback interface.

use super::Server;
use crate::api;
use crate::api::tests::{House, house};
use dray_net::{Identity, Presented, client_config, server_config};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

struct Running {
    house: House,
    server: Arc<Server>,
    plain: SocketAddr,
}

fn run() -> Running {
    let house = house();
    let router = api::router(Arc::clone(&house.api));
    let limits = &house.api.config.limits;
    let metrics = Arc::clone(&house.api.metrics);
    let server = Arc::new(Server::new(router, limits, metrics).expect("started"));
    let plain = server.listen_plain("127.0.0.1:0").expect("listens");
    Running {
        house,
        server,
        plain,
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).expect("set");
    stream
}

fn ask(stream: &mut (impl Read + Write), head: &str) -> String {
    stream.write_all(head.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[test]
fn plain_and_tls_lead_to_the_same_router() {
    let running = run();
    let answer = ask(&mut connect(running.plain), HEALTH);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let folder = tempfile::tempdir().expect("a folder");
    let identity = Identity::load_or_create(folder.path()).expect("made");
    let key = identity.fingerprint();
    let presented = Presented::new(identity).expect("a key");
    let config = server_config(&presented).expect("a configuration");
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("bound");
    let client = std::thread::spawn(move || {
        let (config, _) = client_config(&key.into(), None).expect("a pin");
        let name = ServerName::try_from("dray").expect("a name");
        let connection = ClientConnection::new(config, name).expect("begun");
        let mut stream = StreamOwned::new(connection, connect(address));
        ask(&mut stream, HEALTH)
    });
    let (stream, _) = listener.accept().expect("accepted");
    // The listener of the data port peeks at the first byte without reading it.
    let mut first = [0];
    stream.peek(&mut first).expect("looked");
    assert_eq!(first, [0x16]);
    running
        .server
        .serve_connection(stream, Some(config))
        .expect("served");
    let answer = client.join().expect("ran");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn http2_is_spoken_as_well() {
    let running = run();
    let mut stream = connect(running.plain);
    // The client sends the preface and an empty SETTINGS frame (RFC 9113). The answer begins with
    // the server's SETTINGS.
    let opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(opening).expect("sent");
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("a frame");
    assert_eq!(head[3], 0x04, "SETTINGS");
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).expect("settings");
    // The setting MAX_CONCURRENT_STREAMS, which has number 3.
    assert!(
        settings.chunks(6).any(|s| s == [0, 3, 0, 0, 0, 64]),
        "{settings:?}"
    );
}

#[test]
fn a_body_over_the_limit_is_refused_over_the_wire() {
    let running = run();
    let head = "POST /v1/transfers HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer alice\r\n\
                Content-Length: 70000\r\nConnection: close\r\n\r\n";
    let mut stream = connect(running.plain);
    stream.write_all(head.as_bytes()).expect("sent");
    // The result is ignored: the server may close the connection before it has read the whole body.
    let _ = stream.write_all(&vec![b'x'; 70_000]);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let many = "x: y\r\n".repeat(100);
    let head = format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{many}\r\n");
    let answer = ask(&mut connect(running.plain), &head);
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let answer = ask(&mut connect(running.plain), "no HTTP\r\n\r\n");
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
        "{answer}"
    );
}

#[test]
fn one_address_has_a_bounded_number_of_connections() {
    let running = run();
    let mut held: Vec<_> = (0..6).map(|_| connect(running.plain)).collect();
    let until = Instant::now() + Duration::from_secs(10);
    let metrics = &running.house.api.metrics;
    while metrics.connections.load(Ordering::Relaxed) < 6 {
        assert!(Instant::now() < until, "six are served");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The new connection takes the slot of the first connection, which has been silent for the
    // longest time.
    let answer = ask(&mut connect(running.plain), HEALTH);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(metrics.connections_refused.load(Ordering::Relaxed), 1);
    let mut answer = Vec::new();
    let _ = held[0].read_to_end(&mut answer);
    assert!(answer.is_empty());
    drop(held);
    while metrics.connections.load(Ordering::Relaxed) > 0 {
        assert!(Instant::now() < until, "all are gone");
        std::thread::sleep(Duration::from_millis(5));
    }
    let answer = ask(&mut connect(running.plain), HEALTH);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_stop_lets_calls_end_and_takes_no_more() {
    let running = run();
    let plain = running.plain;
    let poll = std::thread::spawn(move || {
        let head = "GET /v1/events?timeout=30 HTTP/1.1\r\nHost: a\r\n\
                    Authorization: Bearer alice\r\n\r\n";
        ask(&mut connect(plain), head)
    });
    let idle = connect(plain);
    let metrics = Arc::clone(&running.house.api.metrics);
    let until = Instant::now() + Duration::from_secs(10);
    while metrics.connections.load(Ordering::Relaxed) < 2 {
        assert!(Instant::now() < until, "two are served");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    running.house.api.stop();
    running.server.stop(Duration::from_secs(5));
    assert!(start.elapsed() < Duration::from_secs(6));
    let answer = poll.join().expect("ran");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\"events\":[]"), "{answer}");
    drop(idle);
    assert!(TcpStream::connect(plain).is_err());
}

#[test]
fn answers_stay_quick_while_many_are_queued_and_run() {
    use dray_api::Route;
    use dray_queue::{Counters, Submission};
    let running = run();
    let queue = Arc::clone(&running.house.api.queue);
    let submission = |at: usize| {
        let request = serde_json::from_value(serde_json::json!({
            "id": format!("t{at}"),
            "sources": [{"url": "/slow/x"}],
            "destination": {"url": "dray://b.example/data/x"},
        }))
        .expect("good");
        Ok(Submission {
            route: Route::parse(&request, |_| false).expect("good"),
            request,
            owner: "alice".to_owned(),
            principal: "alice@test".to_owned(),
            claim: None,
        })
    };
    let all = queue
        .submit_all((0..550).map(submission).collect(), false)
        .expect("taken");
    let jobs: Vec<_> = all[..50]
        .iter()
        .map(|one| {
            let id = one.as_ref().expect("taken").transfer.id.as_str();
            let id = dray_core::TransferId::new(id).expect("good");
            queue.begin(&id, 1).expect("begun").expect("queued").id
        })
        .collect();
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let runner = Arc::clone(&queue);
        scope.spawn(move || {
            let mut counters = Counters::default();
            while !over.load(Ordering::Relaxed) {
                counters.bytes.sent += 1 << 20;
                for id in &jobs {
                    runner.progress(id, &counters);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut stream = connect(running.plain);
        for at in 0..200 {
            let path = match at % 4 {
                0 => "/v1/transfers?state=live&limit=50".to_owned(),
                1 => format!("/v1/transfers/t{at}"),
                2 => "/v1/endpoint".to_owned(),
                _ => format!("/v1/transfers/t{at}/pause"),
            };
            let method = if at % 4 == 3 { "POST" } else { "GET" };
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer alice\r\n\
                 Content-Length: 0\r\n\r\n"
            );
            let start = Instant::now();
            stream.write_all(head.as_bytes()).expect("sent");
            read_answer(&mut stream);
            took.push(start.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    took.sort();
    // The limit allows for an unoptimised build on a busy host. The promised time is 100 ms at the
    // 99th percentile.
    assert!(took[197] < Duration::from_secs(1), "{:?}", &took[190..]);
}

fn read_answer(stream: &mut TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    assert!(
        head.starts_with("http/1.1 2") || head.starts_with("http/1.1 409"),
        "{head}"
    );
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).expect("a body");
}
