//! `RS3xx`: one answer, how many requests?

mod rs301;
mod rs302;
mod rs303;
mod rs304;
mod rs305;
mod rs306;
mod rs307;
mod rs308;

use super::Rule;

pub(super) const RULES: &[Rule] =
    &[rs301::RULE, rs302::RULE, rs303::RULE, rs304::RULE, rs305::RULE, rs306::RULE, rs307::RULE, rs308::RULE];
