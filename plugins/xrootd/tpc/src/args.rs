//! Command line that the server uses: `[--config FILE] [-C NAME] [-S N] SOURCE DESTINATION`.

use dray_core::{End, Error, ErrorKind, Result};
use dray_store_xrootd::Url;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Arguments of the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Args {
    /// Path of the configuration file, if given.
    pub(crate) config: Option<PathBuf>,
    /// Number of data connections that the client requests.
    pub(crate) streams: Option<u32>,
    /// URL of the source.
    pub(crate) source: Url,
    /// Path of the destination file on this host.
    pub(crate) destination: PathBuf,
}

fn usage(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run the command")
        .cause(cause)
        .remedy(
            "let the XRootD server start this program: write `ofs.tpc ... pgm dray-xrootd-tpc \
             [--config FILE]` in the server's configuration",
        )
}

impl Args {
    /// Parses the arguments.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] with the reason.
    pub(crate) fn read(words: impl Iterator<Item = OsString>) -> Result<Self> {
        let mut words = words.peekable();
        let (mut config, mut streams) = (None, None);
        while let Some(word) = words.next_if(|word| word.to_string_lossy().starts_with('-')) {
            let value = words.next();
            let value = value.ok_or_else(|| usage(format!("the option {word:?} has no value")))?;
            match word.to_str() {
                Some("--config") => config = Some(value.into()),
                // Ignore the name of a checksum. Both checksums are always computed, because two
                // cost no more than one.
                Some("-C") => {}
                Some("-S") => {
                    let number = value.to_str().and_then(|text| text.parse().ok());
                    streams = Some(number.ok_or_else(|| usage("-S takes a number"))?);
                }
                _ => return Err(usage(format!("the option {word:?} is unknown"))),
            }
        }
        let (Some(source), Some(destination), None) = (words.next(), words.next(), words.next())
        else {
            return Err(usage("the command needs one source and one destination"));
        };
        Ok(Self {
            config,
            streams,
            source: Url::read(source.as_bytes())?,
            destination: destination.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Args;
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::Path;

    fn read(words: &[&str]) -> dray_core::Result<Args> {
        Args::read(words.iter().map(OsString::from))
    }

    #[test]
    fn arguments_of_a_server_are_parsed() {
        let url = "xroot://[::ffff:127.0.0.1]:18201//f8m?&tpc.key=29&tpc.org=root.1@here";
        let args = read(&["-C", "adler32", "-S", "3", url, "/data/f8m"]).expect("good");
        assert_eq!(args.streams, Some(3));
        assert_eq!(args.source.path().as_bytes(), b"f8m");
        assert_eq!(args.destination, Path::new("/data/f8m"));
        let args = read(&["--config", "/etc/d.toml", "root://h//a", "/b"]).expect("good");
        assert_eq!(args.config.as_deref(), Some(Path::new("/etc/d.toml")));
    }

    #[test]
    fn names_may_be_of_any_bytes() {
        let words = [&b"root://h//\xff?tpc.key=1"[..], b"/b\xfe"];
        let words = words.map(|word| OsString::from_vec(word.to_vec()));
        let args = Args::read(words.into_iter()).expect("good");
        assert_eq!(args.source.path().as_bytes(), b"\xff");
        assert_eq!(args.destination.as_os_str().as_bytes(), b"/b\xfe");
    }

    #[test]
    fn anything_else_is_refused() {
        for words in [
            &["root://h//a"][..],
            &["root://h//a", "/b", "/c"],
            &["-S", "x", "root://h//a", "/b"],
            &["-Z", "x", "root://h//a", "/b"],
            &["http://h//a", "/b"],
            &["-S"],
        ] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
