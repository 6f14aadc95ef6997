//! A file that is read on only while what was read of it before still stands in it.
//!
//! Between two reads it may be cut and written anew beyond the place of the reader. Not for: finding that out later, or what
//! to do then (the follower does).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use crate::as_read::TAIL;
use crate::identity::read_span;

/// Reads a file; at its end as well once it holds something else before the place.
#[derive(Debug)]
pub(crate) struct Steady {
    file: File,
    at: u64,
    /// The last bytes before `at`, as they were read.
    last: Vec<u8>,
}

impl Steady {
    /// Returns a reader at an offset.
    pub(crate) fn at(mut file: File, offset: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(offset))?;
        Ok(Self { file, at: offset, last: Vec::new() })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Read for Steady {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(buffer)?;
        if got == 0 {
            return Ok(0);
        }
        // After the reading: what stands then stood before as well.
        let before = read_span(&self.file, self.at - self.last.len() as u64, self.last.len());
        if before.as_ref().is_ok_and(|before| *before != self.last) {
            self.file.seek(SeekFrom::Start(self.at))?;
            return Ok(0);
        }
        self.at += got as u64;
        let new = &buffer[..got];
        let kept = self.last.len().min(TAIL.saturating_sub(got));
        self.last.drain(..self.last.len() - kept);
        self.last.extend_from_slice(&new[got.saturating_sub(TAIL)..]);
        Ok(got)
    }
}

impl Seek for Steady {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.file.seek(to)?;
        self.last.clear();
        Ok(self.at)
    }
}
