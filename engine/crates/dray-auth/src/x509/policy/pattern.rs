//! Patterns of subjects. To match a text takes at most the product of the lengths of the pattern and
//! the text, so no pattern or subject can stop an endpoint.

/// Maximum number of characters in a pattern. The patterns of the IGTF have at most 150.
const CHARACTERS_MAX: usize = 1_024;

/// Characters that are operators in some libraries of regular expressions, and stand for themselves
/// in others.
const AMBIGUOUS: &str = "+?|{}";

/// The characters that one character of the text may be.
#[derive(Debug, Clone, PartialEq, Eq)]
enum One {
    Any,
    Exactly(char),
    /// A character in one of the ranges, or, if `is_negated`, in none of them.
    Set {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    one: One,
    /// True if the text may have any number of these characters.
    is_repeated: bool,
}

/// A pattern that a whole subject must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    items: Vec<Item>,
    ignores_case: bool,
}

impl Pattern {
    /// Creates the pattern of a signing policy: `*` stands for any text, `?` for one character.
    pub(super) fn wildcards(text: &str) -> Self {
        let item = |character| {
            let (one, is_repeated) = match character {
                '*' => (One::Any, true),
                '?' => (One::Any, false),
                other => (One::Exactly(other), false),
            };
            Item { one, is_repeated }
        };
        Self {
            items: text.chars().map(item).collect(),
            ignores_case: false,
        }
    }

    /// Parses the regular expression of a namespaces file. The pattern ignores case. Only the parts
    /// that POSIX and Java define alike are accepted: `.`, sets in brackets, `*` after one character,
    /// and a backslash before punctuation. Round brackets stand for themselves, because names of
    /// published files contain them.
    ///
    /// # Errors
    /// A description of the first part that is not accepted.
    pub(super) fn expression(text: &str) -> Result<Self, String> {
        let text: Vec<char> = text.chars().collect();
        if text.len() > CHARACTERS_MAX {
            return Err(format!(
                "the expression has more than {CHARACTERS_MAX} characters"
            ));
        }
        let mut rest = text.strip_prefix(&['^']).unwrap_or(&text);
        let before = rest.strip_suffix(&['$']);
        let is_escaped = |before: &[char]| {
            let slashes = before.iter().rev().take_while(|one| **one == '\\');
            slashes.count() % 2 == 1
        };
        rest = before.filter(|before| !is_escaped(before)).unwrap_or(rest);
        let mut items = Vec::new();
        while let Some((first, after)) = rest.split_first() {
            let (one, after) = match first {
                '.' => (One::Any, after),
                '[' => set(after)?,
                '\\' => literal(after)?,
                '*' => {
                    return Err("the * does not follow a character; write .* for any text".into());
                }
                other if AMBIGUOUS.contains(*other) || matches!(other, '^' | '$') => {
                    return Err(format!(
                        "the character {other} has several meanings; write {}",
                        plain(*other)
                    ));
                }
                other => (One::Exactly(*other), after),
            };
            let is_repeated = after.first() == Some(&'*');
            if is_repeated && matches!(first, '(' | ')') {
                return Err(
                    "a * after a round bracket has several meanings; list the names".into(),
                );
            }
            rest = &after[usize::from(is_repeated)..];
            items.push(Item { one, is_repeated });
        }
        Ok(Self {
            items,
            ignores_case: true,
        })
    }

    /// Returns true if the pattern matches the whole text.
    pub(super) fn matches(&self, text: &str) -> bool {
        let mut seen = vec![None; self.items.len() + 1];
        let mut places = Vec::new();
        self.reach(0, 0, &mut seen, &mut places);
        for (count, character) in text.chars().enumerate() {
            let mut next = Vec::new();
            for place in places {
                let Some(item) = self.items.get(place) else {
                    continue;
                };
                if item.one.has(character, self.ignores_case) {
                    let to = place + usize::from(!item.is_repeated);
                    self.reach(to, count + 1, &mut seen, &mut next);
                }
            }
            places = next;
        }
        places.contains(&self.items.len())
    }

    /// Adds to `places` the place `to` in the pattern, and all places after it that need no further
    /// character. Each place is added once for each `count` of characters.
    fn reach(
        &self,
        mut to: usize,
        count: usize,
        seen: &mut [Option<usize>],
        places: &mut Vec<usize>,
    ) {
        while seen[to] != Some(count) {
            seen[to] = Some(count);
            places.push(to);
            if !self.items.get(to).is_some_and(|item| item.is_repeated) {
                return;
            }
            to += 1;
        }
    }
}

impl One {
    fn has(&self, found: char, ignores_case: bool) -> bool {
        if !ignores_case {
            return self.has_exactly(found);
        }
        let (lower, upper) = (one(found.to_lowercase()), one(found.to_uppercase()));
        let cases = [Some(found), lower, upper];
        let mut cases = cases.into_iter().flatten();
        match self {
            Self::Set {
                is_negated: true, ..
            } => cases.all(|case| self.has_exactly(case)),
            _ => cases.any(|case| self.has_exactly(case)),
        }
    }

    fn has_exactly(&self, found: char) -> bool {
        match self {
            Self::Any => true,
            Self::Exactly(wanted) => *wanted == found,
            Self::Set { is_negated, ranges } => {
                let mut ranges = ranges.iter();
                ranges.any(|(first, last)| (first..=last).contains(&&found)) != *is_negated
            }
        }
    }
}

/// Returns the only character of a conversion. `None` if there are several.
fn one(mut converted: impl ExactSizeIterator<Item = char>) -> Option<char> {
    converted.next().filter(|_| converted.len() == 0)
}

/// Parses the character after a backslash.
fn literal(after: &[char]) -> Result<(One, &[char]), String> {
    // After a backslash, these are operators of some libraries, like all letters and digits.
    const OPERATORS: &str = "(){}|+?<>'`";
    match after.split_first() {
        Some((mark, rest)) if mark.is_ascii_punctuation() && !OPERATORS.contains(*mark) => {
            Ok((One::Exactly(*mark), rest))
        }
        Some((other, _)) => Err(format!(
            "a backslash before {other} has several meanings; write {}",
            plain(*other)
        )),
        None => Err("the expression ends with a backslash".into()),
    }
}

/// Returns the unambiguous form of a character.
fn plain(character: char) -> String {
    match character {
        '^' | '$' => format!("\\{character}"),
        mark if mark.is_ascii_punctuation() => format!("[{mark}]"),
        other => other.to_string(),
    }
}

/// Parses a set of characters after its opening bracket.
fn set(after: &[char]) -> Result<(One, &[char]), String> {
    let is_negated = after.first() == Some(&'^');
    let mut rest = &after[usize::from(is_negated)..];
    let mut ranges = Vec::new();
    loop {
        let (range, after) = match rest {
            [']', after @ ..] if !ranges.is_empty() => {
                return Ok((One::Set { is_negated, ranges }, after));
            }
            ['[', ':' | '.' | '=', ..] => {
                return Err("a class in a set is not supported; list its characters".into());
            }
            ['\\' | '[' | '&', ..] => {
                return Err(format!(
                    "the character {} in a set has several meanings; write it outside of the set",
                    rest[0]
                ));
            }
            [first, '-', last, after @ ..] if *last != ']' => ((*first, *last), after),
            [first, after @ ..] => ((*first, *first), after),
            [] => return Err("a set has no closing bracket".into()),
        };
        if range.0 > range.1 {
            return Err(format!("the range {}-{} is empty", range.0, range.1));
        }
        ranges.push(range);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::{CHARACTERS_MAX, Pattern};
    use proptest::prelude::*;

    #[test]
    fn an_expression_matches_the_whole_subject_and_ignores_case() {
        for (pattern, good, bad) in [
            ("/C=it/O=INFN/.*", "/C=IT/O=infn/CN=a", "/C=it/O=INFN"),
            ("/CN=a.c", "/CN=abc", "/CN=abcd"),
            ("/CN=[a-c1]*x", "/CN=ABca1x", "/CN=abdx"),
            ("/CN=[^/]*", "/CN=any text", "/CN=a/OU=b"),
            ("/CN=[^a]", "/CN=b", "/CN=A"),
            ("/O=(Pty) Ltd\\.", "/O=(Pty) Ltd.", "/O=Pty Ltd."),
            ("/O=a[+]b\\*", "/O=a+b*", "/O=aab"),
            ("^/CN=a$", "/CN=A", "/CN=a$"),
            ("/CN=a\\$", "/CN=a$", "/CN=a"),
            ("/CN=[]-]", "/CN=]", "/CN=a"),
            ("a*b*c*", "", "d"),
        ] {
            let pattern = Pattern::expression(pattern).expect(pattern);
            assert!(pattern.matches(good), "{pattern:?}");
            assert!(!pattern.matches(bad), "{pattern:?}");
        }
    }

    #[test]
    fn an_ambiguous_expression_is_refused_with_the_remedy() {
        let long = "a".repeat(CHARACTERS_MAX + 1);
        for (pattern, words) in [
            ("*", "write .* for any text"),
            ("/CN=a**", "write .* for any text"),
            ("/CN=a|b", "write [|]"),
            ("/CN=a+", "write [+]"),
            ("/CN=a{2}", "write [{]"),
            ("/CN=(a)*", "list the names"),
            ("/CN=\\(a\\)", "write [(]"),
            ("/CN=\\d", "write d"),
            ("/CN=a$b", "write \\$"),
            ("/CN=\\", "ends with a backslash"),
            ("/CN=[a", "no closing bracket"),
            ("/CN=[]", "no closing bracket"),
            ("/CN=[z-a]", "is empty"),
            ("/CN=[[:alpha:]]", "list its characters"),
            ("/CN=[\\d]", "outside of the set"),
            (&long, "more than 1024"),
        ] {
            let error = Pattern::expression(pattern).expect_err(pattern);
            assert!(error.contains(words), "{pattern}: {error}");
        }
    }

    #[test]
    fn no_expression_takes_exponential_time() {
        // A backtracking matcher would not end.
        let pattern = Pattern::expression(&"a*".repeat(CHARACTERS_MAX / 2)).expect("good");
        assert!(pattern.matches(&"a".repeat(1_000)));
        assert!(!pattern.matches(&("a".repeat(1_000) + "b")));
    }

    /// Patterns of one character.
    const PARTS: &[&str] = &["a", "b", ".", "[ab]", "[^a]"];

    proptest! {
        #[test]
        fn a_pattern_matches_as_a_slow_matcher_does(
            parts in prop::collection::vec((prop::sample::select(PARTS), any::<bool>()), 0..6),
            text in "[abc]{0,8}",
        ) {
            fn slow(parts: &[(&str, bool)], text: &[u8]) -> bool {
                let Some(((one, is_repeated), rest)) = parts.split_first() else {
                    return text.is_empty();
                };
                let has = text.first().is_some_and(|c| match *one {
                    "." => true,
                    "[ab]" => *c != b'c',
                    "[^a]" => *c != b'a',
                    exact => exact.as_bytes() == [*c],
                });
                match is_repeated {
                    true => slow(rest, text) || (has && slow(parts, &text[1..])),
                    false => has && slow(rest, &text[1..]),
                }
            }
            let written: String = parts
                .iter()
                .map(|(one, is_repeated)| format!("{one}{}", if *is_repeated { "*" } else { "" }))
                .collect();
            let pattern = Pattern::expression(&written).expect("good");
            prop_assert_eq!(pattern.matches(&text), slow(&parts, text.as_bytes()), "{}", written);
        }

        #[test]
        fn parsing_an_expression_never_panics(text in r"[a-b.*\[\]\\^$()+|-]{0,20}", subject in ".{0,20}") {
            if let Ok(pattern) = Pattern::expression(&text) {
                pattern.matches(&subject);
            }
        }
    }
}
