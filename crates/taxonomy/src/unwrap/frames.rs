//! Frames of stack traces, which say where a program stood and not what went wrong.
//!
//! The names in them are full of words that mean something elsewhere: `Observable.subscribeActual`,
//! `AbortSignal.dispatchEvent`, `/srv/billing/retry.py`.

use std::borrow::Cow;

/// A frame that does tell: undici's word for a stream that was cut.
const TELLING: &str = "Fetch.onAborted";
/// Where engines say that a frame stands if it stands in no file.
const NO_FILE: &[&str] = &["native", "<anonymous>", "Native Method", "Unknown Source"];
/// Parentheses in a path that are tried as the end of a frame.
const MAX_CLOSERS: usize = 4;

/// Returns `text` without the frames in it.
pub(super) fn without_frames(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut kept = 0;
    for (at, lead) in text.match_indices(['a', 'F']) {
        if at < kept
            || !text
                .get(..at)
                .is_some_and(|before| before.is_empty() || before.ends_with(char::is_whitespace))
        {
            continue;
        }
        let rest = text.get(at..).unwrap_or_default();
        let len = if lead == "a" { frame_of_calls(rest) } else { frame_of_python(rest) };
        if let Some(len) = len {
            out.push_str(text.get(kept..at).unwrap_or_default());
            kept = at + len;
        }
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(kept..).unwrap_or_default());
    Cow::Owned(out)
}

/// The length of `at async Name.of (file:1:2)`, `at pkg.Name.of(File.java:1)` or `at file:///x.js:1:2`.
fn frame_of_calls(text: &str) -> Option<usize> {
    let mut rest = text.strip_prefix("at ")?;
    for lead in ["async ", "new "] {
        rest = rest.strip_prefix(lead).unwrap_or(rest);
    }
    let name_len = rest.find(|c: char| c.is_whitespace() || c == '(').unwrap_or(rest.len());
    let (name, mut rest) = rest.split_at_checked(name_len)?;
    if is_line_and_column(name) {
        return Some(text.len() - rest.len());
    }
    if name.is_empty() || name == TELLING {
        return None;
    }
    if let Some((_, behind)) = rest.strip_prefix(" [as ").and_then(|alias| alias.split_once(']')) {
        rest = behind;
    }
    let rest = rest.strip_prefix(' ').unwrap_or(rest).strip_prefix('(')?;
    let line = rest.split('\n').next().unwrap_or_default();
    let mut ends = line.match_indices(')').take(MAX_CLOSERS).map(|(end, _)| end);
    let end = ends.find(|end| rest.get(..*end).is_some_and(is_place))?;
    Some(text.len() - rest.len() + end + 1)
}

/// The length of `File "x.py", line 1, in name`.
fn frame_of_python(text: &str) -> Option<usize> {
    let (_, rest) = text.strip_prefix("File \"")?.split('\n').next()?.split_once("\", line ")?;
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(", in ")?;
    let line_len = text.find('\n').unwrap_or(text.len());
    let name_len = rest.find(char::is_whitespace).unwrap_or(rest.len());
    Some(line_len - rest.len() + name_len)
}

fn is_place(text: &str) -> bool {
    NO_FILE.contains(&text) || without_number(text).is_some_and(is_file)
}

/// Addresses have a port, and only frames a line and a column.
fn is_line_and_column(text: &str) -> bool {
    without_number(text).and_then(without_number).is_some_and(is_file)
}

fn without_number(text: &str) -> Option<&str> {
    let (head, number) = text.rsplit_once(':')?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(head)
}

fn is_file(text: &str) -> bool {
    text.contains(['.', '/', '\\'])
        || ["node:", "native", "<anonymous>"].iter().any(|lead| text.starts_with(lead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_many_engines_are_dropped() {
        for frame in [
            "at async Client.billing (file:///C:/Program%20Files%20(x86)/x/cli.js:932:2412)",
            "at new Quota (node:internal/deps/x:1:22)",
            "at Object.timeout [as onTimeout] (/srv/a b/index.js:5:6)",
            "at node:internal/process/task_queues:105:5",
            "at async file:///usr/lib/cli.mjs:1:2",
            "at generate (/$bunfs/root/claude:316:9040)",
            "at processTicksAndRejections (native:7:39)",
            "at com.example.Plan.subscribe(Plan.java:57)",
            "at java.base/java.lang.Thread.run(Native Method)",
            "at new Promise (<anonymous>)",
            "File \"/srv/billing/retry.py\", line 12, in overload",
        ] {
            assert_eq!(without_frames(&format!("429 x\n    {frame}")).trim(), "429 x", "{frame}");
            assert_eq!(without_frames(&format!("y {frame} z")), "y  z", "{frame}");
        }
    }

    #[test]
    fn what_only_looks_like_a_frame_stays() {
        for text in [
            "refused at 127.0.0.1:8080",
            "no answer at localhost:11434 (timeout)",
            "at capacity (try again)",
            "looks at models (code:429)",
            "File \"x.toml\" was not found",
            "at Fetch.onAborted (node:internal/deps/undici/undici:1:2)",
            "that (a.b:1)",
        ] {
            assert_eq!(without_frames(text), text);
        }
    }
}
