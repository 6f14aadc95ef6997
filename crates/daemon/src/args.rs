//! Flags of the daemon; also used by `retryscope daemon`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use chrono::{DateTime, Utc};
use clap::Parser;

use crate::config::{Config, EXAMPLE};

/// Follows the logs of coding agents and exports Prometheus metrics about their retries.
#[derive(Debug, Clone, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that a person may set")]
#[command(
    name = "retryscoped",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  retryscoped                               follow the known agents' logs, serve http://127.0.0.1:9748/metrics
  retryscoped --root /srv/agents            follow what is below a folder instead
  retryscoped --check-config --config FILE  say whether a configuration is good
  retryscoped --example-config              print a commented configuration"
)]
pub struct Args {
    /// Folder to follow instead of the agents' usual places; may be given more than once
    #[arg(long, value_name = "DIR", env = "RETRYSCOPE_ROOTS", value_delimiter = ':')]
    pub root: Vec<PathBuf>,
    /// Address to serve on
    #[arg(long, value_name = "ADDR", env = "RETRYSCOPED_LISTEN")]
    pub listen: Option<String>,
    /// Folder for the checkpoint and for what is pushed
    #[arg(long, value_name = "DIR", env = "RETRYSCOPED_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// How much of the past to count: all, none, or a span such as 7d
    #[arg(long, value_name = "SPAN", env = "RETRYSCOPED_HISTORY")]
    pub history: Option<String>,
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "RETRYSCOPED_CONFIG")]
    pub config: Option<PathBuf>,
    /// Time between two looks at all files, in milliseconds; changes that are notified are seen at once
    #[arg(long, value_name = "MS")]
    pub rescan_ms: Option<u64>,
    /// Look at the files on a timer only, without change notification
    #[arg(long)]
    pub poll: bool,
    /// Most label combinations of run metrics
    #[arg(long, value_name = "N")]
    pub max_series: Option<usize>,
    /// On a stop signal, read everything to its end before leaving
    #[arg(long)]
    pub drain: bool,
    /// Say whether the configuration is good, and leave
    #[arg(long)]
    pub check_config: bool,
    /// Print a commented configuration, and leave
    #[arg(long)]
    pub example_config: bool,
    /// Write logs as JSON
    #[arg(long)]
    pub log_json: bool,
    /// The time that counts as now, to compare with a report of the same files (RFC 3339)
    #[arg(long, value_name = "TIME", hide = true)]
    pub as_of: Option<DateTime<Utc>>,
}

/// Runs the daemon with these flags.
pub fn main(args: &Args) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    if args.example_config {
        drop(stdout.write_all(EXAMPLE.as_bytes()));
        return ExitCode::SUCCESS;
    }
    start_logs(args.log_json);
    let check_only = args.check_config;
    let result = Config::from_args(args).and_then(|config| {
        if check_only {
            config.check()?;
            drop(writeln!(stdout, "the configuration is good"));
            return Ok(());
        }
        drop(stdout);
        crate::run(config, |address| tracing::info!(%address, "listening"))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr().lock(), "error: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn start_logs(json: bool) {
    let logs = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::INFO)
        .with_target(false);
    // A second start in one process, as in tests, keeps the first.
    if json {
        drop(logs.json().try_init());
    } else {
        drop(logs.with_ansi(false).try_init());
    }
}
