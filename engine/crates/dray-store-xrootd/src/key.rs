//! Opens a file with the key of a third-party copy. The server may lose the answer to such a
//! request.

use crate::client::{Mode, RemoteFile, client};
use dray_core::{End, Error, ErrorKind, Result};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Time after which an answer counts as lost. In a third-party copy, the user's client sends the
/// key to both servers within a second or two. A server deletes a key after a minute. The value is
/// estimated, not measured.
const LOST: Duration = Duration::from_secs(10);

/// Opens a file with a key.
///
/// A server lets the reading client wait if the user's client has not registered the key yet.
/// XRootD has a race here (5.5, `XrdOfsTPCInfo::Reply`). If the key is registered just before the
/// server sends the answer "wait", the server never sends its final answer. The key is then valid,
/// and the reading client is not informed. A second request succeeds in this case.
///
/// The first request continues to wait in parallel, because the server may still answer it. If a
/// server must fetch the file first, the first request uses up the key, and the server answers only
/// this request. If the user's client registers the key after the second request has arrived, the
/// server does not recognise the second request and refuses both. So the second request is sent
/// only after [`LOST`].
pub(crate) fn open(url: &[u8]) -> Result<RemoteFile> {
    let url = url.to_owned();
    ask_again(LOST, move || client()?.open(&url, Mode::Read))
}

/// Opens a file in up to two attempts. The second attempt starts if the first has not answered
/// within `lost`; the first success of the two is then returned. If both fail, returns the error of
/// the first.
fn ask_again<T: Send + 'static>(
    lost: Duration,
    open: impl Fn() -> Result<T> + Clone + Send + 'static,
) -> Result<T> {
    let (tell, heard) = channel();
    let begin = |number: u32| {
        let (told, open) = (tell.clone(), open.clone());
        // A file that arrives later is dropped, which closes it.
        let begun = std::thread::Builder::new().spawn(move || told.send((number, open())).is_ok());
        if let Err(error) = begun {
            let error = Error::new(ErrorKind::Busy, End::Source, "open the file")
                .cause(format!("no thread could be started: {error}"))
                .remedy(
                    "check the limits of the process (ulimit -a), then run the same command again",
                );
            let _ = tell.send((number, Err(error)));
        }
    };
    begin(1);
    match heard.recv_timeout(lost) {
        Ok((_, opened)) => return opened,
        Err(RecvTimeoutError::Timeout) => begin(2),
        // The thread of the first attempt has panicked. Open the file again, because an error of
        // the second attempt is more useful.
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

    /// Runs `ask_again` with `what`, whose argument is the number of the attempt. Returns the
    /// result and the number of attempts.
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
        // The server uses up the key for the first request, and then fetches the file. It refuses a
        // second request with the same key.
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
