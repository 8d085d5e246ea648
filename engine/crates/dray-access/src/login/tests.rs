use super::{Logins, ProviderAnswer};
use crate::Rights;
use dray_auth::LoggedIn;
use dray_config::Config;
use dray_core::ErrorKind;
use std::os::unix::fs::PermissionsExt;

const ISSUER: &str = "https://iam.example";

fn logins(more: &str) -> Logins {
    let text = format!(
        "name = \"a.example\"\nstate = \"/s\"\nadministrators = [\"ops\"]\n\
         [[root]]\nname = \"data\"\npath = \"/data\"\n\
         [map]\nunmapped = \"refuse\"\n\
         [[map.rules]]\nissuer = {ISSUER:?}\ngroup = \"/ops\"\nowner = \"ops\"\n\
         [[map.rules]]\nissuer = {ISSUER:?}\ngroup = \"cms\"\nowner = \"cms\"\n\
         [ui]\nenabled = true\nurl = \"https://a.example:4735\"\n\
         [[ui.login]]\nid = \"iam\"\nname = \"IAM\"\nissuer = {ISSUER:?}\nclient = \"dray\"\n{more}"
    );
    Logins::open(&Config::parse("test", &text).expect("good")).expect("opened")
}

fn grants() -> Logins {
    logins(
        "[[ui.login.grants]]\ngroup = \"cms\"\nscope = \"storage.read:/data\"\n\
         [[ui.login.grants]]\ngroup = \"/ops\"\nscope = \"storage.modify:/data\"\n\
         [[ui.login.grants]]\nsubject = \"u9\"\nscope = \"storage.read:/data\"\n",
    )
}

fn user(subject: &str, groups: Option<&[&str]>) -> LoggedIn {
    LoggedIn {
        issuer: ISSUER.to_owned(),
        subject: subject.to_owned(),
        name: Some("Alice Adams".to_owned()),
        groups: groups.map(|groups| groups.iter().map(|one| (*one).to_owned()).collect()),
    }
}

#[test]
fn groups_decide_the_owner_and_the_rights() {
    let logins = grants();
    let provider = &logins.providers[0];
    let cms = (logins.admit(provider, &user("u1", Some(&["cms"])))).expect("admitted");
    assert_eq!(cms.principal.name, "u1@https://iam.example");
    assert_eq!(cms.principal.owner, "cms");
    assert!(!cms.principal.is_administrator);
    assert_eq!(cms.name, "Alice Adams");
    let both = (logins.admit(provider, &user("u2", Some(&["cms", "/ops"])))).expect("admitted");
    assert!(both.principal.is_administrator);
    let Rights::Granted(scopes) = both.principal.rights else {
        panic!("{:?}", both.principal.rights);
    };
    assert_eq!(scopes.as_slice().len(), 2);
}

#[test]
fn a_user_without_a_grant_or_an_owner_is_refused_with_the_reason() {
    let logins = grants();
    let provider = &logins.providers[0];
    for (user, said) in [
        (user("u1", Some(&["atlas", "cm"])), "no group of"),
        (user("u1", Some(&[])), "no group of"),
        (user("u1", None), "reports no groups (claim \"groups\")"),
        // The grant is for the subject, but no rule maps the subject to an owner.
        (user("u9", None), "no rule maps"),
    ] {
        let error = logins.admit(provider, &user).expect_err(said);
        assert_eq!(error.kind, ErrorKind::PermissionDenied, "{error}");
        assert!(error.cause.contains(said), "{error}");
        assert!(!error.remedy.is_empty(), "{error}");
    }
}

#[test]
fn a_parameter_of_an_answer_occurs_once() {
    let answer = ProviderAnswer::parse("code=a%20b&state=s&session_state=x").expect("good");
    assert_eq!(answer.code.as_deref(), Some("a b"));
    assert_eq!(answer.state.as_deref(), Some("s"));
    assert!(answer.error.is_none());
    assert!(ProviderAnswer::parse("code=a&code=b").is_err());
    assert!(ProviderAnswer::parse("state=a&code=x&state=a").is_err());
}

/// Returns the error of the logins of an endpoint with this secret of the client.
fn error_with_secret(file: &std::path::Path) -> String {
    let text = format!(
        "name = \"a.example\"\nstate = \"/s\"\n[[root]]\nname = \"data\"\npath = \"/data\"\n\
         [ui]\nenabled = true\nurl = \"https://a.example\"\n\
         [[ui.login]]\nid = \"iam\"\nissuer = \"https://iam.example\"\nclient = \"dray\"\n\
         secret_file = \"{}\"\n\
         [[ui.login.grants]]\ngroup = \"cms\"\nscope = \"storage.read:/data\"\n",
        file.display()
    );
    let config = Config::parse("test", &text).expect("good");
    let error = Logins::open(&config).err().expect("refused");
    error.to_string()
}

#[test]
fn an_unknown_secret_file_is_named() {
    let error = error_with_secret("/nowhere/secret".as_ref());
    assert!(error.contains("/nowhere/secret"), "{error}");
    assert!(error.contains("secret_file"), "{error}");
}

#[test]
fn a_secret_that_every_user_may_read_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, "a secret\n").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("set");
    let error = error_with_secret(&file);
    assert!(error.contains("every user"), "{error}");
}
