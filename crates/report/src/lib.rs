//! Runs and totals to text, tables and JSON; no decisions, no counting of its own.

pub mod audit;
pub mod blocks;
mod exposition;
pub mod gauges;
pub mod json;
pub mod metrics;
pub mod openmetrics;
mod page;
pub mod recipients;
pub mod share;
pub mod summary;
pub mod text;
pub mod words;

pub use page::{Page, quoted};
pub use retryscope_analysis::words::visible;
