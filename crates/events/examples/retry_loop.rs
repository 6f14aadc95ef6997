//! A whole retry loop that writes its events: what an agent's author needs on one page.
//!
//! Run it with `cargo run -p retryscope-events --example retry_loop > events.jsonl`, then read what happened with
//! `retryscope replay events.jsonl`.

use std::error::Error;
use std::io::stdout;
use std::thread::sleep;
use std::time::Duration;

use chrono::Utc;
use retryscope_events::{
    Body, Candidate, Decision, Event, EventWriter, Layer, ModelFailed, ModelRequest, ModelResponse,
    ModelRetry, RunFinished, RunStarted,
};

/// Retries after the first try.
const RETRIES: u64 = 2;

/// Stands for a real call: fails twice, then answers.
fn call_model(attempt: u64) -> Result<&'static str, (u16, &'static str)> {
    if attempt < 3 { Err((503, "The model is overloaded")) } else { Ok("hello") }
}

fn main() -> Result<(), Box<dyn Error>> {
    let run_id = format!("run-{}", Utc::now().timestamp());
    let mut events = EventWriter::new(stdout().lock()).writer("main");
    let event =
        |body: Body| Event::new(run_id.as_str(), Utc::now(), body).agent("example").agent_version("1.0");
    let candidate = Candidate::new("anthropic", "claude-sonnet-4-5");

    events.write(&event(RunStarted::new().candidates(vec![candidate.clone()]).into()))?;
    events.write(&event(ModelRequest::new().request_id("1").candidate(candidate.clone()).into()))?;
    let mut attempt = 1;
    let outcome = loop {
        match call_model(attempt) {
            Ok(_answer) => {
                // The answer itself is never written: events hold no prompts and no model output.
                let response = ModelResponse::new().request_id("1").candidate(candidate).attempts(attempt);
                events.write(&event(response.into()))?;
                break "succeeded";
            }
            Err((status, message)) if attempt > RETRIES => {
                let failed = ModelFailed::new().request_id("1").candidate(candidate).attempts(attempt);
                let failed = failed.status(status).message(message).decision(Decision::ExhaustedAttempts);
                events.write(&event(failed.into()))?;
                break "failed";
            }
            Err((status, message)) => {
                let delay_ms = 100 << (attempt - 1);
                let retry = ModelRetry::new().request_id("1").candidate(candidate.clone()).attempt(attempt);
                let retry = retry.status(status).message(message).delay_ms(delay_ms).layer(Layer::Agent);
                // Written before the wait, so that a run that dies in it still shows why it waited.
                events.write(&event(retry.max_attempts(RETRIES + 1).into()))?;
                sleep(Duration::from_millis(delay_ms));
                attempt += 1;
            }
        }
    };
    events.write(&event(RunFinished::new().outcome(outcome).into()))?;
    Ok(())
}
