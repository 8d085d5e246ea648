//! Converts argument values from their names in Python.

use crate::error::usage;
use dray_core::options::{Durability, Links, Order, Overwrite, ResumeMode};
use dray_core::stripes::StripeError;
use dray_core::{Checksum, Result, StripeChoice};

fn choose<T: Copy>(name: &str, text: &str, choices: &[(&str, T)]) -> Result<T> {
    let found = choices.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let last = words.join(", ");
        usage(format!("{name}={text:?}"), format!("use one of {last}"))
    })
}

pub(crate) fn durability(text: &str) -> Result<Durability> {
    let choices = [
        ("none", Durability::None),
        ("file", Durability::File),
        ("object", Durability::Object),
    ];
    choose("durability", text, &choices)
}

pub(crate) fn resume(text: &str) -> Result<ResumeMode> {
    let choices = [("verify", ResumeMode::Verify), ("trust", ResumeMode::Trust)];
    choose("resume", text, &choices)
}

pub(crate) fn overwrite(text: &str) -> Result<Overwrite> {
    let choices = [
        ("never", Overwrite::Never),
        ("if-different", Overwrite::IfDifferent),
        ("always", Overwrite::Always),
    ];
    choose("overwrite", text, &choices)
}

pub(crate) fn links(text: &str) -> Result<Links> {
    let choices = [
        ("keep", Links::Keep),
        ("follow", Links::Follow),
        ("refuse", Links::Refuse),
    ];
    choose("links", text, &choices)
}

pub(crate) fn stripes(text: &str) -> Result<StripeChoice> {
    text.parse()
        .map_err(|why: StripeError| usage(format!("stripe={text:?}"), why.to_string()))
}

pub(crate) fn order(text: &str) -> Result<Order> {
    let seed = text.strip_prefix("random:").map(str::parse);
    match (text, seed) {
        ("layout", _) => Ok(Order::Layout),
        ("file", _) => Ok(Order::File),
        (_, Some(Ok(seed))) => Ok(Order::Random { seed }),
        _ => Err(usage(
            format!("order={text:?}"),
            "use `layout`, `file` or `random:SEED`, where SEED is an integer of at most 64 bits",
        )),
    }
}

pub(crate) fn checksum(text: &str) -> Result<Checksum> {
    Checksum::parse(text).ok_or_else(|| {
        usage(
            format!("checksum={text:?}"),
            "write the checksum as adler32:HHHHHHHH or crc32c:HHHHHHHH (hexadecimal)",
        )
    })
}
