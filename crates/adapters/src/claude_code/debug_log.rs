//! The debug log (`--debug`): `<time> [LEVEL] text`, one `[API REQUEST]` line a request.
//!
//! Shows every request of the process, subagents' and compaction included, without saying which subagent. Only the main
//! loop's requests are counted for the run here; a failure line between two requests makes the second a repeat.

use chrono::{DateTime, Utc};
use retryscope_events::{
    AttemptOutcome, Body, Candidate, Event, Layer, ModelAttempt, ModelFailed, ModelRequest, ModelRetry,
    Source,
};
use retryscope_record::{Anchor, Item, Mark, Place, RunKey, Shown, Sink, TurnOutcome};

use super::{AGENT, model_of, provider_of_model};
use crate::LineDecoder;
use crate::json::holds;

/// Line beginnings that say the request before them failed and the same step goes on.
const FAILURES: &[&str] = &[
    "API error (attempt ",
    "Stream connection error",
    "Mid-stream ",
    "Error streaming, falling back",
    "Streaming endpoint returned ",
    "Non-streaming fallback also failed",
];

pub(super) fn recognize(head: &[u8]) -> bool {
    let texts = ["[API REQUEST]", "[API:timing]", "[engine] turn ", "CA certs"];
    texts.iter().any(|text| holds(head, text))
        && String::from_utf8_lossy(head).lines().take(20).any(|line| parse(line).is_some())
}

/// Splits `<time> [LEVEL] text`.
fn parse(line: &str) -> Option<(DateTime<Utc>, &str, &str)> {
    let (time, rest) = line.split_once(' ')?;
    let time = DateTime::parse_from_rfc3339(time).ok()?.with_timezone(&Utc);
    let (level, text) = rest.strip_prefix('[')?.split_once("] ")?;
    Some((time, level, text))
}

pub(super) struct DebugLog {
    run: Option<RunKey>,
    introduced: bool,
    turns: u64,
    requests: u64,
    attempts: u64,
    /// Attempts of the open logical request.
    of_open: u64,
    /// The open logical request of the main loop.
    open: Option<String>,
    /// The request before failed and nothing has been sent since.
    failed: bool,
    model: Option<String>,
    /// Whether the last request was the main loop's.
    main: bool,
}

impl DebugLog {
    /// Returns a decoder; without a session id the log is an orphan and gives nothing.
    pub(super) fn new(session: Option<String>) -> Self {
        Self {
            run: session.map(|id| RunKey::new(AGENT, id)),
            introduced: false,
            turns: 0,
            requests: 0,
            attempts: 0,
            of_open: 0,
            open: None,
            failed: false,
            model: None,
            main: false,
        }
    }

    /// Says whether each request of the turn is in the log, or its beginning is not.
    fn show(&self, run: &RunKey, place: Place, at: DateTime<Utc>, requests: Shown, sink: &mut dyn Sink) {
        let because = match requests {
            Shown::All => "the debug log has a line for each request",
            _ => "the debug log begins after the first requests of the turn",
        };
        for source in [Source::Foreground, Source::Background] {
            let mark = Mark::Shows { source, requests, attempts: requests, because };
            self.mark(run, place, at, &mark, sink);
        }
    }

    #[expect(clippy::unused_self, reason = "reads like `event` beside it")]
    fn mark(&self, run: &RunKey, place: Place, at: DateTime<Utc>, mark: &Mark, sink: &mut dyn Sink) {
        sink.item(place, Item::Mark { run, at: Some(at), mark });
    }

    fn event(
        &self,
        run: &RunKey,
        place: Place,
        at: DateTime<Utc>,
        body: impl Into<Body>,
        sink: &mut dyn Sink,
    ) {
        let mut event = Event::new(&*run.id, at, body).agent(AGENT);
        event.turn = Some(format!("#{}", self.turns.max(1)));
        sink.item(place, Item::Event(&event, None));
    }
}

impl LineDecoder for DebugLog {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        let Some(run) = self.run.clone() else { return };
        let text = String::from_utf8_lossy(line);
        let Some((at, _, text)) = parse(&text) else { return };
        if !self.introduced {
            self.introduced = true;
            self.show(&run, place, at, Shown::All, sink);
        }
        if let Some(rest) = text.strip_prefix("[engine] turn ") {
            if rest.ends_with(" start") {
                self.turns += 1;
                self.open = None;
                self.failed = false;
                let turn = Some(format!("#{}", self.turns));
                self.mark(&run, place, at, &Mark::TurnStarted { turn }, sink);
                self.show(&run, place, at, Shown::All, sink);
            } else if rest.contains(" end ") {
                if self.turns == 0 {
                    self.show(&run, place, at, Shown::Some, sink);
                }
                self.end_turn(&run, place, at, rest, sink);
            }
        } else if let Some(rest) = text.strip_prefix("[API:timing] dispatching to ") {
            self.model = rest.split_once("model=").map(|(_, model)| model_of(model.trim().to_owned()));
        } else if let Some(rest) = text.strip_prefix("[API REQUEST] ") {
            self.sent(&run, place, at, rest, sink);
        } else if self.main
            && let Some(open) = self.open.clone()
        {
            self.failure(&run, place, at, text, &open, sink);
        }
    }
}

impl DebugLog {
    fn sent(&mut self, run: &RunKey, place: Place, at: DateTime<Utc>, rest: &str, sink: &mut dyn Sink) {
        let query = rest.split_once("source=").map_or("", |(_, q)| q.trim());
        // Which subagent asked is not said; those requests are known from the subagent's own transcript.
        self.main = !query.starts_with("agent:");
        if !self.main {
            return;
        }
        let background = query == "compact";
        let candidate = Candidate {
            provider: self.model.as_deref().and_then(provider_of_model).map(str::to_owned),
            model: self.model.clone(),
            ..Candidate::default()
        };
        let repeats = self.failed && self.open.is_some() && !background;
        let id = if let Some(id) = self.open.clone().filter(|_| repeats) {
            id
        } else {
            if let Some(before) = self.open.take().filter(|_| self.failed) {
                self.event(run, place, at, ModelFailed::new().request_id(before), sink);
            }
            self.requests += 1;
            self.of_open = 0;
            let id = format!("#{}", self.requests);
            let source = if background { Source::Background } else { Source::Foreground };
            let request = ModelRequest::new().request_id(id.clone()).source(source).purpose(query);
            self.event(run, place, at, request.candidate(candidate.clone()), sink);
            id
        };
        self.attempts += 1;
        self.of_open += 1;
        let mut attempt =
            ModelAttempt::new().request_id(id.clone()).attempt_id(format!("#{}", self.attempts));
        attempt.candidate = Some(candidate);
        attempt.started_at = Some(at);
        self.event(run, place, at, attempt, sink);
        self.failed = false;
        self.open = Some(id);
    }

    fn failure(
        &mut self,
        run: &RunKey,
        place: Place,
        at: DateTime<Utc>,
        text: &str,
        open: &str,
        sink: &mut dyn Sink,
    ) {
        if !FAILURES.iter().any(|beginning| text.starts_with(beginning)) {
            return;
        }
        let first = !self.failed;
        self.failed = true;
        if !first {
            return;
        }
        let mut retry = ModelRetry::new().request_id(open).layer(Layer::Agent);
        let message = if let Some(rest) = text.strip_prefix("API error (attempt ") {
            let (numbers, message) = rest.split_once("): ").unwrap_or((rest, ""));
            let (number, most) = numbers.split_once('/').unwrap_or((numbers, ""));
            // The number is that of the loop; repeats that it does not know of only make it smaller.
            if number.parse().is_ok_and(|number: u64| number > self.of_open) {
                self.show(run, place, at, Shown::Some, sink);
                let (request_id, basis) = (open.to_owned(), "the log counts attempts that are not in it");
                let basis = basis.to_owned();
                let more = Mark::Sends { request_id, attempt_id: None, min: 0, max: None, basis };
                self.mark(run, place, at, &more, sink);
            }
            retry.max_attempts = most.parse().ok();
            // `503 503 {json}`: the status stands twice; `undefined` where there was no answer.
            let (status, message) = message.split_once(' ').unwrap_or((message, ""));
            retry.status = status.parse().ok().filter(|s| (100..600).contains(s));
            message.to_owned()
        } else if let Some(rest) = text.strip_prefix("Mid-stream ") {
            retry.status = rest.split(' ').next().and_then(|s| s.parse().ok());
            text.to_owned()
        } else {
            text.to_owned()
        };
        retry.upstream_request_id = message
            .split_once("\"request_id\":\"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .map(|(id, _)| id.to_owned());
        if let Some(id) = &retry.upstream_request_id {
            self.mark(run, place, at, &Mark::Anchor(Anchor::of(id)), sink);
        }
        retry.message = Some(message);
        self.event(run, place, at, retry, sink);
        let attempt = ModelAttempt::new().request_id(open).attempt_id(format!("#{}", self.attempts));
        self.event(run, place, at, attempt.outcome(AttemptOutcome::Failed), sink);
    }

    fn end_turn(&mut self, run: &RunKey, place: Place, at: DateTime<Utc>, rest: &str, sink: &mut dyn Sink) {
        let stop =
            rest.split_once(" stop=").and_then(|(_, rest)| rest.split([' ', ')']).next()).unwrap_or("null");
        if self.failed
            && let Some(open) = self.open.take()
        {
            self.event(run, place, at, ModelFailed::new().request_id(open), sink);
        }
        // `stop_sequence` is also what a synthetic error answer carries.
        let outcome = match stop {
            "end_turn" => TurnOutcome::Succeeded,
            "stop_sequence" if self.failed => TurnOutcome::Failed,
            _ => TurnOutcome::Unknown,
        };
        self.open = None;
        self.failed = false;
        let turn = Some(format!("#{}", self.turns.max(1)));
        self.mark(run, place, at, &Mark::TurnEnded { turn, outcome, reason: None, message: None }, sink);
    }
}

#[cfg(test)]
mod tests {
    use retryscope_record::{Collected, Statement};

    use super::*;

    /// Returns how much of the requests is shown, each time that is said.
    fn shown(lines: &[&str]) -> Vec<Shown> {
        let mut sink = Collected::default();
        let mut log = DebugLog::new(Some("s".to_owned()));
        for (n, text) in lines.iter().enumerate() {
            let line = format!("2026-01-02T03:04:0{n}.000Z [DEBUG] {text}");
            log.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
        }
        let shown = |(_, item): (_, Statement)| match item {
            Statement::Mark { mark: Mark::Shows { source: Source::Foreground, requests, .. }, .. } => {
                Some(requests)
            }
            _ => None,
        };
        sink.items.into_iter().filter_map(shown).collect()
    }

    const SENT: &str = "[API REQUEST] /v1/messages source=sdk";

    #[test]
    fn a_log_without_its_beginning_does_not_show_all_requests() {
        let (first, second) = ("API error (attempt 1/11): 500 500 x", "API error (attempt 2/11): 500 500 x");
        let (start, end) = ("[engine] turn 1 start", "[engine] turn 1 end (turns=1 stop=end_turn)");
        assert_eq!(shown(&[SENT, second]), [Shown::All, Shown::Some]);
        assert_eq!(shown(&[SENT, end]), [Shown::All, Shown::Some]);
        // What follows is whole again.
        assert_eq!(shown(&[SENT, end, start, SENT, end]), [Shown::All, Shown::Some, Shown::All]);
        // Near miss: repeats that the loop does not count.
        let silent = "Error streaming, falling back";
        assert_eq!(shown(&[start, SENT, first, SENT, second, SENT, end]), [Shown::All; 2]);
        assert_eq!(shown(&[start, SENT, silent, SENT, first, SENT, end]), [Shown::All; 2]);
    }
}
