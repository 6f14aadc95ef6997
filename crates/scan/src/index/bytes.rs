//! The index in bytes: numbers of fixed width, texts after their length. Reading fails on anything unexpected.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use retryscope_analysis::{Bound, Count, Evidence, RunLine, RunOutcome};
use retryscope_record::{GapKind, Place, RunKey};

use super::{Entry, FileStamp, Joined, Stamp};
use crate::list::Fact;

const OUTCOMES: [RunOutcome; 6] = [
    RunOutcome::Succeeded,
    RunOutcome::Failed,
    RunOutcome::Cancelled,
    RunOutcome::Interrupted,
    RunOutcome::Running,
    RunOutcome::Unknown,
];

const EVIDENCE: [Evidence; 4] =
    [Evidence::Observed, Evidence::Derived, Evidence::Inferred, Evidence::NotVisible];

/// Returns a checksum that tells damage, by words of eight bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    words.fold(bytes.len() as u64, |sum, word| {
        (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn u64(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.raw(text.as_bytes());
    }

    pub(super) fn path(&mut self, path: &Path) {
        self.raw(path.as_os_str().as_encoded_bytes());
    }

    pub(super) fn entry(&mut self, Entry { stamp, fact }: &Entry) {
        self.file_stamp(stamp.main);
        self.u8(u8::from(stamp.log.is_some()));
        if let Some(log) = stamp.log {
            self.file_stamp(log);
        }
        self.u64(fact.lines.len() as u64);
        for line in &fact.lines {
            self.line(line);
        }
        self.u64(fact.gaps.len() as u64);
        for gap in &fact.gaps {
            // A few of few kinds: not worth a form of their own.
            self.text(&serde_json::to_string(gap).unwrap_or_default());
        }
    }

    pub(super) fn joined(&mut self, Joined { line, files }: &Joined) {
        self.line(line);
        self.u64(files.len() as u64);
        for file in files {
            self.path(file);
        }
    }

    fn u8(&mut self, number: u8) {
        self.bytes.push(number);
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn file_stamp(&mut self, stamp: FileStamp) {
        for number in [stamp.device, stamp.inode, stamp.size] {
            self.u64(number);
        }
        for number in [stamp.written, stamp.changed] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn time(&mut self, time: DateTime<Utc>) {
        self.u64(time.timestamp().cast_unsigned());
        self.u64(time.timestamp_subsec_nanos().into());
    }

    fn line(&mut self, line: &RunLine) {
        self.text(&line.key.agent);
        self.text(&line.key.id);
        self.option(line.parent_run_id.as_deref(), Self::text);
        self.option(line.started_at, Self::time);
        self.option(line.ended_at, Self::time);
        self.u8(place(&OUTCOMES, &line.outcome));
        self.u64(line.failed_turns.into());
        let Count { bound, evidence, basis } = &line.upstream_requests;
        self.u64(bound.min);
        self.option(bound.max, Self::u64);
        self.u8(place(&EVIDENCE, evidence));
        self.option(basis.as_deref(), Self::text);
        self.text(&line.in_short);
        self.u64(line.providers.len() as u64);
        for provider in &line.providers {
            self.text(provider);
        }
    }
}

fn place<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|other| other == one).and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// Agents are few: one name is shared by all its runs.
    agents: Vec<Arc<str>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, agents: Vec::new() }
    }

    /// Returns what has not been read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.raw()?).ok()
    }

    #[cfg(unix)]
    pub(super) fn path(&mut self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStrExt;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(self.raw()?)))
    }

    #[cfg(not(unix))]
    pub(super) fn path(&mut self) -> Option<PathBuf> {
        self.text().map(PathBuf::from)
    }

    pub(super) fn entry(&mut self) -> Option<Entry> {
        let main = self.file_stamp()?;
        let log = self.option(Self::file_stamp)?;
        let mut fact = Fact::default();
        for _ in 0..self.u64()? {
            fact.lines.push(self.line()?);
        }
        for _ in 0..self.u64()? {
            fact.gaps.push(serde_json::from_str::<(Place, GapKind)>(self.text()?).ok()?);
        }
        Some(Entry { stamp: Stamp { main, log }, fact })
    }

    pub(super) fn joined(&mut self) -> Option<Joined> {
        let line = self.line()?;
        let mut files = Vec::new();
        for _ in 0..self.u64()? {
            files.push(self.path()?);
        }
        Some(Joined { line, files })
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn raw(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u64()?).ok()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    fn file_stamp(&mut self) -> Option<FileStamp> {
        let (device, inode, size) = (self.u64()?, self.u64()?, self.u64()?);
        let written = i128::from_le_bytes(self.array()?);
        let changed = i128::from_le_bytes(self.array()?);
        Some(FileStamp { device, inode, size, written, changed })
    }

    #[expect(clippy::option_option, reason = "the outer one tells whether the bytes could be read")]
    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.u8()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }

    fn owned(&mut self) -> Option<String> {
        self.text().map(str::to_owned)
    }

    fn time(&mut self) -> Option<DateTime<Utc>> {
        let seconds = self.u64()?.cast_signed();
        DateTime::from_timestamp(seconds, u32::try_from(self.u64()?).ok()?)
    }

    fn agent(&mut self) -> Option<Arc<str>> {
        let name = self.text()?;
        if let Some(known) = self.agents.iter().find(|known| ***known == *name) {
            return Some(known.clone());
        }
        self.agents.push(name.into());
        self.agents.last().cloned()
    }

    fn line(&mut self) -> Option<RunLine> {
        let key = RunKey { agent: self.agent()?, id: self.text()?.into() };
        let parent_run_id = self.option(Self::owned)?;
        let (started_at, ended_at) = (self.option(Self::time)?, self.option(Self::time)?);
        let outcome = *OUTCOMES.get(usize::from(self.u8()?))?;
        let failed_turns = u32::try_from(self.u64()?).ok()?;
        let bound = Bound { min: self.u64()?, max: self.option(Self::u64)? };
        let evidence = *EVIDENCE.get(usize::from(self.u8()?))?;
        let upstream_requests = Count { bound, evidence, basis: self.option(Self::owned)? };
        let in_short = self.owned()?;
        let mut providers = BTreeSet::new();
        for _ in 0..self.u64()? {
            providers.insert(self.owned()?);
        }
        Some(RunLine {
            key,
            parent_run_id,
            started_at,
            ended_at,
            outcome,
            failed_turns,
            upstream_requests,
            in_short,
            providers,
        })
    }
}
