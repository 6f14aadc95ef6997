//! Runs and totals to text, tables and JSON; no decisions, no counting of its own.

pub mod json;
mod page;
pub mod text;
pub mod words;

pub use page::{Page, visible};
