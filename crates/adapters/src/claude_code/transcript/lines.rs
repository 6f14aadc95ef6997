//! Which lines of a transcript are worth taking apart: most of a file is prompts and what tools gave.
//!
//! A line is left out only where its first bytes say what it is, and where it cannot be two records in one: such a line is
//! broken, which counts.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// How a person's interruption begins.
pub(super) const INTERRUPT: &str = "[Request interrupted by user";

/// Bytes by which a line is told.
const HEAD: usize = 4096;

/// Records that bear on requests.
const OURS: [&[u8]; 5] = [b"user\"", b"assistant\"", b"system\"", b"api-request\"", b"cost-state\""];

/// Those of them that a conversation is made of.
const CONVERSATION: [&[u8]; 3] = [b"user\"", b"assistant\"", b"system\""];

/// Records that do not, and may hold much.
const OTHERS: [&[u8]; 5] = [
    b"attachment\"",
    b"api-request-blob\"",
    b"api-request-shape\"",
    b"progress\"",
    b"file-history-snapshot\"",
];

/// Returns whether a line may bear on requests.
pub(super) fn matters(line: &[u8]) -> bool {
    static NESTED: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\":{\""));
    if let Some(name) = line.strip_prefix(b"{\"type\":\"") {
        return is_one_of(name, &OURS) || !is_one_record(line);
    }
    let head = &line[..line.len().min(HEAD)];
    // The first member that is an object mostly tells.
    let before = NESTED.find(head).map_or(head, |at| &head[..at]);
    if before.ends_with(b"\"type\":\"user\",\"message") {
        return !is_result(line, &head[before.len()..]);
    }
    if before.ends_with(b"\"message") {
        return true;
    }
    !(before.ends_with(b"\"attachment") || names_another(head)) || !is_one_record(line)
}

/// Returns the member of a record that is mostly read too, to be read along with it.
pub(super) fn inner_member(line: &[u8]) -> &'static str {
    if line.starts_with(b"{\"type\":\"api-request\"") { "params" } else { "message" }
}

fn is_one_of(name: &[u8], kinds: &[&[u8]]) -> bool {
    kinds.iter().any(|kind| name.starts_with(kind))
}

/// Returns whether a record whose type may stand anywhere is one of the others.
fn names_another(head: &[u8]) -> bool {
    static TYPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"type\":\""));
    let mut names = TYPE.find_iter(head).map(|at| &head[at + TYPE.needle().len()..]);
    let mut is_other = false;
    // What is nested in it may have such a type too; a line of the conversation always has one.
    let is_ours = names.any(|name| {
        is_other |= is_one_of(name, &OTHERS);
        is_one_of(name, &CONVERSATION)
    });
    is_other && !is_ours
}

/// Returns whether a `user` line says what a tool gave and nothing else; `rest` follows the key of its message.
fn is_result(line: &[u8], rest: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 2] = [b"\"tool_use_id\":\"", b"\"type\":\"tool_result\""];
    let first = rest.strip_prefix(b"\":{\"role\":\"user\",\"content\":[{");
    first.is_some_and(|block| is_one_of(block, &BEGINNINGS)) && !may_interrupt(line) && is_one_record(line)
}

/// Returns whether a line may say that the person interrupted the agent.
pub(super) fn may_interrupt(line: &[u8]) -> bool {
    static WORDS: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(INTERRUPT));
    WORDS.find(line).is_some()
}

/// Returns whether a line ends as a record does, and no line of the conversation begins within it: within a string its
/// quotes would be escaped.
fn is_one_record(line: &[u8]) -> bool {
    static BEGIN: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("{\"parentUuid\":"));
    line.ends_with(b"}") && BEGIN.find(&line[1..]).is_none()
}
