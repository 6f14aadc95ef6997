//! Properties over the recorded runs: how bytes are cut and files are ordered changes nothing, what is lost only widens a
//! claim, and nothing that a log may hold makes a decoder panic.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use retryscope_adapters::{HEAD_LENGTH, Reading, recognize};
use retryscope_analysis::{AsOf, Bound, Counts, Engine, Labels, LogicalRequest, Metric, Run, Totals};
use retryscope_record::{GapKind, Item, Origin, Place, RunKey, Sink, SourceId, View};
use retryscope_scan::{Scan, feed, recognize_at};
use retryscope_tail::LineReader;

fn now() -> DateTime<Utc> {
    "2026-12-24T00:00:00Z".parse().unwrap()
}

/// Every log file of the fixtures that is read line by line, with its bytes.
fn logs() -> Vec<(PathBuf, Vec<u8>)> {
    let found: Vec<_> = retryscope_testkit::files(&retryscope_testkit::fixtures())
        .into_iter()
        .map(|path| {
            let bytes = fs::read(&path).unwrap();
            (path, bytes)
        })
        .filter(|(path, bytes)| {
            let head = &bytes[..bytes.len().min(16 << 10)];
            matches!(recognize(path, head).map(|r| r.reading), Some(Reading::Lines(_)))
        })
        .collect();
    assert!(found.len() > 40);
    found
}

struct Into<'a> {
    engine: &'a mut Engine,
    view: View,
    id: SourceId,
    gaps: usize,
}

impl Sink for Into<'_> {
    fn item(&mut self, place: Place, item: Item<'_>) {
        self.engine.apply(self.view, Origin { source: self.id, place }, item);
    }
    fn gap(&mut self, _: Place, _: GapKind) {
        self.gaps += 1;
        self.engine.gap(self.view, self.id);
    }
}

/// Gives at most as many bytes at a time as the next number says.
struct Chopped<'a> {
    bytes: &'a [u8],
    sizes: std::iter::Cycle<std::vec::IntoIter<usize>>,
}

impl Read for Chopped<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let size = self.sizes.next().unwrap_or(1).min(buffer.len()).min(self.bytes.len());
        let (now, later) = self.bytes.split_at(size);
        buffer[..size].copy_from_slice(now);
        self.bytes = later;
        Ok(size)
    }
}

fn read_into(engine: &mut Engine, id: u32, path: &Path, bytes: &[u8], sizes: Vec<usize>) -> usize {
    let Some(recognized) = recognize(path, &bytes[..bytes.len().min(16 << 10)]) else { return 0 };
    let Reading::Lines(mut decoder) = recognized.reading else { return 0 };
    let mut lines = LineReader::new(Chopped { bytes, sizes: sizes.into_iter().cycle() });
    let mut sink = Into { engine, view: recognized.view, id: SourceId(id), gaps: 0 };
    while let Some(line) = lines.next_line().unwrap() {
        feed(decoder.as_mut(), line, &mut sink);
    }
    decoder.end(&mut sink);
    sink.gaps
}

fn runs_of(engine: &Engine) -> BTreeMap<RunKey, Counts> {
    let sources = BTreeMap::new();
    let runs: Vec<Run> = engine.runs(&AsOf { now: now(), sources: &sources });
    runs.into_iter().map(|run| (run.key, run.counts)).collect()
}

/// Runs that a log says began as a copy of another one.
fn forked_runs(path: &Path, bytes: &[u8]) -> Vec<RunKey> {
    let mut engine = Engine::new();
    read_into(&mut engine, 0, path, bytes, vec![1 << 20]);
    let runs = engine.runs(&AsOf { now: now(), sources: &BTreeMap::new() });
    runs.into_iter().filter(|run| run.facts.forked_from.is_some()).map(|run| run.key).collect()
}

fn alone(path: &Path, bytes: &[u8]) -> BTreeMap<RunKey, Counts> {
    let mut engine = Engine::new();
    read_into(&mut engine, 0, path, bytes, vec![1 << 20]);
    runs_of(&engine)
}

/// Prefixes of one log that are looked at, about.
const PREFIXES: usize = 60;

/// Whether a claim made with less evidence allows the number that more evidence gives.
fn allows(claim: Bound, truth: Bound) -> bool {
    truth.max.is_none_or(|max| claim.min <= max) && claim.max.is_none_or(|max| max >= truth.min)
}

/// Reads a log with one line broken.
fn broken_at(bytes: &[u8], broken: usize) -> Vec<u8> {
    let mut changed = Vec::new();
    for (index, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        if index == broken && line.first() == Some(&b'{') {
            changed.extend_from_slice(b"{\"cut\":\n");
        } else {
            changed.extend_from_slice(line);
        }
    }
    changed
}

/// Returns the claim of the changed log that the whole one contradicts.
fn contradicted(path: &Path, whole: &BTreeMap<RunKey, Counts>, changed: &[u8]) -> Option<String> {
    alone(path, changed).into_iter().find_map(|(key, counts)| {
        let truth = whole.get(&key)?;
        let pairs = [
            (&counts.upstream_requests, &truth.upstream_requests),
            (&counts.logical_requests, &truth.logical_requests),
            (&counts.retries, &truth.retries),
        ];
        let wrong = pairs.into_iter().find(|(claim, truth)| !allows(claim.bound, truth.bound));
        wrong.map(|(claim, truth)| format!("{}: {claim:?} excludes {truth:?}", path.display()))
    })
}

/// What is known in the middle of a log is a lower bound of what its end gives.
#[test]
fn a_prefix_gives_lower_bounds() {
    let mut looked_at = 0;
    for (path, bytes) in logs() {
        let whole = alone(&path, &bytes);
        // What a fork copied counts until the log says that it was copied.
        let forked = forked_runs(&path, &bytes);
        let lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
        for end in (1..=lines.len()).step_by((lines.len() / PREFIXES).max(1)) {
            for (key, counts) in alone(&path, &lines[..end].concat()) {
                // The first line alone may not tell which of two programs wrote it.
                let Some(truth) = whole.get(&key).filter(|_| !forked.contains(&key)) else { continue };
                let pairs = [
                    (counts.upstream_requests.bound, truth.upstream_requests.bound),
                    (counts.logical_requests.bound, truth.logical_requests.bound),
                ];
                let is_lower = pairs.iter().all(|(now, then)| then.max.is_none_or(|max| now.min <= max));
                assert!(is_lower, "{} up to line {end}: {pairs:?}", path.display());
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 2_000, "{looked_at}");
}

/// Every line of every log of our own schema, where runs mix in one file and beginnings get lost.
#[test]
fn each_line_of_our_own_logs_may_be_broken() {
    let mut looked_at = 0;
    for (path, bytes) in logs() {
        if !path
            .components()
            .any(|part| ["rules", "events"].contains(&part.as_os_str().to_str().unwrap_or_default()))
        {
            continue;
        }
        let whole = alone(&path, &bytes);
        for line in 0..bytes.split_inclusive(|b| *b == b'\n').count() {
            let wrong = contradicted(&path, &whole, &broken_at(&bytes, line));
            assert!(wrong.is_none(), "line {}: {}", line + 1, wrong.unwrap_or_default());
            looked_at += 1;
        }
    }
    assert!(looked_at > 1000, "only {looked_at} lines");
}

/// What the counters say of a run is what is said of it elsewhere.
#[test]
fn counters_of_a_run_add_up_to_its_counts() {
    let mut looked_at = 0;
    for case in retryscope_testkit::cases() {
        for run in Scan::of_roots(&[case.folder.join("logs")]).runs(now()) {
            let totals = Totals::of([&run], now());
            let sum = |metric, kind: Option<&str>| -> u64 {
                let of_kind = |labels: &Labels| kind.is_none_or(|kind| labels.get("kind") == Some(kind));
                totals.counters_of(metric).filter(|(labels, _)| of_kind(labels)).map(|(_, n)| n).sum()
            };
            let told = |count: fn(&LogicalRequest) -> u64| -> u64 {
                run.turns.iter().flat_map(|turn| &turn.requests).map(count).sum()
            };
            let pairs = [
                ("upstream", sum(Metric::UpstreamRequests, None), told(|r| r.upstream.bound.min)),
                ("retries", sum(Metric::Retries, None), told(|r| r.retries.bound.min)),
                (
                    "sent as retries",
                    sum(Metric::UpstreamRequests, Some("retry")),
                    told(|r| r.retries.bound.min),
                ),
            ];
            for (what, counted, said) in pairs {
                assert_eq!(counted, said, "{what} of {} in {}", run.key.id, case.folder.display());
            }
            looked_at += 1;
        }
    }
    assert!(looked_at > 100, "only {looked_at} runs");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_of_the_bytes_gives_the_same_runs(pick in any::<prop::sample::Index>(), sizes in prop::collection::vec(1..5000usize, 1..20)) {
        let logs = logs();
        let (path, bytes) = pick.get(&logs);
        let mut engine = Engine::new();
        read_into(&mut engine, 0, path, bytes, sizes);
        prop_assert_eq!(runs_of(&engine), alone(path, bytes));
    }

    #[test]
    fn any_order_of_the_files_gives_the_same_runs(order in Just((0..logs().len()).collect::<Vec<_>>()).prop_shuffle()) {
        let logs = logs();
        let mut sorted = Engine::new();
        let mut shuffled = Engine::new();
        for (id, (path, bytes)) in logs.iter().enumerate() {
            read_into(&mut sorted, u32::try_from(id).unwrap(), path, bytes, vec![1 << 20]);
        }
        for id in order {
            let (path, bytes) = &logs[id];
            read_into(&mut shuffled, u32::try_from(id).unwrap(), path, bytes, vec![1 << 20]);
        }
        prop_assert_eq!(runs_of(&sorted), runs_of(&shuffled));
    }

    /// A line that became unreadable is a gap, and every claim still allows what the whole log says.
    #[test]
    fn a_broken_line_never_makes_a_claim_wrong(pick in any::<prop::sample::Index>(), line in any::<prop::sample::Index>()) {
        let logs = logs();
        let (path, bytes) = pick.get(&logs);
        let lines = bytes.split_inclusive(|b| *b == b'\n').count();
        let changed = broken_at(bytes, line.index(lines));
        let wrong = contradicted(path, &alone(path, bytes), &changed);
        prop_assert!(wrong.is_none(), "line {}: {}", line.index(lines) + 1, wrong.unwrap_or_default());
    }

    /// Arbitrary bytes, and lines of real logs with bytes changed, are read to their end.
    #[test]
    fn no_decoder_panics(
        pick in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..400),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..30),
    ) {
        let logs = logs();
        let (path, bytes) = pick.get(&logs);
        let mut changed = bytes.clone();
        for (at, byte) in &changes {
            let at = at.index(changed.len());
            changed[at] = *byte;
        }
        changed.extend_from_slice(&noise);
        let Some(recognized) = recognize(path, &bytes[..bytes.len().min(16 << 10)]) else { return Ok(()) };
        let Reading::Lines(mut decoder) = recognized.reading else { return Ok(()) };
        let mut engine = Engine::new();
        let mut sink = Into { engine: &mut engine, view: recognized.view, id: SourceId(0), gaps: 0 };
        let mut lines = LineReader::new(&changed[..]);
        while let Some(line) = lines.next_line().unwrap() {
            feed(decoder.as_mut(), line, &mut sink);
        }
        for counts in runs_of(&engine).values() {
            prop_assert!(counts.upstream_requests.bound.min >= counts.logical_requests.bound.min.min(counts.upstream_requests.bound.min));
            if let Some((low, _)) = counts.amplification() {
                prop_assert!(low >= 1.0);
            }
        }
    }
}

#[test]
fn a_stream_is_read_like_a_file() {
    let (path, bytes) = logs().into_iter().find(|(path, _)| path.ends_with("run-123/events.jsonl")).unwrap();
    let mut scan = Scan::default();
    scan.add_stream("stdin", &bytes[..]);
    let streamed: BTreeMap<RunKey, Counts> =
        scan.runs(now()).into_iter().map(|run| (run.key, run.counts)).collect();
    assert_eq!(streamed, alone(&path, &bytes));
}

/// What a page says of who repeated and of waits never exceeds what is counted.
#[test]
fn a_page_tells_no_more_than_is_counted() {
    let mut told = 0;
    for case in retryscope_testkit::cases() {
        for run in Scan::of_roots(&[case.folder.join("logs")]).runs(now()) {
            for turn in &run.turns {
                let explanation = retryscope_analysis::Explainer::new(&run, &[], now()).explain(turn);
                // "agent: transport layer 23; stream layer 5, up to 5 allowed"
                let owner = explanation.owner.unwrap_or_default();
                let repeated: u64 = owner
                    .split("layer ")
                    .skip(1)
                    .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok())
                    .sum();
                told += repeated;
                let counted = turn.counts.retries.bound.max;
                assert!(counted.is_none_or(|max| repeated <= max), "{}: {owner}, of {counted:?}", case.name);
                // Requests of one turn may run beside each other; those of these cases do not.
                let within =
                    turn.time.waiting_ms.zip(turn.time.wall_ms).is_none_or(|(wait, wall)| wait <= wall + 50);
                assert!(within, "{}: {:?}", case.name, turn.time);
            }
        }
    }
    assert!(told > 50, "only {told} repeats are told of");
}

/// What some log says late, so that it counts otherwise line by line: where that is, and what.
const SAID_LATE: &[(&str, &str)] = &[
    ("codex/ws-503-fallback-ok", "that the agent turned to a transport below which more is hidden"),
    ("rivumi/cancel-in-backoff", "that it was cancelled, when one more request may have been sent"),
    ("rules/RS504/fires", "that a request was answered after its run was cancelled"),
    ("rules/RS607/near", "a better reason for a failure"),
];

/// A log that is counted after each of its lines, as by a daemon, gives what it gives as a whole. Who is named may be known
/// later than what happened; that each attempt is shown is not said too early.
#[test]
fn a_log_counts_line_by_line_as_it_does_as_a_whole() {
    let mut late: BTreeSet<&(&str, &str)> = BTreeSet::new();
    for (path, bytes) in logs() {
        let (live, whole) = live_and_whole(&path, &bytes);
        for said in live.keys().chain(whole.keys()) {
            let of = |told: &BTreeMap<String, [u64; 2]>| told.get(said).copied().unwrap_or_default();
            let ([live, live_full], [whole, whole_full]) = (of(&live), of(&whole));
            if live == whole && live_full <= whole_full {
                continue;
            }
            let known = SAID_LATE.iter().find(|(place, _)| path.to_string_lossy().contains(place));
            assert!(
                known.is_some(),
                "{}: {said}: {live} ({live_full} fully shown) line by line, {whole} ({whole_full}) at once",
                path.display()
            );
            late.extend(known);
        }
    }
    assert_eq!(late.len(), SAID_LATE.len(), "some of these count alike by now: {SAID_LATE:?}");
}

/// What the counters say after each line has been counted, and after all at once.
fn live_and_whole(path: &Path, bytes: &[u8]) -> (BTreeMap<String, [u64; 2]>, BTreeMap<String, [u64; 2]>) {
    let sources = BTreeMap::new();
    let as_of = AsOf { now: now(), sources: &sources };
    let mut engine = Engine::new();
    let mut live = Totals::default();
    let recognized = recognize(path, &bytes[..bytes.len().min(16 << 10)]).unwrap();
    let Reading::Lines(mut decoder) = recognized.reading else { panic!("{}", path.display()) };
    let mut lines = LineReader::new(bytes);
    loop {
        let line = lines.next_line().unwrap();
        let is_last = line.is_none();
        let mut sink = Into { engine: &mut engine, view: recognized.view, id: SourceId(0), gaps: 0 };
        match line {
            Some(line) => feed(decoder.as_mut(), line, &mut sink),
            None => decoder.end(&mut sink),
        }
        for key in engine.take_dirty() {
            live.add(&engine.run(&key, &as_of).unwrap(), now());
        }
        if is_last {
            return (told(&live), told(&Totals::of(&engine.runs(&as_of), now())));
        }
    }
}

/// What counters and histograms say but for who is named: the number, and how much of it is said to be fully shown.
fn told(totals: &Totals) -> BTreeMap<String, [u64; 2]> {
    let mut told = BTreeMap::<String, [u64; 2]>::new();
    for (series, n) in totals.counters() {
        let words = ["kind", "source", "layer", "class", "reason", "outcome", "status", "verdict"];
        let words: Vec<&str> = words.iter().filter_map(|name| series.labels.get(name)).collect();
        let sum = told.entry(format!("{:?} {}", series.metric, words.join(" "))).or_default();
        sum[0] += n;
        sum[1] += if series.labels.get("visibility") == Some("full") { n } else { 0 };
    }
    for (series, histogram) in totals.histograms() {
        let buckets = histogram.buckets.iter().zip(0..).map(|(n, bucket)| (format!("bucket {bucket}"), *n));
        let all = [("sum".to_owned(), histogram.sum), ("count".to_owned(), histogram.count)];
        for (what, n) in buckets.chain(all) {
            told.entry(format!("{:?} {what}", series.metric)).or_default()[0] += n;
        }
    }
    told
}

/// One log says that the run failed while the other does not know yet how its only request ended: no second one is made up.
#[test]
fn an_open_request_is_the_one_that_another_log_says_failed() {
    let mut looked_at = 0;
    for name in ["400-credit", "422", "429-ra3600", "503-persistent", "oauth-429-unified"] {
        let logs = retryscope_testkit::fixtures().join("claude-code").join(name).join("logs");
        let files = retryscope_testkit::files(&logs);
        let whole = retries_at_least(files.iter().map(|path| (path.clone(), fs::read(path).unwrap())));
        for session in
            files.iter().filter(|path| path.components().any(|part| part.as_os_str() == "projects"))
        {
            let bytes = fs::read(session).unwrap();
            let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            for known in 0..lines.len() {
                let others = files.iter().filter(|path| path.to_string_lossy().contains("captured"));
                let told = others.map(|path| (path.clone(), fs::read(path).unwrap()));
                let now = retries_at_least(told.chain([(session.clone(), lines[..known].concat())]));
                assert!(now <= whole, "{name} after {known} lines: {now} retries, {whole} in all");
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 50, "only {looked_at}");
}

fn retries_at_least(logs: impl Iterator<Item = (PathBuf, Vec<u8>)>) -> u64 {
    let mut engine = Engine::new();
    for (id, (path, bytes)) in logs.enumerate() {
        read_into(&mut engine, u32::try_from(id).unwrap(), &path, &bytes, vec![1 << 20]);
    }
    runs_of(&engine).into_values().map(|counts| counts.retries.bound.min).sum()
}

/// A prompt, a list of tools or whatever else makes the first line longer than what is looked at first.
#[test]
fn a_long_first_line_hides_no_log() {
    let text = format!(r#""padding":"{}""#, "word ".repeat(5_000));
    let names: Vec<String> = (0..2_000).map(|n| format!(r#""operation_number_{n}""#)).collect();
    let list = format!(r#""padding":[{}]"#, names.join(","));
    let folder = tempfile::tempdir().unwrap();
    let mut looked_at = 0;
    for (path, bytes) in logs() {
        let known = |bytes: &[u8]| {
            let head = &bytes[..bytes.len().min(HEAD_LENGTH)];
            // Beside the file, so that its place tells as much.
            let at = folder.path().join(path.strip_prefix(retryscope_testkit::fixtures()).unwrap());
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(&at, bytes).unwrap();
            recognize_at(&at, head).map(|recognized| (recognized.agent, recognized.view))
        };
        let Some(rest) = bytes.strip_prefix(b"{").filter(|rest| rest.first() == Some(&b'"')) else {
            continue;
        };
        let original = known(&bytes);
        for padding in [&text, &list] {
            let padded = [b"{", padding.as_bytes(), b",", rest].concat();
            assert_eq!(known(&padded), original, "{}", path.display());
        }
        looked_at += 1;
    }
    assert!(looked_at > 100, "{looked_at}");
}
