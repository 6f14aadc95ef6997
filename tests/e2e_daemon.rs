//! End-to-end tests of the daemon: the real binary follows real files and is asked over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails, and says where")]

mod e2e_daemon {
    mod faults;
    mod hostile;
    mod operation;
    mod parity;
    mod prometheus;
    mod pushed;
    mod restart;
    mod support;
}
