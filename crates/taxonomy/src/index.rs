//! The tables made ready for matching: one automaton over every phrase and code, and rows by what triggers them.
//!
//! A layer is scanned once, whatever the number of rows; only rows with a hit are looked at. Order decides between
//! rows that match: fine before weak before status alone, then the order of the tables, then that of the rows.

mod patterns;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use self::patterns::{Around, CodeForm, Patterns, SEPARATOR};
use crate::Reason;
use crate::table::{Row, Table, TableError, embedded};
use crate::unwrap::Layer;
use crate::weigh::{Standing, is_outvoted, least_place};

/// How much a row knows; smaller goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// A code or wording that settles it.
    Fine,
    /// A code or wording that covers many causes.
    Weak,
    /// The status and nothing else.
    StatusOnly,
    /// Single words, where nothing else tells.
    Guess,
}

/// A row that matched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Match {
    pub(crate) rank: Rank,
    pub(crate) row: &'static Row,
    pub(crate) rule: &'static str,
    /// Whether the row is one that every provider shares.
    pub(crate) shared: bool,
    /// Where it stands among all rows that could match; the smallest decides.
    pub(crate) place: Place,
}

/// Rank, place of the table in the chain, place among all rows.
pub(crate) type Place = (Rank, usize, usize);

/// Tables by their place in [`Index::tables`], in the order in which their rows apply.
pub(crate) type Chain = Vec<usize>;

/// All tables, compiled.
pub(crate) struct Index {
    tables: Vec<Table>,
    rows: Vec<Compiled>,
    words: Option<AhoCorasick>,
    /// For each pattern of `words`, the rows that a hit may make match.
    triggered: Vec<Vec<usize>>,
    /// For each pattern of `words`, how it has to stand in the text to be a code.
    code_forms: Vec<CodeForm>,
    /// For each pattern of `words`, whether it counts only as words of its own.
    whole: Vec<bool>,
    by_header: Vec<usize>,
    by_status: Vec<usize>,
    hints: Option<AhoCorasick>,
    hint_tables: Vec<usize>,
    names: BTreeMap<String, usize>,
}

struct Compiled {
    table: usize,
    row: usize,
    rule: String,
    rank: Rank,
    code: Vec<usize>,
    any: Vec<usize>,
    all: Vec<usize>,
    none: Vec<usize>,
}

impl Index {
    /// Returns the index over the embedded tables.
    pub(crate) fn get() -> &'static Self {
        static INDEX: OnceLock<Index> = OnceLock::new();
        // The embedded tables are read by a test, so the empty index is never met in practice; it judges by nothing.
        INDEX.get_or_init(|| Self::load().unwrap_or_else(|_| Self::build(Vec::new())))
    }

    pub(crate) fn load() -> Result<Self, TableError> {
        Ok(Self::build(embedded()?))
    }

    fn build(tables: Vec<Table>) -> Self {
        let mut patterns = Patterns::default();
        let mut rows = Vec::new();
        let (mut by_header, mut by_status) = (Vec::new(), Vec::new());
        for (table_at, table) in tables.iter().enumerate() {
            for (row_at, row) in table.rows.iter().enumerate() {
                let at = rows.len();
                let code: Vec<_> = row.code.iter().map(|code| patterns.code(code)).collect();
                let mut phrases =
                    |list: &[String]| list.iter().map(|p| patterns.phrase(p)).collect::<Vec<_>>();
                let (mut any, all, none) = (phrases(&row.any), phrases(&row.all), phrases(&row.none));
                any.extend(row.words.iter().map(|words| patterns.whole_words(words)));
                let triggers = [&code, &any, &all].into_iter().find(|list| !list.is_empty());
                let rank = match (triggers, row.header.is_empty()) {
                    (None, true) => Rank::StatusOnly,
                    _ if row.guess => Rank::Guess,
                    _ if row.weak => Rank::Weak,
                    _ => Rank::Fine,
                };
                match triggers {
                    // `all` needs every phrase, so the first of them is trigger enough.
                    Some(list) if code.is_empty() && any.is_empty() => {
                        patterns.trigger(list.first().copied(), at);
                    }
                    Some(list) => {
                        for &pattern in list {
                            patterns.trigger(Some(pattern), at);
                        }
                    }
                    None if row.header.is_empty() => by_status.push(at),
                    None => by_header.push(at),
                }
                let rule = format!("{}/{}", table.name, row.id);
                rows.push(Compiled { table: table_at, row: row_at, rule, rank, code, any, all, none });
            }
        }
        let (mut hints, mut hint_tables, mut names) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (at, table) in tables.iter().enumerate() {
            for hint in &table.hints {
                hints.push(hint.clone());
                hint_tables.push(at);
            }
            for name in table.aliases.iter().chain([&table.name]) {
                names.insert(name.clone(), at);
            }
        }
        Self {
            rows,
            words: AhoCorasick::new(&patterns.list).ok(),
            triggered: patterns.triggered,
            code_forms: patterns.code_forms,
            whole: patterns.whole,
            by_header,
            by_status,
            // Most commands classify a few failures: what is quick to build is better than what is quick to search.
            hints: AhoCorasick::builder()
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .ascii_case_insensitive(true)
                .build(hints)
                .ok(),
            hint_tables,
            names,
            tables,
        }
    }

    pub(crate) fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Returns the table of a provider by any of its names; `None` for a name that no table claims. Shared tables are
    /// no provider's.
    pub(crate) fn find(&self, provider: &str) -> Option<usize> {
        let name = provider.trim().to_lowercase().replace([' ', '_'], "-");
        let owned = |at: usize| self.tables.get(at).is_some_and(|table| !table.shared).then_some(at);
        let plain = |name: &str| self.names.get(name).copied().and_then(owned);
        // Host names and compound names ("openrouter/free", "amazon-bedrock-eu") hold the plain one.
        let hinted = || {
            let mut hits = self.hints.as_ref()?.find_iter(&name);
            hits.find_map(|hit| self.hint_tables.get(hit.pattern().as_usize()).copied().and_then(owned))
        };
        plain(&name).or_else(hinted).or_else(|| name.split(['/', ':', '.', '-', '(', ')']).find_map(plain))
    }

    /// Returns the tables that apply to a failure, in order.
    pub(crate) fn chain(&self, provider: Option<&str>, texts: [Option<&str>; 2]) -> Chain {
        let named = provider.and_then(|name| self.find(name));
        let gateway = named.and_then(|at| self.tables.get(at)).is_none_or(|table| table.gateway);
        let mut chain = Chain::new();
        if gateway {
            let hints = self.hints.iter();
            let found =
                hints.flat_map(|hints| texts.into_iter().flatten().flat_map(|text| hints.find_iter(text)));
            for hit in found {
                if let Some(&table) = self.hint_tables.get(hit.pattern().as_usize()) {
                    // A gateway names itself in its own texts; what it names beside that is the upstream.
                    if Some(table) != named {
                        self.append(table, &mut chain);
                    }
                }
            }
        }
        if let Some(table) = named {
            self.append(table, &mut chain);
        }
        for (at, table) in self.tables.iter().enumerate() {
            if table.shared {
                self.append(at, &mut chain);
            }
        }
        chain
    }

    fn append(&self, table: usize, chain: &mut Chain) {
        if chain.contains(&table) || chain.len() >= self.tables.len() {
            return;
        }
        chain.push(table);
        for parent in self.tables.get(table).into_iter().flat_map(|table| &table.inherits) {
            if let Some(&parent) = self.names.get(parent) {
                self.append(parent, chain);
            }
        }
    }

    /// Returns the row that decides for one layer, other than by its status alone; a guess only if `guess` asks for
    /// one.
    ///
    /// What a lead says counts only where its cause says nothing: a cause behind "Too Many Requests:" is no throttle.
    /// What settles the matter, wherever it stands, goes before what a cause only hints at. Where a lead tells of the way to the
    /// provider and no status is known, even a guess at the cause goes before it.
    pub(crate) fn best(
        &'static self,
        layer: &Layer,
        status: Option<u16>,
        headers: &[(&str, &str)],
        chain: &Chain,
        guess: bool,
    ) -> Option<Match> {
        let all = self.hits(layer, Scope::All);
        let best = |hits: &Hits, guess| self.best_of(hits, status, headers, chain, guess);
        if layer.leads.is_empty() {
            return best(&all, guess);
        }
        let scoped = |scope| {
            let hits = self.hits(layer, scope);
            // What rules a row out does so from anywhere.
            Hits { vetoes: all.places.clone(), ..hits }
        };
        let cause = scoped(Scope::Cause);
        let settled = best(&scoped(Scope::OutsideLeads), false).filter(|matched| matched.rank == Rank::Fine);
        // That a client gave up is no cause of its own.
        let hinted = || best(&cause, guess).filter(|matched| matched.row.reason != Reason::RetriesExhausted);
        settled.or_else(hinted).or_else(|| {
            let lead = best(&all, guess);
            let is_of_the_way = status.is_none() && lead.is_some_and(|lead| is_of_the_way(lead.row.reason));
            let guessed = is_of_the_way.then(|| best(&cause, true));
            guessed.flatten().or(lead)
        })
    }

    fn best_of(
        &'static self,
        hits: &Hits,
        status: Option<u16>,
        headers: &[(&str, &str)],
        chain: &Chain,
        guess: bool,
    ) -> Option<Match> {
        let by_word = hits.rows.iter().copied();
        let by_header = if headers.is_empty() { &[][..] } else { &self.by_header };
        let matching = by_word
            .chain(by_header.iter().copied())
            .filter_map(|at| self.rows.get(at).map(|row| (at, row)))
            .filter(|(_, row)| guess || row.rank != Rank::Guess)
            .filter_map(|(at, row)| {
                chain.iter().position(|&t| t == row.table).map(|order| (row.rank, order, at))
            })
            .filter(|&(_, _, at)| self.holds(at, hits, status, headers));
        matching.min().and_then(|place| self.matched(place))
    }

    /// Returns the row that decides by the status alone.
    pub(crate) fn by_status(&'static self, status: u16, chain: &Chain) -> Option<Match> {
        let matching = self.by_status.iter().filter_map(|&at| {
            let compiled = self.rows.get(at)?;
            let order = chain.iter().position(|&table| table == compiled.table)?;
            self.row(compiled)?.status.contains(&status).then_some((compiled.rank, order, at))
        });
        matching.min().and_then(|place| self.matched(place))
    }

    fn row(&self, compiled: &Compiled) -> Option<&Row> {
        self.tables.get(compiled.table)?.rows.get(compiled.row)
    }

    fn matched(&'static self, place: Place) -> Option<Match> {
        let compiled = self.rows.get(place.2)?;
        let shared = self.tables.get(compiled.table).is_some_and(|table| table.shared);
        Some(Match { rank: compiled.rank, row: self.row(compiled)?, rule: &compiled.rule, shared, place })
    }

    fn holds(&self, at: usize, hits: &Hits, status: Option<u16>, headers: &[(&str, &str)]) -> bool {
        let Some(compiled) = self.rows.get(at) else { return false };
        let Some(row) = self.row(compiled) else { return false };
        let shared = self.tables.get(compiled.table).is_some_and(|table| table.shared);
        let least = least_place(row, shared, status);
        let found = |pattern: &usize| hits.places.get(pattern).copied().unwrap_or_default();
        let is_code = |pattern: &usize| found(pattern).code.is_some_and(|place| place >= least);
        let is_phrase = |pattern: &usize| found(pattern).phrase.is_some_and(|place| place >= least);
        let is_vetoed = |pattern: &usize| {
            [&hits.places, &hits.vetoes]
                .iter()
                .any(|places| places.get(pattern).is_some_and(|f| f.phrase.is_some()))
        };
        (compiled.code.is_empty() || compiled.code.iter().any(is_code))
            && (compiled.any.is_empty() || compiled.any.iter().any(is_phrase))
            && compiled.all.iter().all(is_phrase)
            && !compiled.none.iter().any(is_vetoed)
            && !is_outvoted(row, status)
            && (row.status.is_empty() || status.is_some_and(|status| row.status.contains(&status)))
            && (row.header.is_empty() || row.header.iter().any(|wanted| was_sent(wanted, headers)))
    }

    fn hits(&self, layer: &Layer, scope: Scope) -> Hits {
        let mut hits = Hits::default();
        let Some(words) = &self.words else { return hits };
        let codes_len: usize = layer.codes.iter().map(|code| code.len() + 1).sum();
        let mut haystack = String::with_capacity(codes_len + layer.text.len() + 2);
        for code in &layer.codes {
            haystack.push(SEPARATOR);
            haystack.push_str(code);
        }
        haystack.push(SEPARATOR);
        let text_start = haystack.len();
        haystack.push_str(&layer.text);
        for hit in words.find_overlapping_iter(&haystack) {
            let pattern = hit.pattern().as_usize();
            let around = Around::new(&haystack, hit.start(), hit.end());
            let in_text = hit.start() >= text_start;
            let is_whole = self.whole.get(pattern) == Some(&true);
            let is_phrase = in_text && around.splits_no_number() && (!is_whole || around.is_word());
            let is_code = if in_text {
                self.code_forms.get(pattern).is_some_and(|form| around.is_code(*form))
            } else {
                around.is_whole_field()
            };
            if !is_phrase && !is_code {
                continue;
            }
            let is_within = |name: &Range<usize>| {
                name.start + text_start <= hit.start() && hit.end() <= name.end + text_start
            };
            let is_outside = |behind| {
                in_text && layer.is_outside_leads(hit.start() - text_start..hit.end() - text_start, behind)
            };
            let is_heard = match scope {
                Scope::All => true,
                Scope::OutsideLeads => !in_text || is_outside(false),
                Scope::Cause => is_outside(true),
            };
            if !is_heard {
                continue;
            }
            let place = match in_text {
                false => Standing::Field,
                true if layer.names.iter().any(is_within) => Standing::Name,
                true => Standing::Words,
            };
            let found = hits.places.entry(pattern).or_default();
            if is_phrase {
                found.phrase = found.phrase.max(Some(place));
            }
            if is_code {
                found.code = found.code.max(Some(place));
            }
            for &row in self.triggered.get(pattern).into_iter().flatten() {
                if !hits.rows.contains(&row) {
                    hits.rows.push(row);
                }
            }
        }
        hits
    }
}

/// Which places of a layer are heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    /// Fields, and what stands in no lead.
    OutsideLeads,
    /// What stands behind a lead and in none.
    Cause,
}

#[derive(Default)]
struct Hits {
    /// The best places of each pattern found.
    places: BTreeMap<usize, Found>,
    /// Patterns that do not speak for a row and can yet rule one out.
    vetoes: BTreeMap<usize, Found>,
    rows: Vec<usize>,
}

/// Where a pattern was found, as a phrase and as a code.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    phrase: Option<Standing>,
    code: Option<Standing>,
}

/// Whether a reason speaks of the way to the server and not of the server.
fn is_of_the_way(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::StreamCut
            | Reason::Reset
            | Reason::Connect
            | Reason::Timeout
            | Reason::IdleTimeout
            | Reason::Refused
    )
}

fn was_sent(wanted: &str, headers: &[(&str, &str)]) -> bool {
    let (name, value) = wanted.split_once(':').unwrap_or((wanted, ""));
    let value = value.trim();
    headers
        .iter()
        .filter(|(sent, _)| sent.eq_ignore_ascii_case(name.trim()))
        .any(|(_, sent)| value.is_empty() || sent.trim().eq_ignore_ascii_case(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_tables_read() {
        let index = Index::load().expect("tables");
        assert!(index.words.is_some() && index.hints.is_some());
        assert!(!index.tables.is_empty());
    }
}
