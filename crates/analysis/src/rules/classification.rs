//! `RS1xx`: which failures were worth another attempt.

mod rs101;
mod rs102;
mod rs103;
mod rs104;
mod rs105;
mod rs106;
mod rs107;
mod rs108;

use super::Rule;

pub(super) const RULES: &[Rule] =
    &[rs101::RULE, rs102::RULE, rs103::RULE, rs104::RULE, rs105::RULE, rs106::RULE, rs107::RULE, rs108::RULE];
