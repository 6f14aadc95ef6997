// Events for retryscope from TypeScript, without a library: one line of JSON for each thing that happens.
import { appendFileSync } from "node:fs";

const run = { v: 1, run_id: `run-${Date.now()}`, agent: "my-agent", writer: "main" };
function emit(type: string, seq: number, fields: Record<string, unknown>): void {
  const ts: string = new Date().toISOString();
  appendFileSync("events.jsonl", JSON.stringify({ ...run, type, ts, seq, ...fields }) + "\n");
}

const model = { provider: "anthropic", model: "claude-sonnet-4-5" };
emit("model.request", 0, { request_id: "1", candidate: model });
emit("model.retry", 1, { request_id: "1", candidate: model, attempt: 1, max_attempts: 3, status: 529, message: "Overloaded", delay_ms: 500 });
emit("model.response", 2, { request_id: "1", candidate: model, attempts: 2 });
emit("run.finished", 3, { outcome: "succeeded" });
