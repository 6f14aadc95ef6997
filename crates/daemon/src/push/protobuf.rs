//! OTLP in protobuf to the JSON form of the same export: the fields that logs and spans have, nothing else.
//!
//! A reader of the wire format by hand, since two messages do not need a code generator. Field numbers:
//! <https://github.com/open-telemetry/opentelemetry-proto>. Not for: what an attribute means. Depth is bounded, every length
//! is checked, and what does not decode is an error with its place.

use std::cell::Cell;

use serde_json::{Map, Value, json};

/// Values may hold values; deeper ones are refused.
const DEPTH: u32 = 16;

/// Bytes that are not what they should be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not valid protobuf: {0}")]
pub(crate) struct Malformed(&'static str);

type Result<T> = std::result::Result<T, Malformed>;

/// Returns an export of log records as JSON.
pub(crate) fn logs(bytes: &[u8]) -> Result<Value> {
    export(bytes, "resourceLogs", "scopeLogs", "logRecords", log_record)
}

/// Returns an export of spans as JSON.
pub(crate) fn traces(bytes: &[u8]) -> Result<Value> {
    export(bytes, "resourceSpans", "scopeSpans", "spans", span)
}

/// One field of a message.
enum Field<'a> {
    Number(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Field<'a> {
    fn bytes(self) -> Result<&'a [u8]> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed("a field has another type than it should")),
        }
    }

    fn text(self) -> Result<Value> {
        Ok(Value::String(String::from_utf8_lossy(self.bytes()?).into_owned()))
    }

    fn number(&self) -> u64 {
        match self {
            Field::Number(n) | Field::Fixed64(n) => *n,
            Field::Bytes(_) | Field::Fixed32 => 0,
        }
    }

    /// 64-bit numbers are texts in JSON.
    fn number_text(&self) -> Value {
        Value::String(self.number().to_string())
    }

    fn hex(self) -> Result<Value> {
        let mut text = String::new();
        for byte in self.bytes()? {
            text.push_str(&format!("{byte:02x}"));
        }
        Ok(Value::String(text))
    }
}

thread_local! {
    /// Messages that the export which is being read may still hold.
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// Walks over the fields of a message.
fn fields<'a>(mut bytes: &'a [u8], mut each: impl FnMut(u64, Field<'a>) -> Result<()>) -> Result<()> {
    let left = LEFT.get().checked_sub(1).ok_or(Malformed("more messages than are taken"))?;
    LEFT.set(left);
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => Field::Fixed64(u64::from_le_bytes(
                take(&mut bytes, 8)?.try_into().map_err(|_| Malformed("a number is cut"))?,
            )),
            2 => {
                let length = varint(&mut bytes)?;
                Field::Bytes(take(&mut bytes, length)?)
            }
            5 => {
                take(&mut bytes, 4)?;
                Field::Fixed32
            }
            _ => return Err(Malformed("unknown wire type")),
        };
        each(key >> 3, field)?;
    }
    Ok(())
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8]> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let (taken, rest) = bytes.split_at_checked(length).ok_or(Malformed("a length is beyond the end"))?;
    *bytes = rest;
    Ok(taken)
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(Malformed("a number is cut"))?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed("a number is too long"))
}

fn export(
    bytes: &[u8],
    resources: &str,
    scopes: &str,
    records: &str,
    record: fn(&[u8]) -> Result<Value>,
) -> Result<Value> {
    LEFT.set(super::MOST_OBJECTS);
    let mut groups = Vec::new();
    fields(bytes, |number, field| {
        if number == 1 {
            groups.push(group(field.bytes()?, scopes, records, record)?);
        }
        Ok(())
    })?;
    Ok(json!({ resources: groups }))
}

fn group(bytes: &[u8], scopes: &str, records: &str, record: fn(&[u8]) -> Result<Value>) -> Result<Value> {
    let mut resource = Value::Null;
    let mut members = Vec::new();
    fields(bytes, |number, field| {
        match number {
            1 => resource = json!({"attributes": attributes(field.bytes()?, 1)?}),
            2 => {
                let mut scope = Value::Null;
                let mut list = Vec::new();
                fields(field.bytes()?, |number, field| {
                    match number {
                        1 => scope = named(field.bytes()?)?,
                        2 => list.push(record(field.bytes()?)?),
                        _ => {}
                    }
                    Ok(())
                })?;
                members.push(json!({"scope": scope, records: list}));
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(json!({"resource": resource, scopes: members}))
}

fn named(bytes: &[u8]) -> Result<Value> {
    let mut scope = Map::new();
    fields(bytes, |number, field| {
        match number {
            1 => drop(scope.insert("name".into(), field.text()?)),
            2 => drop(scope.insert("version".into(), field.text()?)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Value::Object(scope))
}

fn log_record(bytes: &[u8]) -> Result<Value> {
    let mut record = Map::new();
    let mut pairs = Vec::new();
    fields(bytes, |number, field| {
        let (name, value) = match number {
            1 => ("timeUnixNano", field.number_text()),
            11 => ("observedTimeUnixNano", field.number_text()),
            3 => ("severityText", field.text()?),
            5 => ("body", value(field.bytes()?, 0)?),
            9 => ("traceId", field.hex()?),
            10 => ("spanId", field.hex()?),
            12 => ("eventName", field.text()?),
            6 => {
                pairs.push(pair(field.bytes()?, 0)?);
                return Ok(());
            }
            _ => return Ok(()),
        };
        record.insert(name.into(), value);
        Ok(())
    })?;
    record.insert("attributes".into(), Value::Array(pairs));
    Ok(Value::Object(record))
}

fn span(bytes: &[u8]) -> Result<Value> {
    let mut span = Map::new();
    let (mut pairs, mut events) = (Vec::new(), Vec::new());
    fields(bytes, |number, field| {
        let (name, value) = match number {
            1 => ("traceId", field.hex()?),
            2 => ("spanId", field.hex()?),
            4 => ("parentSpanId", field.hex()?),
            5 => ("name", field.text()?),
            7 => ("startTimeUnixNano", field.number_text()),
            8 => ("endTimeUnixNano", field.number_text()),
            9 => {
                pairs.push(pair(field.bytes()?, 0)?);
                return Ok(());
            }
            11 => {
                events.push(event(field.bytes()?)?);
                return Ok(());
            }
            _ => return Ok(()),
        };
        span.insert(name.into(), value);
        Ok(())
    })?;
    span.insert("attributes".into(), Value::Array(pairs));
    span.insert("events".into(), Value::Array(events));
    Ok(Value::Object(span))
}

fn event(bytes: &[u8]) -> Result<Value> {
    let mut event = Map::new();
    let mut pairs = Vec::new();
    fields(bytes, |number, field| {
        match number {
            1 => drop(event.insert("timeUnixNano".into(), field.number_text())),
            2 => drop(event.insert("name".into(), field.text()?)),
            3 => pairs.push(pair(field.bytes()?, 0)?),
            _ => {}
        }
        Ok(())
    })?;
    event.insert("attributes".into(), Value::Array(pairs));
    Ok(Value::Object(event))
}

/// Returns the attributes in field `at` of a message.
fn attributes(bytes: &[u8], at: u64) -> Result<Vec<Value>> {
    let mut pairs = Vec::new();
    fields(bytes, |number, field| {
        if number == at {
            pairs.push(pair(field.bytes()?, 0)?);
        }
        Ok(())
    })?;
    Ok(pairs)
}

fn pair(bytes: &[u8], depth: u32) -> Result<Value> {
    let (mut key, mut of) = (Value::String(String::new()), json!({}));
    fields(bytes, |number, field| {
        match number {
            1 => key = field.text()?,
            2 => of = value(field.bytes()?, depth + 1)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(json!({"key": key, "value": of}))
}

fn value(bytes: &[u8], depth: u32) -> Result<Value> {
    if depth > DEPTH {
        return Err(Malformed("values are nested too deeply"));
    }
    let mut of = json!({});
    fields(bytes, |number, field| {
        of = match number {
            1 => json!({"stringValue": field.text()?}),
            2 => json!({"boolValue": field.number() != 0}),
            3 => json!({"intValue": field.number().cast_signed().to_string()}),
            4 => json!({"doubleValue": f64::from_bits(field.number())}),
            5 | 6 => {
                let mut values = Vec::new();
                fields(field.bytes()?, |inner, field| {
                    if inner == 1 && number == 5 {
                        values.push(value(field.bytes()?, depth + 1)?);
                    } else if inner == 1 {
                        values.push(pair(field.bytes()?, depth + 1)?);
                    }
                    Ok(())
                })?;
                let name = if number == 5 { "arrayValue" } else { "kvlistValue" };
                json!({ name: {"values": values} })
            }
            7 => json!({"bytesValue": field.hex()?}),
            _ => return Ok(()),
        };
        Ok(())
    })?;
    Ok(of)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    }

    fn attribute(key: &str, of: &str) -> Vec<u8> {
        [message(1, key.as_bytes()), message(2, &message(1, of.as_bytes()))].concat()
    }

    #[test]
    fn a_log_record_reads_like_its_json() {
        let time = [&[1 << 3 | 1][..], &1_000_000_000_u64.to_le_bytes()].concat();
        let record = [time, message(6, &attribute("a", "b"))].concat();
        let scope = [message(1, &message(1, b"scope")), message(2, &record)].concat();
        let resource = message(1, &attribute("service.name", "x"));
        let bytes = message(1, &[message(1, &resource), message(2, &scope)].concat());
        assert_eq!(
            logs(&bytes),
            Ok(json!({"resourceLogs": [{
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "x"}}]},
                "scopeLogs": [{"scope": {"name": "scope"}, "logRecords": [{
                    "timeUnixNano": "1000000000",
                    "attributes": [{"key": "a", "value": {"stringValue": "b"}}],
                }]}],
            }]}))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            drop(logs(&bytes));
            drop(traces(&bytes));
            drop(logs(&[message(1, &bytes[..bytes.len().min(120)])].concat()));
        }
    }
}
