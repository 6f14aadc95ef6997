//! `retryscope completions` and `retryscope man`: what packages install beside the program.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::args::{Args, Completions, Man};
use crate::exit::Exit;
use crate::output::Output;

/// Writes the completions of one shell.
pub(crate) fn completions(args: &Completions, output: &mut Output) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "retryscope", &mut script);
    output.text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}

/// Writes the manual page of the program, or all of them into a folder.
pub(crate) fn man(args: &Man, output: &mut Output) -> anyhow::Result<Exit> {
    let Some(folder) = &args.dir else {
        output.text(&page(Args::command())?)?;
        return Ok(Exit::Ok);
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut command = Args::command();
    command.build();
    write(folder, "retryscope", command.clone())?;
    for part in command.get_subcommands().filter(|part| !part.is_hide_set() && part.get_name() != "help") {
        // A built command knows that it is a part: `retryscope-replay`.
        let name = part.get_display_name().unwrap_or(part.get_name()).to_owned();
        write(folder, &name, part.clone())?;
    }
    #[cfg(unix)]
    write(folder, "retryscoped", retryscope_daemon::args::Args::command())?;
    Ok(Exit::Ok)
}

fn write(folder: &Path, name: &str, command: clap::Command) -> anyhow::Result<()> {
    let file = folder.join(format!("{name}.1"));
    std::fs::write(&file, page(command)?).with_context(|| format!("cannot write {}", file.display()))
}

fn page(command: clap::Command) -> anyhow::Result<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
