//! Who received the content of a run, for a person and a program.

use retryscope_analysis::{Recipient, Run, words};
use serde_json::{Value, json};

use crate::json::{PathOf, origin, time};
use crate::page::Page;
use crate::text::moment;

/// Returns the page of the recipients of one run.
pub fn text(run: &Run, received: &[Recipient], width: usize) -> String {
    let mut page = Page::new(width);
    page.line(&format!("run {}  {}", run.key.id, run.key.agent));
    if received.is_empty() {
        page.line("the logs of this run hold no request that could have carried content");
        return page.finish();
    }
    let rows: Vec<Vec<String>> = received
        .iter()
        .map(|recipient| {
            let candidate = &recipient.candidate;
            let or_unknown =
                |part: &Option<String>| part.clone().unwrap_or_else(|| "not in the log".to_owned());
            let place: Vec<String> = [&candidate.endpoint, &candidate.region, &candidate.account]
                .into_iter()
                .flatten()
                .cloned()
                .collect();
            vec![
                or_unknown(&candidate.provider),
                or_unknown(&candidate.model),
                place.join(" "),
                words::bound(recipient.requests),
                if recipient.foreground { "conversation" } else { "side calls only" }.to_owned(),
                recipient.first_at.map(moment).unwrap_or_default(),
            ]
        })
        .collect();
    page.table(
        &["provider", "model", "endpoint, region, account", "requests", "content", "first"],
        &rows,
        &[3],
        0,
    );
    page.finish()
}

/// Returns the object of the recipients of one run.
pub fn json(run: &Run, received: &[Recipient], path_of: PathOf<'_>) -> Value {
    let of = |recipient: &Recipient| {
        let requests = recipient.requests;
        json!({
            "candidate": recipient.candidate,
            "requests": if requests.is_exact() { json!({"value": requests.min}) } else { json!({"min": requests.min, "max": requests.max}) },
            "foreground": recipient.foreground,
            "first_at": time(recipient.first_at),
            "evidence": [origin(recipient.origin, path_of)],
        })
    };
    json!({
        "schema": "retryscope.recipients/1",
        "run_id": &*run.key.id,
        "agent": &*run.key.agent,
        "recipients": received.iter().map(of).collect::<Vec<_>>(),
    })
}
