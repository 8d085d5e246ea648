//! `dray trust`: fetches authorities, revocation lists and issuers' keys.

use crate::args::{Trust, UpdateTrust};
use crate::endpoint::config_file;
use crate::exit::{Exit, Stop};
use crate::output;
use dray_access::trust::{self, Item, Outcome};
use dray_config::Config;

/// Runs `dray trust`.
pub(crate) fn run(trust: &Trust) -> Result<Exit, Stop> {
    match trust {
        Trust::Update(update) => self::update(update),
    }
}

fn update(update: &UpdateTrust) -> Result<Exit, Stop> {
    let config = Config::load(&config_file(&update.config))?;
    let mut exit = Exit::Safe;
    trust::update(&config, |item| {
        if matches!(item.outcome, Outcome::Kept(_)) {
            exit = Exit::SomeFailed;
        }
        match update.json {
            true => output::result(&item.json().to_string()),
            false => tell(item),
        }
    })?;
    Ok(exit)
}

fn tell(item: &Item) {
    let file = item.file.display();
    output::result(&format!("{} {file}", item.outcome.word()));
    if let Outcome::Kept(error) = &item.outcome {
        output::problem(&format!("cannot update {file}: {error}"));
    }
    if let Some(warning) = &item.warning {
        output::note(&format!("{file} {warning}"));
    }
}
