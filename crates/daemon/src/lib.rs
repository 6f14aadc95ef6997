//! `retryscoped`: follows the logs of agents and exports Prometheus metrics about their retries.
//!
//! [`run`] is the main path: every thread and task is made there, in order. One thread follows the files and owns the
//! state; HTTP reads it. Not for: counting (the analysis) or naming metrics (the report).

pub mod args;
mod checkpoint;
pub mod config;
mod http;
mod notify_systemd;
mod pipeline;
mod push;
mod state;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use tracing::info;

use crate::config::Config;
use crate::state::Shared;

/// Runs the daemon until it is told to stop. `listening` is told the address it serves on.
pub fn run(
    config: Config,
    listening: impl FnOnce(std::net::SocketAddr) + Send + 'static,
) -> anyhow::Result<()> {
    config.check()?;
    config.make_state_dir()?;
    let config = Arc::new(config);
    let shared = Arc::new(Shared::new(config.clone()));
    let stop = Arc::new(AtomicBool::new(false));

    // The pipeline restores the checkpoint, reads the history, then follows.
    let restored = checkpoint::load(&config.state_dir)?;
    let pipeline = pipeline::Pipeline::new(config.clone(), shared.clone(), restored)?;
    let follower = std::thread::Builder::new().name("follow".into()).spawn({
        let stop = stop.clone();
        move || pipeline.run(&stop)
    })?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let served = runtime.block_on(http::serve(config, shared.clone(), listening));

    // Told to stop: the pipeline reads what is there, saves, and goes.
    stop.store(true, Ordering::SeqCst);
    shared.wake();
    if follower.join().is_err() {
        anyhow::bail!("the reading thread panicked");
    }
    info!("stopped");
    served
}
