//! Says on standard error how far a long reading has come, if somebody sits before a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use retryscope_scan::progress;

/// A reading that is shorter than this says nothing.
const QUIET: Duration = Duration::from_millis(800);
/// Between two lines.
const PAUSE: Duration = Duration::from_millis(200);

/// A line that is kept up to date until this goes away.
pub(crate) struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

impl Progress {
    /// Begins; without a terminal nothing happens.
    pub(crate) fn start() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let (stop, stopped) = channel();
        let thread = spawn(move || tell(&stopped));
        Self(Some((stop, thread)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            // It only writes; if it failed to, the answer is still good.
            drop(thread.join());
        }
    }
}

fn tell(stopped: &Receiver<()>) {
    let mut pause = QUIET;
    let mut told = false;
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let (done, all) = progress();
        drop(write!(std::io::stderr().lock(), "\r{}\x1b[K", line(done, all)));
        told = true;
        pause = PAUSE;
    }
    if told {
        drop(write!(std::io::stderr().lock(), "\r\x1b[K"));
    }
}

fn line(done: u64, all: u64) -> String {
    let percent = (done.saturating_mul(100)).checked_div(all).unwrap_or(0).min(100);
    format!("reading logs: {percent} % of {} MB", all / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_line_is_short_and_never_above_all() {
        assert_eq!(line(0, 0), "reading logs: 0 % of 0 MB");
        assert_eq!(line(410_000_000, 1_000_000_000), "reading logs: 41 % of 1000 MB");
        assert_eq!(line(5, 4), "reading logs: 100 % of 0 MB");
    }
}
