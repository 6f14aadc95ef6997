//! The model answers a rollout speaks of: where one is asked for, answered or given up, as far as its records tell.
//!
//! An answer is proved by its tokens (a usage record, or totals that grew), where the provider states none by its items.

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{
    Candidate, Layer, ModelFailed, ModelRequest, ModelResponse, ModelRetry, Source, Usage,
};
use retryscope_record::{Mark, Place, Shown};

use crate::codex::error::Told;
use crate::codex::say::Say;
use crate::codex::{at_least, fields};
use crate::json::Object;

/// The shortest wait before a repeat, in either loop: 200 ms with 10 % jitter. A server that states a wait may state none.
const SHORTEST_WAIT: TimeDelta = TimeDelta::milliseconds(180);

/// So long after what leads to it, a tool's result or the context of a turn, a request is surely under way.
const SURELY_SENT: TimeDelta = TimeDelta::milliseconds(1_000);

/// Most dead streams of one request whose places are kept.
const DIED_LIMIT: usize = 1_000;

/// What was asked so far.
#[derive(Default)]
pub(super) struct Asking {
    provider: Option<String>,
    model: Option<String>,
    form: Form,
    requests: u64,
    open: Option<Open>,
    /// Requests before the running turn.
    before: u64,
    /// The next request follows, or may.
    due: Option<Due>,
    /// What is there of an answer to no request that is known: that of a summary, unless tokens say otherwise.
    early: Option<Early>,
    /// The model spoke, called a tool, since the last request began.
    said: bool,
    called: bool,
    last_total: Option<(u64, u64)>,
    owed: Owed,
    last_response: Option<String>,
    /// An answer that may turn out to be a summary of the conversation.
    spoken: Option<Spoken>,
    /// The conversation was summarized, and nothing was asked for since.
    after_summary: bool,
}

/// Where the next request is asked for.
struct Due {
    place: Place,
    at: Option<DateTime<Utc>>,
    /// It follows unless the program is stopped. Behind a summary that a person asked for none does.
    is_sure: bool,
}

/// An answer of which the request is not known.
struct Early {
    place: Place,
    at: Option<DateTime<Utc>>,
    /// Its tokens; without them it may be a text that the program added.
    usage: Option<Usage>,
}

/// Counts that are still to come and tell of no stream.
#[derive(Default)]
struct Owed {
    /// That of a usage record.
    usage: bool,
    /// That of what a summary left of the conversation.
    summary: bool,
}

impl Owed {
    /// Returns whether a count is one of them, and takes it off.
    fn take(&mut self) -> bool {
        std::mem::take(&mut self.usage) || std::mem::take(&mut self.summary)
    }
}

/// An answer without a tool call, after counts that may have been streams that died.
struct Spoken {
    open: Open,
    usage: Option<Usage>,
    place: Place,
    at: Option<DateTime<Utc>>,
}

/// Whether answers leave records of their tokens: a count without one is a stream that died.
#[derive(Default, PartialEq, Eq, PartialOrd, Ord)]
enum UsageRecords {
    /// Not as far as is known.
    #[default]
    Unknown,
    /// The version writes them, where the provider states tokens.
    Written,
    /// One was seen.
    Seen,
}

/// What the file's version, or what was seen of it, tells about the meaning of its records.
#[derive(Default)]
struct Form {
    usage: UsageRecords,
    /// A second context for the same request is a stream that died.
    context_per_stream: bool,
    /// Totals were seen to grow, so that answers can be told by them.
    totals_grow: bool,
}

/// The request that is open.
struct Open {
    id: String,
    /// Something of an answer is there.
    items: bool,
    /// A tool's result came before the tokens of the answer that called it.
    result: bool,
    /// Only counts since the last context.
    clean: bool,
    /// When it was asked for.
    since: Option<DateTime<Utc>>,
    /// Nothing but counts since then.
    quiet_from: Option<DateTime<Utc>>,
    /// Streams that died.
    died: Vec<(Place, Option<DateTime<Utc>>)>,
    /// Tokens without items: the answer's, unless the next record is a compaction.
    held: Option<Usage>,
}

impl Asking {
    pub(super) fn version(&mut self, version: Option<&str>) {
        // Seen from 0.155 on, and in no file before 0.151.
        if at_least(version, 0, 155) && self.form.usage == UsageRecords::Unknown {
            self.form.usage = UsageRecords::Written;
        }
        self.form.context_per_stream = at_least(version, 0, 60) && !at_least(version, 0, 136);
    }

    pub(super) fn provider(&mut self, provider: Option<String>) {
        self.provider = provider;
    }

    /// The model or the provider was changed.
    pub(super) fn settings(&mut self, settings: &Object<'_>) {
        self.provider = settings.string("model_provider_id").or(self.provider.take());
        self.model = settings.string("model").or(self.model.take());
    }

    pub(super) fn has_usage_records(&self) -> bool {
        self.form.usage > UsageRecords::Unknown
    }

    pub(super) fn is_open(&self) -> bool {
        self.due.as_ref().is_some_and(|due| due.is_sure)
            || self.open.as_ref().is_some_and(|open| open.held.is_none() && !open.items)
    }

    /// Returns whether the last thing the model did was to speak: without a tool call its turn is over.
    pub(super) fn is_answered(&self) -> bool {
        self.open.is_none() && self.due.is_none() && self.said && !self.called
    }

    /// A record of a copied history: only its totals matter.
    pub(super) fn skip(&mut self, payload: &Object<'_>) {
        if payload.is("type", "token_count") {
            self.grown(payload);
        }
    }

    /// A new turn begins.
    pub(super) fn leave(&mut self, say: &mut Say<'_>) {
        self.settle(say);
        if let Some(open) = self.open.take() {
            tell_died(&open, open.died.len().saturating_sub(1), say);
        }
        self.due = None;
        self.early = None;
        self.after_summary = false;
        self.before = self.requests;
        self.said = false;
        self.called = false;
    }

    pub(super) fn context(&mut self, model: Option<String>, say: &mut Say<'_>) {
        self.model = model.or(self.model.take());
        self.settle(say);
        if self.after_summary && self.open.is_none() && self.due.is_none() {
            // More was asked in the turn before: it goes on. Else a prompt tells.
            let is_sure = self.requests - self.before > 1;
            self.due = Some(Due { place: say.place, at: say.at, is_sure });
            return;
        }
        let again = self.form.context_per_stream
            && self.due.is_none()
            && self.open.as_ref().is_some_and(|open| open.clean);
        let open = self.ensure(say);
        if again && open.died.len() < DIED_LIMIT {
            open.died.push((say.place, say.at));
        }
        open.clean = true;
        open.quiet_from = say.at;
    }

    /// A prompt: a request follows.
    pub(super) fn prompted(&mut self, say: &mut Say<'_>) {
        self.quiet(say);
        if let Some(due) = &mut self.due {
            due.is_sure = true;
        }
    }

    /// A record that says nothing of requests, but that time passed until here.
    pub(super) fn quiet(&mut self, say: &mut Say<'_>) {
        self.settle(say);
        if let Some(open) = &mut self.open {
            open.clean = false;
            open.quiet_from = say.at;
        }
    }

    pub(super) fn said(&mut self, say: &mut Say<'_>) {
        self.said_in_part(say);
        if self.has_usage_records() && self.open.is_none() {
            // A summary before the first request of a turn has no context of its own. Its tokens follow it.
            self.early = Some(Early { place: say.place, at: say.at, usage: None });
        }
        self.said = true;
    }

    pub(super) fn called(&mut self, say: &mut Say<'_>) {
        self.said_in_part(say);
        self.called = true;
    }

    pub(super) fn said_in_part(&mut self, say: &mut Say<'_>) {
        self.settle(say);
        // A provider that states no tokens: what follows a tool's result is the next answer.
        if !self.form.totals_grow
            && self.form.usage < UsageRecords::Seen
            && self.open.as_ref().is_some_and(|open| open.result)
        {
            self.answer(None, say);
        }
        if self.due.is_some() {
            self.ensure(say);
        }
        if let Some(open) = &mut self.open {
            open.items = true;
            // The result was not the last thing of this answer.
            open.result = false;
            open.clean = false;
            open.quiet_from = say.at;
        }
    }

    pub(super) fn result(&mut self, say: &mut Say<'_>) {
        self.settle(say);
        match &mut self.open {
            Some(open) => {
                open.result |= open.items;
                open.clean = false;
                open.quiet_from = say.at;
            }
            None => self.due = Some(Due { place: say.place, at: say.at, is_sure: true }),
        }
    }

    pub(super) fn usage_record(&mut self, payload: &Object<'_>, say: &mut Say<'_>) {
        let response = payload.string("response_id");
        if response.is_some() && response == self.last_response {
            return;
        }
        if self.early.as_ref().is_none_or(|early| early.usage.is_some()) {
            self.settle(say);
        }
        self.form.usage = UsageRecords::Seen;
        self.owed.usage = true;
        say.anchor(response.as_deref());
        self.last_response = response;
        let usage = payload.object("usage").map(|usage| fields::usage(&usage)).unwrap_or_default();
        self.tokens(usage, say);
    }

    pub(super) fn token_count(&mut self, payload: &Object<'_>, say: &mut Say<'_>) {
        let grown = self.grown(payload);
        if self.has_usage_records() {
            if self.owed.take() || say.turn.is_none() {
                return;
            }
            self.settle(say);
            let is_stated = self.form.usage == UsageRecords::Seen;
            if self.open.is_some() || self.due.is_some() {
                let open = self.ensure(say);
                // A provider that states no tokens: that is the count of the answer that stands before it.
                let is_answered = !is_stated && open.items;
                if !is_answered && open.died.len() < DIED_LIMIT {
                    open.died.push((say.place, say.at));
                }
            }
        } else if let Some(usage) = grown
            && say.turn.is_some()
        {
            self.settle(say);
            self.form.totals_grow = true;
            self.tokens(usage, say);
        }
    }

    /// The conversation was summarized, by the answer that the record names: a request of its own. One that left no more
    /// than its tokens is told here, in the background.
    pub(super) fn compacted(&mut self, response: Option<&str>, say: &mut Say<'_>) {
        self.owed.summary = self.has_usage_records();
        self.after_summary = true;
        if let Some(early) = self.early.take() {
            // Nothing else was asked for before: who waits for the turn waits for this.
            self.summary(Source::Foreground, early.usage, say);
            return;
        }
        let is_told = response.is_some() && response == self.last_response.as_deref();
        let is_answered = self.open.as_ref().is_none_or(|open| open.held.is_none());
        if is_told && is_answered {
            if let Some(mut spoken) = self.spoken.take() {
                // Each stream of a summary leaves a count, the one that was answered too.
                spoken.open.died.pop();
                self.tell(spoken, say);
            }
            return;
        }
        self.speak(say);
        let usage = self.open.as_mut().and_then(|open| open.held.take());
        self.summary(Source::Background, usage, say);
    }

    fn summary(&mut self, source: Source, usage: Option<Usage>, say: &mut Say<'_>) {
        self.requests += 1;
        let id = format!("#{}", self.requests);
        let request = ModelRequest::new().request_id(id.clone()).source(source).purpose("compaction");
        say.event(request.candidate(self.candidate()));
        let mut response = ModelResponse::new().request_id(id);
        response.usage = usage;
        say.event(response);
    }

    pub(super) fn failed(&mut self, told: &Told, say: &mut Say<'_>) {
        self.speak(say);
        let has_tokens = self.early.take().is_some_and(|early| early.usage.is_some());
        let is_first = self.requests == self.before;
        if self.due.is_some() || has_tokens {
            self.ensure(say);
        } else if self.open.is_none() && is_first && told.is_of_request() {
            // A summary that a person asks for leaves no record before it ends. When it was sent is not known.
            self.ensure(say).quiet_from = None;
        }
        let Some(open) = self.open.take() else { return };
        // These two write one count more.
        let extra = matches!(told.code.as_deref(), Some("context_window_exceeded" | "usage_limit_exceeded"));
        let died = open.died.len().saturating_sub(usize::from(extra));
        let retries = if told.is_before_stream() { died } else { died.saturating_sub(1) };
        tell_died(&open, retries, say);
        let mut failed = ModelFailed::new().request_id(open.id.clone()).candidate(self.candidate());
        told.fill_failed(&mut failed);
        say.event(failed);
        let elapsed = open.quiet_from.zip(say.at).map(|(from, to)| to - from);
        let known = !told.message.is_empty() && !told.may_hide_requests();
        let request_id = open.id;
        if known && retries == 0 && elapsed.is_some_and(|elapsed| elapsed < SHORTEST_WAIT) {
            say.mark(&if told.may_state_wait() {
                // Streams may have been opened again at once.
                Mark::SentOnceEach { request_id }
            } else {
                Mark::Sends {
                    request_id,
                    attempt_id: None,
                    min: 0,
                    max: Some(0),
                    basis: "it failed sooner than the shortest wait before a repeat".into(),
                }
            });
        }
    }

    pub(super) fn succeeded(&mut self, has_message: bool, say: &mut Say<'_>) {
        self.settle(say);
        if has_message && self.open.is_some() {
            self.answer(None, say);
        }
        self.open = None;
        self.due = None;
    }

    pub(super) fn aborted(&mut self, say: &mut Say<'_>) {
        self.settle(say);
        if let Some(Due { at: since, is_sure, .. }) = self.due {
            // An abort writes a result for the tool that it stops; whether the next request was sent shows the time.
            if is_sure && since.zip(say.at).is_some_and(|(since, at)| at - since >= SURELY_SENT) {
                self.ensure(say);
            } else {
                Self::hide(
                    "the session file does not say whether another request was under way when the turn was stopped",
                    say,
                );
            }
        } else if self.requests == self.before {
            Self::hide(
                "the session file does not say whether a request was under way when the turn was stopped",
                say,
            );
        }
        let is_untouched = |open: &Open| !open.items && !open.result && open.died.is_empty();
        let may_be_unsent =
            |open: &Open| open.since.zip(say.at).is_none_or(|(since, at)| at - since < SURELY_SENT);
        if self.open.take_if(|open| is_untouched(open) && may_be_unsent(open)).is_some() {
            // The context of a request is written before the request is sent, and before the prompt of its turn.
            say.mark(&Mark::Copied);
            Self::hide(
                "the session file does not say whether the last request had been sent when the turn was stopped",
                say,
            );
        }
        if let Some(open) = self.open.take() {
            // Whether one more was sent after the last stream died is not said.
            tell_died(&open, open.died.len().saturating_sub(1), say);
        }
        self.due = None;
    }

    /// Not all requests are shown.
    pub(super) fn hide(because: &'static str, say: &mut Say<'_>) {
        say.mark(&Mark::Shows {
            source: Source::Foreground,
            requests: Shown::Some,
            attempts: Shown::None,
            because,
        });
    }

    fn candidate(&self) -> Candidate {
        Candidate { provider: self.provider.clone(), model: self.model.clone(), ..Candidate::default() }
    }

    /// Returns the open request, opening one where needed.
    fn ensure(&mut self, say: &mut Say<'_>) -> &mut Open {
        let due = self.due.take();
        self.after_summary = false;
        if self.open.is_none() {
            self.said = false;
            self.called = false;
            self.requests += 1;
        }
        let id = format!("#{}", self.requests);
        let candidate = self.candidate();
        self.open.get_or_insert_with(|| {
            let (place, at) = (say.place, say.at);
            (say.place, say.at) = due.map_or((place, at), |due| (due.place, due.at));
            let request =
                ModelRequest::new().request_id(id.clone()).source(Source::Foreground).purpose("main");
            say.event(request.candidate(candidate));
            let (since, quiet_from) = (say.at, say.at);
            (say.place, say.at) = (place, at);
            Open {
                id,
                items: false,
                result: false,
                clean: false,
                since,
                quiet_from,
                died: Vec::new(),
                held: None,
            }
        })
    }

    /// Tokens of an answer have come.
    fn tokens(&mut self, usage: Usage, say: &mut Say<'_>) {
        if self.open.is_none() && self.due.is_none() {
            let at = self.early.take().map_or((say.place, say.at), |early| (early.place, early.at));
            self.early = Some(Early { place: at.0, at: at.1, usage: Some(usage) });
            return;
        }
        let open = self.ensure(say);
        if open.items {
            self.answer(Some(usage), say);
        } else {
            open.held = Some(usage);
        }
    }

    /// The record after an answer, or after held tokens, is no compaction: they were the model's word to the prompt.
    fn settle(&mut self, say: &mut Say<'_>) {
        self.speak(say);
        if let Some(Early { place, at, usage: usage @ Some(_) }) = self.early.take() {
            let here = (say.place, say.at);
            (say.place, say.at) = (place, at);
            self.ensure(say);
            self.answer(usage, say);
            (say.place, say.at) = here;
        }
        if let Some(usage) = self.open.as_mut().and_then(|open| open.held.take()) {
            self.answer(Some(usage), say);
        }
    }

    fn answer(&mut self, usage: Option<Usage>, say: &mut Say<'_>) {
        let Some(open) = self.open.take() else { return };
        if open.result {
            self.due = Some(Due { place: say.place, at: say.at, is_sure: true });
        }
        let may_be_summary = self.has_usage_records() && self.said && !self.called && !open.died.is_empty();
        let spoken = Spoken { open, usage, place: say.place, at: say.at };
        if may_be_summary {
            self.spoken = Some(spoken);
        } else {
            self.tell(spoken, say);
        }
    }

    /// Tells the answer that was kept back.
    fn speak(&mut self, say: &mut Say<'_>) {
        if let Some(spoken) = self.spoken.take() {
            self.tell(spoken, say);
        }
    }

    fn tell(&self, spoken: Spoken, say: &mut Say<'_>) {
        let Spoken { open, usage, place, at } = spoken;
        tell_died(&open, open.died.len(), say);
        let mut response = ModelResponse::new().request_id(open.id).candidate(self.candidate());
        response.usage = usage;
        let here = (say.place, say.at);
        (say.place, say.at) = (place, at);
        say.event(response);
        (say.place, say.at) = here;
    }

    /// Returns the tokens of the last answer if the totals grew.
    fn grown(&mut self, payload: &Object<'_>) -> Option<Usage> {
        let info = payload.object("info")?;
        let total = info.object("total_token_usage")?;
        let total = (total.u64("input_tokens")?, total.u64("output_tokens")?);
        let before = self.last_total.replace(total);
        if before == Some(total) || total == (0, 0) {
            return None;
        }
        Some(info.object("last_token_usage").map(|usage| fields::usage(&usage)).unwrap_or_default())
    }
}

/// Says that streams died, as far back as they did.
fn tell_died(open: &Open, count: usize, say: &mut Say<'_>) {
    let here = (say.place, say.at);
    for (place, at) in open.died.iter().take(count) {
        (say.place, say.at) = (*place, *at);
        say.event(ModelRetry::new().request_id(open.id.clone()).layer(Layer::Stream));
    }
    (say.place, say.at) = here;
}
