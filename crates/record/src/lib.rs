//! What travels between the parts: origins, gaps, sourced events.
