//! `retryscope daemon`: the program `retryscoped` under another name.

use retryscope_daemon::args::{Args, Flags};

use crate::args::Reading;
use crate::context;
use crate::exit::Exit;

pub(crate) fn run(reading: &Reading, flags: Flags) -> anyhow::Result<Exit> {
    let as_of = reading.as_of.as_ref().map(|_| context::now(reading)).transpose()?;
    retryscope_daemon::args::run(&Args { root: reading.root.clone(), as_of, flags })?;
    Ok(Exit::Ok)
}
