//! The smallest possible copy between two processes, with one thread at each end and one
//! connection. The source reads, computes checksums and sends. The sink receives, computes
//! checksums and writes. The program keeps no state for a retry, syncs nothing, and creates each
//! file with its final name.
//!
//! ```text
//! by_hand sink ADDRESS:PORT FOLDER
//! by_hand source ADDRESS:PORT FOLDER
//! ```
//!
//! The source prints a JSON object with the fraction of time that each end spent on checksums.
//!
//! `integration/bench` compares dray and other tools with this program. The difference between
//! dray's results and those of this program is dray's overhead.
#![expect(clippy::print_stderr, clippy::print_stdout, reason = "a program")]

use dray_core::checksum::{Summer, Sums};
use serde_json::json;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Number of bytes that are read and summed in one step, as in dray. They stay in the processor's
/// cache.
const PIECE_BYTES: usize = 256 << 10;

/// Length in bytes of the header before each file: the length of its path, and its size.
const HEAD_BYTES: usize = 12;

/// Maximum length of a path in bytes: `PATH_MAX` of the kernel.
const PATH_MAX: usize = 4096;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sink", address, folder] => sink(address, Path::new(folder)),
        ["source", address, folder] => source(address, Path::new(folder)),
        _ => Err(io::Error::other("sink|source ADDRESS:PORT FOLDER")),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("by_hand: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Computes checksums and measures the time for them.
struct Watch {
    began: Instant,
    summed: Duration,
}

impl Watch {
    fn start() -> Self {
        Self {
            began: Instant::now(),
            summed: Duration::ZERO,
        }
    }

    fn sum(&mut self, summer: &mut Summer, bytes: &[u8]) {
        let began = Instant::now();
        summer.update(bytes);
        self.summed += began.elapsed();
    }

    fn share(&self) -> f64 {
        self.summed.as_secs_f64() / self.began.elapsed().as_secs_f64()
    }
}

fn source(address: &str, top: &Path) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let mut watch = Watch::start();
    prepare(&stream)?;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(top.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            match entry.file_type()? {
                kind if kind.is_dir() => folders.push(path),
                kind if kind.is_file() => send(&mut stream, top, &path, &mut buffer, &mut watch)?,
                _ => {
                    let what = format!("{}: neither a file nor a folder", path.display());
                    return Err(io::Error::other(what));
                }
            }
        }
    }
    stream.shutdown(Shutdown::Write)?;
    // After the last write, the sink sends the fraction of its time that it has spent on checksums.
    // If the checksums differ, the sink sends nothing.
    let mut said = [0; 8];
    stream.read_exact(&mut said).map_err(|error| {
        let what = format!("the sink has not confirmed ({error}); it says why itself");
        io::Error::other(what)
    })?;
    let shares = json!({"source": watch.share(), "sink": f64::from_le_bytes(said)});
    println!("{}", json!({ "summing": shares }));
    Ok(())
}

fn send(
    stream: &mut TcpStream,
    top: &Path,
    path: &Path,
    buffer: &mut [u8],
    watch: &mut Watch,
) -> io::Result<()> {
    let mut file = File::open(top.join(path))?;
    let size = file.metadata()?.len();
    let name = path.as_os_str().as_bytes();
    let length = u32::try_from(name.len()).map_err(io::Error::other)?;
    let head = [&length.to_le_bytes()[..], &size.to_le_bytes(), name].concat();
    stream.write_all(&head)?;
    let mut summer = Summer::new();
    let mut left = size;
    while left > 0 {
        let most = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let piece = match file.read(&mut buffer[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => &buffer[..read],
        };
        watch.sum(&mut summer, piece);
        stream.write_all(piece)?;
        left -= piece.len() as u64;
    }
    stream.write_all(&bytes_of(summer.finish()))
}

fn sink(address: &str, top: &Path) -> io::Result<()> {
    let (stream, _) = TcpListener::bind(address)?.accept()?;
    prepare(&stream)?;
    let mut answer = stream.try_clone()?;
    let mut stream = BufReader::with_capacity(1 << 10, stream);
    let mut buffer = vec![0; PIECE_BYTES];
    let mut head = [0; HEAD_BYTES];
    let mut watch = Watch::start();
    while fill(&mut stream, &mut head)? {
        let [a, b, c, d, size @ ..] = head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > PATH_MAX {
            return Err(io::Error::other("a path that is too long"));
        }
        let mut name = vec![0; length];
        stream.read_exact(&mut name)?;
        let path = top.join(OsStr::from_bytes(&name));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let size = u64::from_le_bytes(size);
        if !receive(&mut stream, &path, size, &mut buffer, &mut watch)? {
            return Err(io::Error::other("the sums differ"));
        }
    }
    answer.write_all(&watch.share().to_le_bytes())
}

/// Receives one file. Returns true if the checksums of the received bytes equal the checksums that
/// the source sent.
fn receive(
    stream: &mut impl Read,
    path: &Path,
    size: u64,
    buffer: &mut [u8],
    watch: &mut Watch,
) -> io::Result<bool> {
    let mut file = File::create_new(path)?;
    let mut summer = Summer::new();
    let mut left = size;
    while left > 0 {
        let most = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let mut filled = 0;
        while filled < most {
            let read = match stream.read(&mut buffer[filled..most])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            watch.sum(&mut summer, &buffer[filled..filled + read]);
            filled += read;
        }
        file.write_all(&buffer[..filled])?;
        left -= filled as u64;
    }
    let mut sums = [0; 8];
    stream.read_exact(&mut sums)?;
    Ok(sums == bytes_of(summer.finish()))
}

/// Fills the buffer. Returns false at the end of the stream.
fn fill(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..])? {
            0 if filled == 0 => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(true)
}

fn bytes_of(sums: Sums) -> [u8; 8] {
    let [a, b, c, d] = sums.crc32c.to_le_bytes();
    let [e, f, g, h] = sums.adler32.to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Sets the socket options that dray uses within a host, without pacing.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    Ok(rustix::net::sockopt::set_tcp_congestion(stream, "reno")?)
}
