"""What the checks of dashboards and rules share: the table of metrics, the queries of the panels, names in expressions."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOARDS = sorted((ROOT / "dashboards" / "grafana").glob("*.json"))


def table():
    """Metrics of crates/report/src/metrics.rs: name to (kind, labels)."""
    text = (ROOT / "crates/report/src/metrics.rs").read_text().split("const fn gauge")[0]
    found = {}
    labels = r"labels: &\[([^\]]*)\]"
    for name, kind, names in re.findall(r'name: "(retryscope_\w+)",.*?kind: Kind::(\w+),\s*' + labels, text, re.S):
        found[name] = (kind.lower(), set(re.findall(r'"(\w+)"', names)))
    for kind, name, names in re.findall(r'\b(gauge|counter)\(\s*"((?:retryscope|process)_\w+)",\s*"(?:[^"\\]|\\.)*",\s*&\[([^\]]*)\]', text, re.S):
        found[name] = (kind, set(re.findall(r'"(\w+)"', names)))
    assert len(found) > 30, "the table of metrics could not be read"
    return found


def series():
    """Names of series, as queries use them: name to (kind, labels)."""
    found = {}
    for name, (kind, labels) in table().items():
        if kind == "histogram":
            found[f"{name}_bucket"] = ("counter", labels | {"le"})
            found[f"{name}_sum"] = found[f"{name}_count"] = ("counter", labels)
        else:
            found[name] = (kind, labels)
    return found


def plain(expr):
    """An expression without texts, so that a name in it is a name."""
    return re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', '""', expr)


def metrics_in(expr):
    return set(re.findall(r"\b[a-z_]*:?retryscope_\w+(?::\w+)?|\bprocess_\w+|\bup\b(?=\{)", plain(expr)))


RUN_METRICS = {name for name, (_, labels) in series().items()
               if name.startswith(tuple("retryscope_" + part for part in (
                   "logical_requests", "upstream_requests", "retries", "request_outcomes", "attempt_failures", "fallbacks",
                   "attempts_per_request", "retry_delay", "retry_after", "waiting_seconds", "run_outcomes")))}


def queries():
    """Every query of every panel."""
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield {"board": path.stem, "title": panel["title"], "where": f"{path.stem}/{panel['title']}/{target['refId']}",
                       "expr": target["expr"], "legend": target["legendFormat"], "instant": target["instant"]}
