//! What travels between the parts: where something stands, what it says, what could not be read.
//!
//! `tail` makes [`Origin`]s, `adapters` make [`Item`]s and [`Gap`]s, `analysis` takes them. Not for: the public schema
//! (that is `retryscope-events`) or for any decision.

mod anchor;
mod item;
mod origin;

pub use anchor::{Anchor, CHECKSUM_START, checksum, checksum_word};
pub use item::{Facts, Gap, GapKind, Item, Mark, RawFailure, RunKey, Shown, Statement, TurnOutcome};
pub use origin::{Origin, Place, SourceId, View};

/// Takes what a decoder finds, in the order of the source.
pub trait Sink {
    /// Takes one statement of the source.
    fn item(&mut self, place: Place, item: Item<'_>);
    /// Takes one thing that could not be read.
    fn gap(&mut self, place: Place, kind: GapKind);
    /// Asks whether a record is there for the first time, in this source and in those that were read with it: one that was
    /// sent again is no second one. `id` is a checksum of all that it holds.
    fn is_new(&mut self, _id: u64) -> bool {
        true
    }
}

/// Collects everything; for tests and small inputs.
#[derive(Debug, Default)]
pub struct Collected {
    /// Statements with their place, in order.
    pub items: Vec<(Place, Statement)>,
    /// What could not be read, in order.
    pub gaps: Vec<(Place, GapKind)>,
}

impl Sink for Collected {
    fn item(&mut self, place: Place, item: Item<'_>) {
        self.items.push((place, item.into()));
    }
    fn gap(&mut self, place: Place, kind: GapKind) {
        self.gaps.push((place, kind));
    }
}
