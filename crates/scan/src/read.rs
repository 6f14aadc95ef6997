//! Reads one source to its end.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use retryscope_adapters::{
    DatabaseDecoder, DocumentDecoder, HEAD_LENGTH, LineDecoder, Reading, Recognized, is_complete_json,
    may_hold_records, open_database, recognize, records_run_together,
};
use retryscope_analysis::{Engine, SourceState};
use retryscope_record::{GapKind, Item, Origin, Place, Sink, SourceId, View};
use retryscope_tail::{Found, Line, LineReader, first_lines};

use crate::{Problem, Source, SourceGap};

/// Largest file that is read as one document.
const DOCUMENT_LIMIT: u64 = 16 << 20;

/// Bytes that the first read of a file asks for: most files are no longer.
const FIRST_READ: usize = 256 << 10;

/// What one source says.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) id: SourceId,
    pub(crate) source: Source,
    pub(crate) state: SourceState,
    /// What it says, by itself.
    pub(crate) engine: Engine,
    pub(crate) gaps: Vec<SourceGap>,
    /// Reading stopped before its end.
    pub(crate) problem: Option<Problem>,
}

/// What became of a file.
#[derive(Debug)]
pub(crate) enum Outcome {
    Said(Box<Said>),
    /// It is one small part of what many files say together, and not worth a thread, or it may repeat what another one holds:
    /// [`file_in_order`] reads it.
    InOrder(SourceId),
    /// No adapter reads it.
    NotOurs,
    Failed(Problem),
}

/// Returns whether a file is worth opening.
pub(crate) fn is_candidate(found: &Found) -> bool {
    found.metadata.len() > 0 && may_hold_records(&found.path)
}

/// Reads one file by itself; `buffer` is used again from file to file.
pub(crate) fn file(found: &Found, id: SourceId, buffer: &mut Vec<u8>) -> Outcome {
    read_file(found, id, buffer, None).unwrap_or_else(|error| Outcome::Failed(problem(&found.path, &error)))
}

/// Reads one file into an engine that knows what earlier files say; the engine is in the outcome, or left where it is.
pub(crate) fn file_in_order(
    found: &Found,
    id: SourceId,
    buffer: &mut Vec<u8>,
    engine: &mut Engine,
) -> Outcome {
    read_file(found, id, buffer, Some(engine))
        .unwrap_or_else(|error| Outcome::Failed(problem(&found.path, &error)))
}

fn problem(path: &Path, error: &dyn std::fmt::Display) -> Problem {
    Problem { path: path.to_path_buf(), message: error.to_string() }
}

/// Recognizes a file by its first bytes, or by its first lines where these are not enough.
pub fn recognize_at(path: &Path, head: &[u8]) -> Option<Recognized> {
    recognize(path, head).or_else(|| {
        let more =
            (head.len() >= HEAD_LENGTH).then(|| File::open(path).and_then(first_lines).ok()).flatten()?;
        recognize(path, &more.bytes)
    })
}

fn read_file(
    found: &Found,
    id: SourceId,
    buffer: &mut Vec<u8>,
    before: Option<&mut Engine>,
) -> io::Result<Outcome> {
    let mut input = File::open(&found.path)?;
    if buffer.len() < FIRST_READ {
        buffer.resize(FIRST_READ, 0);
    }
    let filled = fill(&mut input, &mut buffer[..FIRST_READ])?;
    let Some(recognized) = recognize_at(&found.path, &buffer[..filled.min(HEAD_LENGTH)]) else {
        return Ok(Outcome::NotOurs);
    };
    let is_telemetry = matches!(recognized.view, View::OTLP_LOGS | View::OTLP_TRACES);
    if (recognized.view == View::OBJECTS || is_telemetry) && before.is_none() {
        return Ok(Outcome::InOrder(id));
    }
    let source = Source {
        path: found.path.clone(),
        agent: recognized.agent,
        view: recognized.view,
        bytes: found.metadata.len(),
        names_run: false,
    };
    let engine = before.map(std::mem::take).unwrap_or_default();
    let mut said = Said::begin(id, source, engine);
    said.state.written_at = found.metadata.modified().ok().map(Into::into);
    let result = match recognized.reading {
        Reading::Lines(mut decoder) => {
            let mut lines = LineReader::begun(input, std::mem::take(buffer), filled);
            let result = said.lines(decoder.as_mut(), &mut lines);
            *buffer = lines.into_buffer();
            result
        }
        Reading::Document(mut decoder) => {
            let whole = whole_document(input, &buffer[..filled], found.metadata.len());
            whole.map(|whole| tell_document(decoder.as_mut(), whole.as_deref(), &mut said))
        }
        Reading::Database(mut decoder) => {
            said.database(decoder.as_mut());
            Ok(())
        }
    };
    said.problem = result.err().map(|error| problem(&found.path, &error));
    Ok(Outcome::Said(Box::new(said)))
}

/// Reads what follows `begun` of a document of this length; `None` for one that is too large.
pub fn whole_document(input: impl Read, begun: &[u8], length: u64) -> io::Result<Option<Vec<u8>>> {
    if length > DOCUMENT_LIMIT {
        return Ok(None);
    }
    let mut bytes = begun.to_vec();
    input.take(DOCUMENT_LIMIT).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Hands a document to its decoder; one that is too large is a gap.
pub fn tell_document(decoder: &mut dyn DocumentDecoder, whole: Option<&[u8]>, sink: &mut dyn Sink) {
    match whole {
        Some(bytes) => decoder.document(bytes, sink),
        None => sink.gap(Place::Whole, GapKind::OversizedLine),
    }
}

/// Reads a stream, for example standard input.
pub(crate) fn stream(name: &Path, id: SourceId, mut input: impl Read) -> Outcome {
    let mut head = vec![0; HEAD_LENGTH];
    let mut kept = Vec::new();
    match fill(&mut input, &mut head) {
        Ok(length) => head.truncate(length),
        Err(error) => return Outcome::Failed(problem(name, &error)),
    }
    let recognized = recognize(name, &head).or_else(|| {
        // The first line is longer: what is read of it for this is read again below.
        let more = first_lines(Cursor::new(&head).chain(Keep { input: &mut input, kept: &mut kept })).ok()?;
        recognize(name, &more.bytes)
    });
    let Some(recognized) = recognized else { return Outcome::NotOurs };
    let (agent, view) = (recognized.agent, recognized.view);
    let source = Source { path: PathBuf::from(name), agent, view, bytes: 0, names_run: false };
    let mut said = Said::begin(id, source, Engine::new());
    let input = Cursor::new(head).chain(Cursor::new(kept)).chain(input);
    let result = match recognized.reading {
        Reading::Lines(mut decoder) => said.lines(decoder.as_mut(), &mut LineReader::new(input)),
        // A database is a file; a stream cannot be one.
        Reading::Database(_) => Ok(()),
        Reading::Document(mut decoder) => {
            let mut bytes = Vec::new();
            let result = input.take(DOCUMENT_LIMIT).read_to_end(&mut bytes).map(drop);
            decoder.document(&bytes, &mut said);
            result
        }
    };
    said.problem = result.err().map(|error| problem(name, &error));
    Outcome::Said(Box::new(said))
}

/// Reads on, and keeps what it read.
struct Keep<'a, R> {
    input: &'a mut R,
    kept: &'a mut Vec<u8>,
}

impl<R: Read> Read for Keep<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.input.read(buffer)?;
        self.kept.extend_from_slice(&buffer[..got]);
        Ok(got)
    }
}

impl Said {
    fn begin(id: SourceId, source: Source, engine: Engine) -> Self {
        Self { id, source, state: SourceState::default(), engine, gaps: Vec::new(), problem: None }
    }

    /// What it says of runs stands in another source, too.
    pub(crate) fn of_a_copy(self) -> Self {
        Self { engine: Engine::new(), ..self }
    }

    fn lines(&mut self, decoder: &mut dyn LineDecoder, lines: &mut LineReader<impl Read>) -> io::Result<()> {
        while let Some(line) = lines.next_line()? {
            feed(decoder, line, self);
        }
        decoder.end(self);
        Ok(())
    }

    fn database(&mut self, decoder: &mut dyn DatabaseDecoder) {
        let result = open_database(&self.source.path)
            .map_err(|error| error.to_string())
            .and_then(|opened| decoder.rows(opened.connection(), self).map_err(|error| error.to_string()));
        if let Err(message) = result {
            self.gap(Place::Whole, GapKind::Database { message });
        }
    }
}

impl Sink for Said {
    fn item(&mut self, place: Place, item: Item<'_>) {
        self.engine.apply(self.source.view, Origin { source: self.id, place }, item);
        self.source.names_run = true;
    }

    fn is_new(&mut self, id: u64) -> bool {
        self.engine.is_new_record(self.id, id)
    }

    fn gap(&mut self, place: Place, kind: GapKind) {
        if kind.hides_records() {
            self.engine.gap(self.source.view, self.id);
        }
        self.gaps.push(SourceGap { source: self.id, place, kind });
    }
}

/// Hands one line to a decoder; a line that is cut or too long is a gap of its own kind. Of a line that is broken, the records
/// that stand whole at its end count. A line of text says itself nowhere that it is whole, so that one without its end is
/// cut: the beginning of an id would be another id.
pub fn feed(decoder: &mut dyn LineDecoder, line: Line<'_>, sink: &mut dyn Sink) {
    let place = Place::Line(line.number);
    let is_json = matches!(line.bytes.first(), Some(b'{' | b'['));
    let broken = || is_json && !is_complete_json(line.bytes);
    if !line.complete && (!is_json || broken()) {
        sink.gap(place, GapKind::TornLine);
    } else if line.shortened && broken() {
        sink.gap(place, GapKind::OversizedLine);
    } else {
        let mut broken = Broken { sink, is_broken: false };
        decoder.line(place, line.bytes, &mut broken);
        if !broken.is_broken {
            return;
        }
        let records = records_run_together(line.bytes).unwrap_or_default();
        let are_all = records.first().is_some_and(|first| line.bytes.trim_ascii_start().starts_with(first));
        if !are_all {
            sink.gap(place, GapKind::InvalidJson);
        }
        for record in records {
            decoder.line(place, record, sink);
        }
    }
}

/// Keeps back that a line is broken.
struct Broken<'a> {
    sink: &'a mut dyn Sink,
    is_broken: bool,
}

impl Sink for Broken<'_> {
    fn item(&mut self, place: Place, item: Item<'_>) {
        self.sink.item(place, item);
    }

    fn is_new(&mut self, id: u64) -> bool {
        self.sink.is_new(id)
    }

    fn gap(&mut self, place: Place, kind: GapKind) {
        if kind == GapKind::InvalidJson {
            self.is_broken = true;
        } else {
            self.sink.gap(place, kind);
        }
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
