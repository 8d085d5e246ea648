//! A thread that panics ends the session at both ends, with a message that names the reason.

mod local_common;

use dray_core::options::Options;
use dray_core::{Error, ErrorKind, TransferId};
use dray_link::pace::SharedRates;
use dray_link::pool::Pool;
use dray_net::{
    Caller, Dial, Handler, Identity, Listener, Prepared, Presented, Request, Serve, Token,
};
use dray_runtime::observe::Silent;
use dray_runtime::{local, sink, source};
use dray_session::Outcome;
use dray_store::Store;
use dray_store::wrap::{Around, Call, Hook, Operation};
use dray_wire::message::{Connect, Role, Selection};
use local_common::{
    Notes, bytes, options, sink_setup_of, sink_store, source_setup_of, source_store,
};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Time limit of a test, far longer than an end needs to detect a panic.
const PATIENCE: Duration = Duration::from_secs(20);

/// A store wrapper that panics at the `nth` call of one operation.
struct Panics {
    operation: Operation,
    nth: AtomicU32,
}

impl Hook for Panics {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        if call.operation == self.operation && self.nth.fetch_sub(1, Ordering::Relaxed) == 1 {
            panic!("on purpose");
        }
        Ok(())
    }
}

fn panicking(store: Arc<dyn Store>, operation: Operation, nth: u32) -> Arc<dyn Store> {
    let nth = AtomicU32::new(nth);
    Arc::new(Around::new(store, Panics { operation, nth }))
}

fn make_tree(at: &Path) {
    fs::create_dir_all(at.join("folder")).expect("a folder");
    for index in 0..20u64 {
        let small = bytes(index + 1, 5000);
        fs::write(at.join(format!("folder/small-{index}")), small).expect("a file");
    }
    fs::write(at.join("folder/large"), bytes(7, 3_000_000)).expect("a file");
    std::os::unix::fs::symlink("large", at.join("folder/link")).expect("a link");
}

/// Calls `run`, and fails if it does not return in time.
fn in_time<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(run()));
    let ended = ended.recv_timeout(PATIENCE);
    ended.unwrap_or_else(|_| panic!("{what}: it hangs"))
}

fn is_told(what: &str, outcome: &Outcome) {
    let Outcome::Failed(error) = outcome else {
        panic!("{what}: {outcome:?}");
    };
    assert_eq!(error.kind, ErrorKind::Internal, "{what}: {error}");
    assert!(error.cause.contains("on purpose"), "{what}: {error}");
}

const AT_THE_SOURCE: [(Operation, u32); 3] = [
    (Operation::List, 1),
    (Operation::OpenRead, 3),
    (Operation::Read, 5),
];

const AT_THE_SINK: [(Operation, u32); 8] = [
    (Operation::MakeDir, 1),
    (Operation::Begin, 1),
    (Operation::Write, 9),
    (Operation::WriteSmall, 5),
    (Operation::SyncEach, 1),
    (Operation::Publish, 2),
    (Operation::SetDirectory, 1),
    (Operation::MakeSymlink, 1),
];

#[test]
fn a_panic_ends_a_copy_in_one_process() {
    let scratch = tempfile::tempdir().expect("a folder");
    let from = scratch.path().join("from");
    make_tree(&from);
    let all = AT_THE_SOURCE.iter().map(|case| (case, true));
    let all = all.chain(AT_THE_SINK.iter().map(|case| (case, false)));
    for (index, (&(operation, nth), is_source)) in all.enumerate() {
        let what = format!("{operation:?}");
        let to = scratch.path().join(format!("to-{index}"));
        let (mut source, mut sink) = (source_store(&from), sink_store(&to).expect("a store"));
        if is_source {
            source = panicking(source, operation, nth);
        } else {
            sink = panicking(sink, operation, nth);
        }
        let ends = in_time(&what, move || {
            let sink = sink_setup_of(sink, &options(), &[]).expect("a destination");
            let source = source_setup_of(source, &options());
            local::run(source, sink, &Notes::default(), |_| {}).expect("started")
        });
        is_told(&what, &ends.into_outcome().0);
    }
}

/// A passive sink that reports its outcome.
struct Site {
    setup: Mutex<Option<sink::Setup>>,
    ended: mpsc::Sender<Outcome>,
}

impl Handler for Site {
    fn admit(&self, caller: &Caller) -> Result<(), Error> {
        caller.must_show(&token())
    }

    fn prepare<'h>(&'h self, _request: Request) -> Result<Prepared<'h>, Error> {
        let setup = self
            .setup
            .lock()
            .expect("whole")
            .take()
            .expect("asked once");
        let pool =
            Arc::new(Pool::new(setup.machine.buffers, setup.machine.buffer_bytes).expect("memory"));
        let theirs = Arc::clone(&pool);
        let run = Box::new(move |link| {
            let (outcome, _) = sink::run(setup, &theirs, link, &Silent);
            let _ = self.ended.send(outcome);
        });
        let shared = SharedRates::default();
        Ok(Prepared::Sink { pool, shared, run })
    }

    fn rejected(&self, _peer: SocketAddr, error: &Error) {
        panic!("{error}");
    }
}

fn token() -> Token {
    Token::new(b"a token for tests").expect("a token")
}

fn copy_over_sockets(source: Arc<dyn Store>, sink: Arc<dyn Store>) -> (Outcome, Outcome) {
    let place = tempfile::tempdir().expect("a folder");
    let identity = Identity::load_or_create(place.path()).expect("an identity");
    let pin = identity.fingerprint();
    let serve = Serve::new(Presented::new(identity).expect("a key"));
    let listener = Listener::bind(&["127.0.0.1:0".to_owned()], serve).expect("bound");
    let address = listener.addresses()[0];
    let stopper = listener.stopper();
    let (ended, sink_ended) = mpsc::channel();
    let site = Site {
        setup: Mutex::new(Some(
            sink_setup_of(sink, &options(), &[]).expect("a destination"),
        )),
        ended,
    };
    let served = std::thread::spawn(move || listener.run(&site));
    let connect = Connect {
        transfer: TransferId::new("panics").expect("an id"),
        attempt: 1,
        passive_role: Role::Sink,
        paths: vec![b"/somewhere".to_vec()],
        selection: Selection::default(),
        options: Options::default(),
        demanded: None,
        streams: 2,
        clear_data: false,
        addresses: Vec::new(),
        trace: None,
    };
    let dial = Dial::new(address.to_string(), pin, token());
    let dialled = dray_net::push(&dial, connect).expect("a session");
    let setup = source_setup_of(source, &options());
    let (outcome, _) = source::run(setup, dialled.link, &Silent).expect("started");
    let at_sink = sink_ended.recv().expect("told");
    stopper.abort();
    served
        .join()
        .expect("the listener lives")
        .expect("it has its threads");
    (outcome, at_sink)
}

#[test]
fn a_panic_ends_both_ends_of_a_session() {
    let scratch = tempfile::tempdir().expect("a folder");
    let from = scratch.path().join("from");
    make_tree(&from);
    for (index, (operation, nth, is_source)) in [
        (Operation::Write, 9, false),
        (Operation::SyncEach, 1, false),
        (Operation::Read, 5, true),
        (Operation::List, 1, true),
    ]
    .into_iter()
    .enumerate()
    {
        let what = format!("{operation:?}");
        let to = scratch.path().join(format!("to-{index}"));
        let (mut source, mut sink) = (source_store(&from), sink_store(&to).expect("a store"));
        if is_source {
            source = panicking(source, operation, nth);
        } else {
            sink = panicking(sink, operation, nth);
        }
        let (source, sink) = in_time(&what, move || copy_over_sockets(source, sink));
        // The other end receives the reason in a message.
        is_told(&what, &source);
        is_told(&what, &sink);
    }
}
