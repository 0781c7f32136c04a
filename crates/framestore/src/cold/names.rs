// SPDX-License-Identifier: Apache-2.0
//! Names of cold files: their window in UTC, so that a glob finds a day, and a number.

use crate::damage::StoreError;
use crate::types::SECOND_NS;

const DAY: u64 = 86_400;
/// Largest second of a window: all its nanoseconds are an i64, as Parquet has them.
const MAX_SECOND: u64 = i64::MAX.unsigned_abs() / SECOND_NS;

/// The times of a file's samples: from the first second to before the last, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    from: u64,
    to: u64,
}

impl Window {
    /// Of whole seconds since 1970.
    ///
    /// # Errors
    /// [`StoreError::Limit`] for times that Parquet does not have, or if there is nothing between them.
    pub fn new(from: u64, to: u64) -> Result<Self, StoreError> {
        let limit = usize::try_from(MAX_SECOND).unwrap_or(usize::MAX);
        if to > MAX_SECOND || from >= to {
            return Err(StoreError::Limit {
                what: "a window's end",
                limit,
                got: usize::try_from(to).unwrap_or(usize::MAX),
            });
        }
        Ok(Self { from, to })
    }

    /// Its first ns.
    #[must_use]
    pub fn from_ns(self) -> u64 {
        self.from * SECOND_NS
    }

    /// The first ns behind it.
    #[must_use]
    pub fn to_ns(self) -> u64 {
        self.to * SECOND_NS
    }

    /// Whether it has a time between these, both included.
    #[must_use]
    pub fn touches(self, from_ns: u64, to_ns: u64) -> bool {
        self.from_ns() <= to_ns && self.to_ns() > from_ns
    }

    /// Name of its file with a number, without an ending.
    pub(super) fn name(self, number: u32) -> String {
        format!("{}-{}-{number}", utc(self.from), utc(self.to))
    }

    /// What [`Window::name`] was made of.
    pub(super) fn parse(name: &str) -> Option<(Self, u32)> {
        let mut parts = name.split('-');
        let (from, to) = (second(parts.next()?)?, second(parts.next()?)?);
        let number = parts.next()?.parse().ok()?;
        let window = Self::new(from, to).ok()?;
        (parts.next().is_none() && window.name(number) == name).then_some((window, number))
    }
}

/// A second since 1970 as ISO 8601 has it, without punctuation: `20261124T100000Z`.
#[must_use]
pub fn utc(second: u64) -> String {
    let (day, rest) = (second / DAY, second % DAY);
    let (year, month, of_month) = date(day);
    format!("{year:04}{month:02}{of_month:02}T{:02}{:02}{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

/// The second that [`utc`] makes this text of.
#[must_use]
pub fn second(text: &str) -> Option<u64> {
    let part = |from: usize, to: usize| {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok())?
    };
    if text.len() != 16 || text.as_bytes()[8] != b'T' || text.as_bytes()[15] != b'Z' {
        return None;
    }
    let (year, month, of_month) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(9, 11)?, part(11, 13)?, part(13, 15)?);
    let is_time = (1970..=9_999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&of_month);
    let all = is_time.then(|| days(year, month, of_month) * DAY + hour * 3_600 + minute * 60 + second);
    // A 31st that a month has not, a 61st minute.
    all.filter(|second| utc(*second) == text)
}

/// Days before a year that begins in March, from the March before year 0; and before its months. Leap days are then the
/// last of their years.
fn days_of_years(years: u64) -> u64 {
    years * 365 + years / 4 - years / 100 + years / 400
}

fn days_of_months(months: u64) -> u64 {
    (months * 153 + 2) / 5
}

/// From March 0000 to January 1970.
const EPOCH: u64 = 719_468;

fn days(year: u64, month: u64, of_month: u64) -> u64 {
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    (days_of_years(years) + days_of_months(months) + of_month - 1).saturating_sub(EPOCH)
}

fn date(day: u64) -> (u64, u64, u64) {
    let day = day + EPOCH;
    // A year or two too large.
    let mut years = day / 365;
    while days_of_years(years) > day {
        years -= 1;
    }
    let of_year = day - days_of_years(years);
    let months = (0..12).rev().find(|months| days_of_months(*months) <= of_year).unwrap_or(0);
    let of_month = of_year - days_of_months(months) + 1;
    if months < 10 { (years, months + 3, of_month) } else { (years + 1, months - 9, of_month) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        for (second, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (951_868_799, "20000229T235959Z"),
            (951_868_800, "20000301T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(utc(second), text);
            assert_eq!(super::second(text), Some(second));
        }
        for day in 0..106_000 {
            assert_eq!(super::second(&utc(day * DAY)), Some(day * DAY));
        }
        for text in ["20260230T000000Z", "20261124T240000Z", "20261124T106000Z", "19691231T235959Z", "20261124T100000"]
        {
            assert_eq!(super::second(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_says_its_window() {
        let window = Window::new(1_735_689_599, 1_735_693_199).unwrap();
        assert_eq!(window.name(3), "20241231T235959Z-20250101T005959Z-3");
        assert_eq!(Window::parse(&window.name(3)), Some((window, 3)));
        for name in [
            "",
            "a-b-3",
            "20241231T235959Z-20250101T005959Z",
            "20241231T235959Z-20250101T005959Z-",
            "20241231T235959Z-20250101T005959Z-03",
            "20241231T235959Z-20250101T005959Z-3-1",
            "20250101T005959Z-20241231T235959Z-3",
            "20241331T235959Z-20250101T005959Z-3",
            "20241231T235961Z-20250101T005959Z-3",
            "2024é31T235959Z-20250101T005959Z-3",
        ] {
            assert_eq!(Window::parse(name), None, "{name}");
        }
        assert!(window.touches(0, window.from_ns()) && window.touches(window.to_ns() - 1, u64::MAX));
        assert!(!window.touches(0, window.from_ns() - 1) && !window.touches(window.to_ns(), u64::MAX));
        for (from, to) in [(2, 2), (3, 2), (0, u64::MAX), (0, MAX_SECOND + 1)] {
            assert!(Window::new(from, to).is_err());
        }
        assert!(i64::try_from(Window::new(0, MAX_SECOND).unwrap().to_ns()).is_ok());
    }
}
