//! The way of what a decoder finds to the engine.
//!
//! Not for: reading; a decoder is given this by whoever reads its source.

use retryscope_record::{GapKind, Item, Origin, Place, Sink, SourceId, View};

use crate::state::State;

/// Hands what a decoder finds to the engine.
pub(super) struct Into<'a> {
    pub(super) state: &'a mut State,
    pub(super) id: SourceId,
    pub(super) view: View,
}

impl Sink for Into<'_> {
    fn item(&mut self, place: Place, item: Item<'_>) {
        self.state.engine.apply(self.view, Origin { source: self.id, place }, item);
    }

    fn is_new(&mut self, id: u64) -> bool {
        self.state.engine.is_new_record(self.id, id)
    }

    fn gap(&mut self, _place: Place, kind: GapKind) {
        if kind.hides_records() {
            self.state.engine.gap(self.view, self.id);
        }
        if kind == GapKind::OversizedLine {
            self.state.counts.oversized += 1;
        }
        *self.state.counts.gaps.entry(kind.label().to_owned()).or_default() += 1;
    }
}
