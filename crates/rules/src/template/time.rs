// SPDX-License-Identifier: Apache-2.0
//! Times (UTC) and durations as Go prints them.

pub(super) const SECOND_NS: i64 = 1_000_000_000;
pub(super) const DAY_NS: i64 = 86_400 * SECOND_NS;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

#[allow(clippy::cast_precision_loss)] // as in Go
pub(super) fn seconds(ns: i64) -> f64 {
    (ns / SECOND_NS) as f64 + (ns % SECOND_NS) as f64 / 1e9
}

/// A time as the calendar has it.
pub(super) struct Calendar {
    pub(super) year: i64,
    /// From 1.
    pub(super) month: i64,
    pub(super) day: i64,
    /// Of the year, from 1.
    pub(super) year_day: i64,
    /// From Sunday, 0.
    pub(super) week_day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) ns: i64,
}

impl Calendar {
    pub(super) fn new(time_ns: i64) -> Self {
        let (days, within_ns) = (time_ns.div_euclid(DAY_NS), time_ns.rem_euclid(DAY_NS));
        // Years from March on, of 400 years; then a leap day is the last of its year.
        let from_march = days + 719_468;
        let (era, day_of_era) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let year_day = if month <= 2 { day_of_year - 305 } else { day_of_year + 60 + i64::from(is_leap) };
        let second = within_ns / SECOND_NS;
        Self {
            year,
            month,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
            year_day,
            week_day: (days + 4).rem_euclid(7),
            hour: second / 3_600,
            minute: second / 60 % 60,
            second: second % 60,
            ns: within_ns % SECOND_NS,
        }
    }

    pub(super) fn month(&self) -> &'static str {
        MONTHS[usize::try_from(self.month - 1).unwrap_or(0)]
    }

    pub(super) fn week_day(&self) -> &'static str {
        DAYS[usize::try_from(self.week_day).unwrap_or(0)]
    }
}

/// As `String` prints it.
pub(super) fn shown(time_ns: i64) -> String {
    format(time_ns, "2006-01-02 15:04:05.999999999 -0700 MST")
}

/// Of seconds since 1970. Prometheus keeps milliseconds of them.
pub(super) fn of_seconds(value: f64) -> Result<i64, String> {
    if !value.is_finite() {
        return Err("value is NaN or Inf".to_owned());
    }
    let ns = value * 1e9;
    #[allow(clippy::cast_precision_loss)]
    if ns > i64::MAX as f64 || ns < i64::MIN as f64 {
        return Err(format!("{value} cannot be represented as a nanoseconds timestamp since it overflows int64"));
    }
    #[allow(clippy::cast_possible_truncation)] // within bounds
    Ok(ns as i64 / 1_000_000 * 1_000_000)
}

/// What stands for a part of a time in a layout. Of those that begin alike the longer one comes first.
const PARTS: [&str; 37] = [
    "January",
    "Jan",
    "Monday",
    "Mon",
    "MST",
    "2006",
    "-07:00:00",
    "-070000",
    "-07:00",
    "-0700",
    "-07",
    "Z07:00:00",
    "Z070000",
    "Z07:00",
    "Z0700",
    "Z07",
    "002",
    "01",
    "02",
    "03",
    "04",
    "05",
    "06",
    "15",
    "PM",
    "pm",
    "__2",
    "_2",
    "1",
    "2",
    "3",
    "4",
    "5",
    ".000",
    ".999",
    ",000",
    ",999",
];

/// The part that a layout begins with, and its length there.
fn part(layout: &str) -> Option<(&'static str, usize)> {
    // An underscore before a year is itself.
    if layout.starts_with("_2006") {
        return None;
    }
    if layout.starts_with(['.', ',']) {
        let digits = &layout[1..];
        let digit = digits.chars().next().filter(|digit| matches!(digit, '0' | '9'))?;
        let len = digits.len() - digits.trim_start_matches(digit).len();
        // A longer number is none.
        let is_apart = !digits[len..].starts_with(|c: char| c.is_ascii_digit());
        return is_apart.then_some((if digit == '0' { ".000" } else { ".999" }, len + 1));
    }
    let part = PARTS.into_iter().find(|part| layout.starts_with(part))?;
    // These must not be the begin of another word.
    let is_word = matches!(part, "Jan" | "Mon") && layout[3..].starts_with(|c: char| c.is_ascii_lowercase());
    (!is_word).then_some((part, part.len()))
}

/// As `Format` prints it.
pub(super) fn format(time_ns: i64, layout: &str) -> String {
    let time = Calendar::new(time_ns);
    let mut out = String::with_capacity(layout.len() + 8);
    let mut rest = layout;
    while let Some(next) = rest.chars().next() {
        let Some((part, len)) = part(rest) else {
            let len = if rest.starts_with("_2006") { 1 } else { next.len_utf8() };
            out.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        };
        let hour = if time.hour % 12 == 0 { 12 } else { time.hour % 12 };
        match part {
            "January" => out.push_str(time.month()),
            "Jan" => out.push_str(&time.month()[..3]),
            "Monday" => out.push_str(time.week_day()),
            "Mon" => out.push_str(&time.week_day()[..3]),
            "MST" => out.push_str("UTC"),
            "2006" => out.push_str(&format!("{:04}", time.year)),
            "-07:00:00" => out.push_str("+00:00:00"),
            "-070000" => out.push_str("+000000"),
            "-07:00" => out.push_str("+00:00"),
            "-0700" => out.push_str("+0000"),
            "-07" => out.push_str("+00"),
            "002" => out.push_str(&format!("{:03}", time.year_day)),
            "__2" => out.push_str(&format!("{:3}", time.year_day)),
            "01" => out.push_str(&format!("{:02}", time.month)),
            "02" => out.push_str(&format!("{:02}", time.day)),
            "_2" => out.push_str(&format!("{:2}", time.day)),
            "03" => out.push_str(&format!("{hour:02}")),
            "04" => out.push_str(&format!("{:02}", time.minute)),
            "05" => out.push_str(&format!("{:02}", time.second)),
            "06" => out.push_str(&format!("{:02}", time.year.rem_euclid(100))),
            "15" => out.push_str(&format!("{:02}", time.hour)),
            "PM" => out.push_str(if time.hour < 12 { "AM" } else { "PM" }),
            "pm" => out.push_str(if time.hour < 12 { "am" } else { "pm" }),
            "1" => out.push_str(&time.month.to_string()),
            "2" => out.push_str(&time.day.to_string()),
            "3" => out.push_str(&hour.to_string()),
            "4" => out.push_str(&time.minute.to_string()),
            "5" => out.push_str(&time.second.to_string()),
            ".000" | ".999" => {
                let digits = format!("{:09}", time.ns);
                let digits = &digits[..(len - 1).min(9)];
                let digits = if part == ".999" { digits.trim_end_matches('0') } else { digits };
                if !digits.is_empty() {
                    out.push_str(&rest[..1]);
                    out.push_str(digits);
                }
            }
            // UTC's offset.
            _ => out.push('Z'),
        }
        rest = &rest[len..];
    }
    out
}

/// As `String` prints it: `1h2m3.5s`.
pub(super) fn duration(ns: i64) -> String {
    let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    let decimal = |ns: u64, unit_ns: u64, unit: &str| {
        let digits = unit_ns.ilog10() as usize;
        let text = format!("{}.{:0digits$}", ns / unit_ns, ns % unit_ns);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        format!("{}{unit}", if unit_ns == 1 { ns.to_string() } else { text.to_owned() })
    };
    let text = match ns {
        0 => return "0s".to_owned(),
        1..1_000 => decimal(ns, 1, "ns"),
        1_000..1_000_000 => decimal(ns, 1_000, "\u{b5}s"),
        1_000_000..1_000_000_000 => decimal(ns, 1_000_000, "ms"),
        _ => {
            let minutes = ns / 60_000_000_000;
            let rest = decimal(ns % 60_000_000_000, 1_000_000_000, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => rest,
                (0, minutes) => format!("{minutes}m{rest}"),
                (hours, minutes) => format!("{hours}h{minutes}m{rest}"),
            }
        }
    };
    format!("{sign}{text}")
}
