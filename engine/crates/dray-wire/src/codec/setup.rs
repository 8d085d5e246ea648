//! Encodes and decodes the messages before the first file: HELLO, CONNECT, ACCEPT, READY.

use super::bytes::{
    Reader, put_bytes, put_cut_text, put_flag, put_list, put_option, put_u8, put_u16, put_u32,
    put_u64,
};
use super::fields::{
    put_checksum, put_limits, put_options, put_selection, read_checksum, read_limits, read_options,
    read_selection,
};
use crate::bounds;
use crate::message::{Accept, Connect, Hello, Ready, Role};
use dray_core::options::ResumeMode;
use dray_core::path::PATH_LENGTH_MAX;
use dray_core::stripes::CHOICE_BYTES_MAX;
use dray_core::{Result, StripeChoice, TraceContext, TransferId};

pub(super) fn put_hello(out: &mut Vec<u8>, hello: &Hello) -> Result<()> {
    put_u16(out, hello.versions.0);
    put_u16(out, hello.versions.1);
    put_u64(out, hello.mandatory);
    put_u64(out, hello.optional);
    put_limits(out, &hello.limits);
    put_bytes(out, "checksums", &hello.checksums, bounds::CHECKSUMS_MAX)?;
    put_cut_text(out, &hello.software, bounds::SOFTWARE_BYTES_MAX);
    put_bytes(out, "token", &hello.token, bounds::TOKEN_BYTES_MAX)
}

pub(super) fn read_hello(reader: &mut Reader<'_>) -> Result<Hello> {
    let versions = (
        reader.u16("versions.oldest")?,
        reader.u16("versions.newest")?,
    );
    if versions.0 > versions.1 {
        let why = format_args!(
            "the oldest version, {}, is newer than the newest version, {}",
            versions.0, versions.1
        );
        return Err(reader.wrong("versions", why));
    }
    Ok(Hello {
        versions,
        mandatory: reader.u64("mandatory")?,
        optional: reader.u64("optional")?,
        limits: read_limits(reader)?,
        checksums: reader.bytes("checksums", bounds::CHECKSUMS_MAX)?.to_vec(),
        software: reader.text("software", bounds::SOFTWARE_BYTES_MAX)?,
        token: reader.bytes("token", bounds::TOKEN_BYTES_MAX)?.to_vec(),
    })
}

fn put_addresses(out: &mut Vec<u8>, addresses: &[String]) -> Result<()> {
    put_list(
        out,
        "addresses",
        addresses,
        bounds::ADDRESSES_MAX,
        |out, address| {
            put_bytes(
                out,
                "address",
                address.as_bytes(),
                bounds::ADDRESS_BYTES_MAX,
            )
        },
    )
}

fn read_addresses(reader: &mut Reader<'_>) -> Result<Vec<String>> {
    reader.list("addresses", bounds::ADDRESSES_MAX, 4, |reader| {
        reader.text("address", bounds::ADDRESS_BYTES_MAX)
    })
}

pub(super) fn put_connect(out: &mut Vec<u8>, connect: &Connect) -> Result<()> {
    let transfer = connect.transfer.as_str().as_bytes();
    put_bytes(out, "transfer", transfer, TransferId::LENGTH_MAX)?;
    put_u32(out, connect.attempt);
    put_u8(
        out,
        match connect.passive_role {
            Role::Source => 0,
            Role::Sink => 1,
        },
    );
    put_list(
        out,
        "paths",
        &connect.paths,
        bounds::PATHS_MAX,
        |out, path| put_bytes(out, "path", path, PATH_LENGTH_MAX),
    )?;
    put_selection(out, &connect.selection)?;
    put_options(out, &connect.options);
    put_checksum(out, connect.demanded.as_ref());
    put_u16(out, connect.streams);
    put_flag(out, connect.clear_data);
    put_addresses(out, &connect.addresses)
}

pub(super) fn read_connect(reader: &mut Reader<'_>) -> Result<Connect> {
    let transfer = reader.text("transfer", TransferId::LENGTH_MAX)?;
    let transfer =
        TransferId::new(transfer).map_err(|error| reader.wrong("transfer", error.cause))?;
    let attempt = reader.u32("attempt")?;
    let passive_role = match reader.u8("passive_role")? {
        0 => Role::Source,
        1 => Role::Sink,
        other => {
            return Err(reader.wrong(
                "passive_role",
                format_args!(
                    "the value {other} is \
            unknown"
                ),
            ));
        }
    };
    Ok(Connect {
        transfer,
        attempt,
        passive_role,
        paths: reader.list("paths", bounds::PATHS_MAX, 4, |reader| {
            Ok(reader.bytes("path", PATH_LENGTH_MAX)?.to_vec())
        })?,
        selection: read_selection(reader)?,
        options: read_options(reader)?,
        demanded: read_checksum(reader)?,
        streams: reader.u16("streams")?,
        clear_data: reader.flag("clear_data")?,
        addresses: read_addresses(reader)?,
        trace: None,
    })
}

/// Writes the optional fields of CONNECT if one of them differs from its default. Returns true if
/// it wrote the fields.
///
/// # Errors
/// If a text is too long.
pub(super) fn put_connect_extension(out: &mut Vec<u8>, connect: &Connect) -> Result<bool> {
    let options = &connect.options;
    let is_usual = options.resume == ResumeMode::Verify && options.stripes.is_none();
    if is_usual && connect.trace.is_none() {
        return Ok(false);
    }
    put_u8(
        out,
        match options.resume {
            ResumeMode::Verify => 0,
            ResumeMode::Trust => 1,
        },
    );
    if options.stripes.is_some() || connect.trace.is_some() {
        let text = options.stripes.map(|stripes| stripes.to_string());
        let text = text.unwrap_or_default();
        put_bytes(out, "stripes", text.as_bytes(), CHOICE_BYTES_MAX)?;
    }
    if let Some(trace) = connect.trace {
        let text = trace.to_string();
        put_bytes(out, "trace", text.as_bytes(), bounds::TRACE_BYTES_MAX)?;
    }
    Ok(true)
}

/// Reads the fields that [`put_connect_extension`] wrote. Call it only for a CONNECT with
/// [`super::FLAG_EXTENDED`].
pub(super) fn read_connect_extension(reader: &mut Reader<'_>, connect: &mut Connect) -> Result<()> {
    connect.options.resume = match reader.u8("resume")? {
        0 => ResumeMode::Verify,
        1 => ResumeMode::Trust,
        other => return Err(reader.wrong("resume", format_args!("the value {other} is unknown"))),
    };
    // A peer that does not know `stripes` sends nothing after `resume`. An empty text means that
    // the option is absent and another field follows.
    if reader.remaining() > 0 {
        let text = reader.text("stripes", CHOICE_BYTES_MAX)?;
        if !text.is_empty() {
            let stripes = text.parse::<StripeChoice>();
            connect.options.stripes = Some(stripes.map_err(|why| reader.wrong("stripes", why))?);
        }
    }
    if reader.remaining() > 0 {
        // An invalid context is ignored, because a trace must not make a session fail.
        let text = reader.bytes("trace", bounds::TRACE_BYTES_MAX)?;
        connect.trace = str::from_utf8(text).ok().and_then(TraceContext::parse);
    }
    Ok(())
}

pub(super) fn put_accept(out: &mut Vec<u8>, accept: &Accept) -> Result<()> {
    out.extend_from_slice(&accept.ticket);
    out.extend_from_slice(&accept.key);
    put_addresses(out, &accept.addresses)?;
    put_u16(out, accept.streams);
    Ok(())
}

pub(super) fn read_accept(reader: &mut Reader<'_>) -> Result<Accept> {
    Ok(Accept {
        ticket: reader.array("ticket")?,
        key: reader.array("key")?,
        addresses: read_addresses(reader)?,
        streams: reader.u16("streams")?,
    })
}

pub(super) fn put_ready(out: &mut Vec<u8>, ready: &Ready) {
    put_u32(out, ready.precision_nanoseconds);
    put_u64(out, ready.object_bytes_max);
    put_u32(out, ready.live_entries_max);
    put_u64(out, ready.pack_bytes_max);
    put_flag(out, ready.holes);
    put_option(out, ready.ordered_window.as_ref(), |out, objects| {
        put_u32(out, *objects)
    });
}

pub(super) fn read_ready(reader: &mut Reader<'_>) -> Result<Ready> {
    Ok(Ready {
        precision_nanoseconds: reader.u32_above_zero("precision_nanoseconds")?,
        object_bytes_max: reader.u64_above_zero("object_bytes_max")?,
        live_entries_max: reader.u32_above_zero("live_entries_max")?,
        pack_bytes_max: reader.u64("pack_bytes_max")?,
        holes: reader.flag("holes")?,
        ordered_window: reader.option("ordered_window", |reader| {
            reader.u32_above_zero("ordered_window")
        })?,
    })
}
