#!/usr/bin/env python3
"""Runs every alert against made-up counters with `promtool test rules`: a case that fires and near misses that do not.

Each scenario gives counters as segments (minutes, growth a minute) and says what fires when. Times are minutes.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

RULES = pathlib.Path(__file__).resolve().parents[2] / "dashboards" / "rules"
WHO = {"agent": "codex", "provider": "anthropic", "model": "claude"}
TARGET = {"job": "retryscope", "instance": "a:9748"}
SCENARIOS = []


def values(segments, step, born=False):
    """Cumulative counter values every `step` seconds; None before the first growth if the series is born with it."""
    out, total, begun = [], 0.0, not born
    for minutes, growth in segments:
        for _ in range(round(minutes * 60 / step)):
            if growth == "gone":
                out.append(None)
                continue
            if growth == "reset":
                total = 0.0
            else:
                begun = begun or growth > 0
                total += growth * step / 60
            out.append(int(total + 1e-9) if begun else None)
    return out


def series(metric, segments, step=15, born=False, **labels):
    text = ",".join(f'{k}="{v}"' for k, v in {**labels, **TARGET}.items())
    shown = " ".join("_" if v is None else str(v) for v in values(segments, step, born))
    return {"series": f"{metric}{{{text}}}", "values": shown}


def gauge(metric, *segments, step=15, **labels):
    text = ",".join(f'{k}="{v}"' for k, v in {**labels, **TARGET}.items())
    shown = [str(v) for minutes, v in segments for _ in range(round(minutes * 60 / step))]
    return {"series": f"{metric}{{{text}}}", "values": " ".join(shown)}


def traffic(phases, step=15, visibility="full", arrival="live", who=None, hidden_retries=False):
    """Counters of one agent and provider. Phase: minutes, then per minute ok, retries, failed requests, failed turns."""
    who = who or WHO

    def part(key):
        return [(phase["minutes"], phase.get(key, 0)) for phase in phases]
    done = [(p["minutes"], p.get("ok", 0) + p.get("failed", 0)) for p in phases]
    label = {**who, "source": "foreground", "arrival": arrival, "visibility": visibility}
    other = {**label, "visibility": "partial"} if hidden_retries else label
    out = [series("retryscope_logical_requests_total", done, step, **label),
           series("retryscope_upstream_requests_total", done, step, kind="original", **label),
           series("retryscope_request_outcomes_total", part("ok"), step, **who, outcome="ok_first_try", arrival=arrival)]
    born = [("retryscope_upstream_requests_total", "retries", {**other, "kind": "retry"}),
            ("retryscope_upstream_requests_total", "fallbacks", {**label, "kind": "fallback"}),
            ("retryscope_retries_total", "retries",
             {**who, "layer": "agent", "class": "transient", "reason": "overloaded", "arrival": arrival}),
            ("retryscope_request_outcomes_total", "failed", {**who, "outcome": "failed_after_retry", "arrival": arrival}),
            ("retryscope_request_outcomes_total", "cancelled", {**who, "outcome": "cancelled", "arrival": arrival}),
            ("retryscope_run_outcomes_total", "runs", {**who, "outcome": "failed", "class": "transient"})]
    for metric, key, labels in born:
        if any(growth for _, growth in part(key)):
            out.append(series(metric, part(key), step, born=True, **labels))
    return out


def scenario(name, inputs, checks, step=15, minutes=None, alive=True):
    """checks: (minute, alert or None for any, fires, labels)."""
    minutes = minutes or max(check[0] for check in checks) + 2
    if alive:
        inputs = inputs + [gauge("up", (minutes, 1), step=step),
                           gauge("retryscope_build_info", (minutes, 1), step=step, version="1")]
    tests = []
    for minute, alert, fires, *labels in checks:
        match = {"alertstate": "firing", **({"alertname": alert} if alert else {}), **(labels[0] if labels else {})}
        text = ",".join(f'{k}="{v}"' for k, v in match.items())
        tests.append({"expr": f"min(ALERTS{{{text}}})", "eval_time": f"{round(minute * 60)}s",
                      "exp_samples": [{"labels": "{}", "value": 1}] if fires else []})
    SCENARIOS.append({"interval": f"{step}s", "name": name, "input_series": inputs, "promql_expr_test": tests})


HEALTHY = {"minutes": 60, "ok": 20, "retries": 0.6}


def nothing(*minutes):
    return [(minute, None, False) for minute in minutes]


# --- the outage that kills every run, and what is not one
scenario("a healthy hour, then an outage kills every run within two minutes; nobody retries any more",
         traffic([HEALTHY, {"minutes": 2, "failed": 8, "runs": 6}, {"minutes": 40}]),
         [*nothing(10, 30, 59.5), (63, "ModelRequestsFailing", True, {"severity": "page", "provider": "anthropic"}),
          (75, "ModelRequestsFailing", True), *nothing(90)])
scenario("the same where all failures come between two scrapes and their series begin with them",
         traffic([HEALTHY, {"minutes": 0.25, "failed": 60, "runs": 20}, {"minutes": 20}]),
         [(62.5, "ModelRequestsFailing", True)])
scenario("near miss: nine failed requests",
         traffic([HEALTHY, {"minutes": 3, "failed": 3, "runs": 2}, {"minutes": 20, "ok": 20}]), nothing(62, 63, 65, 70))
scenario("near miss: one run fails twelve times",
         traffic([HEALTHY, {"minutes": 2, "ok": 20, "failed": 6, "runs": 0.5}, {"minutes": 20, "ok": 20}]), nothing(62, 64, 70))
scenario("near miss: 4 % of many requests fail",
         traffic([{"minutes": 80, "ok": 96, "failed": 4, "runs": 2}]), nothing(10, 30, 60, 79))
scenario("near miss: people cancel",
         traffic([{"minutes": 60, "ok": 20, "cancelled": 20, "runs": 0}]), nothing(10, 30, 59))

# --- the retry ratio
PARTIAL = {"minutes": 30, "ok": 28, "retries": 12}
scenario("a partial outage: 30 % of the requests fail and are retried",
         traffic([{**HEALTHY, "ok": 28}, PARTIAL]),
         [*nothing(59), (62, "RetryRatioHigh", False), (70, "RetryRatioHigh", True, {"severity": "warning"}),
          (89, "RetryRatioHigh", True), (89, "RetryLoadHigh", False), (89, "ModelRequestsFailing", False)])
scenario("idle after the storm: it resolves",
         traffic([HEALTHY, PARTIAL, {"minutes": 40}]),
         [(85, "RetryRatioHigh", True), (95, "RetryRatioHigh", True), *nothing(108, 125)])
scenario("healthy after the storm: it resolves",
         traffic([HEALTHY, PARTIAL, {"minutes": 40, "ok": 28, "retries": 0.6}]), [(85, "RetryRatioHigh", True), *nothing(108, 125)])
scenario("near miss: 9 % for an hour", traffic([{"minutes": 70, "ok": 91, "retries": 9}]), nothing(15, 30, 60))
scenario("near miss: three quiet agents, 30 % but few",
         [s for agent in "abc" for s in traffic([{"minutes": 70, "ok": 1.2, "retries": 0.5}], who={**WHO, "agent": agent})],
         nothing(15, 30, 60))
scenario("three quiet agents at 8 % failures for 11 hours",
         [s for i, agent in enumerate("abc") for s in traffic(
             [{"minutes": 660, "ok": 0.92, "retries": 0.08, "failed": 0.08, "runs": 0.02 + i / 100}], step=60,
             who={**WHO, "agent": agent})],
         nothing(*range(10, 660, 10)), step=60)
scenario("extra load: half of all requests are retries",
         traffic([HEALTHY, {"minutes": 20, "ok": 15, "retries": 15}]),
         [*nothing(59), (70, "RetryLoadHigh", True, {"severity": "page"}), (79, "RetryLoadHigh", True)])
scenario("near miss: half of all requests, but fewer than a hundred",
         traffic([{"minutes": 60, "ok": 8, "retries": 0.1}, {"minutes": 20, "ok": 8, "retries": 8}]),
         [(m, "RetryLoadHigh", False) for m in (65, 70, 75, 79)])
scenario("fallbacks are load, not retries",
         traffic([HEALTHY, {"minutes": 20, "ok": 15, "fallbacks": 15}]), [(75, "RetryLoadHigh", True), (75, "RetryRatioHigh", False)])

# --- how counters may behave
RESET = [{**HEALTHY}, {"minutes": 0.25, "ok": "reset", "retries": "reset"}]
scenario("a counter reset alone is nothing",
         traffic([{"minutes": 40, "ok": 20, "retries": 0.6}]) and
         [series("retryscope_upstream_requests_total", [(40, g), (0.25, "reset"), (30, g)], kind=k, **WHO, source="foreground",
                 arrival="live", visibility="full") for k, g in [("original", 20), ("retry", 0.6)]] +
         [series("retryscope_logical_requests_total", [(40, 20), (0.25, "reset"), (30, 20)], **WHO, source="foreground",
                 arrival="live", visibility="full"),
          series("retryscope_request_outcomes_total", [(40, 20), (0.25, "reset"), (30, 20)], **WHO, outcome="ok_first_try",
                 arrival="live"),
          series("retryscope_request_outcomes_total", [(40, 0.5), (0.25, "reset"), (30, 0.5)], **WHO, outcome="failed_no_retry",
                 arrival="live")],
         nothing(30, 40.5, 42, 45, 50, 60))
scenario("a storm goes on over a counter reset",
         [series("retryscope_upstream_requests_total", [(30, g), (20, s), (0.25, "reset"), (20, s)], kind=k, **WHO,
                 source="foreground", arrival="live", visibility="full") for k, g, s in [("original", 20, 20), ("retry", 0.6, 9)]],
         [(45, "RetryRatioHigh", True), (51, "RetryRatioHigh", True), (60, "RetryRatioHigh", True), (60, "RetryLoadHigh", False)])
scenario("late data: an old folder full of failures is copied in",
         traffic([{**HEALTHY, "minutes": 100}]) +
         traffic([{"minutes": 60}, {"minutes": 1, "ok": 10, "retries": 500, "failed": 300, "runs": 100}, {"minutes": 39}],
                 arrival="late"),
         nothing(59, 61, 62, 65, 75, 90))
scenario("the first scrape shows large counters with a bad past",
         [series("retryscope_upstream_requests_total", [(30, "gone"), (0.25, n * 4), (30, 1)], born=True, kind=k, **WHO,
                 source="foreground", arrival="live", visibility="full") for k, n in [("original", 900), ("retry", 600)]] +
         [series("retryscope_logical_requests_total", [(30, "gone"), (0.25, 3600), (30, 1)], born=True, **WHO,
                 source="foreground", arrival="live", visibility="full"),
          series("retryscope_request_outcomes_total", [(30, "gone"), (0.25, 3600), (30, 0)], born=True, **WHO,
                 outcome="failed_after_retry", arrival="live"),
          series("retryscope_run_outcomes_total", [(30, "gone"), (0.25, 900), (30, 0)], born=True, **WHO, outcome="failed",
                 **{"class": "transient"})],
         nothing(30.5, 31, 33, 36, 45))

# --- owners
FAIL = "retryscope_attempt_failures_total"


def failures(segments, klass, arrival="live"):
    return [series(FAIL, segments, born=True, **WHO, **{"class": klass}, reason="x", status="429", arrival=arrival)]


scenario("one refusal over an empty account", traffic([{**HEALTHY, "minutes": 80}]) +
         failures([(20, 0), (0.25, 4), (60, 0)], "exhausted") +
         [gauge("retryscope_quota_reset_timestamp_seconds", (80, 9000), agent="codex", provider="anthropic")],
         [(19, None, False), (21, "AccountExhausted", True, {"team": "account"}), (50, "AccountExhausted", True), *nothing(70)])
scenario("near miss: throttled is not exhausted; late is not now",
         traffic([{**HEALTHY, "minutes": 60}]) + failures([(20, 0), (1, 20), (39, 0)], "throttled") +
         failures([(20, 0), (1, 20), (39, 0)], "exhausted", "late"), nothing(21, 25, 40))
scenario("refused credentials", traffic([{**HEALTHY, "minutes": 80}]) + failures([(20, 0), (0.5, 6), (60, 0)], "auth"),
         [(19, None, False), (22, "CredentialsFailing", True, {"team": "key"}), *nothing(75)])
scenario("near miss: two 401 while a token is refreshed",
         traffic([{**HEALTHY, "minutes": 60}]) + failures([(20, 0), (0.5, 4), (40, 0)], "auth"), nothing(21, 25, 40))

scenario("a gateway's refused credentials, by the optional rules", traffic([{**HEALTHY, "minutes": 40}]) +
         [series("litellm_deployment_failure_responses_total", [(20, 0), (2, 5), (18, 0)], api_provider="openai",
                 exception_status="401")],
         [(19, None, False), (25, "CredentialsFailing", True, {"provider": "openai"})])

# --- blind
BLIND = "RetryscopeBlind"
scenario("the daemon does not answer",
         [gauge("up", (10, 1), (20, 0)), gauge("retryscope_build_info", (10, 1), version="1")],
         [(9, None, False), (14, BLIND, False, {"reason": "down"}), (17, BLIND, True, {"reason": "down"}),
          (25, BLIND, True, {"reason": "absent"})], alive=False)
scenario("nothing was ever scraped", [], [(4, BLIND, False), (6, BLIND, True, {"reason": "absent"})], alive=False)
scenario("near miss: a restart of three minutes",
         [gauge("up", (10, 1), (3, 0), (20, 1)), gauge("retryscope_build_info", (10, 1), (3, "_"), (20, 1), version="1")],
         nothing(9, 12, 14, 20, 30), alive=False)
scenario("it falls behind", [gauge("retryscope_read_lag_seconds", (10, 1), (20, 300))],
         [(14, BLIND, False), (17, BLIND, True, {"reason": "lag"})])
scenario("near miss: a slow look", [gauge("retryscope_read_lag_seconds", (10, 1), (4, 300), (20, 100))], nothing(11, 14, 16, 30))
scenario("the backlog is never read", [gauge("retryscope_ready", (60, 0))],
         [(29, None, False), (31, BLIND, True, {"reason": "backlog"})])
scenario("near miss: a long backlog, then a restart with a short one",
         [gauge("retryscope_ready", (25, 0), (10, 1), (10, 0), (20, 1))], nothing(24, 31, 40, 60))
scenario("many unreadable records", [series("retryscope_gaps_total", [(10, 0), (20, 5)], kind="invalid_json")],
         [(9, BLIND, False), (20, BLIND, True, {"reason": "gaps"})])
scenario("near miss: torn lines now and then", [series("retryscope_gaps_total", [(60, 0.5)], kind="torn_line")], nothing(15, 30, 59))
scenario("the state cannot be saved", [series("retryscope_checkpoint_failures_total", [(10, 0), (20, 1)])],
         [(9, BLIND, False), (20, BLIND, True, {"reason": "checkpoint"})])
scenario("near miss: saved", [series("retryscope_checkpoint_failures_total", [(30, 0)])], nothing(20, 29))
scenario("retries stand where the ratio may not look; that is said",
         traffic([{"minutes": 60, "ok": 1, "retries": 0.01}]) +
         traffic([{"minutes": 60, "ok": 20, "retries": 30}], visibility="partial"),
         [(40, "RetryRatioHigh", False), (40, BLIND, True, {"reason": "visibility", "severity": "ticket"})])
scenario("near miss: most requests are visible",
         traffic([{"minutes": 60, "ok": 20}]) + traffic([{"minutes": 60, "ok": 15}], visibility="partial"), nothing(20, 40, 59))

# --- tickets
RETRIES = "retryscope_retries_total"


def retried(segments, klass):
    return [series(RETRIES, segments, born=True, **WHO, layer="agent", **{"class": klass}, reason="x", arrival="live")]


scenario("an exhausted account is asked again and again",
         traffic([{"minutes": 150, "ok": 20}]) + retried([(20, 0), (2, 4), (128, 0)], "exhausted"),
         [(19, None, False), (25, "NonRetryableRetried", True, {"severity": "ticket", "class": "exhausted"}),
          (149, "NonRetryableRetried", False)])
scenario("near miss: four such retries, and many of a transient failure",
         traffic([{"minutes": 60, "ok": 90, "retries": 1}]) + retried([(20, 0), (2, 2), (38, 0)], "exhausted"), nothing(25, 40, 59))


def verdicts(early, honoured):
    return [series("retryscope_retry_after_total", [(60, n)], agent="codex", provider="anthropic", verdict=v)
            for v, n in [("early", early), ("honoured", honoured)]]


scenario("comes back before the stated wait is over", traffic([{"minutes": 60, "ok": 20, "retries": 1}]) + verdicts(0.5, 0.5),
         [(30, "RetryAfterIgnored", True), (55, "RetryAfterIgnored", True)])
scenario("near miss: nearly always waits", traffic([{"minutes": 60, "ok": 20, "retries": 1}]) + verdicts(0.1, 0.9), nothing(30, 59))
scenario("near miss: ignored stated waits of an old log", traffic([{"minutes": 60, "ok": 20}]) + verdicts(5, 0), nothing(30, 59))
scenario("a run sleeps for long", [gauge("retryscope_longest_wait_seconds", (10, 100), (10, 1000), (10, 0), agent="codex")],
         [(9, None, False), (15, "RunWaitingLong", True), (25, "RunWaitingLong", False)])
scenario("near miss: a long backoff", [gauge("retryscope_longest_wait_seconds", (30, 800), agent="codex")], nothing(15, 29))


def sizes(within, more, **live):
    own = {"agent": "codex", "provider": "anthropic"}
    base = "retryscope_attempts_per_request"
    return traffic([{"minutes": 30, "ok": 20, **live}]) + [
        series(f"{base}_bucket", [(10, 5), (1, within), (19, 5)], **own, le="11"),
        series(f"{base}_count", [(10, 5), (1, within + more), (19, 5)], **own)]


scenario("one request becomes thirty", sizes(5, 1, retries=1.9) + retried([(10, 0), (1, 29), (19, 0)], "transient"),
         [(9, None, False), (13, "RetryStormInRun", True)])
scenario("near miss: many requests of eleven", sizes(30, 0, retries=1.9), nothing(9, 13, 25))
scenario("near miss: a storm in an old log", sizes(5, 3), nothing(9, 13, 25))
FOUND = "retryscope_audit_findings_total"
scenario("a tool is executed again after a denial", traffic([{"minutes": 30, "ok": 20}]) +
         [series(FOUND, [(20, 0), (0.25, 4), (9, 0)], born=True, agent="codex", rule="RS503")],
         [(19, None, False), (21, "UnsafeToolReplay", True, {"severity": "page"})])
scenario("near miss: a tool was executed again in an old log", traffic([{"minutes": 1, "ok": 20}, {"minutes": 29, "ok": 0}]) +
         [series(FOUND, [(20, 0), (0.25, 4), (9, 0)], born=True, agent="codex", rule="RS503")], nothing(21, 25))
scenario("content goes to a recipient outside the list", traffic([{"minutes": 30, "ok": 20}]) +
         [series(FOUND, [(20, 0), (0.25, 4), (9, 0)], born=True, agent="codex", rule="RS401")],
         [(19, None, False), (21, "DataSentOutsidePolicy", True, {"severity": "page"})])
scenario("near miss: findings of another rule", traffic([{"minutes": 30, "ok": 20}]) +
         [series(FOUND, [(20, 0), (0.25, 4), (9, 0)], born=True, agent="codex", rule="RS201")], nothing(19, 21, 25))


def every_alert_is_tested():
    """Each alert of alerts.yaml, by name and reason, has a check that fires."""
    text = (RULES / "alerts.yaml").read_text()
    wanted = set()
    for block in text.split("- alert: ")[1:]:
        reason = re.search(r'reason: "(\w+)"', block)
        wanted.add((block.split("\n")[0], reason[1] if reason else None))
    fired = set()
    for one in SCENARIOS:
        for test in one["promql_expr_test"]:
            if test["exp_samples"]:
                name = re.search(r'alertname="(\w+)"', test["expr"])[1]
                reason = re.search(r'reason="(\w+)"', test["expr"])
                fired.add((name, reason[1] if reason else None))
    missing = wanted - fired
    assert not missing, f"no scenario makes these fire: {sorted(missing, key=str)}"


def main():
    every_alert_is_tested()
    begun = time.monotonic()
    wanted = [s for s in SCENARIOS if len(sys.argv) < 2 or sys.argv[1] in s["name"]]
    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        for rules in RULES.glob("*.yaml"):
            # Evaluated as often as the counters of the scenario have values; its own files may say otherwise.
            text = "".join(line for line in rules.read_text().splitlines(True) if not line.startswith("    interval:"))
            (folder / rules.name).write_text(text)
        jobs = []
        order = ["retryscope.recording", "retryscope.optional"] + re.findall(r"- name: (retryscope\S+)", (RULES / "alerts.yaml").read_text())
        fine = [one for one in wanted if one["interval"] == "15s"]
        for part in [[one for one in wanted if one not in fine], fine[::2], fine[1::2]]:
            if not part:
                continue
            path = folder / f"part{len(jobs)}.test.json"
            path.write_text(json.dumps({"rule_files": ["recording.yaml", "optional.yaml", "alerts.yaml"], "group_eval_order": order,
                                        "evaluation_interval": "60s" if part[0]["interval"] == "60s" else "30s", "tests": part}))
            jobs.append(subprocess.Popen(["promtool", "test", "rules", str(path)], stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, text=True))
        outputs = [job.communicate(timeout=300)[0] for job in jobs]
    if any(job.returncode for job in jobs):
        print("\n".join(outputs), file=sys.stderr)
        return 1
    print(f"{len(wanted)} scenarios, {sum(len(s['promql_expr_test']) for s in wanted)} checks, "
          f"{time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
