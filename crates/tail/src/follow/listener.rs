//! Who takes what a follower finds, and the words between them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::lines::Line;

/// Bytes of a new file that the listener sees before it decides.
pub(super) const HEAD: usize = 16 << 10;

/// How a file is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interest {
    /// Not at all for now; asked again when there is more to tell it by.
    None,
    /// Not at all, whatever comes.
    Never,
    /// What comes from now on, line by line.
    LinesFromEnd,
    /// Line by line as it grows.
    Lines,
    /// As a whole, again after each change.
    Whole,
}

/// What happened to a file, for counting and logging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// It was renamed and is read on.
    Renamed {
        /// Its path now.
        to: PathBuf,
    },
    /// It was cut and is read from its start.
    Truncated {
        /// Bytes that may have been lost between the last reading and the cut; 0 when a copy of them was read.
        possible_loss: Option<u64>,
    },
    /// It was rewritten.
    Rewritten,
    /// It is gone.
    Removed,
    /// It cannot be read for now.
    Unreadable {
        /// Why, as the system says it.
        message: String,
    },
}

/// Takes what a follower finds. `id` is the follower's number of the source, stable over restarts.
pub trait Listener {
    /// Decides about a file seen for the first time, by its path and first bytes. `before` is the source that stood at the
    /// same path until now, whose log this file may continue.
    fn opened(&mut self, id: u32, path: &Path, head: &[u8], before: Option<u32>) -> Interest;
    /// Takes a line of a file.
    fn line(&mut self, id: u32, line: Line<'_>);
    /// Says whether what stands after the last line end is a whole line, so that no more can come that belongs to it.
    fn is_whole_line(&self, _bytes: &[u8]) -> bool {
        false
    }
    /// Is told that a file of interest [`Interest::Whole`] is new or has changed.
    fn whole(&mut self, id: u32, path: &Path);
    /// Decides what another beginning, or another file in the same place, means: true = the source was rewritten and what
    /// was taken of it must be forgotten; false = its log goes on in the new file.
    fn replaced(&mut self, id: u32) -> bool;
    /// Says whether a file holds one document, which is written anew when it is cut, where a log would go on.
    fn is_document(&self, _id: u32) -> bool {
        false
    }
    /// Is told that everything taken from a source is void; its lines come again.
    fn reset(&mut self, id: u32);
    /// Is told what happened.
    fn happened(&mut self, id: u32, happening: Happening);
}

/// Hears nothing: for lines that are passed over.
pub(super) struct Deaf;

impl Listener for Deaf {
    fn opened(&mut self, _: u32, _: &Path, _: &[u8], _: Option<u32>) -> Interest {
        Interest::None
    }
    fn line(&mut self, _: u32, _: Line<'_>) {}
    fn whole(&mut self, _: u32, _: &Path) {}
    fn replaced(&mut self, _: u32) -> bool {
        false
    }
    fn reset(&mut self, _: u32) {}
    fn happened(&mut self, _: u32, _: Happening) {}
}
