//! `retryscope schema`: the JSON Schema of `events.jsonl`, and a check against it.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use anyhow::Context as _;
use retryscope_analysis::words;
use retryscope_events::{check, json_schema};
use retryscope_report::visible;
use serde_json::json;

use crate::args::{Display, Format, Schema, SchemaCommand};
use crate::exit::Exit;
use crate::lines::{LINE_LIMIT, Next, next_line};
use crate::output::Output;

pub(crate) fn run(args: &Schema, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    match &args.command {
        None => {
            output.text(&serde_json::to_string_pretty(&json_schema())?)?;
            output.text("\n")?;
            Ok(Exit::Ok)
        }
        Some(SchemaCommand::Check { file }) if file.as_os_str() == "-" => {
            checked(Path::new("stdin"), io::stdin().lock(), display, output)
        }
        Some(SchemaCommand::Check { file }) => {
            let input = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
            checked(file, BufReader::new(input), display, output)
        }
    }
}

fn checked(
    name: &Path,
    mut input: impl BufRead,
    display: Display,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let mut line = Vec::new();
    let (mut number, mut deviations, mut checked) = (0_u64, 0, 0);
    loop {
        let next = next_line(&mut input, &mut line)?;
        if next == Next::End {
            break;
        }
        number += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        checked += 1;
        let found = if next == Next::TooLong { vec![too_long()] } else { check::line(&line) };
        for deviation in found {
            deviations += 1;
            match display.format {
                Format::Text => output.text(&format!(
                    "{}:{number}:{}: {}\n",
                    name.display(),
                    deviation.column,
                    visible(&deviation.message)
                ))?,
                _ => output.json(&json!({
                    "schema": "retryscope.schema.check/1",
                    "file": name.display().to_string(),
                    "line": number,
                    "column": deviation.column,
                    "message": deviation.message,
                }))?,
            }
        }
    }
    if display.format == Format::Text {
        output.text(&match deviations {
            0 => format!("{} the schema\n", words::number(checked, "line keeps", "lines keep")),
            n => format!(
                "{} in {}\n",
                words::number(n, "deviation", "deviations"),
                words::number(checked, "line", "lines")
            ),
        })?;
    }
    Ok(if deviations == 0 { Exit::Ok } else { Exit::Finding })
}

fn too_long() -> check::Deviation {
    let message = format!("the line is longer than {} MiB", LINE_LIMIT >> 20);
    check::Deviation { column: 1, message }
}
