#!/usr/bin/env python3
"""Checks dashboards and rules without running anything but promtool.

Every expression parses and uses only metrics and labels that exist; rate and increase stand on counters, with
$__rate_interval in panels; panels have titles, units and descriptions that name a command; alerts have what the runbook and
the routing need; generated files are as generated; the Grafana SDK takes the dashboards.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

from boards import BOARDS, ROOT, metrics_in, plain, queries, series

DASHBOARDS = ROOT / "dashboards"
TARGET_LABELS = {"job", "instance"}
PROBLEMS = []
COMMANDS = {"replay", "runs", "report", "audit", "classify", "policy", "sources", "schema"}


def problem(where, text):
    PROBLEMS.append(f"{where}: {text}")


def rules():
    """(file, kind, name, block of text, expr) of every rule; the files have one form, as the generator writes them."""
    for path in sorted((DASHBOARDS / "rules").glob("*.yaml")):
        for block in re.split(r"^      - (?=record:|alert:)", path.read_text(), flags=re.M)[1:]:
            kind, name = re.match(r"(record|alert): (\S+)", block).groups()
            expr = re.search(r"expr: \|\n((?: {10}.*\n)+)", block)
            yield path.name, kind, name, block, re.sub(r"^ {10}", "", expr[1], flags=re.M).strip()


def known_series():
    known = {**series(), "up": ("gauge", set())}
    for file, kind, name, _, expr in rules():
        if kind == "record" and ":retryscope" in name and file != "optional.yaml":
            last = re.findall(r"\bby \(([^)]*)\)", plain(expr))
            known[name] = ("gauge", {label.strip() for label in last[0].split(",") if label.strip()} if last else set())
    return known


def expression(where, expr, known, is_panel):
    bare = plain(expr)
    used = metrics_in(expr)
    if not used:
        problem(where, "uses no metric")
    labels = set()
    for name in used:
        if name not in known:
            problem(where, f"no such metric: {name}")
            continue
        own = known[name][1] | TARGET_LABELS
        labels |= own
        for braces in re.findall(rf"(?<![\w:]){re.escape(name)}\{{((?:[^\}}\"']|\"[^\"]*\"|'[^']*')*)\}}", expr):
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", plain(braces)):
                if label not in own:
                    problem(where, f"{name} has no label {label}")
    for names in re.findall(r"\b(?:by|on|group_left|group_right|ignoring) ?\(([^)]*)\)", bare):
        for label in filter(None, (part.strip() for part in names.split(","))):
            if label not in labels:
                problem(where, f"no metric here has the label {label}")
    for function, name, window in re.findall(r"\b(rate|increase|irate)\(([\w:]+)(?:\{[^}]*\})?\[([^\]]+)\]", bare):
        if known.get(name, ("counter",))[0] != "counter":
            problem(where, f"{function} on {name}, which is a {known[name][0]}")
        if is_panel and window not in ("$__rate_interval", "$__range"):
            problem(where, f"{function} over [{window}] and not $__rate_interval")
    for name in used:
        if is_panel and known.get(name, ("",))[0] == "counter" and not re.search(
                rf"(rate|increase)\({re.escape(name)}\b", bare):
            problem(where, f"shows the counter {name} itself")


def panels():
    for path in BOARDS:
        board = json.loads(path.read_text())
        names = {one["name"] for one in board["templating"]["list"]}
        if board["templating"]["list"][0]["type"] != "datasource":
            problem(path.stem, "the first variable is not the data source")
        ids = [panel["id"] for panel in board["panels"]]
        if len(ids) != len(set(ids)):
            problem(path.stem, "two panels have one id")
        taken = set()
        for panel in board["panels"]:
            where = f"{path.stem}/{panel['title']}"
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            if cells & taken or place["x"] + place["w"] > 24:
                problem(where, "lies over another panel or outside")
            taken |= cells
            if panel["type"] == "row":
                continue
            if not panel["title"] or not panel["fieldConfig"]["defaults"].get("unit"):
                problem(where, "no title or unit")
            text = panel.get("description", "")
            commands = set(re.findall(r"retryscope (\w+)", text))
            if len(text) < 60 or not (commands & COMMANDS or "retryscope, whose" in text or "retryscoped --" in text
                                      or "retryscope --version" in text or "retryscope is not" in text
                                      or "retryscope works" in text):
                problem(where, "the description does not say which command continues")
            unknown = commands - COMMANDS - {"works", "is", "needs"}
            if unknown:
                problem(where, f"no such command: retryscope {sorted(unknown)}")
            if panel["datasource"]["uid"] != "${datasource}":
                problem(where, "does not use the data source variable")
            for target in panel["targets"]:
                for name in re.findall(r"\$\{?([a-z]\w*)", target["expr"]):
                    if name not in names and not name.startswith("__"):
                        problem(where, f"no such variable: {name}")


def alerts():
    runbook = (DASHBOARDS / "runbooks.md").read_text()
    headings = {re.sub(r"[^\w -]", "", line.strip("# \n")).strip().lower().replace(" ", "-")
                for line in runbook.splitlines() if line.startswith("#")}
    allowed = {"severity": {"page", "warning", "ticket"}, "team": {"platform", "account", "key"}}
    for file, kind, name, block, _ in rules():
        if kind != "alert":
            continue
        for label, values in allowed.items():
            found = re.search(rf'{label}: "(\w+)"', block)
            if not found or found[1] not in values:
                problem(name, f"{label} is not one of {sorted(values)}")
        for part in ["summary", "description", "runbook_url"]:
            if not re.search(rf"^ +{part}: \S", block, re.M):
                problem(name, f"{file}: no {part}")
        url = re.search(r'runbook_url: "([^"]+)"', block)
        if url and url[1].partition("#")[2] not in headings:
            problem(name, f"dashboards/runbooks.md has no heading for {url[1]}")


def parse_all():
    """promtool parses every panel query, as the expression of a rule."""
    out = ["groups: [{name: panels, rules: ["]
    for index, one in enumerate(queries()):
        expr = one["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
        expr = re.sub(r"\$\{?(provider|model|agent|instance)\}?", ".*", expr)
        out.append(json.dumps({"record": f"panel:query:{index}", "expr": expr}) + ",")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write("\n".join(out + ["]}]"]))
        file.flush()
        checked = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True, timeout=60)
    if checked.returncode:
        problem("panels", checked.stdout + checked.stderr)
    files = sorted(str(path) for path in (DASHBOARDS / "rules").glob("*.yaml"))
    checked = subprocess.run(["promtool", "check", "rules", "--lint-fatal", *files], capture_output=True, text=True, timeout=60)
    if checked.returncode:
        problem("rules", checked.stdout + checked.stderr)


def routes():
    """Alertmanager sends every alert where its labels say."""
    config = DASHBOARDS / "alertmanager.yml"
    for _, kind, name, block, _ in rules():
        if kind != "alert":
            continue
        severity, team = (re.search(rf'{label}: "(\w+)"', block)[1] for label in ["severity", "team"])
        wanted = {"page": "page", "ticket": "tickets"}.get(severity, team)
        sent = subprocess.run(["amtool", "config", "routes", "test", f"--config.file={config}", f"severity={severity}",
                               f"team={team}", f"alertname={name}"], capture_output=True, text=True, timeout=60)
        if sent.stdout.strip() != wanted:
            problem(name, f"goes to {sent.stdout.strip() or sent.stderr.strip()}, not to {wanted}")


def grafana_sdk():
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard
    for path in BOARDS:
        board = json.loads(path.read_text())
        back = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
        if [panel.get("title") for panel in back["panels"]] != [panel["title"] for panel in board["panels"]]:
            problem(path.stem, "the Grafana SDK reads other panels")


def main():
    fresh = subprocess.run([sys.executable, DASHBOARDS / "generate.py", "--check"], capture_output=True, text=True, timeout=60)
    if fresh.returncode:
        problem("generated files", fresh.stderr.strip())
    known = known_series()
    for file, _, name, _, expr in rules():
        if file != "optional.yaml":  # metrics of other programs
            expression(f"{file}/{name}", expr, known, is_panel=False)
    count = 0
    for one in queries():
        expression(one["where"], one["expr"], known, is_panel=True)
        count += 1
    panels()
    alerts()
    parse_all()
    routes()
    if "--without-sdk" not in sys.argv[1:]:
        grafana_sdk()
    for text in PROBLEMS:
        print(text, file=sys.stderr)
    print(f"{len(BOARDS)} dashboards, {count} panel queries, {len(list(rules()))} rules: {len(PROBLEMS)} problems")
    return 1 if PROBLEMS else 0


if __name__ == "__main__":
    sys.exit(main())
