//! Ids that more than one log of a run may hold, as checksums: only whether two are the same is ever asked.

use serde::{Deserialize, Serialize};

/// An explicit id of a message, a prompt or a provider's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Anchor(u64);

impl Anchor {
    /// Returns the anchor of an id.
    pub fn of(id: &str) -> Self {
        Self(checksum(CHECKSUM_START, id))
    }
}

/// The checksum of nothing.
pub const CHECKSUM_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Adds a text to a checksum that must be the same after an upgrade.
pub fn checksum(sum: u64, text: &str) -> u64 {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let sum = words.iter().fold(sum, |sum, word| checksum_word(sum, u64::from_le_bytes(*word)));
    checksum_word(checksum_word(sum, u64::from_le_bytes(last)), text.len() as u64)
}

/// Adds a number to such a checksum.
pub fn checksum_word(sum: u64, word: u64) -> u64 {
    let product = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 29
}

#[cfg(test)]
mod tests {
    use super::Anchor;

    #[test]
    fn ids_that_differ_have_other_anchors() {
        let mut anchors = ["", "a", "b", "aaaaaaaa", "aaaaaaaab", "aaaaaaaa\0"].map(Anchor::of);
        anchors.sort_unstable();
        assert!(anchors.windows(2).all(|two| two[0] != two[1]));
        assert_eq!(Anchor::of("req_1"), Anchor::of("req_1"));
    }
}
