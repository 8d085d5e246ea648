//! Checks that two tiers with a common slow root never store two versions under one path.

use super::{Holds, ManagedTier, Segment, Template};
use std::collections::BTreeSet;

/// One part of a template: a fixed character, or a placeholder that stands for one or more
/// characters.
#[derive(Debug, Clone, Copy)]
enum Part {
    One(char),
    Many(Holds),
}

impl Part {
    const fn fits(self, c: char) -> bool {
        match self {
            Self::One(own) => own == c,
            Self::Many(Holds::Application) => true,
            Self::Many(Holds::Version) => c.is_ascii_digit(),
        }
    }
}

fn parts_of(segment: &Segment) -> Vec<Part> {
    let before = segment.before.chars().map(Part::One);
    let after = segment.after.chars().map(Part::One);
    before
        .chain(segment.holds.map(Part::Many))
        .chain(after)
        .collect()
}

/// Returns the positions in `parts` after the character `c`, if the position before is `at`.
fn after(parts: &[Part], at: usize, c: char) -> impl Iterator<Item = usize> {
    let part = parts.get(at).copied().filter(|part| part.fits(c));
    let stays = matches!(part, Some(Part::Many(_))).then_some(at);
    stays.into_iter().chain(part.map(|_| at + 1))
}

/// Returns true if a name exists that fits both segments.
fn have_common_name(one: &Segment, other: &Segment) -> bool {
    let (one, other) = (parts_of(one), parts_of(other));
    // Every other character behaves as a digit or as the zero character, which no name contains.
    let mut alphabet = BTreeSet::from(['0', '\0']);
    for part in one.iter().chain(&other) {
        if let Part::One(c) = part {
            alphabet.insert(*c);
        }
    }
    let mut known = BTreeSet::from([(0, 0)]);
    let mut open = vec![(0, 0)];
    while let Some((at, of)) = open.pop() {
        if (at, of) == (one.len(), other.len()) {
            return true;
        }
        for c in &alphabet {
            for next in after(&one, at, *c) {
                for pair in after(&other, of, *c).map(|beside| (next, beside)) {
                    if known.insert(pair) {
                        open.push(pair);
                    }
                }
            }
        }
    }
    false
}

impl Template {
    /// Returns true if a path may fit both templates, or if a version of one template may contain a
    /// version of the other.
    fn may_meet(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs
            .into_iter()
            .all(|(one, other)| have_common_name(one, other))
    }
}

/// Returns an error if two of the tiers may store versions under one path of a common slow root.
/// The later version would replace the earlier one there.
pub(super) fn check(tiers: &[ManagedTier]) -> Result<(), (&'static str, String)> {
    for (at, tier) in tiers.iter().enumerate() {
        for other in &tiers[..at] {
            let is_common = |root: &&super::RootName| other.slow_roots().any(|own| own == *root);
            let Some(root) = tier.slow_roots().find(is_common) else {
                continue;
            };
            let (Some(own), Some(others)) = (&tier.versions, &other.versions) else {
                continue;
            };
            if own.may_meet(others) {
                let cause = format!(
                    "the tiers {} and {} store versions in the root {root}, and their keys \
                     `versions` permit the same path; give each tier its own root, or begin the \
                     two values with different fixed names",
                    other.name, tier.name
                );
                return Err(("versions", cause));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Template;
    use crate::Config;

    fn may_meet(one: &str, other: &str) -> bool {
        let template = |text: &str| Template::try_from(text.to_owned()).expect("a good template");
        let (one, other) = (template(one), template(other));
        let meet = one.may_meet(&other);
        assert_eq!(meet, other.may_meet(&one), "the order does not matter");
        meet
    }

    #[test]
    fn templates_that_permit_a_common_path_meet() {
        for (one, other) in [
            ("{application}/{version}", "{application}/{version}"),
            ("{application}/{version}", "a-{application}/{version}"),
            // Both permit the name `57`.
            ("{application}/5{version}", "{application}/{version}7"),
            // Both permit the name `az`.
            ("a{application}/{version}", "{application}z/{version}"),
            // The version 5 of the application `a` may contain a version of the other template.
            ("{application}/{version}", "a/{application}/{version}"),
        ] {
            assert!(may_meet(one, other), "{one} and {other}");
        }
        for (one, other) in [
            ("a/{application}/{version}", "b/{application}/{version}"),
            ("{application}/v{version}", "{application}/{version}"),
            ("{application}/{version}.a", "{application}/{version}.b"),
            ("a-{application}/{version}", "b-{application}/{version}"),
            // A version is a number, so it is not the folder `run`.
            ("{application}/{version}", "{application}/run/{version}"),
        ] {
            assert!(!may_meet(one, other), "{one} and {other}");
        }
    }

    #[test]
    fn tiers_with_a_common_slow_root_need_separate_paths() {
        let parse = |slow: &str, versions: &str, replicas: &str| {
            let tier = |name: &str, slow: &str, versions: &str, more: &str| {
                format!(
                    "[[tier]]\nname = \"{name}\"\nfast = [\"{name}\"]\nslow = \"{slow}\"\n\
                     capacity = 1\nperiod = 1\nwrite_max = 1\nwrite_min = 1\nread_max = 1\n\
                     read_min = 1\nversions = \"{versions}\"\ncomplete = \"quiet:1\"\n\
                     owner = \"alice\"\n{more}\n"
                )
            };
            let roots = ["one", "two", "slow", "other"]
                .map(|root| format!("[[root]]\nname = \"{root}\"\npath = \"/{root}\"\n"));
            let text = format!(
                "name = \"a\"\nstate = \"/state\"\n{}{}{}",
                roots.concat(),
                tier("one", "slow", "{application}/{version}", ""),
                tier("two", slow, versions, replicas),
            );
            Config::parse("test", &text).map(drop)
        };
        let equal = "{application}/{version}";
        let refused = parse("slow", equal, "").expect_err("equal paths");
        let said = refused.to_string();
        assert!(said.contains("the tiers one and two"), "{said}");
        assert!(said.contains("the root slow"), "{said}");
        parse("slow", "{application}/v{version}", "").expect("separate paths");
        parse("other", equal, "").expect("separate roots");
        // A replica of the second tier would replace a slow copy of the first tier.
        parse("other", equal, "replicas = [\"slow\"]").expect_err("equal paths of a replica");
    }
}
