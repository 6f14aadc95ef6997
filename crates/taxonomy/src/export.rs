//! The tables and the vocabulary in one value, for programs in other languages.

use serde::Serialize;

use crate::index::Index;
use crate::table::Table;
use crate::{Class, Reason};

/// Version of the tables: rises with every change of a row or of the matching rules.
const VERSION: &str = "2026.12.01";

/// Returns the version of the embedded tables, a date as `YYYY.MM.DD`.
pub const fn version() -> &'static str {
    VERSION
}

/// All classes and tables, as [`export`] returns them.
#[derive(Debug, Serialize)]
pub struct Export {
    /// As [`version`].
    pub version: &'static str,
    /// The closed set of classes with their reasons.
    pub classes: Vec<ClassExport>,
    /// Every table with all its rows, in the order in which shared tables apply.
    pub tables: &'static [Table],
}

/// One class as a record.
#[derive(Debug, Serialize)]
pub struct ClassExport {
    /// The class.
    pub class: Class,
    /// As [`Class::meaning`].
    pub meaning: &'static str,
    /// As [`Class::advice`].
    pub advice: &'static str,
    /// As [`Class::is_retryable`].
    pub retryable: bool,
    /// As [`Class::reasons`].
    pub reasons: &'static [Reason],
}

/// Returns all classes and tables; serializes to JSON.
pub fn export() -> Export {
    let classes = Class::ALL.iter().map(|&class| ClassExport {
        class,
        meaning: class.meaning(),
        advice: class.advice(),
        retryable: class.is_retryable(),
        reasons: class.reasons(),
    });
    Export { version: VERSION, classes: classes.collect(), tables: Index::get().tables() }
}

/// Returns the table of a provider by any of its names or hosts; `None` when no table knows it.
///
/// ```
/// let table = retryscope_taxonomy::provider("api.anthropic.com").expect("a known host");
/// assert_eq!(table.name, "anthropic");
/// assert!(table.billing_url.is_some());
/// ```
pub fn provider(name: &str) -> Option<&'static Table> {
    let index = Index::get();
    index.find(name).and_then(|at| index.tables().get(at))
}
