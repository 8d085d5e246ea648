//! Settings that were renamed. An error about a former name states the valid name.

/// Pairs of the former and the valid name of a setting.
const RENAMED: &[(&str, &str)] = &[("at_once", "max_running"), ("turns_of", "round_robin_by")];

/// Returns the error message for a parser's `message`. If the parser refused the former name of a
/// setting, the returned message states the valid name.
#[must_use]
pub fn with_valid_name(message: &str) -> String {
    let former = RENAMED
        .iter()
        .find(|(former, _)| message.starts_with(&format!("unknown field `{former}`")));
    match former {
        Some((former, valid)) => format!("`{former}` is now called `{valid}`"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::with_valid_name;

    #[test]
    fn former_name_is_reported_with_the_valid_name() {
        let refused = "unknown field `at_once`, expected one of `policy`, `max_running`";
        assert_eq!(
            with_valid_name(refused),
            "`at_once` is now called `max_running`"
        );
        let other = "unknown field `at_onces`, expected `policy`";
        assert_eq!(with_valid_name(other), other);
    }
}
