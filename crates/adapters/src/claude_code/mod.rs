//! Claude Code: session transcripts, kept standard output, debug log, OTLP.
//!
//! Run = session id; a subagent is a run of its own, `<session id>:<agent id>`. The SDK's own retries are switched off:
//! every repeat comes from the program itself, through several nested mechanisms, of which `api_error` lines show one.
//! `api-request` lines (2.1.286 and later) and the debug log show every request.

mod debug_log;
mod otlp;
mod otlp_logs;
mod stdout;
mod transcript;

use std::path::Path;

use retryscope_record::{Facts, GapKind, Item, Mark, Place, RunKey, Sink, View};

use crate::json::{Object, elements, holds};
use crate::{Adapter, DefaultPlace, DocumentDecoder, LineDecoder, Reading, Recognized};

pub(crate) use otlp::Export;

pub(crate) const AGENT: &str = "claude-code";

pub(crate) const ADAPTER: Adapter = Adapter {
    agent: AGENT,
    places: &[DefaultPlace { env: Some("CLAUDE_CONFIG_DIR"), below: "", home: ".claude" }],
    recognize,
};

fn recognize(path: &Path, head: &[u8]) -> Option<Recognized> {
    let name = path.file_name()?.to_str()?;
    let lines =
        |view, decoder| Some(Recognized { agent: Some(AGENT), view, reading: Reading::Lines(decoder) });
    if name.ends_with(".meta.json") && holds(head, "\"toolUseId\"") {
        let reading = Reading::Document(Box::new(SubagentMeta { run: run_of_subagent(path)? }));
        return Some(Recognized { agent: Some(AGENT), view: View::RESULT, reading });
    }
    // Parsed only for what the bytes allow: this is asked of every file.
    let records = || head.split(|b| *b == b'\n').take(20).filter_map(Object::parse);
    let is_stdout = |r: Object<'_>| {
        let begins = || r.is("type", "system") && r.is("subtype", "init");
        let ends = || r.is("type", "result") && r.raw("is_error").is_some();
        r.raw("session_id").is_some() && (begins() || ends())
    };
    if holds(head, "\"session_id\"") && records().any(is_stdout) {
        return lines(View::STDOUT, Box::<stdout::Stdout>::default());
    }
    if holds(head, "\"session_id\"") && is_whole_output(head) {
        let reading = Reading::Document(Box::new(WholeOutput));
        return Some(Recognized { agent: Some(AGENT), view: View::STDOUT, reading });
    }
    let line_types =
        ["user", "assistant", "system", "queue-operation", "api-request", "file-history-snapshot", "summary"];
    let of_transcript = |r: Object<'_>| {
        r.str("type").is_some_and(|t| line_types.contains(&t.as_ref()))
            && (r.raw("sessionId").is_some() || r.raw("leafUuid").is_some())
    };
    let names_session = holds(head, "\"sessionId\"");
    // A first line longer than the head shows only its beginning.
    let cut = || {
        path.extension().is_some_and(|e| e == "jsonl")
            && holds(head, "\"sessionId\":\"")
            && holds(head, "\"uuid\":\"")
            && records().next().is_none()
    };
    if (names_session || holds(head, "\"leafUuid\"")) && (records().any(of_transcript) || cut()) {
        return lines(View::SESSION, Box::<transcript::Transcript>::default());
    }
    if debug_log::recognize(head) {
        return lines(View::DEBUG_LOG, Box::new(debug_log::DebugLog::new(session_of_debug_log(path))));
    }
    None
}

/// Returns the key of a subagent's run.
pub(crate) fn subagent_key(session_id: &str, agent_id: &str) -> RunKey {
    RunKey::new(AGENT, format!("{session_id}:{agent_id}"))
}

/// A debug log is named for its session.
fn session_of_debug_log(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    (stem.len() == 36 && stem.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')).then(|| stem.to_owned())
}

/// `<session id>/subagents/agent-<agent id>.meta.json`.
fn run_of_subagent(path: &Path) -> Option<RunKey> {
    let agent_id = path.file_name()?.to_str()?.strip_prefix("agent-")?.strip_suffix(".meta.json")?;
    let session_id = path.parent()?.parent()?.file_name()?.to_str()?;
    Some(subagent_key(session_id, agent_id))
}

/// The small file beside a subagent's transcript: which tool call started it.
struct SubagentMeta {
    run: RunKey,
}

impl DocumentDecoder for SubagentMeta {
    fn document(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        let Some(record) = Object::parse(bytes) else {
            sink.gap(Place::Whole, GapKind::InvalidJson);
            return;
        };
        let parent = self.run.id.split_once(':').map(|(session, _)| session.to_owned());
        let facts =
            Facts { parent_run_id: parent, parent_call_id: record.string("toolUseId"), ..Facts::default() };
        sink.item(Place::Whole, Item::Mark { run: &self.run, at: None, mark: &Mark::Facts(facts) });
    }
}

/// Standard output that is one value over several lines, or a list of what else stands on lines.
struct WholeOutput;

/// Returns whether a file begins like the result of a process, or like the list of all that it said.
fn is_whole_output(head: &[u8]) -> bool {
    let begins = head.iter().copied().find(|byte| !byte.is_ascii_whitespace());
    match begins {
        Some(b'{') => has_member(head, "type", "result") && holds(head, "\"is_error\""),
        Some(b'[') => has_member(head, "type", "system") && has_member(head, "subtype", "init"),
        _ => false,
    }
}

/// Returns whether some object in the bytes has this member, however it is set.
fn has_member(bytes: &[u8], name: &str, value: &str) -> bool {
    let (name, value) = (format!("\"{name}\""), format!("\"{value}\""));
    memchr::memmem::find_iter(bytes, &name).any(|at| {
        let rest = bytes[at + name.len()..].trim_ascii_start();
        rest.strip_prefix(b":").is_some_and(|rest| rest.trim_ascii_start().starts_with(value.as_bytes()))
    })
}

impl DocumentDecoder for WholeOutput {
    fn document(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        let mut lines = stdout::Stdout::default();
        match (elements(bytes), Object::parse(bytes)) {
            (Some(elements), _) => {
                for element in elements {
                    lines.line(Place::Whole, element.as_bytes(), sink);
                }
            }
            (None, Some(_)) => lines.line(Place::Whole, bytes.trim_ascii(), sink),
            (None, None) => sink.gap(Place::Whole, GapKind::InvalidJson),
        }
        lines.end(sink);
    }
}

/// Returns whether a version is this one or a later one.
fn is_at_least(version: &str, least: [u64; 3]) -> bool {
    let mut parts = version.split(['.', '-', ' ']).map_while(|part| part.parse().ok());
    let version: [u64; 3] = std::array::from_fn(|_| parts.next().unwrap_or(0));
    version >= least
}

/// Returns whether a request is of the conversation itself: in print mode, or interactive.
fn is_main(query: &str) -> bool {
    query == "sdk" || query.starts_with("repl_main_thread")
}

/// Returns the model that a name stands for: the program's own `opus[1m]` asks `opus`, with a longer context.
pub(crate) fn model_of(name: String) -> String {
    match name.strip_suffix(']').and_then(|name| name.rsplit_once('[')) {
        Some((model, _)) if !model.is_empty() => model.to_owned(),
        _ => name,
    }
}

/// Returns the provider, as far as a model id tells it.
pub(crate) fn provider_of_model(model: &str) -> Option<&'static str> {
    let names_vendor = || model.contains('.') && model.split('.').any(|part| part == "anthropic");
    (model.starts_with("arn:") || names_vendor()).then_some("bedrock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_over_several_lines_and_in_a_list_is_read_like_lines() {
        let result = r#"{ "type" : "result",
            "is_error": true, "session_id": "s", "num_turns": 3,
            "result": "API Error: 500 {}" }"#;
        let list = r#"[{"type":"system","subtype":"init","session_id":"s"}, {"type":"result","is_error":false,"session_id":"s"}]"#;
        let view = |text: &str| recognize(Path::new("out.json"), text.as_bytes()).map(|found| found.view);
        for text in [result, list] {
            assert_eq!(view(text), Some(View::STDOUT), "{text}");
            let mut sink = retryscope_record::Collected::default();
            WholeOutput.document(text.as_bytes(), &mut sink);
            assert!(sink.gaps.is_empty());
            let is_end = |item: &retryscope_record::Statement| {
                matches!(item, retryscope_record::Statement::Mark { mark: Mark::TurnEnded { .. }, .. })
            };
            assert_eq!(sink.items.iter().filter(|(_, item)| is_end(item)).count(), 1, "{text}");
        }
        // Near misses: another kind of object, and one that says the word elsewhere.
        for text in
            ["{\n\"type\": \"config\", \"session_id\": 1, \"is_error\": 2}", "[{\"session_id\": \"s\"}]"]
        {
            assert_eq!(view(text), None, "{text}");
        }
    }

    #[test]
    fn versions_are_compared_by_number() {
        let reaches = |version: &str| is_at_least(version, [2, 1, 77]);
        assert!(reaches("2.1.77") && reaches("2.1.100") && reaches("2.2") && reaches("3.0.0-beta"));
        assert!(!reaches("2.1.9") && !reaches("1.9.100") && !reaches("") && !reaches("unknown"));
    }

    #[test]
    fn a_setting_at_the_end_of_a_name_is_no_part_of_the_model() {
        let model = |name: &str| model_of(name.to_owned());
        assert_eq!(model("claude-x-4[1m]"), "claude-x-4");
        assert_eq!(model("[1m]"), "[1m]");
        assert_eq!(model("a[b]c"), "a[b]c");
        assert_eq!(model("claude-x-4"), "claude-x-4");
    }
}
