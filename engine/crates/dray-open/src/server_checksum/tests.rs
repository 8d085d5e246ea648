use super::{ChecksumNeed, Offer};
use dray_core::{Checksum, ErrorKind, Status, Sums};
use dray_runtime::sink::FinalCheck;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn never() -> super::Need {
    Box::new(|| ChecksumNeed::Optional)
}

#[test]
fn a_copy_from_several_servers_is_published_only_after_a_comparison() {
    let sums = Sums::of(b"1");
    let silent = Offer::of(LONG, Box::new(|| ChecksumNeed::Any), || Ok(None));
    let error = silent.compare(&sums).expect_err("nothing was compared");
    assert_eq!(error.kind, ErrorKind::TimedOut);
    let failed = || {
        Err(dray_core::Error::new(
            ErrorKind::Io,
            dray_core::End::Source,
            "ask",
        ))
    };
    let failed = Offer::of(LONG, Box::new(|| ChecksumNeed::Any), failed);
    assert!(failed.compare(&sums).is_err());
}

#[test]
fn a_file_with_a_new_time_is_compared_with_a_second_checksum() {
    let sums = Sums::of(b"123456789");
    let of = |second: Option<Checksum>| {
        let answers = Mutex::new(vec![second, Some(Checksum::Adler32(0x091e_01de))]);
        Offer::of(LONG, Box::new(|| ChecksumNeed::New), move || {
            Ok(answers.lock().expect("alone").pop().flatten())
        })
    };
    let same = of(Some(Checksum::Adler32(0x091e_01de)));
    same.compare(&sums).expect("the same content");
    // The first checksum agrees, but the content has changed since then.
    for second in [Some(Checksum::Adler32(1)), None] {
        let error = of(second).compare(&sums).expect_err("changed");
        assert_eq!(error.kind, ErrorKind::SourceChanged, "{second:?}");
    }
}

/// A server whose answer number `slow` (the first is 0) never arrives.
fn slow_at(slow: usize) -> (std::sync::Arc<Offer>, std::sync::mpsc::Sender<()>) {
    let (silence, never) = channel::<()>();
    let state = Mutex::new((0, never));
    let offer = Offer::of(
        Duration::from_millis(200),
        Box::new(|| ChecksumNeed::New),
        move || {
            let mut state = state.lock().expect("no panic");
            state.0 += 1;
            if state.0 == slow + 1 {
                let _ = state.1.recv();
            }
            Ok(Some(Checksum::Adler32(0x091e_01de)))
        },
    );
    (offer, silence)
}

#[test]
fn a_slow_checksum_of_a_file_with_a_new_time_is_reported_as_a_timeout() {
    for slow in [0, 1] {
        let (offer, silence) = slow_at(slow);
        let error = offer.compare(&Sums::of(b"123456789")).expect_err("slow");
        assert_eq!(error.kind, ErrorKind::TimedOut, "{slow}: {error}");
        assert_eq!(error.status, Status::Temporary, "{slow}: {error}");
        let told = error.to_string();
        assert!(told.contains("has not returned the checksum"), "{told}");
        drop(silence);
    }
}

#[test]
fn another_sum_is_refused_and_the_same_is_not_spoken_of() {
    let sums = Sums::of(b"123456789");
    let offer = Offer::of(LONG, never(), || Ok(Some(Checksum::Adler32(0x091e_01de))));
    assert!(offer.notice().is_none());
    offer.compare(&sums).expect("the same");
    assert!(offer.notice().is_none());
    let other = Offer::of(LONG, never(), || Ok(Some(Checksum::Adler32(1))));
    let error = other.compare(&sums).expect_err("another");
    assert_eq!(error.kind, ErrorKind::ChecksumMismatch);
}

#[test]
fn a_stop_ends_the_wait_and_prevents_publishing() {
    let (silence, answer) = channel::<()>();
    let answer = Mutex::new(answer);
    let silent = Offer::of(Duration::from_secs(86_400), never(), move || {
        let _ = answer.lock().expect("alone").recv();
        Ok(None)
    });
    let waiting = std::thread::spawn({
        let silent = std::sync::Arc::clone(&silent);
        move || silent.compare(&Sums::of(b"1"))
    });
    silent.give_up();
    let error = waiting.join().expect("no panic").expect_err("stopped");
    assert_eq!(error.kind, ErrorKind::Cancelled);
    drop(silence);
    // The answer arrived before the stop, so it counts.
    let sums = Sums::of(b"123456789");
    let heard = Offer::of(LONG, never(), || Ok(Some(Checksum::Adler32(0x091e_01de))));
    heard.compare(&sums).expect("the same");
    heard.give_up();
    heard.compare(&sums).expect("the same still");
}

#[test]
fn a_missing_comparison_is_reported() {
    let sums = Sums::of(b"123456789");
    let none = Offer::of(LONG, never(), || Ok(None));
    none.compare(&sums).expect("nothing to compare with");
    assert!(none.notice().is_some());
    // This server never answers.
    let (silence, answer) = channel::<()>();
    let answer = Mutex::new(answer);
    let silent = Offer::of(Duration::from_millis(1), never(), move || {
        let _ = answer.lock().expect("alone").recv();
        Ok(None)
    });
    silent.compare(&sums).expect("not waited for");
    let notice = silent.notice().expect("said").to_string();
    assert!(notice.contains("has not returned"), "{notice}");
    drop(silence);
}
