// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use onlooker_promql::labels::NAME;
use onlooker_promql::value;
use onlooker_rules::What;

use super::*;
use crate::alert::{Change, S_NS};
use crate::group::{Health, Sample};
use crate::notice::Notice;
use crate::state::State;

/// Expressions are names of what is recorded or given; time passes with each query.
#[derive(Default)]
struct Answers {
    given: BTreeMap<String, Vec<Sample>>,
    recorded: BTreeMap<Labels, f64>,
    clock_ns: u64,
    cost_ns: u64,
}

impl World for Answers {
    fn query(&mut self, expr: &str, _time_ns: i64) -> Result<Vec<Sample>, String> {
        self.clock_ns += self.cost_ns;
        if let Some(given) = self.given.get(expr) {
            return Ok(given.clone());
        }
        let own =
            self.recorded.iter().filter(|(labels, value)| labels.name() == expr && value.to_bits() != STALE.to_bits());
        let found: Vec<_> =
            own.map(|(labels, value)| Sample { labels: labels.clone(), value: (*value).into() }).collect();
        if found.is_empty() { Err(format!("nobody knows {expr}")) } else { Ok(found) }
    }

    fn record(&mut self, _time_ns: i64, samples: Vec<(Labels, value::Point)>) -> Result<(), String> {
        self.recorded.extend(samples.into_iter().map(|(labels, value)| (labels, value.number())));
        Ok(())
    }

    fn steady_ns(&mut self) -> u64 {
        self.clock_ns
    }
}

impl Answers {
    fn give(&mut self, expr: &str, instances: &[&str]) {
        let of = |name: &&str| Sample { labels: Labels::new([(NAME, expr), ("instance", name)]), value: 2.0.into() };
        self.given.insert(expr.to_owned(), instances.iter().map(of).collect());
    }

    fn series(&self) -> Vec<String> {
        let living = self.recorded.iter().filter(|(_, value)| value.to_bits() != STALE.to_bits());
        living.map(|(labels, _)| labels.to_string()).collect()
    }
}

fn rule(what: What, expr: &str, labels: &[(&str, &str)]) -> rules::Rule {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    rules::Rule { what, expr: expr.to_owned(), labels, line: 1 }
}

fn alert(name: &str, hold_s: i64) -> What {
    What::Alert { name: name.to_owned(), hold_ns: hold_s * S_NS, keep_firing_ns: 0, annotations: BTreeMap::new() }
}

fn record(name: &str) -> What {
    What::Record { name: name.to_owned() }
}

fn group(rules: Vec<rules::Rule>) -> rules::Group {
    rules::Group { name: "g".into(), file: "f.yml".into(), interval_ns: Some(S_NS), offset_ns: 0, limit: 0, rules }
}

fn groups(all: Vec<rules::Group>, now_ns: i64) -> Groups {
    Groups::new(all, 60 * S_NS, Context::default(), now_ns)
}

/// Evaluates once, when it is due.
fn evaluate(groups: &mut Groups, world: &mut Answers) -> Outcome {
    let due_ns = groups.next_ns().unwrap();
    groups.evaluate(due_ns, world).unwrap().1
}

#[test]
fn a_rule_sees_what_those_before_it_recorded_and_ends_are_told() {
    let mut world = Answers::default();
    let rules = vec![
        rule(record("job:up"), "up", &[("job", "x")]),
        rule(alert("Up", 0), "job:up", &[]),
        rule(record("fails"), "nothing", &[]),
    ];
    let mut groups = groups(vec![group(rules)], 0);
    world.give("up", &["a"]);
    let outcome = evaluate(&mut groups, &mut world);
    assert_eq!((outcome.change, outcome.notices.len(), outcome.notices[0].0), (Change::Large, 1, 1));
    assert_eq!(outcome.failures, [("fails".to_owned(), "nobody knows nothing".to_owned())]);
    assert_eq!(
        world.series(),
        [
            r#"{__name__="ALERTS", alertname="Up", alertstate="firing", instance="a", job="x"}"#,
            r#"{__name__="ALERTS_FOR_STATE", alertname="Up", instance="a", job="x"}"#,
            r#"{__name__="job:up", instance="a", job="x"}"#,
        ]
    );
    // A failure is told once, and nothing of a series that goes is left.
    world.give("up", &["b"]);
    world.give("job:up", &[]);
    let outcome = evaluate(&mut groups, &mut world);
    assert_eq!((outcome.change, outcome.failures.len()), (Change::Large, 0));
    assert_eq!(world.series(), [r#"{__name__="job:up", instance="b", job="x"}"#]);
    let own = &groups.all()[0];
    assert_eq!(own.rules.iter().map(|rule| rule.health).collect::<Vec<_>>(), [Health::Good, Health::Good, Health::Bad]);
    assert_eq!((own.counts.evaluations, own.counts.failures, own.counts.missed), (6, 2, 0));
}

#[test]
fn twins_and_too_many_fail_the_rule() {
    let mut world = Answers::default();
    let twin = rule(record("r"), "up", &[("instance", "same")]);
    let twins = rule(alert("Twins", 0), "up", &[("instance", "same")]);
    let mut limited = group(vec![twin, twins, rule(record("many"), "up", &[]), rule(alert("Many", 0), "up", &[])]);
    limited.limit = 1;
    let mut groups = groups(vec![limited], 0);
    world.give("up", &["a", "b"]);
    evaluate(&mut groups, &mut world);
    let errors: Vec<_> = groups.all()[0].rules.iter().map(|rule| rule.error.clone().unwrap()).collect();
    assert_eq!(
        errors,
        [
            "vector contains metrics with the same labelset after applying rule labels",
            "vector contains metrics with the same labelset after applying alert labels",
            "exceeded limit of 1 with 2 series",
            "exceeded limit of 1 with 2 alerts",
        ]
    );
    assert_eq!(world.series(), [""; 0]);
}

#[test]
fn a_slow_group_misses_times_and_holds_up_nobody_for_longer_than_a_turn() {
    let mut world = Answers { cost_ns: 3_500_000_000, ..Answers::default() };
    world.give("up", &[]);
    let named = |name: &str| rules::Group { name: name.into(), ..group(vec![rule(record("r"), "up", &[])]) };
    let mut groups = groups(vec![named("a"), named("b")], 0);
    let mut turns = Vec::new();
    for _ in 0..10 {
        let now_ns = groups.next_ns().unwrap().max(world.clock_ns.cast_signed());
        let (at, _) = groups.evaluate(now_ns, &mut world).unwrap();
        turns.push(at);
    }
    assert!(turns.windows(2).all(|two| two[0] != two[1]), "{turns:?}");
    for group in groups.all() {
        let counts = group.counts;
        assert_eq!(counts.iterations, counts.missed + 5);
        assert!(counts.missed >= 4 * 5, "{counts:?}");
    }
}

#[test]
fn a_new_configuration_keeps_what_goes_on_and_ends_the_rest() {
    let mut world = Answers::default();
    world.give("up", &["a"]);
    let old = vec![rule(alert("A", 0), "up", &[]), rule(record("gone"), "up", &[]), rule(record("moved"), "up", &[])];
    let mut before = groups(vec![group(old)], 0);
    evaluate(&mut before, &mut world);
    let fired_ns = before.all()[0].rules[0].alerts.active().next().unwrap().1.fired_ns;
    let new = vec![rule(record("moved"), "up", &[]), rule(alert("A", 0), "up", &[])];
    let mut after = groups(vec![group(new)], 60 * S_NS);
    after.adopt(before);
    let outcome = evaluate(&mut after, &mut world);
    assert_eq!((outcome.change, outcome.notices.len()), (Change::No, 0));
    assert_eq!(after.all()[0].rules[1].alerts.active().next().unwrap().1.fired_ns, fired_ns);
    let named = world.series().iter().map(|text| text.split('"').nth(1).unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(named, ["ALERTS", "ALERTS_FOR_STATE", "moved"]);
}

#[test]
fn a_pending_alert_does_not_wait_for_the_time_nobody_looked() {
    let mut world = Answers::default();
    world.give("up", &["a"]);
    let make = |now_ns| groups(vec![group(vec![rule(alert("A", 60), "up", &[])])], now_ns);
    let mut before = make(0);
    for _ in 0..31 {
        evaluate(&mut before, &mut world);
    }
    let saved = before.save();
    let mut after = make(1_000 * S_NS);
    assert_eq!(after.restore(saved.clone(), 1_000 * S_NS), Restored { alerts: 1, forgotten: 0 });
    for second in 1..=60 {
        evaluate(&mut after, &mut world);
        let state = after.all()[0].rules[0].alerts.state();
        assert_eq!(state == State::Firing, second >= 31, "after {second} s");
    }
    // Longer than an Alertmanager believes anything.
    let restored = make(5_000 * S_NS).restore(saved.clone(), 5_000 * S_NS);
    assert_eq!(restored, Restored { alerts: 0, forgotten: 1 });
    let other = groups(vec![group(vec![rule(alert("B", 60), "up", &[])])], 100 * S_NS).restore(saved, 100 * S_NS);
    assert_eq!(other, Restored { alerts: 0, forgotten: 1 });
}

/// Its host has to be read first; and whoever was pending does not fire by that.
#[test]
fn what_was_there_before_a_restart_has_time_to_be_given_again() {
    let mut world = Answers::default();
    world.give("up", &["a"]);
    let rules = || vec![rule(alert("Firing", 0), "up", &[]), rule(alert("Pending", 20), "up", &[])];
    let restarted = |saved: &Saved| {
        let mut groups = groups(vec![group(rules())], 100 * S_NS);
        groups.restore(saved.clone(), 100 * S_NS);
        groups
    };
    let states = |groups: &Groups| [0, 1].map(|at: usize| groups.all()[0].rules[at].alerts.state());
    let mut before = groups(vec![group(rules())], 0);
    evaluate(&mut before, &mut world);
    let saved = before.save();
    world.give("up", &[]);
    let mut silent = restarted(&saved);
    for second in 1..=40 {
        evaluate(&mut silent, &mut world);
        // 30 s; the first evaluation is within a second.
        let wanted = if second <= 30 { [State::Firing, State::Pending] } else { [State::Inactive, State::Inactive] };
        assert_eq!(states(&silent), wanted, "after {second} s");
    }
    // Once it has been given it is as any other.
    let mut seen = restarted(&saved);
    world.give("up", &["a"]);
    evaluate(&mut seen, &mut world);
    world.give("up", &[]);
    evaluate(&mut seen, &mut world);
    assert_eq!(states(&seen), [State::Inactive, State::Inactive]);
}

/// What happens to a controller.
#[derive(Debug, bolero::TypeGenerator)]
enum Event {
    /// So many evaluations.
    Evaluate { is_given: bool, times: u8 },
    /// Killed while it evaluates: before anything is written, before anybody is told, or afterwards.
    Kill { is_given: bool, at: Point, down_s: u8 },
    /// The file is written once more, and then it is killed before it has evaluated anything.
    KillIdle { down_s: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, bolero::TypeGenerator)]
enum Point {
    BeforeWrite,
    BeforeTelling,
    Afterwards,
}

/// A controller with its file, and what an Alertmanager has heard.
struct Life {
    groups: Groups,
    world: Answers,
    now_ns: i64,
    file: Vec<u8>,
    written_ns: i64,
    /// When what fires there fired.
    heard_ns: Option<i64>,
    hold_s: i64,
}

impl Life {
    fn new(hold_s: i64) -> Self {
        let mut life = Self {
            groups: Groups::default(),
            world: Answers::default(),
            now_ns: 1_000 * S_NS,
            file: Saved::default().encode(),
            written_ns: 1_000 * S_NS,
            heard_ns: None,
            hold_s,
        };
        life.begin();
        life
    }

    fn begin(&mut self) {
        self.groups = groups(vec![group(vec![rule(alert("A", self.hold_s), "up", &[])])], self.now_ns);
        self.groups.restore(Saved::decode(&self.file).unwrap(), self.now_ns);
        // Nothing that somebody has heard of is lost, nor is it another one.
        if let Some(heard_ns) = self.heard_ns {
            assert_eq!(self.fires_since(), Some(heard_ns));
        }
    }

    fn write(&mut self) {
        (self.file, self.written_ns) = (self.groups.save().encode(), self.now_ns);
    }

    fn fires_since(&self) -> Option<i64> {
        self.groups.all()[0].rules[0].alerts.active().find_map(|(_, alert)| alert.fired_ns)
    }

    /// Once; up to a point, if it is killed there.
    fn evaluate(&mut self, is_given: bool, point: Option<Point>) {
        self.world.give("up", if is_given { &["a"] } else { &[] });
        self.now_ns = self.groups.next_ns().unwrap();
        let (_, outcome) = self.groups.evaluate(self.now_ns, &mut self.world).unwrap();
        if point == Some(Point::BeforeWrite) {
            return;
        }
        if outcome.change == Change::Large || self.now_ns - self.written_ns >= 15 * S_NS {
            self.write();
        }
        if point != Some(Point::BeforeTelling) {
            outcome.notices.into_iter().flat_map(|(_, notices)| notices).for_each(|notice| self.hear(&notice));
        }
    }

    fn hear(&mut self, notice: &Notice) {
        if notice.ends_ns <= self.now_ns {
            assert!(self.heard_ns.is_none_or(|heard_ns| heard_ns == notice.starts_ns));
            self.heard_ns = None;
            return;
        }
        let is_other = self.heard_ns.is_some_and(|heard_ns| heard_ns != notice.starts_ns);
        assert!(!is_other, "heard {:?}, and now {}", self.heard_ns, notice.starts_ns);
        self.heard_ns = Some(notice.starts_ns);
    }
}

/// Whatever happens when: as long as the expression gives it, what fires goes on as the same alert; and nobody hears of
/// two.
#[test]
fn killed_at_any_time_nothing_that_fires_is_lost_or_doubled() {
    bolero::check!().with_type::<(u8, Vec<Event>)>().for_each(|(hold, events)| {
        let mut life = Life::new(i64::from(*hold % 8));
        for event in events {
            match event {
                Event::Evaluate { is_given, times } => {
                    (0..=*times % 64).for_each(|_| life.evaluate(*is_given, None));
                    if *is_given && i64::from(*times % 64) > life.hold_s {
                        assert!(life.heard_ns.is_some() && life.heard_ns == life.fires_since());
                    }
                }
                Event::Kill { is_given, at, down_s } => {
                    // One that ended, and of whose end nobody heard, may begin anew: that is another story.
                    let is_given = *is_given || life.heard_ns.is_some();
                    life.evaluate(is_given, Some(*at));
                    life.now_ns += i64::from(*down_s) * S_NS;
                    life.begin();
                }
                Event::KillIdle { down_s } => {
                    life.write();
                    life.now_ns += i64::from(*down_s) * S_NS;
                    life.begin();
                }
            }
        }
    });
}
