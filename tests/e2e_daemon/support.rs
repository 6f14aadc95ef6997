//! Starts the real daemon on files of its own, asks it, and stops it.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(9);

/// Waits until something holds; fails with the last thing seen.
pub(crate) fn until<T: std::fmt::Debug>(what: &str, mut look: impl FnMut() -> Result<(), T>) {
    let end = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(()) => return,
            Err(seen) if Instant::now() > end => panic!("{what}: {seen:?}"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Folders of one test.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("logs")).unwrap();
        Self { folder }
    }

    /// A path below the folder that is followed.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join("logs").join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn append(&self, name: &str, text: &str) {
        append(&self.log(name), text);
    }

    pub(crate) fn start(&self) -> Daemon {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, more: &[&str]) -> Daemon {
        Daemon::start(&self.folder.path().join("logs"), &self.state(), more)
    }
}

pub(crate) fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// A line that stands for one answered logical request, without any id that would tell a repeat.
pub(crate) fn answered(run: &str, number: usize) -> String {
    let ts = chrono::Utc::now().format("%Y-%m-%dT%H:%M:%S%.3fZ");
    format!(
        "{{\"v\":1,\"type\":\"model.response\",\"ts\":\"{ts}\",\"run_id\":\"{run}\",\"agent\":\"demo\",\
         \"request_id\":\"q{number}\",\"provider\":\"openai\",\"model\":\"m\",\"attempts\":1}}\n"
    )
}

/// Lines of several requests, by number.
pub(crate) fn many(run: &str, numbers: std::ops::Range<usize>) -> String {
    numbers.map(|n| answered(run, n)).fold(String::new(), |all, line| all + &line)
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// A running daemon; stopped when dropped.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) log: PathBuf,
}

impl Daemon {
    pub(crate) fn start(root: &Path, state: &Path, more: &[&str]) -> Self {
        let daemon = Self::start_unready(root, state, more);
        until("ready", || match daemon.get("/-/ready").status {
            200 => Ok(()),
            other => Err(other),
        });
        daemon
    }

    /// Starts it through another program, which is given its command.
    pub(crate) fn start_through(before: &[String], root: &Path, state: &Path, more: &[&str]) -> Self {
        let daemon = Self::spawn(before, root, state, "127.0.0.1:0", more);
        until("ready", || match daemon.get("/-/ready").status {
            200 => Ok(()),
            other => Err(other),
        });
        daemon
    }

    /// Starts it at a given address.
    pub(crate) fn start_listening(root: &Path, state: &Path, listen: &str) -> Self {
        let daemon = Self::spawn(&[], root, state, listen, &[]);
        until("ready", || match daemon.get("/-/ready").status {
            200 => Ok(()),
            other => Err(other),
        });
        daemon
    }

    pub(crate) fn start_unready(root: &Path, state: &Path, more: &[&str]) -> Self {
        Self::spawn(&[], root, state, "127.0.0.1:0", more)
    }

    fn spawn(before: &[String], root: &Path, state: &Path, listen: &str, more: &[&str]) -> Self {
        fs::create_dir_all(state).unwrap();
        let log = state.join(format!("log-{}", fs::read_dir(state).unwrap().count()));
        // Somebody without rights may not be allowed to look into the folder of the build.
        let mut binary = PathBuf::from(env!("CARGO_BIN_EXE_retryscoped"));
        if !before.is_empty() {
            let copy = state.with_file_name("retryscoped");
            if !copy.exists() {
                fs::copy(&binary, &copy).unwrap();
            }
            binary = copy;
        }
        let mut words = before.iter().map(String::as_str).chain([binary.to_str().unwrap()]);
        let rescan: &[&str] = if more.contains(&"--rescan-ms") { &[] } else { &["--rescan-ms", "300"] };
        let child = Command::new(words.next().unwrap())
            .args(words)
            .args(["--listen", listen])
            .args(rescan)
            .arg("--root")
            .arg(root)
            .arg("--state-dir")
            .arg(state)
            .args(more)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", state)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut address = None;
        until("listening", || {
            let text = fs::read_to_string(&log).unwrap();
            let found = text.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
            address = found.and_then(|found| found.parse().ok());
            if address.is_some() { Ok(()) } else { Err(text) }
        });
        Self { child, address: address.unwrap(), log }
    }

    /// Sends bytes as they are and returns the answer.
    pub(crate) fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A server that has seen enough may close before it has read everything.
        drop(stream.write_all(request));
        let mut bytes = Vec::new();
        drop(stream.read_to_end(&mut bytes));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        Answer { status, body: body.to_owned() }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.raw(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes())
    }

    pub(crate) fn post(&self, path: &str, headers: &str, body: &[u8]) -> Answer {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
            body.len()
        );
        self.raw(&[head.as_bytes(), body].concat())
    }

    pub(crate) fn metrics(&self) -> String {
        self.get("/metrics").body
    }

    /// Sum over all series of a metric whose labels hold a text.
    pub(crate) fn sum_of(&self, name: &str, holds: &str) -> f64 {
        sum(&self.metrics(), name, holds)
    }

    pub(crate) fn logical(&self) -> f64 {
        self.sum_of("retryscope_logical_requests_total", "")
    }

    /// Waits until exactly so many logical requests are counted, and sees that it stays so.
    pub(crate) fn counts(&self, wanted: usize) {
        let wanted = f64::from(u32::try_from(wanted).unwrap());
        until("logical requests", || {
            let now = self.logical();
            assert!(now <= wanted, "{now} counted, {wanted} written\n{}", self.logs());
            if (now - wanted).abs() < 0.1 { Ok(()) } else { Err((now, wanted)) }
        });
    }

    /// The same after everything has been looked at again.
    pub(crate) fn counts_and_stays(&self, wanted: usize) {
        self.counts(wanted);
        let before = Instant::now();
        until(
            "looked again",
            || if before.elapsed() > Duration::from_millis(700) { Ok(()) } else { Err(()) },
        );
        self.counts(wanted);
    }

    pub(crate) fn logs(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, name: &str) {
        let done = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// Kills it as a crash would.
    pub(crate) fn crash(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it in order; returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal("TERM");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sum over all series of a metric whose labels hold a text.
pub(crate) fn sum(metrics: &str, name: &str, holds: &str) -> f64 {
    let ours = metrics.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(holds)
    });
    ours.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
