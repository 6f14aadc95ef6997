//! The program logs before 1.17, `log/<time>.log`: one file a process, `LEVEL time +ms key=value ... text`.
//!
//! No message ids, so a request is known only by its order. Error lines hold the whole prompt; only status, headers, body
//! and the model asked for are read from them. Their tags may belong to a concurrent request.

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use retryscope_record::{Facts, Place, RunKey, Sink};

use super::AGENT;
use super::message::{candidate_of, raw_of};
use super::track::{Failed, Sent, Track};
use crate::LineDecoder;
use crate::json::{Object, holds};
use crate::say::Say;

pub(super) fn recognize(head: &[u8]) -> bool {
    if !holds(head, "service=") {
        return false;
    }
    let mut lines = head.split(|b| *b == b'\n').take(20);
    lines.any(|line| {
        std::str::from_utf8(line)
            .ok()
            .and_then(Line::parse)
            .is_some_and(|line| line.value("service").is_some())
    }) || holds(head, " service=llm ") && SESSION.iter().any(|key| holds(head, &format!(" {key}=ses_")))
}

/// The tag that names a session: the later form is that of the last versions with such logs.
const SESSION: &[&str] = &["sessionID", "session.id"];

/// The parts of a line before the first one that may hold anything.
struct Line<'a> {
    at: DateTime<Utc>,
    since_last: TimeDelta,
    is_error: bool,
    rest: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (level, rest) = line.split_once(char::is_whitespace)?;
        if !matches!(level, "DEBUG" | "INFO" | "WARN" | "ERROR") {
            return None;
        }
        let (time, rest) = rest.trim_start().split_once(' ')?;
        let at = NaiveDateTime::parse_from_str(time, "%Y-%m-%dT%H:%M:%S").ok()?.and_utc();
        let (since, rest) = rest.trim_start().split_once(' ')?;
        let since: i64 = since.strip_prefix('+')?.strip_suffix("ms")?.parse().ok()?;
        let since_last = TimeDelta::milliseconds(since.clamp(0, 1 << 40));
        Some(Self { at, since_last, is_error: level == "ERROR", rest })
    }

    /// Returns a tag, looked for before any error object.
    fn value(&self, key: &str) -> Option<&'a str> {
        let tags = self.rest.split(" error={").next()?;
        let mut words = tags.split(' ');
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// Returns the text at the end.
    fn ends(&self, text: &str) -> bool {
        self.rest.strip_suffix(text).is_some_and(|before| before.ends_with(' '))
    }
}

#[derive(Default)]
pub(super) struct OldLog {
    track: Track,
    last: Option<DateTime<Utc>>,
    version: Option<String>,
    /// Since 1.15 the program can be told to use a runtime of its own.
    may_be_native: bool,
}

/// All lines are those of one process.
const PROCESS: &str = "one";

impl LineDecoder for OldLog {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        // The time counts on from line to line, so each is looked at; what follows the first 4 KiB only in error lines.
        let Some(head) = line.get(..line.len().min(80)) else { return };
        let head = String::from_utf8_lossy(head);
        let Some((at, since_last)) = Line::parse(&head).map(|line| (line.at, line.since_last)) else {
            return;
        };
        let at = self.clock(at, since_last);
        self.track.hear(PROCESS, Some(at));
        let matters = ["service=llm", "service=session", "service=default"]
            .iter()
            .any(|service| holds(head.as_bytes(), service));
        if !matters {
            return;
        }
        let text = String::from_utf8_lossy(line);
        let Some(line) = Line::parse(&text) else { return };
        let named = SESSION.iter().find_map(|key| line.value(key));
        let session = named.or_else(|| line.value("id")).unwrap_or_default();
        let mut say =
            Say { run: RunKey::new(AGENT, session), place, at: Some(at), turn: None, step: None, sink };
        match line.value("service") {
            Some("default") if line.value("version").is_some() => self.note_version(line.value("version")),
            _ if !session.starts_with("ses_") => {}
            Some("session") if line.ends("created") => {
                let facts = Facts {
                    agent_version: line.value("version").map(str::to_owned).or_else(|| self.version.clone()),
                    parent_run_id: line
                        .value("parentID")
                        .filter(|id| id.starts_with("ses_"))
                        .map(str::to_owned),
                    directory: line.value("directory").map(str::to_owned),
                    ..Facts::default()
                };
                self.track.created(session, PROCESS, facts, &mut say);
            }
            Some("session.prompt") if line.ends("exiting loop") => {
                self.track.exit(session, PROCESS, &mut say);
            }
            Some("session.prompt") if line.ends("loop") => {
                self.track.step(
                    session,
                    PROCESS,
                    line.value("step").and_then(|step| step.parse().ok()),
                    &mut say,
                );
                if line.value("step") == Some("0")
                    && let Some(version) = &self.version
                {
                    let facts = Facts { agent_version: Some(version.clone()), ..Facts::default() };
                    self.track.created(session, PROCESS, facts, &mut say);
                }
            }
            Some("session.prompt") if line.ends("cancel") => self.track.left(session, PROCESS, &mut say),
            Some("llm") if line.is_error => {
                let failed = failed(&line);
                self.track.error(session, PROCESS, line.value("small") == Some("true"), &failed, &mut say);
            }
            Some("llm") if line.ends("stream") => {
                let sent = Sent {
                    candidate: candidate_of(line.value("providerID"), line.value("modelID")),
                    agent: line.value("agent"),
                    small: line.value("small") == Some("true"),
                    names_runtime: self.may_be_native,
                };
                self.track.stream(session, PROCESS, &sent, &mut say);
            }
            _ => {}
        }
    }

    fn end(&mut self, sink: &mut dyn Sink) {
        self.track.end(sink);
    }
}

impl OldLog {
    /// Lines have whole seconds, and the time since the line before.
    fn clock(&mut self, second: DateTime<Utc>, since_last: TimeDelta) -> DateTime<Utc> {
        let fine = self.last.and_then(|last| last.checked_add_signed(since_last));
        let fine = fine.filter(|fine| fine.timestamp() == second.timestamp()).unwrap_or(second);
        self.last = Some(fine);
        fine
    }

    fn note_version(&mut self, version: Option<&str>) {
        let mut parts = version.unwrap_or_default().split('.').map(|part| part.parse::<u64>().unwrap_or(0));
        let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        self.may_be_native = (major, minor) >= (1, 15);
        self.version = version.map(str::to_owned);
    }
}

/// Reads the error object of a line.
fn failed(line: &Line<'_>) -> Failed {
    let object = line.rest.split_once(" error=").map(|(_, rest)| rest);
    let object = object.and_then(|text| text.get(..=text.rfind('}')?));
    let outer = object.and_then(|text| Object::parse(text.as_bytes()));
    let Some(error) = outer.as_ref().and_then(|outer| outer.object("error")) else {
        return Failed::default();
    };
    let message = error.string("message").or_else(|| {
        let data = error.object("data")?.object("error")?;
        data.string("message")
    });
    Failed {
        message: message.or_else(|| body_message(&error)),
        code: error.string("code"),
        status: error.status("statusCode"),
        raw: raw_of(&error),
        model: error.object("requestBodyValues").and_then(|body| body.string("model")),
        // Of a request that was not answered the program calls it a path.
        endpoint: error.string("url").or_else(|| error.string("path")),
    }
}

fn body_message(error: &Object<'_>) -> Option<String> {
    let body = error.string("responseBody")?;
    Object::parse(body.as_bytes())?.object("error")?.string("message")
}

#[cfg(test)]
mod tests {
    use retryscope_record::{Collected, Statement};

    use super::*;

    fn read(lines: &[&str]) -> Collected {
        let mut sink = Collected::default();
        let mut log = OldLog::default();
        for (n, line) in lines.iter().enumerate() {
            log.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
        }
        sink
    }

    const STREAM: &str = "INFO  2026-01-02T03:04:05 +10ms service=llm providerID=p modelID=m sessionID=ses_1 small=false agent=build mode=primary stream";
    const ERROR: &str = r#"ERROR 2026-01-02T03:04:05 +20ms service=llm providerID=q modelID=n sessionID=ses_1 small=true agent=title mode=primary error={"error":{"name":"AI_APICallError","requestBodyValues":{"model":"m","messages":["secret"]},"statusCode":500,"responseHeaders":{"retry-after":"2"},"responseBody":"{\"error\":{\"message\":\"broken\"}}"}} stream error"#;

    #[test]
    fn an_error_goes_to_the_request_whose_model_it_names() {
        let said = read(&[STREAM, ERROR]);
        let failed = said.items.iter().rev().find_map(|(_, item)| match item {
            Statement::Event(event, raw) => Some((event.clone(), raw.clone())),
            Statement::Mark { .. } => None,
        });
        let (event, raw) = failed.unwrap();
        let retryscope_events::Body::ModelAttempt(attempt) = &event.body else { panic!("{event:?}") };
        assert_eq!((attempt.status, attempt.message.as_deref()), (Some(500), Some("broken")));
        assert_eq!(raw.unwrap().headers, [("retry-after".to_owned(), "2".to_owned())]);
        assert!(!format!("{:?}", said.items).contains("secret"));
    }

    const TITLE: &str = "INFO  2026-01-02T03:04:05 +1ms service=llm providerID=q modelID=n sessionID=ses_1 small=true agent=title mode=primary stream";
    const TITLE_ERROR: &str = r#"ERROR 2026-01-02T03:04:05 +20ms service=llm providerID=q modelID=n sessionID=ses_1 small=true agent=title mode=primary error={"error":{"code":"FailedToOpenSocket","errno":0}} stream error"#;

    /// Returns the requests whose attempts failed.
    fn failed_requests(said: &Collected) -> Vec<String> {
        let failed = |item: &Statement| match item {
            Statement::Event(event, _) => match &event.body {
                retryscope_events::Body::ModelAttempt(attempt) => {
                    attempt.outcome.and(attempt.request_id.clone())
                }
                _ => None,
            },
            Statement::Mark { .. } => None,
        };
        said.items.iter().filter_map(|(_, item)| failed(item)).collect()
    }

    #[test]
    fn an_error_of_a_title_is_never_the_main_requests() {
        let both = read(&[TITLE, STREAM, TITLE, TITLE_ERROR, TITLE_ERROR, TITLE_ERROR]);
        assert_eq!(failed_requests(&both), ["#title2", "#title1"]);
        assert!(failed_requests(&read(&[STREAM, TITLE_ERROR])).is_empty());
        // Its tags may be wrong; the model that was asked is not.
        assert_eq!(failed_requests(&read(&[TITLE, STREAM, ERROR])), ["#1"]);
    }

    #[test]
    fn an_error_that_names_no_model_is_the_main_requests_only_where_its_place_says_so() {
        let unreached = |path: &str| {
            format!(
                r#"ERROR 2026-01-02T03:04:05 +20ms service=llm providerID=p modelID=m sessionID=ses_1 small=false agent=build mode=primary error={{"error":{{"code":"ConnectionRefused","path":"{path}","errno":0}}}} stream error"#
            )
        };
        let (here, there) = (unreached("http://here/v1"), unreached("http://there/v1"));
        let told = ERROR.replace(r#""requestBodyValues""#, r#""url":"http://here/v1","requestBodyValues""#);
        // The title may have been asked of another provider, and the tags may be wrong.
        assert!(failed_requests(&read(&[TITLE, STREAM, &there])).is_empty());
        assert_eq!(failed_requests(&read(&[TITLE, STREAM, &there, &told])), ["#1"]);
        let known = [TITLE, STREAM, &told, STREAM];
        assert_eq!(failed_requests(&read(&[&known[..], &[&here]].concat())), ["#1", "#1"]);
        assert_eq!(failed_requests(&read(&[&known[..], &[&there]].concat())), ["#1", "#title1"]);
        // Near miss: no title is open.
        assert_eq!(failed_requests(&read(&[STREAM, &there])), ["#1"]);
    }

    #[test]
    fn a_session_is_named_in_either_form() {
        let dotted = |line: &str| line.replace(" sessionID=", " session.id=");
        let (old, new) = (read(&[STREAM, ERROR]), read(&[&dotted(STREAM), &dotted(ERROR)]));
        assert!(old.items.len() > 3);
        assert_eq!(old.items, new.items);
        // A head in which no line begins is recognized by what stands in it.
        let cut = |line: &str| recognize(line.split_once("+10ms").unwrap().1.as_bytes());
        assert!(cut(STREAM) && cut(&dotted(STREAM)));
        assert!(!cut(&STREAM.replace("sessionID", "project.id")));
    }

    #[test]
    fn lines_of_one_second_are_told_apart() {
        let said = read(&[STREAM, STREAM]);
        let times: Vec<_> = said
            .items
            .iter()
            .filter_map(|(_, item)| if let Statement::Event(e, _) = item { e.ts } else { None })
            .collect();
        assert!(times.last() > times.first());
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let said = read(&[
            "",
            "INFO",
            "INFO  2026-01-02T03:04:05 +xms a",
            "ERROR 2026-01-02T03:04:05 +1ms service=llm sessionID=ses_1 error={ stream error",
        ]);
        assert!(said.gaps.is_empty());
        let mut log = OldLog::default();
        log.line(
            Place::Line(1),
            b"INFO  2026-01-02T03:04:05 +1ms service=llm \xff\xfe",
            &mut Collected::default(),
        );
    }
}
