//! gRPC's own statuses where a text states one: they mean what an HTTP status means.

/// Names as gRPC's libraries write them, without underscores and in lower case, their numbers, and the HTTP statuses
/// that `google.rpc.Code` maps them to.
const STATUSES: &[(&str, u16, u16)] = &[
    ("cancelled", 1, 499),
    ("canceled", 1, 499),
    ("invalidargument", 3, 400),
    ("deadlineexceeded", 4, 504),
    ("notfound", 5, 404),
    ("alreadyexists", 6, 409),
    ("permissiondenied", 7, 403),
    ("resourceexhausted", 8, 429),
    ("failedprecondition", 9, 400),
    ("aborted", 10, 409),
    ("outofrange", 11, 400),
    ("unimplemented", 12, 501),
    ("internal", 13, 500),
    ("unavailable", 14, 503),
    ("dataloss", 15, 500),
    ("unauthenticated", 16, 401),
];

/// Returns the HTTP status of the gRPC status that `text` states: "rpc error: code = Internal desc = ...",
/// `StatusCode.UNAVAILABLE`, `14 UNAVAILABLE: ...`, `status: NotFound, message: ...`, `[not_found] ...`.
pub(super) fn status_in(text: &str) -> Option<u16> {
    behind(text, "code = ", " desc").or_else(|| behind(text, "StatusCode.", "")).or_else(|| {
        let front = ["status: ", "code: "].iter().find_map(|lead| behind(text, lead, ", message"));
        front.or_else(|| numbered(text)).or_else(|| bracketed(text))
    })
}

fn behind(text: &str, lead: &str, tail: &str) -> Option<u16> {
    let (_, rest) = text.split_once(lead)?;
    let (name, after) = split_name(rest);
    http_status(name, None).filter(|_| after.starts_with(tail))
}

/// The library for Node prints the number in front of the name.
fn numbered(text: &str) -> Option<u16> {
    let text = text.strip_prefix("Error: ").unwrap_or(text);
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number = text.get(..digits).filter(|digits| digits.len() <= 2)?.parse().ok()?;
    let (name, after) = split_name(text.get(digits..)?.strip_prefix(' ')?);
    http_status(name, Some(number)).filter(|_| after.starts_with(':'))
}

/// Connect prints the name in brackets, in front of all or behind the name of its exception.
fn bracketed(text: &str) -> Option<u16> {
    let rest = text.strip_prefix('[').or_else(|| Some(text.split_once("ConnectError: [")?.1))?;
    let (name, after) = split_name(rest);
    http_status(name, None).filter(|_| after.starts_with("] "))
}

fn split_name(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(text.len());
    text.split_at(end)
}

/// Returns the HTTP status of a gRPC status by its name, in any spelling.
pub(super) fn http_status(name: &str, number: Option<u16>) -> Option<u16> {
    if name.len() < 6 {
        return None;
    }
    let plain = || name.bytes().filter(|b| *b != b'_').map(|b| b.to_ascii_lowercase());
    STATUSES
        .iter()
        .find(|(known, own, _)| plain().eq(known.bytes()) && number.is_none_or(|number| number == *own))
        .map(|&(_, _, http)| http)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_the_libraries() {
        for (text, status) in [
            ("rpc error: code = Internal desc = x", Some(500)),
            ("StatusCode.UNAVAILABLE", Some(503)),
            ("13 INTERNAL: x", Some(500)),
            ("status: NotFound, message: \"x\"", Some(404)),
            ("[failed_precondition] x", Some(400)),
            ("ConnectError: [unavailable] x", Some(503)),
            // A number of another name, a tag of a log, and prose.
            ("3 INTERNAL: x", None),
            ("[internal]", None),
            ("the code = internal affair", None),
            ("[error] x", None),
        ] {
            assert_eq!(status_in(text), status, "{text}");
        }
    }
}
