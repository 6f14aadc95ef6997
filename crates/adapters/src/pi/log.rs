//! omp's program log, `omp.<date>.<pid>.log`: one warning for each failed attempt of the session loop.
//!
//! It names its session only when the process ends in an orderly way, so what it says is kept until then; a log that never
//! names one is left out, since another log may hold the same run. Answers are not in it.

use retryscope_events::{AttemptOutcome, Candidate, ModelAttempt, ModelRequest, Source};
use retryscope_record::{GapKind, Mark, Place, RunKey, Shown, Sink};

use super::Profile;
use super::answer::Answer;
use crate::LineDecoder;
use crate::json::{Object, holds};
use crate::say::Say;

/// Failures that are kept until the session is named.
const KEPT_LIMIT: usize = 4096;

const FAILED: &str = "agent turn ended with provider error";

pub(super) fn recognize(head: &[u8]) -> bool {
    head.split(|b| *b == b'\n').take(5).filter_map(Object::parse).any(|record| {
        record.raw("timestamp").is_some()
            && record.raw("level").is_some()
            && record.u64("pid").is_some()
            && record.raw("message").is_some()
            && record.raw("type").is_none()
    })
}

#[derive(Default)]
pub(super) struct Log {
    kept: Vec<(Place, Failed)>,
    last_advanced: bool,
    requests: u64,
}

/// One failed attempt.
struct Failed {
    at: Option<chrono::DateTime<chrono::Utc>>,
    /// Whether an answer came since the failure before.
    is_new_request: bool,
    attempt: ModelAttempt,
}

impl LineDecoder for Log {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        let matters = [FAILED, "Session exit recorded", "agent_end maintenance routing"]
            .iter()
            .any(|text| holds(line, text));
        if !matters {
            return;
        }
        let Some(record) = Object::parse(line) else {
            sink.gap(place, GapKind::InvalidJson);
            return;
        };
        match record.str("message").as_deref() {
            Some(FAILED) if self.kept.len() < KEPT_LIMIT => {
                let is_new_request = std::mem::take(&mut self.last_advanced) || self.kept.is_empty();
                self.kept.push((
                    place,
                    Failed { at: record.time("timestamp"), is_new_request, attempt: attempt(&record) },
                ));
            }
            Some("agent_end maintenance routing") => {
                self.last_advanced |= !record.is("stopReason", "error");
            }
            Some("Session exit recorded") => {
                if let Some(id) = record.string("sessionId") {
                    let say = Say {
                        run: RunKey::new(Profile::Omp.agent(), id),
                        place,
                        at: record.time("timestamp"),
                        turn: None,
                        step: None,
                        sink,
                    };
                    self.flush(say);
                }
            }
            _ => {}
        }
    }
}

impl Log {
    fn flush(&mut self, mut say: Say<'_>) {
        let because = "the program log shows failed attempts only";
        for source in [Source::Foreground, Source::Background] {
            say.mark(&Mark::Shows { source, requests: Shown::None, attempts: Shown::Some, because });
        }
        say.mark(&Mark::EndsUntold);
        for (place, failed) in self.kept.drain(..) {
            say.place = place;
            say.at = failed.at;
            if failed.is_new_request {
                self.requests += 1;
                say.event(
                    ModelRequest::new().request_id(format!("#{}", self.requests)).source(Source::Foreground),
                );
            }
            let mut attempt = failed.attempt;
            attempt.request_id = Some(format!("#{}", self.requests));
            attempt.ended_at = failed.at;
            say.event(attempt);
        }
    }
}

fn attempt(record: &Object<'_>) -> ModelAttempt {
    let mut attempt = ModelAttempt::new();
    attempt.outcome = Some(AttemptOutcome::Failed);
    attempt.candidate = Some(Candidate {
        provider: record.string("provider"),
        model: record.string("model"),
        ..Candidate::default()
    });
    let (message, retry_after_ms) = Answer::error_text(record);
    attempt.status = record.status("errorStatus");
    attempt.message = message;
    attempt.retry_after_ms = retry_after_ms;
    attempt
}

#[cfg(test)]
mod tests {
    use retryscope_record::{Collected, Statement};

    use super::*;

    fn read(lines: &[&str]) -> Collected {
        let mut sink = Collected::default();
        let mut log = Log::default();
        for (n, line) in lines.iter().enumerate() {
            log.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
        }
        sink
    }

    const LINE: &str = r#"{"timestamp":"2026-01-02T03:04:05.000+00:00","level":"warn","pid":7,"message":"agent turn ended with provider error","provider":"p","model":"m","errorMessage":"503 busy","errorStatus":503}"#;

    #[test]
    fn failures_are_said_once_the_session_is_named() {
        assert!(recognize(LINE.as_bytes()) && !recognize(b"{\"timestamp\":1}"));
        let exit = r#"{"timestamp":"2026-01-02T03:04:06.000+00:00","pid":7,"message":"Session exit recorded","sessionId":"s"}"#;
        let said = read(&[LINE, LINE, exit]);
        let events = said.items.iter().filter(|(_, item)| matches!(item, Statement::Event(..))).count();
        assert_eq!(events, 3);
        assert!(read(&[LINE]).items.is_empty());
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let said = read(&[
            "agent turn ended with provider error",
            "\u{0}",
            "{\"message\":\"Session exit recorded\"}",
        ]);
        assert_eq!((said.items.len(), said.gaps.len()), (0, 1));
    }
}
