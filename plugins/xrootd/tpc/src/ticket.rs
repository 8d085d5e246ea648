//! Finds a dray endpoint by asking the source server's plug-in `libDrayXrdCtl`. The question is
//! about the file that the server has opened for this copy. The answer contains a ticket for that
//! file and for the key of this process.

use crate::endpoint::EndpointAccess;
use crate::log;
use crate::negative_cache::NegativeCache;
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use dray_net::{Dial, Fingerprint, Identity, Token};
use dray_runtime::drive::StreamCount;
use dray_store_xrootd::XrootdStore;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// First words of the question. The number is the version of the question's format.
const QUESTION: &str = "dray ticket 1";

/// Maximum time to wait for the plug-in's answer. The plug-in waits a shorter time for the
/// endpoint. The value is estimated, not measured.
const WAIT: Duration = Duration::from_secs(10);

/// The plug-in's answer. It contains a secret and must not be printed.
#[derive(Deserialize)]
struct Answer {
    /// Address of the endpoint: `HOST:PORT`.
    address: String,
    /// Fingerprint of the endpoint's key.
    key: String,
    /// Path of the file at the endpoint.
    path: String,
    /// Ticket that permits reading the file with the key in the question.
    ticket: String,
}

/// Asks the source server for a ticket of its dray endpoint. Returns `None` if the server has no
/// dray endpoint.
///
/// # Errors
/// An error if the server has an endpoint but returns no ticket or an invalid ticket.
pub(crate) fn ask(
    source: &XrootdStore,
    transfer: &TransferId,
    streams: u16,
    deaf: &NegativeCache,
) -> Result<Option<EndpointAccess>> {
    let server = source.url().host();
    if deaf.holds(server) {
        log::note(&format!(
            "skipping the endpoint lookup at {server}: a lookup within the last hour found none"
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
                log::note(&format!("no endpoint was found at {server}"));
            }
            return if is_deaf { Ok(None) } else { Err(error) };
        }
    };
    let answer = read(&answer)?;
    log::hide_value(&answer.ticket);
    log::note(&format!(
        "reading from the endpoint at {} with a ticket",
        answer.address
    ));
    let key: Fingerprint = answer.key.parse()?;
    let token = Token::new(answer.ticket.as_bytes())?;
    let mut dial = Dial::new(answer.address, key, token);
    dial.identity = Some(Arc::new(identity));
    // Permit a source that stores nothing, because this process stores the data.
    dial.may_keep_nothing = true;
    Ok(Some(EndpointAccess {
        dial,
        path: answer.path.into_bytes(),
        streams: StreamCount::Fixed(streams),
        clear_data: false,
    }))
}

/// Parses the answer. An error must not contain parts of the answer, because the answer contains a
/// secret.
fn read(answer: &str) -> Result<Answer> {
    serde_json::from_str(answer).map_err(|error| {
        Error::new(ErrorKind::Protocol, End::Source, "ask for a ticket")
            .cause(format!(
                "the answer of the endpoint is not valid at column {}",
                error.column()
            ))
            .remedy("run the same release of dray at both ends")
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
