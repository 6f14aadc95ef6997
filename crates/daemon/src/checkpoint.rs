//! Saving and restoring: offsets and totals together, so that a crash loses nothing and counts nothing twice.
//!
//! One file, written beside, synced and renamed. A file that cannot be read is kept aside and reported; one of a newer
//! version is refused and left alone. What changed since is in [`recent`].

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use retryscope_analysis::{Forgotten, LeftOff, SavedView, Totals};
use retryscope_record::{RunKey, SourceId};
use retryscope_tail::{FileState, Follower};
use serde::{Deserialize, Serialize, Serializer};
use tracing::warn;

use crate::recent;
use crate::sources::{SavedDecoder, Sources};
use crate::state::{SelfCounts, Shared};

/// Version of the format; a higher one is not read.
pub(crate) const VERSION: u64 = 2;

pub(crate) const NAME: &str = "checkpoint.json";

/// How long a process that was killed may take to go away.
const GOING_AWAY: Duration = Duration::from_secs(1);

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
    pub(crate) left_off: LeftOff,
    #[serde(default)]
    pub(crate) forgotten: Forgotten,
    /// Records of each source that were repeats.
    #[serde(default)]
    pub(crate) repeated: BTreeMap<SourceId, u64>,
}

/// What is saved, written piece by piece: the state is large. Only the reading thread, which saves, changes it; the counts of
/// what was pushed, which others change, are taken at once.
#[derive(Serialize)]
pub(crate) struct Saved<'a> {
    version: u64,
    totals: Counted<'a>,
    counts: SelfCounts,
    views: Views<'a>,
    files: Files<'a>,
    next_id: u32,
    decoders: &'a Sources,
    left_off: LeftOff,
    forgotten: Forgotten,
    repeated: BTreeMap<SourceId, u64>,
}

/// The totals.
struct Counted<'a>(&'a Shared);

impl Serialize for Counted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.look().totals.serialize(serializer)
    }
}

/// The views of all runs.
struct Views<'a>(&'a Shared);

impl Serialize for Views<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let runs: Vec<RunKey> = self.0.look().engine.keys().cloned().collect();
        serializer.collect_seq(runs.iter().flat_map(|run| self.0.look().engine.save(run)))
    }
}

/// What is followed.
struct Files<'a>(&'a Follower);

impl Serialize for Files<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.states())
    }
}

/// The part that every version has.
#[derive(Deserialize)]
pub(crate) struct Head {
    pub(crate) version: u64,
}

impl<'a> Saved<'a> {
    /// Takes what is to be saved.
    pub(crate) fn of(shared: &'a Shared, follower: &'a Follower, sources: &'a Sources) -> Self {
        let state = shared.look();
        let mut counts = state.counts.clone();
        counts.duplicates += state.engine.duplicates();
        Self {
            version: VERSION,
            totals: Counted(shared),
            counts,
            views: Views(shared),
            files: Files(follower),
            next_id: follower.next_id(),
            decoders: sources,
            left_off: state.engine.left_off(),
            forgotten: state.engine.forgotten().clone(),
            repeated: state.engine.repeated_records(),
        }
    }

    /// Writes it beside, syncs, and puts it in place.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let beside = folder.join(format!("{NAME}.new"));
        let file = File::create(&beside).with_context(|| format!("cannot write {}", beside.display()))?;
        self.write_to(&file)?;
        file.sync_all()?;
        fs::rename(&beside, folder.join(NAME))?;
        // The rename itself must be on disk before older data may go.
        File::open(folder)?.sync_all()?;
        recent::clean(folder);
        Ok(())
    }

    pub(crate) fn write_to(&self, file: &File) -> anyhow::Result<()> {
        let mut writer = std::io::BufWriter::with_capacity(256 << 10, file);
        serde_json::to_writer(&mut writer, self)?;
        writer.flush()?;
        Ok(())
    }
}

/// Takes the state folder for this process alone, until the file is dropped: two that save there would undo each other.
pub(crate) fn lock(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    let until = Instant::now() + GOING_AWAY;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => bail!("another retryscoped uses {}", folder.display()),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
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
            Ok(restored) => return Ok(Some(recent::load(folder).unwrap_or(restored))),
            Err(error) => warn!(%error, "the checkpoint cannot be read"),
        },
        Err(error) => warn!(%error, "the checkpoint cannot be read"),
    }
    let aside = folder.join(format!("{NAME}.corrupt-{}", chrono::Utc::now().timestamp()));
    fs::rename(&path, &aside).with_context(|| format!("cannot put {} aside", path.display()))?;
    warn!(kept = %aside.display(), "starting anew");
    Ok(None)
}
