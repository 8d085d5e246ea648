//! A dray that the source's own server tells of (`libDrayXrdCtl`): it is asked about the file that it
//! has opened for this copy, and gives a ticket for that file and for the key of this process.

use crate::endpoint::Way;
use crate::log;
use crate::negative_cache::NegativeCache;
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use dray_runtime::drive::StreamCount;
use dray_runtime::net::{Dial, Fingerprint, Identity, Token};
use dray_store_xrootd::XrootdStore;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// How the question begins; the number grows when it changes.
const QUESTION: &str = "dray ticket 1";

/// Longest wait for the answer: the plug-in itself waits less for its dray (guess, revisit).
const WAIT: Duration = Duration::from_secs(10);

/// What the plug-in answers. It holds a secret, and is not printed.
#[derive(Deserialize)]
struct Answer {
    /// Where dray listens: `HOST:PORT`.
    address: String,
    /// The fingerprint of its key.
    key: String,
    /// The file as it is called there.
    path: String,
    /// Opens that file for the key that was shown.
    ticket: String,
}

/// Asks the source's server. None: it knows of no dray.
///
/// # Errors
/// When it knows of one and gives no ticket, or one that cannot be used.
pub(crate) fn ask(
    source: &XrootdStore,
    transfer: &TransferId,
    streams: u16,
    deaf: &NegativeCache,
) -> Result<Option<Way>> {
    let server = source.url().host();
    if deaf.holds(server) {
        log::note(&format!(
            "asks not again for a dray at {server}, which told of none within the hour"
        ));
        return Ok(None);
    }
    let identity = Identity::unkept()?;
    let question = format!("{QUESTION} {transfer} {}", identity.fingerprint());
    let answered = source.ask(source.url().path(), &question, WAIT);
    let answer = match answered {
        Ok(answer) => answer,
        Err(error) => {
            let is_deaf = matches!(error.kind, ErrorKind::Unsupported | ErrorKind::TimedOut);
            if is_deaf {
                deaf.add(server);
                log::note(&format!("knows of no dray at {server}"));
            }
            return if is_deaf { Ok(None) } else { Err(error) };
        }
    };
    let answer = read(&answer)?;
    log::hide_value(&answer.ticket);
    log::note(&format!("reads by a ticket from {}", answer.address));
    let key: Fingerprint = answer.key.parse()?;
    let token = Token::new(answer.ticket.as_bytes())?;
    let mut dial = Dial::new(answer.address, key, token);
    dial.identity = Some(Arc::new(identity));
    // What is read there is kept here.
    dial.may_keep_nothing = true;
    Ok(Some(Way {
        dial,
        path: answer.path.into_bytes(),
        streams: StreamCount::Fixed(streams),
        clear_data: false,
    }))
}

/// What is said of an answer that is none must not repeat it.
fn read(answer: &str) -> Result<Answer> {
    serde_json::from_str(answer).map_err(|error| {
        Error::new(ErrorKind::Protocol, End::Source, "ask for a ticket")
            .cause(format!(
                "the answer is not understood at column {}",
                error.column()
            ))
            .remedy("have both ends run the same release of dray")
    })
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn an_answer_is_read_and_a_bad_one_is_not_repeated() {
        let good =
            r#"{"address":"h:1","key":"sha256:00","path":"/d/a","ticket":"drt_se-cret","x":1}"#;
        let answer = read(good).expect("good");
        assert_eq!(
            (answer.path.as_str(), answer.ticket.as_str()),
            ("/d/a", "drt_se-cret")
        );
        for bad in [
            good.replace("path", "pfad"),
            good.replace("\"drt_se-cret\"", "[\"drt_se-cret\"]"),
            "drt_se-cret".to_owned(),
            String::new(),
        ] {
            let error = read(&bad).map(drop).expect_err("bad");
            assert!(!error.to_string().contains("se-cret"), "{error}");
        }
    }
}
