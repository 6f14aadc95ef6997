//! What attempts say of themselves, each way they can say it: counts, counters and words hold to it.

mod told;

use retryscope_analysis::{Bound, Explainer, Metric, Run, Totals};

use told::runs_of;

/// One attempt: kind, whether it was sent, how it ended.
type Said = (&'static str, bool, &'static str);

const OUTCOMES: [&str; 3] = ["failed", "cancelled", "superseded"];

/// Returns the run of one request that was made of these attempts and then answered by one more, or given up.
fn run_of(attempts: &[Said], is_answered: bool) -> Run {
    let answer = is_answered.then_some(("retry", true, "ok"));
    let mut candidate = 0;
    let mut lines = vec![(1, "model.request".to_owned(), r#","request_id":"q","model":"m0""#.to_owned())];
    for (n, (kind, sent, outcome)) in (0_u32..).zip(attempts.iter().copied().chain(answer)) {
        candidate += u32::from(kind == "fallback");
        let status = if outcome == "failed" && sent { r#","status":503"# } else { "" };
        let members = format!(
            r#","request_id":"q","attempt_id":"a{n}","kind":"{kind}","model":"m{candidate}","sent":{sent},"outcome":"{outcome}"{status}"#
        );
        lines.push((2 + n, "model.attempt".to_owned(), members));
    }
    let end = if is_answered { "model.response" } else { "model.failed" };
    lines.push((20, end.to_owned(), r#","request_id":"q""#.to_owned()));
    let outcome = if is_answered { "succeeded" } else { "failed" };
    lines.push((21, "run.finished".to_owned(), format!(r#","outcome":"{outcome}""#)));
    let lines: Vec<(u32, &str, &str)> = lines.iter().map(|(at, kind, m)| (*at, &**kind, &**m)).collect();
    runs_of(&lines).remove(0)
}

/// Every request of up to three attempts.
fn each_request(mut look: impl FnMut(&[Said])) {
    let as_kind =
        |kind| [true, false].into_iter().flat_map(move |sent| OUTCOMES.map(|outcome| (kind, sent, outcome)));
    let firsts: Vec<Said> = as_kind("original").collect();
    let others: Vec<Said> = ["retry", "fallback", "hedge"].into_iter().flat_map(as_kind).collect();
    for first in &firsts {
        look(&[*first]);
        for second in &others {
            look(&[*first, *second]);
            for third in &others {
                look(&[*first, *second, *third]);
            }
        }
    }
}

#[test]
fn counts_and_counters_are_of_what_was_sent() {
    each_request(|attempts| {
        for is_answered in [true, false] {
            let run = run_of(attempts, is_answered);
            let mut sent: Vec<&Said> = attempts.iter().filter(|(_, sent, _)| *sent).collect();
            let answer = ("retry", true, "ok");
            sent.extend(is_answered.then_some(&answer));
            // The first of them repeats nothing, whatever it is called.
            let of_kind = |wanted| sent.iter().skip(1).filter(|(kind, ..)| *kind == wanted).count() as u64;
            let failed = sent.iter().filter(|(.., outcome)| *outcome == "failed").count() as u64;
            let expected = [sent.len() as u64, of_kind("retry"), of_kind("fallback"), failed];
            let counts = &run.counts;
            let said =
                [&counts.upstream_requests, &counts.retries, &counts.fallbacks, &counts.failed_attempts];
            assert_eq!(said.map(|count| count.bound), expected.map(Bound::exact), "{attempts:?}");
            let totals = Totals::of([&run], chrono::DateTime::UNIX_EPOCH);
            let sum = |metric| totals.counters_of(metric).map(|(_, n)| n).sum::<u64>();
            let counted =
                [Metric::UpstreamRequests, Metric::Retries, Metric::Fallbacks, Metric::AttemptFailures]
                    .map(sum);
            assert_eq!(counted, expected, "{attempts:?}");
        }
    });
}

#[test]
fn words_are_of_what_was_sent() {
    let summary = |attempts: &[Said], is_answered| {
        let run = run_of(attempts, is_answered);
        Explainer::new(&run, &[], chrono::DateTime::UNIX_EPOCH).explain(&run.turns[0]).summary
    };
    let failed = ("original", true, "failed");
    for (attempts, is_answered, words) in [
        (&[("original", false, "failed")][..], false, "gave up before anything was sent"),
        (&[failed, ("fallback", false, "failed")], false, "could not be asked"),
        (
            &[failed, ("hedge", true, "superseded")],
            false,
            "to one of both requests of the prompt (1 other was called off)",
        ),
        (
            &[("original", true, "cancelled"), ("retry", true, "failed")],
            false,
            "to the last of both requests",
        ),
        (&[failed, ("retry", true, "failed")], false, "to both requests of the prompt."),
        (&[failed, ("fallback", false, "failed")], true, "Recovered on attempt 2"),
    ] {
        let told = summary(attempts, is_answered);
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn an_attempt_without_a_record_is_not_said_to_have_got_the_same_answer() {
    let retry = (2, "model.retry", r#","request_id":"q","attempt":1,"status":503,"delay_ms":100"#);
    let failed = |attempts| format!(r#","request_id":"q","status":503,"attempts":{attempts}"#);
    for (attempts, words) in [
        (3, "answered 503 (unavailable) to 2 of 3 requests"),
        (2, "answered 503 (unavailable) to both requests"),
    ] {
        let failed = failed(attempts);
        let records = [
            (1, "model.request", r#","request_id":"q""#),
            retry,
            (4, "model.failed", failed.as_str()),
            (5, "run.finished", r#","outcome":"failed""#),
        ];
        let run = runs_of(&records).remove(0);
        let told = Explainer::new(&run, &[], chrono::DateTime::UNIX_EPOCH).explain(&run.turns[0]).summary;
        assert!(told.contains(words), "{told}");
    }
}
