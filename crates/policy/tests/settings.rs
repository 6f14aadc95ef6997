//! The readers of agents' own configuration files: what they find, what they leave, and that nothing breaks
//! them.

use proptest::prelude::*;
use retryscope_policy::{SettingInForce, SettingValue, Settings, settings};

/// Name, scope, value as text, and line of each setting read.
fn read(agent: &str, file: &str, text: &str) -> Vec<(String, Option<String>, String, Option<u32>)> {
    settings::read(agent, file, text)
        .into_iter()
        .map(|SettingInForce { name, scope, value, line, .. }| (name, scope, value.to_string(), line))
        .collect()
}

fn row(
    name: &str,
    scope: Option<&str>,
    value: &str,
    line: u32,
) -> (String, Option<String>, String, Option<u32>) {
    (name.to_owned(), scope.map(str::to_owned), value.to_owned(), Some(line))
}

const CODEX: &str = r#"model = "gpt-5.5"
model_provider = "lab"

[model_providers.lab]
base_url = "http://127.0.0.1:18080/v1"
experimental_bearer_token = "do-not-read"
request_max_retries = 2
stream_max_retries = 0x3
supports_websockets = false

[model_providers."my.gateway"]
stream_idle_timeout_ms = 1500

[features]
unbounded_connection_retries = false
"#;

#[test]
fn codex() {
    assert_eq!(
        read("codex", "/home/dev/.codex/config.toml", CODEX),
        [
            row("unbounded_connection_retries", None, "false", 15),
            row("request_max_retries", Some("lab"), "2", 7),
            row("stream_max_retries", Some("lab"), "3", 8),
            row("supports_websockets", Some("lab"), "false", 9),
            row("stream_idle_timeout_ms", Some("my.gateway"), "1500", 12),
        ]
    );
}

#[test]
fn codex_reads_on_after_a_mistake() {
    let text = "model = \n[model_providers.lab]\nrequest_max_retries = 2\nwire_api = responses\n";
    assert_eq!(read("codex", "config.toml", text), [row("request_max_retries", Some("lab"), "2", 3)]);
    assert!(read("codex", "config.toml", "[[[").is_empty());
}

#[test]
fn claude_code() {
    let text = r#"{
  // comments are accepted
  "env": {
    "ANTHROPIC_API_KEY": "do-not-read",
    "CLAUDE_CODE_MAX_RETRIES": "3",
    "API_TIMEOUT_MS": "3000",
  },
  "permissions": {"allow": ["Bash(ls)"]},
  "fallbackModel": ["claude-sonnet-5-5", "claude-haiku-4-5"]
}"#;
    assert_eq!(
        read("claude-code", "settings.json", text),
        [
            row("CLAUDE_CODE_MAX_RETRIES", None, "3", 5),
            row("API_TIMEOUT_MS", None, "3000", 6),
            row("fallbackModel", None, "[claude-sonnet-5-5, claude-haiku-4-5]", 9),
        ]
    );
    let one = r#"{"fallbackModel": "claude-sonnet-5-5"}"#;
    assert_eq!(read("claude", "settings.json", one), [row("fallbackModel", None, "claude-sonnet-5-5", 1)]);
}

#[test]
fn pi() {
    let text = "{\n \"retry\": {\n  \"baseDelayMs\": 400,\n  \"enabled\": false,\n  \"provider\": {\n   \"maxRetries\": 2\n  }\n }\n}";
    assert_eq!(
        read("pi", "settings.json", text),
        [
            row("retry.baseDelayMs", None, "400", 3),
            row("retry.enabled", None, "false", 4),
            row("retry.provider.maxRetries", None, "2", 6),
        ]
    );
    // A file cut off in the middle gives what stands before.
    assert_eq!(
        read("pi", "settings.json", text.get(..45).unwrap()),
        [row("retry.baseDelayMs", None, "400", 3)]
    );
    assert!(read("pi", "settings.json", "{}").is_empty());
}

#[test]
fn omp_yaml() {
    let text = "\
# own settings
theme: dark
retry:
  maxRetries: 3   # not ten
  baseDelayMs: 200
  enabled: true
  fallbackChains:
    faulty/demo-model: [backup/backup-model, 'other/model:high']
    \"prov/*\":
      - a/b
      - c/d
    default:
    - e/f
  fallbackRevertPolicy: never
providers:
  maxRetries: 99
";
    assert_eq!(
        read("omp", "config.yml", text),
        [
            row("retry.maxRetries", None, "3", 4),
            row("retry.baseDelayMs", None, "200", 5),
            row("retry.enabled", None, "true", 6),
            row(
                "retry.fallbackChains",
                Some("faulty/demo-model"),
                "[backup/backup-model, other/model:high]",
                8
            ),
            row("retry.fallbackChains", Some("prov/*"), "[a/b, c/d]", 10),
            row("retry.fallbackChains", Some("default"), "[e/f]", 13),
            row("retry.fallbackRevertPolicy", None, "never", 14),
        ]
    );
}

#[test]
fn omp_accepts_json_and_flow_mappings() {
    let json = "{\n \"retry\": {\n  \"baseDelayMs\": 200,\n  \"fallbackChains\": {\n   \"faulty/demo-model\": [\n    \"backup/backup-model\"\n   ]\n  }\n }\n}";
    assert_eq!(
        read("omp", "config.yml", json),
        [
            row("retry.baseDelayMs", None, "200", 3),
            row("retry.fallbackChains", Some("faulty/demo-model"), "[backup/backup-model]", 5),
        ]
    );
    let flow = "retry: {maxRetries: 1, enabled: false}\n";
    assert_eq!(
        read("omp", "config.yml", flow),
        [row("retry.maxRetries", None, "1", 1), row("retry.enabled", None, "false", 1)]
    );
}

#[test]
fn opencode_and_rivumi() {
    let text = r#"{"model": "demo/demo-model", "small_model": "demo/small", "provider": {"demo": {"options": {"apiKey": "x"}}}}"#;
    assert_eq!(read("opencode", "opencode.json", text), [row("small_model", None, "demo/small", 1)]);
    assert!(read("rivumi", "settings.json", r#"{"retry": {"maxRetries": 1}}"#).is_empty());
    assert!(read("no-such-agent", "config.toml", CODEX).is_empty());
}

#[test]
fn later_files_and_the_right_provider_win() {
    let user = settings::read("pi", "settings.json", r#"{"retry": {"maxRetries": 5, "baseDelayMs": 100}}"#);
    let project = settings::read("pi", "settings.json", r#"{"retry": {"maxRetries": 1}}"#);
    let in_force = Settings::new(user.into_iter().chain(project).collect());
    assert_eq!(in_force.get("retry.maxRetries").unwrap().value, SettingValue::Integer(1));
    assert_eq!(in_force.get("retry.baseDelayMs").unwrap().value, SettingValue::Integer(100));
    assert!(in_force.get("retry.enabled").is_none());

    let codex = Settings::new(settings::read("codex", "config.toml", CODEX));
    assert!(codex.get("request_max_retries").is_none(), "which provider answered is not known");
    let lab = codex.for_provider("lab");
    assert_eq!(lab.get("request_max_retries").unwrap().value.as_count(), Some(2));
    assert_eq!(lab.get("unbounded_connection_retries").unwrap().value.is_on(), Some(false));
}

#[test]
fn deep_nesting_is_cut_off() {
    let json = "{\"a\":".repeat(100_000);
    assert!(read("pi", "settings.json", &json).is_empty());
    assert!(read("pi", "settings.json", &"[".repeat(100_000)).is_empty());
    assert!(read("codex", "config.toml", &format!("a = {}", "[".repeat(100_000))).is_empty());
    let yaml: String = (0..2000).flat_map(|depth| [" ".repeat(depth), "a:\n".to_owned()]).collect();
    assert!(read("omp", "config.yml", &yaml).is_empty());
}

/// Text that looks like the formats, so that the generator reaches the inside of the readers.
fn near_miss() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "retry",
        "env",
        "maxRetries",
        ":",
        ": ",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "'",
        ",",
        "\n",
        "  ",
        "- ",
        "#",
        "//",
        "/*",
        "*/",
        "\\",
        "\\u00",
        "=",
        "model_providers",
        ".",
        "request_max_retries",
        "1",
        "-3",
        "1e999",
        "true",
        "null",
        "é",
        "\u{2028}",
        "fallbackChains",
        "[[",
        "]]",
        "---",
        "|",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_breaks_a_reader(
        text in prop_oneof![near_miss(), any::<String>()],
        agent in prop::sample::select(vec!["codex", "claude-code", "pi", "omp", "opencode", "rivumi"]),
        file in prop::sample::select(vec!["config.toml", "settings.json", "config.yml", "", ".", "a/b.yaml"]),
    ) {
        let lines = u32::try_from(text.lines().count()).unwrap().max(1);
        for setting in settings::read(agent, file, &text) {
            prop_assert!(setting.line.is_none_or(|line| (1..=lines).contains(&line)));
        }
    }
}
