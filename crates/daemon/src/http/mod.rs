//! The HTTP side: metrics, health, the read-only API, and what is pushed.
//!
//! `GET /metrics`, `/-/healthy`, `/-/ready`, `/api/v1/runs`, `/api/v1/runs/{id}`, `/api/v1/budget`;
//! `POST /v1/logs`, `/v1/traces` (OTLP), `/v1/events` (schema v1). Off loopback everything but `/metrics` and health needs
//! the token; the `Host` header must name this server (against DNS rebinding).

mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use retryscope_scan::choose::Unchosen;
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) use self::server::serve;
use crate::push::{self, Refused, Room};
use crate::state::Shared;

/// Longest time a request may take, its body included.
const REQUEST_TIME: Duration = Duration::from_secs(30);

type Handle = State<Arc<Shared>>;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let guarded = Router::new()
        .route("/api/v1/runs", get(runs))
        .route("/api/v1/runs/{id}", get(run))
        .route("/api/v1/budget", get(budget))
        .route("/v1/logs", post(logs))
        .route("/v1/traces", post(traces))
        .route("/v1/events", post(events))
        .layer(middleware::from_fn_with_state(shared.clone(), needs_token));
    Router::new()
        .route("/metrics", get(metrics))
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .merge(guarded)
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "nothing is served here") })
        .layer(middleware::from_fn_with_state(shared.clone(), checks_host))
        .layer(middleware::from_fn(in_time))
        .with_state(shared)
}

async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIME, next.run(request)).await {
        Ok(response) => response,
        Err(_) => problem(StatusCode::REQUEST_TIMEOUT, "the request took too long"),
    }
}

async fn checks_host(State(shared): Handle, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host
        .rsplit_once(':')
        .map_or(host, |(name, port)| if port.chars().all(|c| c.is_ascii_digit()) { name } else { host });
    let config = shared.config();
    let known = name == "localhost"
        || name == "127.0.0.1"
        || name == "[::1]"
        || name == config.listen.ip().to_string()
        || config.hosts.iter().any(|known| known == name);
    if known {
        next.run(request).await
    } else {
        problem(
            StatusCode::MISDIRECTED_REQUEST,
            "this host name is not served here; see `hosts` in the configuration",
        )
    }
}

async fn needs_token(State(shared): Handle, request: Request, next: Next) -> Response {
    let Some(token) = shared.config().token.clone() else { return next.run(request).await };
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    if same(given.as_bytes(), token.as_bytes()) {
        next.run(request).await
    } else {
        problem(StatusCode::UNAUTHORIZED, "a token is needed: Authorization: Bearer ...")
    }
}

/// Compares without telling by its time how much was right.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

/// Runs something that locks the state away from the server's own threads.
async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(f).await.ok()
}

async fn metrics(State(shared): Handle) -> Response {
    match blocking(move || shared.metrics()).await {
        Some(text) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        None => problem(StatusCode::INTERNAL_SERVER_ERROR, "cannot give the metrics"),
    }
}

/// Asks no lock: a reader that hangs may hold it.
async fn healthy(State(shared): Handle) -> Response {
    match shared.reader.trouble(Instant::now()) {
        None => "healthy\n".into_response(),
        Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n")).into_response(),
    }
}

async fn ready(State(shared): Handle) -> Response {
    match blocking(move || shared.look().ready).await {
        Some(true) => "ready\n".into_response(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "reading the backlog\n").into_response(),
    }
}

async fn runs(State(shared): Handle) -> Response {
    match blocking(move || shared.runs()).await {
        Some(runs) => answer(&runs),
        None => problem(StatusCode::INTERNAL_SERVER_ERROR, "cannot list the runs"),
    }
}

async fn run(State(shared): Handle, Path(id): Path<String>) -> Response {
    match blocking(move || shared.run(&id)).await {
        Some(Ok(run)) => answer(&run),
        Some(Err(Unchosen::None { .. })) => problem(StatusCode::NOT_FOUND, "no such run"),
        Some(Err(Unchosen::Several(keys))) => {
            let names: Vec<String> = keys.iter().map(|key| format!("{}:{}", key.agent, key.id)).collect();
            let body = json!({"error": "the name fits several runs", "candidates": names});
            (StatusCode::CONFLICT, [(header::CONTENT_TYPE, "application/json")], body.to_string())
                .into_response()
        }
        None => problem(StatusCode::INTERNAL_SERVER_ERROR, "cannot give the run"),
    }
}

/// What a client asks about before a retry.
#[derive(Debug, Default, Deserialize)]
struct Asked {
    provider: Option<String>,
    agent: Option<String>,
    account: Option<String>,
}

/// Advice only: a client that cannot ask retries as it would have.
async fn budget(State(shared): Handle, Query(asked): Query<Asked>) -> Response {
    let Some(states) = blocking(move || shared.budgets()).await else {
        return problem(StatusCode::INTERNAL_SERVER_ERROR, "cannot tell the budget");
    };
    let concerns = |kind: &str, name: &str| match kind {
        "global" => true,
        "provider" => asked.provider.as_deref() == Some(name),
        "agent" => asked.agent.as_deref() == Some(name),
        "account" => asked.account.as_deref() == Some(name),
        _ => false,
    };
    let spent: Vec<String> = states
        .iter()
        .filter(|s| concerns(&s.scope.kind, &s.scope.name) && !s.allows_retry)
        .map(|s| {
            let name = if s.scope.name.is_empty() { String::new() } else { format!(" {}", s.scope.name) };
            format!(
                "{}{name}: {} retries among {} requests in {}",
                s.scope.kind, s.retries, s.upstream, s.window
            )
        })
        .collect();
    let reason = if spent.is_empty() {
        "within every budget".to_owned()
    } else {
        format!("over budget: {}", spent.join("; "))
    };
    answer(&json!({
        "schema": "retryscope.budget/1",
        "retry_allowed": spent.is_empty(),
        "reason": reason,
        "budgets": states,
    }))
}

async fn logs(state: Handle, headers: HeaderMap, body: Body) -> Response {
    pushed(state, push::Kind::Logs, headers, body).await
}

async fn traces(state: Handle, headers: HeaderMap, body: Body) -> Response {
    pushed(state, push::Kind::Traces, headers, body).await
}

async fn events(state: Handle, headers: HeaderMap, body: Body) -> Response {
    pushed(state, push::Kind::Events, headers, body).await
}

async fn pushed(State(shared): Handle, kind: push::Kind, headers: HeaderMap, body: Body) -> Response {
    let text = |name: header::HeaderName| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let (content_type, encoding) = (text(header::CONTENT_TYPE), text(header::CONTENT_ENCODING));
    let protobuf = content_type.as_deref().is_some_and(|kind| kind.starts_with("application/x-protobuf"));
    let body = Room::receive(body).await;
    let taken =
        blocking(move || push::take(&shared, kind, content_type.as_deref(), encoding.as_deref(), body)).await;
    match taken {
        // The answer has the form of the question; an empty message says that all of it was taken.
        Some(Ok(())) if protobuf => {
            ([(header::CONTENT_TYPE, "application/x-protobuf")], Bytes::new()).into_response()
        }
        Some(Ok(())) => answer(&json!({})),
        Some(Err(Refused { status, message })) => {
            let mut response =
                problem(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), &message);
            if status == 429 {
                response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
            }
            response
        }
        None => problem(StatusCode::INTERNAL_SERVER_ERROR, "cannot take the data"),
    }
}

fn answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

fn problem(status: StatusCode, message: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], json!({"error": message}).to_string())
        .into_response()
}
