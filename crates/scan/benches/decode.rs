//! How fast lines of each agent are decoded and counted, in memory and on one core: `cargo bench -p retryscope-scan`.
//!
//! Prints megabytes per second, best of some rounds. The lines are those of the recordings, again and again.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and fails where it cannot go on"
)]

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use retryscope_adapters::{HEAD_LENGTH, Reading, recognize};
use retryscope_analysis::Engine;
use retryscope_record::{Collected, GapKind, Item, Origin, Place, Sink, SourceId, View};
use retryscope_scan::feed;
use retryscope_tail::LineReader;

const ROUNDS: u32 = 20;

struct Counting {
    engine: Engine,
    view: View,
}

impl Sink for Counting {
    fn item(&mut self, place: Place, item: Item<'_>) {
        self.engine.apply(self.view, Origin { source: SourceId(0), place }, item);
    }
    fn gap(&mut self, _: Place, _: GapKind) {}
}

fn main() {
    println!("{:<14}{:>12}{:>12}{:>12}", "MB/s", "lines", "decode", "count");
    for agent in ["claude-code", "codex", "opencode", "pi", "omp", "rivumi", "events"] {
        let logs: Vec<(PathBuf, Vec<u8>)> =
            retryscope_testkit::files(&retryscope_testkit::fixtures().join(agent))
                .into_iter()
                .map(|path| (path.clone(), fs::read(path).unwrap()))
                .filter(|(path, bytes)| decoder(path, bytes).is_some())
                .collect();
        let size: usize = logs.iter().map(|(_, bytes)| bytes.len()).sum();
        let lines = best(|| {
            for (_, bytes) in &logs {
                let mut lines = LineReader::new(bytes.as_slice());
                while let Some(line) = lines.next_line().unwrap() {
                    black_box(line);
                }
            }
        });
        let decode = best(|| {
            for (path, bytes) in &logs {
                let mut sink = Collected::default();
                run(path, bytes, &mut sink);
                black_box(sink);
            }
        });
        let count = best(|| {
            for (path, bytes) in &logs {
                let Some((view, _)) = decoder(path, bytes) else { continue };
                let mut sink = Counting { engine: Engine::new(), view };
                run(path, bytes, &mut sink);
                black_box(sink.engine);
            }
        });
        #[expect(clippy::cast_precision_loss, reason = "sizes of fixtures")]
        let rate = |time: Duration| size as f64 / time.as_secs_f64() / 1e6;
        println!("{agent:<14}{:>12.0}{:>12.0}{:>12.0}", rate(lines), rate(decode), rate(count));
    }
}

fn decoder(path: &Path, bytes: &[u8]) -> Option<(View, Box<dyn retryscope_adapters::LineDecoder>)> {
    let recognized = recognize(path, &bytes[..bytes.len().min(HEAD_LENGTH)])?;
    match recognized.reading {
        Reading::Lines(decoder) => Some((recognized.view, decoder)),
        Reading::Document(_) | Reading::Database(_) => None,
    }
}

fn run(path: &Path, bytes: &[u8], sink: &mut dyn Sink) {
    let Some((_, mut decoder)) = decoder(path, bytes) else { return };
    let mut lines = LineReader::new(bytes);
    while let Some(line) = lines.next_line().unwrap() {
        feed(decoder.as_mut(), line, sink);
    }
    decoder.end(sink);
}

fn best(mut work: impl FnMut()) -> Duration {
    let times = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        work();
        begin.elapsed()
    });
    times.min().unwrap_or_default()
}
