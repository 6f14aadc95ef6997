//! Reads one source to its end into the engine.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use retryscope_adapters::{
    DatabaseDecoder, HEAD_LENGTH, LineDecoder, Reading, Recognized, is_complete_json, may_hold_records,
    open_database, recognize,
};
use retryscope_analysis::SourceState;
use retryscope_record::{GapKind, Item, Origin, Place, Sink, SourceId, View};
use retryscope_tail::{Found, Line, LineReader};

use crate::{Problem, Scan, Source, SourceGap};

/// Largest file that is read as one document.
const DOCUMENT_LIMIT: u64 = 16 << 20;

pub(crate) fn file(scan: &mut Scan, found: &Found) {
    if found.metadata.len() == 0 || !may_hold_records(&found.path) {
        return;
    }
    if let Err(error) = read_file(scan, found) {
        scan.problems.push(Problem { path: found.path.clone(), message: error.to_string() });
    }
}

fn read_file(scan: &mut Scan, found: &Found) -> io::Result<()> {
    let mut input = File::open(&found.path)?;
    let mut head = vec![0; HEAD_LENGTH];
    let length = fill(&mut input, &mut head)?;
    let Some(recognized) = recognize(&found.path, &head[..length]) else { return Ok(()) };
    if let Reading::Database(decoder) = recognized.reading {
        database(scan, found, recognized.agent, recognized.view, decoder);
        return Ok(());
    }
    input.seek(SeekFrom::Start(0))?;
    let written_at = found.metadata.modified().ok().map(Into::into);
    let id = begin(scan, &found.path, recognized.agent, recognized.view, found.metadata.len());
    scan.states.insert(id, SourceState { written_at, ..SourceState::default() });
    decode(scan, id, recognized, input, found.metadata.len())
}

pub(crate) fn stream(scan: &mut Scan, name: &Path, mut input: impl Read) {
    let mut head = vec![0; HEAD_LENGTH];
    let result = fill(&mut input, &mut head).and_then(|length| {
        head.truncate(length);
        let Some(recognized) = recognize(name, &head) else { return Ok(()) };
        let id = begin(scan, name, recognized.agent, recognized.view, 0);
        decode(scan, id, recognized, Cursor::new(head).chain(input), 0)
    });
    if let Err(error) = result {
        scan.problems.push(Problem { path: name.to_path_buf(), message: error.to_string() });
    }
}

fn database(
    scan: &mut Scan,
    found: &Found,
    agent: Option<&'static str>,
    view: View,
    mut decoder: Box<dyn DatabaseDecoder>,
) {
    let id = begin(scan, &found.path, agent, view, found.metadata.len());
    let written_at = found.metadata.modified().ok().map(Into::into);
    scan.states.insert(id, SourceState { written_at, ..SourceState::default() });
    let result = open_database(&found.path).map_err(|error| error.to_string()).and_then(|opened| {
        decoder
            .rows(opened.connection(), &mut EngineSink { scan, id, view })
            .map_err(|error| error.to_string())
    });
    if let Err(message) = result {
        scan.gaps.push(SourceGap { source: id, place: Place::Whole, kind: GapKind::Database { message } });
    }
}

fn begin(scan: &mut Scan, path: &Path, agent: Option<&'static str>, view: View, bytes: u64) -> SourceId {
    let id = SourceId(u32::try_from(scan.sources.len()).unwrap_or(u32::MAX));
    let source = Source { path: path.to_path_buf(), agent, view, bytes, names_run: false };
    scan.sources.insert(id, source);
    id
}

fn decode(
    scan: &mut Scan,
    id: SourceId,
    recognized: Recognized,
    input: impl Read,
    length: u64,
) -> io::Result<()> {
    let view = recognized.view;
    match recognized.reading {
        Reading::Lines(mut decoder) => {
            let mut lines = LineReader::new(input);
            while let Some(line) = lines.next_line()? {
                feed(decoder.as_mut(), line, &mut EngineSink { scan, id, view });
            }
            decoder.end(&mut EngineSink { scan, id, view });
        }
        // A database is a file; a stream cannot be one.
        Reading::Database(_) => {}
        Reading::Document(mut decoder) => {
            if length > DOCUMENT_LIMIT {
                scan.gaps.push(SourceGap { source: id, place: Place::Whole, kind: GapKind::OversizedLine });
                return Ok(());
            }
            let mut bytes = Vec::new();
            input.take(DOCUMENT_LIMIT).read_to_end(&mut bytes)?;
            decoder.document(&bytes, &mut EngineSink { scan, id, view });
        }
    }
    Ok(())
}

/// Hands one line to a decoder; a line that is cut or too long is a gap of its own kind.
pub fn feed(decoder: &mut dyn LineDecoder, line: Line<'_>, sink: &mut dyn Sink) {
    let place = Place::Line(line.number);
    let broken = || line.bytes.first() == Some(&b'{') && !is_complete_json(line.bytes);
    if !line.complete && broken() {
        sink.gap(place, GapKind::TornLine);
    } else if line.shortened && broken() {
        sink.gap(place, GapKind::OversizedLine);
    } else {
        decoder.line(place, line.bytes, sink);
    }
}

fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match input.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(got) => length += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Hands what a decoder finds to the engine.
struct EngineSink<'a> {
    scan: &'a mut Scan,
    id: SourceId,
    view: View,
}

impl Sink for EngineSink<'_> {
    fn item(&mut self, place: Place, item: Item) {
        self.scan.engine.apply(self.view, Origin { source: self.id, place }, &item);
        if let Some(source) = self.scan.sources.get_mut(&self.id) {
            source.names_run = true;
        }
    }

    fn gap(&mut self, place: Place, kind: GapKind) {
        self.scan.engine.gap(self.view, self.id);
        self.scan.gaps.push(SourceGap { source: self.id, place, kind });
    }
}
