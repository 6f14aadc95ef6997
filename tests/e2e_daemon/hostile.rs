//! Whatever comes over HTTP: a clear answer, and the daemon goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::support::{Daemon, Place, answered, many};
use crate::planted;

fn lives(daemon: &Daemon) {
    assert_eq!(daemon.get("/-/healthy").status, 200, "{}", daemon.logs());
}

#[test]
fn bad_requests_get_clear_answers() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..3));
    let daemon = place.start();
    assert_eq!(daemon.get("/nothing").status, 404);
    assert_eq!(daemon.get("/api/v1/runs/%00%ff").status, 400);
    assert_eq!(daemon.get("/api/v1/runs/../../etc/passwd").status, 404);
    assert_eq!(daemon.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").status, 400);
    assert_eq!(
        daemon.raw(b"GET /metrics HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").status,
        421
    );
    assert_eq!(
        daemon.raw(b"DELETE /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").status,
        405
    );
    let long = format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    assert!((400..500).contains(&daemon.raw(long.as_bytes()).status));
    let protobuf = "content-type: application/x-protobuf\r\n";
    for body in [&b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"[..], b"\x0a\xff\xff\xff\xff\x0f", b"\x0f"] {
        assert_eq!(daemon.post("/v1/logs", protobuf, body).status, 400);
        assert_eq!(daemon.post("/v1/traces", protobuf, body).status, 400);
    }
    assert_eq!(
        daemon.post("/v1/logs", "content-type: application/json\r\n", b"{\"resourceLogs\":3}").status,
        400
    );
    assert_eq!(daemon.post("/v1/logs", "content-type: text/plain\r\n", b"x").status, 415);
    assert_eq!(daemon.post("/v1/events", "", b"not json").status, 400);
    assert_eq!(daemon.post("/v1/events", "content-encoding: gzip\r\n", b"not gzip").status, 400);
    assert_eq!(daemon.post("/v1/events", "content-encoding: br\r\n", b"x").status, 415);
    lives(&daemon);
    daemon.counts(3);
    assert!(daemon.sum_of("retryscope_pushed_requests_total", "refused") > 8.0);
}

#[test]
fn huge_bodies_are_refused_and_counted() {
    let place = Place::new();
    let daemon = place.start();
    let huge = vec![b' '; 9 << 20];
    assert_eq!(daemon.post("/v1/events", "", &huge).status, 413);
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![b' '; 64 << 20]).unwrap();
    assert_eq!(daemon.post("/v1/events", "content-encoding: gzip\r\n", &bomb.finish().unwrap()).status, 413);
    let deep = [br#"{"resourceLogs":"#.to_vec(), b"[".repeat(200_000)].concat();
    assert_eq!(daemon.post("/v1/logs", "content-type: application/json\r\n", &deep).status, 400);
    lives(&daemon);
    assert!(daemon.sum_of("retryscope_pushed_requests_total", "too_large") > 1.5);
}

#[test]
fn what_is_small_and_becomes_large_is_refused() {
    let place = Place::new();
    let daemon = place.start();
    let json = "content-type: application/json\r\n";
    let empty = format!("{{\"resourceLogs\":[{}{{}}]}}", "{},".repeat(2_000_000));
    assert_eq!(daemon.post("/v1/logs", json, empty.as_bytes()).status, 413);
    let empty = b"\x0a\x00".repeat(2_000_000);
    assert_eq!(daemon.post("/v1/logs", "content-type: application/x-protobuf\r\n", &empty).status, 400);
    // As many as may be: nothing of them is kept.
    let empty = format!("{{\"resourceLogs\":[{}{{}}]}}", "{},".repeat(300_000));
    assert_eq!(daemon.post("/v1/logs", json, empty.as_bytes()).status, 200);
    let kept = std::fs::read_dir(place.state().join("received")).unwrap();
    assert_eq!(kept.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>(), 0);
    let memory = daemon.sum_of("process_resident_memory_bytes", "");
    assert!(memory < f64::from(384 << 20), "{memory}");
    lives(&daemon);
}

#[test]
fn drawn_out_bodies_take_little_memory_together() {
    let place = Place::new();
    let daemon = place.start();
    let head = "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8000000\r\n\r\n";
    let part = vec![b' '; 7_900_000];
    let mut refused = 0;
    let mut open = Vec::new();
    for _ in 0..24 {
        let mut stream = TcpStream::connect(daemon.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&part)));
        let mut answer = [0; 12];
        if stream.read_exact(&mut answer).is_ok() && answer.starts_with(b"HTTP/1.1 429") {
            refused += 1;
        }
        open.push(stream);
    }
    assert!(refused > 8, "{refused}");
    let memory = daemon.sum_of("process_resident_memory_bytes", "");
    assert!(memory < f64::from(160 << 20), "{memory}");
    drop(open);
    super::support::until("room again", || {
        match daemon.post("/v1/events", "", answered("a", 1).as_bytes()).status {
            200 => Ok(()),
            status => Err(status),
        }
    });
}

#[test]
fn many_idle_connections_do_not_stop_it() {
    let place = Place::new();
    let daemon = place.start();
    let mut idle: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(daemon.address).ok()).collect();
    for stream in &mut idle {
        drop(stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: loc"));
    }
    let mut last = idle.pop().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut text = String::new();
    drop(last.read_to_string(&mut text));
    assert!(text.starts_with("HTTP/1.1 503"), "{text}");
    drop(idle);
    super::support::until("free again", || match daemon.get("/-/healthy").status {
        200 => Ok(()),
        other => Err(other),
    });
    assert!(daemon.sum_of("retryscope_connections_refused_total", "") > 0.5);
}

#[test]
fn secrets_and_prompts_come_out_nowhere() {
    let place = Place::new();
    let secret = "sk-proj-abcdefghijklmnop1234567890";
    let failed = many("a", 0..1).replace("model.response", "model.failed").replace(
        "\"attempts\":1",
        &format!("\"status\":401,\"message\":\"Incorrect API key provided: {secret} \\u001b[31m\",\"prompt\":\"PLANTED\""),
    );
    place.append("events.jsonl", &failed);
    place.append(
        "events.jsonl",
        &format!("{{\"type\":\"model.retry\",\"run_id\":\"b\",\"text\":\"PLANTED {secret}\n"),
    );
    let daemon = place.start();
    daemon.counts(1);
    let outputs =
        ["/metrics", "/api/v1/runs", "/api/v1/runs/a", "/api/v1/budget"].map(|path| daemon.get(path).body);
    assert!(outputs[2].contains("\"401\"") || outputs[2].contains("401"));
    for text in outputs.iter().chain([&daemon.logs()]) {
        assert!(!text.contains(secret) && !text.contains("PLANTED") && !text.contains('\u{1b}'), "{text}");
    }
    let log = place.state().join("checkpoint.json");
    daemon.stop();
    let saved = std::fs::read_to_string(log).unwrap();
    assert!(!saved.contains(secret) && !saved.contains("PLANTED"));
}

#[test]
fn planted_credentials_are_neither_served_nor_saved() {
    let place = Place::new();
    let logs: Vec<_> =
        planted::SECRETS.iter().flat_map(|secret| planted::logs(secret).into_iter().take(1)).collect();
    for (number, (_, text)) in logs.iter().enumerate() {
        place.append("events.jsonl", &text.replace("\"planted\"", &format!("\"planted-{number}\"")));
    }
    for (name, text) in planted::logs(planted::SECRETS[0]).iter().skip(1) {
        place.append(name, text);
    }
    let daemon = place.start();
    super::support::until("read", || {
        let listed = daemon.get("/api/v1/runs").body;
        let seen = ["planted-9\"", "planted-pi", "planted-claude", "planted-codex", "0199aaaa"];
        if seen.iter().all(|run| listed.contains(run)) { Ok(()) } else { Err(listed) }
    });
    let clean = |text: &str, whence: &str| {
        let found = planted::SECRETS.iter().find(|secret| text.contains(**secret));
        assert!(found.is_none() && !text.contains(planted::TAIL), "{whence}: {found:?} {text}");
    };
    let of_own = (0..planted::SECRETS.len()).map(|number| format!("planted-{number}"));
    let of_others = ["planted-pi", "planted-claude", "planted-codex"].map(str::to_owned);
    for run in of_own.chain(of_others) {
        let path = format!("/api/v1/runs/{run}");
        let answer = daemon.get(&path);
        assert_eq!(answer.status, 200, "{path}");
        clean(&answer.body, &path);
    }
    for path in ["/metrics", "/api/v1/runs", "/api/v1/budget"] {
        clean(&daemon.get(path).body, path);
    }
    clean(&daemon.logs(), "its log");
    let saved = place.state().join("checkpoint.json");
    daemon.stop();
    clean(&std::fs::read_to_string(saved).unwrap(), "the checkpoint");
}

/// What a log names itself by is a label; a terminal that shows the metrics must not obey it.
#[test]
fn escapes_in_names_are_made_visible_in_labels() {
    let place = Place::new();
    for (n, agent) in [r"\u001b]0;pwned\u0007red", r"two\nlines", "two lines"].iter().enumerate() {
        let named = answered(&format!("r{n}"), n).replace("\"demo\"", &format!("\"{agent}\""));
        let named = named.replace("\"openai\"", r#""\u009b31mp""#).replace("\"m\"", r#""\u202em""#);
        assert!(named.contains(agent) && named.contains("009b") && named.contains("202e"), "{named}");
        place.append("events.jsonl", &named.replace("{\"v\":1", r#"{"v":1,"agent_version":"\u001b[1m2""#));
    }
    let daemon = place.start();
    daemon.counts(3);
    let text = daemon.metrics();
    let unsafe_at = text.find(|c: char| c != '\n' && (c.is_control() || c == '\u{202e}'));
    assert_eq!(unsafe_at.and_then(|at| text.get(at..)), None);
    for shown in [r"\\u{1b}]0;pwned\\u{7}red", r"\\u{9b}31mp", r"\\u{202e}m", r"\\u{1b}[1m2"] {
        assert!(text.contains(shown), "{shown} in {text}");
    }
    // Names that look alike are one: a scrape with the same line twice is refused as a whole.
    let mut names: Vec<&str> = text.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    let comments = text.lines().filter(|line| line.starts_with('#')).count();
    assert!(all - names.len() <= comments, "a sample stands twice");
    assert!((daemon.sum_of("retryscope_logical_requests_total", "agent=\"two lines\"") - 2.0).abs() < 0.1);
}
