//! Files to lines: reads large blocks, finds line ends, bounds memory for any line length.
//!
//! Not for: what a line means. Invariant: every byte is looked at once, and no line, however long, makes more than
//! [`LINE_LIMIT`] bytes stay in memory.

mod as_read;
mod beginning;
// Following needs to tell files apart by their place on disk, whatever their name: reading once does not.
#[cfg(unix)]
mod copies;
#[cfg(unix)]
mod follow;
#[cfg(unix)]
mod identity;
mod lines;
mod rotated;
mod shrink;
#[cfg(unix)]
mod steady;
mod walk;

pub use beginning::{FirstLines, first_lines};
#[cfg(unix)]
pub use follow::{FileState, Follower, Happening, Interest, Listener};
#[cfg(unix)]
pub use identity::Identity;
pub use lines::{LINE_LIMIT, Line, LineReader};
pub use walk::{Found, WalkProblem, walk, walk_all};
