//! Hands the lines of one file over.

use std::fs::File;
use std::io;
use std::time::Instant;

use super::listener::{Happening, Listener};
use super::state::{FileState, Tracked};
use crate::copies::add_line;
use crate::identity::{Tail, read_span};
use crate::lines::LineReader;
use crate::steady::Steady;
use crate::walk::Found;

/// Hands over the complete lines that can be read now; with `last`, also one without an end. Returns how many that were; one
/// that has begun and goes on counts as well.
pub(super) fn take(tracked: &mut Tracked, last: bool, listener: &mut dyn Listener) -> u64 {
    let Some(reader) = tracked.reader.as_mut() else { return 0 };
    let id = tracked.state.id;
    let mut lines = 0;
    let mut last = last;
    let failed = |listener: &mut dyn Listener, error: &io::Error| {
        listener.happened(id, Happening::Unreadable { message: error.to_string() });
    };
    if !begun_line_stands(reader)
        && let Err(error) = reader.forget_partial_line()
    {
        failed(listener, &error);
        return 0;
    }
    let before = reader.read_to();
    loop {
        let next = if last { reader.next_line() } else { reader.next_complete_line() };
        match next {
            Ok(Some(line)) => {
                add_line(&mut tracked.state.checksum, line);
                lines += 1;
                listener.line(id, line);
                continue;
            }
            Ok(None) => {}
            Err(error) => {
                failed(listener, &error);
                break;
            }
        }
        if last || !listener.is_whole_line(reader.partial_line()) {
            break;
        }
        last = true;
    }
    // What was allocated ahead is no begun line: it is written to where the last one ended.
    if !last
        && is_allocated_ahead(reader)
        && let Err(error) = reader.forget_partial_line()
    {
        failed(listener, &error);
    }
    let grew = lines == 0 && reader.read_to() > before;
    if grew && tracked.state.offset > 0 {
        tracked.active = Some(Instant::now());
    }
    if lines > 0 {
        // What was there when the file was found is no sign that it grows.
        if tracked.state.offset > 0 {
            tracked.active = Some(Instant::now());
        }
        let (offset, count) = reader.position();
        tracked.state.offset = offset;
        tracked.state.lines = count;
        tracked.state.tail = Tail::before(offset, &reader.tail());
    }
    tracked.state.identity.extend(reader, tracked.state.offset);
    reader.release();
    lines + u64::from(grew)
}

/// Returns whether a line that has begun still stands in the file as it was read. A writer that finds half a line of the one
/// before it cuts it away.
fn begun_line_stands(reader: &LineReader<Steady>) -> bool {
    if !reader.has_partial_line() {
        return true;
    }
    let begun = reader.read_last();
    let at = reader.read_to() - begun.len() as u64;
    reader.input().file().metadata().is_ok_and(|now| now.len() >= reader.read_to())
        && read_span(reader.input().file(), at, begun.len()).is_ok_and(|now| now == begun)
}

fn is_allocated_ahead(reader: &LineReader<Steady>) -> bool {
    reader.has_partial_line()
        && read_span(reader.input().file(), reader.read_to() - 1, 1).is_ok_and(|last| last == [0])
}

pub(super) fn resume(handle: File, state: &FileState) -> Option<LineReader<Steady>> {
    let before = state.offset.checked_sub(1).and_then(|at| read_span(&handle, at, 1).ok());
    let mut reader = LineReader::resume(Steady::at(handle, state.offset).ok()?, state.offset, state.lines);
    if before.is_some_and(|byte| !byte.is_empty() && byte != b"\n") {
        reader.owe_end();
    }
    Some(reader)
}

pub(super) fn rest_of_copy(state: &FileState, copy: &Found, listener: &mut dyn Listener) -> u64 {
    let Some(mut reader) = copy.open().ok().and_then(|copy| resume(copy, state)) else { return 0 };
    let mut lines = 0;
    while let Ok(Some(line)) = reader.next_line() {
        listener.line(state.id, line);
        lines += 1;
    }
    lines
}
