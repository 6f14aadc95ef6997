//! What a person may type.

use std::path::PathBuf;

use clap::{Args as ClapArgs, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  retryscope                      everything found on this machine, on one screen
  retryscope replay               why the newest failed run failed
  retryscope replay run-123       why this run failed (id, unique prefix, path, latest, or - for stdin)
  retryscope runs --failed        the runs that failed
  retryscope sources              which logs were found, and what each can show
  retryscope --root DIR replay    the same for the logs below DIR";

/// Shows what coding agents really do when a model provider fails.
#[derive(Debug, Parser)]
#[command(name = "retryscope", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) reading: Reading,
    #[command(flatten)]
    pub(crate) display: Display,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Help that begins with examples: whoever asks for help wants to do something.
const EXAMPLES_FIRST: &str = "{after-help}\n\n{about-with-newline}\n{usage-heading} {usage}\n\n{all-args}";

impl Args {
    /// Reads the command line; leaves with a message where it is wrong, or asks for help.
    pub(crate) fn read() -> Self {
        let matches = examples_first(Self::command()).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

fn examples_first(command: clap::Command) -> clap::Command {
    let command = command.mut_subcommands(examples_first);
    if command.get_after_help().is_some() { command.help_template(EXAMPLES_FIRST) } else { command }
}

/// What to read.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Reading {
    /// Folder or file to read instead of the agents' usual places, or a pattern of them; may be given more than once [env:
    /// `RETRYSCOPE_ROOTS`, separated by `:`; or `roots` in ~/.config/retryscope/config.toml]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) root: Vec<PathBuf>,
    /// Read every file again, and leave the index of earlier readings alone
    #[arg(long, global = true)]
    pub(crate) no_cache: bool,
    /// The time that counts as now, for logs that still run and for dates in errors (RFC 3339)
    #[arg(long, value_name = "TIME", global = true)]
    pub(crate) as_of: Option<String>,
}

/// How to show it.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct Display {
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    pub(crate) format: Format,
}

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For a person
    Text,
    /// One JSON object
    Json,
    /// A small JSON object for a model or a wrapper (replay only)
    Brief,
    /// Prometheus text format (report only)
    Prom,
    /// For code hosts (audit only)
    Sarif,
    /// For test readers (audit only)
    Junit,
    /// Counters with the times of the events, for promtool (export only)
    Openmetrics,
    /// A table: one line an attempt (export) or a group (report)
    Csv,
    /// For a ticket or a wiki (report only)
    Markdown,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Explain one run: why it failed, what it cost, what to change
    Replay(Replay),
    /// List runs
    Runs(Runs),
    /// What happened, on one screen; or two sets of runs beside each other
    Report(Report),
    /// Check runs against the rules of good retrying
    Audit(Audit),
    /// Write old runs for other programs: Prometheus (openmetrics), a table (csv)
    Export(Export),
    /// Print the JSON Schema of events.jsonl, or check a file against it
    Schema(Schema),
    /// Show which logs were found and what each can show
    Sources,
    /// Say what was found, what is not visible and how to see it, and what this machine limits
    Doctor,
    /// Say what kind of failure a provider error is, and what to do
    Classify(Classify),
    /// Show known retry policies, or check one's own policy.toml
    Policy(Policy),
    /// Print the tables of provider errors for other programs
    Taxonomy(Taxonomy),
    /// Print the completions of a shell
    Completions(Completions),
    /// Print the manual page, or write all of them into a folder
    Man(Man),
    /// Follow logs and export Prometheus metrics (the program retryscoped)
    #[cfg(unix)]
    Daemon(Box<retryscope_daemon::args::Flags>),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  retryscope replay                    the newest failed run
  retryscope replay 01a2290c           a run by its id or a unique beginning of it
  retryscope replay latest             the newest run
  retryscope replay ./logs             all runs in a folder or file
  codex exec --json ... | retryscope replay -
  retryscope replay latest --format brief   two sentences for a model or a wrapper")]
#[expect(clippy::struct_excessive_bools, reason = "each is one switch on the command line")]
pub(crate) struct Replay {
    /// Run id, unique beginning of one, path, `latest`, or `-` for standard input
    pub(crate) run: Option<String>,
    /// Turn to explain: a number, or `all`; without it the last failed one
    #[arg(long, value_name = "N|all")]
    pub(crate) turn: Option<String>,
    /// Show where each statement stands
    #[arg(long)]
    pub(crate) evidence: bool,
    /// Replace ids, paths, hosts and private names, fit for a bug report
    #[arg(long)]
    pub(crate) share: bool,
    /// List who received the content of the run, instead of explaining it
    #[arg(long)]
    pub(crate) recipients: bool,
    /// Exit with 1 if the run failed
    #[arg(long)]
    pub(crate) exit_code: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  retryscope runs                        all runs, newest last
  retryscope runs --failed --since 12h   those that failed last night
  retryscope runs --agent codex --format json")]
pub(crate) struct Runs {
    /// Only runs with a failed turn
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only runs of this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only runs that asked this provider
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Only runs that ended at or after this time (RFC 3339, or 12h, 7d ago)
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only runs that started before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Exit with 1 if a listed run failed
    #[arg(long)]
    pub(crate) exit_code: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  retryscope audit                        all runs found
  retryscope audit latest                 the newest run
  retryscope audit ./logs --format sarif  a folder, for a code host
  retryscope audit --select RS2 --all     waits only; also what was kept and what is unknown
  retryscope audit --explain RS201        what a rule looks for, and why
  retryscope audit --policy policy.toml   hold the runs to your own limits and recipients
  retryscope audit --pack tool-retry DIR  does an agent repeat tools as it should?")]
#[expect(clippy::struct_excessive_bools, reason = "each is one switch on the command line")]
pub(crate) struct Audit {
    /// Runs to look at: ids, unique beginnings of ids, paths, or `latest`; without any, all
    pub(crate) run: Vec<String>,
    /// Only rules whose code begins like this
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub(crate) select: Vec<String>,
    /// No rules whose code begins like this
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub(crate) ignore: Vec<String>,
    /// Show also what was kept and what cannot be told
    #[arg(long)]
    pub(crate) all: bool,
    /// Exit with 3 if a rule could not be decided
    #[arg(long)]
    pub(crate) strict: bool,
    /// The policy.toml that the runs are held to; without it, the one that a run recorded
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Class of the data of runs that do not say theirs (`[recipients.CLASS]` of the policy)
    #[arg(long, value_name = "CLASS")]
    pub(crate) data_class: Option<String>,
    /// File of known findings, which are left out
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Write the findings of today to the baseline
    #[arg(long, requires = "baseline")]
    pub(crate) write_baseline: bool,
    /// Explain one rule
    #[arg(long, value_name = "CODE")]
    pub(crate) explain: Option<String>,
    /// Print the documentation of all rules (Markdown)
    #[arg(long)]
    pub(crate) rules: bool,
    /// Say which behaviours of an acceptance pack the runs show, and whether they went well
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) pack: Option<Pack>,
}

/// An acceptance pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pack {
    /// Seven behaviours of an agent that executes tools; needs tool events in events.jsonl
    ToolRetry,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  retryscope schema > events.schema.json
  retryscope schema check events.jsonl   each deviation with line and column")]
pub(crate) struct Schema {
    #[command(subcommand)]
    pub(crate) command: Option<SchemaCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SchemaCommand {
    /// Check a file against the schema: each deviation with line and column
    Check {
        /// File to check, or `-` for standard input
        file: PathBuf,
    },
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  retryscope classify --provider openai --status 429 --body '{\"error\":{\"code\":\"insufficient_quota\"}}'
  retryscope classify 'API Error: 529 {\"type\":\"error\",...}'
  retryscope classify --input errors.jsonl --format json   one answer a line, in order")]
pub(crate) struct Classify {
    /// The error text, as a client or a log printed it
    pub(crate) text: Option<String>,
    /// Provider, by any of its usual names or its host
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// HTTP status
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(100..=599))]
    pub(crate) status: Option<u16>,
    /// Response header, `name: value`; may be given more than once
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// Response body
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// File with one JSON object a line: provider, status, body, message, headers; `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "provider", "status", "header", "body"])]
    pub(crate) input: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  retryscope completions bash > ~/.local/share/bash-completion/completions/retryscope
  retryscope completions zsh > ~/.zfunc/_retryscope
  retryscope completions fish > ~/.config/fish/completions/retryscope.fish")]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  retryscope man | man -l -                 read it
  retryscope man --dir ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  retryscope policy show                 what is known of each agent, on one page
  retryscope policy show codex           its layers, waits and settings
  retryscope policy check policy.toml    what is wrong or contradictory in your own")]
pub(crate) struct Policy {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show what is known of an agent's retries; without a name, list all
    Show {
        /// Agent or SDK
        agent: Option<String>,
        /// Its version; without it the newest policy is shown
        #[arg(long, value_name = "VERSION")]
        agent_version: Option<String>,
    },
    /// Check a policy.toml: unknown keys, contradictions, layers that multiply
    Check {
        /// File to check, or `-` for standard input
        file: PathBuf,
    },
    /// Print a shipped profile: interactive or batch
    Profile {
        /// Name of the profile
        name: String,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Taxonomy {
    #[command(subcommand)]
    pub(crate) command: TaxonomyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaxonomyCommand {
    /// Print all rows as JSON
    Export,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  retryscope report                             what happened, on one screen
  retryscope report --since 12h                 last night
  retryscope report --by day,provider           a table by day and provider
  retryscope report --compare 0.170.0..0.171.0  before and after a new version
  retryscope report --format markdown > it.md   for a ticket
  retryscope report --format prom               the counters that the daemon would show")]
pub(crate) struct Report {
    /// What to add up; provider and model are those that a run asked first
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [GroupBy::Provider, GroupBy::Model])]
    pub(crate) by: Vec<GroupBy>,
    /// Only runs that ended at or after this time (RFC 3339, or 12h, 7d ago)
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only runs that started before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Hold runs to this policy.toml in their findings (for --format prom); without it, to the one that they recorded
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Class of the data of runs that do not say theirs (`[recipients.CLASS]` of the policy)
    #[arg(long, value_name = "CLASS", requires = "policy")]
    pub(crate) data_class: Option<String>,
    /// Two sets of runs beside each other: versions of an agent, providers, models, or times (from A to B, and since B)
    #[arg(long, value_name = "A..B")]
    pub(crate) compare: Option<String>,
}

/// What a report adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// Agents
    Agent,
    /// Providers
    Provider,
    /// Models
    Model,
    /// Days of the start, UTC
    Day,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  retryscope export --format openmetrics > past.om     the past, for a new Prometheus
  promtool tsdb create-blocks-from openmetrics past.om /var/lib/prometheus/metrics2
  retryscope export --format csv --since 7d            one line an attempt")]
pub(crate) struct Export {
    /// Nothing before this time (RFC 3339, or 12h, 7d ago)
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Nothing after this time; give the start of the daemon, so that nothing is there twice
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
}
