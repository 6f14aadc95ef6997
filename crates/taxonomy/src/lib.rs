//! Provider errors to failure classes: versioned tables and one small matcher.
//!
//! [`classify`] takes what a log or a client knows of a failed request and says what kind of failure it is, whether
//! a retry can help, and what wait the provider stated. What is known of each provider stands in `data/*.toml`, each
//! row with its source and with samples that are tests.
//!
//! Not for deciding how often or how long to retry (that is policy), not for reading logs, and without I/O or clock.

mod class;
mod classify;
mod export;
mod failure;
mod index;
mod reason;
mod table;
mod unwrap;
mod wait;
mod weigh;

pub use class::{Class, UnknownClass};
pub use classify::classify;
pub use export::{ClassExport, Export, export, provider, version};
pub use failure::{Confidence, Failure, Judgement};
pub use reason::{Reason, UnknownReason};
pub use table::{Row, Sample, Table};
pub use wait::reset_from_ms;
