//! What happens to the followed files: each line, whole document, reset and rotation goes to the decoder of its file.
//!
//! Not for: which decoder that is (`super`) or what it finds (`into`).

use std::fs::File;
use std::path::Path;

use chrono::Utc;
use retryscope_adapters::{HEAD_LENGTH, is_complete_json, open_database, recognize};
use retryscope_record::{GapKind, Place, Sink as _, SourceId, View};
use retryscope_scan::settings::agent_of;
use retryscope_scan::{feed, tell_document, whole_document};
use retryscope_tail::{Happening, Interest, Line, Listener};
use tracing::warn;

use super::into::Into;
use super::{Decoder, Source, Sources, head_of};

/// Lines between two looks at the watchdog.
const BEAT_EVERY: u64 = 4_096;

/// Lines after which what they said is counted, and what is over forgotten, also in the middle of a backlog.
const COUNT_EVERY: u64 = 200_000;

impl Listener for Sources {
    fn opened(&mut self, id: u32, path: &Path, head: &[u8], before: Option<u32>) -> Interest {
        if let Some(agent) = agent_of(path) {
            let decoder = Decoder::Settings(agent);
            let (path, view, head) = (path.to_path_buf(), View::SETTINGS, HEAD_LENGTH);
            let source = Source { agent: Some(agent), view, path, decoder, head };
            self.decoders.insert(id, source);
            return Interest::Whole;
        }
        match recognize(path, head) {
            Some(recognized) => self.take_up(id, path, recognized, head.len(), before),
            None => Interest::None,
        }
    }

    fn line(&mut self, id: u32, line: Line<'_>) {
        self.lines += 1;
        if self.lines.is_multiple_of(BEAT_EVERY) {
            self.beat();
        }
        if self.lines.is_multiple_of(COUNT_EVERY) {
            self.count_so_far();
        }
        if line.bytes.is_empty() {
            return;
        }
        // A file whose decoder is not there was read before the last start and has not been begun again: begin it.
        if !self.decoders.contains_key(&id) {
            let path = self.shared.lock().paths.get(&SourceId(id)).cloned();
            if let Some((path, head)) = path.and_then(|path| head_of(&path).map(|head| (path, head))) {
                let goes_on = self.saved.contains_key(&id);
                self.begin(id, &path, &head);
                // A session cannot be understood from its middle.
                let is_session = self.decoders.get(&id).is_some_and(|source| source.view != View::EVENTS);
                if is_session && !goes_on && line.offset > 0 {
                    self.read_again(id, line.offset);
                }
            }
        }
        self.recognize_anew(id, &line);
        let Some(source) = self.decoders.get_mut(&id) else { return };
        let Decoder::Lines(decoder) = &mut source.decoder else { return };
        self.touched.insert(id);
        self.going_on.insert(id);
        let mut state = self.shared.lock();
        feed(decoder.as_mut(), line, &mut Into { state: &mut state, id: SourceId(id), view: source.view });
    }

    fn is_whole_line(&self, bytes: &[u8]) -> bool {
        bytes.first() == Some(&b'{') && bytes.last() == Some(&b'}') && is_complete_json(bytes)
    }

    fn whole(&mut self, id: u32, path: &Path) {
        self.touched.insert(id);
        self.beat();
        if let Some(source) = self.decoders.get_mut(&id) {
            source.path = path.to_path_buf();
        }
        self.read_whole(id, path);
    }

    fn replaced(&mut self, id: u32) -> bool {
        // Our own schema is a log that goes on; a session file that was replaced holds everything anew.
        self.decoders.get(&id).is_none_or(|source| source.view != View::EVENTS)
    }

    fn is_document(&self, id: u32) -> bool {
        self.decoders.get(&id).is_some_and(|source| matches!(source.view, View::SESSION | View::STDOUT))
    }

    fn reset(&mut self, id: u32) {
        // What a source said before the last start is void too, though it has no decoder since.
        self.shared.lock().engine.reset_source(SourceId(id));
        let Some(source) = self.decoders.remove(&id) else { return };
        self.unbegun.insert(id);
        if let Some(head) = head_of(&source.path) {
            self.begin(id, &source.path, &head);
        }
    }

    fn happened(&mut self, id: u32, happening: Happening) {
        match happening {
            Happening::Renamed { to } => {
                if let Some(source) = self.decoders.get_mut(&id) {
                    source.path.clone_from(&to);
                }
                let mut state = self.shared.lock();
                state.counts.rotations += 1;
                state.paths.insert(SourceId(id), to);
            }
            Happening::Truncated { possible_loss } => {
                {
                    let counts = &mut self.shared.lock().counts;
                    counts.truncations += 1;
                    counts.truncations_without_copy += u64::from(possible_loss.is_none());
                }
                if possible_loss.is_none() && self.complaints.may("truncated") {
                    warn!(source = id, "a file was cut; lines written just before may be lost");
                }
            }
            Happening::Rewritten => self.shared.lock().counts.rotations += 1,
            Happening::Removed => {
                self.decoders.remove(&id);
                self.unbegun.remove(&id);
                self.shared.lock().gone.insert(SourceId(id), Utc::now());
            }
            Happening::Unreadable { message } => {
                if self.complaints.may("unreadable") {
                    warn!(source = id, message, "cannot read a file for now");
                }
            }
        }
    }
}

impl Sources {
    fn read_whole(&mut self, id: u32, path: &Path) {
        let Some(source) = self.decoders.get_mut(&id) else { return };
        let mut state = self.shared.lock();
        let view = source.view;
        match &mut source.decoder {
            Decoder::Document(decoder) => {
                let length = std::fs::metadata(path).map_or(0, |m| m.len());
                match File::open(path).and_then(|file| whole_document(file, &[], length)) {
                    Ok(whole) => {
                        state.engine.reset_source(SourceId(id));
                        let mut into = Into { state: &mut state, id: SourceId(id), view };
                        tell_document(decoder.as_mut(), whole.as_deref(), &mut into);
                    }
                    // It may have been replaced just now; what was read of it before stays until it is read again.
                    Err(error) => {
                        if self.complaints.may("unreadable") {
                            warn!(source = id, %error, "cannot read a file for now");
                        }
                    }
                }
            }
            Decoder::Database(decoder) => {
                let mut into = Into { state: &mut state, id: SourceId(id), view };
                let result =
                    open_database(path).and_then(|opened| decoder.rows(opened.connection(), &mut into));
                if let Err(error) = result {
                    into.gap(Place::Whole, GapKind::Database { message: error.to_string() });
                }
            }
            Decoder::Settings(agent) => {
                self.settings.read(agent, path);
                self.settings_changed = true;
            }
            Decoder::Lines(_) => {}
        }
    }
}
