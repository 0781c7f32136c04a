// SPDX-License-Identifier: Apache-2.0

use super::*;

fn labels(name: &str) -> Labels {
    Labels::new([(ALERT_NAME, "Down"), ("instance", name)])
}

fn given(names: &[&str]) -> Vec<Instance> {
    let of = |name: &&str| Instance { labels: labels(name), annotations: Labels::default(), value: 1.0 };
    names.iter().map(of).collect()
}

fn terms(hold_s: i64, keep_s: i64) -> Terms {
    Terms { hold_ns: hold_s * S_NS, keep_firing_ns: keep_s * S_NS, limit: 0 }
}

/// The state of `a` after each of these times, seconds.
fn states(terms: Terms, times: &[(i64, bool)]) -> Vec<Option<State>> {
    let mut alerts = Alerts::default();
    let state = |(s, is_given): &(i64, bool)| {
        alerts.take(s * S_NS, given(if *is_given { &["a"] } else { &[] }), terms).unwrap();
        alerts.all.get(&labels("a")).map(|alert| alert.state)
    };
    times.iter().map(state).collect()
}

#[test]
fn an_alert_waits_fires_and_resolves() {
    use State::{Firing, Inactive, Pending};
    for (terms, times, wanted) in [
        (terms(0, 0), &[(0, true), (1, false), (2, false)][..], &[Some(Firing), Some(Inactive), Some(Inactive)][..]),
        (
            terms(5, 0),
            &[(0, true), (4, true), (5, true), (6, false), (7, true)],
            &[Some(Pending), Some(Pending), Some(Firing), Some(Inactive), Some(Pending)],
        ),
        // One that was only pending leaves nothing behind, and waits from the beginning.
        (
            terms(5, 0),
            &[(0, true), (4, false), (5, true), (9, true)],
            &[Some(Pending), None, Some(Pending), Some(Pending)],
        ),
        (
            terms(0, 10),
            &[(0, true), (1, false), (10, false), (11, false)],
            &[Some(Firing), Some(Firing), Some(Firing), Some(Inactive)],
        ),
        // Given again in time, it begins to count anew.
        (
            terms(0, 10),
            &[(0, true), (1, false), (10, true), (11, false), (20, false), (21, false)],
            &[Some(Firing), Some(Firing), Some(Firing), Some(Firing), Some(Firing), Some(Inactive)],
        ),
        (
            terms(0, 0),
            &[(0, true), (1, false), (901, false), (902, false)],
            &[Some(Firing), Some(Inactive), Some(Inactive), None],
        ),
    ] {
        assert_eq!(states(terms, times), wanted, "{times:?}");
    }
}

#[test]
fn what_fires_is_told_every_minute_and_what_resolved_for_15() {
    let mut alerts = Alerts::default();
    let mut told = Vec::new();
    for s in (0..=1_400).step_by(10) {
        let names: &[&str] = if s < 200 { &["a"] } else { &[] };
        alerts.take(s * S_NS, given(names), terms(20, 0)).unwrap();
        let notices = alerts.notices(s * S_NS, 10 * S_NS);
        told.extend(notices.into_iter().map(|notice| (s, notice.starts_ns / S_NS, notice.ends_ns / S_NS)));
    }
    assert_eq!(told[..4], [(20, 20, 260), (90, 20, 330), (160, 20, 400), (200, 20, 200)]);
    assert!(told[4..].iter().all(|(_, starts, ends)| (*starts, *ends) == (20, 200)), "{told:?}");
    assert_eq!((told[4].0, told.last().unwrap().0), (270, 1_040));
    assert_eq!(alerts.iter().count(), 0);
}

#[test]
fn twins_change_nothing_and_a_limit_ends_all() {
    let mut alerts = Alerts::default();
    alerts.take(0, given(&["a"]), terms(0, 0)).unwrap();
    assert_eq!(alerts.take(S_NS, given(&["b", "b"]), terms(0, 0)), Err(AlertsError::Twins));
    assert_eq!(alerts.active().count(), 1);
    let limited = Terms { limit: 1, ..terms(0, 0) };
    assert_eq!(alerts.take(S_NS, given(&["a"]), limited), Ok(Change::No));
    assert_eq!(alerts.take(S_NS, given(&["a", "b"]), limited), Err(AlertsError::Limit { limit: 1, count: 2 }));
    assert_eq!(alerts.iter().count(), 0);
}

#[test]
fn the_series_say_state_and_since_when() {
    let mut alerts = Alerts::default();
    alerts.take(1_500_000_000, given(&["a"]), terms(5, 0)).unwrap();
    let text =
        |alerts: &Alerts| alerts.samples().map(|(labels, value)| format!("{labels} {value}")).collect::<Vec<_>>();
    let name = |name: &str, state: &str| format!(r#"{{__name__="{name}", alertname="Down"{state}, instance="a"}}"#);
    let state = |state: &str| format!(r#", alertstate="{state}""#);
    assert_eq!(text(&alerts), [name("ALERTS", &state("pending")) + " 1", name("ALERTS_FOR_STATE", "") + " 1"]);
    alerts.take(10 * S_NS, given(&["a"]), terms(5, 0)).unwrap();
    assert_eq!(text(&alerts)[0], name("ALERTS", &state("firing")) + " 1");
    alerts.take(11 * S_NS, given(&[]), terms(5, 0)).unwrap();
    assert_eq!(text(&alerts), [""; 0]);
}

/// A rule whose `for` became longer makes a firing alert wait again; a clock that was set back does not.
#[test]
fn a_longer_wait_counts_and_a_clock_that_was_set_back_does_not() {
    let mut alerts = Alerts::default();
    alerts.take(100 * S_NS, given(&["a"]), terms(0, 0)).unwrap();
    alerts.take(50 * S_NS, given(&["a"]), terms(10, 0)).unwrap();
    assert_eq!(alerts.state(), State::Firing);
    alerts.take(105 * S_NS, given(&["a"]), terms(10, 0)).unwrap();
    assert_eq!(alerts.state(), State::Pending);
}

#[derive(Debug, bolero::TypeGenerator)]
struct Step {
    wait_s: u8,
    is_given: [bool; 2],
}

/// Against what the words say, from the history of each alert alone.
#[test]
fn any_history_gives_what_the_words_say() {
    bolero::check!().with_type::<(u8, u8, Vec<Step>)>().for_each(|(hold, keep, steps)| {
        let (hold_s, keep_s) = (i64::from(*hold % 32), i64::from(*keep % 32));
        let (mut alerts, mut now_s) = (Alerts::default(), 0);
        let mut histories: [Vec<(i64, bool)>; 2] = Default::default();
        for Step { wait_s, is_given } in steps {
            now_s += i64::from(*wait_s % 16) + 1;
            let names: Vec<&str> =
                ["a", "b"].into_iter().zip(is_given).filter(|(_, is)| **is).map(|(name, _)| name).collect();
            alerts.take(now_s * S_NS, given(&names), terms(hold_s, keep_s)).unwrap();
            for (at, name) in ["a", "b"].into_iter().enumerate() {
                histories[at].push((now_s, is_given[at]));
                let state = alerts.active().find(|(own, _)| **own == labels(name)).map(|(_, alert)| alert.state);
                assert_eq!(state, by_words(&histories[at], hold_s, keep_s), "{name} {:?}", histories[at]);
            }
        }
    });
}

/// It fires if it was given without a break for `hold`, and since then never missed for `keep`.
fn by_words(history: &[(i64, bool)], hold_s: i64, keep_s: i64) -> Option<State> {
    let fired_at = |begin: usize| {
        let run = history[begin..].iter().take_while(|(_, is_given)| *is_given);
        run.clone().position(|(s, _)| s - history[begin].0 >= hold_s).map(|length| begin + length)
    };
    let ended_at = |fired: usize| {
        (fired..history.len()).find(|at| {
            let missed = history[..=*at].iter().rposition(|(_, is_given)| *is_given).unwrap() + 1;
            missed <= *at && history[*at].0 - history[missed].0 >= keep_s
        })
    };
    let mut begin = 0;
    loop {
        begin += history[begin..].iter().position(|(_, is_given)| *is_given)?;
        match fired_at(begin) {
            Some(fired) => match ended_at(fired) {
                Some(ended) => begin = ended + 1,
                None => return Some(State::Firing),
            },
            None => match history[begin..].iter().position(|(_, is_given)| !is_given) {
                Some(length) => begin += length,
                None => return Some(State::Pending),
            },
        }
        if begin >= history.len() {
            return None;
        }
    }
}
