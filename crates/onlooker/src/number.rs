// SPDX-License-Identifier: Apache-2.0
//! Numbers as text: exact for machines, short for people; durations both ways.

use std::time::Duration;

/// The format's decimal text (schema.md); as Prometheus writes what is no number.
pub(crate) fn decimal(value: f64) -> String {
    if value.is_finite() {
        onlooker_region::number::decimal(value)
    } else if value.is_nan() {
        "NaN".into()
    } else if value > 0.0 {
        "+Inf".into()
    } else {
        "-Inf".into()
    }
}

/// About four digits, for people.
fn short(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return decimal(value);
    }
    if size >= 1e16 || (size != 0.0 && size < 1e-4) {
        return format!("{value:.3e}");
    }
    let decimals = if size >= 1000.0 {
        1
    } else if size >= 1.0 {
        3
    } else {
        6
    };
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number with its unit, for people: bytes in powers of 1024, short times in ns, us and ms.
pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    let size = value.abs();
    let (scaled, name) = match unit {
        "bytes" | "bytes_per_second" => {
            let steps = [
                (1e0, "B"),
                (1024.0, "KiB"),
                (1_048_576.0, "MiB"),
                (1_073_741_824.0, "GiB"),
                (1_099_511_627_776.0, "TiB"),
            ];
            let step = steps.iter().rev().find(|(step, _)| size >= *step).unwrap_or(&steps[0]);
            (value / step.0, step.1)
        }
        "seconds" if size != 0.0 && size < 1.0 => {
            let steps = [(1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")];
            let step = steps.iter().rev().find(|(step, _)| size >= *step).unwrap_or(&steps[0]);
            (value / step.0, step.1)
        }
        "seconds" => (value, "s"),
        other => (value, other),
    };
    let suffix = if unit == "bytes_per_second" { "/s" } else { "" };
    if name.is_empty() { short(scaled) } else { format!("{} {name}{suffix}", short(scaled)) }
}

/// A time span for people.
#[allow(clippy::cast_precision_loss)] // for people
pub(crate) fn span(ns: i128) -> String {
    let seconds = ns as f64 / 1e9;
    let rounded = |value: f64| if value.abs() >= 10.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    match seconds.abs() {
        size if size < 1e-3 => format!("{} us", rounded(seconds * 1e6)),
        size if size < 1.0 => format!("{} ms", rounded(seconds * 1e3)),
        size if size < 120.0 => format!("{} s", rounded(seconds)),
        size if size < 7_200.0 => format!("{} min", rounded(seconds / 60.0)),
        size if size < 172_800.0 => format!("{} h", rounded(seconds / 3600.0)),
        _ => format!("{} d", rounded(seconds / 86_400.0)),
    }
}

/// An age for people. Clocks are compared by a round trip, so what is younger than that may even seem to come from the future.
pub(crate) fn age(ns: i128) -> String {
    if ns < 100_000 { "<0.1 ms".into() } else { span(ns) }
}

/// Parses `500ms`, `2s`, `1min`, `1h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time with its unit is expected, for example 500ms, 2s, 1min".into()),
    };
    let number: f64 =
        number.parse().map_err(|_| "a number is expected before the unit, for example 500ms".to_owned())?;
    let duration = Duration::try_from_secs_f64(number * unit_s).map_err(|error| error.to_string())?;
    if (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&duration) {
        Ok(duration)
    } else {
        Err("1ms to 24h are possible".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_those_of_the_format() {
        for (value, text) in [
            (0.0, "0.0"),
            (1000.0, "1000.0"),
            (0.00001, "0.00001"),
            (0.000_009, "9e-6"),
            (1.5e-7, "1.5e-7"),
            (1e16, "1e16"),
            (9.007_199_254_740_993e15, "9007199254740992.0"),
            (-2.5, "-2.5"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(decimal(value), text);
        }
        bolero::check!().with_type::<f64>().for_each(|value| {
            let back: f64 = decimal(*value).parse().unwrap();
            assert!(back.to_bits() == value.to_bits() || value.is_nan());
        });
    }

    #[test]
    fn people_get_short_numbers() {
        for (value, unit, text) in [
            (16_655_798_272.0, "bytes", "15.512 GiB"),
            (512.0, "bytes", "512 B"),
            (0.0, "bytes", "0 B"),
            (2048.0, "bytes_per_second", "2 KiB/s"),
            (0.0032, "seconds", "3.2 ms"),
            (4e-10, "seconds", "0.4 ns"),
            (1234.56, "seconds", "1234.6 s"),
            (0.0, "seconds", "0 s"),
            (0.25, "ratio", "0.25 ratio"),
            (12_345_678.0, "", "12345678"),
            (1e300, "", "1.000e300"),
            (f64::NAN, "", "NaN"),
        ] {
            assert_eq!(with_unit(value, unit), text, "{value} {unit}");
        }
        let spans = [(900, "0.9 us"), (250_000_000, "250 ms"), (-1_500_000_000, "-1.5 s"), (600_000_000_000, "10 min")];
        for (ns, text) in
            [(-24_000, "<0.1 ms"), (0, "<0.1 ms"), (99_999, "<0.1 ms"), (100_000, "100 us"), (2_000_000, "2.0 ms")]
        {
            assert_eq!(age(ns), text);
        }
        for (ns, text) in spans {
            assert_eq!(span(ns), text);
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2min"), Ok(Duration::from_secs(120)));
        for text in ["", "5", "s", "1.2.3s", "0s", "25h", "1e9s", "-1s", "9999999999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
