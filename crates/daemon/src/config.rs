//! Settings: configuration file < environment < flags. All defaults work.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use chrono::{DateTime, TimeDelta, Utc};
use retryscope_analysis::rules::HeldTo;
use retryscope_analysis::{BudgetPolicy, DEFAULT_MAX_SERIES};
use retryscope_policy::own;
use retryscope_scan::{Environment, default_roots, wrong_pattern};
use serde::Deserialize;

use crate::args::Args;
use crate::received::Kept;

/// A commented configuration with every default, made of the doc comments of the settings.
pub fn example() -> String {
    let mut text = "# Configuration of retryscoped. Every value here is the default; environment variables and flags win over \
                    this file.\n"
        .to_owned();
    let mut section = "";
    for setting in File::SETTINGS.iter().chain(BudgetSection::SETTINGS).chain([&PROVIDER_ALIASES]) {
        if setting.section != section {
            section = setting.section;
            text += &format!("\n[{section}]\n");
        } else if section.is_empty() {
            text.push('\n');
        }
        for line in setting.doc {
            text += &format!("#{line}\n");
        }
        text += setting.value;
        text.push('\n');
    }
    text
}

/// One setting of the configuration file, as the example shows it.
struct Setting {
    /// The table that it stands in; empty for the top.
    section: &'static str,
    /// Its doc comment, by line.
    doc: &'static [&'static str],
    /// The line that sets it to its default; commented out where the default depends on the machine.
    value: &'static str,
}

/// Declares a table of the configuration file: its fields are read, and their doc comments and defaults are the example.
macro_rules! table {
    (
        $(#[$meta:meta])*
        $name:ident in $section:literal { $($(#[doc = $doc:literal])+ $field:ident : $type:ty, $value:literal;)+ }
        with { $($table:ident : $of:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        struct $name {
            $($(#[doc = $doc])+ $field: Option<$type>,)+
            $($table: Option<$of>,)*
        }

        impl $name {
            const SETTINGS: &'static [Setting] =
                &[$(Setting { section: $section, doc: &[$($doc),+], value: $value }),+];
        }
    };
}

/// Settings in force.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folders that are followed, and patterns of them.
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
    /// How much of what is pushed is kept.
    pub received: Kept,
    /// The retry budget.
    pub budget: BudgetPolicy,
    /// Token that everything but `/metrics` and health needs when not on loopback.
    pub token: Option<String>,
    /// Host names besides the address itself that requests may name.
    pub hosts: Vec<String>,
    /// Provider names for endpoint hosts and for provider ids of one's own.
    pub aliases: BTreeMap<String, String>,
    /// The policy that runs are held to; `None` = the one that each recorded.
    pub held_to: Option<HeldTo>,
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

table! {
    /// The configuration file.
    File in "" {
        /// Folders to follow, or patterns of them. Without it: the usual places of the known agents.
        roots: Vec<PathBuf>, "# roots = [\"/home/dev/.claude\", \"/home/*/.codex\"]";
        /// Address to serve on. Off loopback a token is needed.
        listen: String, "listen = \"127.0.0.1:9748\"";
        /// Folder for the checkpoint and for pushed data; made for its owner only.
        state_dir: PathBuf, "# state_dir = \"/home/dev/.local/state/retryscope\"";
        /// How much of the past to count on the first start: "all", "none", or a span such as "7d".
        history: String, "history = \"all\"";
        /// Shortest time between two looks at files, in milliseconds. Changes that the system notifies are seen at once; with many
        /// files, looks at all of them come less often, so that they take less than 1 % of a core.
        rescan_ms: u64, "rescan_ms = 2000";
        /// Look at the files on a timer only, without change notification (network file systems).
        poll: bool, "poll = false";
        /// Most label combinations of counters and histograms of runs that name an agent, a provider or a model. Beyond them these
        /// names become "other", models first; what is all "other" comes on top: at most some hundred.
        max_series: usize, "max_series = 2000";
        /// Needed in "Authorization: Bearer ..." for everything but /metrics and health, when not on loopback.
        token: String, "# token = \"\"";
        /// Host names besides the address itself that requests may name.
        hosts: Vec<String>, "hosts = []";
        /// A policy.toml that runs are held to in what they are found to break (the findings among the metrics); without it, the one
        /// that a run recorded.
        policy: PathBuf, "# policy = \"/etc/retryscope/policy.toml\"";
        /// Class of the data of runs that do not say theirs ([recipients.CLASS] of the policy).
        data_class: String, "# data_class = \"\"";
        /// Days that pushed data is kept on disk; what was counted stays counted. Today and yesterday always stay.
        received_days: u32, "received_days = 30";
        /// Megabytes of pushed data that are kept on disk; beyond, the oldest days go first.
        received_mb: u64, "received_mb = 4096";
    }
    with {
        budget: BudgetSection,
        provider_aliases: BTreeMap<String, String>,
    }
}

table! {
    /// The retry budget.
    BudgetSection in "budget" {
        /// Largest share of retries among upstream requests.
        limit: f64, "limit = 0.10";
        /// Retries allowed in each window whatever the share.
        floor: u64, "floor = 10";
    }
    with {}
}

/// Its names are free.
const PROVIDER_ALIASES: Setting = Setting {
    section: "provider_aliases",
    doc: &[" Provider names for endpoint hosts and for provider ids of your own."],
    value: "# \"llm.example.com\" = \"openai\"",
};

impl Config {
    /// Puts file, environment and flags together.
    pub fn from_args(args: &Args) -> anyhow::Result<Self> {
        let environment = Environment::here();
        let path = args.flags.config.clone().or_else(|| environment.config_file());
        let file = path.map_or_else(|| Ok(File::default()), |path| read(&path))?;
        let home = |path: PathBuf| environment.in_home(&path);
        let state_dir = args
            .flags
            .state_dir
            .clone()
            .or(file.state_dir.map(home))
            .or_else(|| default_state_dir(&environment));
        let Some(state_dir) = state_dir else { bail!("no home directory; name a place with --state-dir") };
        let named = environment.named_roots(&args.root);
        let roots = match (named.is_empty(), file.roots) {
            (false, _) => named,
            (true, Some(roots)) => roots.into_iter().map(home).collect(),
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
        let policy = args.flags.policy.clone().or(file.policy.map(home));
        let data_class = args.flags.data_class.clone().or(file.data_class).filter(|class| !class.is_empty());
        if policy.is_none() && data_class.is_some() {
            bail!("data_class: it says nothing without a policy");
        }
        let held_to = policy.map(|file| hold_to(&file, data_class)).transpose()?;
        Ok(Self {
            roots,
            listen,
            state_dir,
            history: history.parse()?,
            rescan_ms: args.flags.rescan_ms.or(file.rescan_ms).unwrap_or(2_000),
            poll: args.flags.poll || file.poll.unwrap_or(false),
            max_series: args.flags.max_series.or(file.max_series).unwrap_or(DEFAULT_MAX_SERIES),
            received: Kept {
                days: file.received_days.unwrap_or(30),
                bytes: file.received_mb.unwrap_or(4_096).saturating_mul(1_000_000),
            },
            budget,
            token: std::env::var("RETRYSCOPED_TOKEN").ok().or(file.token).filter(|token| !token.is_empty()),
            hosts: file.hosts.unwrap_or_default(),
            aliases: file.provider_aliases.unwrap_or_default(),
            held_to,
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
        for root in &self.roots {
            if let Some(wrong) = wrong_pattern(root) {
                bail!("root {}: {wrong}", root.display());
            }
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

/// Reads the policy that runs are held to.
fn hold_to(file: &Path, data_class: Option<String>) -> anyhow::Result<HeldTo> {
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    match own::parse(&text) {
        Ok(policy) => Ok(HeldTo { policy, data_class }),
        Err(error) => bail!("{name}:{}:{}: {}", error.line, error.column, error.message),
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

/// Returns the roots that a configuration file names.
pub fn roots_in(path: &Path, environment: &Environment) -> anyhow::Result<Option<Vec<PathBuf>>> {
    Ok(read(path)?.roots.map(|roots| roots.iter().map(|root| environment.in_home(root)).collect()))
}

fn read(path: &Path) -> anyhow::Result<File> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).map_err(|error| {
        // Without the line itself, which may hold the token.
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        anyhow!("{}:{line}:{column}: {}", path.display(), without_value(error.message()))
    })
}

/// Takes the value out of a message about its type: "invalid type: integer `7`, expected a string".
fn without_value(message: &str) -> String {
    let is_about_value = message.starts_with("invalid type") || message.starts_with("invalid value");
    match (is_about_value, message.find(['`', '"']), message.rfind(", expected")) {
        (true, Some(from), Some(to)) if from < to => {
            let (before, _) = message.split_at(from);
            let (_, after) = message.split_at(to);
            format!("{}{after}", before.trim_end())
        }
        _ => message.to_owned(),
    }
}

fn default_state_dir(environment: &Environment) -> Option<PathBuf> {
    let below = |base: &OsStr| Path::new(base).join("retryscope");
    environment
        .get("STATE_DIRECTORY")
        .map(PathBuf::from)
        .or_else(|| environment.get("XDG_STATE_HOME").map(below))
        .or_else(|| environment.home.as_ref().map(|home| home.join(".local/state/retryscope")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_what_is_shipped() {
        assert_eq!(example(), include_str!("../dist/retryscoped.example.toml"));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_without_what_stands_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        for wrong in [
            "token = s3cr3t",
            "toke = \"s3cr3t\"",
            "token = [\"s3cr3t\"]",
            "token = 53272",
            "poll = \"s3cr3t\"",
        ] {
            fs::write(&path, format!("# the first line\n{wrong}\n")).unwrap();
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(!error.contains("s3cr3t") && !error.contains("53272"), "{error}");
            assert!(error.contains("config.toml:2:"), "{error}");
        }
        assert_eq!(
            without_value("unknown field `toke`, expected one of `token`"),
            "unknown field `toke`, expected one of `token`"
        );
    }

    #[test]
    fn a_tilde_is_the_home_directory() {
        let environment = Environment { home: Some("/home/dev".into()), variables: Vec::new() };
        assert_eq!(environment.in_home(Path::new("~/logs")), Path::new("/home/dev/logs"));
        assert_eq!(environment.in_home(Path::new("/a/~/b")), Path::new("/a/~/b"));
    }

    /// Every default of the example is the default of the program.
    #[test]
    fn the_example_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, example()).unwrap();
        let with = |config: Option<&Path>| {
            let mut args = vec![
                "retryscoped".into(),
                "--root".into(),
                folder.path().into(),
                "--state-dir".into(),
                folder.path().into(),
            ];
            args.extend(
                config.into_iter().flat_map(|path| [std::ffi::OsString::from("--config"), path.into()]),
            );
            let args = <Args as clap::Parser>::try_parse_from(args).unwrap();
            let config = Config { args: Box::new(args.clone()), ..Config::from_args(&args).unwrap() };
            let text = format!("{config:?}");
            text.split(", args:").next().unwrap().to_owned()
        };
        assert_eq!(with(Some(&path)), with(None));
    }
}
