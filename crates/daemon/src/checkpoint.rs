//! Saving and restoring: offsets and totals together, so that a crash loses nothing and counts nothing twice.
//!
//! One file, written beside, synced and renamed. A file that cannot be read is kept aside and reported; one of a newer
//! version is refused and left alone.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use retryscope_analysis::{Forgotten, SavedView, Totals};
use retryscope_tail::FileState;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::sources::SavedDecoder;
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
    #[serde(default)]
    pub(crate) forgotten: Forgotten,
}

/// What is saved.
#[derive(Serialize)]
pub(crate) struct Saved {
    version: u64,
    totals: Totals,
    counts: SelfCounts,
    views: Vec<SavedView>,
    files: Vec<FileState>,
    next_id: u32,
    decoders: Vec<SavedDecoder>,
    forgotten: Forgotten,
}

/// The part that every version has.
#[derive(Deserialize)]
struct Head {
    version: u64,
}

impl Saved {
    /// Takes a copy of the state: laying it out takes longer, and the lock should not wait for that.
    pub(crate) fn copy(
        state: &State,
        files: Vec<FileState>,
        next_id: u32,
        decoders: Vec<SavedDecoder>,
    ) -> Self {
        let mut counts = state.counts.clone();
        counts.duplicates += state.engine.duplicates();
        Self {
            version: VERSION,
            totals: state.totals.clone(),
            counts,
            views: state.engine.save(),
            files,
            next_id,
            decoders,
            forgotten: state.engine.forgotten().clone(),
        }
    }

    /// Writes it beside, syncs, and puts it in place.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let beside = folder.join(format!("{NAME}.new"));
        let mut file = File::create(&beside).with_context(|| format!("cannot write {}", beside.display()))?;
        let mut writer = std::io::BufWriter::with_capacity(256 << 10, &mut file);
        serde_json::to_writer(&mut writer, self)?;
        writer.flush()?;
        drop(writer);
        file.sync_all()?;
        fs::rename(&beside, folder.join(NAME))?;
        // The rename itself must be on disk before older data may go.
        File::open(folder)?.sync_all()?;
        Ok(())
    }
}

/// Returns what was saved, if anything.
pub(crate) fn load(folder: &Path) -> anyhow::Result<Option<Restored>> {
    let path = folder.join(NAME);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
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
