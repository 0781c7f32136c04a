// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::config::Http;
use axum::body::to_bytes;
use std::io::Read as _;

fn peer(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 1))
}

fn headers(encoding: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(encoding))])
}

/// Writes lines until nobody takes them.
fn lines(count: usize) -> impl FnOnce(&(), &mut Writer<'_>) -> Result<(), Stopped> {
    move |(), out| {
        for number in 0..count {
            out.text().push_str(&format!("line {number} of {count}\n"));
            out.flush()?;
        }
        Ok(())
    }
}

fn expected(count: usize) -> String {
    (0..count).map(|number| format!("line {number} of {count}\n")).collect()
}

async fn answer(limits: &Arc<Limits>, peer: SocketAddr, headers: &HeaderMap, count: usize) -> Response {
    let asked = Asked { limits, queue: &limits.metrics, peer, headers };
    streamed(asked, "text/plain", || ((), 0), lines(count)).await.unwrap()
}

#[test]
fn who_takes_gzip() {
    for (encoding, takes) in [
        ("gzip", true),
        ("deflate, GZip;q=0.5, br", true),
        ("*", true),
        ("gzip;q=0", false),
        ("gzip; q=0.0, deflate", false),
        ("deflate", false),
        ("", false),
    ] {
        assert_eq!(takes_gzip(&headers(encoding)), takes, "{encoding}");
    }
    assert!(!takes_gzip(&HeaderMap::new()));
}

#[tokio::test]
async fn a_long_answer_comes_whole_packed_or_not() {
    const LINES: usize = 50_000;
    let limits = Limits::new(&Http::default(), 1024);
    let plain = answer(&limits, peer(1), &HeaderMap::new(), LINES).await;
    assert!(plain.headers().get(header::CONTENT_ENCODING).is_none());
    assert_eq!(plain.headers()[header::CONTENT_TYPE], "text/plain");
    let plain = to_bytes(plain.into_body(), usize::MAX).await.unwrap();
    assert!(plain == expected(LINES).as_bytes() && plain.len() > 10 * PIECE_BYTES);
    let packed = answer(&limits, peer(1), &headers("gzip"), LINES).await;
    assert_eq!((&packed.headers()[header::CONTENT_ENCODING], &packed.headers()[header::VARY]), (&GZIP, &VARY));
    let packed = to_bytes(packed.into_body(), usize::MAX).await.unwrap();
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked == plain && packed.len() * 4 < plain.len());
    assert_eq!(gzip(&plain).len(), gzip(&unpacked).len());
}

/// Of `/metrics` one query runs at a time. One that waits for its client does not run.
#[tokio::test]
async fn who_takes_nothing_holds_up_nobody() {
    const LINES: usize = 50_000;
    let limits = Limits::new(&Http::default(), 1024);
    let slow = answer(&limits, peer(1), &HeaderMap::new(), LINES).await;
    for _ in 0..3 {
        let other = answer(&limits, peer(2), &HeaderMap::new(), LINES).await;
        assert_eq!(to_bytes(other.into_body(), usize::MAX).await.unwrap(), expected(LINES).as_bytes());
    }
    // And what it is slow to take is as it was, and whole.
    assert_eq!(to_bytes(slow.into_body(), usize::MAX).await.unwrap(), expected(LINES).as_bytes());
    // Who goes away gives everything back: all places of its source can be taken again.
    for _ in 0..8 {
        drop(answer(&limits, peer(1), &HeaderMap::new(), LINES).await);
        while limits.metrics.waiting() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn what_is_made_of_much_takes_its_place() {
    let limits = Limits::new(&Http::default(), 1024);
    let headers = HeaderMap::new();
    let asked = |last| Asked { limits: &limits, queue: &limits.metrics, peer: peer(last), headers: &headers };
    let much = || ((), 50 << 20);
    let mut taken = Vec::new();
    for last in 1..=2 {
        taken.push(streamed(asked(last), "text/plain", much, lines(50_000)).await.unwrap());
    }
    let refused = streamed(asked(3), "text/plain", much, lines(1)).await.unwrap_err().into_response();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    for answer in taken {
        to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    }
    while limits.metrics.waiting() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(streamed(asked(3), "text/plain", much, lines(1)).await.is_ok());
}

#[tokio::test]
async fn an_answer_without_its_end_is_an_error() {
    let limits = Limits::new(&Http::default(), 1024);
    let headers = HeaderMap::new();
    let asked = Asked { limits: &limits, queue: &limits.metrics, peer: peer(1), headers: &headers };
    let breaks_off = |(): &(), out: &mut Writer<'_>| {
        out.text().push_str("half of it");
        Err(Stopped)
    };
    let answer = streamed(asked, "text/plain", || ((), 0), breaks_off).await.unwrap();
    assert!(to_bytes(answer.into_body(), usize::MAX).await.is_err());

    // Who takes nothing in time gets no more.
    let (pieces, taken) = channel(1);
    let turn = limits.metrics.turn(peer(1).ip()).await.unwrap();
    let (runtime, until) = (Handle::current(), Instant::now());
    let mut client = Client { pieces, turn, until, runtime, limits: limits.clone(), _place: None };
    let piece = || Piece::Part(Bytes::from_static(b"piece"));
    let sent = spawn_blocking(move || [client.send(piece()).is_ok(), client.send(piece()).is_ok()]).await.unwrap();
    assert_eq!(sent, [true, false]);
    assert!(limits.refused().any(|refused| refused == ("slow_answer", 1)));
    let body = Body::new(Pieces { taken, is_over: false });
    assert!(to_bytes(body, usize::MAX).await.is_err());
}
