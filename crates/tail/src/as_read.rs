//! What a reader has seen of a file at its beginning and before its place.
//!
//! From memory: by the time the file could be asked, it may have been cut and hold something else. Not for: the lines.

/// Most bytes that are kept of the beginning.
pub(crate) const HEAD: usize = 1024;

/// Most bytes that are kept before the place.
pub(crate) const TAIL: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct AsRead {
    /// Where the reader began.
    from: u64,
    /// The bytes from there on, up to the offset [`HEAD`].
    head: Vec<u8>,
    /// The last bytes of what the reader has let go of, up to where its buffer begins.
    behind: Vec<u8>,
}

impl AsRead {
    pub(crate) fn from(offset: u64) -> Self {
        Self { from: offset, ..Self::default() }
    }

    /// Bytes were read at an offset.
    pub(crate) fn read(&mut self, offset: u64, bytes: &[u8]) {
        let end = self.from + self.head.len() as u64;
        let room = (HEAD as u64).saturating_sub(end);
        if offset == end && room > 0 {
            let length = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            self.head.extend_from_slice(&bytes[..length]);
        }
    }

    /// What stands from an offset on is read once more.
    pub(crate) fn back_to(&mut self, offset: u64) {
        let kept = offset.saturating_sub(self.from);
        self.head.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
    }

    /// Returns where the reader began, and the bytes from there on.
    pub(crate) fn head(&self) -> (u64, &[u8]) {
        (self.from, &self.head)
    }

    /// The beginning is known by now.
    pub(crate) fn forget_head(&mut self) {
        (self.from, self.head) = (HEAD as u64, Vec::new());
    }

    /// The reader lets go of the first bytes of its buffer.
    pub(crate) fn let_go(&mut self, bytes: &[u8]) {
        self.behind = self.tail(bytes);
    }

    /// The reader's buffer no longer goes on where it was.
    pub(crate) fn forget_tail(&mut self) {
        self.behind = Vec::new();
    }

    /// Returns the last bytes before the reader's place, of which these stand in its buffer.
    pub(crate) fn tail(&self, bytes: &[u8]) -> Vec<u8> {
        let own = &bytes[bytes.len().saturating_sub(TAIL)..];
        let before = &self.behind[self.behind.len().saturating_sub(TAIL - own.len())..];
        [before, own].concat()
    }
}
