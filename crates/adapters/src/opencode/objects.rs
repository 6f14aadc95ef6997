//! The JSON tree of 1.0 and 1.1: one file an object, below `storage/`.
//!
//! `session/<project>/<session>.json`, `message/<session>/<message>.json`, `part/<message>/<part>.json`. The files come in
//! no order and one may be missing, so that nothing is said to be all there is. Later versions leave the tree behind.

use std::path::Path;

use retryscope_record::{Facts, GapKind, Mark, Place, RunKey, Shown, Sink};

use super::AGENT;
use super::database::shows;
use super::message::{Assistant, Steps};
use crate::DocumentDecoder;
use crate::json::Object;
use crate::say::Say;

pub(super) fn recognize(path: &Path) -> bool {
    let mut names = path.iter().rev().filter_map(|part| part.to_str());
    let (Some(file), Some(folder), Some(kind)) = (names.next(), names.next(), names.next()) else {
        return false;
    };
    if names.next() != Some("storage") || path.extension().is_none_or(|extension| extension != "json") {
        return false;
    }
    kind == "message" && file.starts_with("msg_") && folder.starts_with("ses_")
        || kind == "session" && file.starts_with("ses_")
}

/// One file of the tree: a session or a message.
pub(super) struct StoredObject;

impl DocumentDecoder for StoredObject {
    fn document(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        let Some(object) = Object::parse(bytes) else {
            sink.gap(Place::Whole, GapKind::InvalidJson);
            return;
        };
        let Some(id) = object.string("id") else {
            sink.gap(Place::Whole, GapKind::IncompleteRecord);
            return;
        };
        let created = object.object("time").and_then(|time| time.time("created"));
        let session = object.string("sessionID");
        let run = RunKey::new(AGENT, session.as_deref().unwrap_or(&id));
        let mut say = Say { run, place: Place::Whole, at: created, turn: None, step: None, sink };
        if session.is_none() {
            // A session without a message says nothing, so its facts alone make no turn.
            say.mark(&Mark::Facts(Facts {
                agent_version: object.string("version"),
                parent_run_id: object.string("parentID"),
                directory: object.string("directory"),
                ..Facts::default()
            }));
            shows(Shown::Some, &mut say);
            return;
        }
        shows(Shown::Some, &mut say);
        match object.str("role").as_deref() {
            Some("user") => say.mark(&Mark::TurnStarted { turn: Some(id) }),
            Some("assistant") => Assistant::parse(&id, &object).say(Steps::default(), &mut say),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use retryscope_record::Collected;

    use super::*;

    #[test]
    fn a_message_file_tells_its_session_and_turn() {
        let mut sink = Collected::default();
        let bytes =
            br#"{"id":"msg_2","sessionID":"ses_1","role":"assistant","parentID":"msg_1","finish":"stop"}"#;
        StoredObject.document(bytes, &mut sink);
        assert!(sink.items.len() > 3 && sink.gaps.is_empty());
    }

    #[test]
    fn only_files_of_the_tree_are_taken() {
        assert!(recognize(Path::new("/d/storage/session/global/ses_1.json")));
        assert!(!recognize(Path::new("/d/storage/part/msg_1/prt_1.json")));
        assert!(!recognize(Path::new("/d/message/ses_1/msg_1.json")));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut sink = Collected::default();
        for bytes in [&b""[..], b"{", b"[]", b"{}", b"{\"id\":\"msg_1\",\"sessionID\":\"ses_1\"}"] {
            StoredObject.document(bytes, &mut sink);
        }
        assert_eq!(sink.gaps.len(), 4);
    }
}
