//! Plain values of a TOML file, with their lines; what stands after a mistake is still read.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Leaf, MAX_DEPTH, SettingValue};
use crate::position::LineIndex;

pub(super) fn leaves(text: &str) -> Vec<Leaf> {
    let (document, _mistakes) = DeTable::parse_recoverable(text);
    let mut leaves = Vec::new();
    let lines = LineIndex::new(text);
    walk(document.get_ref(), &mut Vec::new(), &lines, &mut leaves);
    leaves
}

fn walk(table: &DeTable<'_>, path: &mut Vec<String>, lines: &LineIndex, leaves: &mut Vec<Leaf>) {
    if path.len() >= MAX_DEPTH {
        return;
    }
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        if let DeValue::Table(inner) = value.get_ref() {
            walk(inner, path, lines, leaves);
        } else if let Some(plain) = plain(value) {
            leaves.push(Leaf { path: path.clone(), value: plain, line: Some(lines.line(key.span().start)) });
        }
        path.pop();
    }
}

fn plain(value: &Spanned<DeValue<'_>>) -> Option<SettingValue> {
    match value.get_ref() {
        DeValue::Boolean(value) => Some(SettingValue::Bool(*value)),
        DeValue::Integer(integer) => {
            i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(SettingValue::Integer)
        }
        DeValue::Float(float) => float.as_str().parse().ok().map(SettingValue::Float),
        DeValue::String(text) => Some(SettingValue::Text(text.to_string())),
        DeValue::Array(items) => {
            Some(SettingValue::List(items.iter().filter_map(plain).map(|item| item.to_string()).collect()))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}
