//! What clients of every kind say when no answer came, or half of one.

use retryscope_taxonomy::{Class, Failure, Reason, classify};

fn check(text: &str, class: Class, reason: Reason) {
    let got = classify(&Failure { message: Some(text), ..Failure::default() });
    assert_eq!((got.class, got.reason), (class, reason), "{text}: {}", got.rule);
    assert_eq!(got.retryable, class == Class::Transient, "{text}");
}

#[test]
fn texts_of_clients() {
    use Reason::{Connect, Dns, Refused, Reset, StreamCut, Timeout};
    let texts = [
        // node, undici, axios
        ("Client network socket disconnected before secure TLS connection was established", Reset),
        ("ERR_STREAM_PREMATURE_CLOSE", StreamCut),
        ("getaddrinfo EAI_AGAIN api.x", Dns),
        ("Response body length does not match content-length header", StreamCut),
        ("AxiosError: Network Error", Connect),
        ("AxiosError: timeout of 60000ms exceeded", Timeout),
        // reqwest, hyper
        ("hyper::Error(IncompleteMessage)", StreamCut),
        ("h2 protocol error: error reading a body from connection", StreamCut),
        ("error trying to connect: tcp connect error: Connection refused (os error 111)", Refused),
        // requests, urllib3, httpx, aiohttp
        ("InvalidChunkLength(got length b'', 0 bytes read)", StreamCut),
        ("httpx.ReadError", Reset),
        ("httpx.PoolTimeout", Timeout),
        ("Cannot connect to host x:443 ssl:default", Connect),
        // Go
        ("dial tcp: lookup x on 127.0.0.53:53: server misbehaving", Dns),
        ("http2: server sent GOAWAY and closed the connection", Reset),
        // Java
        ("java.net.UnknownHostException: api.x", Dns),
        ("java.io.IOException: HTTP/1.1 header parser received no bytes", Reset),
        ("okhttp3.internal.http2.StreamResetException: stream was reset: CANCEL", Reset),
        // curl
        ("curl: (52) Empty reply from server", Reset),
        ("curl: (18) transfer closed with outstanding read data remaining", StreamCut),
        ("curl: (7) Couldn't connect to server", Connect),
        // gRPC
        ("rpc error: code = DeadlineExceeded desc = x", Timeout),
        ("13 INTERNAL: Received RST_STREAM with code 0", Reset),
        ("14 UNAVAILABLE: No connection established", Connect),
        // Windows, macOS
        ("[WinError 10054] 远程主机强迫关闭了一个现有的连接。", Reset),
        ("No such host is known. (api.x:443)", Dns),
        ("The Internet connection appears to be offline.", Connect),
        ("The network connection was lost.", Reset),
    ];
    for (text, reason) in texts {
        check(text, Class::Transient, reason);
    }
    check("rpc error: code = InvalidArgument desc = x", Class::InvalidRequest, Reason::BadRequest);
    check("rpc error: code = PermissionDenied desc = x", Class::Auth, Reason::Permission);
}

#[test]
fn what_a_timer_stopped_was_not_called_off() {
    for text in [
        "The operation was aborted due to timeout",
        "AbortError: The operation was aborted due to timeout",
        "net/http: request canceled (Client.Timeout exceeded while reading body)",
        "The request was canceled due to the configured HttpClient.Timeout of 100 seconds elapsing.",
    ] {
        check(text, Class::Transient, Reason::Timeout);
    }
    check("The operation was aborted.", Class::Cancelled, Reason::Abort);
    check("net/http: request canceled", Class::Cancelled, Reason::Abort);
}

#[test]
fn an_answer_that_cannot_be_read_is_the_servers_fault() {
    check("Invalid JSON response", Class::Transient, Reason::ServerError);
    check("Empty response from model", Class::Transient, Reason::ServerError);
    check("invalid JSON in the request", Class::InvalidRequest, Reason::BadRequest);
}

#[test]
fn a_machine_without_room_is_no_passing_trouble() {
    check("cudaMalloc failed: out of memory", Class::InvalidRequest, Reason::OutOfMemory);
    let heap = "FATAL ERROR: JavaScript heap out of memory";
    assert_ne!(
        classify(&Failure { message: Some(heap), ..Failure::default() }).reason,
        Reason::OutOfMemory,
        "the client's own memory"
    );
}
