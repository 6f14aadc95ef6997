//! pi and its fork oh-my-pi: two profiles over one parser. `OpenClaw`, which has pi inside, is read the same way.
//!
//! Run = session id. Both keep one assistant entry for each attempt of the session loop, failed ones too; what their
//! lower layers repeat is in no log and is left to the analysis, which knows their policies by `api`. Session files,
//! JSON and RPC streams hold the same messages with the same times, so that requests have the same id in both.
//!
//! Not for: exit codes (pi ends with 0 after a failure) and omp's own statistics, which repeat the blind spots.

mod answer;
mod conversation;
mod credentials;
mod log;
mod session;
mod stream;

use std::path::Path;

use retryscope_record::View;

use crate::json::{Object, holds};
use crate::{Adapter, DefaultPlace, Reading, Recognized};

pub(crate) const PI: Adapter = Adapter {
    agent: "pi",
    places: &[
        DefaultPlace { env: Some("PI_CODING_AGENT_DIR"), below: "", home: ".pi/agent" },
        DefaultPlace { env: None, below: "", home: ".openclaw/agents" },
    ],
    recognize: recognize_pi,
};

pub(crate) const OMP: Adapter = Adapter {
    agent: "omp",
    places: &[
        DefaultPlace { env: None, below: "", home: ".omp/agent" },
        DefaultPlace { env: None, below: "", home: ".omp/logs" },
        DefaultPlace { env: Some("XDG_DATA_HOME"), below: "omp", home: ".local/share/omp" },
        DefaultPlace { env: Some("XDG_STATE_HOME"), below: "omp", home: ".local/state/omp" },
    ],
    recognize: recognize_omp,
};

/// Which of the programs wrote a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Pi,
    Omp,
    OpenClaw,
}

impl Profile {
    fn agent(self) -> &'static str {
        match self {
            Profile::Pi => "pi",
            Profile::Omp => "omp",
            Profile::OpenClaw => "openclaw",
        }
    }

    /// The first records tell who wrote them: pi's format version is the same in all.
    fn of(path: &Path, head: &[u8]) -> Self {
        let below = |folder: &str| is_below(path, folder);
        let omp_only = [
            "\"attribution\":",
            "\"errorStatus\":",
            "\"type\":\"title\"",
            "\"resolvedModelIsFallback\":",
            "\"type\":\"advisor_cost_changed\"",
            "\"type\":\"extension_ui_request\"",
            "\"type\":\"ready\",\"protocolVersion\"",
            "\"customType\":\"session_exit\"",
        ];
        let says = |marks: &[&str]| marks.iter().any(|mark| holds(head, mark));
        if below(".omp") || says(&omp_only) {
            Profile::Omp
        } else if below(".openclaw")
            || says(&["\"customType\":\"openclaw:", "\"customType\":\"model-snapshot\""])
        {
            Profile::OpenClaw
        } else {
            Profile::Pi
        }
    }
}

fn is_below(path: &Path, folder: &str) -> bool {
    path.components().any(|part| part.as_os_str() == folder)
}

fn recognize_pi(path: &Path, head: &[u8]) -> Option<Recognized> {
    recognize(path, head, |profile| profile != Profile::Omp)
}

fn recognize_omp(path: &Path, head: &[u8]) -> Option<Recognized> {
    let agent = Some(Profile::Omp.agent());
    if log::recognize(head) {
        return Some(Recognized {
            agent,
            view: View::LOG,
            reading: Reading::Lines(Box::new(log::Log::default())),
        });
    }
    if credentials::recognize(path, head) {
        let reading = Reading::Database(Box::new(credentials::Credentials::default()));
        return Some(Recognized { agent, view: View::RESULT, reading });
    }
    recognize(path, head, |profile| profile == Profile::Omp)
}

fn recognize(path: &Path, head: &[u8], mine: fn(Profile) -> bool) -> Option<Recognized> {
    let records: Vec<Object<'_>> = head.split(|b| *b == b'\n').take(40).filter_map(Object::parse).collect();
    let header = records
        .iter()
        .find(|r| r.is("type", "session") && r.raw("id").is_some() && r.raw("timestamp").is_some());
    let streams = records.iter().any(stream::is_event);
    if header.is_none() && !(streams && records.iter().any(stream::is_surely_ours)) {
        return None;
    }
    let profile = Profile::of(path, head);
    // All these programs begin with the same record: until the next one comes, only the place tells which of them it was.
    let is_told = records.len() > 1 || profile != Profile::Pi || is_below(path, ".pi");
    if !mine(profile) || !is_told {
        return None;
    }
    let (view, decoder): (_, Box<dyn crate::LineDecoder>) = if streams {
        (View::STDOUT, Box::new(stream::Stream::new(profile)))
    } else {
        (View::SESSION, Box::new(session::Session::new(profile, path)))
    };
    Some(Recognized { agent: Some(profile.agent()), view, reading: Reading::Lines(decoder) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_file_and_a_stream_differ_by_what_follows_the_header() {
        let header =
            r#"{"type":"session","version":3,"id":"s-1","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}"#;
        let view = |rest: &str| {
            let head = format!("{header}\n{rest}\n");
            recognize_pi(Path::new("x.jsonl"), head.as_bytes()).map(|r| (r.agent, r.view))
        };
        assert_eq!(view(r#"{"type":"model_change","id":"a"}"#), Some((Some("pi"), View::SESSION)));
        assert_eq!(view(r#"{"type":"agent_start"}"#), Some((Some("pi"), View::STDOUT)));
        assert_eq!(view(r#"{"type":"advisor_cost_changed"}"#), None);
    }

    #[test]
    fn a_header_alone_tells_the_program_only_by_its_place() {
        let header = br#"{"type":"session","version":3,"id":"s-1","timestamp":"2026-01-02T03:04:05.000Z"}"#;
        let agent = |path: &str| {
            let path = Path::new(path);
            recognize_pi(path, header).or_else(|| recognize_omp(path, header)).and_then(|r| r.agent)
        };
        assert_eq!(agent("stdout.jsonl"), None);
        assert_eq!(agent("/h/.pi/agent/sessions/x/s.jsonl"), Some("pi"));
        assert_eq!(agent("/h/.omp/agent/sessions/x/s.jsonl"), Some("omp"));
        assert_eq!(agent("/h/.openclaw/agents/x/s.jsonl"), Some("openclaw"));
    }

    #[test]
    fn other_files_are_not_ours() {
        for head in ["", "{}", "{\"type\":\"session\"}", "{\"type\":\"agent_start\"}", "\u{0}\u{1}"] {
            assert!(recognize_pi(Path::new("x.jsonl"), head.as_bytes()).is_none(), "{head}");
            assert!(recognize_omp(Path::new("x.jsonl"), head.as_bytes()).is_none(), "{head}");
        }
    }
}
