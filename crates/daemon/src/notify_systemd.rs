//! Tells systemd how it goes: READY, WATCHDOG, STOPPING. Nothing happens where no service manager asks for it.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

fn tell(text: &str) {
    let Ok(socket) = std::env::var("NOTIFY_SOCKET") else { return };
    // A service manager that is gone changes nothing about the work.
    if let Ok(sender) = UnixDatagram::unbound() {
        match socket.strip_prefix('@') {
            Some(name) => tell_abstract(&sender, name, text),
            None => drop(sender.send_to(text.as_bytes(), &socket)),
        }
    }
}

/// Abstract sockets and systemd are both Linux alone.
#[cfg(target_os = "linux")]
fn tell_abstract(sender: &UnixDatagram, name: &str, text: &str) {
    use std::os::linux::net::SocketAddrExt as _;
    if let Ok(address) = std::os::unix::net::SocketAddr::from_abstract_name(name) {
        drop(sender.send_to_addr(text.as_bytes(), &address));
    }
}

#[cfg(not(target_os = "linux"))]
fn tell_abstract(_: &UnixDatagram, _: &str, _: &str) {}

/// Says that the service answers, although it may still read its backlog.
pub(crate) fn ready() {
    tell("READY=1");
}

/// Says in words what is being done.
pub(crate) fn status(text: &str) {
    tell(&format!("STATUS={text}"));
}

pub(crate) fn reloading_done() {
    tell("READY=1");
}

pub(crate) fn stopping() {
    tell("STOPPING=1");
}

/// Signs of life at half the interval that the service manager asks for.
#[derive(Debug)]
pub(crate) struct Watchdog {
    every: Option<Duration>,
    told: Instant,
}

impl Watchdog {
    /// Returns a watchdog for the interval in the environment, if any.
    pub(crate) fn from_environment() -> Self {
        let micros = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse::<u64>().ok());
        Self { every: micros.map(|micros| Duration::from_micros(micros / 2)), told: Instant::now() }
    }

    /// Returns how often a sign of life is due; `None` where nobody asks.
    pub(crate) fn every(&self) -> Option<Duration> {
        self.every
    }

    /// Gives a sign of life if one is due.
    pub(crate) fn beat(&mut self) {
        if self.every.is_some_and(|every| self.told.elapsed() >= every / 2) {
            self.told = Instant::now();
            tell("WATCHDOG=1");
        }
    }
}
