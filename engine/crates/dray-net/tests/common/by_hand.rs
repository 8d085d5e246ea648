//! Connections that a test builds byte for byte, without the code of `dray-net`.

use super::{PATIENCE, Site, TOKEN};
use dray_core::StreamId;
use dray_net::{Trust, client_config};
use dray_wire::codec::{
    CHALLENGE_FRAME_BYTES, Connection, Decoder, Preamble, Security, decode_challenge, encode,
    encode_join,
};
use dray_wire::message::{Accept, Connect, Hello, Join, Limits, Message};
use dray_wire::negotiate::proof_input;
use ring::hmac;
use rustls::pki_types::ServerName;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Opens a TLS connection and sends its preamble. The test sends all other bytes.
pub fn tls(
    site: &Site,
    connection: Connection,
) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    let mut socket = TcpStream::connect(site.address).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let preamble = Preamble {
        connection,
        security: Security::Tls,
    };
    socket.write_all(&preamble.to_bytes()).expect("sent");
    let (config, _) = client_config(&Trust::Key(site.pin), None).expect("a configuration");
    let name = ServerName::try_from("dray").expect("a name");
    let tls = rustls::ClientConnection::new(config, name).expect("a connection");
    rustls::StreamOwned::new(tls, socket)
}

pub fn hello() -> Hello {
    Hello {
        versions: (1, 1),
        mandatory: 0,
        optional: u64::MAX,
        limits: Limits::default(),
        checksums: vec![1],
        software: "dray test".to_owned(),
        token: TOKEN.to_vec(),
    }
}

pub fn frames(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &Limits::default(), &mut bytes).expect("encoded");
    bytes
}

pub fn answers(stream: &mut impl Read) -> Vec<Message> {
    let mut decoder = Decoder::new(Limits::default());
    let mut messages = Vec::new();
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut bytes) {
        let mut input = &bytes[..read];
        while let Ok(Some(message)) = decoder.next(&mut input) {
            messages.push(message);
        }
    }
    messages
}

/// Begins a session on this connection and returns the ACCEPT message. The caller must keep the
/// connection open.
pub fn accepted(
    stream: &mut rustls::StreamOwned<rustls::ClientConnection, TcpStream>,
    wanted: &Connect,
) -> Accept {
    for message in [Message::Hello(hello()), Message::Connect(wanted.clone())] {
        stream.write_all(&frames(&message)).expect("sent");
    }
    let mut decoder = Decoder::new(Limits::default());
    let mut bytes = [0; 4096];
    loop {
        let read = stream.read(&mut bytes).expect("an answer");
        let mut input = &bytes[..read];
        while let Some(message) = decoder.next(&mut input).expect("a message") {
            if let Message::Accept(accept) = message {
                return accept;
            }
        }
    }
}

/// Joins a session with a clear stream. Returns the connection if the listener keeps the stream
/// open.
pub fn joins(site: &Site, ticket: [u8; 16], key: [u8; 32], stream: StreamId) -> Option<TcpStream> {
    let mut socket = raw(site, b"DRAY\x02\x01\x00\x00");
    let mut frame = [0; CHALLENGE_FRAME_BYTES];
    socket.read_exact(&mut frame).expect("a challenge");
    let challenge = decode_challenge(&frame).expect("a challenge");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let proof = hmac::sign(&key, &proof_input(&ticket, stream, &challenge.0));
    let join = Join {
        ticket,
        stream,
        proof: proof.as_ref().try_into().expect("32 bytes"),
    };
    socket.write_all(&encode_join(&join)).expect("sent");
    // The listener sends nothing on an open stream.
    let wait = Some(Duration::from_millis(500));
    socket.set_read_timeout(wait).expect("set");
    socket
        .read(&mut [0; 1])
        .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        .then_some(socket)
}

pub fn raw(site: &Site, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(site.address).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    socket.write_all(bytes).expect("sent");
    socket
}
