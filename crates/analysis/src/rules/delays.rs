//! `RS2xx`: how long was waited.

mod rs201;
mod rs202;
mod rs203;
mod rs206;

use super::Rule;

pub(super) const RULES: &[Rule] = &[rs201::RULE, rs202::RULE, rs203::RULE, rs206::RULE];
