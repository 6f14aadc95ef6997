//! Records of a rollout that are long and of which only the beginning matters: what tools gave.
//!
//! Only the beginning of such a line is taken apart, unless it could be two records in one: such a line is broken, which
//! counts.

use std::sync::LazyLock;

use memchr::memmem::{self, Finder};

use crate::json::Object;

/// The kind of a payload, and the member of it before which everything stands that matters.
const LONG: [(&[u8], &[u8]); 3] = [
    (b"item_completed\"", b"\"item\":{"),
    (b"function_call_output\"", b"\"output\":"),
    (b"custom_tool_call_output\"", b"\"output\":"),
];

/// Bytes in which that member begins.
const HEAD: usize = 1024;

/// Returns a record and its payload as far as they matter; `None` for other records, which are to be read as a whole.
pub(super) fn beginning(line: &[u8]) -> Option<(Object<'_>, Object<'_>)> {
    static PAYLOAD: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"payload\":{\"type\":\""));
    let head = line.get(..HEAD)?;
    let kind = PAYLOAD.find(head)? + PAYLOAD.needle().len();
    let (name, member) = LONG.iter().find(|(name, _)| head[kind..].starts_with(name))?;
    let from = kind + name.len();
    let cut = from + memmem::find(&head[from..], member)?;
    let (record, payload) = Object::parse_beginning(&line[..cut], "payload")?;
    // In other versions the turn may be named behind it.
    let is_told = *name != LONG[0].0 || payload.raw("turn_id").is_some();
    (is_told && is_one_record(line)).then_some((record, payload))
}

/// Returns whether a line ends as a record does, and no other record begins within it: within a string its quotes would
/// be escaped.
fn is_one_record(line: &[u8]) -> bool {
    static BEGIN: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("{\"timestamp\":"));
    line.ends_with(b"}") && BEGIN.find(&line[1..]).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(payload: &str) -> String {
        format!(
            r#"{{"timestamp":"2026-01-01T00:00:00Z","type":"event_msg","payload":{{{payload}}},"metadata":{{"n":1}}}}"#
        )
    }

    fn long() -> String {
        format!(r#"{{"text":"{}"}}"#, "a \\\" ".repeat(HEAD))
    }

    #[test]
    fn what_stands_before_the_long_member_is_what_the_whole_line_says() {
        let line = line(&format!(r#""type":"item_completed","turn_id":"t","item":{}"#, long()));
        let (record, payload) = beginning(line.as_bytes()).unwrap();
        let (whole, inner) = Object::parse_with(line.as_bytes(), "payload").unwrap();
        let inner = inner.unwrap();
        for key in ["timestamp", "type"] {
            assert_eq!(record.str(key), whole.str(key));
        }
        for key in ["type", "turn_id"] {
            assert_eq!(payload.str(key), inner.str(key));
        }
        let output = format!(r#""type":"function_call_output","call_id":"c","output":{}"#, long());
        assert_eq!(beginning(self::line(&output).as_bytes()).unwrap().1.str("call_id").as_deref(), Some("c"));
    }

    #[test]
    fn other_and_broken_lines_are_read_as_a_whole() {
        let item = format!(r#""type":"item_completed","turn_id":"t","item":{}"#, long());
        assert!(beginning(line(&item).as_bytes()).is_some());
        for other in [
            item.replace("item_completed", "item_started"),
            item.replace(r#""turn_id":"t","#, ""),
            item.replace(r#""turn_id""#, r#"turn_id""#),
            item.replace(r#"{"text""#, r#"{"timestamp":"2026","text""#),
        ] {
            assert!(beginning(line(&other).as_bytes()).is_none(), "{other}");
        }
        assert!(beginning(line(&item).strip_suffix('}').unwrap().as_bytes()).is_some());
        assert!(beginning(line(&item).strip_suffix("1}}").unwrap().as_bytes()).is_none());
    }
}
