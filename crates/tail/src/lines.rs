//! Splits a byte stream into lines.

use std::io::{self, Read, Seek, SeekFrom};

use memchr::memchr;

use crate::as_read::AsRead;
use crate::shrink::Shrink;

/// Longest line that is handed over whole, in bytes. A longer one is handed over with its long strings cut.
pub const LINE_LIMIT: usize = 4 << 20;

/// Most bytes that one read asks for.
const BLOCK: usize = 256 << 10;

/// Bytes that the first read after a pause asks for: a file that is followed grows by a few lines at a time.
const SMALL_BLOCK: usize = 16 << 10;

/// One line, without its line end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Number, from 1.
    pub number: u64,
    /// Offset of its first byte in the source.
    pub offset: u64,
    /// Its bytes. A carriage return before the line end and a byte order mark are taken away, and the hole that a file
    /// may begin with.
    pub bytes: &'a [u8],
    /// Whether a line end follows; false for the last line of a file that has none (yet).
    pub complete: bool,
    /// Whether long strings were cut out of it, because it is longer than [`LINE_LIMIT`].
    pub shortened: bool,
}

/// Reads lines from `R`.
#[derive(Debug)]
pub struct LineReader<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of the line that is being read.
    line_start: u64,
    /// Bytes of it that went into the skeleton.
    shrunk: u64,
    number: u64,
    shrink: Option<Shrink>,
    skeleton: Vec<u8>,
    done: bool,
    /// The last line was handed over without its end, which is no line of its own when it comes.
    owes_end: bool,
    /// Bytes that the next read asks for at least.
    block: usize,
    as_read: AsRead,
}

impl<R: Read> LineReader<R> {
    /// Returns a reader at the start of `input`.
    pub fn new(input: R) -> Self {
        Self::resume(input, 0, 0)
    }

    /// Returns a reader for `input`, which stands at `offset` after `lines` complete lines.
    pub fn resume(input: R, offset: u64, lines: u64) -> Self {
        let buffer = vec![0; BLOCK];
        Self {
            input,
            buffer,
            start: 0,
            end: 0,
            line_start: offset,
            shrunk: 0,
            number: lines,
            shrink: None,
            skeleton: Vec::new(),
            done: false,
            owes_end: false,
            block: BLOCK,
            as_read: AsRead::from(offset),
        }
    }

    /// Says that the line before was handed over without its end.
    pub fn owe_end(&mut self) {
        self.owes_end = true;
    }

    /// Returns a reader at the start of `input`, whose first `filled` bytes were read into `buffer` already. Handing the
    /// same buffer on from file to file ([`LineReader::into_buffer`]) saves making a new one for each.
    pub fn begun(input: R, mut buffer: Vec<u8>, filled: usize) -> Self {
        if buffer.len() < BLOCK {
            buffer.resize(BLOCK, 0);
        }
        let end = filled.min(buffer.len());
        Self {
            input,
            buffer,
            start: 0,
            end,
            line_start: 0,
            shrunk: 0,
            number: 0,
            shrink: None,
            skeleton: Vec::new(),
            done: false,
            owes_end: false,
            block: BLOCK,
            as_read: AsRead::default(),
        }
    }

    /// Returns the buffer, to be used again.
    pub fn into_buffer(mut self) -> Vec<u8> {
        // One long line shall not keep its memory for all files that follow.
        self.buffer.truncate(4 * BLOCK);
        self.buffer.shrink_to(4 * BLOCK);
        self.buffer
    }

    /// Returns the input.
    pub fn input(&self) -> &R {
        &self.input
    }

    /// Gives the memory of the buffer back, as far as no begun line stands in it; the next read takes little again.
    pub fn release(&mut self) {
        self.skeleton = Vec::new();
        self.block = SMALL_BLOCK;
        self.as_read.forget_tail();
        if self.start == self.end {
            self.buffer = Vec::new();
            self.start = 0;
            self.end = 0;
        } else if self.buffer.len() > 4 * SMALL_BLOCK && self.end - self.start <= SMALL_BLOCK {
            self.buffer = self.buffer[self.start..self.end].to_vec();
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// Returns the next line, `None` at the end of the input. A last line without line end is returned too.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.next(true)
    }

    /// Returns the next line that has a line end; `None` at the end of the input. What stands after the last line end is
    /// kept until more of it comes, however long that takes.
    pub fn next_complete_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.done = false;
        self.next(false)
    }

    /// Returns whether a line has begun that has no end yet.
    pub fn has_partial_line(&self) -> bool {
        self.end > self.start || self.shrink.is_some()
    }

    /// Returns what stands after the last line end; empty for a line that is too long to keep.
    pub fn partial_line(&self) -> &[u8] {
        if self.shrink.is_some() { &[] } else { &self.buffer[self.start..self.end] }
    }

    fn next(&mut self, take_last: bool) -> io::Result<Option<Line<'_>>> {
        let mut scanned = self.start;
        loop {
            if self.owes_end && self.start < self.end {
                self.owes_end = false;
                if self.buffer.get(self.start) == Some(&b'\n') {
                    self.start += 1;
                    self.line_start += 1;
                    scanned = scanned.max(self.start);
                }
            }
            if let Some(at) = memchr(b'\n', &self.buffer[scanned..self.end]) {
                let at = scanned + at;
                return Ok(Some(self.take(at, true)));
            }
            scanned = self.end;
            if self.done && !take_last {
                return Ok(None);
            }
            if self.done {
                if self.start == self.end && self.shrink.is_none() {
                    return Ok(None);
                }
                return Ok(Some(self.take(self.end, false)));
            }
            if self.end - self.start >= LINE_LIMIT {
                // Too long to keep: from here on only its skeleton is kept.
                self.as_read.let_go(&self.buffer[..self.start]);
                let shrink = self.shrink.get_or_insert_with(Shrink::new);
                shrink.feed(&self.buffer[self.start..self.end]);
                self.shrunk += (self.end - self.start) as u64;
                self.start = 0;
                self.end = 0;
            } else if self.start > 0 && self.buffer.len() - self.end < self.block / 2 {
                self.as_read.let_go(&self.buffer[..self.start]);
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            scanned = scanned.min(self.end);
            if self.buffer.len() - self.end < self.block / 2 {
                let larger = (self.buffer.len() * 2).min(LINE_LIMIT + BLOCK);
                self.buffer.resize(larger.max(self.end + self.block), 0);
            }
            let got = match self.input.read(&mut self.buffer[self.end..]) {
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.as_read.read(self.read_to(), &self.buffer[self.end..self.end + got]);
            self.end += got;
            self.done = got == 0;
            if self.end == self.buffer.len() {
                self.block = BLOCK;
            }
        }
    }

    /// Returns the bytes read last of a line that has begun: all of it, unless it is too long to keep.
    pub(crate) fn read_last(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns the last bytes before the offset after the last complete line, as they were read: one at least, if this
    /// reader handed a line over since its memory was given back.
    pub(crate) fn tail(&self) -> Vec<u8> {
        self.as_read.tail(&self.buffer[..self.start])
    }

    /// Returns where the reader began, and what it read there first.
    pub(crate) fn head(&self) -> (u64, &[u8]) {
        self.as_read.head()
    }

    /// Gives the memory of what was read first back.
    pub(crate) fn forget_head(&mut self) {
        self.as_read.forget_head();
    }

    /// Returns the offset after the last complete line, and how many complete lines stand before it.
    pub fn position(&self) -> (u64, u64) {
        (self.line_start, self.number)
    }

    /// Returns the offset up to which bytes were read from the source, begun line included.
    pub fn read_to(&self) -> u64 {
        self.line_start + self.shrunk + (self.end - self.start) as u64
    }

    fn take(&mut self, at: usize, complete: bool) -> Line<'_> {
        let (start, end) = (self.start, at);
        let offset = self.line_start;
        let taken = self.shrunk + (at - start) as u64 + u64::from(complete);
        self.shrunk = 0;
        self.start = (at + usize::from(complete)).min(self.end);
        self.number += 1;
        self.owes_end = !complete;
        self.line_start += taken;
        let shortened = self.shrink.is_some();
        let bytes = if let Some(mut shrink) = self.shrink.take() {
            // What stood before the long line is not next to what stands in the buffer.
            self.as_read.forget_tail();
            shrink.feed(&self.buffer[start..end]);
            self.skeleton = shrink.finish();
            &self.skeleton[..]
        } else {
            &self.buffer[start..end]
        };
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let bytes = if offset == 0 { without_hole(bytes) } else { bytes };
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        Line { number: self.number, offset, bytes, complete, shortened }
    }
}

impl<R: Read + Seek> LineReader<R> {
    /// Forgets what was read of the line that has begun; it is read again from its start.
    pub(crate) fn forget_partial_line(&mut self) -> io::Result<()> {
        self.input.seek(SeekFrom::Start(self.line_start))?;
        self.as_read.let_go(&self.buffer[..self.start]);
        self.as_read.back_to(self.line_start);
        (self.start, self.end, self.shrunk) = (0, 0, 0);
        self.shrink = None;
        Ok(())
    }
}

/// A file that is cut under a writer that keeps its place begins with zero bytes. Elsewhere they may stand for what was lost.
fn without_hole(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    if zeros < bytes.len() { &bytes[zeros..] } else { bytes }
}
