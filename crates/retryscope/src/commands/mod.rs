//! One file a command; this one chooses.

mod audit;
mod classify;
#[cfg(unix)]
mod daemon;
mod doctor;
mod export;
mod overview;
mod policy;
mod recipients;
mod replay;
mod report;
mod runs;
mod schema;
mod shell;
mod sides;
mod sources;
mod visibility;

use crate::args::{Args, Command, Format};
use crate::exit::{Exit, hinted};
use crate::output::Output;

/// Runs the command that was asked for.
pub(crate) fn run(args: Args, output: &mut Output) -> anyhow::Result<Exit> {
    let Args { reading, display, command } = args;
    fits(display.format, command.as_ref())?;
    match command {
        None => overview::run(&reading, display, output),
        Some(Command::Replay(replay)) => replay::run(&reading, display, &replay, output),
        Some(Command::Runs(runs)) => runs::run(&reading, display, &runs, output),
        Some(Command::Report(report)) => report::run(&reading, display, &report, output),
        Some(Command::Audit(audit)) => audit::run(&reading, display, &audit, output),
        Some(Command::Export(export)) => export::run(&reading, display, &export, output),
        Some(Command::Schema(schema)) => schema::run(&schema, display, output),
        Some(Command::Classify(classify)) => classify::run(&reading, display, &classify, output),
        Some(Command::Policy(policy)) => policy::run(&policy, display, output),
        Some(Command::Taxonomy(_)) => classify::export(output),
        #[cfg(unix)]
        Some(Command::Daemon(flags)) => daemon::run(&reading, *flags),
        Some(Command::Completions(args)) => shell::completions(&args, output),
        Some(Command::Man(args)) => shell::man(&args, output),
        Some(Command::Doctor) => doctor::run(&reading, display, output),
        Some(Command::Sources) => sources::run(&reading, display, output),
    }
}

/// Says which forms a command has; a form that is not one of them would be answered with another.
fn fits(format: Format, command: Option<&Command>) -> anyhow::Result<()> {
    let other: &[Format] = match command {
        Some(Command::Replay(_)) => &[Format::Brief],
        Some(Command::Report(_)) => &[Format::Markdown, Format::Csv, Format::Prom],
        Some(Command::Export(_)) => &[Format::Openmetrics, Format::Csv],
        Some(Command::Audit(_)) => &[Format::Sarif, Format::Junit],
        _ => &[],
    };
    if matches!(format, Format::Text | Format::Json) || other.contains(&format) {
        return Ok(());
    }
    let name = |format: &Format| clap::ValueEnum::to_possible_value(format).map(|v| v.get_name().to_owned());
    let forms: Vec<String> = [Format::Text, Format::Json].iter().chain(other).filter_map(name).collect();
    Err(hinted(
        format!("this command has no form `{}`", name(&format).unwrap_or_default()),
        [format!("its forms are {}", forms.join(", "))],
    ))
}
