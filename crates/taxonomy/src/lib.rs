//! Provider errors to failure classes: versioned tables and one small matcher.
