//! Words against the status: what a hit counts for, given where it stands and what status came with it.

use crate::Class;
use crate::table::Row;
use crate::unwrap::{HTML_PAGE, Layer};

/// Where a hit stands; what says more is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// Inside a quoted name, which the sender chose.
    Name,
    /// In a sentence.
    Words,
    /// As the whole value of a field for codes.
    Field,
}

/// Returns where the words of a row must stand at least to count.
///
/// A name can only be what is wrong with a request. And where the status says that the request is wrong, or that it was
/// refused, words that every provider shares do not tell of the way or the load: they are what the request held, or what
/// a client says around it. Providers that do answer so have rows of their own, or send a code. Throttles are sent with
/// 403, too.
pub(crate) fn least_place(row: &Row, shared: bool, status: Option<u16>) -> Standing {
    match row.class {
        Class::InvalidRequest | Class::TooLarge => Standing::Name,
        Class::Transient | Class::Throttled | Class::Cancelled | Class::Unknown
            if shared
                && (blames_request(status) || refuses(status, row.class))
                && !status.is_some_and(|status| row.status.contains(&status)) =>
        {
            Standing::Field
        }
        _ => Standing::Words,
    }
}

/// Whether the status says that the request itself is wrong.
pub(crate) fn blames_request(status: Option<u16>) -> bool {
    matches!(status, Some(400 | 404 | 405 | 406 | 410 | 411 | 414 | 415 | 417 | 422))
}

/// Whether the status says that the sender may not, cannot pay or sent too much, which is not a matter of the moment.
fn refuses(status: Option<u16>, class: Class) -> bool {
    match status {
        Some(401 | 402 | 407 | 413) => true,
        Some(403) => class != Class::Throttled,
        _ => false,
    }
}

/// Whether the status knows better than a row for a code that covers many causes: `invalid_request_error` is sent with
/// refused keys, spent budgets and closed servers, too, and `server_error` by gateways with whatever they refuse or put off.
pub(crate) fn is_outvoted(row: &Row, status: Option<u16>) -> bool {
    let is_coarse = row.weak && !row.code.is_empty();
    is_coarse
        && match row.class {
            Class::InvalidRequest => status.is_some_and(|status| status >= 400) && !blames_request(status),
            Class::Transient => refuses(status, row.class) || status == Some(429),
            _ => false,
        }
}

/// Words of what passes: beside them, a guess at a refusal is none.
const PASSING: &[&str] = &[
    "temporar",
    "currently",
    "overload",
    "busy",
    "timeout",
    "timed out",
    "try again",
    "please retry",
    "retry the",
    "retry your",
    "retry later",
    "maintenance",
    "please wait",
    "contact your administrator",
    "contact the administrator",
    "稍后",
    "重试",
    "繁忙",
    "拥挤",
    "later",
    "vorübergehend",
    "später",
    "plus tard",
    "tarde",
    "позже",
];

/// Whether a firm guess goes before a row that was chosen by the status alone.
///
/// Gateways answer with 500 to 503 whatever an upstream refused, and with 429 whoever is to send nothing more. What is
/// too large or malformed is never answered with 429.
pub(crate) fn outweighs_status(guess: &Row, by_status: &Row, status: u16, layers: &[Layer]) -> bool {
    let is_open = match status {
        429 => matches!(guess.class, Class::Exhausted | Class::Auth),
        500 | 502 | 503 => true,
        _ => false,
    };
    guess.firm
        && is_open
        && by_status.class.is_retryable()
        && !layers.iter().any(|layer| {
            // A page says much that is not about its cause.
            layer.codes.iter().any(|code| code == HTML_PAGE)
                || PASSING.iter().any(|word| layer.text.contains(word))
        })
}
