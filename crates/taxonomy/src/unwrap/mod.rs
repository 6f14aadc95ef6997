//! Takes an error apart into layers, from the innermost cause to the outermost wrapper.
//!
//! Gateways, SDKs and agents wrap what a provider said: JSON inside strings, Python prints after a sentence, a
//! cause after "last error:", an HTML page. Each becomes a [`Layer`] of its own, so that the words of a wrapper
//! cannot outvote the cause. Not for deciding what a layer means; the tables do that.
//!
//! Bounded: [`MAX_DEPTH`] wrappings, [`MAX_TEXT`] bytes, [`MAX_LAYERS`] layers. Never fails: what cannot be taken
//! apart stays a text.

mod fields;
mod fold;
mod frames;
mod grpc;
mod html;
mod leads;
mod lenient;
mod names;
mod spell;
mod status;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use serde_json::Value;

pub(crate) use fields::wait_unit;
use fields::{CAUSE_KEYS, CODE_KEYS, SILENT_KEYS, is_number, is_wait_field, protobuf_duration};
pub(crate) use fold::fold;
use fold::fold_with_names;
pub(crate) use status::{status_of_name, status_of_phrase};

/// Wrappings inside wrappings beyond this are read as plain text.
const MAX_DEPTH: usize = 8;
/// Of a longer text only the beginning and the end are read: the end of a stream holds its error.
const MAX_TEXT: usize = 64 * 1024;
const MAX_LAYERS: usize = 48;
/// The code of a layer that is a page.
pub(crate) const HTML_PAGE: &str = "html_page";
/// Braces in one text that are tried as the start of an object.
const MAX_SPANS: usize = 24;

/// One wrapping of an error: what it says about itself, without the layers inside it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layer {
    /// The status that this layer itself states.
    pub(crate) status: Option<u16>,
    /// Whether `status` was found in a sentence instead of a field.
    pub(crate) status_in_words: bool,
    /// Values of fields that hold codes, in lower case.
    pub(crate) codes: Vec<String>,
    /// The words, folded.
    pub(crate) text: String,
    /// Where quoted names stand in `text`.
    pub(crate) names: Vec<Range<usize>>,
    /// Where leads stand in `text`: phrases of the way to a cause that follows them.
    pub(crate) leads: Vec<Range<usize>>,
    /// Fields that state a wait or a reset time, and headers kept in the body, by lower-case name.
    pub(crate) fields: Vec<(String, String)>,
    /// Whether this came from the body, rather than from what a client printed.
    pub(crate) from_body: bool,
}

impl Layer {
    fn of_text(raw: &str, status: Option<u16>) -> Self {
        let mut layer = Self { status, status_in_words: true, ..Self::default() };
        layer.say(raw);
        layer
    }

    fn say(&mut self, words: &str) {
        (self.text, self.names) = fold_with_names(words);
        self.leads = leads::leads(&self.text);
    }

    /// Whether `place` in `text` is in no lead; with `behind`, also behind one.
    pub(crate) fn is_outside_leads(&self, place: Range<usize>, behind: bool) -> bool {
        let is_behind = || self.leads.first().is_some_and(|first| first.end <= place.start);
        (!behind || is_behind())
            && !self.leads.iter().any(|lead| lead.start < place.end && place.start < lead.end)
    }

    /// What a log keeps as the code of a failure, beside its text.
    pub(crate) fn of_code(code: &str) -> Self {
        let mut layer = Self { text: fold(code), ..Self::default() };
        push_code(&mut layer, code);
        layer
    }
}

/// Returns the layers of an error, innermost first; those of the body before those of the message.
pub(crate) fn layers(body: Option<&str>, message: Option<&str>) -> Vec<Layer> {
    Unwrapping::default().layers_of(body, message)
}

/// The same layers with identifiers and codes spelled out as the words that they are made of: what no table knows as a
/// code may still be plain language.
pub(crate) fn spelled_layers(body: Option<&str>, message: Option<&str>) -> Vec<Layer> {
    Unwrapping { spells: true, ..Unwrapping::default() }.layers_of(body, message)
}

fn ends_of(text: &str) -> (&str, Option<&str>) {
    if text.len() <= MAX_TEXT {
        return (text, None);
    }
    let head = text.floor_char_boundary(MAX_TEXT / 2);
    let tail = text.ceil_char_boundary(text.len() - MAX_TEXT / 2);
    (text.get(..head).unwrap_or_default(), text.get(tail..))
}

/// Phrases after which the cause follows.
const CAUSE_MARKERS: &[&str] = &[
    "Exception - ",
    "API Error: ",
    "API error: ",
    "last error: ",
    "Last error: ",
    "Last Error: ",
    "before completion: ",
    "riginal exception: ",
    "riginal error: ",
    "aused by: ",
    "[cause]: ",
    "(cause: ",
    "\ncause: ",
    " cause: ",
    "pstream error: ",
    "pstream request failed: ",
    "nderlying error: ",
    "nner exception: ",
];

/// Where a wrapper begins to speak again after the cause.
const CAUSE_ENDS: &[&str] = &["Received Model Group", "Handle with `litellm", "Available Model Group"];

/// `None` only if the words did not compile, which a test excludes.
fn markers() -> Option<&'static AhoCorasick> {
    static MARKERS: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    MARKERS.get_or_init(|| AhoCorasick::new(CAUSE_MARKERS).ok()).as_ref()
}

#[derive(Default)]
struct Unwrapping {
    layers: Vec<Layer>,
    from_body: bool,
    /// Whether identifiers become words.
    spells: bool,
}

impl Unwrapping {
    fn layers_of(mut self, body: Option<&str>, message: Option<&str>) -> Vec<Layer> {
        for (text, from_body) in [(body, true), (message, false)] {
            let Some(text) = text else { continue };
            self.from_body = from_body;
            let (head, tail) = ends_of(text);
            if let Some(tail) = tail {
                self.text(tail, 0);
            }
            self.text(head, 0);
        }
        self.layers
    }

    fn layer_of(&self, raw: &str, status: Option<u16>) -> Layer {
        Layer::of_text(&self.words(raw), status)
    }

    fn words<'t>(&self, raw: &'t str) -> Cow<'t, str> {
        let words = frames::without_frames(raw);
        if self.spells { Cow::Owned(spell::spelled_out(&words)) } else { words }
    }

    fn push(&mut self, layer: Layer) {
        let says_something = layer.status.is_some()
            || !layer.codes.is_empty()
            || !layer.text.trim().is_empty()
            || !layer.fields.is_empty();
        if says_something && self.layers.len() < MAX_LAYERS {
            self.layers.push(Layer { from_body: self.from_body, ..layer });
        }
    }

    fn text(&mut self, raw: &str, depth: usize) {
        let raw = raw.trim();
        if raw.is_empty() || self.layers.len() >= MAX_LAYERS {
            return;
        }
        if depth >= MAX_DEPTH {
            self.push_text(raw);
            return;
        }
        if let Some(inner) = lenient::parse_string(raw) {
            self.text(&inner, depth + 1);
            return;
        }
        if html::is_html(raw) {
            // A client puts the status in front of the page.
            let status = raw.split_inclusive('<').next().and_then(status::status_in);
            let page = html::text_of(raw);
            let mut layer = self.layer_of(&page, status.or_else(|| status::status_in(&page)));
            layer.codes.push(HTML_PAGE.to_owned());
            self.push(layer);
            return;
        }
        let own = self.take_objects(raw, depth);
        match split_at_cause(&own) {
            Some((wrapper, marker, cause)) => {
                self.text(cause, depth + 1);
                // The marker itself is a cue for a number right behind it ("API Error: 400 due to ..."). What follows the
                // number may be any words, so the cause alone would not show it to be a status.
                let leading = cause.bytes().take_while(u8::is_ascii_digit).count();
                let behind = cause.get(..leading).filter(|digits| digits.len() == 3);
                let status = behind.and_then(|digits| status::status_in(&format!("{marker}{digits}")));
                let status = status::status_in(wrapper).or(status);
                self.push(self.layer_of(wrapper, status));
            }
            None => self.push_text(&own),
        }
    }

    fn push_text(&mut self, raw: &str) {
        self.push(self.layer_of(raw, status::status_in(raw)));
    }

    /// Unwraps each object in `raw` and returns what stands around them.
    fn take_objects(&mut self, raw: &str, depth: usize) -> String {
        let mut own = String::new();
        let mut rest = raw;
        let mut tried = 0;
        while let Some(open) = rest.find(['{', '[']) {
            let candidate = rest.get(open..).unwrap_or_default();
            tried += 1;
            if tried > MAX_SPANS {
                break;
            }
            if let Some((value, len)) = lenient::parse_prefix(candidate) {
                // The cut keeps a brace, so that a cue such as "429 {" is still one.
                own.push_str(rest.get(..open).unwrap_or_default());
                own.push_str("{} ");
                let key = key_before(rest.get(..open).unwrap_or_default());
                self.value(&value, key, depth + 1);
                rest = candidate.get(len..).unwrap_or_default();
            } else {
                own.push_str(rest.get(..=open).unwrap_or_default());
                rest = candidate.get(1..).unwrap_or_default();
            }
        }
        own.push_str(rest);
        own
    }

    fn value(&mut self, value: &Value, key: &str, depth: usize) {
        let mut layer = Layer::default();
        let mut words = String::new();
        self.collect(value, key, depth, &mut layer, &mut words, 0);
        layer.status_in_words = layer.status.is_none();
        layer.status = layer.status.or_else(|| status::status_in(&words));
        layer.say(&self.words(&words));
        self.push(layer);
    }

    fn collect(
        &mut self,
        value: &Value,
        key: &str,
        depth: usize,
        layer: &mut Layer,
        words: &mut String,
        nesting: usize,
    ) {
        if nesting > MAX_DEPTH * 4 {
            return;
        }
        match value {
            Value::Object(map) => {
                if key.to_ascii_lowercase().ends_with("headers") {
                    take_headers(map, layer);
                    return;
                }
                if let Some(wait) =
                    protobuf_duration(map).filter(|_| is_wait_field(&key.to_ascii_lowercase()))
                {
                    layer.fields.push((key.to_ascii_lowercase(), wait));
                    return;
                }
                if map.get("key").and_then(Value::as_str) == Some(QUOTA_VALUE) {
                    // As protobuf prints an entry of a map.
                    push_quota_value(layer, map.get("value").and_then(Value::as_str).unwrap_or_default());
                }
                for (name, inner) in map {
                    self.collect(inner, name, depth, layer, words, nesting + 1);
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.collect(item, key, depth, layer, words, nesting + 1);
                }
            }
            Value::String(text) => self.collect_text(text, key, depth, layer, words),
            Value::Number(number) => collect_number(&number.to_string(), key, layer),
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn collect_text(&mut self, text: &str, key: &str, depth: usize, layer: &mut Layer, words: &mut String) {
        let name = key.to_ascii_lowercase();
        if SILENT_KEYS.contains(&name.as_str()) {
            return;
        }
        if is_wait_field(&name) {
            layer.fields.push((name, text.to_owned()));
            return;
        }
        if is_number(text) {
            if name == QUOTA_VALUE {
                push_quota_value(layer, text);
            }
            collect_number(text, key, layer);
            return;
        }
        if CODE_KEYS.contains(&name.as_str()) && !text.contains(['{', '\n']) && text.len() <= 200 {
            push_code(layer, text);
            if name == "blockreason" {
                // That there is a reason says more than which one it is.
                layer.codes.push(name);
            }
            // A code with spaces is a sentence ("Too Many Requests") and may carry the only words there are.
            if text.contains(' ') || !text.is_ascii() || self.spells {
                words.push_str(text);
                words.push('\n');
            }
            return;
        }
        let wraps = CAUSE_KEYS.contains(&name.as_str()) || looks_wrapped(text);
        if CAUSE_KEYS.contains(&name.as_str()) && is_one_word(text) {
            // All that an upstream says is no echo of the request: it is its code.
            let mut cause = self.layer_of(text, None);
            push_code(&mut cause, text);
            self.push(cause);
        } else if wraps && depth < MAX_DEPTH {
            self.text(text, depth + 1);
        } else {
            words.push_str(text);
            words.push('\n');
        }
    }
}

/// The name of an object that stands in a text: protobuf prints `retry_delay { seconds: 12 }`.
fn key_before(lead: &str) -> &str {
    let lead = lead.trim_end_matches([' ', ':', '=']);
    let key = lead.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
    if is_wait_field(&key.to_ascii_lowercase()) { key } else { "" }
}

/// Google's name for how much a quota holds at all.
const QUOTA_VALUE: &str = "quota_limit_value";

/// That a quota holds nothing says more than over which time.
fn push_quota_value(layer: &mut Layer, value: &str) {
    if value == "0" {
        layer.codes.push(format!("{QUOTA_VALUE}: 0"));
    }
}

fn is_one_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_')
}

fn looks_wrapped(text: &str) -> bool {
    text.contains(['{', '<']) || markers().is_some_and(|markers| markers.is_match(text))
}

fn push_code(layer: &mut Layer, text: &str) {
    // AWS prefixes and suffixes its exception names: "com.amazon#ThrottlingException", "ThrottlingException:http://..".
    let bare = text.rsplit('#').next().unwrap_or(text);
    let bare = bare.split_once(":http").map_or(bare, |(name, _)| name);
    layer.codes.push(bare.trim().to_lowercase());
}

fn collect_number(text: &str, key: &str, layer: &mut Layer) {
    let name = key.to_ascii_lowercase();
    if is_wait_field(&name) {
        layer.fields.push((name, text.to_owned()));
        return;
    }
    let is_status_field = name.ends_with("status")
        || name.ends_with("statuscode")
        || name.ends_with("status_code")
        || matches!(name.as_str(), "code" | "error_code" | "errorcode");
    if !is_status_field {
        return;
    }
    let status = text.parse::<u16>().ok().filter(|number| (400..600).contains(number));
    match status {
        Some(status) => layer.status = layer.status.or(Some(status)),
        None => layer.codes.push(text.to_owned()),
    }
}

fn take_headers(map: &serde_json::Map<String, Value>, layer: &mut Layer) {
    for (name, value) in map {
        let name = name.to_ascii_lowercase();
        if CODE_KEYS.contains(&name.as_str()) {
            if let Some(text) = value.as_str() {
                push_code(layer, text);
            }
            continue;
        }
        // Go keeps a list for each name.
        let value = value.as_array().and_then(|sent| sent.first()).unwrap_or(value);
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => continue,
        };
        layer.fields.push((name, text));
    }
}

/// Splits a text into what the wrapper says, the marker, and the cause that the wrapper names.
fn split_at_cause(text: &str) -> Option<(&str, &str, &str)> {
    // The last marker is the innermost one.
    let marker = markers()?.find_iter(text).last()?;
    let cause = text.get(marker.end()..)?;
    let end = CAUSE_ENDS.iter().filter_map(|mark| cause.find(mark)).min().unwrap_or(cause.len());
    let cause = cause.get(..end)?.trim();
    let is_only_a_cut_object = cause.trim_matches(['{', '}', ' ', '.', ')']).is_empty();
    (!is_only_a_cut_object).then_some((text.get(..marker.start())?, text.get(marker.range())?, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn innermost(body: Option<&str>, message: Option<&str>) -> Layer {
        layers(body, message).into_iter().next().expect("a layer")
    }

    #[test]
    fn json_inside_strings() {
        let body = r#"{"error":{"message":"{\"error\":{\"code\":503,\"message\":\"busy\",\"status\":\"UNAVAILABLE\"}}","code":500}}"#;
        let layer = innermost(Some(body), None);
        assert_eq!((layer.status, layer.text.trim()), (Some(503), "busy"));
        assert_eq!(layer.codes, ["unavailable"]);
    }

    #[test]
    fn python_print_behind_a_sentence() {
        let text =
            "Error code: 503 - {'type': 'error', 'error': {'type': 'overloaded_error', 'message': None}}";
        let all = layers(None, Some(text));
        assert_eq!(
            all.first().map(|layer| layer.codes.clone()),
            Some(vec!["overloaded_error".into(), "error".into()])
        );
        assert_eq!(all.last().and_then(|layer| layer.status), Some(503));
    }

    #[test]
    fn the_cause_behind_a_marker() {
        let text = "litellm.InternalServerError: SomeException - gone fishing. Received Model Group=x";
        assert_eq!(innermost(None, Some(text)).text, "gone fishing.");
    }

    #[test]
    fn array_and_page() {
        let layer = innermost(Some(r#"[{"error":{"code":429,"message":"later"}}]"#), None);
        assert_eq!((layer.status, layer.text.trim()), (Some(429), "later"));
        let layer = innermost(Some("<html><title>502 Bad Gateway</title></html>"), None);
        assert_eq!(layer.status, Some(502));
    }

    #[test]
    fn long_text_keeps_its_end() {
        let body = format!("{}\ndata: {{\"error\":{{\"type\":\"overloaded_error\"}}}}", "x".repeat(200_000));
        assert!(
            layers(Some(&body), None).iter().any(|layer| layer.codes.iter().any(|c| c == "overloaded_error"))
        );
    }
}
