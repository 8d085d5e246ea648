//! Write operations that check the generation of their object.

use crate::made::Before;
use crate::note::GENERATION;
use crate::pool::Step;

/// Returns the steps of an operation that writes to an object with this generation. A missing
/// object gets the generation. On an object with another generation the operation fails.
///
/// The attribute follows the bytes of the writes. librados sends the bytes of all steps in one
/// piece, and an OSD receives this piece at the start of a page. If the attribute came first, the
/// bytes of a write would not be aligned, and bluestore would copy them once more.
pub(crate) fn guarded<'a>(
    before: Before,
    writes: &[Step<'a>],
    generation: &'a [u8],
) -> Vec<Step<'a>> {
    let (begin, end) = match before {
        Before::Missing => (Some(Step::CreateNew), Step::Set(GENERATION, generation)),
        Before::Made | Before::Begun => (None, Step::Equals(GENERATION, generation)),
    };
    let begin = begin.into_iter().chain(writes.iter().copied());
    begin.chain([end]).collect()
}

#[cfg(test)]
mod tests {
    use super::guarded;
    use crate::made::Before;
    use crate::pool::Step;

    #[test]
    fn the_bytes_of_a_write_precede_the_attribute() {
        for before in [Before::Missing, Before::Made, Before::Begun] {
            let steps = guarded(before, &[Step::Write(0, b"bytes")], b"12");
            let has_no_bytes = |step: &&Step<'_>| matches!(step, Step::CreateNew);
            let mut with_bytes = steps.iter().skip_while(has_no_bytes);
            assert!(
                matches!(with_bytes.next(), Some(Step::Write(0, b"bytes"))),
                "{steps:?}"
            );
            let is_guarded = match before {
                Before::Missing => matches!(with_bytes.next(), Some(Step::Set(_, b"12"))),
                _ => matches!(with_bytes.next(), Some(Step::Equals(_, b"12"))),
            };
            assert!(is_guarded, "{steps:?}");
        }
    }
}
