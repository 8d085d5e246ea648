use crate::Config;

const SMALL: &str = "name = \"a.example\"\nstate = \"/s\"\n[[root]]\nname = \"data\"\n\
    path = \"/data\"\n";
const UI: &str = "[ui]\nenabled = true\nurl = \"https://a.example:4735\"\n";
const LOGIN: &str = "[[ui.login]]\nid = \"iam\"\nissuer = \"https://iam.example\"\n\
    client = \"dray\"\n";
const GRANT: &str = "[[ui.login.grants]]\ngroup = \"cms\"\nscope = \"storage.read:/\"\n";

fn fails(more: &str) -> String {
    let text = format!("{SMALL}{more}");
    let error = Config::parse("drayd.toml", &text).expect_err(more);
    error.to_string()
}

#[test]
fn a_login_has_defaults() {
    let text = format!("{SMALL}{UI}{LOGIN}{GRANT}");
    let config = Config::parse("drayd.toml", &text).expect("good");
    let login = &config.ui.login[0];
    assert_eq!(login.shown_name(), "iam");
    assert_eq!(login.scopes, ["openid", "profile"]);
    assert_eq!(
        (&*login.groups_claim, &*login.name_claim),
        ("groups", "name")
    );
    assert_eq!(config.ui.idle_seconds, 1_800);
    assert_eq!(config.ui.lifetime_seconds, 28_800);
    let groups = ["cms".to_owned()];
    assert!(login.grants[0].is_for("anybody", &groups));
    assert!(!login.grants[0].is_for("anybody", &["cms2".to_owned()]));
}

#[test]
fn a_grant_of_a_group_and_a_subject_needs_both() {
    let text = format!("{SMALL}{UI}{LOGIN}{GRANT}subject = \"u1\"\n");
    let config = Config::parse("drayd.toml", &text).expect("good");
    let grant = &config.ui.login[0].grants[0];
    let groups = ["cms".to_owned()];
    assert!(grant.is_for("u1", &groups));
    assert!(!grant.is_for("u2", &groups));
    assert!(!grant.is_for("u1", &[]));
}

#[test]
fn a_mistake_in_a_login_is_named_with_its_cause() {
    let grant = |scope: &str| GRANT.replace("storage.read:/", scope);
    for (text, said) in [
        (format!("{LOGIN}{GRANT}"), "enabled = true"),
        (
            format!("[ui]\nenabled = true\n{LOGIN}{GRANT}"),
            "needs `url`",
        ),
        (format!("{UI}{LOGIN}"), "nobody could log in"),
        (format!("{UI}{LOGIN}{GRANT}{LOGIN}{GRANT}"), "two logins"),
        (
            format!("{UI}{}{GRANT}", LOGIN.replace("\"iam\"", "\"../x\"")),
            "small letters",
        ),
        (
            format!("{UI}{}{GRANT}", LOGIN.replace("https://iam", "http://iam")),
            "not an https:// URL",
        ),
        (
            format!("{UI}{}{GRANT}", LOGIN.replace("\"dray\"", "\"\"")),
            "empty client",
        ),
        (
            format!("{UI}{LOGIN}scopes = [\"profile\"]\n{GRANT}"),
            "no ID token",
        ),
        (
            format!("{UI}{LOGIN}{}", GRANT.replace("group = \"cms\"\n", "")),
            "every user",
        ),
        (
            format!("{UI}{LOGIN}{}", grant("openid")),
            "no storage scope",
        ),
        (
            format!("{UI}{LOGIN}{}", grant("storage.read:x")),
            "not valid",
        ),
        (format!("{UI}idle_seconds = 0\n"), "idle_seconds"),
        (
            format!("{UI}idle_seconds = 20\nlifetime_seconds = 10\n"),
            "idle_seconds",
        ),
        (format!("{UI}lifetime_seconds = 90000\n"), "86400"),
    ] {
        let words = fails(&text);
        assert!(words.contains(said), "{words}");
    }
}

#[test]
fn the_address_of_the_console_is_an_origin() {
    for good in [
        "https://a.example",
        "https://a.example:4735",
        "https://[2001:db8::1]:4735",
        "http://localhost:4736",
        "http://127.0.0.1:4736",
        "http://[::1]:4736",
    ] {
        let text = format!("{SMALL}[ui]\nurl = {good:?}\n");
        Config::parse("drayd.toml", &text).expect(good);
    }
    for (wrong, said) in [
        ("a.example", "https://"),
        ("https://", "HOST:PORT"),
        ("https://A.example", "small letters"),
        ("https://a.example/", "without a path"),
        ("https://a.example/ui/", "without a path"),
        ("https://user@a.example", "HOST:PORT"),
        ("https://a.example:443", "usual port"),
        ("http://localhost:80", "usual port"),
        ("https://a.example:x", "not a number"),
        ("https://a.example:04735", "not a number"),
        ("http://a.example:4736", "without TLS"),
        ("http://localhost.a.example:4736", "without TLS"),
    ] {
        let words = fails(&format!("[ui]\nurl = {wrong:?}\n"));
        assert!(words.contains(said), "{wrong}: {words}");
        assert!(words.contains("line 7"), "{wrong}: {words}");
    }
}
