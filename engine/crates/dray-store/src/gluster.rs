//! Places of GlusterFS files: the value of the virtual extended attribute `glusterfs.pathinfo`.
//!
//! GlusterFS answers with a text that nests the translators above the bricks, for example
//! `(<DISTRIBUTE:vol-dht> (<REPLICATE:vol-replicate-0> <POSIX(/b1):host1:/b1/f>
//! <POSIX(/b2):host2:/b2/f>))`. Each copy of the file has a `POSIX` item. The text has no escapes,
//! so a file name may imitate an item. In that case the parser finds several places and returns
//! none of them.
//!
//! The module does no I/O. The POSIX store reads the attribute.

/// Name of the virtual extended attribute. Any user may read it. The attribute
/// `trusted.glusterfs.pathinfo` has the same value, but only root may read it.
pub const PLACE_ATTRIBUTE: &str = "glusterfs.pathinfo";

/// Maximum size in bytes of the value; a longer value gives no place. A value names at most a few
/// bricks, each with the path of the file.
pub const PLACE_BYTES_MAX: usize = 64 * 1024;

/// Maximum length in bytes of the name of a target. A longer name gives no place.
const NAME_BYTES_MAX: usize = 512;

/// Maximum depth of nested translators. A deeper value gives no place.
const DEPTH_MAX: usize = 16;

/// Returns the name of the part of the volume that has the bytes of a file. For a distributed file,
/// the name is `HOST:BRICK`. If several bricks together have the bytes (copies or erasure coding),
/// the name is that of the group of these bricks, for example `vol-replicate-0`. Returns `None` if
/// `value` names no part or several parts.
#[must_use]
pub fn part_of(value: &[u8]) -> Option<String> {
    if value.len() > PLACE_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?;
    let mut found: Option<&str> = None;
    let mut groups: Vec<Option<&str>> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['(', ')', '<']) {
        let (mark, after) = (rest.as_bytes()[at], &rest[at + 1..]);
        rest = after;
        match mark {
            b'(' if groups.len() < DEPTH_MAX => groups.push(None),
            b'(' => return None,
            b')' => {
                groups.pop();
            }
            _ => {
                let (item, after) = item(rest)?;
                rest = after;
                let part = match item {
                    Item::Group(name) => {
                        if let Some(group) = groups.last_mut() {
                            *group = Some(name);
                        }
                        continue;
                    }
                    Item::Spread => continue,
                    Item::Brick(name) => {
                        groups.iter().rev().find_map(|group| *group).unwrap_or(name)
                    }
                };
                if found.is_some_and(|found| found != part) {
                    return None;
                }
                found = Some(part);
            }
        }
    }
    let found = found.filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX)?;
    let is_plain = |byte: u8| byte.is_ascii_graphic();
    found.bytes().all(is_plain).then(|| found.to_owned())
}

/// An item of the value, without its angle brackets.
enum Item<'a> {
    /// A translator whose bricks together have the bytes.
    Group(&'a str),
    /// A translator that stores each file on one of the translators below it.
    Spread,
    /// A brick, as `HOST:BRICK`.
    Brick(&'a str),
}

/// Reads the item at the start of `text`, and returns the text after it.
fn item(text: &str) -> Option<(Item<'_>, &str)> {
    let Some(posix) = text.strip_prefix("POSIX(") else {
        let (inner, after) = text.split_once('>')?;
        let (kind, name) = inner.split_once(':')?;
        let item = match kind {
            "DISTRIBUTE" => Item::Spread,
            _ => Item::Group(name),
        };
        return Some((item, after));
    };
    // `BRICK):HOST:BRICK/PATH>`. The brick is the path of a folder that the administrator chose.
    let (brick, place) = posix.split_once("):")?;
    let (host, path) = place.split_once(':')?;
    let file = path.strip_prefix(brick)?;
    let (_, after) = file.split_once('>')?;
    let name = place.get(..host.len() + 1 + brick.len())?;
    Some((Item::Brick(name), after))
}

#[cfg(test)]
mod tests {
    use super::part_of;
    use proptest::prelude::*;

    /// Values that GlusterFS 10.3 returned, with shortened paths.
    const DISTRIBUTED: &str = "(<DISTRIBUTE:dist-dht> <POSIX(/gl/b1):vm:/gl/b1/f1>)\0";
    const REPLICATED: &str = "(<DISTRIBUTE:rep-dht> (<REPLICATE:rep-replicate-1> \
        <POSIX(/gl/r3):vm:/gl/r3/f1> <POSIX(/gl/r4):vm:/gl/r4/f1>))\0";
    const FOLDER: &str = "((<DISTRIBUTE:dist-dht> <POSIX(/gl/b3):vm:/gl/b3/> \
        <POSIX(/gl/b1):vm:/gl/b1/> <POSIX(/gl/b2):vm:/gl/b2/>) (dist-dht-layout (dist-client-1 0 \
        1431655764) (dist-client-2 1431655765 2863311529) (dist-client-0 2863311530 4294967295)))";

    #[test]
    fn the_part_is_a_brick_or_a_group_of_bricks() {
        let part = |value: &str| part_of(value.as_bytes());
        assert_eq!(part(DISTRIBUTED).as_deref(), Some("vm:/gl/b1"));
        assert_eq!(part(REPLICATED).as_deref(), Some("rep-replicate-1"));
        let one = "(<REPLICATE:mirror-replicate-0> <POSIX(/a):n1:/a/f> <POSIX(/b):n2:/b/f>)";
        assert_eq!(part(one).as_deref(), Some("mirror-replicate-0"));
        let nested = "(<DISTRIBUTE:v-dht> (<EC:v-disperse-0> <POSIX(/a):n1:/a/f> <POSIX(/b):n2:/b/f> \
            <POSIX(/c):n3:/c/f>))";
        assert_eq!(part(nested).as_deref(), Some("v-disperse-0"));
        assert_eq!(part("<POSIX(/a):n1:/a/d/f>").as_deref(), Some("n1:/a"));
    }

    #[test]
    fn several_parts_or_damaged_values_have_no_part() {
        let part = |value: &str| part_of(value.as_bytes());
        assert_eq!(part(FOLDER), None);
        for value in [
            "",
            "(",
            "<POSIX(/a):n1",
            "<POSIX(/a):n1:/b/f>",
            "(<DISTRIBUTE:v-dht>)",
            "<REPLICATE",
        ] {
            assert_eq!(part(value), None, "{value}");
        }
        // The name of this file imitates a second brick.
        let name = "(<DISTRIBUTE:v-dht> <POSIX(/a):n1:/a/x> <POSIX(/e):evil:/e/y>)";
        assert_eq!(part(name), None);
        assert_eq!(part(&"(".repeat(1000)), None);
        assert_eq!(
            part(&format!("<POSIX(/{}):n1:/a/f>", "a".repeat(600))),
            None
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(value in "[(<POSIXREPLICATE:/ >)a]{0,80}") {
            let _ = part_of(value.as_bytes());
        }

        #[test]
        fn any_file_name_keeps_the_brick_or_loses_it(name in "[a-z()<>: ]{1,20}") {
            let value = format!("(<DISTRIBUTE:v-dht> <POSIX(/gl/b1):vm:/gl/b1/{name}>)");
            let part = part_of(value.as_bytes());
            prop_assert!(part.is_none() || part.as_deref() == Some("vm:/gl/b1"), "{:?}", part);
        }
    }
}
