//! What an operator does: configure, reload, stop, supervise, ask.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use super::support::{Daemon, Place, answered, many, until};

#[test]
fn a_configuration_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_retryscoped"))
            .args(["--check-config", "--config"])
            .arg(&file)
            .arg("--state-dir")
            .arg(folder.path())
            .env_clear()
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(check("roots = [\"/tmp\"]").0, 0);
    for (text, word) in [
        ("rootz = []", "rootz"),
        ("roots = [\"/tmp\"]\nlisten = \"0.0.0.0:9\"", "token"),
        ("roots = [\"/tmp\"]\nhistory = \"soon\"", "history"),
        ("roots = [\"/tmp\"]\n[budget]\nlimit = 3.0", "budget.limit"),
    ] {
        let (code, stderr) = check(text);
        assert_eq!(code, 2, "{text}");
        assert!(stderr.contains(word), "{text}: {stderr}");
    }
    let example = Command::new(env!("CARGO_BIN_EXE_retryscoped")).arg("--example-config").output().unwrap();
    assert_eq!(check(&(String::from_utf8(example.stdout).unwrap().replace("# roots", "roots"))).0, 0);
}

#[test]
fn reload_takes_new_roots_and_budgets() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..3));
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("events.jsonl"), many("b", 0..4)).unwrap();
    let file = place.folder.path().join("config.toml");
    let write = |roots: &[&std::path::Path], limit: f64| {
        fs::write(&file, format!("roots = {roots:?}\n[budget]\nlimit = {limit:?}\n")).unwrap();
    };
    let logs = place.folder.path().join("logs");
    write(&[&logs], 0.1);
    let state = place.state();
    fs::create_dir_all(&state).unwrap();
    // The roots come from the file, so no root is named.
    let daemon = super::support::Daemon::start(std::path::Path::new("/nonexistent"), &state, &[]);
    drop(daemon);
    let log = place.folder.path().join("log");
    let mut child = Command::new(env!("CARGO_BIN_EXE_retryscoped"))
        .args(["--listen", "127.0.0.1:0", "--config"])
        .arg(&file)
        .arg("--state-dir")
        .arg(&state)
        .env_clear()
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut address = None;
    until("listening", || {
        let text = fs::read_to_string(&log).unwrap();
        address = text.split("address=").nth(1).and_then(|t| t.split_whitespace().next()?.parse().ok());
        address.map(|_| ()).ok_or(text)
    });
    let daemon = super::support::Daemon {
        address: address.unwrap(),
        log: log.clone(),
        child: {
            // Taken over, so that it is stopped when the test ends.
            child.try_wait().unwrap();
            child
        },
    };
    daemon.counts(3);
    write(&[&logs, other.path()], 0.25);
    daemon.signal("HUP");
    daemon.counts_and_stays(7);
    assert!(
        daemon
            .metrics()
            .contains("retryscope_retry_budget_limit_ratio{scope=\"global\",name=\"\",window=\"5m\"} 0.25")
    );
    fs::write(&file, "nonsense = 1").unwrap();
    daemon.signal("HUP");
    until("refused", || {
        let logs = daemon.logs();
        if logs.contains("the configuration stays as it was") { Ok(()) } else { Err(logs) }
    });
    daemon.counts(7);
}

#[test]
fn a_service_manager_is_told() {
    let place = Place::new();
    fs::create_dir_all(place.state()).unwrap();
    let path = place.folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_retryscoped"))
        .args(["--listen", "127.0.0.1:0", "--drain", "--root"])
        .arg(place.folder.path().join("logs"))
        .arg("--state-dir")
        .arg(place.state())
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "400000")
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut told = Vec::new();
    let next = || {
        let mut buffer = [0; 200];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    while told.iter().filter(|t: &&String| *t == "WATCHDOG=1").count() < 3 {
        told.push(next());
    }
    assert!(told.contains(&"READY=1".to_owned()), "{told:?}");
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    while next() != "STOPPING=1" {}
    let asked = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_token_guards_all_but_metrics_and_health() {
    let place = Place::new();
    let file = place.folder.path().join("config.toml");
    fs::write(
        &file,
        "token = \"secret\"\n[provider_aliases]\n\"llm.example.com\" = \"openai\"\nmine = \"anthropic\"\n",
    )
    .unwrap();
    let daemon = place.start_with(&["--config", file.to_str().unwrap()]);
    for (path, status) in
        [("/metrics", 200), ("/-/ready", 200), ("/api/v1/runs", 401), ("/api/v1/budget", 401)]
    {
        assert_eq!(daemon.get(path).status, status, "{path}");
    }
    assert_eq!(daemon.post("/v1/events", "", b"").status, 401);
    let with = b"GET /api/v1/budget HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer secret\r\nconnection: close\r\n\r\n";
    assert_eq!(daemon.raw(with).status, 200);
    // The same file names providers.
    let own = many("a", 0..2).replace("\"provider\":\"openai\"", "\"provider\":\"mine\"");
    let host = answered("a", 2).replace(
        "\"provider\":\"openai\",\"model\":\"m\"",
        "\"candidate\":{\"model\":\"m\",\"endpoint\":\"https://llm.example.com/v1\"}",
    );
    place.append("events.jsonl", &(own + &host));
    daemon.counts(3);
    assert!((daemon.sum_of("retryscope_logical_requests_total", "provider=\"anthropic\"") - 2.0).abs() < 0.1);
    assert!((daemon.sum_of("retryscope_logical_requests_total", "provider=\"openai\"") - 1.0).abs() < 0.1);
}

#[test]
fn the_budget_says_whether_to_retry() {
    let place = Place::new();
    let daemon = place.start();
    let ts = chrono::Utc::now().format("%Y-%m-%dT%H:%M:%S%.3fZ");
    let mut text = String::new();
    for n in 0..15 {
        text += &format!(
            "{{\"v\":1,\"type\":\"model.retry\",\"ts\":\"{ts}\",\"run_id\":\"r\",\"agent\":\"demo\",\"request_id\":\"q{n}\",\
             \"candidate\":{{\"provider\":\"openai\",\"model\":\"m\",\"account\":\"team-a\"}},\"attempt\":1,\"status\":503,\"delay_ms\":10}}\n"
        );
        text += &answered("r", n).replace("\"attempts\":1", "\"attempts\":2");
    }
    place.append("events.jsonl", &text);
    until("exhausted", || {
        let answer = daemon.get("/api/v1/budget?provider=openai").body;
        if answer.contains("\"retry_allowed\":false") { Ok(()) } else { Err(answer) }
    });
    assert!(daemon.get("/api/v1/budget?provider=openai").body.contains("over budget"));
    // Each account has a budget of its own.
    let of_account = |account: &str| {
        let budgets: serde_json::Value =
            serde_json::from_str(&daemon.get(&format!("/api/v1/budget?account={account}")).body).unwrap();
        let of =
            budgets["budgets"].as_array().unwrap().iter().filter(|budget| budget["scope"]["name"] == account);
        of.map(|budget| (budget["retries"].as_u64(), budget["upstream"].as_u64())).next()
    };
    assert_eq!(of_account("team-a"), Some((Some(15), Some(30))));
    assert_eq!(of_account("team-b"), None);
    assert!(daemon.get("/api/v1/budget?account=team-a").body.contains("account team-a: 15 retries"));
    // It is counted with the next look at the budgets.
    until("counted", || match daemon.sum_of("retryscope_retry_budget_exhausted_total", "global") {
        times if times > 0.5 => Ok(()),
        times => Err(times),
    });
    assert!((daemon.sum_of("retryscope_upstream_requests_total", "kind=\"retry\"") - 15.0).abs() < 0.1);
}

#[test]
fn beyond_the_limit_series_are_folded() {
    let place = Place::new();
    let text: String = (0..200).fold(String::new(), |all, n| {
        all + &answered("a", n).replace("\"model\":\"m\"", &format!("\"model\":\"m{n}\""))
    });
    place.append("events.jsonl", &text);
    let daemon = place.start_with(&["--max-series", "300"]);
    daemon.counts(200);
    assert!(daemon.sum_of("retryscope_series", "") <= 320.0);
    assert!(daemon.sum_of("retryscope_folded_total", "") > 0.5);
}

#[test]
fn history_can_be_left_out() {
    let place = Place::new();
    place.append("old.jsonl", &many("a", 0..5));
    let old = std::time::SystemTime::now() - Duration::from_hours(1);
    fs::File::options().append(true).open(place.log("old.jsonl")).unwrap().set_modified(old).unwrap();
    let daemon = place.start_with(&["--history", "30m"]);
    place.append("new.jsonl", &many("b", 0..2));
    place.append("old.jsonl", &many("a", 5..6));
    daemon.counts_and_stays(3);
}

/// A run that is to ask again in an hour says nothing until then; it is no dead one.
#[test]
fn a_run_that_said_it_waits_is_waiting_until_then() {
    let place = Place::new();
    // It failed at twenty past nine; now it is ten, or half past ten.
    let failed = |run: &str, wait_ms: u64| {
        format!(
            "{}\n{}\n",
            format_args!(
                r#"{{"v":1,"type":"model.request","ts":"2026-11-01T09:19:59Z","run_id":"{run}","agent":"demo","request_id":"q","provider":"acme","model":"m"}}"#
            ),
            format_args!(
                r#"{{"v":1,"type":"model.retry","ts":"2026-11-01T09:20:00Z","run_id":"{run}","agent":"demo","request_id":"q","status":429,"class":"throttled","reason":"rate_limit","delay_ms":{wait_ms}}}"#
            ),
        )
    };
    place.append("long.jsonl", &failed("long", 3_600_000));
    // Something else that the agent asks for meanwhile does not end the wait.
    place.append(
        "long.jsonl",
        concat!(
            r#"{"v":1,"type":"model.request","ts":"2026-11-01T09:25:00Z","run_id":"long","agent":"demo","request_id":"t","source":"background","purpose":"title","provider":"acme","model":"m"}"#,
            "\n",
            r#"{"v":1,"type":"model.response","ts":"2026-11-01T09:25:01Z","run_id":"long","agent":"demo","request_id":"t","provider":"acme","model":"m"}"#,
            "\n",
        ),
    );
    // Nor is it one any more once it was given up.
    place.append("given_up.jsonl", &failed("given-up", 7_200_000));
    place.append(
        "given_up.jsonl",
        concat!(
            r#"{"v":1,"type":"model.failed","ts":"2026-11-01T09:57:00Z","run_id":"given-up","agent":"demo","request_id":"q","decision":"budget"}"#,
            "\n",
        ),
    );
    place.append("short.jsonl", &failed("short", 60_000));
    let hours = [("2026-11-01T10:00:00Z", 2.0, 1.0, 2_400.0), ("2026-11-01T10:30:00Z", 0.0, 0.0, 0.0)];
    for (now, active, waiting, longest) in hours {
        let other = Place::new();
        let daemon = super::support::Daemon::start(
            &place.folder.path().join("logs"),
            &other.state(),
            &["--as-of", now],
        );
        assert_eq!(daemon.sum_of("retryscope_runs_active", ""), active, "{now}");
        assert_eq!(daemon.sum_of("retryscope_runs_waiting", ""), waiting, "{now}");
        assert_eq!(daemon.sum_of("retryscope_longest_wait_seconds", ""), longest, "{now}");
    }
}

#[test]
fn a_short_wait_beside_a_used_up_quota_is_no_reset() {
    let place = Place::new();
    let failed = |run: &str, provider: &str, message: &str, wait_ms: u64| {
        let head = format!(
            r#"{{"v":1,"type":"model.request","ts":"2026-11-01T09:00:00Z","run_id":"{run}","agent":"demo","request_id":"q","provider":"{provider}","model":"m"}}"#
        );
        let attempt = format!(
            r#"{{"v":1,"type":"model.attempt","ts":"2026-11-01T09:00:00Z","run_id":"{run}","agent":"demo","request_id":"q","attempt_id":"q1","provider":"{provider}","model":"m","ended_at":"2026-11-01T09:00:00Z","outcome":"failed","status":429,"message":"{message}","retry_after_ms":{wait_ms}}}"#
        );
        format!("{head}\n{attempt}\n")
    };
    place.append("day.jsonl", &failed("day", "acme", "The quota per day is used up", 20_000));
    place.append("window.jsonl", &failed("window", "other", "You have hit your usage limit", 600_000));
    let daemon = super::support::Daemon::start(
        &place.folder.path().join("logs"),
        &place.state(),
        &["--as-of", "2026-11-01T09:00:05Z"],
    );
    let resets = "retryscope_quota_reset_timestamp_seconds";
    assert_eq!(daemon.sum_of(resets, r#"provider="acme""#), 0.0);
    assert_eq!(daemon.sum_of(resets, r#"provider="other""#), 1_793_524_200.0);
}

/// While the backlog is read, that is said; the reading thread is at work all the while.
#[test]
fn readiness_is_a_metric() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..3));
    let daemon = Daemon::start_unready(&place.folder.path().join("logs"), &place.state(), &[]);
    until("ready", || {
        let (ready, metrics) = (daemon.get("/-/ready").status == 200, daemon.metrics());
        assert_eq!(super::support::sum(&metrics, "retryscope_ready", "").fract(), 0.0);
        assert!(metrics.contains("\nretryscope_ready "), "{metrics}");
        if ready { Ok(()) } else { Err(metrics) }
    });
    assert_eq!(daemon.sum_of("retryscope_ready", ""), 1.0);
    assert_eq!(daemon.get("/-/healthy").status, 200);
}
