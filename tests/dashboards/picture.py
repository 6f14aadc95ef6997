"""Draws panels from query results: a static page of SVG, photographed by a headless Chromium."""

import html
import pathlib
import re
import shutil
import subprocess
import tempfile

PANELS = [("Success by provider", "%"), ("Retry ratio against the budget", "%"), ("Requests by outcome", "/s"),
          ("Turns ended by failure", ""), ("Failed attempts by reason", "/s"), ("Upstream requests by kind", "/s")]
STACKED = {"Requests by outcome", "Upstream requests by kind", "Turns ended by failure"}
THRESHOLD = {"Retry ratio against the budget": 0.10}
MARKED = {"Success by provider": "ModelRequestsFailing", "Retry ratio against the budget": "RetryRatioHigh"}
NAMES = {"Retry ratio against the budget": "Retry ratio (alert above 10 %)"}
# By what a series says, so that one colour means one thing in all panels.
COLOURS = [("ok_first_try|original", "#73bf69"), ("ok_after_fallback|fallback", "#5794f2"), ("ok_after|^retry", "#f2cc0c"),
           ("failed_after", "#e02f44"), ("failed_no", "#8f3bb8"), ("^limit", "#ff780a"), ("google", "#8f3bb8"),
           ("anthropic", "#e02f44"), ("openai", "#73bf69"), ("", "#8ab8ff")]
WIDTH, HEIGHT, LEFT, BOTTOM = 392, 150, 40, 18


def colour(name):
    return next(value for pattern, value in COLOURS if re.search(pattern, name))


def number(value, unit):
    if unit == "%":
        return f"{value * 100:.0f} %"
    return f"{value:.0f}{unit}" if value >= 10 or value == int(value) else f"{value:.1f}{unit}"


def panel(title, unit, lines, begun, finished, speed, marks):
    lines = [(name, [(t, v) for t, v in points if v == v]) for name, points in lines]
    lines = [(name, points) for name, points in lines if points and name != "limit" and max(v for _, v in points) > 0]
    lines.sort(key=lambda line: [pattern for pattern, _ in COLOURS].index(
        next(p for p, _ in COLOURS if re.search(p, line[0]))))
    if title in STACKED:
        below, layers = {}, []
        for name, points in lines:
            top = [(t, below.get(t, 0) + v) for t, v in points]
            layers.append((name, points, [(t, below.get(t, 0)) for t, _ in points], top))
            below.update(top)
        highest = max(below.values(), default=1)
    else:
        layers = [(name, points, None, points) for name, points in lines]
        highest = max((v for _, points in lines for _, v in points), default=1)
    highest = 1.0 if unit == "%" else (highest * 1.1 or 1)

    def x(t):
        return LEFT + (t - begun) / (finished - begun) * (WIDTH - LEFT - 6)

    def y(v):
        return 6 + (1 - v / highest) * (HEIGHT - BOTTOM - 6)
    out = []
    for part in [0, 0.5, 1]:
        at = y(highest * part)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 6}" y1="{at:.1f}" y2="{at:.1f}" stroke="#2c3235"/>'
                   f'<text x="{LEFT - 5}" y="{at + 3.5:.1f}" text-anchor="end">{number(highest * part, unit)}</text>')
    minutes = int((finished - begun) * speed / 60)
    for minute in range(0, minutes + 1, 10):
        at = x(begun + minute * 60 / speed)
        anchor = "end" if at > WIDTH - 30 else "middle"
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - 4}" text-anchor="{anchor}">{minute} min</text>')
    for name, _, bottom, top in layers:
        path = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in top)
        if bottom:
            back = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in reversed(bottom))
            out.append(f'<polygon points="{path} {back}" fill="{colour(name)}" fill-opacity="0.45"/>')
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour(name)}" stroke-width="1.6"/>')
    if title in THRESHOLD:
        at = y(THRESHOLD[title])
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 6}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ff780a" stroke-dasharray="5 4"/>')
    for name, when in marks:
        if MARKED.get(title) == name:
            at = x(when)
            out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="6" y2="{HEIGHT - BOTTOM}" stroke="#ff7383" stroke-dasharray="2 3"/>'
                       f'<text x="{at + 5:.1f}" y="{HEIGHT / 2 + 14:.0f}" class="mark">{name} fires</text>')
    legend = "".join(f'<span><i style="background:{colour(name)}"></i>{html.escape(name)}</span>' for name, *_ in layers)
    return (f'<section><h2>{html.escape(NAMES.get(title, title))}</h2><svg width="{WIDTH}" height="{HEIGHT}">{"".join(out)}</svg>'
            f"<p>{legend}</p></section>")


def draw(found, begun, finished, speed, marks, path):
    panels = "".join(panel(title, unit, found.get(title, []), begun, finished, speed, marks) for title, unit in PANELS)
    page = f"""<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 10px; width: 1260px; background: #111217; color: #ccccdc; font: 12px "DejaVu Sans", sans-serif;
  display: grid; grid-template-columns: repeat(3, 1fr); gap: 8px; box-sizing: border-box }}
section {{ background: #181b1f; border: 1px solid #2c3235; border-radius: 3px; padding: 8px }}
h2 {{ font-size: 13px; font-weight: 600; margin: 0 0 6px }} svg {{ display: block }} svg text {{ fill: #9a9aa5; font-size: 10px }}
svg .mark {{ fill: #ff7383; stroke: #181b1f; stroke-width: 4px; paint-order: stroke }}
p {{ margin: 6px 0 0; min-height: 14px; font-size: 10.5px }} span {{ margin-right: 12px; white-space: nowrap }}
i {{ display: inline-block; width: 12px; height: 3px; margin-right: 5px; vertical-align: middle }}
</style>{panels}"""
    with tempfile.TemporaryDirectory() as where:
        source = pathlib.Path(where) / "page.html"
        source.write_text(page, encoding="utf-8")
        command = [shutil.which("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   f"--user-data-dir={where}/profile", "--window-size=1260,470", f"--screenshot={path.resolve()}", source.as_uri()]
        subprocess.run(command, check=True, timeout=90, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
