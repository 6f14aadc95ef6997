//! What makes a file the same file: where it lies on disk and what it begins with, never its path.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::as_read::{HEAD, TAIL};
use crate::lines::LineReader;
use crate::steady::Steady;

/// Identity of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Device.
    pub device: u64,
    /// Inode on the device.
    pub inode: u64,
    /// When the file was made, where the file system tells. Inodes are used again, this moment is not.
    pub born: Option<SystemTime>,
    /// How many bytes of the beginning are in `head`.
    pub head_length: usize,
    /// Checksum of the beginning.
    pub head: u64,
}

impl Identity {
    /// Reads the identity of an open file.
    pub(crate) fn of(file: &File, metadata: &Metadata) -> io::Result<Self> {
        let bytes = read_span(file, 0, HEAD)?;
        let born = metadata.created().ok();
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            born,
            head_length: bytes.len(),
            head: Checksum::of(&bytes),
        })
    }

    /// Returns the place on disk.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Returns whether the metadata is of the same place on disk.
    pub fn is_at(&self, metadata: &Metadata) -> bool {
        let same_birth = match (self.born, metadata.created().ok()) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        self.device == metadata.dev() && self.inode == metadata.ino() && same_birth
    }

    /// Returns whether a file still begins as it did; a file that has grown since may begin longer.
    pub(crate) fn still_begins(&self, file: &File) -> io::Result<bool> {
        let bytes = read_span(file, 0, self.head_length)?;
        Ok(bytes.len() == self.head_length && Checksum::of(&bytes) == self.head)
    }

    /// Takes the beginning anew from what was read of it, when it is not as long as it may be. Of a file of which lines were
    /// taken, these alone: a begun line may still be taken back by its writer.
    pub(crate) fn extend(&mut self, reader: &mut LineReader<Steady>, taken: u64) {
        let most =
            if taken == 0 { HEAD } else { usize::try_from(taken).map_or(HEAD, |taken| taken.min(HEAD)) };
        let (from, bytes) = reader.head();
        if from == 0 {
            let bytes = &bytes[..most.min(bytes.len())];
            (self.head, self.head_length) = (Checksum::of(bytes), bytes.len());
        } else if from == self.head_length as u64 && self.head_length < most {
            let mut sum = Checksum(self.head);
            let bytes = &bytes[..(most - self.head_length).min(bytes.len())];
            sum.add(bytes);
            (self.head, self.head_length) = (sum.value(), self.head_length + bytes.len());
        }
        if self.head_length == HEAD && taken > 0 {
            reader.forget_head();
        }
    }
}

/// The bytes before a reading position: a file that was cut and is longer again may begin as it did, but does not go on
/// where it was left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tail {
    end: u64,
    /// How many bytes these are. Absent in what older versions saved: as many as may be.
    #[serde(default)]
    length: Option<usize>,
    sum: u64,
}

impl Tail {
    /// Takes the bytes that were read before `end`.
    pub(crate) fn before(end: u64, bytes: &[u8]) -> Self {
        Self { end, length: Some(bytes.len()), sum: Checksum::of(bytes) }
    }

    /// Returns whether they still stand there.
    pub(crate) fn still_stands(self, file: &File) -> bool {
        let most = self.length.unwrap_or(TAIL);
        let length = usize::try_from(self.end).map_or(most, |end| end.min(most));
        if self.end == 0 {
            return true;
        }
        // What cannot be read now is no sign of a change.
        read_span(file, self.end - length as u64, length).map_or(true, |now| Checksum::of(&now) == self.sum)
    }
}

/// Returns up to `length` bytes from `offset`, without moving the file's position.
pub(crate) fn read_span(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Checksum of bytes in any cut: FNV-1a, 64 bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    /// Returns the checksum of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut sum = Self::default();
        sum.add(bytes);
        sum.0
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Adds a whole line: eight bytes at a time, since every line that is read passes here. Unlike [`Checksum::add`] it
    /// depends on where lines end.
    pub(crate) fn add_line(&mut self, line: &[u8]) {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |sum: u64, word: u64| {
            let product = (sum ^ word).wrapping_mul(FACTOR);
            product ^ product >> 32
        };
        let (words, rest) = line.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let sum = words.iter().fold(self.0, |sum, word| mix(sum, u64::from_le_bytes(*word)));
        self.0 = mix(mix(sum, u64::from_le_bytes(last)), line.len() as u64);
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}
