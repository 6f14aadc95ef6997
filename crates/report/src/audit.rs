//! Findings of the audit rules for a person, a program, a code host (SARIF) and a test reader (`JUnit`).

use retryscope_analysis::rules::pack::Behaviour;
use retryscope_analysis::rules::{Finding, Rule, Verdict, rules};
use retryscope_analysis::words::visible;
use retryscope_record::{Origin, Place};
use serde_json::{Value, json};

use crate::json::{PathOf, origin, places};
use crate::page::Page;

/// Records of one finding that a page names.
const SHOWN_EVIDENCE: usize = 3;

/// Returns the page of findings, run by run.
pub fn text(findings: &[Finding], path_of: PathOf<'_>, width: usize) -> String {
    let mut page = Page::new(width);
    let mut last = None;
    for finding in findings {
        if last != Some(&finding.run) {
            if last.is_some() {
                page.space();
            }
            page.line(&format!("run {}  {}", finding.run.id, finding.run.agent));
            last = Some(&finding.run);
        }
        page.row(finding.rule, &format!("{}: {}", finding.verdict.as_str(), finding.message));
        for place in places(&finding.evidence).take(SHOWN_EVIDENCE) {
            page.row("", &format!("at {}{}", path_of(place.source).display(), place.place));
        }
        let more = places(&finding.evidence).skip(SHOWN_EVIDENCE).count();
        if more > 0 {
            page.row("", &format!("and {more} more"));
        }
        if let Some(fix) = &finding.fix {
            page.row("", &format!("fix: {fix}"));
        }
    }
    page.finish()
}

/// Returns the page that explains one rule.
pub fn explain(rule: &Rule, width: usize) -> String {
    let mut page = Page::new(width);
    page.line(&format!("{}  {}", rule.code, rule.name));
    page.space();
    for (label, text) in [
        ("finds", rule.what),
        ("why", rule.why),
        ("example", rule.example),
        ("instead", rule.instead),
        ("source", rule.source),
    ] {
        page.row(label, text);
    }
    page.finish()
}

/// Returns the documentation of all rules as Markdown.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Audit rules\n\nWritten by `retryscope audit --rules`; a test compares this file with the program.\n",
    );
    for rule in rules() {
        out.push_str(&format!(
            "\n## {} {}\n\n{}\n\n- **Why:** {}\n- **Example:** {}\n- **Instead:** {}\n- **Source:** {}\n",
            rule.code, rule.name, rule.what, rule.why, rule.example, rule.instead, rule.source
        ));
    }
    out
}

/// Returns the page of an acceptance pack.
pub fn pack(behaviours: &[Behaviour], path_of: PathOf<'_>, width: usize) -> String {
    let mut page = Page::new(width);
    for behaviour in behaviours {
        page.row(outcome(behaviour.verdict), behaviour.name);
        for place in places(&behaviour.evidence).take(SHOWN_EVIDENCE) {
            page.row("", &format!("at {}{}", path_of(place.source).display(), place.place));
        }
    }
    page.finish()
}

/// Returns an acceptance pack as JSON.
pub fn pack_json(behaviours: &[Behaviour], path_of: PathOf<'_>) -> Value {
    let behaviours: Vec<Value> = behaviours
        .iter()
        .map(|behaviour| {
            json!({
                "behaviour": behaviour.name,
                "outcome": outcome(behaviour.verdict),
                "evidence": places(&behaviour.evidence).map(|o| origin(o, path_of)).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({"schema": "retryscope.pack/1", "behaviours": behaviours})
}

fn outcome(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Violation => "fail",
        Verdict::Unknown => "not shown",
    }
}

/// Returns one finding as JSON.
pub fn finding(finding: &Finding, path_of: PathOf<'_>) -> Value {
    json!({
        "rule": finding.rule,
        "verdict": finding.verdict.as_str(),
        "agent": &*finding.run.agent,
        "run_id": &*finding.run.id,
        "message": finding.message,
        "fix": finding.fix,
        "evidence": places(&finding.evidence).map(|o| origin(o, path_of)).collect::<Vec<_>>(),
    })
}

/// Returns the audit object.
pub fn json(findings: &[Finding], path_of: PathOf<'_>) -> Value {
    let findings: Vec<Value> = findings.iter().map(|f| finding(f, path_of)).collect();
    json!({"schema": "retryscope.audit/1", "findings": findings})
}

/// Returns a SARIF 2.1.0 log.
///
/// <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>
pub fn sarif(findings: &[Finding], path_of: PathOf<'_>) -> Value {
    let described: Vec<Value> = rules()
        .map(|rule| {
            json!({
                "id": rule.code,
                "name": rule.name,
                "shortDescription": {"text": rule.name},
                "fullDescription": {"text": rule.what},
                "help": {"text": format!("{} Instead: {}", rule.why, rule.instead)},
                "helpUri": rule.source.split_whitespace().next(),
            })
        })
        .collect();
    let results: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let (kind, level) = match finding.verdict {
                Verdict::Violation => ("fail", "warning"),
                Verdict::Unknown => ("open", "none"),
                Verdict::Pass => ("pass", "none"),
            };
            let locations: Vec<Value> =
                places(&finding.evidence).map(|place| location(place, path_of)).collect();
            json!({
                "ruleId": finding.rule,
                "kind": kind,
                "level": level,
                "message": {"text": format!("run {}: {}", finding.run.id, finding.message)},
                "locations": locations,
                "partialFingerprints": {"retryscope/1": fingerprint(finding)},
            })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "retryscope",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": described,
            }},
            "results": results,
        }],
    })
}

fn location(place: Origin, path_of: PathOf<'_>) -> Value {
    let uri: String = path_of(place.source).display().to_string().bytes().map(uri_byte).collect();
    match place.place {
        Place::Line(line) => {
            json!({"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}})
        }
        _ => json!({"physicalLocation": {"artifactLocation": {"uri": uri}}}),
    }
}

fn uri_byte(byte: u8) -> String {
    match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    }
}

/// Returns what makes a finding the same finding tomorrow: rule and run.
pub fn fingerprint(finding: &Finding) -> String {
    format!("{}:{}:{}", finding.rule, finding.run.agent, finding.run.id)
}

/// Returns a `JUnit` report: a test suite a run, a test case a finding.
pub fn junit(findings: &[Finding]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let count = |verdict, of: &[&Finding]| of.iter().filter(|f| f.verdict == verdict).count();
    let all: Vec<&Finding> = findings.iter().collect();
    out.push_str(&format!(
        "<testsuites name=\"retryscope audit\" tests=\"{}\" failures=\"{}\">\n",
        all.len(),
        count(Verdict::Violation, &all),
    ));
    for group in findings.chunk_by(|a, b| a.run == b.run) {
        let of: Vec<&Finding> = group.iter().collect();
        let name = format!("{} {}", group[0].run.agent, group[0].run.id);
        out.push_str(&format!(
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
            escaped(&name),
            of.len(),
            count(Verdict::Violation, &of),
            count(Verdict::Unknown, &of),
        ));
        for finding in of {
            let message = escaped(&finding.message);
            let body = match finding.verdict {
                Verdict::Violation => format!("<failure message=\"{message}\"/>"),
                Verdict::Unknown => format!("<skipped message=\"{message}\"/>"),
                Verdict::Pass => String::new(),
            };
            out.push_str(&format!(
                "    <testcase classname=\"{}\" name=\"{}\">{body}</testcase>\n",
                escaped(&name),
                finding.rule,
            ));
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

/// Escapes a text for XML; control characters, which XML cannot hold, are made visible.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use retryscope_record::SourceId;

    use super::*;

    #[test]
    fn markup_and_control_characters_cannot_leave_an_attribute() {
        assert_eq!(escaped("a\"<b>&"), "a&quot;&lt;b&gt;&amp;");
        assert!(!escaped("x\u{1b}[2Jy").contains('\u{1b}'));
    }

    #[test]
    fn a_place_is_named_once() {
        let at = |source, line| Origin { source: SourceId(source), place: Place::Line(line) };
        let evidence = [at(1, 2), at(1, 3), at(1, 2), at(2, 2), at(1, 3)];
        assert_eq!(places(&evidence).collect::<Vec<_>>(), [at(1, 2), at(1, 3), at(2, 2)]);
    }

    #[test]
    fn every_rule_has_its_text() {
        let all: Vec<&Rule> = rules().collect();
        assert!(all.windows(2).all(|pair| pair[0].code < pair[1].code), "sorted, each code once");
        for rule in all {
            for text in [rule.name, rule.what, rule.why, rule.example, rule.instead, rule.source] {
                assert!(!text.is_empty(), "{}", rule.code);
            }
        }
    }
}
