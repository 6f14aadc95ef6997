//! End-to-end tests: the real binary on real logs.

mod e2e {
    mod architecture;
    mod bad_input;
    mod cli;
    mod golden;
    mod support;
}
