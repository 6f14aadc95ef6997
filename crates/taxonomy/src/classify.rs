//! The main path: layers, then the row that decides, then what was stated about waiting.

use crate::failure::{Confidence, Failure, Judgement};
use crate::index::{Chain, Index, Match, Rank};
use crate::unwrap::{Layer, layers, spelled_layers, status_of_name, status_of_phrase};
use crate::wait::{self, LONGEST_THROTTLE_MS, Places, Stated};
use crate::weigh::{blames_request, outweighs_status};
use crate::{Class, Reason};

/// Says what a failure is.
///
/// The innermost cause decides: a provider's error inside a gateway's inside an SDK's text counts before what wraps
/// it. Within one layer the provider's own rows go before shared ones, and the status alone decides only where no
/// wording or code did. Deterministic, and never fails: what no row knows is [`Class::Unknown`].
///
/// ```
/// use retryscope_taxonomy::{Class, Failure, Reason, classify};
///
/// let judgement = classify(&Failure {
///     provider: Some("openai"),
///     status: Some(429),
///     body: Some(r#"{"error":{"code":"insufficient_quota","message":"Your quota is used up."}}"#),
///     ..Failure::default()
/// });
/// assert_eq!((judgement.class, judgement.reason), (Class::Exhausted, Reason::Quota));
/// assert!(!judgement.retryable);
/// ```
pub fn classify(failure: &Failure<'_>) -> Judgement {
    let index = Index::get();
    let chain = index.chain(failure.provider, [failure.body, failure.message]);
    let mut layers = layers(failure.body, failure.message.or(failure.code));
    if layers.is_empty() {
        // Headers and the status can still tell.
        layers.push(Layer::default());
    }
    let statuses = effective_statuses(&layers, failure.status);
    let by_words = |guess| by_layers(index, &layers, &statuses, failure.headers, &chain, guess);
    let status = statuses.iter().flatten().copied().find(|s| *s >= 400).or(failure.status);
    let by_code = failure.code.and_then(|code| index.best(&Layer::of_code(code), status, &[], &chain, false));
    let settles = |matched: &Match| matched.rank == Rank::Fine;
    let by_spelling = |guess| {
        let layers = spelled_layers(failure.body, failure.message.or(failure.code));
        let statuses = effective_statuses(&layers, failure.status);
        by_layers(index, &layers, &statuses, &[], &chain, guess)
    };
    let found = sooner(by_words(false), by_code.filter(settles))
        .or_else(|| {
            let alone = by_status(index, &statuses, failure.status, &chain)?;
            let outweighs = |guess: &Match| {
                status.is_some_and(|status| outweighs_status(guess.row, alone.row, status, &layers))
            };
            let guess = by_words(true).or_else(|| by_spelling(true)).filter(outweighs);
            guess.or(Some(alone))
        })
        .or(by_code)
        .or_else(|| by_named_status(index, &layers, &chain));
    // That a client gave up is no cause: one that it names in a code of its own goes before that.
    let cause = found.filter(|matched| matched.row.reason != Reason::RetriesExhausted);
    let spelled_cause =
        || by_spelling(false).filter(|matched| matched.row.reason != Reason::RetriesExhausted);
    let matched = cause
        .or_else(|| found.and_then(|gave_up| spelled_cause().or(Some(gave_up))))
        .or_else(|| by_words(true))
        .or_else(|| by_spelling(false))
        .or_else(|| by_spelling(true));

    let verdict = matched.map_or_else(|| Verdict::unmatched(status), Verdict::of);
    let places = Places {
        sentences: !matches!(
            verdict.class,
            Class::Auth | Class::InvalidRequest | Class::Content | Class::Cancelled
        ),
        plan_windows: verdict.class == Class::Exhausted,
        reset_from_ms: wait::reset_from_ms(verdict.class, verdict.reason),
    };
    let stated = wait::read(failure.headers, &layers, places, failure.now);
    let is_told_to_wait = matched.is_none() && status.is_none() && stated.retry_after_ms.is_some();
    let verdict = if is_told_to_wait { Verdict::told_to_wait() } else { verdict };
    Judgement {
        class: verdict.class,
        reason: verdict.reason,
        retryable: is_retryable(&verdict, &stated),
        retry_after_ms: stated.retry_after_ms,
        reset_at: stated.reset_at,
        reset_clock: stated.reset_clock,
        should_retry: stated.should_retry,
        rule: verdict.rule,
        confidence: verdict.confidence,
    }
}

struct Verdict {
    class: Class,
    reason: Reason,
    retryable: bool,
    rule: &'static str,
    confidence: Confidence,
}

impl Verdict {
    fn of(matched: Match) -> Self {
        let row = matched.row;
        let confidence = match (matched.rank, matched.shared) {
            (Rank::Fine, false) => Confidence::High,
            (Rank::StatusOnly, true) | (Rank::Guess, _) => Confidence::Low,
            _ => Confidence::Medium,
        };
        Self {
            class: row.class,
            reason: row.reason,
            retryable: row.retryable.unwrap_or_else(|| row.class.is_retryable()),
            rule: matched.rule,
            confidence,
        }
    }

    /// Who is told how long to wait, and nothing else, asked too often.
    fn told_to_wait() -> Self {
        Self { class: Class::Throttled, reason: Reason::RateLimit, ..Self::unmatched(None) }
    }

    /// One bounded retry for a server's unknown failure, or for one that nothing is known of; none for a 4xx.
    fn unmatched(status: Option<u16>) -> Self {
        let is_client_error = status.is_some_and(|status| (400..500).contains(&status));
        let reason = if is_client_error { Reason::Unrecognized4xx } else { Reason::NoDetail };
        Self {
            class: Class::Unknown,
            reason,
            retryable: !is_client_error,
            rule: "none",
            confidence: Confidence::Low,
        }
    }
}

/// The match that goes first, as if both were of one layer.
fn sooner(words: Option<Match>, code: Option<Match>) -> Option<Match> {
    match (words, code) {
        (Some(words), Some(code)) => Some(if code.place < words.place { code } else { words }),
        (words, code) => words.or(code),
    }
}

/// The status that holds for each layer: its own, else that of the nearest wrapper that states one.
fn effective_statuses(layers: &[Layer], given: Option<u16>) -> Vec<Option<u16>> {
    let mut statuses = vec![given; layers.len()];
    for from_body in [true, false] {
        let mut outer = given;
        for (layer, status) in
            layers.iter().zip(&mut statuses).rev().filter(|(layer, _)| layer.from_body == from_body)
        {
            // Beside a status that blames the request, a number in its words is one that the request held.
            let is_echo = layer.status_in_words && blames_request(outer);
            outer = layer.status.filter(|_| !is_echo).or(outer);
            *status = outer;
        }
    }
    if statuses.iter().all(Option::is_none)
        && let Some(said) = layers.iter().find_map(|layer| status_of_phrase(&layer.text))
    {
        statuses.fill(Some(said));
    }
    statuses
}

fn by_layers(
    index: &'static Index,
    layers: &[Layer],
    statuses: &[Option<u16>],
    headers: &[(&str, &str)],
    chain: &Chain,
    guess: bool,
) -> Option<Match> {
    // A wrapper that states no status is judged with the one of what it wraps.
    let mut inner = None;
    layers.iter().zip(statuses).find_map(|(layer, status)| {
        inner = status.or(inner);
        index.best(layer, inner, headers, chain, guess)
    })
}

fn by_status(
    index: &'static Index,
    statuses: &[Option<u16>],
    given: Option<u16>,
    chain: &Chain,
) -> Option<Match> {
    let seen = statuses.iter().copied().chain([given]).flatten();
    seen.filter(|status| *status >= 400).find_map(|status| index.by_status(status, chain))
}

/// A code that is the name of a status stands for that status, where no number does.
fn by_named_status(index: &'static Index, layers: &[Layer], chain: &Chain) -> Option<Match> {
    let mut codes = layers.iter().flat_map(|layer| &layer.codes);
    codes.find_map(|code| index.by_status(status_of_name(code)?, chain))
}

fn is_retryable(verdict: &Verdict, stated: &Stated) -> bool {
    let too_long = stated.retry_after_ms.is_some_and(|ms| ms > LONGEST_THROTTLE_MS);
    if verdict.class == Class::Throttled && too_long {
        return false;
    }
    match (verdict.class, stated.should_retry) {
        // The header speaks of sending the same again, which is not what helps, or not what is wanted, in these.
        (Class::Exhausted | Class::Auth | Class::Cancelled | Class::TooLarge, _) | (_, None) => {
            verdict.retryable
        }
        (_, Some(should_retry)) => should_retry,
    }
}
