//! Where the requests of a long turn stand, by id.
//!
//! Built only when it is asked for, and not saved: what it says follows from the requests.

use std::hash::BuildHasher as _;

use foldhash::HashMap;

use super::request::RequestView;

/// Up to so many requests are looked through one by one.
const FEW: usize = 16;

/// Requests of one turn by the hash of their id; of several with one id, the last.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestIds {
    turn: usize,
    /// Requests that stand in the index.
    indexed: usize,
    by_hash: HashMap<u64, usize>,
}

impl RequestIds {
    /// Returns the last request with this id.
    pub(super) fn find(&mut self, turn: usize, requests: &[RequestView], id: &str) -> Option<usize> {
        let last = requests.len().checked_sub(1)?;
        if requests[last].id == id {
            return Some(last);
        }
        if requests.len() <= FEW {
            return requests.iter().rposition(|request| request.id == id);
        }
        if self.turn != turn || self.indexed > requests.len() {
            *self = Self { turn, ..Self::default() };
        }
        let hasher = self.by_hash.hasher().clone();
        let hash = |id: &str| hasher.hash_one(id);
        for (index, request) in requests.iter().enumerate().skip(self.indexed) {
            self.by_hash.insert(hash(&request.id), index);
        }
        self.indexed = requests.len();
        let index = *self.by_hash.get(&hash(id))?;
        // Two ids may have one hash.
        if requests[index].id == id {
            Some(index)
        } else {
            requests.iter().rposition(|request| request.id == id)
        }
    }
}
