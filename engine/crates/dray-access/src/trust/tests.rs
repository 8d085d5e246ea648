//! Tests of the update of trusted files. The integration tests check revocation lists and servers.

use super::{Item, Outcome, crl_urls, update};
use dray_auth::mint::SigningKey;
use dray_config::Config;
use dray_core::ErrorKind;
use ring::rand::SystemRandom;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn jwks() -> String {
    let random = SystemRandom::new();
    let (key, _) = SigningKey::generate(&random).expect("made");
    key.public_jwks()
}

fn config(folder: &Path, trust: &str) -> Config {
    let text = format!(
        "name = \"a\"\nstate = {folder:?}\n[[root]]\nname = \"data\"\npath = \"/data\"\n\
         [trust]\n{trust}"
    );
    Config::parse("test", &text).expect("good")
}

fn updated(config: &Config) -> Vec<Item> {
    let mut items = Vec::new();
    update(config, |item| items.push(item.clone())).expect("a good configuration");
    items
}

#[test]
fn a_file_is_replaced_only_by_a_good_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = folder.path().join("mirror");
    let url = format!("file://{}", mirror.display());
    let source = format!("[[trust.source]]\nname = \"i.jwks\"\nkind = \"jwks\"\nurl = {url:?}\n");
    let config = config(folder.path(), &source);
    let file = folder.path().join("trust/i.jwks");
    let outcome = || updated(&config).remove(0).outcome;
    let Outcome::Kept(missing) = outcome() else {
        panic!("nothing to fetch");
    };
    assert_eq!(missing.kind, ErrorKind::NotFound);
    assert!(!file.exists());
    let (first, second) = (jwks(), jwks());
    fs::write(&mirror, &first).expect("written");
    assert_eq!(outcome(), Outcome::Updated);
    assert_eq!(outcome(), Outcome::Unchanged);
    for wrong in [
        "",
        "<html>503</html>",
        "{\"keys\": []}",
        &second[..second.len() / 2],
    ] {
        fs::write(&mirror, wrong).expect("written");
        let Outcome::Kept(error) = outcome() else {
            panic!("it is used: {wrong}");
        };
        assert!(error.cause.contains(&url), "{error}");
        assert_eq!(fs::read_to_string(&file).expect("read"), first);
    }
    fs::write(&mirror, &second).expect("written");
    assert_eq!(outcome(), Outcome::Updated);
    assert_eq!(fs::read_to_string(&file).expect("read"), second);
    let names = fs::read_dir(file.parent().expect("a folder")).expect("read");
    assert_eq!(names.count(), 1, "a temporary file is left");
}

#[test]
fn one_list_is_fetched_for_several_names_of_an_authority() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    let text = "# A comment\nhttp://a.example/one.crl\n\nfile:///two.crl\nftp://old.example/\n";
    fs::write(here.join("Example-CA.crl_url"), text).expect("written");
    for hash in ["0a1b2c3d.crl_url", "Example-CA-2.crl_url"] {
        symlink("Example-CA.crl_url", here.join(hash)).expect("linked");
    }
    fs::write(here.join("Other.crl_url"), "https://b.example/").expect("written");
    fs::write(here.join("Example-CA.pem"), "").expect("written");
    let urls: Vec<_> = crl_urls(here).expect("read").into_iter().collect();
    let own = |urls: &[&str]| urls.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        urls,
        [
            (
                "0a1b2c3d".to_owned(),
                own(&["http://a.example/one.crl", "file:///two.crl"])
            ),
            ("Other".to_owned(), own(&["https://b.example/"])),
        ]
    );
}

#[test]
fn a_section_without_sources_is_a_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = update(&config(folder.path(), ""), |_| {}).expect_err("nothing to do");
    assert_eq!(error.kind, ErrorKind::InvalidRequest);
    assert!(error.remedy.contains("trust.source"), "{error}");
}
