//! A run that may be shown to strangers: ids, paths, hosts, accounts and names of private providers are replaced.
//!
//! The replacements are keyed by a secret that is thrown away, so that a guess cannot be checked against them; within one
//! answer the same thing has the same name. Models, known providers, statuses, codes, times and counts stay, since a bug
//! report is about them. Not for: credentials (those are redacted when a log is read).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use retryscope_analysis::tools::What;
use retryscope_analysis::{Failure, Run};
use retryscope_events::Candidate;

/// Replaces what could tell who somebody is.
#[derive(Debug)]
pub struct Sharer {
    key: RandomState,
    /// Names that stay: models, and providers that everybody knows.
    kept: BTreeSet<String>,
    /// What is private wherever it stands, and what kind of thing it is: ids, providers of one's own.
    private: BTreeMap<String, &'static str>,
}

impl Sharer {
    /// Returns one for these runs; `is_known` says which providers everybody knows.
    pub fn new<'a>(runs: impl IntoIterator<Item = &'a Run>, is_known: impl Fn(&str) -> bool) -> Self {
        let (mut kept, mut ids, mut providers) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for run in runs {
            ids.insert(run.key.id.to_string());
            for request in run.turns.iter().flat_map(|turn| &turn.requests) {
                ids.insert(request.id.clone());
                ids.extend(request.attempts.iter().filter_map(|attempt| attempt.id.clone()));
                let failures = request.attempts.iter().filter_map(|attempt| attempt.failure.as_ref());
                ids.extend(failures.filter_map(|failure| failure.upstream_request_id.clone()));
            }
            let requests = run.turns.iter().flat_map(|turn| &turn.requests);
            let named = requests.flat_map(|request| &request.attempts).map(|attempt| &attempt.candidate);
            kept.extend(named.clone().filter_map(|c| c.model.clone()));
            kept.extend(run.facts.model.clone());
            kept.extend(run.facts.agent_version.clone());
            providers.extend(named.filter_map(|c| c.provider.clone()).chain(run.facts.provider.clone()));
        }
        let (known, own): (BTreeSet<String>, _) = providers.into_iter().partition(|name| is_known(name));
        kept.extend(known);
        // A number alone may be anything.
        ids.retain(|id| id.len() > 2 && !id.chars().all(|c| c.is_ascii_digit()));
        let own = own.into_iter().map(|name| (name, "provider"));
        let private = ids.into_iter().map(|id| (id, "id")).chain(own).collect();
        Self { key: RandomState::new(), kept, private }
    }

    /// Returns a short name for something, the same each time.
    fn name(&self, kind: &str, of: &str) -> String {
        if of.is_empty() { String::new() } else { format!("{kind}-{:08x}", self.key.hash_one(of) >> 32) }
    }

    /// Returns a name for a path that keeps only its ending.
    pub fn path(&self, path: &Path) -> PathBuf {
        let ending = path.extension().and_then(|e| e.to_str()).map(|e| format!(".{e}")).unwrap_or_default();
        PathBuf::from(self.name("log", &path.to_string_lossy()) + &ending)
    }

    /// Returns the run without what could tell who somebody is.
    #[must_use]
    pub fn run(&self, run: &Run) -> Run {
        let mut run = run.clone();
        run.key.id = self.id(&run.key.id).into();
        let facts = &mut run.facts;
        for id in [&mut facts.parent_run_id, &mut facts.parent_call_id, &mut facts.forked_from] {
            *id = id.as_deref().map(|id| self.id(id));
        }
        facts.directory = None;
        facts.provider = facts.provider.as_deref().map(|name| self.provider(name));
        for candidate in &mut run.declared.candidates {
            self.candidate(candidate);
        }
        run.declared.data_class = run.declared.data_class.as_deref().map(|class| self.name("class", class));
        run.declared.policy = None;
        for turn in &mut run.turns {
            turn.key = turn.key.as_deref().map(|key| self.id(key));
            for text in [&mut turn.error, &mut turn.terminal_reason] {
                *text = text.as_deref().map(|text| self.text(text));
            }
            if let Some(cause) = &mut turn.cause {
                self.failure(&mut cause.failure);
                self.candidate(Arc::make_mut(&mut cause.candidate));
            }
            for request in &mut turn.requests {
                request.id = self.id(&request.id);
                for attempt in &mut request.attempts {
                    attempt.id = attempt.id.as_deref().map(|id| self.id(id));
                    self.candidate(Arc::make_mut(&mut attempt.candidate));
                    if let Some(failure) = &mut attempt.failure {
                        self.failure(failure);
                    }
                }
            }
        }
        for text in &mut run.blind_spots {
            *text = self.text(text);
        }
        for (_, value) in &mut run.settings {
            *value = self.text(value);
        }
        for entry in &mut run.ledger {
            if let What::Attempt(attempt) = &mut entry.what {
                attempt.call_id = attempt.call_id.as_deref().map(|id| self.id(id));
                attempt.tool = attempt.tool.as_deref().map(|tool| self.text(tool));
                attempt.error_code = attempt.error_code.as_deref().map(|code| self.text(code));
            }
        }
        run
    }

    fn id(&self, id: &str) -> String {
        // A subagent's id begins with its parent's.
        id.split(':').map(|part| self.name("id", part)).collect::<Vec<_>>().join(":")
    }

    fn provider(&self, name: &str) -> String {
        if self.kept.contains(name) { name.to_owned() } else { self.name("provider", name) }
    }

    fn candidate(&self, candidate: &mut Candidate) {
        candidate.provider = candidate.provider.as_deref().map(|name| self.provider(name));
        candidate.endpoint = candidate.endpoint.as_deref().map(|host| self.name("host", host));
        candidate.account = candidate.account.as_deref().map(|account| self.name("account", account));
        candidate.alias = candidate.alias.as_deref().map(|alias| self.text(alias));
    }

    fn failure(&self, failure: &mut Failure) {
        failure.message = failure.message.as_deref().map(|text| self.text(text));
        failure.code = failure.code.as_deref().map(|code| self.text(code));
        failure.upstream_request_id = failure.upstream_request_id.as_deref().map(|id| self.id(id));
    }

    /// Returns a text with every word replaced that could be an id, a path, a host or an address.
    pub fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let is_part = |c: char| c.is_alphanumeric() || "-_./:@~\\%+".contains(c);
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (word, mut more) = rest.split_at(end);
            out.push_str(&self.word(word));
            if word.contains("://") {
                // What a query asks for is part of the address.
                more = more.trim_start_matches(|c: char| is_part(c) || "?=&#".contains(c));
            }
            let next = more.find(is_part).unwrap_or(more.len());
            let (between, more) = more.split_at(next);
            out.push_str(between);
            rest = more;
        }
        out
    }

    fn word(&self, word: &str) -> String {
        let core = word.trim_matches(['.', ':', '-', '_', '/']);
        if core.is_empty() || self.kept.contains(word) || self.kept.contains(core) {
            return word.to_owned();
        }
        let kind = self.private.get(core).copied().or_else(|| kind_of(word, core));
        match (kind, word.split_once("://")) {
            (None, _) => word.to_owned(),
            (Some(_), Some((scheme, place))) => format!("{scheme}://{}", self.name("host", place)),
            (Some("path"), None) => self.name("path", core),
            (Some(kind), None) => word.replacen(core, &self.name(kind, core), 1),
        }
    }
}

/// Beginnings of ids that providers give.
const ID_BEGINNINGS: [&str; 9] =
    ["req_", "req-", "org-", "msg_", "resp_", "proj_", "acct_", "user-", "chatcmpl-"];

/// Letters and digits that are mixed in a word of this length are an id, not a name.
const LONG: usize = 12;

/// Returns what a word could be; `None` for one that tells nothing about anybody.
fn kind_of(word: &str, core: &str) -> Option<&'static str> {
    let segments = core.split(['/', '\\']).filter(|part| !part.is_empty()).count();
    let host = core.split([':', '/']).next().unwrap_or(core);
    let labels: Vec<&str> = host.split('.').collect();
    let is_number = |label: &&str| !label.is_empty() && label.chars().all(|c| c.is_ascii_digit());
    if word.contains("://") {
        return Some("host");
    }
    if core.contains('@') && core.contains('.') {
        return Some("address");
    }
    // One segment alone is a command, `/login`.
    if word.starts_with(['/', '~', '\\']) && segments > 1 || segments > 2 || core.contains(":\\") {
        return Some("path");
    }
    if labels.len() == 4 && labels.iter().all(is_number) && host != "127.0.0.1" {
        return Some("host");
    }
    let is_name = |label: &&str| !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-');
    // Names of stream events have dots too.
    let is_event = ["response", "message", "content"].contains(&labels[0]);
    let top = labels.last().is_some_and(|top| top.len() > 1 && top.chars().all(|c| c.is_ascii_alphabetic()));
    if labels.len() > 1 && labels.iter().all(is_name) && top && !is_event {
        return Some("host");
    }
    let digits = core.chars().any(|c| c.is_ascii_digit());
    let letters = core.chars().any(|c| c.is_ascii_alphabetic());
    let begins = ID_BEGINNINGS.iter().any(|beginning| core.starts_with(beginning));
    (begins || core.chars().count() >= LONG && digits && letters).then_some("id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_words_and_loses_who_it_is_about() {
        let share = Sharer {
            key: RandomState::new(),
            kept: ["gpt-5.5-2026-01-10".to_owned()].into(),
            private: [("acme-gw".to_owned(), "provider")].into(),
        };
        let text = "429 on gpt-5.5-2026-01-10: quota of org-9Jk2mNq81LxP used up, see https://gw.acme.example/v1?x=1 (req_011CSHoEeqs5C35K2UUqR7Fy), mail ops@acme.example, file /srv/ada/demo/key.json from acme-gw on build7.acme.example:8443 or 10.1.2.3";
        let shared = share.text(text);
        for secret in ["org-9Jk2", "acme", "req_011", "ops@", "ada", "build7", "10.1.2.3"] {
            assert!(!shared.contains(secret), "{secret} is left in {shared}");
        }
        for word in [
            "429 on gpt-5.5-2026-01-10: quota of id-",
            "used up, see https://host-",
            "mail address-",
            "file path-",
        ] {
            assert!(shared.contains(word), "{word} is missing in {shared}");
        }
        for words in ["max_tokens must be at most 1500", "Not logged in. Please run /login."] {
            assert_eq!(share.text(words), words);
        }
        let words = "stream closed before response.completed";
        assert_eq!(share.text(words), words);
    }
}
