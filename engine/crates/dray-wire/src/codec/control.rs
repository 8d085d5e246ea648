//! Encodes and decodes control messages as frames.

use super::bytes::{Reader, put_flag, put_option, put_u8, put_u32, put_u64, refused};
use super::fields::{
    ENTRY_BYTES_MIN, ERROR_BYTES_MIN, RANGE_BYTES, put_entry, put_error, put_range, put_sums,
    read_entry, read_error, read_range, read_sums,
};
use super::layouts::{put_layout, read_layout};
use super::setup::{
    put_accept, put_connect, put_connect_extension, put_hello, put_ready, read_accept,
    read_connect, read_connect_extension, read_hello, read_ready,
};
use super::{OpenFrame, Prefix, frame_name, frame_type};
use crate::message::{BlockState, FileClosed, FileId, FileVerdict, Limits, Message, Totals};
use dray_core::profile::{Stage, Times};
use dray_core::time::nanos;
use dray_core::{BlockId, ByteRange, ErrorKind, FileIndex, Result, StreamId, TargetId};
use std::time::Duration;

/// Maximum number of stages. A stage number is one byte, and the number 0 is not used.
const STAGES_MAX: usize = 255;

/// Appends `message` to `out`, in as many frames as the agreed `limits` require, and returns the
/// number of frames. NEW_FILES, STRIPES, LIST_FAILED, DONE, FILE_IDS, CREDIT, BLOCK_SYNC, FILE_CLOSE
/// and STREAM_LOST may be split. Every other message is one frame.
///
/// # Errors
/// [`ErrorKind::LimitExceeded`] if a field is too long, or a part that cannot be split does not fit
/// in a frame. `out` is then unchanged. See [`crate::bounds::check_entry`].
pub fn encode(message: &Message, limits: &Limits, out: &mut Vec<u8>) -> Result<usize> {
    let start = out.len();
    let done = encode_frames(message, limits, out);
    if done.is_err() {
        out.truncate(start);
    }
    done
}

fn encode_frames(message: &Message, limits: &Limits, out: &mut Vec<u8>) -> Result<usize> {
    let plain = |_: &mut Vec<u8>| {};
    let number = number_of(message);
    match message {
        Message::NewFiles(entries) => split(number, limits, out, plain, entries, put_entry),
        Message::ListFailed(errors) => split(number, limits, out, plain, errors, |out, error| {
            put_error(out, error);
            Ok(())
        }),
        Message::Done { index, ranges } => {
            let head = |out: &mut Vec<u8>| put_u64(out, index.0);
            split(number, limits, out, head, ranges, |out, range| {
                put_range(out, range);
                Ok(())
            })
        }
        Message::FileIds(ids) => split(number, limits, out, plain, ids, put_file_id),
        Message::Stripes(steps) => split(number, limits, out, plain, steps, |out, step| {
            put_u64(out, step.0.0);
            put_u64(out, step.1);
            Ok(())
        }),
        Message::Credit(credits) => split(number, limits, out, plain, credits, |out, credit| {
            put_u32(out, credit.0.0);
            put_u32(out, credit.1);
            Ok(())
        }),
        Message::BlockSync(states) => split(number, limits, out, plain, states, |out, state| {
            put_u64(out, state.0.0);
            put_block_state(out, &state.1);
            Ok(())
        }),
        Message::FileClose(closed) => split(number, limits, out, plain, closed, |out, closed| {
            put_file_closed(out, closed);
            Ok(())
        }),
        Message::StreamLost { stream, blocks } => {
            let head = |out: &mut Vec<u8>| put_u32(out, stream.0);
            split(number, limits, out, head, blocks, |out, block| {
                put_u64(out, block.0);
                Ok(())
            })
        }
        single => {
            let mut frame = OpenFrame::begin(out, number);
            put_single(out, single)?;
            if let Message::Connect(connect) = single
                && put_connect_extension(out, connect)?
            {
                frame = frame.extended();
            }
            frame.seal(out, limits.control_bytes_max)?;
            Ok(1)
        }
    }
}

/// Writes `items` in as many frames as needed. Each frame has the fields of `head`, a count, and
/// that many items. If there are no items, writes one frame with the count 0.
fn split<T>(
    number: u8,
    limits: &Limits,
    out: &mut Vec<u8>,
    head: impl Fn(&mut Vec<u8>),
    items: &[T],
    mut put: impl FnMut(&mut Vec<u8>, &T) -> Result<()>,
) -> Result<usize> {
    let most = usize::try_from(limits.control_bytes_max).unwrap_or(usize::MAX);
    let mut rest = items;
    let mut frames = 0;
    loop {
        let frame = OpenFrame::begin(out, number);
        head(out);
        let count_at = out.len();
        put_u32(out, 0);
        let mut count = 0u32;
        while let Some((item, after)) = rest.split_first() {
            let item_at = out.len();
            put(out, item)?;
            if frame.body_bytes(out) > most && count > 0 {
                out.truncate(item_at);
                break;
            }
            count += 1;
            rest = after;
        }
        out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
        frame.seal(out, limits.control_bytes_max)?;
        frames += 1;
        if rest.is_empty() {
            return Ok(frames);
        }
    }
}

const fn number_of(message: &Message) -> u8 {
    match message {
        Message::Hello(_) => frame_type::HELLO,
        Message::Connect(_) => frame_type::CONNECT,
        Message::Accept(_) => frame_type::ACCEPT,
        Message::Refuse(_) => frame_type::REFUSE,
        Message::Ready(_) => frame_type::READY,
        Message::NewFiles(_) => frame_type::NEW_FILES,
        Message::ListFailed(_) => frame_type::LIST_FAILED,
        Message::ListEnd { .. } => frame_type::LIST_END,
        Message::Done { .. } => frame_type::DONE,
        Message::FileIds(_) => frame_type::FILE_IDS,
        Message::Credit(_) => frame_type::CREDIT,
        Message::BlockSync(_) => frame_type::BLOCK_SYNC,
        Message::FileClose(_) => frame_type::FILE_CLOSE,
        Message::FileAbort { .. } => frame_type::FILE_ABORT,
        Message::StreamLost { .. } => frame_type::STREAM_LOST,
        Message::Rate(_) => frame_type::RATE,
        Message::Ping(_) => frame_type::PING,
        Message::Pong(_) => frame_type::PONG,
        Message::Stall { .. } => frame_type::STALL,
        Message::GoAway(_) => frame_type::GO_AWAY,
        Message::Cancel { .. } => frame_type::CANCEL,
        Message::Profile(_) => frame_type::PROFILE,
        Message::Streams(_) => frame_type::STREAMS,
        Message::Stripes(_) => frame_type::STRIPES,
        Message::Verdict(_) => frame_type::VERDICT,
        Message::VerdictStored => frame_type::VERDICT_STORED,
        Message::Bye => frame_type::BYE,
    }
}

fn put_single(out: &mut Vec<u8>, message: &Message) -> Result<()> {
    match message {
        Message::Hello(hello) => return put_hello(out, hello),
        Message::Connect(connect) => return put_connect(out, connect),
        Message::Accept(accept) => return put_accept(out, accept),
        Message::Refuse(error) | Message::GoAway(error) => put_error(out, error),
        Message::Ready(ready) => put_ready(out, ready),
        Message::ListEnd { entries } => put_u64(out, *entries),
        Message::FileAbort { index, error } => {
            put_u64(out, index.0);
            put_error(out, error);
        }
        Message::Rate(rate) => put_option(out, rate.as_ref(), |out, rate| put_u64(out, *rate)),
        Message::Ping(value) | Message::Pong(value) => put_u64(out, *value),
        Message::Stall {
            target,
            milliseconds,
        } => {
            put_u32(out, target.0);
            put_u64(out, *milliseconds);
        }
        Message::Cancel { attempt, purge } => {
            put_u32(out, *attempt);
            put_flag(out, *purge);
        }
        Message::Profile(times) => put_times(out, times),
        Message::Streams(count) => put_u32(out, *count),
        Message::Verdict(totals) => put_totals(out, totals),
        Message::VerdictStored | Message::Bye => {}
        // These messages are lists, and `encode_frames` has already split them.
        Message::NewFiles(_)
        | Message::ListFailed(_)
        | Message::Done { .. }
        | Message::FileIds(_)
        | Message::Stripes(_)
        | Message::Credit(_)
        | Message::BlockSync(_)
        | Message::FileClose(_)
        | Message::StreamLost { .. } => {}
    }
    Ok(())
}

/// Decodes the body of a control frame. Returns `None` for a frame of an unknown type that may be
/// ignored.
///
/// # Errors
/// [`ErrorKind::Protocol`] if the checksum or a field is wrong; [`ErrorKind::LimitExceeded`] if a
/// field exceeds its limit. The cause contains the name of the field.
pub fn decode(prefix: &Prefix, body: &[u8], limits: &Limits) -> Result<Option<Message>> {
    prefix.check(body)?;
    if prefix.is_passed_over() {
        return Ok(None);
    }
    if body.len() as u64 > u64::from(limits.control_bytes_max) {
        let cause = format!("the body of {} bytes exceeds the limit", body.len());
        return Err(refused(
            ErrorKind::LimitExceeded,
            frame_name(prefix.frame_type),
            cause,
        ));
    }
    let mut reader = Reader::new(body, frame_name(prefix.frame_type));
    let mut message = read_message(prefix.frame_type, &mut reader)?;
    if let Message::Connect(connect) = &mut message
        && prefix.is_extended()
    {
        read_connect_extension(&mut reader, connect)?;
    }
    // HELLO comes before the version is agreed. So additional fields of a newer peer must not be an
    // error.
    reader.end(prefix.is_extended() || prefix.frame_type == frame_type::HELLO)?;
    Ok(Some(message))
}

fn read_message(number: u8, reader: &mut Reader<'_>) -> Result<Message> {
    // The length of the frame limits every list. See `Reader::list`.
    const FRAME: usize = usize::MAX;
    Ok(match number {
        frame_type::HELLO => Message::Hello(read_hello(reader)?),
        frame_type::CONNECT => Message::Connect(read_connect(reader)?),
        frame_type::ACCEPT => Message::Accept(read_accept(reader)?),
        frame_type::REFUSE => Message::Refuse(read_error(reader)?),
        frame_type::READY => Message::Ready(read_ready(reader)?),
        frame_type::NEW_FILES => {
            Message::NewFiles(reader.list("entries", FRAME, ENTRY_BYTES_MIN, read_entry)?)
        }
        frame_type::LIST_FAILED => {
            Message::ListFailed(reader.list("errors", FRAME, ERROR_BYTES_MIN, read_error)?)
        }
        frame_type::LIST_END => Message::ListEnd {
            entries: reader.u64("entries")?,
        },
        frame_type::DONE => read_done(reader)?,
        frame_type::FILE_IDS => Message::FileIds(reader.list("files", FRAME, 9, read_file_id)?),
        frame_type::CREDIT => Message::Credit(reader.list("credits", FRAME, 8, |reader| {
            Ok((
                TargetId(reader.u32("credit.target")?),
                reader.u32("credit.objects")?,
            ))
        })?),
        frame_type::BLOCK_SYNC => {
            Message::BlockSync(reader.list("blocks", FRAME, 9, |reader| {
                Ok((BlockId(reader.u64("block.id")?), read_block_state(reader)?))
            })?)
        }
        frame_type::FILE_CLOSE => {
            Message::FileClose(reader.list("files", FRAME, 25, read_file_closed)?)
        }
        frame_type::FILE_ABORT => Message::FileAbort {
            index: FileIndex(reader.u64("index")?),
            error: read_error(reader)?,
        },
        frame_type::STREAM_LOST => Message::StreamLost {
            stream: StreamId(reader.u32("stream")?),
            blocks: reader.list("blocks", FRAME, 8, |reader| {
                Ok(BlockId(reader.u64("block.id")?))
            })?,
        },
        frame_type::RATE => Message::Rate(reader.option("rate", |reader| reader.u64("rate"))?),
        frame_type::PING => Message::Ping(reader.u64("value")?),
        frame_type::PONG => Message::Pong(reader.u64("value")?),
        frame_type::STALL => Message::Stall {
            target: TargetId(reader.u32("target")?),
            milliseconds: reader.u64("milliseconds")?,
        },
        frame_type::GO_AWAY => Message::GoAway(read_error(reader)?),
        frame_type::CANCEL => Message::Cancel {
            attempt: reader.u32("attempt")?,
            purge: reader.flag("purge")?,
        },
        frame_type::PROFILE => Message::Profile(read_times(reader)?),
        frame_type::STREAMS => Message::Streams(reader.u32_above_zero("streams")?),
        frame_type::STRIPES => Message::Stripes(reader.list("files", FRAME, 16, |reader| {
            Ok((
                FileIndex(reader.u64("file.index")?),
                reader.u64_above_zero("file.step_bytes")?,
            ))
        })?),
        frame_type::VERDICT => Message::Verdict(read_totals(reader)?),
        frame_type::VERDICT_STORED => Message::VerdictStored,
        frame_type::BYE => Message::Bye,
        _ => return Err(reader.wrong("type", "this frame is not allowed on a control connection")),
    })
}

fn read_done(reader: &mut Reader<'_>) -> Result<Message> {
    let index = FileIndex(reader.u64("index")?);
    let mut end = 0;
    let ranges = reader.list("ranges", usize::MAX, RANGE_BYTES, |reader| {
        let range: ByteRange = read_range(reader, "range")?;
        if range.is_empty() || range.offset < end {
            let why = format_args!(
                "the range {range:?} is empty, or does not come after the previous range"
            );
            return Err(reader.wrong("range", why));
        }
        end = range.end();
        Ok(range)
    })?;
    Ok(Message::Done { index, ranges })
}

fn put_file_id(out: &mut Vec<u8>, id: &FileId) -> Result<()> {
    put_u64(out, id.index.0);
    match &id.verdict {
        FileVerdict::Want {
            object_bytes,
            layout,
        } => {
            put_u8(out, 1);
            put_u64(out, *object_bytes);
            return put_layout(out, layout);
        }
        FileVerdict::Adopted => put_u8(out, 2),
        FileVerdict::Skipped => put_u8(out, 3),
        FileVerdict::Failed(error) => {
            put_u8(out, 4);
            put_error(out, error);
        }
    }
    Ok(())
}

fn read_file_id(reader: &mut Reader<'_>) -> Result<FileId> {
    let index = FileIndex(reader.u64("file.index")?);
    let verdict = match reader.u8("file.verdict")? {
        1 => FileVerdict::Want {
            object_bytes: reader.u64_above_zero("file.object_bytes")?,
            layout: read_layout(reader)?,
        },
        2 => FileVerdict::Adopted,
        3 => FileVerdict::Skipped,
        4 => FileVerdict::Failed(read_error(reader)?),
        other => {
            return Err(reader.wrong(
                "file.verdict",
                format_args!(
                    "the value {other} is \
            unknown"
                ),
            ));
        }
    };
    Ok(FileId { index, verdict })
}

fn put_block_state(out: &mut Vec<u8>, state: &BlockState) {
    match state {
        BlockState::Written => put_u8(out, 1),
        BlockState::Durable => put_u8(out, 2),
        BlockState::Nack(error) => {
            put_u8(out, 3);
            put_error(out, error);
        }
        BlockState::Dropped => put_u8(out, 4),
    }
}

fn read_block_state(reader: &mut Reader<'_>) -> Result<BlockState> {
    Ok(match reader.u8("block.state")? {
        1 => BlockState::Written,
        2 => BlockState::Durable,
        3 => BlockState::Nack(read_error(reader)?),
        4 => BlockState::Dropped,
        other => {
            return Err(reader.wrong("block.state", format_args!("the value {other} is unknown")));
        }
    })
}

fn put_file_closed(out: &mut Vec<u8>, closed: &FileClosed) {
    put_u64(out, closed.index.0);
    match &closed.result {
        Ok(sums) => {
            put_u8(out, 1);
            put_sums(out, sums);
        }
        Err(error) => {
            put_u8(out, 2);
            put_error(out, error);
        }
    }
    put_u64(out, closed.bytes_resumed);
}

fn read_file_closed(reader: &mut Reader<'_>) -> Result<FileClosed> {
    let index = FileIndex(reader.u64("file.index")?);
    let result = match reader.u8("file.result")? {
        1 => Ok(read_sums(reader)?),
        2 => Err(read_error(reader)?),
        other => {
            return Err(reader.wrong("file.result", format_args!("the value {other} is unknown")));
        }
    };
    Ok(FileClosed {
        index,
        result,
        bytes_resumed: reader.u64("file.bytes_resumed")?,
    })
}

fn put_times(out: &mut Vec<u8>, times: &Times) {
    let count = times.iter().count();
    put_u32(out, u32::try_from(count).unwrap_or(u32::MAX));
    for (stage, time) in times.iter() {
        put_u8(out, stage.number());
        put_u64(out, nanos(time));
    }
}

fn read_times(reader: &mut Reader<'_>) -> Result<Times> {
    let mut times = Times::default();
    let mut before = 0;
    reader.list("times", STAGES_MAX, 9, |reader| {
        let number = reader.u8("time.stage")?;
        if number <= before {
            let why = format_args!(
                "the number {number} is not greater than the previous number {before}"
            );
            return Err(reader.wrong("time.stage", why));
        }
        before = number;
        let time = Duration::from_nanos(reader.u64("time.nanoseconds")?);
        // Ignore stages that only a later version defines.
        if let Some(stage) = Stage::from_number(number) {
            times.add(stage, time);
        }
        Ok(())
    })?;
    Ok(times)
}

fn put_totals(out: &mut Vec<u8>, totals: &Totals) {
    put_u64(out, totals.files);
    put_u64(out, totals.files_adopted);
    put_u64(out, totals.files_skipped);
    put_u64(out, totals.files_failed);
    put_u64(out, totals.others);
    put_u64(out, totals.bytes);
}

fn read_totals(reader: &mut Reader<'_>) -> Result<Totals> {
    Ok(Totals {
        files: reader.u64("files")?,
        files_adopted: reader.u64("files_adopted")?,
        files_skipped: reader.u64("files_skipped")?,
        files_failed: reader.u64("files_failed")?,
        others: reader.u64("others")?,
        bytes: reader.u64("bytes")?,
    })
}
