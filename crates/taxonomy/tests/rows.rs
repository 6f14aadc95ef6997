//! Every row's samples, through the front door: this very row must decide, with what it promises.

use retryscope_taxonomy::{Class, Failure, Row, Sample, Table, classify, export};

fn judge(table: &Table, sample: &Sample) -> retryscope_taxonomy::Judgement {
    let headers: Vec<(&str, &str)> = sample
        .headers
        .iter()
        .map(|line| {
            line.split_once(':').map(|(name, value)| (name.trim(), value.trim())).expect("name: value")
        })
        .collect();
    let own = (!table.shared).then_some(table.name.as_str());
    classify(&Failure {
        provider: sample.provider.as_deref().or(own),
        status: sample.status,
        headers: &headers,
        body: sample.body.as_deref(),
        code: sample.code.as_deref(),
        message: sample.message.as_deref(),
        now: None,
    })
}

/// Whether a piece of advice is against a retry.
fn says_no(advice: &str) -> bool {
    ["do not retry", "nothing to retry"].iter().any(|no| advice.starts_with(no))
}

fn check(table: &Table, row: &Row, sample: &Sample) -> Vec<String> {
    let rule = format!("{}/{}", table.name, row.id);
    let got = judge(table, sample);
    let mut wrong = Vec::new();
    if got.rule != rule || got.class != row.class || got.reason != row.reason {
        wrong.push(format!("{rule}: decided by {} as {}/{}", got.rule, got.class, got.reason));
    }
    let retryable = sample.retryable.or(row.retryable).unwrap_or_else(|| row.class.is_retryable());
    if got.retryable != retryable {
        wrong.push(format!("{rule}: retryable is {}", got.retryable));
    }
    if says_no(got.advice()) == got.retryable {
        wrong.push(format!("{rule}: retryable is {}, and the advice is: {}", got.retryable, got.advice()));
    }
    if got.retry_after_ms != sample.retry_after_ms {
        wrong.push(format!("{rule}: wait is {:?}, not {:?}", got.retry_after_ms, sample.retry_after_ms));
    }
    if sample.reset_at.is_some() && got.reset_at.map(|at| at.timestamp()) != sample.reset_at {
        wrong.push(format!("{rule}: reset is {:?}", got.reset_at));
    }
    if sample.reset_clock.is_some() && got.reset_clock != sample.reset_clock {
        wrong.push(format!("{rule}: the clock at the reset is {:?}", got.reset_clock));
    }
    wrong
}

#[test]
fn every_sample_is_decided_by_its_own_row() {
    let wrong: Vec<_> = export()
        .tables
        .iter()
        .flat_map(|table| table.rows.iter().map(move |row| (table, row)))
        .flat_map(|(table, row)| row.sample.iter().flat_map(move |sample| check(table, row, sample)))
        .collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_row_is_complete() {
    for table in export().tables {
        let mut ids = std::collections::BTreeSet::new();
        for row in &table.rows {
            let rule = format!("{}/{}", table.name, row.id);
            assert!(ids.insert(&row.id), "{rule} is there twice");
            assert!(row.class.reasons().contains(&row.reason), "{rule}: {} is no {}", row.reason, row.class);
            assert!(!row.sample.is_empty(), "{rule} has no sample");
            assert!(
                ["[S]", "[D]", "[U]", "[K]"].iter().any(|mark| row.source.starts_with(mark)),
                "{rule}: source"
            );
            assert!(
                !(row.class == Class::Exhausted && row.retryable == Some(true)),
                "{rule} retries an empty account"
            );
        }
        for parent in &table.inherits {
            assert!(export().tables.iter().any(|other| &other.name == parent), "{}: {parent}", table.name);
        }
    }
}

#[test]
fn the_export_is_whole() {
    let json = serde_json::to_value(export()).expect("plain data");
    assert_eq!(json["version"], retryscope_taxonomy::version());
    assert_eq!(json["classes"].as_array().map(Vec::len), Some(Class::ALL.len()));
    let tables: Vec<Table> = serde_json::from_value(json["tables"].clone()).expect("the same shape");
    assert_eq!(tables, export().tables);
}

#[test]
fn every_table_file_is_embedded() {
    let files =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/data")).expect("the data folder").count();
    assert_eq!(files, export().tables.len(), "a file in data/ is missing in the list in src/table.rs");
}
