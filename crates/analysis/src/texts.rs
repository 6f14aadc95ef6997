//! Every text that a run holds, and what kind of thing it names, so that a face can replace what it must not show.
//!
//! What the analysis keeps is taken apart part by part: one that is added has to be named here. Not for: the policy that a run recorded,
//! which is a document of its own.

use std::sync::Arc;

use retryscope_events::{BudgetDenied, Candidate, PermissionDenied, ToolAttempt};
use retryscope_record::{Facts, RunKey};
use serde_json::Value;

use crate::judge::Classified;
use crate::run::{Attempt, Cause, Declared, LogicalRequest, Run, Told, Turn};
use crate::tools::{Entry, What};

/// What a text names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Names {
    /// A run, a turn, a request, an attempt or a call; also a keyed hash.
    Id,
    /// An agent program.
    Agent,
    /// A version of it.
    Version,
    /// A provider.
    Provider,
    /// A model.
    Model,
    /// A host, or an address that begins with a scheme.
    Endpoint,
    /// A region of an endpoint.
    Region,
    /// An account.
    Account,
    /// A class of data.
    DataClass,
    /// A working directory.
    Directory,
    /// One thing of a few that have names, such as a transport or a purpose; a log may say any.
    Kind,
    /// Nothing in particular: a message, a setting.
    Free,
}

type Change<'a> = dyn FnMut(Names, &mut String) + 'a;

impl Run {
    /// Shows each text of the run to `change`, which may replace it; the recorded policy is left out.
    pub fn each_text(&mut self, change: &mut Change<'_>) {
        let Run {
            key: RunKey { agent, id },
            facts,
            declared: Declared { candidates, policy: _, policy_unread: _, workload, data_class },
            started_at: _,
            ended_at: _,
            outcome: _,
            turns,
            counts: _,
            background_counts: _,
            time: _,
            sources: _,
            views: _,
            blind_spots,
            ledger,
            settings,
        } = self;
        shared(agent, Names::Agent, change);
        shared(id, Names::Id, change);
        of_facts(facts, change);
        for candidate in candidates.iter_mut() {
            of_candidate(candidate, change);
        }
        one(workload, Names::Kind, change);
        one(data_class, Names::DataClass, change);
        for turn in turns.iter_mut() {
            of_turn(turn, change);
        }
        for text in blind_spots.iter_mut() {
            change(Names::Free, text);
        }
        for entry in ledger.iter_mut() {
            of_entry(entry, change);
        }
        for (key, value) in settings {
            change(Names::Free, key);
            change(Names::Free, value);
        }
    }
}

fn one(text: &mut Option<String>, names: Names, change: &mut Change<'_>) {
    if let Some(text) = text {
        change(names, text);
    }
}

fn shared(text: &mut Arc<str>, names: Names, change: &mut Change<'_>) {
    let mut changed = text.to_string();
    change(names, &mut changed);
    if **text != *changed {
        *text = changed.into();
    }
}

fn of_facts(facts: &mut Facts, change: &mut Change<'_>) {
    let Facts {
        agent_version,
        parent_run_id,
        parent_call_id,
        forked_from,
        provider,
        model,
        api,
        policy_version,
        started_at: _,
        directory,
    } = facts;
    one(agent_version, Names::Version, change);
    for id in [parent_run_id, parent_call_id, forked_from] {
        one(id, Names::Id, change);
    }
    one(provider, Names::Provider, change);
    one(model, Names::Model, change);
    one(api, Names::Free, change);
    one(policy_version, Names::Version, change);
    one(directory, Names::Directory, change);
}

fn of_candidate(candidate: &mut Candidate, change: &mut Change<'_>) {
    let Candidate { provider, model, alias, endpoint, region, account, transport } = candidate;
    one(provider, Names::Provider, change);
    one(model, Names::Model, change);
    one(alias, Names::Model, change);
    one(endpoint, Names::Endpoint, change);
    one(region, Names::Region, change);
    one(account, Names::Account, change);
    one(transport, Names::Kind, change);
}

fn of_turn(turn: &mut Turn, change: &mut Change<'_>) {
    let Turn {
        number: _,
        key,
        started_at: _,
        ended_at: _,
        outcome: _,
        terminal_reason,
        error,
        cause,
        counts: _,
        background_counts: _,
        time: _,
        requests,
        end_origin: _,
    } = turn;
    one(key, Names::Id, change);
    one(terminal_reason, Names::Free, change);
    one(error, Names::Free, change);
    if let Some(Cause { failure, candidate, request: _, evidence: _ }) = cause {
        of_failure(failure, change);
        of_candidate(Arc::make_mut(candidate), change);
    }
    for request in requests.iter_mut() {
        of_request(request, change);
    }
}

fn of_request(request: &mut LogicalRequest, change: &mut Change<'_>) {
    let LogicalRequest {
        id,
        step: _,
        source: _,
        purpose,
        outcome: _,
        upstream: _,
        retries: _,
        fallbacks: _,
        opened_at: _,
        candidate,
        attempts,
        shows_attempts: _,
        usage: _,
        requested_model,
        stop_reason,
        decision: _,
        origin: _,
    } = request;
    change(Names::Id, id);
    one(purpose, Names::Kind, change);
    of_candidate(Arc::make_mut(candidate), change);
    one(requested_model, Names::Model, change);
    one(stop_reason, Names::Free, change);
    for attempt in attempts.iter_mut() {
        of_attempt(attempt, change);
    }
}

fn of_attempt(attempt: &mut Attempt, change: &mut Change<'_>) {
    let Attempt {
        id,
        candidate,
        kind: _,
        layer: _,
        outcome: _,
        started_at: _,
        ended_at: _,
        failure,
        delay_ms: _,
        waited_ms: _,
        delay_source: _,
        max_attempts: _,
        changed,
        output_started: _,
        output_discarded: _,
        reached: _,
        sends: _,
        sends_told: _,
        api,
        evidence: _,
        origin: _,
        usage: _,
        told: Told { error_source: _, terminal_event, idle_ms: _, parent, kind: _ },
    } = attempt;
    one(id, Names::Id, change);
    of_candidate(Arc::make_mut(candidate), change);
    if let Some(failure) = failure {
        of_failure(failure, change);
    }
    for part in changed.iter_mut() {
        change(Names::Kind, part);
    }
    if let Some(api) = api {
        shared(api, Names::Free, change);
    }
    one(terminal_event, Names::Free, change);
    if let Some(id) = parent {
        let mut changed = id.to_string();
        change(Names::Id, &mut changed);
        *id = changed.into();
    }
}

fn of_failure(failure: &mut Classified, change: &mut Change<'_>) {
    let Classified {
        class: _,
        reason: _,
        retryable: _,
        status: _,
        code,
        message,
        retry_after_ms: _,
        reset_at: _,
        reset_clock: _,
        upstream_request_id,
        rule: _,
    } = failure;
    one(code, Names::Free, change);
    one(message, Names::Free, change);
    one(upstream_request_id, Names::Id, change);
}

fn of_entry(entry: &mut Entry, change: &mut Change<'_>) {
    match &mut entry.what {
        What::Attempt(attempt) => of_execution(attempt, change),
        What::Denied(PermissionDenied { call_id, tool, input_hash, action_key, .. }) => {
            for id in [call_id, input_hash, action_key] {
                one(id, Names::Id, change);
            }
            one(tool, Names::Free, change);
        }
        What::BudgetSpent(BudgetDenied { kind, scope, limit: _, used: _, remaining: _, .. }) => {
            one(kind, Names::Kind, change);
            one(scope, Names::Free, change);
        }
        What::Cancelled | What::Asked { .. } | What::Activity | What::Ended => {}
    }
}

fn of_execution(attempt: &mut ToolAttempt, change: &mut Change<'_>) {
    let ToolAttempt {
        call_id,
        tool,
        input_hash,
        action_key,
        effect,
        attempt: _,
        max_attempts: _,
        started_at: _,
        ended_at: _,
        status: _,
        error_code,
        idempotency,
        idempotency_key,
        replay_policy,
        replay_check,
        approved: _,
        retry_after_ms: _,
        delay_before_next_ms: _,
        ..
    } = attempt;
    for id in [call_id, input_hash, action_key, idempotency_key] {
        one(id, Names::Id, change);
    }
    for text in [tool, error_code] {
        one(text, Names::Free, change);
    }
    for kind in [effect, idempotency, replay_policy] {
        one(kind, Names::Kind, change);
    }
    if let Some(check) = replay_check {
        of_value(check, change);
    }
}

/// No deeper than a line of a log may be.
fn of_value(value: &mut Value, change: &mut Change<'_>) {
    match value {
        Value::String(text) => change(Names::Free, text),
        Value::Array(items) => items.iter_mut().for_each(|item| of_value(item, change)),
        Value::Object(members) => members.values_mut().for_each(|member| of_value(member, change)),
        _ => {}
    }
}
