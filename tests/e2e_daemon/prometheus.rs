//! A real Prometheus scrapes the daemon; promtool finds nothing to say about its metrics.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::support::{Daemon, Place, many, until};

struct Prometheus {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Prometheus {
    fn scraping(port_of_daemon: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        fs::write(
            &config,
            format!(
                "global: {{scrape_interval: 300ms, scrape_timeout: 300ms}}\n\
                 scrape_configs: [{{job_name: r, static_configs: [{{targets: ['127.0.0.1:{port_of_daemon}']}}]}}]\n"
            ),
        )
        .unwrap();
        let port = free_port();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is not installed (see tests/tools)");
        Self { child, port, _folder: folder }
    }

    /// The value of a query; `None` without a result.
    fn ask(&self, query: &str) -> Option<f64> {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let query: String = query.bytes().map(|b| format!("%{b:02x}")).fold(String::new(), |a, b| a + &b);
        write!(stream, "GET /api/v1/query?query={query} HTTP/1.0\r\nhost: localhost\r\n\r\n").ok()?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).ok()?;
        let value: Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?;
        value.pointer("/data/result/0/value/1")?.as_str()?.parse().ok()
    }

    /// Waits until some scrapes more have been taken.
    fn scrapes(&self, more: f64) {
        let count = || self.ask("count_over_time(up[1h])");
        let mut before = None;
        until("scrapes", || {
            let now = count();
            before = before.or(now);
            match (before, now) {
                (Some(before), Some(now)) if now >= before + more => Ok(()),
                _ => Err(now),
            }
        });
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn at_port(place: &Place, port: u16) -> Daemon {
    let listen = format!("127.0.0.1:{port}");
    Daemon::start_listening(&place.folder.path().join("logs"), &place.state(), &listen)
}

fn failed(run: &str, number: usize) -> String {
    many(run, number..number + 1)
        .replace("model.response", "model.failed")
        .replace("\"attempts\":1", "\"attempts\":1,\"status\":529,\"message\":\"Overloaded\"")
}

#[test]
fn increases_are_those_that_happened() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..50));
    let port = free_port();
    let daemon = at_port(&place, port);
    let prometheus = Prometheus::scraping(port);
    let increase = |metric: &str, labels: &str| {
        format!("sum(max_over_time({metric}{{{labels}}}[1h]) - min_over_time({metric}{{{labels}}}[1h]))")
    };
    prometheus.scrapes(3.0);
    // A backlog is no increase.
    assert_eq!(prometheus.ask(&increase("retryscope_logical_requests_total", "")), Some(0.0));
    // Nor is an old folder that is copied in, among what is live.
    let old = many("old", 0..40).replace(&chrono::Utc::now().format("%Y-%m-%d").to_string(), "2026-01-01");
    fs::create_dir(place.log("restored")).unwrap();
    fs::write(place.log("restored/events.jsonl"), old).unwrap();
    daemon.counts(90);
    prometheus.scrapes(3.0);
    assert_eq!(prometheus.ask(&increase("retryscope_logical_requests_total", "arrival=\"live\"")), Some(0.0));
    // The first failure of its kind is seen as one.
    place.append("events.jsonl", &failed("a", 100));
    daemon.counts(91);
    prometheus.scrapes(3.0);
    let query = increase("retryscope_attempt_failures_total", "arrival=\"live\",reason=\"overloaded\"");
    assert_eq!(prometheus.ask(&query), Some(1.0), "{}", daemon.metrics());
    // A restart is no jump.
    assert_eq!(daemon.stop(), Some(0));
    let daemon = at_port(&place, port);
    prometheus.scrapes(3.0);
    daemon.counts(91);
    assert_eq!(prometheus.ask(&query), Some(1.0));
    assert_eq!(prometheus.ask("sum(resets(retryscope_logical_requests_total[1h]))"), Some(0.0));
    assert_eq!(
        prometheus.ask("sum(increase(retryscope_logical_requests_total{arrival=\"live\"}[1h])) < bool 3"),
        Some(1.0)
    );
}

#[test]
fn promtool_has_nothing_to_say() {
    let place = Place::new();
    place.append("events.jsonl", &(many("a", 0..5) + &failed("a", 7)));
    let daemon = place.start();
    daemon.counts(6);
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is not installed (see tests/tools)");
    child.stdin.take().unwrap().write_all(daemon.metrics().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}
