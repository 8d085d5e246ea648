//! Writes lines to the server's log. If this program fails, the server sends the client the last
//! line that contains ": ". So no other line than that of the failure may contain ": ".

use dray_core::Error;
use dray_core::lock::LockExt;
use std::io::Write;
use std::sync::Mutex;

/// Parts of the source URL that may be secret and must not be logged.
static HIDDEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Minimum length of a secret in bytes. A shorter value could be part of any text.
const SECRET_BYTES_MIN: usize = 6;

/// Remembers the values of a URL's parameters, and removes them from all later output.
pub(crate) fn hide(cgi: &str) {
    let values = cgi.split('&').filter_map(|pair| pair.split_once('='));
    let values = values.flat_map(|(_, value)| {
        // A value may consist of "Bearer", %20 and a token. The token may also appear alone in the
        // output, so hide the parts of the value too.
        let pieces = value.split("%20").map(str::to_owned);
        pieces.chain([value.to_owned()]).collect::<Vec<_>>()
    });
    let mut hidden = HIDDEN.lock_unpoisoned();
    hidden.extend(values.filter(|value| may_be_secret(value)));
    // Replace longer values first, so that a whole value is replaced before its parts.
    hidden.sort_by_key(|value| std::cmp::Reverse(value.len()));
}

/// Remembers the words in the value of a header, and removes them from all later output.
pub(crate) fn hide_value(value: &str) {
    let words = value.split_whitespace().map(str::to_owned);
    let mut hidden = HIDDEN.lock_unpoisoned();
    hidden.extend(words.filter(|word| may_be_secret(word)));
    hidden.sort_by_key(|value| std::cmp::Reverse(value.len()));
}

/// Returns false for texts that must stay readable: short ones, and the name of the scheme in front
/// of a token.
fn may_be_secret(text: &str) -> bool {
    text.len() >= SECRET_BYTES_MIN && !text.eq_ignore_ascii_case("bearer")
}

/// Returns the text as one line without secret values.
pub(crate) fn shown(text: &str) -> String {
    let mut text = text.replace(['\n', '\r'], " ");
    for secret in HIDDEN.lock_unpoisoned().iter() {
        text = text.replace(secret, "(hidden)");
    }
    text
}

fn put(line: &str) {
    // Ignore an error. The server reads standard error together with standard output, so a write
    // fails only if the server has ended.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Writes a message to the server's log.
pub(crate) fn note(text: &str) {
    put(&format!("dray {}", shown(text).replace(": ", ", ")));
}

/// Writes the error of a failed copy.
pub(crate) fn failed(error: &Error) {
    put(&format!("dray: {}", shown(&error.to_string())));
}

#[cfg(test)]
mod tests {
    use super::{hide, hide_value, shown};

    #[test]
    fn secrets_are_not_said() {
        hide("tpc.key=293bf0011&authz=Bearer%20eyJh.token.text&a=1");
        let said = shown("no 293bf0011 nor Bearer%20eyJh.token.text nor eyJh.token.text\nbut 1");
        assert_eq!(said, "no (hidden) nor (hidden) nor (hidden) but 1");
        hide_value("Bearer 6bytes");
        assert_eq!(shown("Bearer 6bytes"), "Bearer (hidden)");
    }
}
