//! `retryscoped`: follows the logs of agents and exports Prometheus metrics about their retries.
//!
//! [`run`] is the main path: every thread and task is made there, in order. One thread follows the files and owns the
//! decoders (`pipeline`); HTTP reads the state they share. Not for: counting (the analysis) or naming metrics (the report).

mod answers;
pub mod args;
mod checkpoint;
mod complain;
pub mod config;
mod count;
mod handles;
mod http;
mod notify_systemd;
mod pipeline;
mod push;
mod received;
mod recent;
mod sources;
mod state;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use tracing::info;

use crate::config::Config;
use crate::state::{NotesEnd, Shared};

/// Runs the daemon until it is told to stop. `listening` is told the address it serves on.
pub fn run(
    config: Config,
    listening: impl FnOnce(std::net::SocketAddr) + Send + 'static,
) -> anyhow::Result<()> {
    config.check()?;
    config.make_state_dir()?;
    let config = Arc::new(config);
    let _lock = checkpoint::lock(&config.state_dir)?;
    let restored = checkpoint::load(&config.state_dir)?;
    let shared = Arc::new(Shared::new(config));
    let stop = Arc::new(AtomicBool::new(false));

    // The pipeline goes on from the checkpoint, reads the history, then follows.
    let follower = std::thread::Builder::new().name("follow".into()).spawn({
        let (shared, stop) = (shared.clone(), stop.clone());
        move || {
            let _end = NotesEnd(shared.clone());
            pipeline::Pipeline::new(shared, restored).run(&stop);
        }
    })?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let served = runtime.block_on(http::serve(shared.clone(), |address| {
        notify_systemd::ready();
        listening(address);
    }));

    // Told to stop: the pipeline saves what it has, and goes.
    stop.store(true, Ordering::SeqCst);
    shared.wake(|_| {});
    if follower.join().is_err() {
        anyhow::bail!("the reading thread panicked");
    }
    runtime.shutdown_background();
    info!("stopped");
    served
}
