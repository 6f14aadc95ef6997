//! Settings: configuration file < environment < flags. All defaults work.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use chrono::{DateTime, TimeDelta, Utc};
use retryscope_analysis::{BudgetPolicy, DEFAULT_MAX_SERIES};
use retryscope_scan::{Environment, default_roots};
use serde::Deserialize;

use crate::args::Args;

/// A commented configuration with every default.
pub const EXAMPLE: &str = include_str!("../dist/retryscoped.example.toml");

/// Settings in force.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folders that are followed.
    pub roots: Vec<PathBuf>,
    /// Address to serve on.
    pub listen: SocketAddr,
    /// Folder for the checkpoint and for what is pushed; made with mode 0700.
    pub state_dir: PathBuf,
    /// How much of the past is counted.
    pub history: History,
    /// Milliseconds between two looks at all files.
    pub rescan_ms: u64,
    /// Without change notification.
    pub poll: bool,
    /// Most label combinations of run metrics.
    pub max_series: usize,
    /// The retry budget.
    pub budget: BudgetPolicy,
    /// Token that everything but `/metrics` and health needs when not on loopback.
    pub token: Option<String>,
    /// Host names besides the address itself that requests may name.
    pub hosts: Vec<String>,
    /// Provider names for endpoint hosts and for provider ids of one's own.
    pub aliases: BTreeMap<String, String>,
    /// On a stop signal, read everything to its end before leaving.
    pub drain: bool,
    /// The time that counts as now, in tests; `None` = the clock.
    pub as_of: Option<DateTime<Utc>>,
    /// Where these settings come from, to read them again.
    pub args: Box<Args>,
}

/// How much of the past is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Everything that is found.
    All,
    /// Nothing that was there before the first start.
    None,
    /// Files changed within this span before the first start.
    Since(TimeDelta),
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    roots: Option<Vec<PathBuf>>,
    listen: Option<String>,
    state_dir: Option<PathBuf>,
    history: Option<String>,
    rescan_ms: Option<u64>,
    poll: Option<bool>,
    max_series: Option<usize>,
    token: Option<String>,
    hosts: Option<Vec<String>>,
    budget: Option<BudgetSection>,
    provider_aliases: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetSection {
    limit: Option<f64>,
    floor: Option<u64>,
}

impl Config {
    /// Puts file, environment and flags together.
    pub fn from_args(args: &Args) -> anyhow::Result<Self> {
        let file = match &args.flags.config {
            Some(path) => read(path)?,
            None => File::default(),
        };
        let environment = Environment { home: std::env::home_dir(), variables: std::env::vars().collect() };
        let state_dir =
            args.flags.state_dir.clone().or(file.state_dir).or_else(|| default_state_dir(&environment));
        let Some(state_dir) = state_dir else { bail!("no home directory; name a place with --state-dir") };
        let roots = match (args.root.is_empty(), file.roots) {
            (false, _) => args.root.clone(),
            (true, Some(roots)) => roots,
            (true, None) => default_roots(&environment),
        };
        let listen = args.flags.listen.clone().or(file.listen).unwrap_or_else(|| "127.0.0.1:9748".to_owned());
        let listen = listen.parse().with_context(|| format!("listen: `{listen}` is no address and port"))?;
        let history = args.flags.history.clone().or(file.history).unwrap_or_else(|| "all".to_owned());
        let default = BudgetPolicy::default();
        let budget = file.budget.map_or(default, |b| BudgetPolicy {
            limit: b.limit.unwrap_or(default.limit),
            floor: b.floor.unwrap_or(default.floor),
        });
        Ok(Self {
            roots,
            listen,
            state_dir,
            history: history.parse()?,
            rescan_ms: args.flags.rescan_ms.or(file.rescan_ms).unwrap_or(2_000),
            poll: args.flags.poll || file.poll.unwrap_or(false),
            max_series: args.flags.max_series.or(file.max_series).unwrap_or(DEFAULT_MAX_SERIES),
            budget,
            token: std::env::var("RETRYSCOPED_TOKEN").ok().or(file.token).filter(|token| !token.is_empty()),
            hosts: file.hosts.unwrap_or_default(),
            aliases: file.provider_aliases.unwrap_or_default(),
            drain: args.flags.drain,
            as_of: args.as_of,
            args: Box::new(args.clone()),
        })
    }

    /// Says what is wrong with the settings, if anything.
    pub fn check(&self) -> anyhow::Result<()> {
        if !self.listen.ip().is_loopback() && self.token.is_none() {
            bail!("listen: {} is not loopback; set a token (RETRYSCOPED_TOKEN or `token`)", self.listen);
        }
        if !(0.0..=1.0).contains(&self.budget.limit) {
            bail!("budget.limit: {} is no share from 0 to 1", self.budget.limit);
        }
        if self.rescan_ms < 50 {
            bail!("rescan_ms: {} is below 50", self.rescan_ms);
        }
        if self.roots.is_empty() {
            bail!("no folder to follow: none of the known agents has logs here; name one with --root");
        }
        Ok(())
    }

    /// Makes the state folder, for its owner only.
    pub(crate) fn make_state_dir(&self) -> anyhow::Result<()> {
        fs::create_dir_all(self.received_dir())
            .with_context(|| format!("cannot make {}", self.state_dir.display()))?;
        fs::set_permissions(&self.state_dir, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("cannot protect {}", self.state_dir.display()))
    }

    /// Where pushed data is written; followed like any other folder.
    pub(crate) fn received_dir(&self) -> PathBuf {
        self.state_dir.join("received")
    }
}

impl std::str::FromStr for History {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let seconds = match (text, unit) {
            ("all", _) => return Ok(Self::All),
            ("none", _) => return Ok(Self::None),
            (_, "m") => 60,
            (_, "h") => 3_600,
            (_, "d") => 86_400,
            _ => bail!("history: `{text}` is neither all, none nor a span such as 12h or 7d"),
        };
        let number: i64 = number.parse().with_context(|| format!("history: `{text}`"))?;
        Ok(Self::Since(TimeDelta::seconds(number.saturating_mul(seconds).min(10_000_000_000))))
    }
}

fn read(path: &Path) -> anyhow::Result<File> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is no good configuration", path.display()))
}

fn default_state_dir(environment: &Environment) -> Option<PathBuf> {
    let below = |base: &str| Path::new(base).join("retryscope");
    environment
        .get("STATE_DIRECTORY")
        .map(PathBuf::from)
        .or_else(|| environment.get("XDG_STATE_HOME").map(below))
        .or_else(|| environment.home.as_ref().map(|home| home.join(".local/state/retryscope")))
}
