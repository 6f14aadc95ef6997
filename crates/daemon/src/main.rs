//! The daemon's command line.

use std::process::ExitCode;

use clap::Parser as _;
use retryscope_daemon::args::Args;

fn main() -> ExitCode {
    retryscope_daemon::args::main(&Args::parse())
}
