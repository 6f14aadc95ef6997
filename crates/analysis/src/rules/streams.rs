//! `RS6xx`: answers that arrive in pieces.

mod rs601;

use super::Rule;

pub(super) const RULES: &[Rule] = &[rs601::RULE];
