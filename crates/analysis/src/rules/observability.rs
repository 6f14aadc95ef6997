//! `RS7xx`: what a person is told.

mod rs701;
mod rs702;
mod rs703;
mod rs704;

use super::Rule;

pub(super) const RULES: &[Rule] = &[rs701::RULE, rs702::RULE, rs703::RULE, rs704::RULE];
