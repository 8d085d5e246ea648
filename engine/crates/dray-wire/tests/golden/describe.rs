//! Converts messages to the JSON form of docs/design/wire-protocol.md.

use dray_core::options::{Durability, Links, Options, Order, Overwrite, ResumeMode};
use dray_core::path::escape;
use dray_core::profile::Stage;
use dray_core::{
    ByteRange, Checksum, End, Entry, EntryKind, Error, Layout, Status, Sums, TargetId,
};
use dray_wire::message::{
    BlockHead, BlockState, Connect, FileClosed, FileId, FileVerdict, Hello, Join, Limits, Message,
    Ready, Role, SegmentKind,
};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn list<T>(items: &[T], describe: impl Fn(&T) -> Value) -> Value {
    items.iter().map(describe).collect()
}

fn range(range: &ByteRange) -> Value {
    json!({"offset": range.offset, "length": range.length})
}

fn sums(sums: &Sums) -> Value {
    json!({
        "crc32c": format!("{:08x}", sums.crc32c),
        "adler32": format!("{:08x}", sums.adler32),
    })
}

fn error(error: &Error) -> Value {
    json!({
        "kind": error.kind.code(),
        "status": match error.status {
            Status::Permanent => "permanent",
            Status::Temporary => "temporary",
            Status::Exhausted => "exhausted",
        },
        "end": match error.end {
            End::Source => "source",
            End::Sink => "sink",
            End::Network => "network",
            End::Here => "here",
        },
        "file": error.file.as_ref().map(|path| escape(path.as_bytes())),
        "operation": error.operation,
        "cause": error.cause,
        "remedy": error.remedy,
    })
}

fn entry(entry: &Entry) -> Value {
    let mut value = json!({
        "index": entry.index.0,
        "parent": entry.parent.map(|parent| parent.0),
        "name": escape(entry.name.as_bytes()),
        "mode": entry.metadata.mode,
        "modified": {
            "seconds": entry.metadata.modified.seconds,
            "nanoseconds": entry.metadata.modified.nanoseconds,
        },
        "xattrs": list(&entry.metadata.xattrs, |(name, value)| {
            json!({"name": escape(name), "value": hex(value)})
        }),
    });
    match &entry.kind {
        EntryKind::File { size, sparse } => {
            value["kind"] = json!("file");
            value["size"] = json!(size);
            value["sparse"] = json!(sparse);
        }
        EntryKind::Directory => value["kind"] = json!("directory"),
        EntryKind::DirectoryEnd => value["kind"] = json!("directory_end"),
        EntryKind::Symlink { target } => {
            value["kind"] = json!("symlink");
            value["target"] = json!(escape(target));
        }
    }
    value
}

fn limits(limits: &Limits) -> Value {
    json!({
        "control_bytes_max": limits.control_bytes_max,
        "object_bytes_max": limits.object_bytes_max,
        "segments_max": limits.segments_max,
        "live_entries_max": limits.live_entries_max,
    })
}

fn hello(hello: &Hello) -> Value {
    json!({
        "versions": {"oldest": hello.versions.0, "newest": hello.versions.1},
        "mandatory": hello.mandatory,
        "optional": hello.optional,
        "limits": limits(&hello.limits),
        "checksums": hello.checksums,
        "software": hello.software,
        "token": hex(&hello.token),
    })
}

fn options(options: &Options) -> Value {
    json!({
        "durability": match options.durability {
            Durability::None => "none",
            Durability::File => "file",
            Durability::Object => "object",
        },
        "overwrite": match options.overwrite {
            Overwrite::Never => "never",
            Overwrite::IfDifferent => "if-different",
            Overwrite::Always => "always",
        },
        "order": match options.order {
            Order::Layout => json!("layout"),
            Order::File => json!("file"),
            Order::Random { seed } => json!({"random": seed}),
        },
        "object_bytes": options.object_bytes,
        "verify": options.verify,
        "xattrs": options.xattrs,
        "checksum_attributes": options.checksum_attributes,
        "rate": options.rate,
    })
}

fn connect(connect: &Connect) -> Value {
    let selection = &connect.selection;
    json!({
        "transfer": connect.transfer.as_str(),
        "attempt": connect.attempt,
        "passive_role": match connect.passive_role {
            Role::Source => "source",
            Role::Sink => "sink",
        },
        "paths": list(&connect.paths, |path| json!(escape(path))),
        "selection": {
            "recursive": selection.recursive,
            "include": selection.include,
            "exclude": selection.exclude,
            "range": selection.range.as_ref().map(range),
            "size": selection.size,
            "rename": selection.rename.as_ref().map(|name| escape(name.as_bytes())),
            "links": match selection.links {
                Links::Keep => "keep",
                Links::Follow => "follow",
                Links::Refuse => "refuse",
            },
        },
        "options": options(&connect.options),
        "demanded": connect.demanded.as_ref().map(Checksum::to_string),
        "streams": connect.streams,
        "clear_data": connect.clear_data,
        "addresses": connect.addresses,
        "resume": match connect.options.resume {
            ResumeMode::Verify => "verify",
            ResumeMode::Trust => "trust",
        },
        "stripes": connect.options.stripes.map(|stripes| stripes.to_string()),
        "trace": connect.trace.map(|trace| trace.to_string()),
    })
}

fn ready(ready: &Ready) -> Value {
    json!({
        "precision_nanoseconds": ready.precision_nanoseconds,
        "object_bytes_max": ready.object_bytes_max,
        "live_entries_max": ready.live_entries_max,
        "pack_bytes_max": ready.pack_bytes_max,
        "holes": ready.holes,
        "ordered_window": ready.ordered_window,
    })
}

fn layout_of(layout: &Layout) -> Value {
    let targets = |targets: &[TargetId]| list(targets, |target| json!(target.0));
    match layout {
        Layout::Single(target) => json!({"single": target.0}),
        Layout::Striped {
            stripe_bytes,
            targets: all,
        } => json!({"stripe_bytes": stripe_bytes, "targets": targets(all)}),
        Layout::Table(table) => json!({
            "stripe_bytes": table.stripe_bytes(),
            "targets": targets(table.targets()),
            "stripes": table.stripes(),
        }),
        Layout::Composite(extents) => json!({"extents": list(extents, |extent| json!({
            "end": extent.end,
            "stripe_bytes": extent.stripe_bytes,
            "targets": targets(&extent.targets),
        }))}),
    }
}

fn file_id(id: &FileId) -> Value {
    match &id.verdict {
        FileVerdict::Want {
            object_bytes,
            layout,
        } => json!({
            "index": id.index.0,
            "verdict": "want",
            "object_bytes": object_bytes,
            "layout": layout_of(layout),
        }),
        FileVerdict::Adopted => json!({"index": id.index.0, "verdict": "adopted"}),
        FileVerdict::Skipped => json!({"index": id.index.0, "verdict": "skipped"}),
        FileVerdict::Failed(why) => {
            json!({"index": id.index.0, "verdict": "failed", "error": error(why)})
        }
    }
}

fn block_state(state: &BlockState) -> Value {
    match state {
        BlockState::Written => json!({"state": "written"}),
        BlockState::Durable => json!({"state": "durable"}),
        BlockState::Nack(why) => json!({"state": "nack", "error": error(why)}),
        BlockState::Dropped => json!({"state": "dropped"}),
    }
}

fn file_closed(closed: &FileClosed) -> Value {
    let mut value = json!({"index": closed.index.0, "bytes_resumed": closed.bytes_resumed});
    match &closed.result {
        Ok(of_all) => value["sums"] = sums(of_all),
        Err(why) => value["error"] = error(why),
    }
    value
}

pub(crate) fn message(message: &Message) -> Value {
    match message {
        Message::Hello(body) => hello(body),
        Message::Connect(body) => connect(body),
        Message::Accept(accept) => json!({
            "ticket": hex(&accept.ticket),
            "key": hex(&accept.key),
            "addresses": accept.addresses,
            "streams": accept.streams,
        }),
        Message::Refuse(why) | Message::GoAway(why) => json!({"error": error(why)}),
        Message::Ready(body) => ready(body),
        Message::Stripes(steps) => json!({"files": list(steps, |(index, step)| json!({
            "index": index.0,
            "step_bytes": step,
        }))}),
        Message::NewFiles(entries) => json!({"entries": list(entries, entry)}),
        Message::ListFailed(errors) => json!({"errors": list(errors, error)}),
        Message::ListEnd { entries } => json!({"entries": entries}),
        Message::Done { index, ranges } => {
            json!({"index": index.0, "ranges": list(ranges, range)})
        }
        Message::FileIds(ids) => json!({"files": list(ids, file_id)}),
        Message::Credit(credits) => json!({
            "credits": list(credits, |(target, objects)| {
                json!({"target": target.0, "objects": objects})
            }),
        }),
        Message::BlockSync(states) => json!({
            "blocks": list(states, |(id, state)| {
                let mut value = block_state(state);
                value["id"] = json!(id.0);
                value
            }),
        }),
        Message::FileClose(closed) => json!({"files": list(closed, file_closed)}),
        Message::FileAbort { index, error: why } => {
            json!({"index": index.0, "error": error(why)})
        }
        Message::StreamLost { stream, blocks } => {
            json!({"stream": stream.0, "blocks": list(blocks, |block| json!(block.0))})
        }
        Message::Rate(rate) => json!({"rate": rate}),
        Message::Ping(value) | Message::Pong(value) => json!({"value": value}),
        Message::Stall {
            target,
            milliseconds,
        } => {
            json!({"target": target.0, "milliseconds": milliseconds})
        }
        Message::Cancel { attempt, purge } => json!({"attempt": attempt, "purge": purge}),
        Message::Profile(times) => {
            let time = |(stage, time): &(Stage, Duration)| {
                let nanoseconds = u64::try_from(time.as_nanos()).expect("it came as 64 bits");
                json!({"stage": stage.name(), "nanoseconds": nanoseconds})
            };
            let times: Vec<_> = times.iter().collect();
            json!({"times": list(&times, time)})
        }
        Message::Streams(count) => json!({"streams": count}),
        Message::Verdict(totals) => json!({
            "files": totals.files,
            "files_adopted": totals.files_adopted,
            "files_skipped": totals.files_skipped,
            "files_failed": totals.files_failed,
            "others": totals.others,
            "bytes": totals.bytes,
        }),
        Message::VerdictStored | Message::Bye => json!({}),
    }
}

pub(crate) fn block_head(head: &BlockHead) -> Value {
    json!({
        "id": head.id.0,
        "target": head.target.0,
        "segments": list(&head.segments, |segment| {
            let mut value = json!({"file": segment.file.0, "range": range(&segment.range)});
            match &segment.kind {
                SegmentKind::Data(of_bytes) => {
                    value["kind"] = json!("data");
                    value["sums"] = sums(of_bytes);
                }
                SegmentKind::Hole => value["kind"] = json!("hole"),
            }
            value
        }),
    })
}

pub(crate) fn join(join: &Join) -> Value {
    json!({
        "ticket": hex(&join.ticket),
        "stream": join.stream.0,
        "proof": hex(&join.proof),
    })
}
