//! Accepts connections, within limits, until told to stop.
//!
//! A connection over the limit is answered 503 and closed; one that does not send its request head in time is closed. Not
//! for: what is answered (the router).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};

use super::router;
use crate::state::Shared;

/// Most connections at the same time.
const CONNECTIONS: usize = 256;

/// Longest time until the head of a request is there, also on a connection that is kept.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Largest head of a request.
const HEAD_BYTES: usize = 32 << 10;

/// How long answers that are being given may take after a stop signal.
const LEAVE_TIME: Duration = Duration::from_secs(2);

const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 5\r\nconnection: close\r\n\r\n";

/// Serves until a stop signal comes.
pub(crate) async fn serve(shared: Arc<Shared>, listening: impl FnOnce(SocketAddr)) -> anyhow::Result<()> {
    let address = shared.config().listen;
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let mut reload = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    listening(listener.local_addr()?);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let (leave, leaving) = watch::channel(false);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = signals.stop() => break,
            _ = reload.recv() => {
                shared.wake(|woken| woken.reload = true);
                continue;
            }
        };
        let Ok((stream, _)) = accepted else {
            // Out of handles, or a peer that is gone already: others may still be served.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if let Ok(place) = places.clone().try_acquire_owned() {
            let (shared, leaving) = (shared.clone(), leaving.clone());
            tokio::spawn(async move {
                talk(stream, shared, leaving).await;
                drop(place);
            });
        } else {
            shared.refuse_connection();
            tokio::spawn(turn_away(stream));
        }
    }
    leave.send_replace(true);
    // Everyone is gone when all places are free again.
    let all = u32::try_from(CONNECTIONS).unwrap_or(u32::MAX);
    drop(tokio::time::timeout(LEAVE_TIME, places.acquire_many(all)).await);
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn talk(stream: TcpStream, shared: Arc<Shared>, mut leaving: watch::Receiver<bool>) {
    let service = TowerToHyperService::new(router(shared));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_BYTES);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // A peer that breaks off is no news.
        result = &mut connection => drop(result),
        // The sender changes it once, or is gone.
        _ = leaving.changed() => {
            connection.as_mut().graceful_shutdown();
            drop(connection.await);
        }
    }
}

async fn turn_away(mut stream: TcpStream) {
    let write = stream.write_all(BUSY);
    drop(tokio::time::timeout(Duration::from_secs(1), write).await);
}
