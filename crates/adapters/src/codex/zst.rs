//! A rollout that was put away compressed. Decoded as a stream, with a limit on what comes out of it.

use std::io::{BufRead, BufReader, Read};

use retryscope_record::{GapKind, Place, Sink};

use super::rollout::Rollout;
use crate::{DocumentDecoder, LineDecoder};

/// Most bytes that are decoded from one file.
const DECODED_LIMIT: u64 = 1 << 30;

/// Longest line that is read.
const LINE_LIMIT: u64 = 4 << 20;

pub(super) struct Compressed {
    thread: String,
}

impl Compressed {
    pub(super) fn new(thread: String) -> Self {
        Self { thread }
    }

    fn lines(&self, input: impl Read, limit: u64, sink: &mut dyn Sink) {
        // Read anew, it says the same again: nothing is known of an earlier reading.
        let mut rollout = Rollout::new(Some(self.thread.clone()));
        let mut input = BufReader::new(input.take(limit));
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            line.clear();
            number += 1;
            let place = Place::Line(number);
            match (&mut input).take(LINE_LIMIT).read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {}
                // What does not decode has no lines.
                Err(_) => {
                    sink.gap(place, GapKind::TornLine);
                    return;
                }
            }
            if line.last() == Some(&b'\n')
                || input.get_ref().limit() > 0 && line.len() < LINE_LIMIT.try_into().unwrap_or(usize::MAX)
            {
                rollout.line(place, line.trim_ascii_end(), sink);
            } else {
                sink.gap(place, GapKind::OversizedLine);
                if skip_line(&mut input).is_err() {
                    return;
                }
            }
        }
        rollout.end(sink);
    }
}

impl DocumentDecoder for Compressed {
    fn document(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        match zstd::stream::read::Decoder::new(bytes) {
            Ok(input) => self.lines(input, DECODED_LIMIT, sink),
            Err(_) => sink.gap(Place::Whole, GapKind::TornLine),
        }
    }
}

/// Reads up to the end of a line without keeping it.
fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let block = input.fill_buf()?;
        if block.is_empty() {
            return Ok(());
        }
        let end = memchr::memchr(b'\n', block);
        let length = end.map_or(block.len(), |at| at + 1);
        input.consume(length);
        if end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use retryscope_record::Collected;

    use super::*;

    const META: &str =
        "{\"timestamp\":\"2026-01-01T00:00:00Z\",\"type\":\"session_meta\",\"payload\":{\"id\":\"T\"}}\n";

    #[test]
    fn lines_come_out_as_they_went_in() {
        let bytes = zstd::encode_all(META.as_bytes(), 1).unwrap();
        let mut sink = Collected::default();
        Compressed::new("T".into()).document(&bytes, &mut sink);
        assert!(!sink.items.is_empty());
        assert!(sink.gaps.is_empty());
    }

    #[test]
    fn a_file_that_is_read_again_says_the_same() {
        let tokens = r#"{"timestamp":"2026-01-01T00:00:02Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":5,"output_tokens":1},"last_token_usage":{"input_tokens":5,"output_tokens":1}}}}"#;
        let started = r#"{"timestamp":"2026-01-01T00:00:01Z","type":"event_msg","payload":{"type":"task_started","turn_id":"t"}}"#;
        let ended = r#"{"timestamp":"2026-01-01T00:00:03Z","type":"event_msg","payload":{"type":"task_complete","turn_id":"t"}}"#;
        let text = format!("{META}{started}\n{tokens}\n{ended}\n");
        let bytes = zstd::encode_all(text.as_bytes(), 1).unwrap();
        let mut decoder = Compressed::new("T".into());
        let mut read = || {
            let mut sink = Collected::default();
            decoder.document(&bytes, &mut sink);
            format!("{:?}", sink.items)
        };
        let first = read();
        assert!(first.contains("ModelResponse"), "{first}");
        assert_eq!(read(), first);
    }

    #[test]
    fn what_decodes_to_more_than_the_limit_is_a_gap() {
        let mut sink = Collected::default();
        Compressed::new("T".into()).lines(META.repeat(3).as_bytes(), META.len() as u64 + 10, &mut sink);
        assert_eq!(sink.gaps, [(Place::Line(2), GapKind::OversizedLine)]);
    }

    #[test]
    fn any_bytes_are_read() {
        for bytes in [&b""[..], b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\x00\xff\xff\xff\xff", b"text"] {
            Compressed::new("T".into()).document(bytes, &mut Collected::default());
        }
    }
}
