// SPDX-License-Identifier: Apache-2.0
//! What a target's answer means, and when it is asked again.

use std::time::{Duration, SystemTime};

use crate::encoder::Protocol;

/// The first pause after a failure; each is twice the one before.
pub const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest.
pub const LAST_PAUSE: Duration = Duration::from_secs(60);
/// No target can put us off for longer.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// What is to be done with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target has it.
    Taken,
    /// The target will never take it: it is counted and given up.
    Refused,
    /// To be sent again, not before this time has passed if it says one.
    Again(Option<Duration>),
    /// To be sent as remote write 1.0 from now on.
    Older,
}

/// What a status means. `retry_after` is the header of that name.
#[must_use]
pub fn verdict(protocol: Protocol, status: u16, retry_after: Option<&str>, now: SystemTime) -> Verdict {
    match status {
        200..=299 => Verdict::Taken,
        415 if protocol == Protocol::RemoteWrite2 => Verdict::Older,
        // Somebody has to mend the configuration, here or there, or a proxy: nothing is wrong with the body.
        300..=399 | 401 | 403 | 404 | 407 => Verdict::Again(None),
        408 | 429 | 500.. => Verdict::Again(retry_after.and_then(|text| pause(text, now))),
        _ => Verdict::Refused,
    }
}

/// Seconds, or a date.
fn pause(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let seconds = text.parse().ok().map(Duration::from_secs);
    let until = || httpdate::parse_http_date(text).ok().map(|date| date.duration_since(now).unwrap_or_default());
    seconds.or_else(until).map(|pause| pause.min(MAX_RETRY_AFTER))
}

/// Pauses between attempts.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Backoff {
    /// The pause after a failure; at least as long as the target wants.
    pub fn next(&mut self, wanted: Option<Duration>) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LAST_PAUSE);
        pause.max(wanted.unwrap_or_default())
    }

    /// It works again.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_mean_what_the_specifications_say() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let of = |status, header| verdict(Protocol::RemoteWrite1, status, header, now);
        assert_eq!([200, 204].map(|status| of(status, None)), [Verdict::Taken; 2]);
        assert_eq!([400, 413, 415, 422].map(|status| of(status, None)), [Verdict::Refused; 4]);
        assert_eq!([302, 401, 404, 429, 500, 503].map(|status| of(status, None)), [Verdict::Again(None); 6]);
        let again = |s| Verdict::Again(Some(Duration::from_secs(s)));
        assert_eq!(of(429, Some(" 7 ")), again(7));
        assert_eq!(of(503, Some("Sun, 06 Nov 1994 08:49:47 GMT")), again(10));
        assert_eq!(of(503, Some("Sat, 06 Nov 1993 08:49:47 GMT")), again(0));
        assert_eq!(of(503, Some("86400")), again(600));
        assert_eq!(of(503, Some("soon")), Verdict::Again(None));
        assert_eq!(verdict(Protocol::RemoteWrite2, 415, None, now), Verdict::Older);
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..8).map(|_| backoff.next(None).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        backoff.reset();
        assert_eq!(backoff.next(Some(Duration::from_secs(5))).as_secs(), 5);
        assert_eq!(backoff.next(Some(Duration::from_secs(1))).as_secs(), 2);
    }
}
