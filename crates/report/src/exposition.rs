//! The Prometheus text format, version 0.0.4, written straight into one string.
//!
//! By hand, since building a message for each of thousands of series took ten times as long as writing its line, and a
//! scrape waits for it. The daemon's own state, a few lines, goes through the library. Not for: which metrics there are (the table in [`crate::metrics`]).

use std::fmt::Write as _;

use crate::metrics::{Described, Kind};

/// Text under construction.
#[derive(Debug, Default)]
pub(crate) struct Exposition(String);

impl Exposition {
    /// Begins a metric. Every line up to the next begun metric belongs to it.
    pub(crate) fn begin(&mut self, row: &Described) {
        let kind = match row.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.write(format_args!("# HELP {} {}\n# TYPE {} {kind}\n", row.name, row.help, row.name));
    }

    /// Writes one sample; `ending` stands after the name, as histograms need it.
    pub(crate) fn sample<'a>(
        &mut self,
        row: &Described,
        ending: &str,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        value: f64,
    ) {
        self.0.push_str(row.name);
        self.0.push_str(ending);
        let mut separator = '{';
        for (name, value) in labels {
            self.0.push(separator);
            separator = ',';
            self.0.push_str(name);
            self.0.push_str("=\"");
            self.escaped(value);
            self.0.push('"');
        }
        if separator == ',' {
            self.0.push('}');
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range checked")]
        match value as u64 {
            // The same digits, found faster.
            #[expect(
                clippy::cast_precision_loss,
                clippy::float_cmp,
                reason = "only whole numbers stay the same"
            )]
            whole if value.is_sign_positive() && whole < 1 << 53 && whole as f64 == value => {
                self.write(format_args!(" {whole}\n"));
            }
            _ => self.write(format_args!(" {value}\n")),
        }
    }

    /// Returns the text.
    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn escaped(&mut self, value: &str) {
        if !value.bytes().any(|byte| matches!(byte, b'\\' | b'"' | b'\n')) {
            self.0.push_str(value);
            return;
        }
        for part in value.split_inclusive(['\\', '"', '\n']) {
            let special = part.chars().last().filter(|c| matches!(c, '\\' | '"' | '\n'));
            self.0.push_str(special.map_or(part, |c| part.strip_suffix(c).unwrap_or(part)));
            match special {
                Some('\n') => self.0.push_str("\\n"),
                Some(other) => {
                    self.0.push('\\');
                    self.0.push(other);
                }
                None => {}
            }
        }
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        self.0.write_fmt(arguments).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped() {
        let row = Described { name: "a_total", help: "Help.", kind: Kind::Counter, labels: &["l"] };
        let mut out = Exposition::default();
        out.begin(&row);
        out.sample(&row, "", [("l", "x\"y\\z\nw")].into_iter(), 2.0);
        out.sample(&row, "", std::iter::empty(), 0.5);
        assert_eq!(
            out.finish(),
            "# HELP a_total Help.\n# TYPE a_total counter\na_total{l=\"x\\\"y\\\\z\\nw\"} 2\na_total 0.5\n"
        );
    }
}
