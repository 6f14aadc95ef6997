//! Saving and restoring: offsets and totals together, so that a crash loses nothing and counts nothing twice.
//!
//! One file, written beside, synced and renamed. A file that cannot be read is kept aside and reported; one of a newer
//! version is refused and left alone.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use retryscope_analysis::{SavedView, Totals};
use retryscope_tail::FileState;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::pipeline::SavedDecoder;
use crate::state::{SelfCounts, State};

/// Version of the format; a higher one is not read.
const VERSION: u64 = 1;

const NAME: &str = "checkpoint.json";

/// What is restored.
#[derive(Debug, Deserialize)]
pub(crate) struct Restored {
    pub(crate) totals: Totals,
    pub(crate) counts: SelfCounts,
    pub(crate) views: Vec<SavedView>,
    pub(crate) files: Vec<FileState>,
    pub(crate) next_id: u32,
    pub(crate) decoders: Vec<SavedDecoder>,
}

#[derive(Serialize)]
struct Saved<'a> {
    version: u64,
    totals: &'a Totals,
    counts: &'a SelfCounts,
    views: Vec<SavedView>,
    files: Vec<FileState>,
    next_id: u32,
    decoders: Vec<SavedDecoder>,
}

/// Saves the state.
pub(crate) fn save(
    folder: &Path,
    state: &State,
    files: Vec<FileState>,
    next_id: u32,
    decoders: Vec<SavedDecoder>,
) -> anyhow::Result<()> {
    let saved = Saved {
        version: VERSION,
        totals: &state.totals,
        counts: &state.counts,
        views: state.engine.save(),
        files,
        next_id,
        decoders,
    };
    let beside = folder.join(format!("{NAME}.new"));
    let mut file = File::create(&beside).with_context(|| format!("cannot write {}", beside.display()))?;
    serde_json::to_writer(std::io::BufWriter::new(&mut file), &saved)?;
    file.flush()?;
    file.sync_all()?;
    fs::rename(&beside, folder.join(NAME))?;
    // The rename itself must be on disk before older data may go.
    File::open(folder)?.sync_all()?;
    Ok(())
}

/// Returns what was saved, if anything.
pub(crate) fn load(folder: &Path) -> anyhow::Result<Option<Restored>> {
    let path = folder.join(NAME);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    #[derive(Deserialize)]
    struct Head {
        version: u64,
    }
    match serde_json::from_slice::<Head>(&bytes) {
        Ok(Head { version }) if version > VERSION => {
            bail!(
                "{} was written by a newer version ({version}, this one reads {VERSION}); it is left as it is",
                path.display()
            );
        }
        Ok(_) => match serde_json::from_slice(&bytes) {
            Ok(restored) => return Ok(Some(restored)),
            Err(error) => warn!(%error, "the checkpoint cannot be read"),
        },
        Err(error) => warn!(%error, "the checkpoint cannot be read"),
    }
    let aside = folder.join(format!("{NAME}.corrupt-{}", chrono::Utc::now().timestamp()));
    fs::rename(&path, &aside).with_context(|| format!("cannot put {} aside", path.display()))?;
    warn!(kept = %aside.display(), "starting anew");
    Ok(None)
}
