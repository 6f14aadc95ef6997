//! Who received the content of a run.
//!
//! Every request that reached, or may have reached, a server carried the conversation. Not for: judging whether that was
//! allowed (rule RS401 does).

use chrono::{DateTime, Utc};
use retryscope_events::{Candidate, Source};
use retryscope_record::Origin;

use crate::count::Bound;
use crate::run::Run;

/// One provider, model, endpoint, region and account that content went to.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipient {
    /// Who; the transport and the alias are left out, since they change nothing about who reads it.
    pub candidate: Candidate,
    /// Requests with content, as far as attempts are in the log.
    pub requests: Bound,
    /// Whether it received requests of the conversation, not only side calls (titles, summaries).
    pub foreground: bool,
    /// When the first one was sent; `None` where the log gives no time.
    pub first_at: Option<DateTime<Utc>>,
    /// Where the first one stands.
    pub origin: Origin,
}

/// Returns who received content, in the order in which they first did.
///
/// A request whose connection failed carried nothing. A recipient that no log names has an empty candidate.
pub fn recipients(run: &Run) -> Vec<Recipient> {
    let mut found: Vec<Recipient> = Vec::new();
    for request in run.turns.iter().flat_map(|turn| &turn.requests) {
        for attempt in request.attempts.iter().filter(|a| a.reached != Some(false)) {
            if attempt.sends.max == Some(0) {
                continue;
            }
            let candidate =
                Candidate { transport: None, alias: None, ..Candidate::clone(&attempt.candidate) };
            let foreground = request.source == Source::Foreground;
            match found.iter_mut().find(|known| known.candidate == candidate) {
                Some(known) => {
                    known.requests = known.requests.plus(attempt.sends);
                    known.foreground |= foreground;
                    known.first_at = known.first_at.or(attempt.started_at);
                }
                None => found.push(Recipient {
                    candidate,
                    requests: attempt.sends,
                    foreground,
                    first_at: attempt.started_at,
                    origin: attempt.origin,
                }),
            }
        }
    }
    found
}
