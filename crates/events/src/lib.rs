//! The model.retry / model.fallback event schema: types, strict writing, liberal reading.
