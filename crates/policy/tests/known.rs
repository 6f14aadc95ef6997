//! The embedded policies: their form, and the numbers measured with the real programs.

use proptest::prelude::*;
use retryscope_policy::{
    Bound, Evidence, Failure, Layer, Policy, SettingInForce, SettingValue, Settings, VersionRange, all,
    by_agent, find, known_agents, settings,
};

fn policy(agent: &str, version: &str) -> &'static Policy {
    find(agent, Some(version)).expect("a known agent")
}

fn set(values: &[(&str, i64)]) -> Settings {
    Settings::new(
        values
            .iter()
            .map(|(name, value)| SettingInForce {
                name: (*name).to_owned(),
                key: (*name).to_owned(),
                value: SettingValue::Integer(*value),
                line: None,
                scope: None,
                file: "config".to_owned(),
            })
            .collect(),
    )
}

fn range(bound: &Bound) -> (u64, Option<u64>) {
    (bound.min, bound.max)
}

#[test]
fn every_fact_has_a_source() {
    for policy in all() {
        assert!(!policy.facts.is_empty(), "{} has no fact", policy.title);
        for fact in &policy.facts {
            assert!(fact.source.len() > 8, "{}: {}", policy.title, fact.text);
            assert!(
                fact.evidence != Evidence::Measured
                    || fact.source.contains("server")
                    || fact.source.contains("recording"),
                "{}: measured against what? {}",
                policy.title,
                fact.source
            );
        }
        for conflict in &policy.conflicts {
            assert!(!conflict.claim_source.is_empty() && !conflict.finding_source.is_empty());
        }
    }
}

#[test]
fn version_ranges_neither_overlap_nor_leave_gaps() {
    for agent in known_agents() {
        let ranges: Vec<&VersionRange> = by_agent(agent).iter().map(|policy| &policy.versions).collect();
        assert_eq!(ranges.first().unwrap().from, None, "{agent}");
        assert_eq!(ranges.last().unwrap().before, None, "{agent}");
        for pair in ranges.windows(2) {
            assert_eq!(pair[0].before, pair[1].from, "{agent}");
            assert!(pair[0].before.is_some(), "{agent}");
        }
    }
}

#[test]
fn agents_are_found_by_version_alias_and_without() {
    assert_eq!(policy("codex", "0.60.1").title, "codex 0.60");
    assert_eq!(policy("codex", "codex-cli 0.136.0").title, "codex 0.104 to 0.149");
    assert_eq!(policy("Claude", "2.1.332").title, "claude-code 2.1.300 and later");
    assert_eq!(find("looplane", None).unwrap().title, "rivumi generation 2");
    assert_eq!(find("pi", Some("unknown")).unwrap().title, "pi 0.76 and later");
    assert!(find("no-such-agent", None).is_none());
    assert!(by_agent("no-such-agent").is_empty());
}

/// Agent, version, provider interface, settings, the failure that does not end, and requests received.
type Recording =
    (&'static str, &'static str, Option<&'static str>, &'static [(&'static str, i64)], Failure, u64);

/// One row per recording: what the server received for one logical request when the same failure never ends.
#[test]
fn measured_request_counts_come_out() {
    let server_error = Failure::Status(503);
    #[rustfmt::skip]
    let rows: &[Recording] = &[
        ("codex", "0.171.0", None, &[], server_error, 30),
        ("codex", "0.171.0", None, &[("request_max_retries", 2), ("stream_max_retries", 2)], server_error, 9),
        ("codex", "0.104.0", None, &[("request_max_retries", 2), ("stream_max_retries", 2)], server_error, 9),
        ("codex", "0.77.0", None, &[("request_max_retries", 1), ("stream_max_retries", 2)], Failure::Status(401), 3),
        ("codex", "0.98.0", None, &[], Failure::Status(429), 1),
        ("omp", "14.9.9", Some("anthropic-messages"), &[("retry.maxRetries", 0)], server_error, 24),
        ("omp", "14.9.9", Some("openai-completions"), &[("retry.maxRetries", 0)], server_error, 6),
        ("codex", "0.171.0", None, &[], Failure::Status(401), 6),
        ("codex", "0.60.1", None, &[("request_max_retries", 1), ("stream_max_retries", 2)], Failure::Status(401), 6),
        ("codex", "0.136.0", None, &[("request_max_retries", 1), ("stream_max_retries", 2)], Failure::Status(401), 3),
        ("codex", "0.171.0", None, &[("request_max_retries", 1), ("stream_max_retries", 2)], Failure::Status(403), 3),
        ("codex", "0.171.0", None, &[], Failure::Status(400), 1),
        ("codex", "0.171.0", None, &[], Failure::Quota, 1),
        ("codex", "0.171.0", None, &[], Failure::StreamCut, 6),
        ("claude-code", "2.1.332", None, &[], Failure::Status(500), 11),
        ("claude-code", "2.1.332", None, &[("CLAUDE_CODE_MAX_RETRIES", 3)], Failure::Status(529), 4),
        ("claude-code", "2.1.332", None, &[("CLAUDE_CODE_MAX_RETRIES", 1)], Failure::Status(422), 6),
        ("claude-code", "2.1.332", None, &[("CLAUDE_CODE_MAX_RETRIES", 2)], Failure::Status(408), 3),
        ("claude-code", "2.1.332", None, &[], Failure::Status(404), 2),
        ("claude-code", "2.1.332", None, &[], Failure::Status(403), 1),
        ("claude-code", "2.1.197", None, &[("CLAUDE_CODE_MAX_RETRIES", 3)], Failure::Status(401), 4),
        ("claude-code", "1.0.120", None, &[("CLAUDE_CODE_MAX_RETRIES", 3)], server_error, 5),
        ("opencode", "1.18.33", None, &[], server_error, 6),
        ("opencode", "1.18.33", None, &[], Failure::Quota, 6),
        ("opencode", "1.18.33", None, &[("OPENCODE_EXPERIMENTAL_NATIVE_LLM", 1)], server_error, 18),
        ("opencode", "1.2.27", None, &[], Failure::Status(401), 1),
        ("pi", "1.6.0", Some("openai-completions"), &[], server_error, 4),
        ("pi", "1.6.0", Some("openai-responses"), &[], server_error, 4),
        ("pi", "1.6.0", None, &[("retry.maxRetries", 2), ("retry.provider.maxRetries", 2)], server_error, 9),
        ("pi", "1.6.0", None, &[("retry.enabled", 0)], server_error, 1),
        ("pi", "1.6.0", None, &[], Failure::Quota, 1),
        ("pi", "0.73.1", None, &[], server_error, 12),
        ("pi", "0.73.1", None, &[], Failure::Quota, 12),
        ("omp", "18.2.3", Some("openai-completions"), &[], server_error, 132),
        ("omp", "18.2.3", Some("openai-responses"), &[], server_error, 66),
        ("omp", "18.2.3", Some("anthropic-messages"), &[], Failure::Status(529), 121),
        ("omp", "18.2.3", Some("ollama"), &[], server_error, 55),
        ("omp", "18.2.3", Some("openai-completions"), &[("retry.maxRetries", 2)], server_error, 36),
        ("omp", "18.2.3", Some("openai-completions"), &[("retry.enabled", 0)], server_error, 12),
        ("omp", "18.2.3", Some("openai-responses"), &[("retry.enabled", 0)], server_error, 6),
        ("omp", "18.2.3", Some("anthropic-messages"), &[("retry.enabled", 0)], Failure::Status(529), 11),
        ("omp", "18.2.3", Some("openai-completions"), &[], Failure::Quota, 6),
        ("omp", "18.2.3", Some("openai-completions"), &[], Failure::Status(400), 1),
        ("omp", "18.2.3", Some("openai-completions"), &[], Failure::StreamCut, 1),
        ("rivumi", "2", Some("openai-compatible"), &[], server_error, 15),
        ("rivumi", "2", Some("anthropic"), &[], server_error, 5),
        ("rivumi", "2", Some("anthropic"), &[], Failure::Status(401), 1),
        ("rivumi", "1", Some("openai-compatible"), &[], server_error, 9),
        ("rivumi", "0", Some("anthropic"), &[], server_error, 1),
        ("sdk-openai", "", None, &[], Failure::Status(429), 3),
        ("sdk-openai", "", None, &[], Failure::Status(404), 1),
    ];
    for (agent, version, api, values, failure, expected) in rows {
        let bound = policy(agent, version).attempts_under(*failure, *api, &set(values));
        assert_eq!(bound.max, Some(*expected), "{agent} {version} {api:?} {values:?} {failure:?}: {bound:?}");
    }
}

#[test]
fn max_attempts_is_the_worst_case_of_an_outage() {
    let none = Settings::default();
    let max = |agent, version, api| policy(agent, version).max_attempts(api, &none).max;
    assert_eq!(max("codex", "0.171.0", None), Some(30));
    assert_eq!(max("claude-code", "2.1.332", None), Some(11));
    assert_eq!(max("claude-code", "2.0.60", None), Some(12));
    assert_eq!(max("opencode", "1.18.33", None), Some(6));
    assert_eq!(max("opencode", "1.18.16", None), None);
    assert_eq!(max("pi", "0.73.1", None), Some(12));
    assert_eq!(max("pi", "1.6.0", None), Some(4));
    assert_eq!(max("omp", "18.2.3", Some("openai-completions")), Some(132));
    assert_eq!(max("omp", "18.2.3", Some("openai-responses")), Some(66));
    assert_eq!(max("omp", "18.2.3", Some("anthropic-messages")), Some(121));
    assert_eq!(max("omp", "18.2.3", Some("openai-codex-responses")), None);
    assert_eq!(max("omp", "18.2.3", Some("never-heard-of")), None);
    assert_eq!(max("rivumi", "2", Some("anthropic")), Some(5));
    assert_eq!(max("rivumi", "2", None), Some(15));
}

#[test]
fn hidden_requests_follow_from_the_view() {
    let none = Settings::default();
    let hidden = |agent, version, view, api| {
        range(&policy(agent, version).hidden_per_visible_attempt(view, api, &none))
    };
    assert_eq!(hidden("omp", "18.2.3", "session", Some("openai-completions")), (1, Some(12)));
    assert_eq!(hidden("omp", "18.2.3", "session", Some("openai-responses")), (1, Some(6)));
    assert_eq!(hidden("omp", "18.2.3", "session", Some("anthropic-messages")), (1, Some(11)));
    assert_eq!(hidden("pi", "0.73.1", "session", None), (1, Some(3)));
    assert_eq!(hidden("pi", "1.6.0", "session", None), (1, Some(1)));
    assert_eq!(hidden("rivumi", "2", "events", Some("openai-compatible")), (1, Some(3)));
    assert_eq!(hidden("rivumi", "2", "events", Some("anthropic")), (1, Some(1)));
    assert_eq!(hidden("rivumi", "2", "events", None), (1, Some(3)));
    assert_eq!(hidden("codex", "0.171.0", "exec-json", None), (1, Some(5)));
    assert_eq!(hidden("codex", "0.171.0", "otlp-logs", None), (1, Some(1)));
    assert_eq!(hidden("codex", "0.171.0", "rollout", None), (1, Some(30)));
    assert_eq!(hidden("claude-code", "2.1.332", "transcript", None), (1, Some(1)));
    assert_eq!(hidden("claude-code", "2.1.285", "transcript", None), (1, Some(10)));
    assert_eq!(hidden("opencode", "1.18.33", "log", None), (1, Some(1)));
    assert_eq!(hidden("opencode", "1.18.33", "database", None), (1, Some(6)));
    assert_eq!(hidden("opencode", "1.2.27", "database", None), (1, None));
}

#[test]
fn a_seen_failure_can_make_the_hidden_count_exact() {
    let none = Settings::default();
    let codex = policy("codex", "0.171.0");
    assert_eq!(range(&codex.hidden_under(Failure::Status(503), "exec-json", None, &none)), (5, Some(5)));
    // A cut may follow a 503 that the request loop had repeated: 2 hidden requests were recorded so.
    assert_eq!(range(&codex.hidden_under(Failure::StreamCut, "exec-json", None, &none)), (1, Some(5)));
    // A long Retry-After ends the hidden loop early.
    let pi = policy("pi", "0.73.1");
    assert_eq!(range(&pi.hidden_under(Failure::Status(503), "session", None, &none)), (1, Some(3)));
}

#[test]
fn the_basis_names_the_setting_and_where_it_was_read() {
    let codex = policy("codex", "0.171.0");
    let exec = |settings: &Settings| codex.hidden_per_visible_attempt("exec-json", None, settings);
    assert_eq!(exec(&Settings::default()).basis, "codex 0.171 defaults: request_max_retries 4");

    let text =
        "[model_providers.lab]\nrequest_max_retries = 2\n[model_providers.other]\nrequest_max_retries = 9";
    let read = Settings::new(settings::read("codex", "config.toml", text));
    let lab = exec(&read.clone().for_provider("lab"));
    assert_eq!((lab.max, lab.basis.as_str()), (Some(3), "config.toml: request_max_retries 2; codex 0.171"));
    assert_eq!(exec(&read.clone().for_provider("third")).max, Some(5));
    let unknown = exec(&read);
    assert_eq!(unknown.max, Some(10));
    assert!(unknown.basis.contains("largest taken"), "{}", unknown.basis);

    // Reported not to be applied to the built-in provider: the default may be in force.
    let text = "[model_providers.openai]\nrequest_max_retries = 2";
    let openai = Settings::new(settings::read("codex", "config.toml", text)).for_provider("openai");
    let doubtful = exec(&openai);
    assert_eq!(doubtful.max, Some(5));
    assert!(doubtful.basis.contains("request_max_retries 2 or its default"), "{}", doubtful.basis);
}

#[test]
fn codex_waits_for_the_network_without_end() {
    let codex = policy("codex", "0.171.0");
    assert_eq!(codex.attempts_under(Failure::Connection, None, &Settings::default()).max, None);
    let off =
        set(&[("unbounded_connection_retries", 0), ("request_max_retries", 1), ("stream_max_retries", 2)]);
    assert_eq!(codex.attempts_under(Failure::Connection, None, &off).max, Some(6));
    assert_eq!(codex.max_attempts(None, &set(&[("request_max_retries", 5000)])).max, Some(606));
}

#[test]
fn a_raised_limit_is_open() {
    let claude = policy("claude-code", "2.1.332");
    assert_eq!(claude.max_attempts(None, &set(&[("CLAUDE_CODE_RETRY_WATCHDOG", 1)])).max, None);
    assert_eq!(claude.max_attempts(None, &set(&[("CLAUDE_CODE_RETRY_WATCHDOG", 0)])).max, Some(11));
}

#[test]
fn waits_lie_in_the_measured_ranges() {
    let claude = policy("claude-code", "2.1.332");
    assert_eq!(claude.backoff(Layer::Agent, 1), Some((500, 625)));
    assert_eq!(claude.backoff(Layer::Agent, 10), Some((32_000, 40_000)));
    assert_eq!(claude.backoff(Layer::Agent, 11), None);
    assert_eq!(policy("opencode", "1.18.33").backoff(Layer::Agent, 5), Some((32_000, 40_000)));
    assert_eq!(policy("codex", "0.171.0").backoff(Layer::Transport, 4), Some((1440, 1760)));
    assert_eq!(policy("pi", "1.6.0").backoff(Layer::Agent, 3), Some((8000, 8000)));
    assert_eq!(policy("rivumi", "2").backoff(Layer::Agent, 2), Some((1700, 2300)));
    let fast = set(&[("retry.baseDelayMs", 400)]);
    assert_eq!(policy("pi", "1.6.0").backoff_in_force(Layer::Agent, 2, None, &fast), Some((800, 800)));
    assert_eq!(policy("sdk-google-genai", "").layers[0].backoff(1), None);
    // No arithmetic overflow, whatever is asked.
    assert!(policy("opencode", "1.0.200").backoff(Layer::Agent, u64::MAX).is_some());
}

#[test]
fn an_unknown_version_is_covered_by_all_of_them() {
    let none = Settings::default();
    let bounds =
        by_agent("pi").iter().map(|policy| policy.hidden_per_visible_attempt("session", None, &none));
    let bound = bounds.reduce(|one, other| one.or(&other)).unwrap();
    assert_eq!(range(&bound), (1, Some(3)));
    assert!(
        bound.basis.contains("pi before 0.76")
            && bound.basis.starts_with("either ")
            && bound.basis.contains(", or "),
        "{}",
        bound.basis
    );
    assert!(!bound.is_exact());
}

#[test]
fn every_view_that_is_not_there_by_itself_says_how_to_get_it() {
    let codex = policy("codex", "0.171.0");
    assert!(codex.view("otlp-logs").unwrap().enable.as_ref().unwrap().contains("[otel]"));
    assert!(codex.view("rust-log").unwrap().enable.as_ref().unwrap().starts_with("RUST_LOG="));
    assert!(codex.view("rollout").unwrap().enable.is_none());
    assert!(policy("codex", "0.60.1").view("logs-db").is_none());
    assert!(policy("claude-code", "2.1.332").view("debug-log").unwrap().enable.is_some());
    assert!(
        policy("opencode", "1.18.33").view("log").unwrap().enable.as_ref().unwrap().contains("LOG_LEVEL")
    );
    assert_eq!(codex.setting("request_max_retries").unwrap().layer, Some(Layer::Transport));
}

#[test]
fn policies_print_as_json() {
    let text = serde_json::to_string(policy("codex", "0.171.0")).unwrap();
    assert!(text.contains("\"request_max_retries\"") && text.contains("\"from\":\"0.171\""));
}

proptest! {
    /// Whatever stands in a configuration file: a bound is a range, one visible attempt is one request at
    /// least, and a wait has a beginning before its end.
    #[test]
    fn bounds_hold_under_any_setting(
        values in prop::collection::vec((any::<prop::sample::Index>(), any::<i64>(), any::<bool>()), 0..6),
        n in any::<u64>(),
        status in 100_u16..600,
    ) {
        for policy in all() {
            let entries = values.iter().filter(|_| !policy.settings.is_empty()).map(|(index, value, is_scoped)| {
                let setting = index.get(&policy.settings);
                SettingInForce {
                    name: setting.name.clone(),
                    key: setting.key.clone(),
                    value: SettingValue::Integer(*value),
                    line: None,
                    scope: is_scoped.then(|| "lab".to_owned()),
                    file: setting.file.clone(),
                }
            });
            let settings = Settings::new(entries.collect());
            for settings in [settings.clone(), settings.for_provider("lab")] {
                let worst = policy.max_attempts(None, &settings);
                prop_assert!(worst.min == 1 && worst.max.is_none_or(|max| max >= 1));
                prop_assert!(worst.basis.contains(&policy.title), "{}", worst.basis);
                for view in &policy.views {
                    let failure = Failure::Status(status);
                    let hidden = policy.hidden_under(failure, &view.id, None, &settings);
                    prop_assert!(hidden.min >= 1 && hidden.max.is_none_or(|max| max >= hidden.min));
                }
                for layer in &policy.layers {
                    let wait = layer.backoff_in_force(n, &settings);
                    prop_assert!(wait.is_none_or(|(low, high)| low <= high));
                }
            }
        }
    }
}

#[test]
fn advice_is_followed_where_the_value_is_reached() {
    let reached = |agent: &str, name: &str, value: &str| {
        let policy = find(agent, None).unwrap();
        policy.settings.iter().find(|setting| setting.name == name).unwrap().is_reached_by(value)
    };
    assert!(reached("omp", "retry.enabled", "false") && reached("omp", "retry.enabled", "off"));
    assert!(!reached("omp", "retry.enabled", "true"));
    assert!(reached("omp", "retry.maxRetries", "0") && !reached("omp", "retry.maxRetries", "2"));
    assert!(reached("codex", "request_max_retries", "0") && !reached("codex", "request_max_retries", "1"));
    assert!(reached("claude-code", "CLAUDE_CODE_RETRY_WATCHDOG", "1"));
    // Advice that names no one value is never done with.
    assert!(!reached("claude-code", "CLAUDE_CODE_MAX_RETRIES", "0"));
}

#[test]
fn a_setting_that_is_not_understood_bounds_nothing() {
    let pi = policy("pi", "0.76.0");
    let bound = |value: SettingValue| {
        let name = "retry.provider.maxRetries".to_owned();
        let entry = SettingInForce {
            key: name.clone(),
            name,
            value,
            line: None,
            scope: None,
            file: "settings.json".to_owned(),
        };
        pi.hidden_per_visible_attempt("session", None, &Settings::new(vec![entry]))
    };
    assert_eq!(range(&bound(SettingValue::Integer(2))), (1, Some(3)));
    assert_eq!(range(&bound(SettingValue::Float(2.0))), (1, Some(3)));
    for odd in [SettingValue::Float(2.5), SettingValue::Text("many".to_owned()), SettingValue::Integer(-1)] {
        let bound = bound(odd);
        assert_eq!(range(&bound), (1, None));
        assert!(bound.basis.contains("not understood"), "{}", bound.basis);
    }
}

#[test]
fn a_number_of_attempts_that_a_log_tells_may_speak_against_the_settings() {
    let codex = policy("codex", "0.171.0");
    let agrees = |told: u64, settings: &Settings| codex.agrees_with(told, "exec-json", None, settings);
    assert!(agrees(6, &set(&[])) && !agrees(3, &set(&[])));
    assert!(agrees(3, &set(&[("stream_max_retries", 2)])) && !agrees(6, &set(&[("stream_max_retries", 2)])));
    // A view that records no layer says nothing of any.
    assert!(codex.agrees_with(3, "none", None, &set(&[])));
}
