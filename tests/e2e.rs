//! End-to-end tests: the real binary on real logs.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its input fails, and says where")]

mod planted;

mod e2e {
    mod answers;
    mod architecture;
    mod audit;
    mod bad_input;
    mod cli;
    mod export;
    mod golden;
    mod places;
    mod report;
    mod share;
    mod support;
}
