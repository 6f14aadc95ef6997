# Events for retryscope from Python, without a library: one line of JSON for each thing that happens.
import json, os, time
from datetime import datetime, timezone

log = os.open("events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
run = {"v": 1, "run_id": f"run-{time.time_ns()}", "agent": "my-agent", "writer": "main"}
def emit(kind, seq, **fields):  # one write() per line, so that lines of several writers never mix
    at = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    os.write(log, (json.dumps({**run, "type": kind, "ts": at, "seq": seq, **fields}) + "\n").encode())

model = {"provider": "anthropic", "model": "claude-sonnet-4-5"}
emit("model.request", 0, request_id="1", candidate=model)
emit("model.retry", 1, request_id="1", candidate=model, attempt=1, max_attempts=3, status=529, message="Overloaded", delay_ms=500)
emit("model.response", 2, request_id="1", candidate=model, attempts=2)
emit("run.finished", 3, outcome="succeeded")
