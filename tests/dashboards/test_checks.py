#!/usr/bin/env python3
"""The checks of dashboards and rules notice what they are for: each mistake put in on purpose is named."""

import check

MISTAKES = [
    ("no such metric", "sum(rate(retryscope_retries[$__rate_interval]))"),
    ("no such metric", "sum(retryscope_retry_budget_used)"),
    ("has no label kind", 'sum(rate(retryscope_retries_total{kind="retry"}[$__rate_interval]))'),
    ("no metric here has the label model", "sum by (model) (rate(retryscope_retry_after_total[$__rate_interval]))"),
    ("which is a gauge", "sum(rate(retryscope_runs_active[$__rate_interval]))"),
    ("and not $__rate_interval", "sum(rate(retryscope_retries_total[5m]))"),
    ("shows the counter", "sum(retryscope_retries_total)"),
    ("uses no metric", "vector(1)"),
]
GOOD = 'sum by (agent) (rate(retryscope_retries_total{provider=~"$provider"}[$__rate_interval]))'


def main():
    known = check.known_series()
    for wanted, expr in MISTAKES:
        check.PROBLEMS.clear()
        check.expression("here", expr, known, is_panel=True)
        assert any(wanted in text for text in check.PROBLEMS), f"`{expr}` gives {check.PROBLEMS}, not `{wanted}`"
    check.PROBLEMS.clear()
    check.expression("here", GOOD, known, is_panel=True)
    assert not check.PROBLEMS, check.PROBLEMS
    print(f"{len(MISTAKES)} mistakes are noticed")


if __name__ == "__main__":
    main()
