//! Which turn a signal is of, where some signals name their turn and others do not.
//!
//! Log records name none, and a span that ends early is exported before the one that names the turn. What is told without a
//! name stays in its turn when the name is learned; the name then only tells which turn of another log this is.

/// How far the name of the running turn is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Course {
    /// Nothing was asked in it.
    #[default]
    Unknown,
    /// What was told names no turn; the name that was learned later.
    Nameless(Option<String>),
    Named(String),
}

impl Course {
    /// Takes the name that the next signal gives, which may be a request. Returns the turn it is told under, and the name
    /// if it is learned now.
    pub(super) fn take(&mut self, turn: Option<&str>, asks: bool) -> (Option<String>, Option<String>) {
        let Some(turn) = turn else {
            if asks && *self == Self::Unknown {
                *self = Self::Nameless(None);
            }
            return (None, None);
        };
        match self {
            Self::Nameless(name) if name.is_none() => {
                *name = Some(turn.to_owned());
                (None, name.clone())
            }
            Self::Nameless(name) if name.as_deref() == Some(turn) => (None, None),
            _ => {
                *self = Self::Named(turn.to_owned());
                (Some(turn.to_owned()), None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_comes_late_opens_no_turn() {
        let mut course = Course::default();
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(course.take(None, true), (None, None));
        assert_eq!(course.take(Some("u"), false), (None, name("u")));
        assert_eq!(course.take(Some("u"), true), (None, None));
        assert_eq!(course.take(None, true), (None, None));
        // Another name is another turn.
        assert_eq!(course.take(Some("v"), true), (name("v"), None));
        assert_eq!(course.take(Some("w"), true), (name("w"), None));
    }

    #[test]
    fn a_turn_that_is_named_before_something_is_asked_has_that_name() {
        let mut course = Course::default();
        assert_eq!(course.take(None, false), (None, None));
        assert_eq!(course.take(Some("u"), true).0.as_deref(), Some("u"));
        // What names none is of the turn that is open.
        assert_eq!(course.take(None, true), (None, None));
        assert_eq!(course.take(Some("u"), true).0.as_deref(), Some("u"));
    }
}
