//! Sentences for things that are not runs.

use retryscope_record::GapKind;

/// Returns what a gap is, for a person.
pub fn gap(kind: &GapKind) -> String {
    match kind {
        GapKind::InvalidJson => "not valid JSON, skipped".to_owned(),
        GapKind::TornLine => "the last line is cut, skipped".to_owned(),
        GapKind::OversizedLine => "too long to read, skipped".to_owned(),
        GapKind::IncompleteRecord => "the record lacks what it needs, skipped".to_owned(),
        GapKind::UnusableField { name } => format!("the value of `{name}` cannot be used, or not all of it"),
        GapKind::NewerVersion { found, supported } => {
            format!("schema version {found}, this program reads up to {supported}; skipped")
        }
        GapKind::MissingSequence { count } => format!("{count} event(s) missing before this one"),
        GapKind::Database { message } => format!("database: {message}"),
    }
}
