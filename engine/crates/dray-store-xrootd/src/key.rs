//! Opening a file by the key of a third-party copy, of which the server's answer may be lost.

use crate::client::{Mode, RemoteFile, client};
use dray_core::{End, Error, ErrorKind, Result};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// From here on an answer is taken to be lost (guess: a client that shows the key to one server shows it to
/// the other within a second or two; the server itself drops the key after a minute).
const LOST: Duration = Duration::from_secs(10);

/// Opens a file by a key.
///
/// A server lets whoever comes before the client has shown it the key wait. When the client does so in
/// the very moment between that decision and the word to wait, XRootD (5.5, `XrdOfsTPCInfo::Reply`)
/// drops its answer: the key is good, and nobody is told. Who asks again is let in. The first one goes
/// on waiting beside it, for a server that has to fetch the file first, and knows the key no more,
/// answers that one. Should the client not have shown the key by then, the server takes the second for
/// somebody else's and refuses both.
pub(crate) fn open(url: &[u8]) -> Result<RemoteFile> {
    let url = url.to_owned();
    ask_again(LOST, move || client()?.open(&url, Mode::Read))
}

/// What one of two openings brings, the second begun when the first has brought nothing for so long.
/// When both fail it is the first one's error.
fn ask_again<T: Send + 'static>(
    lost: Duration,
    open: impl Fn() -> Result<T> + Clone + Send + 'static,
) -> Result<T> {
    let (tell, heard) = channel();
    let begin = |number: u32| {
        let (told, open) = (tell.clone(), open.clone());
        // One that comes late is dropped, which closes it.
        let begun = std::thread::Builder::new().spawn(move || told.send((number, open())).is_ok());
        if let Err(error) = begun {
            let error = Error::new(ErrorKind::Busy, End::Source, "open the file")
                .cause(format!("no thread could be started: {error}"))
                .remedy("look at the limits of this process, then run the same command again");
            let _ = tell.send((number, Err(error)));
        }
    };
    begin(1);
    match heard.recv_timeout(lost) {
        Ok((_, opened)) => return opened,
        Err(RecvTimeoutError::Timeout) => begin(2),
        // Its thread has panicked: the second one's answer tells more than that.
        Err(RecvTimeoutError::Disconnected) => return open(),
    }
    drop(tell);
    let mut failed = Vec::new();
    for (number, opened) in heard {
        match opened {
            Ok(file) => return Ok(file),
            Err(error) => failed.push((number, error)),
        }
    }
    failed.sort_by_key(|(number, _)| *number);
    match failed.into_iter().next() {
        Some((_, error)) => Err(error),
        None => open(),
    }
}

#[cfg(test)]
mod tests {
    use super::ask_again;
    use dray_core::{End, Error, ErrorKind, Result};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    const LOST: Duration = Duration::from_millis(50);
    const NEVER: Duration = Duration::from_secs(3600);

    fn refused(what: &str) -> Error {
        Error::new(ErrorKind::PermissionDenied, End::Source, what.to_owned())
    }

    /// Runs with what each opening does, by its number; says how many there were.
    fn run(what: fn(u32) -> Result<u32>) -> (Result<u32>, u32) {
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        let open = move || what(counted.fetch_add(1, Ordering::SeqCst) + 1);
        let opened = ask_again(LOST, open);
        (opened, count.load(Ordering::SeqCst))
    }

    #[test]
    fn an_answer_in_time_is_the_answer() {
        assert_eq!(run(Ok).0.expect("opened"), 1);
        let (opened, count) = run(|_| Err(refused("no key")));
        assert_eq!(opened.expect_err("refused").operation, "no key");
        assert_eq!(count, 1);
    }

    #[test]
    fn a_lost_answer_is_asked_for_again_and_a_late_one_is_still_taken() {
        let opened = run(|number| {
            if number == 1 {
                std::thread::sleep(NEVER);
            }
            Ok(number)
        });
        assert_eq!(opened.0.expect("opened"), 2);
        // The key is used up: the first one has it, and its server fetches the file.
        let opened = run(|number| match number {
            1 => {
                std::thread::sleep(4 * LOST);
                Ok(1)
            }
            _ => Err(refused("used up")),
        });
        assert_eq!(opened.0.expect("opened"), 1);
        let opened = run(|number| {
            std::thread::sleep(4 * LOST);
            Err(refused(if number == 1 { "first" } else { "second" }))
        });
        assert_eq!(opened.0.expect_err("refused").operation, "first");
    }
}
