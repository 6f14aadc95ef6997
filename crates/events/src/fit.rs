//! What of a value can be used, where not all of it can: one odd part costs itself, not the parts beside it.
//!
//! Not for: judging a line (`schema check` does). What is left out here is kept in `Event::extra`.

use serde_json::{Map, Value};

use crate::body::Body;
use crate::read::ReadError;

/// A field of the envelope, as other programs may write it.
pub(crate) trait FromValue: Sized {
    /// Returns the value; `None` for one of another kind.
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

impl FromValue for u64 {
    fn from_value(value: &Value) -> Option<Self> {
        value.as_u64()
    }
}

/// Returns a body of the fields that can be used, and puts into `odd` what cannot.
pub(crate) fn body(
    kind: &str,
    fields: Map<String, Value>,
    odd: &mut Map<String, Value>,
) -> Result<Body, ReadError> {
    if let Ok(body) = Body::from_fields(kind, Value::Object(fields.clone())) {
        return Ok(body);
    }
    let mut good = Map::new();
    for (name, value) in fields {
        let is_fit = |value: &Value| {
            let single = Map::from_iter([(name.clone(), value.clone())]);
            Body::from_fields(kind, Value::Object(single)).is_ok()
        };
        let (used, left) = split(value, &is_fit);
        if let Some(left) = left {
            odd.insert(name.clone(), left);
        }
        if let Some(used) = used {
            good.insert(name, used);
        }
    }
    Ok(Body::from_fields(kind, Value::Object(good))?)
}

/// Returns what of a value can be used and what cannot.
fn split(value: Value, is_fit: &dyn Fn(&Value) -> bool) -> (Option<Value>, Option<Value>) {
    if is_fit(&value) {
        return (Some(value), None);
    }
    let nothing = || Value::Object(Map::new());
    match value {
        Value::Object(parts) if is_fit(&nothing()) => {
            let (good, odd): (Map<_, _>, Map<_, _>) = parts.into_iter().partition(|(name, part)| {
                is_fit(&Value::Object(Map::from_iter([(name.clone(), part.clone())])))
            });
            ((!good.is_empty()).then_some(Value::Object(good)), Some(Value::Object(odd)))
        }
        Value::Array(elements) if is_fit(&Value::Array(Vec::new())) => {
            let is_fit = |element: &Value| is_fit(&Value::Array(vec![element.clone()]));
            // Where elements are objects, each keeps its place: who is first in a list is told by it.
            let holds_place = is_fit(&nothing());
            let (mut good, mut odd) = (Vec::new(), Vec::new());
            for element in elements {
                let (used, left) = split(element, &is_fit);
                good.extend(used.or_else(|| holds_place.then(nothing)));
                odd.extend(left);
            }
            ((!good.is_empty()).then_some(Value::Array(good)), Some(Value::Array(odd)))
        }
        value => (None, Some(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::envelope::Event;
    use crate::read::parse_line;

    fn read(line: &serde_json::Value) -> Event {
        parse_line(line.to_string().as_bytes()).unwrap().remove(0)
    }

    /// What the body of an event of this type and these fields says, and what it could not use.
    fn of(kind: &str, mut fields: serde_json::Value) -> (serde_json::Value, serde_json::Value, Vec<String>) {
        fields["type"] = kind.into();
        fields["run_id"] = "r".into();
        let event = read(&fields);
        let unusable = event.unusable().map(str::to_owned).collect();
        (event.body.to_fields().unwrap(), event.extra.clone().into(), unusable)
    }

    #[test]
    fn an_odd_part_costs_itself_only() {
        let candidate = json!({"provider": "openai", "model": "gpt-5", "account": 7});
        let good = json!({"provider": "openai", "model": "gpt-5"});
        assert_eq!(
            of("model.request", json!({"candidate": candidate, "stream": true})),
            (
                json!({"candidate": good, "stream": true}),
                json!({"candidate": {"account": 7}}),
                vec!["candidate".to_owned()]
            )
        );
        let usage = json!({"input_tokens": "many", "output_tokens": 3});
        let (body, extra, _) = of("model.response", json!({"usage": usage}));
        assert_eq!(
            (body, extra),
            (json!({"usage": {"output_tokens": 3}}), json!({"usage": {"input_tokens": "many"}}))
        );
        let budget = json!({"kind": 1, "used": 2.0});
        let (body, _, _) = of("model.retry", json!({"budget": budget}));
        assert_eq!(body, json!({"budget": {"used": 2.0}}));
    }

    #[test]
    fn elements_of_a_list_keep_their_place() {
        let (body, extra, unusable) =
            of("run.started", json!({"candidates": ["gpt", {"model": "m", "account": 7}, {"model": "n"}]}));
        assert_eq!(body, json!({"candidates": [{}, {"model": "m"}, {"model": "n"}]}));
        assert_eq!(extra, json!({"candidates": ["gpt", {"account": 7}]}));
        assert_eq!(unusable, ["candidates"]);
        let (body, _, _) = of("model.retry", json!({"changed": ["credential", 5]}));
        assert_eq!(body, json!({"changed": ["credential"]}));
    }

    #[test]
    fn a_value_of_another_kind_is_left_out_whole() {
        for (kind, name, value) in [
            ("model.request", "candidate", json!("gpt")),
            ("model.request", "candidate", json!({"account": 7})),
            ("model.retry", "layer", json!({"sdk": null, "x": 1})),
            ("model.retry", "attempt", json!("first")),
            ("model.failed", "candidates_tried", json!({"model": "m"})),
        ] {
            let (body, extra, unusable) = of(kind, json!({name: value}));
            assert_eq!((body, extra), (json!({}), json!({name: value})), "{kind} {name}");
            assert_eq!(unusable, [name]);
        }
    }

    #[test]
    fn flat_parts_beside_an_odd_candidate_are_used() {
        let (body, _, unusable) = of("model.request", json!({"candidate": "gpt", "provider": "p"}));
        assert_eq!((body, unusable), (json!({"candidate": {"provider": "p"}}), vec!["candidate".to_owned()]));
        let (body, _, unusable) = of("model.request", json!({"candidate": {"provider": 5}, "provider": "p"}));
        assert_eq!((body, unusable), (json!({"candidate": {"provider": "p"}}), vec!["candidate".to_owned()]));
        let (body, _, unusable) = of("model.request", json!({"model": "m", "account": 7}));
        assert_eq!((body, unusable), (json!({"candidate": {"model": "m"}}), vec!["account".to_owned()]));
    }

    #[test]
    fn the_envelope_is_read_by_the_same_rule() {
        let line = json!({"type": "model.request", "run_id": "r", "turn": 2, "seq": "first", "agent": ["a"], "ts": "noon"});
        let event = read(&line);
        assert_eq!(
            (event.turn.as_deref(), event.seq, event.agent.as_deref(), event.ts),
            (Some("2"), None, None, None)
        );
        assert_eq!(event.unusable().collect::<Vec<_>>(), ["agent", "seq", "ts"]);
        // What this version does not know is not unusable, and what is null is not said.
        let line = json!({"type": "model.fallback", "run_id": "r", "provider": 7, "new": {}, "agent": null, "from": null});
        assert_eq!(read(&line).unusable().count(), 0);
    }
}
