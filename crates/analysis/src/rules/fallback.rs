//! `RS4xx`: who was asked instead.

mod rs402;
mod rs405;
mod rs406;

use super::Rule;

pub(super) const RULES: &[Rule] = &[rs402::RULE, rs405::RULE, rs406::RULE];
