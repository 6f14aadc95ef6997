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

use crate::json::{Object, holds};
use crate::{Adapter, DefaultPlace, DocumentDecoder, Reading, Recognized};

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
    fn a_setting_at_the_end_of_a_name_is_no_part_of_the_model() {
        let model = |name: &str| model_of(name.to_owned());
        assert_eq!(model("claude-x-4[1m]"), "claude-x-4");
        assert_eq!(model("[1m]"), "[1m]");
        assert_eq!(model("a[b]c"), "a[b]c");
        assert_eq!(model("claude-x-4"), "claude-x-4");
    }
}
