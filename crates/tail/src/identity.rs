//! What makes a file the same file: where it lies on disk and what it begins with, never its path.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// Bytes at the beginning that are remembered.
const HEAD: usize = 1024;

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
    /// Reads the identity of an open file; its position is then undefined.
    pub(crate) fn of(file: &mut File, metadata: &Metadata) -> io::Result<Self> {
        let (head, head_length) = beginning(file, HEAD)?;
        let born = metadata.created().ok();
        Ok(Self { device: metadata.dev(), inode: metadata.ino(), born, head_length, head })
    }

    /// Returns whether the metadata is of the same place on disk.
    pub(crate) fn is_at(&self, metadata: &Metadata) -> bool {
        let same_birth = match (self.born, metadata.created().ok()) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        self.device == metadata.dev() && self.inode == metadata.ino() && same_birth
    }

    /// Returns whether a file still begins as it did; a file that has grown since may begin longer.
    pub(crate) fn still_begins(&self, file: &mut File) -> io::Result<bool> {
        let (head, length) = beginning(file, self.head_length)?;
        Ok(length == self.head_length && head == self.head)
    }

    /// Takes more of the beginning, when the file was shorter than the head before.
    pub(crate) fn extend(&mut self, file: &mut File) -> io::Result<()> {
        if self.head_length < HEAD {
            (self.head, self.head_length) = beginning(file, HEAD)?;
        }
        Ok(())
    }
}

/// Returns checksum and length of the first `limit` bytes.
fn beginning(file: &mut File, limit: usize) -> io::Result<(u64, usize)> {
    file.seek(SeekFrom::Start(0))?;
    let mut sum = Checksum::default();
    let mut bytes = Vec::with_capacity(limit);
    file.take(limit as u64).read_to_end(&mut bytes)?;
    sum.add(&bytes);
    Ok((sum.value(), bytes.len()))
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
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}
