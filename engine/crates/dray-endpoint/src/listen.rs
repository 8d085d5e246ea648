//! Listens on an address that a previous process may still occupy.
//!
//! Not for: serving connections (`server`, `dray_net`).

use dray_core::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// Maximum time to wait for an occupied address. A previous endpoint that is exiting may still hold
/// the address. On a busy host, an address was free 30 ms after a kill (measured).
const PATIENCE: Duration = Duration::from_secs(3);

/// Pause between two attempts to listen.
const PAUSE: Duration = Duration::from_millis(50);

/// Code of a listening socket in `/proc/net/tcp` (include/net/tcp_states.h).
const LISTENS: &str = "0A";

/// Calls `listen`, and repeats the call for at most 3 s while the address is in use.
///
/// # Errors
/// The errors of `listen`. If the address stays in use, the error names the process that holds a
/// port of `addresses`, if this user may see that process.
pub fn listen_patiently<T>(
    addresses: &[String],
    mut listen: impl FnMut() -> Result<T>,
) -> Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        match listen() {
            Err(error) if error.kind == ErrorKind::Busy => {
                if Instant::now() >= until {
                    return Err(named(error, addresses));
                }
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

fn named(error: Error, addresses: &[String]) -> Error {
    let ports = addresses.iter().filter_map(|address| {
        let (_, port) = address.rsplit_once(':')?;
        port.parse().ok()
    });
    let holders = holders(&ports.collect());
    let cause = match holders.as_slice() {
        [] => format!(
            "a program of another user already listens on {}",
            error.cause
        ),
        some => format!(
            "{}: {} listens on this address",
            error.cause,
            some.join(", ")
        ),
    };
    let remedy = match holders.as_slice() {
        [] => {
            "run `ss -ltnp` as root to find the program; stop the program, or choose another \
            port"
        }
        _ => "stop the program that uses the port, or choose another port",
    };
    error.cause(cause).remedy(remedy)
}

/// Returns a description of each process that listens on one of the ports.
fn holders(ports: &BTreeSet<u16>) -> Vec<String> {
    let sockets: BTreeSet<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| {
            let lines = table.lines().filter_map(|line| listening(line, ports));
            lines.collect::<Vec<_>>()
        })
        .collect();
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // An error is ignored: the files of another user's process are not visible.
        let open = fs::read_dir(process.path().join("fd"));
        let is_one = open.into_iter().flatten().flatten().any(|file| {
            let link = fs::read_link(file.path()).unwrap_or_default();
            link.to_str().is_some_and(|link| sockets.contains(link))
        });
        if is_one {
            let program = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("process {id} ({})", program.trim().escape_debug()));
        }
    }
    found
}

/// Parses one line of `/proc/net/tcp`. If the line describes a socket that listens on one of the
/// ports, returns the name of the socket in the links of `/proc/PID/fd`, such as `socket:[12345]`.
fn listening(line: &str, ports: &BTreeSet<u16>) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (_, port) = words.get(1)?.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let inode = words.get(9)?;
    (*words.get(3)? == LISTENS && ports.contains(&port)).then(|| format!("socket:[{inode}]"))
}

#[cfg(test)]
mod tests {
    use super::{PATIENCE, listen_patiently, listening};
    use dray_core::{End, Error, ErrorKind, Result};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    fn listen(address: &str) -> Result<TcpListener> {
        TcpListener::bind(address).map_err(|error| {
            Error::new(ErrorKind::Busy, End::Here, "listen").cause(error.to_string())
        })
    }

    #[test]
    fn a_predecessor_s_last_moment_is_waited_for() {
        let before = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = before.local_addr().expect("an address").to_string();
        let going = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(before);
        });
        let begun = Instant::now();
        let addresses = [address.clone()];
        assert!(listen_patiently(&addresses, || listen(&address)).is_ok());
        assert!(begun.elapsed() < PATIENCE);
        going.join().expect("ended");
    }

    #[test]
    fn the_process_that_holds_the_port_is_named() {
        let holder = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = holder.local_addr().expect("an address").to_string();
        let addresses = [address.clone()];
        let error = listen_patiently(&addresses, || listen(&address)).expect_err("it is taken");
        let own = format!("process {} (", std::process::id());
        assert!(error.cause.contains(&own), "{error}");
        assert!(error.cause.contains("in use"), "{error}");
    }

    #[test]
    fn a_released_port_and_an_outgoing_port_have_no_holder() {
        let line = |state: &str| {
            format!("0: 0100007F:1280 00000000:0000 {state} 0:0 00:0 0 0 0 4711 1 0 100 0 0 10 0")
        };
        let ports = [4736].into();
        assert_eq!(
            listening(&line("0A"), &ports).as_deref(),
            Some("socket:[4711]")
        );
        assert_eq!(listening(&line("01"), &ports), None, "connected");
        assert_eq!(listening(&line("0A"), &[80].into()), None, "another port");
        assert_eq!(listening("sl local_address", &ports), None);
    }
}
