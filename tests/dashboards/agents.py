"""Plays agents: writes schema-v1 events of runs that go well, are retried, or die."""

import datetime
import json


def stamp(at):
    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Agents:
    """Runs of two agents, codex at anthropic and opencode at openai, written to one file at the times given."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")
        self.runs = 0
        self.requests = 0

    def write(self, event, at, run, agent, **fields):
        self.file.write(json.dumps({"v": 1, "type": event, "ts": stamp(at), "run_id": run, "agent": agent,
                                    "agent_version": "1.0", **fields}) + "\n")

    def attempt(self, at, run, agent, request, number, provider, model, kind, ok, **fields):
        self.write("model.attempt", at, run, agent, request_id=request, attempt=number, kind=kind, layer="agent",
                   candidate={"provider": provider, "model": model}, started_at=stamp(at - 0.05), ended_at=stamp(at),
                   sent=True, outcome="ok" if ok else "failed", **fields)

    def run(self, at, agent, provider, model, requests=4, down=False, fallback=None, refused=None):
        """One run at one moment. Returns (logical, upstream) requests."""
        self.runs += 1
        run = f"run-{self.runs:05}"
        self.write("run.started", at - 0.3, run, agent, candidates=[{"provider": provider, "model": model}])
        logical = upstream = 0
        for _ in range(requests):
            self.requests += 1
            request = f"r{self.requests}"
            logical += 1
            self.write("model.request", at - 0.2, run, agent, request_id=request, source="foreground",
                       candidate={"provider": provider, "model": model})
            # A calm provider fails one request in 34, which is 3 % of what is sent.
            fails = 5 if down else int(self.requests % 34 == 0)
            if refused:
                self.attempt(at, run, agent, request, 1, provider, model, "original", False, **refused)
                self.write("model.failed", at, run, agent, request_id=request, attempts=1, decision="fail_fast",
                           candidate={"provider": provider, "model": model}, reset_at=stamp(at + 7200), **refused)
                self.write("run.finished", at, run, agent, outcome="failed")
                self.file.flush()
                return logical, 1
            if fallback and down:
                fails = 2
            error = {"status": 529 if provider == "anthropic" else 503, "message": "Overloaded"}
            for number in range(1, fails + 1):
                stated = {"retry_after_ms": 1000} if number % 2 else {}
                self.attempt(at, run, agent, request, number, provider, model, "original" if number == 1 else "retry", False,
                             **error, **stated)
                last = number == fails and down and not fallback
                if not last and not (fallback and number == fails):
                    self.write("model.retry", at, run, agent, request_id=request, attempt=number, max_attempts=5,
                               delay_ms=400 * number, waited_ms=300 if number == 3 else 1050,
                               candidate={"provider": provider, "model": model}, layer="agent", **error, **stated)
            upstream += fails
            if down and not fallback:
                self.write("model.failed", at, run, agent, request_id=request, attempts=fails, decision="exhausted_attempts",
                           candidate={"provider": provider, "model": model}, **error)
                self.write("run.finished", at, run, agent, outcome="failed", terminal_reason="provider_error")
                self.file.flush()
                return logical, upstream
            answered = (provider, model)
            kind = "retry" if fails else "original"
            if fallback and down:
                answered, kind = fallback, "fallback"
                self.write("model.fallback", at, run, agent, request_id=request, kind="model", attempts=fails,
                           **{"from": {"provider": provider, "model": model},
                              "to": {"provider": answered[0], "model": answered[1]}})
            self.attempt(at, run, agent, request, fails + 1, *answered, kind, True)
            upstream += 1
            self.write("model.response", at, run, agent, request_id=request, attempts=fails + 1, elapsed_ms=900,
                       candidate={"provider": answered[0], "model": answered[1]})
        self.write("run.finished", at, run, agent, outcome="succeeded")
        self.file.flush()
        return logical, upstream

    def tick(self, at, down, count):
        """What happens in one moment, calm or in an outage of anthropic."""
        if down and count % 10 == 3:
            self.run(at, "codex", "anthropic", "claude-opus", 1, True, fallback=("openai", "gpt-5"))
        else:
            self.run(at, "codex", "anthropic", "claude-opus", 4, down)
        self.run(at, "opencode", "openai", "gpt-5", 4)
        if down and count % 12 == 5:
            self.run(at, "opencode", "google", "gemini-pro", 1,
                     refused={"status": 429, "code": "insufficient_quota", "class": "exhausted", "reason": "quota",
                              "message": "You exceeded your current quota, please check your plan and billing details."})

    def sleeper(self, at):
        """A run that waits for long."""
        self.write("run.started", at, "run-sleeper", "codex", candidates=[{"provider": "anthropic", "model": "claude-opus"}])
        self.write("model.retry", at, "run-sleeper", "codex", request_id="s1", attempt=1, delay_ms=600_000, layer="agent",
                   status=529, message="Overloaded", candidate={"provider": "anthropic", "model": "claude-opus"})
        self.file.flush()
