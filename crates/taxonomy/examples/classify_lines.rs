//! Classifies failures given as JSON Lines: `classify_lines < failures.jsonl`, or
//! `classify_lines classify --input FILE --format json`. `--repeat N` classifies N times over and prints the rate.
//!
//! A line has any of `provider`, `status`, `body`, `code`, `message` (strings, but `status`) and `headers` (an object).

use std::io::{BufRead, BufReader, Write};
use std::time::Instant;

use retryscope_taxonomy::{Failure, classify};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Line {
    provider: Option<String>,
    status: Option<u16>,
    body: Option<String>,
    code: Option<String>,
    message: Option<String>,
    headers: Option<Map<String, Value>>,
}

/// Header values as texts, also where they were written as numbers.
fn headers_of(line: &Line) -> Vec<(&str, String)> {
    let pairs = line.headers.iter().flatten();
    pairs
        .map(|(name, value)| (name.as_str(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let option = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let input: Box<dyn BufRead> = match option("--input") {
        Some(path) => Box::new(BufReader::new(std::fs::File::open(path)?)),
        None => Box::new(std::io::stdin().lock()),
    };
    let lines = input
        .lines()
        .map(|line| Ok(serde_json::from_str(&line?)?))
        .collect::<Result<Vec<Line>, Box<dyn std::error::Error>>>()?;
    let owned: Vec<Vec<(&str, String)>> = lines.iter().map(headers_of).collect();
    let headers: Vec<Vec<(&str, &str)>> = owned
        .iter()
        .map(|pairs| pairs.iter().map(|(name, value)| (*name, value.as_str())).collect())
        .collect();
    let failures: Vec<Failure<'_>> = lines
        .iter()
        .zip(&headers)
        .map(|(line, headers)| Failure {
            provider: line.provider.as_deref(),
            status: line.status,
            headers,
            body: line.body.as_deref(),
            code: line.code.as_deref(),
            message: line.message.as_deref(),
            now: None,
        })
        .collect();

    let mut out = std::io::stdout().lock();
    if let Some(times) = option("--repeat") {
        let times: usize = times.parse()?;
        // The first one reads the tables; that is measured apart.
        let start = Instant::now();
        classify(&Failure::default());
        let load = start.elapsed();
        let start = Instant::now();
        let mut retryable = 0_usize;
        for failure in failures.iter().cycle().take(failures.len() * times) {
            retryable += usize::from(classify(failure).retryable);
        }
        let took = start.elapsed();
        let count = failures.len() * times;
        writeln!(out, "{count} in {took:?} ({retryable} retryable), tables read in {load:?}")?;
        return Ok(());
    }
    for failure in &failures {
        writeln!(out, "{}", serde_json::to_string(&classify(failure))?)?;
    }
    Ok(())
}
