//! Where the files are that were followed before the daemon was stopped.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use retryscope_scan::may_enter;
use retryscope_tail::{FileState, walk_all};

/// Folders that were looked into, each once: what stands in them, by place on disk.
pub(super) struct Folders {
    looked_into: HashMap<PathBuf, ByPlace>,
    roots: Vec<PathBuf>,
    /// What stands below the roots; looked for only when a file is not in its folder.
    below_roots: Option<ByPlace>,
}

type ByPlace = HashMap<(u64, u64), (PathBuf, Metadata)>;

impl Folders {
    pub(super) fn below(roots: &[PathBuf]) -> Self {
        Self { looked_into: HashMap::new(), roots: roots.to_vec(), below_roots: None }
    }

    /// Returns where a file stands now: under its name, under another one in its folder, as after a rotation, or elsewhere
    /// below the roots, as in an archive.
    pub(super) fn place_of(&mut self, file: &FileState) -> Option<PathBuf> {
        if std::fs::metadata(&file.path).is_ok_and(|metadata| file.identity.is_at(&metadata)) {
            return Some(file.path.clone());
        }
        let folder = file.path.parent()?;
        let names = self.looked_into.entry(folder.to_path_buf()).or_insert_with(|| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
            let found = entries.filter_map(|entry| {
                let metadata = std::fs::metadata(entry.path()).ok()?;
                Some(((metadata.dev(), metadata.ino()), (entry.path(), metadata)))
            });
            found.collect()
        });
        let at = |names: &ByPlace| {
            let (path, metadata) = names.get(&(file.identity.device, file.identity.inode))?;
            file.identity.is_at(metadata).then(|| path.clone())
        };
        at(names).or_else(|| {
            let roots = &self.roots;
            at(self.below_roots.get_or_insert_with(|| {
                let (found, _) = walk_all(roots, &may_enter);
                found
                    .into_iter()
                    .map(|f| ((f.metadata.dev(), f.metadata.ino()), (f.path, f.metadata)))
                    .collect()
            }))
        })
    }
}
