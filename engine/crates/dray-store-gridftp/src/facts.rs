//! Answers of MLST and lines of MLSD (RFC 3659, section 7).

use dray_core::{ModifiedTime, utc};

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
    /// The listed folder itself, or its parent folder.
    Dot,
    /// A pipe, a device, or another entry without content.
    Special,
}

/// Facts about an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    /// `None` if the server does not send the time.
    pub(crate) modified: Option<ModifiedTime>,
    /// Text that differs for different files, such as the inode; empty if the server sends none.
    pub(crate) unique: Vec<u8>,
    /// True if the entry is a symbolic link. The other facts are those of its target.
    pub(crate) is_link: bool,
}

/// Parses `fact=value;fact=value; NAME`. Returns `None` if the line is malformed.
pub(crate) fn parse(line: &[u8]) -> Option<(Facts, &[u8])> {
    let space = separator(line)?;
    let (facts, name) = (&line[..space], &line[space + 1..]);
    let (mut kind, mut size, mut modified) = (None, None, None);
    let (mut unique, mut is_link) = (Vec::new(), false);
    for fact in facts.split(|byte| *byte == b';') {
        let Some(equals) = fact.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let (key, value) = (&fact[..equals], &fact[equals + 1..]);
        let text = std::str::from_utf8(value);
        match key.to_ascii_lowercase().as_slice() {
            b"type" => kind = Some(kind_of(value)),
            b"size" => size = Some(text.ok()?.parse().ok()?),
            b"modify" => modified = Some(time(text.ok()?)?),
            b"unique" => unique = value.to_vec(),
            b"unix.slink" => is_link = true,
            _ => {}
        }
    }
    let facts = Facts {
        kind: kind?,
        size: match kind? {
            Kind::File => size?,
            _ => 0,
        },
        modified,
        unique,
        is_link,
    };
    Some((facts, name))
}

/// Returns the position of the space before the name. Every fact ends with a semicolon. One of the
/// facts is the target of a link, which may contain spaces. So the name begins after the first space
/// that follows a semicolon.
fn separator(line: &[u8]) -> Option<usize> {
    let first = line.iter().position(|byte| *byte == b' ')?;
    if line.get(first.checked_sub(1)?) == Some(&b';') {
        return Some(first);
    }
    let ends = line.windows(2).position(|pair| pair == b"; ")?;
    Some(ends + 1)
}

fn kind_of(value: &[u8]) -> Kind {
    match value.to_ascii_lowercase().as_slice() {
        b"file" => Kind::File,
        b"dir" => Kind::Folder,
        b"cdir" | b"pdir" => Kind::Dot,
        _ => Kind::Special,
    }
}

/// Parses `YYYYMMDDHHMMSS`, with an optional fraction of a second.
fn time(text: &str) -> Option<ModifiedTime> {
    let part = |from: usize, to: usize| text.get(from..to);
    let rest = text.get(14..)?;
    let text = format!(
        "{}-{}-{}T{}:{}:{}{rest}Z",
        part(0, 4)?,
        part(4, 6)?,
        part(6, 8)?,
        part(8, 10)?,
        part(10, 12)?,
        part(12, 14)?
    );
    let ms = utc::parse(&text)?;
    Some(ModifiedTime {
        seconds: ms.div_euclid(1000),
        nanoseconds: u32::try_from(ms.rem_euclid(1000)).ok()? * 1_000_000,
    })
}

#[cfg(test)]
mod tests {
    use super::{Kind, parse};

    #[test]
    fn a_line_of_a_globus_server_is_read() {
        let line = b"Type=file;Modify=20261127184901;Size=3;Perm=r;UNIX.mode=0644;\
            UNIX.owner=root;Unique=fe00-9880a9;  a b%20c";
        let (facts, name) = parse(line).expect("facts");
        assert_eq!(name, b" a b%20c");
        assert_eq!((facts.kind, facts.size), (Kind::File, 3));
        assert_eq!(facts.modified.expect("a time").seconds, 1_795_805_341);
        assert_eq!(facts.unique, b"fe00-9880a9");
        assert!(!facts.is_link);
    }

    #[test]
    fn links_folders_and_special_files_are_recognised() {
        let link = b"type=dir;size=4096;UNIX.slink=/data/a b/sub; ln";
        let (facts, name) = parse(link).expect("facts");
        assert!(facts.is_link && facts.kind == Kind::Folder && facts.size == 0);
        assert_eq!(name, b"ln");
        let kind = |line: &[u8]| parse(line).map(|(facts, _)| facts.kind);
        assert_eq!(kind(b"Type=cdir; ."), Some(Kind::Dot));
        assert_eq!(kind(b"Type=OS.unix=pipe;Size=0; p"), Some(Kind::Special));
    }

    #[test]
    fn malformed_lines_are_refused() {
        for line in [
            &b""[..],
            b"line",
            b"Type=file;Modify=20261127184901; no size",
            b"Type=file;Size=-1; f",
            b"Type=file;Size=1;Modify=2026; f",
            b"Type=file;Size=1;Modify=20261327184901; f",
            b"Size=1; f",
            b" f",
        ] {
            assert_eq!(parse(line), None, "{}", String::from_utf8_lossy(line));
        }
        let time = parse(b"Type=file;Size=1;Modify=20261127184901.250; f").expect("facts");
        assert_eq!(time.0.modified.expect("a time").nanoseconds, 250_000_000);
    }
}
