//! The one core: statements of sources become runs, runs become totals.
//!
//! Pure and deterministic: no I/O, no clock. Time comes from the events; what "now" is, and whether a writer still lives,
//! the caller says ([`AsOf`]). Only this crate counts and classifies; every face reads its numbers from [`Run`] or
//! [`Totals`].

mod budget;
mod cause;
mod compare;
mod count;
mod digest;
mod engine;
mod explain;
mod grouped;
mod infer;
mod join;
mod judge;
mod line;
mod overview;
pub mod pairs;
mod recipients;
mod redact;
mod repeats;
pub mod rules;
mod run;
mod sums;
mod texts;
pub mod tools;
mod totals;
mod view;
mod waits;
pub mod words;

pub use budget::{Budget, BudgetPolicy, BudgetState, Scope, WINDOWS};
pub use compare::{Comparison, compare};
pub use count::{Bound, Count, Counts, Evidence};
pub use digest::{Digest, Moves, Spent, Wave, digest};
pub use engine::{AsOf, Engine, LeftOff, SavedView, SourceState};
pub use explain::{Explainer, Explanation, Remedy, in_short, summarize};
pub use grouped::{By, Group, grouped};
pub use judge::{Classified, Failure};
pub use line::RunLine;
pub use overview::{Exhausted, Overview, overview};
pub use recipients::{Recipient, recipients};
pub use redact::without_credentials;
pub use repeats::Forgotten;
pub use retryscope_policy::Settings;
pub use retryscope_taxonomy::{Class, Reason, reset_from_ms};
pub use run::{Attempt, Cause, Declared, LogicalRequest, RequestOutcome, Run, RunOutcome, Time, Told, Turn};
pub use sums::Sums;
pub use texts::Names;
pub use totals::{
    ATTEMPT_BUCKETS, Aliases, DEFAULT_MAX_SERIES, DELAY_BUCKETS, Folding, Histogram, LATE_AFTER, Labels,
    Metric, Series, Totals,
};
pub use waits::Waits;
