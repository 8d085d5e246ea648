//! What is said, and to whom: lines go to the server's log; the last one with ": " in it is the client's
//! if this program fails. So only a failure has one.

use dray_core::Error;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Parts of the source's URL that may be secret and must not be said.
static HIDDEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Shorter values are no secrets, and would be found in any text.
const SECRET_BYTES_MIN: usize = 6;

/// Remembers the values of a URL's parameters, to keep them out of all that is said.
pub(crate) fn hide(cgi: &str) {
    let values = cgi.split('&').filter_map(|pair| pair.split_once('='));
    let values = values.flat_map(|(_, value)| {
        // "Bearer" and the token, with the blank written as %20, may come apart.
        let pieces = value.split("%20").map(str::to_owned);
        pieces.chain([value.to_owned()]).collect::<Vec<_>>()
    });
    let mut hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
    hidden.extend(values.filter(|value| value.len() >= SECRET_BYTES_MIN));
    // The whole before its pieces.
    hidden.sort_by_key(|value| std::cmp::Reverse(value.len()));
}

/// Remembers the words of a header's value, to keep them out of all that is said.
pub(crate) fn hide_value(value: &str) {
    let words = value.split_whitespace().map(str::to_owned);
    let mut hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
    hidden.extend(words.filter(|word| word.len() > SECRET_BYTES_MIN));
    hidden.sort_by_key(|value| std::cmp::Reverse(value.len()));
}

/// The text without what is hidden, on one line.
pub(crate) fn shown(text: &str) -> String {
    let mut text = text.replace(['\n', '\r'], " ");
    for secret in HIDDEN.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        text = text.replace(secret, "(hidden)");
    }
    text
}

fn put(line: &str) {
    // The server reads both as one. If it is gone, nobody is left to hear.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Says something for the server's log.
pub(crate) fn note(text: &str) {
    put(&format!("dray {}", shown(text).replace(": ", ", ")));
}

/// Says why there is no copy.
pub(crate) fn failed(error: &Error) {
    put(&format!("dray: {}", shown(&error.to_string())));
}

#[cfg(test)]
mod tests {
    use super::{hide, shown};

    #[test]
    fn secrets_are_not_said() {
        hide("tpc.key=293bf0011&authz=Bearer%20eyJh.token.text&a=1");
        let said = shown("no 293bf0011 nor Bearer%20eyJh.token.text nor eyJh.token.text\nbut 1");
        assert_eq!(said, "no (hidden) nor (hidden) nor (hidden) but 1");
    }
}
