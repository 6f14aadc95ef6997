//! Takes JSON text apart without building it: where does each member of an object begin and end?
//!
//! Most of a log is text that nobody needs, so nothing is copied, and what is stepped over is still checked: accepted is
//! exactly what `serde_json` accepts (a test compares the two). Not for: decoding a value, or knowing what a key means.

mod cursor;
mod string;

pub use crate::cursor::{Cursor, Quoted, whole};
