//! Values of options that are one of several words, and their conversion to the options of a copy.

use clap::ValueEnum;
use dray_core::options;

/// Values of `--links`. See [`options::Links`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Links {
    Keep,
    Follow,
    Refuse,
}

/// Values of `--overwrite`. See [`options::Overwrite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Overwrite {
    Never,
    IfDifferent,
    Always,
}

/// Values of `cp --resume`. See [`options::ResumeMode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Resume {
    Verify,
    Trust,
}

impl From<Resume> for options::ResumeMode {
    fn from(resume: Resume) -> Self {
        match resume {
            Resume::Verify => Self::Verify,
            Resume::Trust => Self::Trust,
        }
    }
}

/// Values of `cp --reflink`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reflink {
    Auto,
    Never,
}

/// Values of `--durability`. See [`options::Durability`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    None,
    File,
    Object,
}

/// Values of `--progress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Show {
    Auto,
    Bar,
    Lines,
    Json,
    None,
}

impl From<Links> for options::Links {
    fn from(links: Links) -> Self {
        match links {
            Links::Keep => Self::Keep,
            Links::Follow => Self::Follow,
            Links::Refuse => Self::Refuse,
        }
    }
}

impl From<Overwrite> for options::Overwrite {
    fn from(overwrite: Overwrite) -> Self {
        match overwrite {
            Overwrite::Never => Self::Never,
            Overwrite::IfDifferent => Self::IfDifferent,
            Overwrite::Always => Self::Always,
        }
    }
}

impl From<Durability> for options::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::None => Self::None,
            Durability::File => Self::File,
            Durability::Object => Self::Object,
        }
    }
}
