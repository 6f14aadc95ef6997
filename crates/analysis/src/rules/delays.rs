//! `RS2xx`: how long was waited.

mod rs201;
mod rs202;
mod rs203;
mod rs204;
mod rs205;
mod rs206;
mod rs207;
mod rs208;
mod rs209;

use super::Rule;

pub(super) const RULES: &[Rule] = &[
    rs201::RULE,
    rs202::RULE,
    rs203::RULE,
    rs204::RULE,
    rs205::RULE,
    rs206::RULE,
    rs207::RULE,
    rs208::RULE,
    rs209::RULE,
];
