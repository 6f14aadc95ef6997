//! One file a command; this one chooses.

mod classify;
mod daemon;
mod export;
mod overview;
mod policy;
mod replay;
mod report;
mod runs;
mod schema;
mod sources;

use crate::args::{Args, Command};
use crate::exit::Exit;
use crate::output::Output;

/// Runs the command that was asked for.
pub(crate) fn run(args: Args, output: &mut Output) -> anyhow::Result<Exit> {
    let Args { reading, display, command } = args;
    match command {
        None => overview::run(&reading, display, output),
        Some(Command::Replay(replay)) => replay::run(&reading, display, &replay, output),
        Some(Command::Runs(runs)) => runs::run(&reading, display, &runs, output),
        Some(Command::Report(report)) => report::run(&reading, display, &report, output),
        Some(Command::Export(export)) => export::run(&reading, display, &export, output),
        Some(Command::Schema(schema)) => schema::run(&schema, display, output),
        Some(Command::Classify(classify)) => classify::run(&reading, display, &classify, output),
        Some(Command::Policy(policy)) => policy::run(&policy, display, output),
        Some(Command::Taxonomy(_)) => classify::export(output),
        Some(Command::Daemon(flags)) => daemon::run(&reading, *flags),
        Some(Command::Sources) => sources::run(&reading, display, output),
    }
}
