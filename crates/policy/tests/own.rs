//! The checks of one's own `policy.toml`: each fires, and a near miss does not.

use proptest::prelude::*;
use retryscope_policy::own::{Severity, check, parse};

/// Code, line and severity of each problem.
fn found(text: &str) -> Vec<(&'static str, u32, Severity)> {
    check(text).into_iter().map(|problem| (problem.code, problem.line, problem.severity)).collect()
}

fn codes(text: &str) -> Vec<&'static str> {
    found(text).into_iter().map(|(code, ..)| code).collect()
}

/// Each row: what must be found, the text it is found in, and a near miss that is sound.
#[test]
fn each_check_fires_and_its_near_miss_does_not() {
    #[rustfmt::skip]
    let rows: &[(&str, &str, &str)] = &[
        ("syntax", "[defaults\nattempts = 2", "[defaults]\nattempts = 2"),
        ("value", "[defaults]\nattempts = \"two\"", "[defaults]\nattempts = 2"),
        ("value", "profile = \"fast\"", "profile = \"batch\""),
        ("unknown-key", "[[rows]]\nclass = \"transient\"\nattemps = 2", "[[rows]]\nclass = \"transient\"\nattempts = 2"),
        ("unknown-key", "[recipients.code]\nto = \"any\"\nregoins = []", "[recipients.code]\nto = \"any\"\nregions = []"),
        ("unknown-class", "[[rows]]\nclass = \"throtled\"\nattempts = 2", "[[rows]]\nclass = \"throttled\"\nattempts = 2"),
        ("row-without-key", "[[rows]]\nattempts = 2", "[[rows]]\nreason = \"slow_down\"\nattempts = 2"),
        ("repeated-row", "[[rows]]\nclass = \"transient\"\n[[rows]]\nclass = \"transient\"\nattempts = 2", "[[rows]]\nclass = \"transient\"\n[[rows]]\nclass = \"transient\"\nprovider = \"openai\"\nattempts = 2"),
        ("no-attempt", "[defaults]\nattempts = 0", "[defaults]\nattempts = 1"),
        ("hopeless-retry", "[[rows]]\nclass = \"exhausted\"\nattempts = 2", "[[rows]]\nclass = \"exhausted\"\nattempts = 1"),
        ("hopeless-retry", "[[rows]]\nprovider = \"openai\"\nclass = \"auth\"\nattempts = 3", "[[rows]]\nprovider = \"openai\"\nclass = \"transient\"\nattempts = 3"),
        ("cap-below-base", "[defaults]\nbase_ms = 5000\ncap_ms = 4999", "[defaults]\nbase_ms = 5000\ncap_ms = 5000"),
        ("cap-below-base", "[[rows]]\nclass = \"transient\"\ncap_ms = 10", "[[rows]]\nclass = \"transient\"\ncap_ms = 1000"),
        ("total-below-first-wait", "[defaults]\nbase_ms = 20000\ntotal_ms = 10000\nretry_after_cap_ms = 10000", "[defaults]\nattempts = 2\nbase_ms = 20000\ntotal_ms = 10001\nretry_after_cap_ms = 10000"),
        ("total-cuts-attempts", "[defaults]\nattempts = 30", "[defaults]\nattempts = 5"),
        ("hint-beyond-total", "[defaults]\nretry_after_cap_ms = 90001", "[defaults]\nretry_after_cap_ms = 90000"),
        ("jitter-range", "[defaults]\njitter = { low = 1.5, high = 1.0 }", "[defaults]\njitter = { low = 1.0, high = 1.5 }"),
        ("no-jitter", "[defaults]\njitter = { low = 1.0, high = 1.0 }", "[defaults]\njitter = { low = 0.0, high = 1.0 }"),
        ("budget-limit", "[budget]\nlimit = 10", "[budget]\nlimit = 0.2"),
        ("budget-floor", "[budget]\nlimit = 0.1\nfloor = 0", "[budget]\nlimit = 0.1\nfloor = 1"),
        ("candidate-form", "[fallback]\nchain = [\"opus\"]", "[fallback]\nchain = [\"anthropic/opus\"]"),
        ("fallback-loop", "[fallback]\nchain = [\"a/x\", \"b/x\", \"a/x\"]", "[fallback]\nchain = [\"a/x\", \"b/x\", \"a/y\"]"),
        ("empty-allow-list", "[recipients.code]\nto = \"allow-list\"", "[recipients.code]\nto = \"allow-list\"\nproviders = [\"a\"]"),
        ("unused-providers", "[recipients.code]\nto = \"any\"\nproviders = [\"a\"]", "[recipients.code]\nto = \"any\""),
        ("recipient-not-allowed", "[fallback]\nchain = [\"a/x\", \"b/x\"]\n[recipients.code]\nto = \"same-provider\"", "[fallback]\nchain = [\"a/x\", \"a/y\"]\n[recipients.code]\nto = \"same-provider\""),
        ("recipient-not-allowed", "[fallback]\nchain = [\"a/x\", \"a/y\"]\n[recipients.code]\nto = \"off\"", "[fallback]\nchain = [\"a/x\"]\n[recipients.code]\nto = \"off\""),
        ("recipient-not-allowed", "[fallback]\nchain = [\"a/x@eu\", \"b/x\"]\n[recipients.code]\nto = \"any\"\nregions = [\"eu\"]", "[fallback]\nchain = [\"a/x@eu\", \"b/x@eu\"]\n[recipients.code]\nto = \"any\"\nregions = [\"eu\"]"),
        ("unsafe-tool-retry", "[[tools]]\nname = \"mail\"\nidempotency = \"non_idempotent\"\nattempts = 2", "[[tools]]\nname = \"read\"\nidempotency = \"idempotent\"\nattempts = 2"),
        ("unsafe-tool-replay", "[[tools]]\nname = \"mail\"\nidempotency = \"non_idempotent\"\nreplay = \"auto\"", "[[tools]]\nname = \"mail\"\nidempotency = \"non_idempotent\"\nreplay = \"ask\""),
        ("conditional-replay", "[[tools]]\nname = \"pay\"\nidempotency = \"conditional\"\nreplay = \"auto\"", "[[tools]]\nname = \"pay\"\nidempotency = \"conditional\""),
        ("repeated-tool", "[[tools]]\nname = \"a\"\nidempotency = \"idempotent\"\n[[tools]]\nname = \"a\"\nidempotency = \"idempotent\"", "[[tools]]\nname = \"a\"\nidempotency = \"idempotent\"\n[[tools]]\nname = \"b\"\nidempotency = \"idempotent\""),
        ("layers-multiply", "[[layers]]\nlayer = \"sdk\"\nattempts = 3", "[[layers]]\nlayer = \"sdk\"\nattempts = 1"),
        ("layers-multiply", "[[layers]]\nlayer = \"gateway\"\nattempts = 2", "[defaults]\nattempts = 1\n[[layers]]\nlayer = \"gateway\"\nattempts = 2"),
        ("repeated-layer", "[[layers]]\nlayer = \"sdk\"\nattempts = 1\n[[layers]]\nlayer = \"sdk\"\nattempts = 1", "[[layers]]\nlayer = \"sdk\"\nattempts = 1\n[[layers]]\nlayer = \"queue\"\nattempts = 1"),
    ];
    for (code, bad, good) in rows {
        assert_eq!(codes(bad), [*code], "{bad}\n{:#?}", check(bad));
        assert_eq!(check(good), [], "{good}");
        assert!(parse(good).is_ok(), "{good}");
    }
}

/// The example of the module's documentation.
#[test]
fn the_documented_example_is_sound() {
    let lines: Vec<&str> = include_str!("../src/own/mod.rs")
        .lines()
        .skip_while(|line| *line != "//! ```toml")
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .map(|line| line.trim_start_matches("//!").trim_start())
        .collect();
    assert!(lines.len() > 10);
    assert_eq!(check(&lines.join("\n")), []);
}

#[test]
fn problems_name_their_place_and_the_cure() {
    let text = "\
profile = \"interactive\"

[defaults]
atempts = 3

[[rows]]
class = \"exhausted\"
attempts = 5

[[tools]]
name = \"send_mail\"
idempotency = \"non_idempotent\"
attempts = 3

[nonsense]
x = 1
";
    assert_eq!(
        found(text),
        [
            ("unknown-key", 4, Severity::Error),
            ("hopeless-retry", 8, Severity::Error),
            ("unsafe-tool-retry", 13, Severity::Error),
            ("unknown-key", 15, Severity::Error),
        ]
    );
    let problems = check(text);
    assert_eq!(problems[0].message, "unknown key `defaults.atempts`");
    assert_eq!(problems[0].hint.as_deref(), Some("did you mean `attempts`?"));
    assert!(problems[1].hint.as_deref().unwrap().starts_with("set attempts = 1"));
    assert!(problems[3].hint.as_deref().unwrap().starts_with("known here: `profile`"));
}

#[test]
fn rows_and_chain_entries_are_placed() {
    let text = "[[rows]]\nclass = \"transient\"\n\n[[rows]]\nbase_ms = 2000\n\n[fallback]\nchain = [\n  \"a/x\",\n  \"a/x\",\n]\n";
    assert_eq!(
        found(text),
        [("row-without-key", 4, Severity::Warning), ("fallback-loop", 10, Severity::Error)]
    );
}

#[test]
fn the_product_of_layers_is_named() {
    let text = "[[layers]]\nlayer = \"sdk\"\nattempts = 3\n[[layers]]\nlayer = \"gateway\"\nattempts = 2\n";
    let problems = check(text);
    assert_eq!(problems.len(), 2);
    assert!(problems[1].message.contains("24 requests"), "{}", problems[1].message);
}

#[test]
fn parsing_refuses_what_it_does_not_know() {
    let error = parse("[defaults]\nattempts = 2\natempts = 3\n").unwrap_err();
    assert_eq!((error.line, error.column), (3, 1));
    assert!(error.to_string().starts_with("policy.toml:3:1: unknown field `atempts`"), "{error}");
    assert_eq!(parse("").unwrap().resolve("openai", "transient", "unavailable").attempts, 4);
}

#[test]
fn a_policy_survives_being_written_and_read_again() {
    let text = "profile = \"batch\"\n[[rows]]\nprovider = \"openai\"\nattempts = 3\n[fallback]\nchain = [\"a/x\"]\n[recipients.code]\nto = \"off\"\n";
    let policy = parse(text).unwrap();
    let json = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<retryscope_policy::own::OwnPolicy>(&json).unwrap(), policy);
}

/// Text made of the words of a policy, so that the generator reaches the rules.
fn near_policy() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "[defaults]",
        "[[rows]]",
        "[budget]",
        "[fallback]",
        "[recipients.a]",
        "[[tools]]",
        "[[layers]]",
        "attempts = 0",
        "attempts = 18446744073709551615",
        "attempts = 9223372036854775807",
        "base_ms = 0",
        "base_ms = 9223372036854775807",
        "cap_ms = 1",
        "total_ms = 0",
        "total_ms = 9223372036854775807",
        "jitter = { low = nan, high = inf }",
        "jitter = { low = -1, high = 0.0 }",
        "limit = nan",
        "limit = 0.1",
        "floor = 0",
        "class = \"auth\"",
        "class = \"ü\"",
        "provider = \"a\"",
        "reason = \"b\"",
        "to = \"off\"",
        "chain = [\"a/x\", \"/\", \"@\", \"a/x@\"]",
        "regions = [\"eu\"]",
        "name = \"t\"",
        "layer = \"sdk\"",
        "idempotency = \"conditional\"",
        "replay = \"auto\"",
        "profile = \"batch\"",
        "x.y.z = 1",
        "= 3",
        "[",
    ]);
    prop::collection::vec(line, 0..25).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn no_text_breaks_the_check(text in prop_oneof![near_policy(), any::<String>()]) {
        let problems = check(&text);
        let is_sound = problems.iter().all(|problem| problem.severity == Severity::Warning);
        // Whatever passes the check can be read, and gives limits for any failure.
        if let Ok(policy) = parse(&text) {
            let _limits = policy.resolve("a", "auth", "b");
        } else {
            prop_assert!(!is_sound, "refused, but the check found nothing: {}", text);
        }
    }
}
