//! Unknown keys, with the known key that was probably meant.

use toml::de::{DeTable, DeValue};

use super::{Problem, Severity, problem};
use crate::position::LineIndex;

/// What may stand in a table.
enum Shape {
    /// These keys; each may hold a table of its own.
    Keys(&'static [(&'static str, Shape)]),
    /// A list of tables of this shape.
    List(&'static Shape),
    /// Names chosen by the author, each with a table of this shape.
    Names(&'static Shape),
    /// A value without keys.
    Plain,
}

const JITTER: Shape = Shape::Keys(&[("low", Shape::Plain), ("high", Shape::Plain)]);

const ROW: Shape = Shape::Keys(&[
    ("provider", Shape::Plain),
    ("class", Shape::Plain),
    ("reason", Shape::Plain),
    ("attempts", Shape::Plain),
    ("base_ms", Shape::Plain),
    ("cap_ms", Shape::Plain),
    ("jitter", JITTER),
    ("total_ms", Shape::Plain),
    ("retry_after_cap_ms", Shape::Plain),
]);

const RECIPIENTS: Shape =
    Shape::Keys(&[("to", Shape::Plain), ("providers", Shape::Plain), ("regions", Shape::Plain)]);

const TOOL: Shape = Shape::Keys(&[
    ("name", Shape::Plain),
    ("idempotency", Shape::Plain),
    ("attempts", Shape::Plain),
    ("replay", Shape::Plain),
]);

const LAYER: Shape = Shape::Keys(&[("layer", Shape::Plain), ("attempts", Shape::Plain)]);

const POLICY: Shape = Shape::Keys(&[
    ("profile", Shape::Plain),
    (
        "defaults",
        Shape::Keys(&[
            ("attempts", Shape::Plain),
            ("base_ms", Shape::Plain),
            ("cap_ms", Shape::Plain),
            ("jitter", JITTER),
            ("total_ms", Shape::Plain),
            ("retry_after_cap_ms", Shape::Plain),
        ]),
    ),
    ("rows", Shape::List(&ROW)),
    ("budget", Shape::Keys(&[("limit", Shape::Plain), ("floor", Shape::Plain)])),
    ("fallback", Shape::Keys(&[("chain", Shape::Plain)])),
    ("recipients", Shape::Names(&RECIPIENTS)),
    ("tools", Shape::List(&TOOL)),
    ("layers", Shape::List(&LAYER)),
]);

/// Reports keys that mean nothing and removes them, so that the rest can be read.
pub(super) fn remove_unknown(document: &mut DeTable<'_>, lines: &LineIndex<'_>, found: &mut Vec<Problem>) {
    in_table(document, &POLICY, "", lines, found);
}

fn in_table(
    table: &mut DeTable<'_>,
    shape: &'static Shape,
    path: &str,
    lines: &LineIndex<'_>,
    found: &mut Vec<Problem>,
) {
    let known = match shape {
        Shape::Keys(known) => *known,
        Shape::Names(inner) => {
            for (name, value) in table.iter_mut() {
                in_value(value.get_mut(), inner, &format!("{path}{}.", name.get_ref()), lines, found);
            }
            return;
        }
        // A table where a list or value belongs: reading it says so.
        Shape::List(_) | Shape::Plain => return,
    };
    let mut unknown = Vec::new();
    for (key, value) in table.iter_mut() {
        let name: &str = key.get_ref();
        if let Some((_, inner)) = known.iter().find(|(known, _)| *known == name) {
            in_value(value.get_mut(), inner, &format!("{path}{name}."), lines, found);
            continue;
        }
        let hint = closest(name, known.iter().map(|(known, _)| *known)).map_or_else(
            || {
                let names: Vec<String> = known.iter().map(|(known, _)| format!("`{known}`")).collect();
                format!("known here: {}", names.join(", "))
            },
            |meant| format!("did you mean `{meant}`?"),
        );
        let message = format!("unknown key `{path}{name}`");
        found.push(problem(lines, key.span().start, Severity::Error, "unknown-key", &message, Some(hint)));
        unknown.push(name.to_owned());
    }
    for name in &unknown {
        table.remove(name.as_str());
    }
}

fn in_value(
    value: &mut DeValue<'_>,
    shape: &'static Shape,
    path: &str,
    lines: &LineIndex<'_>,
    found: &mut Vec<Problem>,
) {
    match (value, shape) {
        (DeValue::Table(table), shape) => in_table(table, shape, path, lines, found),
        (DeValue::Array(items), Shape::List(inner)) => {
            for item in items.iter_mut() {
                in_value(item.get_mut(), inner, path, lines, found);
            }
        }
        _ => {}
    }
}

/// The candidate that differs from `word` in so few letters that it was probably meant.
pub(super) fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Number of letters to add, drop or change. Long words are not compared letter by letter.
fn distance(left: &str, right: &str) -> usize {
    if left.len().abs_diff(right.len()) > 8 {
        return usize::MAX;
    }
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().enumerate() {
        let mut next = vec![index + 1];
        for (column, other) in right.iter().enumerate() {
            let above = row.get(column + 1).copied().unwrap_or(usize::MAX - 1);
            let diagonal = row.get(column).copied().unwrap_or(usize::MAX - 1);
            let beside = next.last().copied().unwrap_or(usize::MAX - 1);
            next.push((above + 1).min(beside + 1).min(diagonal + usize::from(letter != *other)));
        }
        row = next;
    }
    row.last().copied().unwrap_or(usize::MAX)
}
