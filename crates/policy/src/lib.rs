//! What coding agents and SDKs do when a model request fails, as data, and one's own `policy.toml`.
//!
//! Three questions are answered here:
//!
//! - *How many requests can stand behind one that a log shows?* [`find`] gives the [`Policy`] of an agent
//!   version, [`Policy::max_attempts`] and [`Policy::hidden_per_visible_attempt`] the bounds.
//! - *Which retry settings are in force?* [`settings::read`] reads the retry knobs, and nothing else, from the
//!   text of an agent's own configuration file.
//! - *What would I rather have?* [`own`] reads, checks and resolves one's own `policy.toml`.
//!
//! The crate opens no file, has no clock and classifies no error. The policies are embedded text, parsed once;
//! a wrong row is fixed in `data/`, not in code. Every fact names its source and how it is known, because the
//! bounds are only as good as the facts below them.

mod backoff;
mod bound;
mod data;
mod failure;
mod layer;
mod model;
pub mod own;
mod position;
pub mod settings;
mod version;

pub use bound::Bound;
pub use data::{DataError, all, by_agent, find, known_agents};
pub use failure::Failure;
pub use layer::{
    AboveCap, Acts, Jitter, JitterKind, Layer, LayerPolicy, Nesting, OpenRetries, Raise, Retries,
    RetriesWith, RetryAfter, Switch, Treatment,
};
pub use model::{
    Api, Attempts, Background, Conflict, Evidence, Fact, Fallback, Kind, Policy, Setting, Shows, View,
};
pub use settings::{SettingInForce, SettingValue, Settings};
pub use version::{Version, VersionRange};
