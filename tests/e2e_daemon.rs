//! End-to-end tests of the daemon: the real binary follows real files and is asked over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails, and says where")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "the numbers of a test are small, whole and not negative"
)]

mod planted;

mod e2e_daemon {
    mod databases;
    mod faults;
    mod hostile;
    mod machine;
    mod operation;
    mod parity;
    mod prometheus;
    mod pushed;
    mod restart;
    mod support;
}
