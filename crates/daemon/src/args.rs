//! Flags of the daemon; also used by `retryscope daemon`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use chrono::{DateTime, Utc};
use clap::Parser;
use retryscope_scan::matching;

use crate::config::{Config, example};

/// Follows the logs of coding agents and exports Prometheus metrics about their retries.
#[derive(Debug, Clone, Parser)]
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
    /// Folder to follow instead of the agents' usual places, or a pattern such as '/home/*/.codex'; may be given more than
    /// once [env: `RETRYSCOPE_ROOTS`, separated by `:`]
    #[arg(long, value_name = "DIR")]
    pub root: Vec<PathBuf>,
    /// The time that counts as now, to compare with a report of the same files (RFC 3339)
    #[arg(long, value_name = "TIME", hide = true)]
    pub as_of: Option<DateTime<Utc>>,
    /// All others.
    #[command(flatten)]
    pub flags: Flags,
}

/// Flags beside those that every reading command has.
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that a person may set")]
pub struct Flags {
    /// Address to serve on
    #[arg(long, value_name = "ADDR", env = "RETRYSCOPED_LISTEN")]
    pub listen: Option<String>,
    /// Folder for the checkpoint and for what is pushed
    #[arg(long, value_name = "DIR", env = "RETRYSCOPED_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// How much of the past to count: all, none, or a span such as 7d
    #[arg(long, value_name = "SPAN", env = "RETRYSCOPED_HISTORY")]
    pub history: Option<String>,
    /// Configuration file, if not ~/.config/retryscope/config.toml
    #[arg(long, value_name = "FILE", env = "RETRYSCOPED_CONFIG")]
    pub config: Option<PathBuf>,
    /// Shortest time between two looks at files, in milliseconds; changes that are notified are seen at once
    #[arg(long, value_name = "MS")]
    pub rescan_ms: Option<u64>,
    /// Look at the files on a timer only, without change notification
    #[arg(long)]
    pub poll: bool,
    /// Most label combinations of counters and histograms of runs that name an agent, a provider or a model; beyond, these
    /// become `other`, and what is all `other` comes on top
    #[arg(long, value_name = "N")]
    pub max_series: Option<usize>,
    /// Hold runs to this policy.toml in what they are found to break; without it, to the one that they recorded
    #[arg(long, value_name = "FILE", env = "RETRYSCOPED_POLICY")]
    pub policy: Option<PathBuf>,
    /// Class of the data of runs that do not say theirs (`[recipients.CLASS]` of the policy)
    #[arg(long, value_name = "CLASS", env = "RETRYSCOPED_DATA_CLASS")]
    pub data_class: Option<String>,
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
}

/// Runs the daemon with these flags, and says what went wrong.
pub fn main(args: &Args) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr().lock(), "error: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Runs the daemon with these flags until it is told to stop.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if args.flags.example_config {
        drop(stdout.write_all(example().as_bytes()));
        return Ok(());
    }
    start_logs(args.flags.log_json);
    let config = Config::from_args(args)?;
    if args.flags.check_config {
        config.check()?;
        drop(writeln!(stdout, "the configuration is good"));
        for root in
            config.roots.iter().filter(|root| !matching(root).found.iter().any(|found| found.exists()))
        {
            drop(writeln!(stdout, "not there yet: {}", root.display()));
        }
        return Ok(());
    }
    drop(stdout);
    crate::run(config, |address| tracing::info!(%address, "listening"))
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
