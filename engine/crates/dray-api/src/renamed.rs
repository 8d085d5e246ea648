//! Settings with a new name: a message about the former one gives the name that is valid now.

/// Former and valid names of settings.
const RENAMED: &[(&str, &str)] = &[("at_once", "max_running"), ("turns_of", "round_robin_by")];

/// Returns the message of a parser. If it refuses a former name, the valid name is in the result.
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
    fn a_former_name_is_answered_with_the_valid_one() {
        let refused = "unknown field `at_once`, expected one of `policy`, `max_running`";
        assert_eq!(
            with_valid_name(refused),
            "`at_once` is now called `max_running`"
        );
        let other = "unknown field `at_onces`, expected `policy`";
        assert_eq!(with_valid_name(other), other);
    }
}
