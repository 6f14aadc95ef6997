#!/usr/bin/env python3
"""Writes rules/*.yaml and grafana/*.json: thresholds, windows and labels stand here once, and the same everywhere.

Usage: dashboards/generate.py           write the files
       dashboards/generate.py --check   say which files are not as they would be written; exit 1 if there are any
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
RUNBOOK = "https://github.com/retryscope/retryscope/blob/main/dashboards/runbooks.md"

# ---------------------------------------------------------------------------------------------- thresholds: change here

RETRY_RATIO = 0.10          # RetryRatioHigh: retries / upstream requests over 10 m (a budget of 10 %: amplification 1.11) ...
RETRY_MIN = 20              # ... and at least as many retries, so that a quiet agent's three retries wake nobody
EXTRA_LOAD = 0.33           # RetryLoadHigh: a third of all requests are there because others failed, over 10 m ...
EXTRA_MIN = 100             # ... and at least as many requests
FAILED_RATIO = 0.05         # ModelRequestsFailing: failed / finished requests over 5 m ...
FAILED_MIN = 10             # ... at least as many failed requests ...
FAILED_RUNS = 3             # ... and failed runs
EXHAUSTED_MIN = 1           # AccountExhausted: one refusal says it
AUTH_MIN = 3                # CredentialsFailing: one or two 401 are a token that was being refreshed
LAG_SECONDS = 120           # RetryscopeBlind
GAPS_MIN = 10               # RetryscopeBlind: unreadable records in 10 m
COVERED_MIN = 0.5           # RetryscopeBlind: share of requests whose log shows every attempt, over 1 h ...
COVERED_REQUESTS = 50       # ... and at least as many requests
POINTLESS_MIN = 5           # NonRetryableRetried, over 1 h
EARLY_MIN = 5               # RetryAfterIgnored, over 1 h ...
EARLY_SHARE = 0.2           # ... and this share of the stated waits
WAIT_SECONDS = 900          # RunWaitingLong
STORM_ATTEMPTS = 11         # RetryStormInRun: what one loop of an agent sends at most (two make 30 and more); must be a bound of retryscope_attempts_per_request

WINDOWS = ["5m", "10m", "1h", "6h"]

# ------------------------------------------------------------------------------------------------------ recording rules

NOT_WORTH_A_RETRY = "auth|content|exhausted|invalid_request"


def grown(metric, window, by, selector=""):
    """Growth of a counter that also sees the beginning of a series.

    increase() alone sees nothing of the first failures of a kind: their series begins at their number, not at 0. Where the
    same target showed run metrics before the window, a series that is new began at 0, so it grew by its value. Without that
    (first start, restart, blocks written from old logs) the first value is history and does not count.
    """
    of = f"{metric}{{{selector}}}" if selector else metric
    return f"""sum by ({by}) (
  max_over_time({of}[{window}]) unless {of} offset {window}
    and on (job, instance) group by (job, instance) (retryscope_logical_requests_total offset {window})
  or increase({of}[{window}])
)"""


def recording_groups():
    increases, ratios = [], []
    for window in WINDOWS:
        increases.append((f"agent_provider_kind:retryscope_upstream_requests:increase{window}", grown(
            "retryscope_upstream_requests_total", window, "agent, provider, kind", 'arrival="live",visibility="full"')))
        increases.append((f"agent_provider:retryscope_upstream_requests_seen:increase{window}", grown(
            "retryscope_upstream_requests_total", window, "agent, provider", 'arrival="live"')))
        full = f"agent_provider_kind:retryscope_upstream_requests:increase{window}"
        seen = f"agent_provider:retryscope_upstream_requests_seen:increase{window}"
        for scope in ["global", "provider", "agent"]:
            by = "" if scope == "global" else scope

            def total(series, by=by):
                return f"sum by ({by}) ({series})"
            some = f"({total(full)} > 0)"
            first = total(full + '{kind="original"}')
            retries = total(full + '{kind="retry"}')
            ratios.append((f"{scope}:retryscope_retry_ratio:ratio{window}",
                           f"({retries} or 0 * {total(full)}) / {some}"))
            ratios.append((f"{scope}:retryscope_extra_load:ratio{window}",
                           f"1 - ({first} or 0 * {total(full)}) / {some}"))
            ratios.append((f"{scope}:retryscope_amplification:ratio{window}", f"{total(full)} / ({first} > 0)"))
            ratios.append((f"{scope}:retryscope_covered_share:ratio{window}",
                           f"({total(full)} or 0 * {total(seen)}) / ({total(seen)} > 0)"))
    increases += [
        ("provider_outcome:retryscope_request_outcomes:increase5m", grown(
            "retryscope_request_outcomes_total", "5m", "provider, outcome", 'arrival="live"')),
        ("provider:retryscope_failed_runs:increase5m", grown(
            "retryscope_run_outcomes_total", "5m", "provider", 'outcome="failed"')),
        ("agent_provider_class:retryscope_attempt_failures:increase10m", grown(
            "retryscope_attempt_failures_total", "10m", "agent, provider, class", 'arrival="live"')),
        ("agent_provider_class:retryscope_retries:increase10m", grown(
            "retryscope_retries_total", "10m", "agent, provider, class", 'arrival="live"')),
        ("agent_provider_class:retryscope_retries:increase1h", grown(
            "retryscope_retries_total", "1h", "agent, provider, class", 'arrival="live"')),
        ("agent_provider_verdict:retryscope_retry_after:increase1h", grown(
            "retryscope_retry_after_total", "1h", "agent, provider, verdict")),
        ("agent_provider:retryscope_long_requests:increase10m",
         grown("retryscope_attempts_per_request_count", "10m", "agent, provider") + "\n- " +
         grown("retryscope_attempts_per_request_bucket", "10m", "agent, provider", f'le="{STORM_ATTEMPTS}"')),
        ("agent_rule:retryscope_audit_findings:increase10m", grown(
            "retryscope_audit_findings_total", "10m", "agent, rule")),
    ]
    outcomes = "provider_outcome:retryscope_request_outcomes:increase5m"
    ratios.append(("provider:retryscope_failed_requests:ratio5m",
                   f'sum by (provider) ({outcomes}{{outcome=~"failed.*"}})\n'
                   f'/ (sum by (provider) ({outcomes}{{outcome!="cancelled"}}) > 0)'))
    # One group: rules of a group run in order, so the ratios see the increases of the same moment.
    return [("retryscope.recording", [{"record": name, "expr": expr} for name, expr in increases + ratios])]


# --------------------------------------------------------------------------------------------------------------- alerts

def alert(name, severity, team, expr, summary, description, wait="0m", keep=None, **labels):
    rule = {"alert": name, "expr": expr, "for": wait}
    if keep:
        rule["keep_firing_for"] = keep
    rule["labels"] = {"severity": severity, "team": team, **labels}
    rule["annotations"] = {"summary": summary, "description": description, "runbook_url": f"{RUNBOOK}#{name.lower()}"}
    return rule


def percent(value):
    return f"{value * 100:g} %"


def alert_groups():
    p = "{{ $labels.provider }}"
    a = "{{ $labels.agent }}"
    share = "{{ $value | humanizePercentage }}"
    up10 = "agent_provider_kind:retryscope_upstream_requests:increase10m"
    failed = 'provider_outcome:retryscope_request_outcomes:increase5m{outcome=~"failed.*"}'
    first_try = ('{{ with printf `sum(provider_outcome:retryscope_request_outcomes:increase5m'
                 '{outcome="failed_no_retry",provider=%q}) / sum(provider_outcome:retryscope_request_outcomes:increase5m'
                 '{outcome=~"failed.*",provider=%q})` $labels.provider $labels.provider | query }}'
                 '{{ . | first | value | humanizePercentage }}{{ else }}0%{{ end }}')
    covered = ('{{ with printf `provider:retryscope_covered_share:ratio10m{provider=%q}` $labels.provider | query }}'
               '{{ . | first | value | humanizePercentage }}{{ else }}an unknown share{{ end }}')
    reset = ('{{ with printf `max(retryscope_quota_reset_timestamp_seconds{provider=%q}) > time()` $labels.provider | query }}'
             'It resets at {{ . | first | value | humanizeTimestamp }}.{{ else }}'
             'The provider did not say when it resets.{{ end }}')
    retries = [
        alert("RetryRatioHigh", "warning", "platform",
              f"provider:retryscope_retry_ratio:ratio10m > {RETRY_RATIO}\n"
              f'and on (provider) sum by (provider) ({up10}{{kind="retry"}}) >= {RETRY_MIN}',
              f"{share} of the requests to {p} are retries",
              f"Over 10 minutes more than {percent(RETRY_RATIO)} of the upstream requests to {p} were retries "
              f"(at least {RETRY_MIN}). Counted where the log shows every attempt: {covered} of the requests. "
              "Next: retryscope runs --failed --since 30m, then retryscope replay RUN.",
              "5m", "5m"),
        alert("RetryLoadHigh", "page", "platform",
              f"provider:retryscope_extra_load:ratio10m > {EXTRA_LOAD}\n"
              f'and on (provider) sum by (provider) ({up10}{{kind!="original"}}) >= {EXTRA_MIN}',
              f"{share} of the requests to {p} are retries, fallbacks or hedges",
              f"Over 10 minutes more than {percent(EXTRA_LOAD)} of the load on {p} was there only because other requests "
              f"failed (at least {EXTRA_MIN} requests). Retries now make the outage worse: stop or slow the agents that "
              "spend most (dashboard Retry budget, who spends it). Next: retryscope replay RUN.",
              "2m", "5m"),
        alert("ModelRequestsFailing", "page", "platform",
              f"provider:retryscope_failed_requests:ratio5m > {FAILED_RATIO}\n"
              f"and on (provider) sum by (provider) ({failed}) >= {FAILED_MIN}\n"
              f"and on (provider) provider:retryscope_failed_runs:increase5m >= {FAILED_RUNS}",
              f"{share} of the model requests to {p} fail for good",
              f"Over 5 minutes at least {FAILED_MIN} requests to {p} ended without an answer and at least {FAILED_RUNS} "
              f"turns of agents died. {first_try} of these failed without any retry; if that is most of them "
              "although the failures are transient, a retry branch is dead (audit rule RS101). Dead agents send nothing, "
              "so this alert goes on for 15 minutes after the last failure. "
              "Next: retryscope runs --failed --since 30m, then retryscope replay RUN.",
              "1m", "15m"),
    ]
    owners = [
        alert("AccountExhausted", "warning", "account",
              'sum by (provider) (agent_provider_class:retryscope_attempt_failures:increase10m{class="exhausted"}) '
              f">= {EXHAUSTED_MIN}",
              f"a quota or balance at {p} is used up",
              f"{p} refuses requests because a quota, a balance or a plan's window is used up. {reset} Waiting inside a "
              "run does not help. Next: retryscope replay RUN says which account and limit.",
              "0m", "30m"),
        alert("CredentialsFailing", "warning", "key",
              'sum by (provider) (agent_provider_class:retryscope_attempt_failures:increase10m{class="auth"}) '
              f">= {AUTH_MIN}",
              f"{p} refuses the credentials",
              f"At least {AUTH_MIN} requests to {p} failed over a key, a permission or a region within 10 minutes. "
              "Retries cannot help. Next: retryscope replay RUN shows the provider's own words.",
              "0m", "30m"),
    ]
    blind = [
        alert("RetryscopeBlind", "warning", "platform", 'up{job="retryscope"} == 0',
              "retryscoped on {{ $labels.instance }} does not answer",
              "Prometheus cannot scrape it, so no other alert about its agents can fire. Next: systemctl --user status "
              "retryscoped; retryscope works without it.", "5m", reason="down"),
        alert("RetryscopeBlind", "warning", "platform", "absent(retryscope_build_info)",
              "no retryscoped is scraped",
              "No target exports retryscope metrics, so no other alert can fire. Next: the scrape configuration (job "
              "retryscope), then systemctl --user status retryscoped.", "5m", reason="absent"),
        alert("RetryscopeBlind", "warning", "platform", f"retryscope_read_lag_seconds > {LAG_SECONDS}",
              "retryscoped on {{ $labels.instance }} is {{ $value | humanizeDuration }} behind",
              "It does not keep up with the logs, or a file system hangs. Next: dashboard retryscoped, then its log.",
              "5m", reason="lag"),
        alert("RetryscopeBlind", "warning", "platform", "retryscope_ready == 0",
              "retryscoped on {{ $labels.instance }} has been reading its backlog for half an hour",
              "Until it is read there are no metrics of runs, so no other alert about its agents can fire. Next: "
              "/-/healthy says whether its reading thread is alive, its log what it reads.", "30m", reason="backlog"),
        alert("RetryscopeBlind", "warning", "platform",
              f"sum by (job, instance) (increase(retryscope_gaps_total[10m])) > {GAPS_MIN}",
              "retryscoped on {{ $labels.instance }} cannot read many records",
              "An agent probably writes a new format, or its disk is full. Next: retryscope sources, which names files "
              "and lines.", "5m", reason="gaps"),
        alert("RetryscopeBlind", "warning", "platform", "increase(retryscope_checkpoint_failures_total[15m]) > 0",
              "retryscoped on {{ $labels.instance }} cannot save its state",
              "After a restart it would go on from an old state. Next: free space and rights of its state directory.",
              "5m", reason="checkpoint"),
        alert("RetryscopeBlind", "ticket", "platform",
              f"global:retryscope_covered_share:ratio1h < {COVERED_MIN}\n"
              f"and sum by () (agent_provider:retryscope_upstream_requests_seen:increase1h) >= {COVERED_REQUESTS}",
              f"only {share} of the requests are fully visible",
              "The ratios are computed over requests whose log shows every attempt; most requests have no such log, so the "
              "retry alerts may stay silent in an outage. Next: retryscope sources says what each log can show and which "
              "setting shows more.", "15m", reason="visibility"),
    ]
    early = 'agent_provider_verdict:retryscope_retry_after:increase1h'
    live = "sum by (agent, provider) (agent_provider_class:retryscope_retries:increase{window})"
    # Findings in logs that were copied in are told by the audit, and wake nobody.
    at_work = "and on (agent) sum by (agent) (agent_provider:retryscope_upstream_requests_seen:increase10m) > 0"
    tickets = [
        alert("NonRetryableRetried", "ticket", "platform",
              "sum by (agent, provider, class) (agent_provider_class:retryscope_retries:increase1h"
              f'{{class=~"{NOT_WORTH_A_RETRY}"}}) >= {POINTLESS_MIN}',
              f"{a} retries {{{{ $labels.class }}}} failures of {p}",
              f"{{{{ $value | humanize }}}} retries within an hour after failures that a retry cannot cure. "
              "Next: retryscope replay RUN names the agent's setting.",
              "0m", "1h"),
        alert("RetryAfterIgnored", "ticket", "platform",
              f'sum by (agent, provider) ({early}{{verdict="early"}}) >= {EARLY_MIN}\n'
              f'and sum by (agent, provider) ({early}{{verdict="early"}}) / sum by (agent, provider) ({early}) > {EARLY_SHARE}\n'
              f"and {live.format(window='1h')} >= {EARLY_MIN}",
              f"{a} comes back to {p} earlier than asked",
              "{{ $value | humanize }} retries within an hour were sent before the wait that the provider had stated was "
              "over. Providers answer that with longer limits. Next: retryscope replay RUN shows asked and waited.",
              "0m", "1h"),
        alert("RunWaitingLong", "ticket", "platform",
              f"max by (agent) (retryscope_longest_wait_seconds) > {WAIT_SECONDS}",
              f"a run of {a} has been waiting for {{{{ $value | humanizeDuration }}}}",
              "It sleeps before a retry and holds its place. Next: retryscope runs shows it as running; retryscope replay "
              "RUN says for what it waits; cancel it if the reset is too far away.", "1m"),
        alert("RetryStormInRun", "ticket", "platform",
              "agent_provider:retryscope_long_requests:increase10m > 0.5\n"
              f"and {live.format(window='10m')} >= {STORM_ATTEMPTS}",
              f"one request of {a} became more than {STORM_ATTEMPTS} requests to {p}",
              "Layers of retries multiply (SDK x transport x agent). Next: retryscope replay RUN names the layers and the "
              "setting that takes one away.", "0m", "30m"),
        alert("DataSentOutsidePolicy", "page", "platform",
              'sum by (agent) (agent_rule:retryscope_audit_findings:increase10m{rule="RS401"}) > 0.5\n' + at_work,
              "{{ $labels.agent }} sent data to a recipient that its policy does not allow",
              "A policy with a list of recipients is set, and requests of a run went elsewhere (audit rule RS401). Next: "
              "retryscope audit --select RS401, then retryscope replay RUN --recipients.", "0m", "1h"),
        alert("UnsafeToolReplay", "page", "platform",
              'sum by (agent) (agent_rule:retryscope_audit_findings:increase10m{rule=~"RS50[1-7]"}) > 0.5\n' + at_work,
              "{{ $labels.agent }} executed a tool again that it must not have",
              "The tool ledger of a run shows a replay after a denial, without approval, after a cancel, or of something "
              "that must happen once (audit rules RS501 to RS507). Next: retryscope audit --select RS5.", "0m", "1h"),
    ]
    return [("retryscope.retries", retries), ("retryscope.owners", owners), ("retryscope.blind", blind),
            ("retryscope.tickets", tickets)]


def yaml_of(groups, heading, interval=None):
    out = [f"# {line}" for line in heading] + ["groups:"]
    for name, rules in groups:
        out.append(f"  - name: {name}")
        if interval:
            out.append(f"    interval: {interval}")
        out.append("    rules:")
        for rule in rules:
            lead = "      - "
            for key, value in rule.items():
                if isinstance(value, dict):
                    out.append(f"{lead}{key}:")
                    out += [f"          {k}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()]
                elif key == "expr":
                    out.append(f"{lead}{key}: |")
                    out += [f"          {line}" for line in value.split("\n")]
                else:
                    out.append(f"{lead}{key}: {value}")
                lead = "        "
    return "\n".join(out) + "\n"


# ----------------------------------------------------------------------------------------------------------- dashboards

WIDE = 'agent=~"$agent",provider=~"$provider",model=~"$model"'
NARROW = 'agent=~"$agent",provider=~"$provider"'
LIVE = WIDE + ',arrival="live"'
FULL = LIVE + ',visibility="full"'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def ratio(part, whole):
    return f"{part}\n/ ({whole} > 0)"


def rate(metric, selector, by="", window="$__rate_interval"):
    return f"sum by ({by}) (rate({metric}{{{selector}}}[{window}]))"


def share(metric, base, part, whole="", by=""):
    """Share of a counter's growth that `part` selects; 0 where it does not exist, nothing where nothing happened."""
    all_of = rate(metric, base + whole, by)
    return ratio(f"({rate(metric, base + part, by)} or 0 * {all_of})", all_of)


def target(expr, legend="", instant=False, ref="A"):
    return {"datasource": SOURCE, "expr": expr, "legendFormat": legend or "__auto", "refId": ref, "editorMode": "code",
            "instant": instant, "range": not instant, **({"format": "table"} if instant else {})}


class Board:
    def __init__(self, uid, title, description, variables):
        self.uid, self.title, self.description, self.variables = uid, title, description, variables
        self.panels, self.x, self.y, self.height = [], 0, 0, 0

    def row(self, title):
        self.wrap()
        self.panels.append({"type": "row", "title": title, "id": len(self.panels) + 1, "collapsed": False, "panels": [],
                            "gridPos": {"h": 1, "w": 24, "x": 0, "y": self.y}})
        self.y += 1

    def wrap(self):
        self.y, self.x, self.height = self.y + self.height, 0, 0

    def panel(self, kind, title, unit, description, targets, width=8, height=8, thresholds=None, stack=False, maximum=None,
              options=None, overrides=None):
        if self.x + width > 24:
            self.wrap()
        steps = [{"color": "green", "value": None}] + [{"color": c, "value": v} for v, c in thresholds or []]
        defaults = {"unit": unit, "thresholds": {"mode": "absolute", "steps": steps}, "min": 0}
        if maximum is not None:
            defaults["max"] = maximum
        if kind == "timeseries":
            defaults["color"] = {"mode": "palette-classic"}
            defaults["custom"] = {"drawStyle": "line", "fillOpacity": 25 if stack else 8, "lineWidth": 1,
                                  "showPoints": "never", "stacking": {"mode": "normal" if stack else "none", "group": "A"},
                                  "thresholdsStyle": {"mode": "dashed" if thresholds else "off"}}
            known = {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"],
                                "showLegend": True},
                     "tooltip": {"mode": "multi", "sort": "desc"}}
        elif kind == "stat":
            defaults["color"] = {"mode": "thresholds"}
            known = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value",
                     "graphMode": "area", "textMode": "auto"}
        else:
            defaults.pop("min")
            known = {"showHeader": True}
        for index, one in enumerate(targets):
            one["refId"] = "ABCDEFGH"[index]
        panel = {"type": kind, "title": title, "description": description, "id": len(self.panels) + 1,
                 "datasource": SOURCE, "targets": targets,
                 "fieldConfig": {"defaults": defaults, "overrides": overrides or []},
                 "options": {**known, **(options or {})},
                 "gridPos": {"h": height, "w": width, "x": self.x, "y": self.y}}
        if kind == "table":
            panel["transformations"] = [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]
        self.panels.append(panel)
        self.x += width
        self.height = max(self.height, height)

    def lines(self, title, unit, description, *targets, **more):
        self.panel("timeseries", title, unit, description, list(targets), **more)

    def stat(self, title, unit, description, expr, thresholds=None, **more):
        self.panel("stat", title, unit, description, [target(expr)], width=more.pop("width", 4), height=4,
                   thresholds=thresholds, **more)

    def table(self, title, unit, description, expr, **more):
        self.panel("table", title, unit, description, [target(expr, instant=True)], **more)

    def json(self):
        lists = [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0,
                  "multi": False, "includeAll": False, "regex": "", "refresh": 1, "options": [],
                  "current": {"selected": False, "text": "default", "value": "default"}}]
        for name, query in self.variables:
            lists.append({"name": name, "label": name.capitalize(), "type": "query", "datasource": SOURCE, "hide": 0,
                          "query": {"query": query, "refId": f"Variable-{name}"}, "definition": query, "refresh": 2,
                          "sort": 1, "multi": True, "includeAll": True, "allValue": ".*", "regex": "", "options": [],
                          "current": {"selected": True, "text": ["All"], "value": ["$__all"]}})
        return {"uid": self.uid, "title": self.title, "description": self.description, "tags": ["retryscope"],
                "schemaVersion": 38, "version": 1, "editable": True, "graphTooltip": 1, "refresh": "30s",
                "time": {"from": "now-6h", "to": "now"}, "timezone": "browser", "timepicker": {}, "fiscalYearStartMonth": 0,
                "templating": {"list": lists},
                "annotations": {"list": [{"name": "Alerts", "enable": True, "iconColor": "red", "datasource": SOURCE,
                                          "expr": 'ALERTS{alertname=~"Retry.*|Model.*|Account.*|Credentials.*",'
                                                  'alertstate="firing"}',
                                          "titleFormat": "{{alertname}}", "textFormat": "{{provider}}{{agent}}",
                                          "step": "60s"}]},
                "links": [{"title": "retryscope", "type": "dashboards", "tags": ["retryscope"], "asDropdown": True,
                           "includeVars": True, "keepTime": True, "icon": "external link", "tooltip": "", "url": "",
                           "targetBlank": False}],
                "panels": self.panels}


OF_RUNS = [("provider", "label_values(retryscope_logical_requests_total, provider)"),
           ("model", 'label_values(retryscope_logical_requests_total{provider=~"$provider"}, model)'),
           ("agent", "label_values(retryscope_logical_requests_total, agent)")]


def provider_health():
    board = Board("retryscope-provider-health", "retryscope / Provider health",
                  "What model providers answer, and what agents make of it.", OF_RUNS)
    up, done = "retryscope_upstream_requests_total", "retryscope_request_outcomes_total"
    fails, runs = "retryscope_attempt_failures_total", "retryscope_run_outcomes_total"
    ok, ended = ',outcome=~"ok.*"', ',outcome!="cancelled"'
    board.row("Now")
    board.stat("Success", "percentunit",
               "Share of finished model requests that got an answer, however many tries it took. Below 95 %: people lose work. "
               "Continue with retryscope runs --failed --since 1h.",
               share(done, LIVE, ok, ended), maximum=1,
               options={"colorMode": "value"})
    board.stat("Success after retry", "percentunit",
               "Share of finished requests that only a retry or a fallback saved. Rising while Success stays high: the provider "
               "is ill and retries still carry it; look at Failures by reason. Continue with retryscope report.",
               share(done, LIVE, ',outcome=~"ok_after_.*"', ended),
               [(0.1, "orange"), (0.3, "red")])
    board.stat("Retry ratio", "percentunit",
               f"Retries / upstream requests, over requests whose log shows every attempt. Above {percent(RETRY_RATIO)}: "
               "retries themselves become the load; open the dashboard Retry budget. Continue with retryscope replay.",
               share(up, FULL, ',kind="retry"'),
               [(RETRY_RATIO, "orange"), (EXTRA_LOAD, "red")])
    board.stat("Amplification", "none",
               "Upstream requests / logical requests; 1 is none, 1.11 is the default budget. Above 1.5: stop or slow agents. "
               "Continue with retryscope replay, which names the layers that multiply.",
               ratio(rate(up, FULL), rate(up, FULL + ',kind="original"')), [(1.11, "orange"), (1.5, "red")])
    board.stat("Fully visible", "percentunit",
               "Share of requests whose log shows every attempt: what the ratios here stand on. Below 50 %: the ratios speak for "
               "the minority. Continue with retryscope sources, which names the setting that shows more.",
               share(up, LIVE, ',visibility="full"'), maximum=1)
    board.stat("Runs waiting", "none",
               "Runs that sleep before a retry right now. Many, for long: a limit is reached or a provider is down. "
               "Continue with retryscope runs.",
               'sum(retryscope_runs_waiting{agent=~"$agent"})', [(5, "orange")])
    board.row("Answers")
    board.lines("Requests by outcome", "reqps",
                "Ended model requests. failed_no_retry rising: a failure that is not retried, or a dead retry branch; "
                "failed_after_retry rising: retries do not help. Continue with retryscope runs --failed --since 1h.",
                target(rate(done, LIVE, "outcome"), "{{outcome}}"), stack=True)
    board.lines("Success by provider", "percentunit",
                "Share of finished requests that got an answer. One provider falls alone: fall back to another; all fall: look at "
                "the network or the proxy. Continue with retryscope runs --failed --provider NAME.",
                target(share(done, LIVE, ok, ended, "provider"), "{{provider}}"), maximum=1)
    board.lines("Turns ended by failure", "short",
                "Turns of agents that a failure ended, by its class: people who lost work. transient: start again later; "
                "exhausted and auth: somebody must act. Continue with retryscope runs --failed, then retryscope replay RUN.",
                target(f'sum by (provider, class) (increase({runs}{{{WIDE},outcome="failed"}}[$__rate_interval]))',
                       "{{provider}} {{class}}"), stack=True)
    board.row("Failures")
    board.lines("Failed attempts by class", "reqps",
                "throttled: send less at once; exhausted: top up or wait for the reset; auth: fix the key; transient: the "
                "provider's trouble. Continue with retryscope classify for a single error text.",
                target(rate(fails, LIVE, "class"), "{{class}}"), stack=True)
    board.lines("Failed attempts by reason", "reqps",
                "The same by reason and provider. connect, refused or dns on all providers: look at your own network first. "
                "Continue with retryscope runs --failed --provider NAME.",
                target(f"topk(10, {rate(fails, LIVE, 'provider, reason')})", "{{provider}} {{reason}}"))
    board.lines("Failed attempts by HTTP status", "reqps",
                "none stands for no answer at all. A 429 that is a quota and a 400 that is an overload are told apart in the "
                "class, not here. Continue with retryscope classify --status N --body TEXT.",
                target(rate(fails, LIVE, "provider, status"), "{{provider}} {{status}}"))
    board.row("Retries")
    board.lines("Retry ratio against the budget", "percentunit",
                "Retries / upstream requests by provider; the dashed line is the alert's threshold, the limit line the "
                "configured budget. Above it for long: retries add load and help nobody. Continue with retryscope replay.",
                target(share(up, FULL, ',kind="retry"', by="provider"), "{{provider}}"),
                target('max(retryscope_retry_budget_limit_ratio{scope="global"})', "limit"),
                thresholds=[(RETRY_RATIO, "red")])
    board.lines("Extra load and amplification", "percentunit",
                f"Extra load: share of requests that are there only because others failed; above {percent(EXTRA_LOAD)} the alert "
                "pages. Slow the agents that spend most (dashboard Retry budget). Continue with retryscope replay.",
                target("1 - " + ratio(rate(up, FULL + ',kind="original"', "provider"), rate(up, FULL, "provider")),
                       "extra load {{provider}}"),
                target(ratio(rate(up, FULL, "provider"), rate(up, FULL + ',kind="original"', "provider")),
                       "amplification {{provider}}"),
                thresholds=[(EXTRA_LOAD, "red")],
                overrides=[{"matcher": {"id": "byRegexp", "options": "amplification.*"},
                            "properties": [{"id": "unit", "value": "none"},
                                           {"id": "custom.axisPlacement", "value": "right"}]}])
    board.lines("Upstream requests by kind", "reqps",
                "What providers get. retry above original: a storm; fallback rising: the first candidate is ill. "
                "Continue with retryscope report.",
                target(rate(up, LIVE, "kind"), "{{kind}}"), stack=True)
    delay = f"sum by (le) (rate(retryscope_retry_delay_seconds_bucket{{{NARROW}}}[$__rate_interval]))"
    board.lines("Waits before retries", "s",
                "How long agents wait between tries. p50 below 1 s in an outage: no backoff; p99 in minutes: runs sleep on a "
                "limit. Continue with retryscope replay, which shows asked and waited.",
                *[target(f"histogram_quantile({q}, {delay})", name)
                  for q, name in [(0.5, "p50"), (0.9, "p90"), (0.99, "p99")]])
    board.lines("Retry-After verdicts", "reqps",
                "What agents made of a wait that the provider had stated. early: they come back too soon and get longer limits; "
                "capped: a limit of the agent cut it. Continue with retryscope replay.",
                target(rate("retryscope_retry_after_total", NARROW, "agent, verdict"), "{{agent}} {{verdict}}"))
    board.lines("Time spent waiting", "short",
                "Seconds of waiting a second: how many agents sleep at the same time, on average. High for hours: cancel the runs "
                "and wait for the reset. Continue with retryscope runs.",
                target(rate("retryscope_waiting_seconds_total", WIDE, "agent, provider"), "{{agent}} {{provider}}"), stack=True)
    board.row("Consequences")
    board.table("Fallback flows", "short",
                "Moves to another candidate in the shown time. A flow to a provider you did not mean to use: check the agent's "
                "fallback list. Continue with retryscope replay RUN.",
                'sum by (agent, from_provider, to_provider, kind, reason) (increase(retryscope_fallbacks_total'
                '{agent=~"$agent",from_provider=~"$provider"}[$__range])) > 0')
    board.table("Quota resets", "dateTimeFromNow",
                "When a used-up quota resets, as the provider last said. In the future: do not start runs on that account before. "
                "Continue with retryscope, whose first screen lists empty accounts.",
                f"1000 * max by (agent, provider) (retryscope_quota_reset_timestamp_seconds{{{NARROW}}})")
    board.lines("Hidden requests, estimated", "short",
                "Requests that the logs do not show, by the agents' known policies (from min to max); not in any ratio above. A "
                "wide range: turn on the log that shows more. Continue with retryscope sources.",
                target(f"sum by (agent, bound) (retryscope_hidden_requests_estimate{{{NARROW}}})", "{{agent}} {{bound}}"))
    board.lines("Fully visible requests by agent", "percentunit",
                "Share of requests whose log shows every attempt. 0 for an agent: its log cannot show retries and its retry ratio "
                "is unknown, not 0. Continue with retryscope sources.",
                target(share(up, LIVE, ',visibility="full"', by="agent"), "{{agent}}"),
                maximum=1)
    board.lines("Upstream requests by model", "reqps",
                "Who is asked. A model that is never named in a configuration: a silent fallback. Continue with retryscope "
                "report.", target(f"topk(10, {rate(up, LIVE, 'provider, model')})", "{{provider}} {{model}}"))
    return board


def retry_budget():
    board = Board("retryscope-retry-budget", "retryscope / Retry budget",
                  "How much of the load is retries, and who spends the budget.",
                  [OF_RUNS[0], OF_RUNS[2]])
    scoped = 'scope=~"global|provider|agent|account"'
    board.row("Budgets")
    board.lines("Used share by scope, 5 m", "percentunit",
                "Retries / upstream requests in the last 5 minutes of event time, as /api/v1/budget tells agents. Above the limit: "
                "agents that ask are told not to retry. Continue with retryscope report.",
                target(f'max by (scope, name) (retryscope_retry_budget_used_ratio{{{scoped},window="5m"}})', "{{scope}} {{name}}"),
                target('max(retryscope_retry_budget_limit_ratio{scope="global",window="5m"})', "limit"), width=12)
    board.lines("Burn: used / limit", "none",
                "1 means the whole budget of that window. 5 m above 1 but 6 h far below: a short trouble; all three above 1: a "
                "setting is wrong. Continue with retryscope replay.",
                target('max by (window) (retryscope_retry_budget_used_ratio{scope="global"}) '
                       '/ max by (window) (retryscope_retry_budget_limit_ratio{scope="global"})', "global {{window}}"),
                thresholds=[(1, "red")], width=12)
    board.lines("Times exhausted", "short",
                "How often a budget became exhausted in the shown interval. Again and again for one provider: its limit is below "
                "the demand. Continue with retryscope runs --provider NAME.",
                target("sum by (scope, name, window) (increase(retryscope_retry_budget_exhausted_total[$__rate_interval]))",
                       "{{scope}} {{name}} {{window}}"), stack=True)
    board.lines("Retry ratio as alerted", "percentunit",
                "The recorded ratio over 10 minutes that RetryRatioHigh looks at. Above the line for 5 minutes it fires. "
                "Continue with the runbook: retryscope runs --failed --since 30m.",
                target('provider:retryscope_retry_ratio:ratio10m{provider=~"$provider"}', "{{provider}}"),
                thresholds=[(RETRY_RATIO, "red")])
    board.lines("Extra load as alerted", "percentunit",
                "The recorded share over 10 minutes that RetryLoadHigh looks at. Above the line it pages. Continue with "
                "the runbook: stop the agents that spend most, then retryscope replay.",
                target('provider:retryscope_extra_load:ratio10m{provider=~"$provider"}', "{{provider}}"),
                thresholds=[(EXTRA_LOAD, "red")])
    board.row("Who spends it")
    spent = "retryscope_retries_total{" + NARROW + ',arrival="live"}'
    for title, by, legend, more in [
            ("Retries by agent", "agent", "{{agent}}", "One agent far above the others: its settings, not the provider."),
            ("Retries by provider and model", "provider, model", "{{provider}} {{model}}",
             "One model alone: use another until it recovers."),
            ("Retries by layer", "layer", "{{layer}}",
             "sdk and agent together: layers multiply; switch one of them off. unknown: the log does not say.")]:
        board.lines(title, "reqps", more + " Continue with retryscope replay, which names the setting.",
                    target(f"topk(10, sum by ({by}) (rate({spent}[$__rate_interval])))", legend), stack=True)
    board.table("Retries by cause", "short",
                "Retries in the shown time by the failure before them. exhausted, auth, invalid_request and content never get "
                "better by a retry: ticket NonRetryableRetried. Continue with retryscope policy show AGENT.",
                f"topk(20, sum by (agent, provider, layer, class, reason) (increase({spent}[$__range])))", width=16)
    board.lines("Covered share by agent, 1 h", "percentunit",
                "Share of requests that the recorded ratios stand on. Low: the alerts do not see this agent's retries. Continue "
                "with retryscope sources.",
                target('agent:retryscope_covered_share:ratio1h{agent=~"$agent"}', "{{agent}}"), maximum=1)
    board.lines("Retry ratio by window", "percentunit",
                "The recorded global ratio over 5 m, 1 h and 6 h. Long windows high, short one low: it is over. Continue with "
                "retryscope report.",
                *[target(f"global:retryscope_retry_ratio:ratio{w}", w) for w in ["5m", "1h", "6h"]], width=12)
    board.lines("Amplification by agent, 1 h", "none",
                "Upstream / logical requests. Above 1.11 an agent is over the default budget. Continue with retryscope policy "
                "show AGENT, which lists its retry settings.",
                target('agent:retryscope_amplification:ratio1h{agent=~"$agent"}', "{{agent}}"), width=12,
                thresholds=[(1.11, "red")])
    return board


def runs():
    board = Board("retryscope-runs", "retryscope / Runs", "How runs of agents end, why, and which wait now.", OF_RUNS)
    ended = "retryscope_run_outcomes_total"
    board.row("Now")
    board.stat("Active", "none", "Runs that are not over. 0 while people work: retryscoped does not see their logs. Continue with "
               "retryscope sources.", 'sum(retryscope_runs_active{agent=~"$agent"})', width=6)
    board.stat("Waiting", "none", "Runs that sleep before a retry. Many: a limit or an outage. Continue with retryscope runs.",
               'sum(retryscope_runs_waiting{agent=~"$agent"})', [(5, "orange")], width=6)
    board.stat("Longest wait", "s", f"The longest wait that is going on. Above {WAIT_SECONDS} s a ticket is filed: cancel the run or "
               "wait for the reset. Continue with retryscope replay RUN.",
               'max(retryscope_longest_wait_seconds{agent=~"$agent"})', [(WAIT_SECONDS, "red")], width=6)
    board.stat("Failed turns", "percentunit", "Share of ended turns that failed, in the shown time. Above 5 %: look at causes. "
               "Continue with retryscope runs --failed.",
               f'(sum(increase({ended}{{{WIDE},outcome="failed"}}[$__range])) or 0 * sum(increase({ended}{{{WIDE}}}[$__range])))\n'
               f"/ (sum(increase({ended}{{{WIDE}}}[$__range])) > 0)", [(0.05, "orange"), (0.2, "red")], width=6)
    board.row("Ends")
    board.lines("Ended turns by outcome", "short", "failed rising while succeeded falls: an outage. Both fall: agents are dead or idle. "
                "Continue with retryscope runs --failed --since 1h.",
                target(f"sum by (outcome) (increase({ended}{{{WIDE}}}[$__rate_interval]))", "{{outcome}}"), stack=True)
    board.lines("Failed turns by cause", "short", "The class of the failure that ended them. auth and exhausted: somebody must act; "
                "too_large: compaction is missing. Continue with retryscope replay RUN.",
                target(f'sum by (class) (increase({ended}{{{WIDE},outcome="failed"}}[$__rate_interval]))', "{{class}}"), stack=True)
    board.lines("Failed turns by agent", "short", "One agent alone: its version or settings; see Versions. Continue with "
                "retryscope runs --failed --agent NAME.",
                target(f'sum by (agent) (increase({ended}{{{WIDE},outcome="failed"}}[$__rate_interval]))', "{{agent}}"), stack=True)
    board.row("Waiting and size")
    board.lines("Active and waiting runs", "short", "waiting near active: everybody sleeps on the same limit; start fewer runs. Continue "
                "with retryscope runs.",
                target('sum(retryscope_runs_active{agent=~"$agent"})', "active"),
                target('sum(retryscope_runs_waiting{agent=~"$agent"})', "waiting"))
    board.lines("Longest wait by agent", "s", "A wait of an hour is a quota, not a backoff. Continue with retryscope replay RUN, "
                "which says when it resets.",
                target('max by (agent) (retryscope_longest_wait_seconds{agent=~"$agent"})', "{{agent}}"),
                thresholds=[(WAIT_SECONDS, "red")])
    size = f"retryscope_attempts_per_request_bucket{{{NARROW}}}"
    total = f"retryscope_attempts_per_request_count{{{NARROW}}}"
    board.lines("Requests that took more than 1, 5, 11 attempts", "percentunit",
                "Share of ended requests. Any with more than 11: layers of retries multiply, ticket RetryStormInRun. Continue with "
                "retryscope replay RUN.",
                *[target(f"1 - sum(rate(retryscope_attempts_per_request_bucket{{{NARROW},le='{n}'}}[$__rate_interval]))\n"
                         f"/ (sum(rate({total}[$__rate_interval])) > 0)", f"more than {n}") for n in [1, 5, STORM_ATTEMPTS]])
    board.lines("Attempts per request", "none", "Upstream requests of an ended request: mean and p99. p99 near 11 or 30: agents use their "
                "whole allowance; retries do not help. Continue with retryscope policy show AGENT.",
                target(f"sum(rate(retryscope_attempts_per_request_sum{{{NARROW}}}[$__rate_interval]))\n"
                       f"/ (sum(rate({total}[$__rate_interval])) > 0)", "mean"),
                target(f"histogram_quantile(0.99, sum by (le) (rate({size}[$__rate_interval])))", "p99"), width=12)
    board.table("Versions", "none", "Versions of agents seen. Two versions of one agent: compare their policies. Continue with "
                "retryscope policy show AGENT --agent-version VERSION.",
                'max by (agent, version) (retryscope_agent_info{agent=~"$agent"})', width=12)
    return board


def daemon():
    board = Board("retryscope-daemon", "retryscope / retryscoped", "Whether what the other dashboards show can be believed.",
                  [("instance", "label_values(retryscope_build_info, instance)")])
    of = 'instance=~"$instance"'
    board.row("State")
    board.stat("Targets up", "none", "Daemons that answer. 0: every other panel is blind. Continue with systemctl --user status "
               "retryscoped; retryscope works without it.", f'sum(up{{job="retryscope",{of}}})', width=6)
    board.stat("Behind", "s", f"Time since it last finished a look at all files. Above {LAG_SECONDS} s the alert RetryscopeBlind fires: "
               "a file system hangs or the machine is too busy. Continue with its log: journalctl --user -u retryscoped; retryscope works without it.",
               f"max(retryscope_read_lag_seconds{{{of}}})", [(10, "orange"), (LAG_SECONDS, "red")], width=6)
    board.stat("State saved", "s", "Age of the checkpoint; it is saved when something changed. Old while logs grow: see Checkpoint "
               "failures. Continue with its log: journalctl --user -u retryscoped; retryscope report needs no checkpoint.",
               f"time() - min(retryscope_checkpoint_timestamp_seconds{{{of}}})", width=6)
    board.table("Versions", "none", "Versions running. More than one: an upgrade is under way. Continue with retryscope --version.",
                f"count by (instance, version) (retryscope_build_info{{{of}}})", width=6, height=4)
    board.row("Reading")
    board.lines("Files read and runs kept", "short",
                "Log files followed, and runs in memory. Files 0: the logs lie elsewhere, or rights are missing. Continue with "
                "retryscope sources.",
                target(f"sum(retryscope_sources{{{of}}})", "files"),
                target(f"sum(retryscope_runs_kept{{{of}}})", "runs"),
                target(f"sum(retryscope_series{{{of}}})", "series"))
    for title, unit, metric, by, legend, text in [
            ("Unreadable records", "short", "gaps", "kind", "{{kind}}",
             "Any kind rising: an agent writes a new format, or a disk is full. Continue with retryscope sources."),
            ("Oversized lines", "short", "oversized_lines", "instance", "{{instance}}",
             "Lines over the limit are read in part. Rising: see which agent. Continue with retryscope sources."),
            ("Repeated events", "short", "duplicates", "instance", "{{instance}}",
             "Dropped, not counted twice. A burst: a log was copied. Continue with retryscope sources."),
            ("Counts taken back", "short", "revisions", "reason", "{{reason}}",
             "Counters never fall; this says by how much they are too high. More than 1 % of the requests: report it. Continue "
             "with retryscope report, which counts anew."),
            ("Folded label values", "short", "folded", "instance", "{{instance}}",
             "Label values over the limits stand in other. Rising: raise max_series. Continue with retryscoped --example-config.")]:
        board.lines(title, unit, text, target(
            f"sum by ({by}) (increase(retryscope_{metric}_total{{{of}}}[$__rate_interval]))", legend))
    board.lines("Rotations and truncations", "short",
                "Files renamed or cut. Cut without a copy in view, lines that were just written may be lost: use rename, or keep the "
                "copy of copytruncate below the root. Continue with retryscope sources.",
                target(f"sum(increase(retryscope_source_rotations_total{{{of}}}[$__rate_interval]))", "rotations"),
                target(f"sum(increase(retryscope_source_truncations_total{{{of}}}[$__rate_interval]))", "truncations"),
                target(f"sum(increase(retryscope_source_truncations_without_copy_total{{{of}}}[$__rate_interval]))",
                       "truncations without a copy"))
    board.lines("Checkpoint failures", "short",
                "Any: the disk of the state directory is full or read-only; a restart would go on from an old state. Continue with "
                "its log: journalctl --user -u retryscoped; retryscope report needs no checkpoint.",
                target(f"sum(increase(retryscope_checkpoint_failures_total{{{of}}}[$__rate_interval]))", "failures"))
    board.lines("Pushed over HTTP", "reqps",
                "What agents pushed, by kind and by what became of it. refused rising: a sender speaks another format or goes over a "
                "limit. Continue with retryscope schema check FILE.",
                target(f"sum by (kind, result) (rate(retryscope_pushed_requests_total{{{of}}}[$__rate_interval]))",
                       "{{kind}} {{result}}"),
                target(f"sum(rate(retryscope_connections_refused_total{{{of}}}[$__rate_interval]))", "refused connections"))
    board.lines("Memory", "bytes",
                "Resident memory. It grows with the runs kept, not with the size of logs; growing for days: report it. Continue with "
                "retryscope report --format prom, which needs no daemon.",
                target(f'sum by (instance) (process_resident_memory_bytes{{job="retryscope",{of}}})', "{{instance}}"))
    board.lines("Open files", "short",
                "Open file handles. Near the limit (ulimit -n): files wait to be read. Continue with retryscope sources.",
                target(f'sum by (instance) (process_open_fds{{job="retryscope",{of}}})', "{{instance}}"))
    board.lines("How changes are noticed", "none",
                "notify: at once; poll: at the next look. poll although notify is wanted: the limit of inotify watches is "
                "reached. Continue with its log: journalctl --user -u retryscoped; retryscope is not affected.",
                target(f"max by (mode) (retryscope_watch_mode{{{of}}})", "{{mode}}"))
    return board


BOARDS = {"provider-health": provider_health, "retry-budget": retry_budget, "runs": runs, "retryscoped": daemon}


def files():
    note = "Written by dashboards/generate.py, which holds thresholds and windows; change them there."
    yield "rules/recording.yaml", yaml_of(
        recording_groups(), [note, "Ratios over requests that were read live and whose log shows every attempt, and the share of "
                                   "requests that this covers."], "15s")
    yield "rules/alerts.yaml", yaml_of(alert_groups(), [note, "Needs recording.yaml."], "15s")
    for name, board in BOARDS.items():
        yield f"grafana/{name}.json", json.dumps(board().json(), indent=1, ensure_ascii=False) + "\n"


def main():
    stale = 0
    for name, text in files():
        path = HERE / name
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text() != text:
                print(f"dashboards/{name} is not as dashboards/generate.py writes it", file=sys.stderr)
                stale = 1
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
