//! The identity of a span in a distributed trace, in the form of W3C Trace Context.

use std::fmt;

/// Flag of a context whose spans are recorded (W3C Trace Context, section 3.2.2.5.1).
const SAMPLED: u8 = 1;

/// Length in characters of a `traceparent` of version 00.
const TEXT_LENGTH: usize = 55;

/// A span in a trace: the header `traceparent` (W3C Trace Context, section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// Identity of the trace; not all zero.
    pub trace: [u8; 16],
    /// Identity of the span in the trace; not all zero.
    pub span: [u8; 8],
    /// True if the spans of the trace are recorded.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Length of the text in bytes.
    pub const TEXT_BYTES: usize = TEXT_LENGTH;

    /// Parses the value of `traceparent`. Returns `None` for every other text: the standard
    /// demands that a receiver ignores an invalid value (section 3.2.2).
    ///
    /// The text of a later version may have further parts. Of such a text, the standard demands that
    /// a receiver uses only the parts that it knows, and writes them in the latest version that it
    /// knows (section 3.2.4, "Versioning of traceparent"). So the result has no version, and
    /// [`TraceContext`] is always written as version 00, without the other parts and flags.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let version: [u8; 1] = unhex(parts.next()?)?;
        let trace: [u8; 16] = unhex(parts.next()?)?;
        let span: [u8; 8] = unhex(parts.next()?)?;
        let flags: [u8; 1] = unhex(parts.next()?)?;
        let is_version = match version[0] {
            0 => parts.next().is_none(),
            later => later != 0xff,
        };
        let is_valid = is_version && trace != [0; 16] && span != [0; 8];
        is_valid.then_some(Self {
            trace,
            span,
            is_sampled: flags[0] & SAMPLED != 0,
        })
    }

    /// Returns the identity of the trace as 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> String {
        hex(&self.trace)
    }

    /// Returns the identity of the span as 16 hexadecimal digits.
    #[must_use]
    pub fn span_id(&self) -> String {
        hex(&self.span)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{}-{}-{flags:02x}", self.trace_id(), self.span_id())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses exactly `N` bytes. Only lower-case digits are valid (section 3.2.2.3).
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = 16 * digit(*pair.first()?)? + digit(*pair.last()?)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::TraceContext;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_read_and_written_as_the_standard_says() {
        let context = TraceContext::parse(TEXT).expect("valid");
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span_id(), "00f067aa0ba902b7");
        assert!(context.is_sampled);
        assert_eq!(context.to_string(), TEXT);
        assert_eq!(TEXT.len(), TraceContext::TEXT_BYTES);
        let unsampled = TraceContext::parse(&TEXT.replace("-01", "-00")).expect("valid");
        assert!(!unsampled.is_sampled);
        // A later version may have more flags and more parts.
        let later = TEXT.replace("00-4", "01-4").replace("-01", "-03-more");
        assert_eq!(TraceContext::parse(&later), Some(context));
    }

    /// The cases of W3C Trace Context, section 3.2.4.
    #[test]
    fn a_later_version_is_continued_as_the_version_that_this_program_knows() {
        let later = |text: &str| TraceContext::parse(text).map(|context| context.to_string());
        let known = Some(TEXT.to_owned());
        let version = |version: &str| TEXT.replace("00-4", &format!("{version}-4"));
        assert_eq!(later(&version("cc")), known);
        assert_eq!(later(&format!("{}-what-follows", version("cc"))), known);
        assert_eq!(later(&version("01").replace("-01", "-fd-")), known);
        for other in [
            // Shorter than 55 characters; flags that neither end the text nor precede a dash.
            &version("cc")[..54],
            &format!("{}.what-follows", version("cc")),
            &format!("{}0", version("cc")),
            &version("ff"),
            &version("CC"),
            &version("1"),
        ] {
            assert_eq!(later(other), None, "{other}");
        }
    }

    #[test]
    fn every_other_text_is_no_context() {
        for text in [
            "",
            "-",
            "00",
            &TEXT[..54],
            &format!("{TEXT}-more"),
            &format!("{TEXT} "),
            &TEXT.to_uppercase(),
            &TEXT.replace("00-4", "ff-4"),
            &TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &TEXT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &TEXT.replace("4bf9", "4bé"),
            &"a-".repeat(100_000),
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text:.80}");
        }
    }
}
