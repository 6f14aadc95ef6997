//! Tells systemd how it goes: READY, WATCHDOG, STOPPING. Nothing happens where no service manager asks for it.

use std::os::unix::net::UnixDatagram;

fn tell(text: &str) {
    let Ok(socket) = std::env::var("NOTIFY_SOCKET") else { return };
    // A service manager that is gone changes nothing about the work.
    if let Ok(sender) = UnixDatagram::unbound() {
        if let Some(name) = socket.strip_prefix('@') {
            use std::os::linux::net::SocketAddrExt as _;
            if let Ok(address) = std::os::unix::net::SocketAddr::from_abstract_name(name) {
                drop(sender.send_to_addr(text.as_bytes(), &address));
            }
        } else {
            drop(sender.send_to(text.as_bytes(), &socket));
        }
    }
}

pub(crate) fn ready() {
    tell("READY=1");
}

pub(crate) fn watchdog() {
    tell("WATCHDOG=1");
}

pub(crate) fn stopping() {
    tell("STOPPING=1");
}
