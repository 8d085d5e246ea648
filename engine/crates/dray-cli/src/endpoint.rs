//! `dray endpoint`: creates, runs and queries endpoints. The program `drayd` runs `dray endpoint
//! run`.

use crate::args::{Endpoint, Init, RunEndpoint, Status};
use crate::cleared;
use crate::exit::{Exit, Stop, usage};
use crate::peer;
use crate::storage::root_line;
use crate::{output, signals};
use dray_api::{EndpointAnswer, Health};
use dray_auth::mint::SigningKey;
use dray_config::{Config, EXAMPLE};
use dray_core::{End, Error, Result};
use dray_endpoint::run::Endpoint as Running;
use dray_net::Identity;
use hyper::Method;
use ring::rand::SystemRandom;
use serde_json::json;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of the configuration file in an endpoint's folder.
pub(crate) const CONFIG_FILE: &str = "drayd.toml";

/// Name of the example configuration, which explains all settings in comments.
const EXAMPLE_FILE: &str = "drayd.example.toml";

/// Name of the key file of the endpoint's own token issuer.
const ISSUER_FILE: &str = "issuer.pem";

/// Runs `dray endpoint`.
pub(crate) fn run(endpoint: &Endpoint) -> Result<Exit, Stop> {
    match endpoint {
        Endpoint::Init(init) => self::init(init),
        Endpoint::Run(run) => {
            cleared::clear_up_to(0);
            serve(run)
        }
        Endpoint::Status(status) => self::status(status),
    }
}

fn init(init: &Init) -> Result<Exit, Stop> {
    let failed = |what: &Path, error: &std::io::Error| {
        let operation = format!("make {}", what.display());
        Error::new(error.kind().into(), End::Here, operation)
            .cause(error.to_string())
            .remedy("choose a folder that this user may write")
    };
    let make = |folder: &Path| {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(folder);
        made.map_err(|error| failed(folder, &error))
    };
    let there = init.folder.join(CONFIG_FILE);
    if there.exists() {
        return again(&there);
    }
    // Check the configuration with placeholder folders before any folder or file is created.
    let name = init.name.clone().unwrap_or_else(|| "name".to_owned());
    let text = configuration(init, &name, Path::new("/"), Path::new("/state"))?;
    Config::parse("the configuration made from the options", &text)?;
    make(&init.folder)?;
    let folder = init.folder.canonicalize();
    let folder = folder.map_err(|error| failed(&init.folder, &error))?;
    let state = init.state.clone().unwrap_or_else(|| folder.join("state"));
    make(&state)?;
    let state = state
        .canonicalize()
        .map_err(|error| failed(&state, &error))?;
    let name = match &init.name {
        Some(name) => name.clone(),
        None => rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
    };
    let config = folder.join(CONFIG_FILE);
    let text = configuration(init, &name, &folder, &state)?;
    // Check the final text too, so that a configuration that an endpoint would refuse is never
    // written.
    Config::parse(&config.display().to_string(), &text)?;
    let example = folder.join(EXAMPLE_FILE);
    if !example.exists() {
        write_new(&example, 0o644, EXAMPLE).map_err(|error| failed(&example, &error))?;
    }
    let issuer = folder.join(ISSUER_FILE);
    if !issuer.exists() {
        let (_, pem) = SigningKey::generate(&SystemRandom::new())?;
        write_new(&issuer, 0o600, &pem).map_err(|error| failed(&issuer, &error))?;
    }
    let names = [name.clone(), "localhost".to_owned(), "127.0.0.1".to_owned()];
    let identity = Identity::load_or_create_for(&folder, &names)?;
    // Write the configuration last. If the command is interrupted earlier, the user can run it
    // again.
    write_new(&config, 0o640, &text).map_err(|error| failed(&config, &error))?;
    output::result(&format!("key {}", identity.fingerprint()));
    output::note(&format!("wrote {}", config.display()));
    Ok(Exit::Safe)
}

/// Prints the key of an endpoint whose configuration already exists. The configuration is not
/// changed.
fn again(file: &Path) -> Result<Exit, Stop> {
    let config = Config::load(file)?;
    let identity = match (&config.tls.certificate, &config.tls.key) {
        (Some(certificate), Some(key)) => Identity::from_files(certificate, key)?,
        _ => Identity::load_or_create(config.identity_folder())?,
    };
    output::result(&format!("key {}", identity.fingerprint()));
    output::note(&format!("{} exists and was not changed", file.display()));
    Ok(Exit::Safe)
}

fn write_new(path: &Path, mode: u32, text: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Returns the configuration of a new endpoint.
fn configuration(init: &Init, name: &str, folder: &Path, state: &Path) -> Result<String> {
    // Rust's `Debug` form is also a valid TOML basic string for paths and host names. A path that
    // is not UTF-8 cannot be written in TOML.
    let quoted = |path: &Path| match path.to_str() {
        Some(text) => Ok(format!("{text:?}")),
        None => Err(usage(
            format!("the path {} is not UTF-8 text", path.display()),
            "choose a folder whose path is UTF-8 text",
        )),
    };
    let listen: Vec<String> = match init.listen.as_slice() {
        [] => vec![format!("127.0.0.1:{}", dray_open::locations::PORT)],
        given => given.to_vec(),
    };
    let mut text = format!(
        "# A dray endpoint. The file {EXAMPLE_FILE} in this folder explains every key.\n\n\
         name = {name:?}\n\
         state = {}\n\
         identity = {}\n\
         listen = {listen:?}\n\n\
         # The endpoint accepts tokens of `dray token mint`.\n\
         [issuer_local]\n\
         key = {}\n",
        quoted(state)?,
        quoted(folder)?,
        quoted(&folder.join(ISSUER_FILE))?,
    );
    if init.root.is_empty() {
        return Err(usage(
            "the endpoint has no folder to export",
            "give a folder with --root NAME=DIR, such as --root data=/srv/data",
        ));
    }
    for root in &init.root {
        let (root, path) = root.split_once('=').ok_or_else(|| {
            usage(
                format!("--root {root}"),
                "write --root as NAME=DIR, such as data=/srv/data",
            )
        })?;
        let path = Path::new(path);
        let path = match path.canonicalize() {
            Ok(path) => path,
            Err(error) => {
                return Err(usage(
                    format!("--root {}: {error}", path.display()),
                    "choose an existing folder",
                ));
            }
        };
        text += &format!("\n[[root]]\nname = {root:?}\npath = {}\n", quoted(&path)?);
    }
    Ok(text)
}

fn serve(run: &RunEndpoint) -> Result<Exit, Stop> {
    start_log(run.json);
    let config = config_file(&run.config);
    let config = Config::load(&config)?;
    cleared::clear_up_to(config.limits.body_bytes.0);
    // Call this function first, because it also handles SIGXFSZ. Without a handler, a write beyond
    // the file size limit would end the process instead of failing.
    signals::watch("stopping; finished data is kept. Press Ctrl-C again to abort.")?;
    let endpoint = Running::open(config)?;
    let stopper = endpoint.stopper();
    signals::on_stop(move || stopper.stop());
    let addresses: Vec<_> = endpoint
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    if run.json {
        let line = json!({
            "event": "listening",
            "name": endpoint.name(),
            "fingerprint": endpoint.fingerprint().to_string(),
            "addresses": addresses,
            "plain": endpoint.plain_addresses().iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        output::result(&line.to_string());
    } else {
        output::result(&format!("key {}", endpoint.fingerprint()));
        for address in &addresses {
            output::result(&format!("listening on {address}"));
        }
        for address in endpoint.plain_addresses() {
            output::result(&format!("listening on {address} (plain HTTP)"));
        }
    }
    endpoint.run()?;
    Ok(Exit::Safe)
}

/// Returns the path of the configuration file. `named` is the file, or the folder that contains it.
pub(crate) fn config_file(named: &Path) -> PathBuf {
    match named.is_dir() {
        true => named.join(CONFIG_FILE),
        false => named.to_owned(),
    }
}

/// Writes the log to standard error, for the system journal or a terminal.
fn start_log(json: bool) {
    let lines = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false);
    // Fails only if a subscriber exists already, which happens only in tests.
    let _ = match json {
        true => lines.json().try_init(),
        false => lines.try_init(),
    };
}

fn status(status: &Status) -> Result<Exit, Stop> {
    let address = peer::endpoint(status.endpoint.as_deref())?;
    let client = peer::client(&status.ask.who, &address)?;
    let health = client.ask::<Health>(Method::GET, "/healthz", None)?;
    let about = client.ask::<EndpointAnswer>(Method::GET, "/v1/endpoint", None)?;
    if status.ask.json {
        output::result(&json!({"health": health.json, "endpoint": about.json}).to_string());
        return Ok(Exit::Safe);
    }
    let about = about.read;
    output::result(&format!(
        "{} (dray {}): {}",
        output::one_line(&about.name),
        output::one_line(&about.version),
        output::one_line(&health.read.status)
    ));
    output::result(&format!("key {}", output::one_line(&about.key)));
    let rights = match about.you.administrator {
        true => ", an administrator",
        false => "",
    };
    output::result(&format!(
        "you are {}, mapped to the account {}{rights}",
        output::one_line(&about.you.principal),
        output::one_line(&about.you.owner)
    ));
    for root in &about.roots {
        output::result(&root_line(root));
    }
    Ok(Exit::Safe)
}
