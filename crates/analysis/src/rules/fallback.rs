//! `RS4xx`: who was asked instead.

mod rs401;
mod rs402;
mod rs403;
mod rs404;
mod rs405;
mod rs406;

use super::Rule;

pub(super) const RULES: &[Rule] =
    &[rs401::RULE, rs402::RULE, rs403::RULE, rs404::RULE, rs405::RULE, rs406::RULE];
