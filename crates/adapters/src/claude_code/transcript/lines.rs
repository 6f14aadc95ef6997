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

/// Returns whether a line may bear on requests.
pub(super) fn matters(line: &[u8]) -> bool {
    static TYPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"type\":\""));
    // Records name their type early, except conversation lines, whose type may follow a large message.
    let head = &line[..line.len().min(HEAD)];
    let mut other = false;
    for at in TYPE.find_iter(head) {
        let name = &head[at + TYPE.needle().len()..];
        // A prompt may quote such words; a conversation line always has one of these keys.
        if name.starts_with(b"user\"") {
            return !is_result(line, at, &name[b"user\"".len()..]);
        }
        if [&b"assistant\""[..], b"system\""].iter().any(|kind| name.starts_with(kind)) {
            return true;
        }
        let is = |kind: &&[u8]| name.starts_with(kind);
        other |= [
            &b"attachment\""[..],
            b"api-request-blob\"",
            b"api-request-shape\"",
            b"progress\"",
            b"file-history-snapshot\"",
        ]
        .iter()
        .any(is);
    }
    !other
}

/// Returns whether a `user` line, whose type stands at `at`, says what a tool gave and nothing else.
fn is_result(line: &[u8], at: usize, after_type: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 2] = [b"\"tool_use_id\":\"", b"\"type\":\"tool_result\""];
    let first = after_type.strip_prefix(b",\"message\":{\"role\":\"user\",\"content\":[{");
    let is_of_record = memchr::memrchr(b'{', &line[..at]) == Some(0);
    is_of_record
        && first.is_some_and(|block| BEGINNINGS.iter().any(|begin| block.starts_with(begin)))
        && line.ends_with(b"}")
        && !may_interrupt(line)
        && is_one_record(line)
}

/// Returns whether a line may say that the person interrupted the agent.
pub(super) fn may_interrupt(line: &[u8]) -> bool {
    static WORDS: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(INTERRUPT));
    WORDS.find(line).is_some()
}

/// Returns whether a line that begins with a record of the conversation holds no other one: within a string its quotes
/// would be escaped.
fn is_one_record(line: &[u8]) -> bool {
    static BEGIN: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("{\"parentUuid\":"));
    line.get(1..).is_some_and(|rest| BEGIN.find(rest).is_none())
}
