//! A run that may be shown to strangers: ids, paths, hosts, regions, accounts and names of private providers and agents are
//! replaced, wherever they stand and in whatever case.
//!
//! The replacements are keyed by a secret that is thrown away, so that a guess cannot be checked against them; within one
//! answer the same thing has the same name. Models, known providers, statuses, codes, times and counts stay, since a bug
//! report is about them. Not for: credentials (those are redacted when a log is read).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};

use retryscope_analysis::{Names, Run};

/// Replaces what could tell who somebody is.
#[derive(Debug)]
pub struct Sharer {
    key: RandomState,
    /// Names that stay: models, and what everybody knows.
    kept: BTreeSet<String>,
    /// What is private wherever it stands, and what kind of thing it is.
    private: BTreeMap<String, &'static str>,
    /// Private names that are looked for in the middle of words too, in lower case, the longest first.
    within: Vec<(String, &'static str)>,
}

/// A private name of fewer letters is replaced where it is a word of its own.
const SHORTEST_WITHIN: usize = 4;

/// Things with names that stay, of those for which a log may have names of its own.
const KINDS: [&str; 30] = [
    "http",
    "https",
    "websocket",
    "sse",
    "stdio",
    "grpc",
    "main",
    "title",
    "compact",
    "compaction",
    "summary",
    "subagent",
    "review",
    "provider",
    "model",
    "alias",
    "endpoint",
    "region",
    "account",
    "transport",
    "interactive",
    "batch",
    "read",
    "write",
    "external",
    "idempotent",
    "conditional",
    "non_idempotent",
    "auto",
    "ask",
];

impl Sharer {
    /// Returns one for these runs; `is_known` says which providers and agents everybody knows.
    pub fn new<'a>(runs: impl IntoIterator<Item = &'a Run>, is_known: impl Fn(Names, &str) -> bool) -> Self {
        let (mut kept, mut private) = (BTreeSet::new(), BTreeMap::new());
        for run in runs {
            run.clone().each_text(&mut |names, text| {
                // A number alone may be anything.
                let is_name = text.chars().any(|c| !c.is_ascii_digit());
                let kind = match names {
                    Names::Model | Names::Version => {
                        kept.insert(text.clone());
                        return;
                    }
                    Names::Provider | Names::Agent if is_known(names, text) => {
                        kept.insert(text.clone());
                        return;
                    }
                    Names::Kind | Names::Free | Names::Directory => return,
                    // A word of two letters stands in too many texts.
                    Names::Id if text.len() < 3 => return,
                    other => kind_name(other),
                };
                let name = if names == Names::Endpoint { without_scheme(text).1 } else { text };
                if is_name && !name.is_empty() {
                    private.insert(name.to_owned(), kind);
                }
            });
        }
        let mut within: Vec<(String, &'static str)> = private
            .iter()
            .filter(|(name, kind)| **kind != "id" && name.chars().count() >= SHORTEST_WITHIN)
            .map(|(name, kind)| (name.to_lowercase(), *kind))
            .collect();
        within.sort_by(|a, b| (b.0.len(), &a.0).cmp(&(a.0.len(), &b.0)));
        within.dedup_by(|a, b| a.0 == b.0);
        Self { key: RandomState::new(), kept, private, within }
    }

    /// Returns a short name for something, the same each time.
    fn name(&self, kind: &str, of: &str) -> String {
        // Ids tell apart what differs in case alone; names are written in any.
        let of = if kind == "id" { of.to_owned() } else { of.to_lowercase() };
        if of.is_empty() { of } else { format!("{kind}-{:08x}", self.key.hash_one(of) >> 32) }
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
        run.facts.directory = None;
        run.declared.policy = None;
        run.each_text(&mut |names, text| {
            *text = match names {
                // A subagent's id begins with its parent's.
                Names::Id => text.split(':').map(|part| self.name("id", part)).collect::<Vec<_>>().join(":"),
                Names::Provider | Names::Agent if self.kept.contains(text) => return,
                Names::Kind if KINDS.contains(&text.as_str()) => return,
                Names::Endpoint => {
                    let (scheme, place) = without_scheme(text);
                    format!("{scheme}{}", self.name("host", place))
                }
                Names::Model | Names::Version | Names::Free => self.text(text),
                other => self.name(kind_name(other), text),
            }
        });
        run
    }

    /// Returns a text with every word replaced that could be an id, a path, a host or an address, and every private name.
    pub fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            if let Some((hidden, length)) = self.begins_with_several_words(rest) {
                out.push_str(&hidden);
                rest = rest.get(length..).unwrap_or_default();
                continue;
            }
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (word, mut more) = rest.split_at(end);
            out.push_str(&self.word(word));
            if word.contains("://") {
                // What a query asks for is part of the address.
                more = more.trim_start_matches(|c: char| is_part(c) || "?=&#".contains(c));
            }
            // One sign at a time: a private name may begin with any.
            let next = more.chars().next().filter(|c| !is_part(*c)).map_or(0, char::len_utf8);
            let (between, more) = more.split_at(next);
            out.push_str(between);
            rest = more;
        }
        out
    }

    /// Returns what stands for a private name of several words that a text begins with, and how long that is in it.
    fn begins_with_several_words(&self, text: &str) -> Option<(String, usize)> {
        let several = self.within.iter().filter(|(name, _)| name.contains(|c| !is_part(c)));
        several
            .into_iter()
            .find_map(|(name, kind)| beginning(text, name).map(|length| (self.name(kind, name), length)))
    }

    fn word(&self, word: &str) -> String {
        let core = word.trim_matches(['.', ':', '-', '_', '/']);
        if core.is_empty() {
            return word.to_owned();
        }
        if self.kept.contains(word) || self.kept.contains(core) {
            return self.without_names(word);
        }
        let kind = self.private.get(core).copied().or_else(|| kind_of(word, core));
        match (kind, word.split_once("://")) {
            (None, _) => self.without_names(word),
            (Some(_), Some((scheme, place))) => format!("{scheme}://{}", self.name("host", place)),
            (Some("path"), None) => self.name("path", core),
            (Some(kind), None) => word.replacen(core, &self.name(kind, core), 1),
        }
    }

    /// Returns a word with the private names in it replaced.
    fn without_names(&self, word: &str) -> String {
        let mut out = String::with_capacity(word.len());
        let mut rest = word;
        while let Some(c) = rest.chars().next() {
            let found =
                self.within.iter().find_map(|(name, kind)| Some((name, kind, beginning(rest, name)?)));
            let length = if let Some((name, kind, length)) = found {
                out.push_str(&self.name(kind, name));
                length
            } else {
                out.push(c);
                c.len_utf8()
            };
            rest = rest.get(length..).unwrap_or_default();
        }
        out
    }
}

/// Returns the word that stands before what replaces a name.
fn kind_name(names: Names) -> &'static str {
    match names {
        Names::Id => "id",
        Names::Agent => "agent",
        Names::Version => "version",
        Names::Provider => "provider",
        Names::Model => "model",
        Names::Endpoint => "host",
        Names::Region => "region",
        Names::Account => "account",
        Names::DataClass => "class",
        Names::Directory => "path",
        Names::Kind | Names::Free => "word",
    }
}

fn without_scheme(endpoint: &str) -> (&str, &str) {
    match endpoint.find("://") {
        Some(at) => endpoint.split_at(at + "://".len()),
        None => ("", endpoint),
    }
}

/// Returns whether a sign may stand in a word.
fn is_part(c: char) -> bool {
    c.is_alphanumeric() || "-_./:@~\\%+".contains(c)
}

/// Returns how long the beginning of a text is that is this name in any case; `name` is in lower case.
fn beginning(text: &str, name: &str) -> Option<usize> {
    let mut wanted = name.chars();
    let mut length = 0;
    for c in text.chars() {
        for lower in c.to_lowercase() {
            if wanted.next() != Some(lower) {
                return None;
            }
        }
        length += c.len_utf8();
        if wanted.as_str().is_empty() {
            return Some(length);
        }
    }
    None
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
            within: vec![("acme-gw".to_owned(), "provider")],
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
