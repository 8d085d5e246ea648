//! Reads and writes basic values: integers, flags, byte strings, counts.

use dray_core::{End, Error, ErrorKind, Result};

/// Reads values from the body of a frame. Every method takes the name of the field, which errors
/// contain.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    frame: &'static str,
}

/// Returns the error for a received frame that is not valid.
pub(super) fn refused(kind: ErrorKind, frame: &str, cause: String) -> Error {
    let remedy = match kind {
        ErrorKind::LimitExceeded => {
            "use a smaller object size, and the same version of dray at both ends"
        }
        _ => "check that the peer runs dray and that no device between the two hosts changes bytes",
    };
    Error::new(kind, End::Network, format!("read a {frame} frame"))
        .cause(cause)
        .remedy(remedy)
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8], frame: &'static str) -> Self {
        Self { bytes, frame }
    }

    pub(super) fn wrong(&self, field: &str, why: impl std::fmt::Display) -> Error {
        refused(
            ErrorKind::Protocol,
            self.frame,
            format!("field {field}: {why}"),
        )
    }

    pub(super) fn over(&self, field: &str, have: u64, most: u64) -> Error {
        let cause = format!("field {field}: {have} is over the limit of {most}");
        refused(ErrorKind::LimitExceeded, self.frame, cause)
    }

    pub(super) const fn remaining(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn take(&mut self, count: usize, field: &str) -> Result<&'a [u8]> {
        match self.bytes.split_at_checked(count) {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(taken)
            }
            None => Err(self.wrong(
                field,
                format_args!(
                    "the field needs {count} bytes, but the frame has {} bytes left",
                    self.bytes.len()
                ),
            )),
        }
    }

    pub(super) fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        match self.bytes.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(*taken)
            }
            None => Err(self.wrong(
                field,
                format_args!(
                    "the field needs {N} bytes, but the frame has {} bytes left",
                    self.bytes.len()
                ),
            )),
        }
    }

    pub(super) fn u8(&mut self, field: &str) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u16(&mut self, field: &str) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u32(&mut self, field: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u64(&mut self, field: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    pub(super) fn i64(&mut self, field: &str) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array(field)?))
    }

    /// Reads a u64 and rejects zero, because the field is a divisor, or because the transfer would
    /// make no progress with zero.
    pub(super) fn u64_above_zero(&mut self, field: &str) -> Result<u64> {
        match self.u64(field)? {
            0 => Err(self.wrong(field, "zero")),
            value => Ok(value),
        }
    }

    /// Reads a u32 and rejects zero. See [`Self::u64_above_zero`].
    pub(super) fn u32_above_zero(&mut self, field: &str) -> Result<u32> {
        match self.u32(field)? {
            0 => Err(self.wrong(field, "zero")),
            value => Ok(value),
        }
    }

    pub(super) fn flag(&mut self, field: &str) -> Result<bool> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.wrong(field, format_args!("the value {other} is neither 0 nor 1"))),
        }
    }

    /// Reads an optional value: a flag, and the value if the flag is 1.
    pub(super) fn option<T>(
        &mut self,
        field: &str,
        value: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.flag(field)? {
            value(self).map(Some)
        } else {
            Ok(None)
        }
    }

    pub(super) fn bytes(&mut self, field: &str, most: usize) -> Result<&'a [u8]> {
        let length = self.u32(field)?;
        let fits = usize::try_from(length)
            .ok()
            .filter(|length| *length <= most);
        match fits {
            Some(length) => self.take(length, field),
            None => Err(self.over(field, length.into(), most as u64)),
        }
    }

    pub(super) fn text(&mut self, field: &str, most: usize) -> Result<String> {
        let bytes = self.bytes(field, most)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(self.wrong(field, format_args!("not UTF-8: {error}"))),
        }
    }

    /// Reads a list with its count. The rest of the frame must have at least `item_bytes_min` bytes
    /// per item, so a false count cannot cause a large allocation.
    pub(super) fn list<T>(
        &mut self,
        field: &str,
        most: usize,
        item_bytes_min: usize,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let claimed = self.u32(field)?;
        let count = usize::try_from(claimed).unwrap_or(usize::MAX);
        if count > most {
            return Err(self.over(field, claimed.into(), most as u64));
        }
        let room = self.remaining() / item_bytes_min;
        if count > room {
            let why = format_args!(
                "the frame announces a list of {claimed} items, but has bytes for at most {room} \
                    items"
            );
            return Err(self.wrong(field, why));
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Ends the reading of the body. Unread bytes are an error unless `extended` is true.
    pub(super) fn end(self, extended: bool) -> Result<()> {
        if self.bytes.is_empty() || extended {
            return Ok(());
        }
        Err(self.wrong(
            "end",
            format_args!(
                "the frame has {} bytes after its last field",
                self.bytes.len()
            ),
        ))
    }
}

/// Returns the error for a message that cannot be encoded.
pub(super) fn unsendable(field: &str, have: u64, most: u64) -> Error {
    Error::new(
        ErrorKind::LimitExceeded,
        End::Here,
        "encode a message as a frame",
    )
    .cause(format!("{field}: {have} is over the limit of {most}"))
    .remedy("request fewer items at a time")
}

pub(super) fn put_u8(out: &mut Vec<u8>, value: u8) {
    out.push(value);
}

pub(super) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_flag(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

pub(super) fn put_option<T>(
    out: &mut Vec<u8>,
    value: Option<&T>,
    put: impl FnOnce(&mut Vec<u8>, &T),
) {
    put_flag(out, value.is_some());
    if let Some(value) = value {
        put(out, value);
    }
}

pub(super) fn put_bytes(out: &mut Vec<u8>, field: &str, bytes: &[u8], most: usize) -> Result<()> {
    match u32::try_from(bytes.len()) {
        Ok(length) if bytes.len() <= most => {
            put_u32(out, length);
            out.extend_from_slice(bytes);
            Ok(())
        }
        _ => Err(unsendable(field, bytes.len() as u64, most as u64)),
    }
}

/// Writes text for people. Text longer than `most` bytes is truncated at a character boundary.
pub(super) fn put_cut_text(out: &mut Vec<u8>, text: &str, most: usize) {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_u32(out, u32::try_from(end).unwrap_or(u32::MAX));
    out.extend_from_slice(&text.as_bytes()[..end]);
}

pub(super) fn put_list<T>(
    out: &mut Vec<u8>,
    field: &str,
    items: &[T],
    most: usize,
    mut put: impl FnMut(&mut Vec<u8>, &T) -> Result<()>,
) -> Result<()> {
    match u32::try_from(items.len()) {
        Ok(count) if items.len() <= most => put_u32(out, count),
        _ => return Err(unsendable(field, items.len() as u64, most as u64)),
    }
    items.iter().try_for_each(|item| put(out, item))
}
