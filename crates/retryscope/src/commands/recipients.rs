//! `retryscope replay --recipients`: who received the content of a run.

use std::path::Path;

use retryscope_analysis::{Recipient, Run, recipients};
use retryscope_record::SourceId;
use retryscope_report::recipients as show;

use crate::args::{Display, Format};
use crate::exit::hinted;
use crate::output::{Output, width};

/// Lists the recipients of each run.
pub(crate) fn show<'a>(
    runs: &[&Run],
    path_of: &'a dyn Fn(SourceId) -> &'a Path,
    display: Display,
    output: &mut Output,
) -> anyhow::Result<()> {
    for (index, run) in runs.iter().enumerate() {
        let received: Vec<Recipient> = recipients(run);
        match display.format {
            Format::Text => {
                if index > 0 {
                    output.text("\n")?;
                }
                output.text(&show::text(run, &received, width()))?;
            }
            Format::Json => output.json(&show::json(run, &received, path_of))?,
            _ => {
                return Err(hinted(
                    "recipients have no such form",
                    ["their forms are text, json".to_owned()],
                ));
            }
        }
    }
    Ok(())
}
