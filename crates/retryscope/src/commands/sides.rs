//! Which runs `report --compare A..B` puts beside each other.

use chrono::{DateTime, Utc};
use retryscope_analysis::Run;

use crate::context::point;
use crate::exit::hinted;

/// Two sets of runs, and what they are called.
pub(crate) struct Sides<'a> {
    pub(crate) names: (String, String),
    pub(crate) before: Vec<&'a Run>,
    pub(crate) after: Vec<&'a Run>,
}

/// What a side can name: in this order, the first that fits both sides is meant.
const KINDS: [fn(&Run, &str) -> bool; 3] = [
    |run, name| run.facts.agent_version.as_deref() == Some(name),
    |run, name| {
        run.facts.provider.as_deref() == Some(name)
            || candidates(run, |c| c.provider.as_deref() == Some(name))
    },
    |run, name| {
        run.facts.model.as_deref() == Some(name) || candidates(run, |c| c.model.as_deref() == Some(name))
    },
];

fn candidates(run: &Run, wanted: impl Fn(&retryscope_events::Candidate) -> bool) -> bool {
    let requests = run.turns.iter().flat_map(|turn| &turn.requests);
    requests.flat_map(|request| &request.attempts).any(|attempt| wanted(&attempt.candidate))
}

/// Reads `A..B` and chooses the runs.
pub(crate) fn sides<'a>(range: &str, runs: &[&'a Run], now: DateTime<Utc>) -> anyhow::Result<Sides<'a>> {
    let Some((a, b)) = range.split_once("..").filter(|(a, b)| !a.is_empty() && !b.is_empty()) else {
        return Err(hinted(
            format!("`{range}` names no two sides"),
            ["for example --compare 0.170.0..0.171.0, or --compare 7d..1d".to_owned()],
        ));
    };
    let of =
        |wanted: &dyn Fn(&Run) -> bool| runs.iter().copied().filter(|run| wanted(run)).collect::<Vec<&Run>>();
    for fits in KINDS {
        let (before, after) = (of(&|run| fits(run, a)), of(&|run| fits(run, b)));
        if !before.is_empty() && !after.is_empty() {
            return Ok(Sides { names: (a.to_owned(), b.to_owned()), before, after });
        }
    }
    let (Ok(from), Ok(change)) = (point(a, now), point(b, now)) else {
        let one = KINDS.iter().any(|fits| !of(&|run| fits(run, a)).is_empty());
        let missing = if one { b } else { a };
        return Err(hinted(
            format!("no run has the version, provider or model `{missing}`, and it is no point in time"),
            ["retryscope report --by provider,model names what there is; versions stand in retryscope doctor".to_owned()],
        ));
    };
    if from >= change {
        return Err(hinted(
            format!("`{a}` is not before `{b}`"),
            [format!("the earlier time stands first: --compare {b}..{a}")],
        ));
    }
    let began = |run: &Run| run.started_at.or(run.ended_at);
    Ok(Sides {
        names: (format!("{a} to {b}"), format!("since {b}")),
        before: of(&|run| began(run).is_some_and(|at| at >= from && at < change)),
        after: of(&|run| began(run).is_some_and(|at| at >= change)),
    })
}
