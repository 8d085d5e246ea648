use crate::{Config, EXAMPLE, Owners, Tier};
use dray_api::Side;
use dray_core::ErrorKind;

const SMALL: &str = "name = \"a.example\"\nstate = \"/var/lib/dray\"\n\
                     [[root]]\nname = \"data\"\npath = \"/data\"\nread = \"*\"\n";

const ISSUER: &str = "[[issuer]]\nurl = \"https://i.example\"\naudiences = [\"a\"]\n";

fn fails(text: &str) -> String {
    let error = Config::parse("drayd.toml", text).expect_err(text);
    assert_eq!(error.kind, ErrorKind::InvalidRequest);
    assert!(!error.remedy.is_empty());
    error.to_string()
}

#[test]
fn a_root_is_a_folder_or_a_store() {
    let store = SMALL.replace("path = \"/data\"", "store = \"root://h//d\"");
    let config = Config::parse("drayd.toml", &store).expect("a store");
    assert_eq!(config.root[0].store.as_deref(), Some("root://h//d"));
    let both = SMALL.replace("read =", "store = \"root://h//d\"\nread =");
    assert!(fails(&both).contains("exactly one of the keys `path`, `store` and `dirs`"));
    let neither = SMALL.replace("path = \"/data\"\n", "");
    assert!(fails(&neither).contains("exactly one of the keys `path`, `store` and `dirs`"));
    for (key, line) in [
        ("tier", "tier = \"fast\""),
        ("targets", "targets = [\"a=b\"]"),
        ("direct_io", "direct_io = true"),
        ("preallocate", "preallocate = true"),
    ] {
        let error = fails(&format!("{store}{line}\n"));
        assert!(error.contains(key) && error.contains("a store"), "{error}");
    }
    let error = fails(&format!("setuid = true\n{store}"));
    assert!(error.contains("remove `setuid`"), "{error}");
}

#[test]
fn the_example_is_read_and_names_every_section() {
    let config = Config::parse("example", EXAMPLE).expect("good");
    assert_eq!(config.root.len(), 2);
    assert_eq!(config.root[0].tier, Some(Tier::Slow));
    for key in [
        "aliases",
        "identity",
        "listen_plain",
        "client_ca",
        "crl",
        "peers_ca",
        "issuer_local",
        "administrators",
        "share",
        "tickets",
        "history",
        "receipts",
        "keep_min",
        "listings",
        "janitor",
        "metrics",
        "[ui]",
        "audit",
        "retry",
        "setuid",
        "setuid_min",
        "limit_targets",
        "direct_io",
        "preallocate",
        "threads",
        "cache_seconds",
        "stale_seconds",
        "events_behind",
        "rate_min",
        "store",
        "dirs",
        "[[tier]]",
        "capacity",
        "watermark",
        "write_max",
        "read_min",
        "node_mtbf",
        "prior_mtbf",
        "prior_weight",
        "policy",
        "order",
        "bypass",
        "[tape]",
        "sitename",
    ] {
        assert!(EXAMPLE.contains(key), "{key} is not explained");
    }
}

#[test]
fn every_key_of_the_example_that_is_commented_out_can_be_uncommented() {
    // The example writes a disabled key as `#key = value`, and a sentence as `# Sentence`.
    let text: String = EXAMPLE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') && !rest.is_empty() => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    // The example has no root for replicas.
    let mirror = "[[root]]\nname = \"mirror\"\npath = \"/mirror\"\nread = \"*\"\nwrite = \"*\"\n";
    let text = text + mirror;
    Config::parse("example", &text).expect("good");
}

#[test]
fn omitted_keys_have_their_defaults() {
    let config = Config::parse("drayd.toml", SMALL).expect("good");
    assert_eq!(config.listen[0].as_str(), "127.0.0.1:4735");
    assert_eq!(config.limits.transfers_active, 50);
    assert_eq!(config.limits.memory.0, 1 << 30);
    assert_eq!(config.root[0].read, Some(Owners::All));
    assert_eq!(config.root[0].write, None);
    let named = Owners::Named(vec!["alice".to_owned()]);
    assert!(named.include("alice") && !named.include("anybody"));
    assert!(Owners::All.include("anybody"));
    assert_eq!(config.identity_folder(), config.state);
    assert!(config.is_own("A.Example:4735") && !config.is_own("b.example:4735"));
}

#[test]
fn a_mistake_is_named_with_file_line_and_key() {
    let unknown = format!("{SMALL}writ = \"*\"\n");
    let said = fails(&unknown);
    assert!(
        said.contains("drayd.toml, line 7") && said.contains("`writ`"),
        "{said}"
    );
    let said = fails(&format!("{SMALL}[limits]\nmemory = \"1 elephant\"\n"));
    assert!(
        said.contains("line 8") && said.contains("elephant"),
        "{said}"
    );
    let said = fails(&SMALL.replace("\"data\"", "\"../x\""));
    assert!(said.contains("line 4") && said.contains("../x"), "{said}");
    let said = fails(&SMALL.replace("\"*\"", "\"alice\""));
    assert!(
        said.contains("line 6") && said.contains("[\"alice\"]"),
        "{said}"
    );
    assert!(fails("name = [").contains("line 1"));
    for threads in ["0", "65", "-1", "\"many\"", "1.5"] {
        let said = fails(&format!("{SMALL}threads = {threads}\n"));
        assert!(said.contains("1 to 64"), "{said}");
    }
    let auto = Config::parse("drayd.toml", &format!("{SMALL}threads = \"auto\"\n"));
    let auto = auto.expect("good").root[0].threads.0;
    assert_eq!(auto, dray_runtime::assembly::Threads::Tuned);
}

#[test]
fn what_cannot_work_together_is_refused() {
    let root = &SMALL[SMALL.find("[[root]]").expect("there")..];
    for (text, word) in [
        (format!("{SMALL}{root}"), "two roots"),
        (SMALL.replace("\"/data\"", "\"data\""), "not absolute"),
        (SMALL.replace(root, ""), "has nothing to read"),
        (
            format!("{SMALL}limit_targets = [\"x=1M\"]\n"),
            "names x, which is not a target",
        ),
        (format!("{SMALL}[tls]\nkey = \"/k\"\n"), "together"),
        (
            format!("{SMALL}[[share]]\nweight = 3\n"),
            "exactly one of the keys `peer` and `owner`",
        ),
        (
            format!("{SMALL}[limits]\ntransfers_active = 0\n"),
            "can run concurrently",
        ),
        (
            format!("{SMALL}[scheduling]\nmax_running = 0\n"),
            "max_running must be at least 1",
        ),
        (
            format!("{SMALL}[scheduling]\nturns_of = \"pairs\"\n"),
            "`turns_of` is now called `round_robin_by`",
        ),
        (
            format!("{SMALL}[scheduling]\npolicy = \"lifo\"\n"),
            "round_robin",
        ),
        (
            format!("{SMALL}[[share]]\npeer = \"b\"\nactivities = {{ a = 1 }}\n"),
            "name the owner",
        ),
        (format!("{SMALL}[tickets]\nlifetime = 0\n"), "lifetime_max"),
        (format!("listen = []\n{SMALL}"), "has no address"),
        (
            format!("{SMALL}{ISSUER}base = \"/nope/x\"\n"),
            "does not begin with the name of a root",
        ),
        (
            format!("{SMALL}{ISSUER}keys = \"rel.jwks\"\n"),
            "absolute path",
        ),
        (
            SMALL.replace("a.example", "a.example:4735"),
            "without a port",
        ),
    ] {
        let said = fails(&text);
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn an_issuer_of_a_root_with_its_keys_is_good() {
    for more in [
        "base = \"/\"\nkeys = \"/k.jwks\"\n",
        "base = \"/data\"\nkeys = \"https://i.example/k\"\n",
        "base = \"/data/x/y\"\n",
    ] {
        Config::parse("drayd.toml", &format!("{SMALL}{ISSUER}{more}")).expect(more);
    }
}

#[test]
fn sizes_and_rates_have_units_or_are_numbers() {
    let text = format!("rate = \"10GiB/s\"\n{SMALL}[limits]\nmemory = 1048576\n");
    let config = Config::parse("drayd.toml", &text).expect("good");
    assert_eq!(config.rate.map(|rate| rate.0), Some(10 << 30));
    assert_eq!(config.limits.memory.0, 1 << 20);
    assert!(fails(&format!("rate = 0\n{SMALL}")).contains("never finish"));
    for streams in ["0", "65", "\"many\""] {
        let said = fails(&format!("streams = {streams}\n{SMALL}"));
        assert!(
            said.contains("1 to 64") && said.contains("line 1"),
            "{said}"
        );
    }
    let auto = Config::parse("drayd.toml", &format!("streams = \"auto\"\n{SMALL}"));
    assert_eq!(auto.expect("good").streams, dray_api::Streams::Auto);
    let none = fails(&format!("{SMALL}[limits]\nstreams_per_session = 0\n"));
    assert!(none.contains("1 to 256"), "{none}");
    assert!(fails(&format!("rate = -5\n{SMALL}")).contains("line 1"));
}

#[test]
fn own_names_are_local() {
    let config = Config::parse(
        "test",
        "name = \"a.example\"\naliases = [\"b.example\"]\nstate = \"/s\"\n\
         [[root]]\nname = \"data\"\npath = \"/data\"\n",
    )
    .expect("good");
    let side = |url: &str| Side::parse(url, |address| config.is_own(address));
    for local in [
        "/data/x",
        "dray://a.example/data/x",
        "dray://B.example:1/data/x",
    ] {
        assert!(side(local).expect("good").is_local(), "{local}");
    }
    match side("dray://c.example/data/x/").expect("good") {
        Side::Remote { address, path } => {
            assert_eq!(address, "c.example:4735");
            assert!(path.is_folder);
        }
        Side::Local(path) => panic!("{path:?}"),
    }
    for bad in [
        "",
        "data",
        "http://a/b",
        "dray://a.example",
        "dray:///data",
        "dray://a b/c",
    ] {
        assert!(side(bad).is_err(), "{bad}");
    }
}

const TIER: &str = "[[root]]\nname = \"bb\"\npath = \"/bb\"\n\
    [[tier]]\nname = \"burst\"\nfast = [\"bb\"]\nslow = \"data\"\ncapacity = \"1GiB\"\n\
    period = 60\nwrite_max = \"6GiB\"\nwrite_min = \"4GiB\"\nread_max = \"2GiB\"\n\
    read_min = \"1GiB\"\n";

#[test]
fn a_tier_names_its_roots_and_its_bandwidths() {
    let whole = format!("{SMALL}{TIER}");
    let config = Config::parse("drayd.toml", &whole).expect("good");
    let tier = &config.tier[0];
    assert_eq!((tier.name.as_str(), tier.slow.as_str()), ("burst", "data"));
    assert_eq!((tier.capacity.0, tier.period), (1 << 30, 60));
    assert!((tier.watermark - 0.9).abs() < 1e-9);
    assert_eq!(tier.policy, crate::TierPolicyName::Bbos);
    assert_eq!(tier.order, crate::VictimOrder::Bbos);
    assert_eq!(tier.bypass, crate::BypassKeys::default());
    let chosen = "policy = \"bbos-even\"\norder = \"lru\"\nbypass = { ratio = 0.7 }\n";
    let chosen = Config::parse("drayd.toml", &format!("{whole}{chosen}")).expect("good");
    let other = &chosen.tier[0];
    assert_eq!(other.policy, crate::TierPolicyName::BbosEven);
    assert_eq!(other.order, crate::VictimOrder::Lru);
    assert!((other.bypass.ratio - 0.7).abs() < 1e-9 && other.bypass.colder_than >= 1.0);
    let found = "versions = \"{application}/{version}\"\ncomplete = \"quiet:5\"\n";
    let known = format!("{whole}{found}owner = \"cms\"\n");
    let config = Config::parse("drayd.toml", &known).expect("with a template");
    assert_eq!(config.tier[0].complete, Some(crate::Completion::Quiet(5)));
    assert!(fails(&format!("{whole}{found}")).contains("`versions`, `complete` and `owner`"));
    for (old, new, said) in [
        ("fast = [\"bb\"]", "fast = []", "needs a fast root"),
        ("fast = [\"bb\"]", "fast = [\"x\"]", "no root is called x"),
        (
            "fast = [\"bb\"]",
            "fast = [\"bb\", \"bb\"]",
            "named twice as a fast root",
        ),
        ("slow = \"data\"", "slow = \"x\"", "no root is called x"),
        ("slow = \"data\"", "slow = \"bb\"", "also a fast root"),
        ("\"1GiB\"\nperiod", "0\nperiod", "capacity is 0"),
        ("period = 60", "period = 0", "period"),
        ("period = 60", "period = 60\nwatermark = 1.1", "watermark"),
        ("period = 60", "period = 60\nnode_mtbf = 0", "node_mtbf"),
        ("period = 60", "period = 60\nprior_mtbf = 0", "prior_mtbf"),
        (
            "period = 60",
            "period = 60\nprior_weight = 0",
            "prior_weight",
        ),
        ("period = 60", "period = 60\npolicy = \"x\"", "bbos-even"),
        ("period = 60", "period = 60\norder = \"x\"", "fifo"),
        (
            "period = 60",
            "period = 60\nbypass = { colder_than = 2.0 }",
            "bypass",
        ),
        ("period = 60", "period = 60\nnice = 1", "nice"),
        ("write_min = \"4GiB\"", "write_min = \"7GiB\"", "write_min"),
        ("read_min = \"1GiB\"", "read_min = \"3GiB\"", "read_min"),
        (
            "path = \"/bb\"",
            "path = \"/bb\"\nread_only = true",
            "is read-only",
        ),
        ("path = \"/bb\"", "store = \"root://h//d\"", "is a store"),
    ] {
        assert!(whole.contains(old), "{old}");
        let error = fails(&whole.replace(old, new));
        assert!(error.contains(said), "{old} -> {new}: {error}");
    }
    let error = fails(&format!(
        "{whole}{}",
        TIER.split_once("[[tier]]")
            .map_or("", |(_, rest)| rest)
            .replace("\nname", "[[tier]]\nname")
    ));
    assert!(error.contains("two tiers"), "{error}");
}

#[test]
fn a_root_of_several_folders_takes_only_what_it_can_do() {
    let with = |more: &str| {
        let text = format!(
            "name = \"a\"\nstate = \"/state\"\n[[root]]\nname = \"data\"\n\
             dirs = [\"/mnt/a\", \"/mnt/b\"]\n{more}\n"
        );
        Config::parse("test", &text).map(|config| config.root[0].dirs.len())
    };
    for good in [
        "",
        "tier = \"slow\"",
        "direct_io = true\npreallocate = true",
        "limit_targets = [\"/mnt/b=1MiB/s\"]",
    ] {
        assert_eq!(with(good).expect(good), 2);
    }
    for (wrong, expected) in [
        (
            "path = \"/mnt\"",
            "exactly one of the keys `path`, `store` and `dirs`",
        ),
        (
            "store = \"root://host//x\"",
            "exactly one of the keys `path`, `store` and `dirs`",
        ),
        ("tier = \"fast\"", "one folder"),
        ("targets = [\"x=y\"]", "one folder"),
        ("stripe = \"4\"", "one folder"),
        ("log = \"file:bit8\"", "log needs a root with one folder"),
        (
            "limit_targets = [\"/mnt/c=1MiB/s\"]",
            "names /mnt/c, which is not a target",
        ),
    ] {
        let error = with(wrong).expect_err(wrong).to_string();
        assert!(error.contains(expected), "{error}");
    }
}
