//! `RS6xx`: answers that arrive in pieces.

mod rs601;
mod rs602;
mod rs603;
mod rs604;
mod rs605;
mod rs606;
mod rs607;

use super::Rule;

pub(super) const RULES: &[Rule] =
    &[rs601::RULE, rs602::RULE, rs603::RULE, rs604::RULE, rs605::RULE, rs606::RULE, rs607::RULE];
