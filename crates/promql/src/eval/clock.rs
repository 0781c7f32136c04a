// SPDX-License-Identifier: Apache-2.0
//! What day and hour a time is, in UTC.

use super::named::Named;

/// A time of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    year: i64,
    month: i64,
    day: i64,
    /// Days since 1970.
    days: i64,
    second: i64,
}

/// By Howard Hinnant's days_from_civil, the other way: years that begin in March, in eras of 400.
fn date(seconds: i64) -> Date {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    Date { year, month, day, days, second }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && year % 100 != 0 || year % 400 == 0
}

fn days_in_month(date: Date) -> i64 {
    match date.month {
        2 => 28 + i64::from(is_leap(date.year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn day_of_year(of: Date) -> i64 {
    let mut day = of.day;
    for month in 1..of.month {
        day += days_in_month(Date { month, ..of });
    }
    day
}

/// What makes a number of a time.
type OfTime = fn(Date) -> i64;

/// Functions of times. 1970 began on a Thursday; Sunday is 0.
pub(super) const OF_TIME: [Named<OfTime>; 8] = [
    ("days_in_month", days_in_month),
    ("day_of_month", |date| date.day),
    ("day_of_week", |date| (date.days + 4).rem_euclid(7)),
    ("day_of_year", day_of_year),
    ("hour", |date| date.second / 3_600),
    ("minute", |date| date.second / 60 % 60),
    ("month", |date| date.month),
    ("year", |date| date.year),
];

/// Of a time in seconds since 1970. What is no time has none.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // saturates
pub(super) fn at(seconds: f64, of: fn(Date) -> i64) -> f64 {
    if seconds.is_finite() { of(date(seconds as i64)) as f64 } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::super::named::named;
    use super::*;

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = date(-86_400 * 800_000);
        for days in -799_999..800_000 {
            let now = date(86_400 * days);
            let is_new_month = before.day == days_in_month(before);
            let is_new_year = is_new_month && before.month == 12;
            assert_eq!(now.day, if is_new_month { 1 } else { before.day + 1 });
            assert_eq!(now.month, if is_new_year { 1 } else { before.month + i64::from(is_new_month) });
            assert_eq!(now.year, before.year + i64::from(is_new_year));
            assert_eq!(day_of_year(now), if is_new_year { 1 } else { day_of_year(before) + 1 });
            before = now;
        }
    }

    #[test]
    fn known_times_are_as_known() {
        let of = |seconds| {
            let at = |name| at(seconds, named(&OF_TIME, name).expect("a function"));
            [at("year"), at("month"), at("day_of_month"), at("day_of_week"), at("hour"), at("minute")]
        };
        assert_eq!(of(0.0), [1970.0, 1.0, 1.0, 4.0, 0.0, 0.0]);
        assert_eq!(of(-1.0), [1969.0, 12.0, 31.0, 3.0, 23.0, 59.0]);
        assert_eq!(of(951_782_400.0), [2000.0, 2.0, 29.0, 2.0, 0.0, 0.0]);
        assert!(of(f64::NAN).iter().all(|value| value.is_nan()));
        assert!(of(1e300)[0].is_finite());
    }
}
