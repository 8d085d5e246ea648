//! `dray token`: creates tokens of an endpoint's own issuer, and shows the contents of tokens.

use crate::args::{Mint, ShowToken, Token};
use crate::endpoint;
use crate::exit::{Exit, Stop, usage};
use crate::output;
use dray_access::own_url;
use dray_auth::mint::{Grant, SigningKey};
use dray_config::Config;
use dray_core::{End, Error, ErrorKind, Result};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;
use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of bytes read as a token.
const TOKEN_BYTES_MAX: u64 = 1 << 16;

/// Runs `dray token`.
pub(crate) fn run(token: &Token) -> Result<Exit, Stop> {
    match token {
        Token::Mint(mint) => self::mint(mint),
        Token::Show(show) => self::show(show),
    }
}

fn mint(mint: &Mint) -> Result<Exit, Stop> {
    let file = mint.dir.join(endpoint::CONFIG_FILE);
    let config = Config::load(&file).map_err(|error| match error.kind {
        ErrorKind::NotFound => error.remedy("give the endpoint's folder with --dir DIR"),
        _ => error,
    })?;
    let local = config.issuer_local.as_ref().ok_or_else(|| {
        usage(
            "this endpoint has no local token issuer",
            "set issuer_local.key in the endpoint's configuration",
        )
    })?;
    let pem = std::fs::read(&local.key).map_err(|error| {
        let operation = format!("read the issuer's key {}", local.key.display());
        let remedy = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "correct issuer_local.key in the endpoint's \
                configuration"
            }
            _ => "run this command as the user that runs the endpoint",
        };
        Error::new(error.kind().into(), End::Here, operation)
            .cause(error.to_string())
            .remedy(remedy)
    })?;
    let random = SystemRandom::new();
    let key = SigningKey::from_pem(&pem, &random)?;
    let mut id = [0; 16];
    random.fill(&mut id).map_err(|_| {
        Error::new(
            ErrorKind::Internal,
            End::Here,
            "get random bytes from the system",
        )
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    let scope = mint.scope.join(" ");
    // Check the scopes first, because every endpoint would refuse a token with invalid scopes.
    dray_auth::Scopes::parse(&scope, &dray_core::RelPath::root()).map_err(|error| {
        let known =
            "storage.read:/PATH, storage.create:/PATH, storage.modify:/PATH or storage.stage:/PATH";
        usage(
            format!("--scope {scope:?}: {}", error.cause),
            format!("write each scope as {known}"),
        )
    })?;
    let audiences = match mint.aud.is_empty() {
        true => vec![own_url(&config)],
        false => mint.aud.clone(),
    };
    let token = key.mint(
        &Grant {
            issuer: own_url(&config),
            subject: mint.sub.clone(),
            audiences,
            scope,
            groups: mint.group.clone(),
            issued_at: now,
            expires: now + mint.lifetime.as_secs(),
            id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
        },
        &random,
    )?;
    output::result(&token);
    Ok(Exit::Safe)
}

fn show(show: &ShowToken) -> Result<Exit, Stop> {
    let mut text = String::new();
    let read = match &show.file {
        Some(file) => std::fs::File::open(file)
            .and_then(|opened| opened.take(TOKEN_BYTES_MAX).read_to_string(&mut text)),
        None => std::io::stdin()
            .take(TOKEN_BYTES_MAX)
            .read_to_string(&mut text),
    };
    read.map_err(|error| {
        usage(
            format!("the token cannot be read: {error}"),
            "give a file that holds a token",
        )
    })?;
    let claims = dray_auth::token::claims_unchecked(text.trim().as_bytes())?;
    if show.json {
        output::result(&claims.to_string());
        return Ok(Exit::Safe);
    }
    let Value::Object(claims) = claims else {
        return Err(usage(
            "the token does not contain a JSON object",
            "give a bearer token",
        )
        .into());
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    for (name, value) in &claims {
        output::result(&claim_line(name, value));
    }
    if let Some(expires) = claims.get("exp").and_then(Value::as_u64) {
        let words = match expires.checked_sub(now) {
            Some(left) => {
                format!(
                    "the token is valid for another {left} s, if its signature is valid (not \
                        checked)"
                )
            }
            None => format!("the token expired {} s ago", now - expires),
        };
        output::note(&words);
    }
    Ok(Exit::Safe)
}

/// Returns a claim as one line. Control characters are escaped, because the text may come from an
/// untrusted source.
fn claim_line(name: &str, value: &Value) -> String {
    let words = match value {
        Value::String(text) => text.clone(),
        // Several audiences or groups are separated by spaces, as scopes are.
        Value::Array(all) if !all.is_empty() && all.iter().all(Value::is_string) => {
            let all: Vec<_> = all.iter().filter_map(Value::as_str).collect();
            all.join(" ")
        }
        other => other.to_string(),
    };
    output::one_line(&format!("{name}: {words}"))
}

#[cfg(test)]
mod tests {
    use super::claim_line;
    use serde_json::json;

    #[test]
    fn claims_are_shown_as_people_write_them() {
        let audiences = json!(["https://a.example", "https://b.example"]);
        assert_eq!(
            claim_line("aud", &audiences),
            "aud: https://a.example https://b.example"
        );
        assert_eq!(claim_line("sub", &json!("it's \"me\"")), "sub: it's \"me\"");
        assert_eq!(claim_line("exp", &json!(1)), "exp: 1");
        assert_eq!(claim_line("a", &json!([])), "a: []");
        let driven = claim_line("s\x1bub", &json!(["a\nb"]));
        assert_eq!(driven, "s\\u{1b}ub: a\\nb");
    }

    #[test]
    fn nothing_is_signed_that_no_endpoint_reads() {
        let root = dray_core::RelPath::root();
        assert!(dray_auth::Scopes::parse("storage.read:/a/../b", &root).is_err());
        assert!(dray_auth::Scopes::parse("storage.read:/a storage.modify:/b", &root).is_ok());
    }
}
