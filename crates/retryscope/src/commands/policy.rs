//! `retryscope policy`: what is known of the agents' retries, and a check of one's own policy.

use std::io::Read as _;

use anyhow::Context as _;
use retryscope_analysis::words;
use retryscope_policy::{
    Attempts, Kind, Policy as Known, Retries, Settings, all, by_agent, find, known_agents, own,
};
use retryscope_report::Page;
use serde_json::json;

use crate::args::{Display, Format, Policy, PolicyCommand};
use crate::exit::{Exit, hinted};
use crate::output::{Output, width};

pub(crate) fn run(args: &Policy, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    match &args.command {
        PolicyCommand::Show { agent: None, .. } => list(display, output),
        PolicyCommand::Show { agent: Some(agent), agent_version } => {
            show(agent, agent_version.as_deref(), display, output)
        }
        PolicyCommand::Check { file } => check(file, display, output),
        PolicyCommand::Profile { name } => match [own::Profile::Interactive, own::Profile::Batch]
            .into_iter()
            .find(|p| p.as_str() == name)
        {
            Some(profile) => {
                output.text(profile.text())?;
                Ok(Exit::Ok)
            }
            None => Err(hinted(format!("no profile `{name}`"), ["there are: interactive, batch".to_owned()])),
        },
    }
}

fn list(display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    if display.format != Format::Text {
        output.json(&json!({"schema": "retryscope.policy/1", "policies": all().collect::<Vec<_>>()}))?;
        return Ok(Exit::Ok);
    }
    let mut page = Page::new(width());
    let rows: Vec<Vec<String>> = all()
        .map(|policy| {
            let bound = policy.max_attempts(None, &Settings::default());
            let layers: Vec<String> = policy.layers.iter().map(|layer| layer.name.clone()).collect();
            vec![
                policy.title.clone(),
                match policy.kind {
                    Kind::Agent => "agent".to_owned(),
                    Kind::Sdk => "sdk".to_owned(),
                },
                bound.max.map_or_else(|| "no known limit".to_owned(), |max| max.to_string()),
                words::list(&layers),
            ]
        })
        .collect();
    page.table(&["policy", "", "most requests for one answer", "layers, outermost first"], &rows, &[], 0);
    page.space();
    page.line("retryscope policy show NAME tells more");
    output.text(&page.finish())?;
    Ok(Exit::Ok)
}

fn show(agent: &str, version: Option<&str>, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    let Some(policy) = find(agent, version) else {
        let names: Vec<String> = known_agents().map(std::string::ToString::to_string).collect();
        return Err(hinted(
            format!("no policy of `{agent}` is known"),
            [format!("known: {}", names.join(", "))],
        ));
    };
    if display.format != Format::Text {
        output.json(&json!({"schema": "retryscope.policy/1", "policies": [policy]}))?;
        return Ok(Exit::Ok);
    }
    output.text(&page(policy))?;
    Ok(Exit::Ok)
}

fn page(policy: &Known) -> String {
    let mut page = Page::new(width());
    let bound = policy.max_attempts(None, &Settings::default());
    page.line(&policy.title);
    let most = match bound.max {
        None => "an unknown number of requests".to_owned(),
        Some(1) => "1 request".to_owned(),
        Some(max) => format!("{max} requests"),
    };
    page.paragraph(&format!("At most {most} for one answer of one candidate."));
    page.space();
    let rows: Vec<Vec<String>> = policy
        .layers
        .iter()
        .map(|layer| {
            let waits: Vec<String> = (1..=3)
                .filter_map(|n| layer.backoff(n))
                .map(|(min, max)| {
                    if min == max {
                        words::span(min)
                    } else {
                        format!("{}-{}", words::span(min), words::span(max))
                    }
                })
                .collect();
            vec![
                layer.layer.as_str().to_owned(),
                layer.name.clone(),
                match layer.retries {
                    Retries::Count(n) => n.to_string(),
                    Retries::Open(_) => "no limit known".to_owned(),
                },
                layer.setting.clone().unwrap_or_else(|| "-".to_owned()),
                waits.join(", "),
                layer.retries_on.join(", "),
            ]
        })
        .collect();
    page.table(&["layer", "name", "retries", "setting", "first waits", "retries on"], &rows, &[], 2);
    section(&mut page, "weak", policy.weaknesses.iter().cloned());
    section(&mut page, "good", policy.strengths.iter().cloned());
    section(
        &mut page,
        "settings",
        policy.settings.iter().map(|s| format!("{} ({}): {}", s.name, s.file, s.meaning)),
    );
    let views = policy.views.iter().map(|view| {
        let enable = view
            .enable
            .as_deref()
            .map(|e| format!("; to get it: {}", e.trim().replace('\n', " ")))
            .unwrap_or_default();
        let attempts = match view.attempts {
            Attempts::All => "all",
            Attempts::Some => "some",
            Attempts::None => "no",
        };
        format!("{} shows {attempts} attempts{enable}", view.id)
    });
    section(&mut page, "logs", views);
    let conflicts = policy
        .conflicts
        .iter()
        .map(|c| format!("{} ({}), but {} ({})", c.claim, c.claim_source, c.finding, c.finding_source));
    section(&mut page, "conflicts", conflicts);
    section(
        &mut page,
        "facts",
        policy.facts.iter().map(|f| format!("{} [{:?}: {}]", f.text, f.evidence, f.source)),
    );
    if by_agent(&policy.agent).len() > 1 {
        page.space();
        let others: Vec<String> = by_agent(&policy.agent).iter().map(|p| p.title.clone()).collect();
        page.row("versions", &others.join(", "));
    }
    page.finish()
}

fn section(page: &mut Page, label: &str, texts: impl Iterator<Item = String>) {
    for (index, text) in texts.enumerate() {
        if index == 0 {
            page.space();
        }
        page.row(if index == 0 { label } else { "" }, &text);
    }
}

fn check(file: &std::path::Path, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    let text = if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().take(4 << 20).read_to_string(&mut text)?;
        text
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    let problems = own::check(&text);
    if display.format == Format::Text {
        for problem in &problems {
            output.text(&format!(
                "{}:{}:{}: {}\n",
                file.display(),
                problem.line,
                problem.column,
                problem.message
            ))?;
            if let Some(hint) = &problem.hint {
                output.text(&format!("  hint: {hint}\n"))?;
            }
        }
        if problems.is_empty() {
            output.text("no problem found\n")?;
        }
    } else {
        output.json(&json!({"schema": "retryscope.policy.check/1", "problems": problems}))?;
    }
    let bad = problems.iter().any(|problem| problem.severity == own::Severity::Error);
    Ok(if bad { Exit::Finding } else { Exit::Ok })
}
