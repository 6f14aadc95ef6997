//! What is pushed over HTTP counts like what lies in files, once.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::Value;

use super::support::{Place, answered, many, until};

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zipped.write_all(bytes).unwrap();
    zipped.finish().unwrap()
}

#[test]
fn events_are_kept_before_they_are_acknowledged() {
    let place = Place::new();
    let daemon = place.start();
    let body = many("a", 0..7);
    assert_eq!(daemon.post("/v1/events", "", body.as_bytes()).status, 200);
    let kept = fs::read_dir(place.state().join("received")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_to_string(kept).unwrap(), body);
    assert_eq!(
        daemon.post("/v1/events", "content-encoding: gzip\r\n", &zipped(many("a", 7..9).as_bytes())).status,
        200
    );
    daemon.counts(9);
    daemon.crash();
    place.start().counts_and_stays(9);
}

/// The rest of a line that a crash cut is no part of what comes next, and what stands first does not decide about the rest.
#[test]
fn what_was_pushed_before_does_not_spoil_what_comes() {
    let place = Place::new();
    let daemon = place.start();
    let foreign = "{\"type\":\"my.thing\",\"run_id\":\"x\",\"text\":\"not one of ours\"}\n".repeat(300);
    assert_eq!(daemon.post("/v1/events", "", foreign.as_bytes()).status, 200);
    assert_eq!(daemon.post("/v1/events", "", many("a", 0..5).as_bytes()).status, 200);
    daemon.counts(5);
    daemon.stop();
    let kept = fs::read_dir(place.state().join("received")).unwrap().next().unwrap().unwrap().path();
    super::support::append(&kept, &many("a", 5..6).chars().take(40).collect::<String>());
    let daemon = place.start();
    assert_eq!(daemon.post("/v1/events", "", many("a", 6..9).as_bytes()).status, 200);
    daemon.counts_and_stays(8);
}

#[test]
fn events_with_an_id_count_once_however_often_they_are_sent() {
    let place = Place::new();
    let daemon = place.start();
    let line = answered("a", 1).replacen('{', "{\"event_id\":\"once\",", 1);
    for _ in 0..3 {
        assert_eq!(daemon.post("/v1/events", "", line.as_bytes()).status, 200);
    }
    daemon.counts_and_stays(1);
}

/// Bodies that an agent exported, from a recording.
fn exported() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude-code/otel-503/logs");
    let mut stack = vec![folder];
    let mut bodies = Vec::new();
    while let Some(path) = stack.pop() {
        if path.is_dir() {
            stack.extend(fs::read_dir(path).unwrap().map(|e| e.unwrap().path()));
            continue;
        }
        for line in fs::read_to_string(path).unwrap().lines() {
            let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
            let body = value.get("body").filter(|b| b.is_object()).unwrap_or(&value);
            if body.get("resourceSpans").is_some() {
                bodies.push(body.clone());
            }
        }
    }
    assert!(!bodies.is_empty());
    bodies
}

#[test]
fn otlp_in_json_and_in_protobuf_count_alike() {
    let bodies = exported();
    let mut counted = Vec::new();
    for protobuf in [false, true] {
        let place = Place::new();
        let daemon = place.start();
        for body in &bodies {
            let (kind, bytes) = if protobuf {
                ("application/x-protobuf", encode::export(body))
            } else {
                ("application/json", body.to_string().into_bytes())
            };
            let headers = format!("content-type: {kind}\r\ncontent-encoding: gzip\r\n");
            let answer = daemon.post("/v1/traces", &headers, &zipped(&bytes));
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        super::support::until("counted", || match daemon.logical() {
            n if n > 0.5 => Ok(()),
            n => Err(n),
        });
        let text = daemon.metrics();
        counted.push(
            [
                "retryscope_upstream_requests_total",
                "retryscope_attempt_failures_total",
                "retryscope_retries_total",
            ]
            .map(|name| super::support::sum(&text, name, "")),
        );
    }
    assert!(counted[0][0] > 1.5, "{counted:?}");
    assert_eq!(counted[0], counted[1]);
}

/// One export may hold more than a reader takes as one line.
#[test]
fn a_large_export_counts_as_its_parts_do() {
    let bodies = exported();
    let whole = |bodies: &[Value]| {
        let resources = bodies.iter().flat_map(|body| body["resourceSpans"].as_array().unwrap().clone());
        serde_json::json!({"resourceSpans": resources.collect::<Vec<_>>()}).to_string()
    };
    let one = whole(&bodies);
    let place = Place::new();
    let daemon = place.start();
    let json = "content-type: application/json\r\n";
    assert_eq!(daemon.post("/v1/traces", json, one.as_bytes()).status, 200);
    super::support::until("counted", || if daemon.logical() > 0.5 { Ok(()) } else { Err(daemon.logical()) });
    let of_one = daemon.logical();
    drop(daemon);
    let session =
        one.split("session.id").nth(1).and_then(|rest| rest.split('"').find(|part| part.len() == 36));
    let session = session.unwrap();
    let copies = (6 << 20) / one.len();
    let many: Vec<Value> = (0..u32::try_from(copies).unwrap())
        .map(|n| {
            let other = one.replace(session, &format!("{n:08}-0000-4000-8000-000000000000"));
            let other = other.replace("panId\":\"", &format!("panId\":\"{n:04x}"));
            serde_json::from_str(&other).unwrap()
        })
        .collect();
    let place = Place::new();
    let daemon = place.start();
    let body = whole(&many);
    assert!(body.len() > 5 << 20);
    assert_eq!(daemon.post("/v1/traces", json, body.as_bytes()).status, 200);
    let wanted = of_one * f64::from(u32::try_from(copies).unwrap());
    super::support::until("all", || match daemon.logical() {
        n if (n - wanted).abs() < 0.5 => Ok(()),
        n => Err((n, wanted)),
    });
    assert!(!daemon.metrics().contains("kind=\"oversized_line\"} 1"));
}

/// The private parts of an event go before it is kept; what tells one event from another stays.
#[test]
fn what_was_said_in_an_event_is_not_kept() {
    let place = Place::new();
    let daemon = place.start();
    let secret = "sk-ant-api03-AAAABBBBCCCCDDDDEEEE1234";
    let line = answered("a", 1).replace("model.response", "model.failed").replacen(
        '{',
        &format!(
            "{{\"event_id\":\"once\",\"prompt\":\"PLANTED\",\"message\":\"Bearer {secret}\",\"status\":401,"
        ),
        1,
    );
    for _ in 0..2 {
        assert_eq!(daemon.post("/v1/events", "", line.as_bytes()).status, 200);
    }
    daemon.counts_and_stays(1);
    assert!((daemon.sum_of("retryscope_attempt_failures_total", "status=\"401\"") - 1.0).abs() < 0.1);
    for kept in fs::read_dir(place.state().join("received")).unwrap() {
        let kept = fs::read_to_string(kept.unwrap().path()).unwrap();
        assert!(!kept.contains("PLANTED") && !kept.contains(secret), "{kept}");
        assert!(kept.contains("\"event_id\":\"once\"") && kept.contains("401"), "{kept}");
    }
}

#[test]
fn what_was_said_in_an_export_is_not_kept() {
    let place = Place::new();
    let daemon = place.start();
    let mut body = exported()[0].clone();
    let attributes = body.pointer_mut("/resourceSpans/0/scopeSpans/0/spans/0/attributes").unwrap();
    attributes.as_array_mut().unwrap().extend(
        ["prompt", "gen_ai.input.messages", "authorization", "http.request.header.x-api-key"]
            .map(|key| serde_json::json!({"key": key, "value": {"stringValue": "PLANTED"}})),
    );
    let answer = daemon.post("/v1/traces", "content-type: application/json\r\n", body.to_string().as_bytes());
    assert_eq!(answer.status, 200);
    for kept in fs::read_dir(place.state().join("received")).unwrap() {
        assert!(!fs::read_to_string(kept.unwrap().path()).unwrap().contains("PLANTED"));
    }
}

/// JSON exports of spans as protobuf, for the fields that the recordings hold.
mod encode {
    use serde_json::Value;

    fn varint(mut n: u64, out: &mut Vec<u8>) {
        while n >= 0x80 {
            out.push((n & 0x7f) as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
    }

    fn message(number: u64, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        varint(number << 3 | 2, &mut out);
        varint(bytes.len() as u64, &mut out);
        out.extend_from_slice(bytes);
        out
    }

    fn each(value: &Value, key: &str) -> Vec<Value> {
        value.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    }

    fn attributes(number: u64, of: &Value) -> Vec<u8> {
        each(of, "attributes").iter().flat_map(|pair| message(number, &attribute(pair))).collect()
    }

    fn attribute(pair: &Value) -> Vec<u8> {
        let value = &pair["value"];
        let mut of = Vec::new();
        if let Some(text) = value.get("stringValue").and_then(Value::as_str) {
            of = message(1, text.as_bytes());
        } else if let Some(flag) = value.get("boolValue").and_then(Value::as_bool) {
            of.extend([2 << 3, u8::from(flag)]);
        } else if let Some(number) = value.get("intValue") {
            let number = number.as_i64().or_else(|| number.as_str()?.parse().ok()).unwrap();
            of.push(3 << 3);
            varint(number.cast_unsigned(), &mut of);
        } else if let Some(number) = value.get("doubleValue").and_then(Value::as_f64) {
            of.push(4 << 3 | 1);
            of.extend(number.to_le_bytes());
        }
        [message(1, pair["key"].as_str().unwrap().as_bytes()), message(2, &of)].concat()
    }

    fn time(number: u8, of: &Value) -> Vec<u8> {
        let nanos: u64 = of.as_str().and_then(|t| t.parse().ok()).or_else(|| of.as_u64()).unwrap_or(0);
        [&[number << 3 | 1][..], &nanos.to_le_bytes()].concat()
    }

    pub(super) fn export(body: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        for group in each(body, "resourceSpans") {
            let mut resource = message(1, &attributes(1, &group["resource"]));
            for scope in each(&group, "scopeSpans") {
                let name = scope.pointer("/scope/name").and_then(Value::as_str).unwrap_or_default();
                let mut members = message(1, &message(1, name.as_bytes()));
                for span in each(&scope, "spans") {
                    members.extend(message(2, &encoded(&span)));
                }
                resource.extend(message(2, &members));
            }
            out.extend(message(1, &resource));
        }
        out
    }

    fn encoded(span: &Value) -> Vec<u8> {
        let mut fields = Vec::new();
        for (number, name) in [(1, "traceId"), (2, "spanId"), (4, "parentSpanId")] {
            let hex = span.get(name).and_then(Value::as_str).unwrap_or_default().as_bytes();
            let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
            let bytes: Vec<u8> = hex.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
            fields.extend(message(number, &bytes));
        }
        fields.extend(message(5, span["name"].as_str().unwrap().as_bytes()));
        fields.extend(time(7, &span["startTimeUnixNano"]));
        fields.extend(time(8, &span["endTimeUnixNano"]));
        fields.extend(attributes(9, span));
        for event in each(span, "events") {
            let name = message(2, event["name"].as_str().unwrap().as_bytes());
            fields.extend(message(
                11,
                &[time(1, &event["timeUnixNano"]), name, attributes(3, &event)].concat(),
            ));
        }
        fields
    }
}

/// What was pushed long ago goes from the disk; its counts stay, also after a restart.
#[test]
fn old_pushed_data_goes_and_its_counts_stay() {
    let place = Place::new();
    let received = place.state().join("received");
    fs::create_dir_all(&received).unwrap();
    let old = received.join("events-2020-01-01.jsonl");
    fs::write(&old, many("old", 0..3)).unwrap();
    fs::write(received.join("notes.jsonl"), many("other", 0..1)).unwrap();
    let daemon = place.start();
    daemon.counts(4);
    assert_eq!(daemon.post("/v1/events", "", many("new", 0..2).as_bytes()).status, 200);
    until("deleted", || if old.exists() { Err(()) } else { Ok(()) });
    daemon.counts_and_stays(6);
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(fs::read_dir(&received).unwrap().count(), 2);
    place.start().counts_and_stays(6);
}

/// A client that got no answer sends its telemetry again: it has no ids, but all that it holds is the same.
#[test]
fn telemetry_that_is_sent_again_counts_once_and_as_a_duplicate() {
    let place = Place::new();
    let daemon = place.start();
    let exported = include_str!("../fixtures/codex/http-500-500-ok/logs/captured/otlp-logs.jsonl");
    let post = |daemon: &super::support::Daemon| {
        for line in exported.lines() {
            let of: Value = serde_json::from_str(line).unwrap();
            let body = of.get("body").unwrap_or(&of).to_string();
            let json = "content-type: application/json\r\n";
            assert_eq!(daemon.post("/v1/logs", json, body.as_bytes()).status, 200);
        }
    };
    post(&daemon);
    daemon.counts(1);
    assert!((daemon.sum_of("retryscope_duplicates_total", "")).abs() < 0.5);
    post(&daemon);
    until("repeats are counted", || match daemon.sum_of("retryscope_duplicates_total", "") {
        0.0 => Err(daemon.metrics()),
        _ => Ok(()),
    });
    let repeats = daemon.sum_of("retryscope_duplicates_total", "");
    daemon.counts_and_stays(1);
    daemon.stop();
    // What is read again for the restart is no repeat; what is sent once more is.
    let daemon = place.start();
    assert_eq!(daemon.sum_of("retryscope_duplicates_total", ""), repeats);
    post(&daemon);
    until("repeats are counted", || match daemon.sum_of("retryscope_duplicates_total", "") {
        sum if sum > repeats => Ok(()),
        sum => Err(sum),
    });
    daemon.counts_and_stays(1);
    assert_eq!(daemon.sum_of("retryscope_upstream_requests_total", ""), 3.0);
}
