// SPDX-License-Identifier: Apache-2.0
//! Numbers as texts that fit narrow columns: three digits are enough to compare, and `-` stands for what is not known.

use super::devices::FULL;

const UNKNOWN: &str = "-";
const BYTES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

fn known(value: Option<f64>, text: impl FnOnce(f64) -> String) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| UNKNOWN.into(), text)
}

/// Three digits: `1.52`, `15.2`, `152`.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size == 0.0 || size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn of_bytes(value: f64) -> String {
    let (mut scaled, mut step) = (value, 0);
    // 1023.7 would be written as 1024.
    while scaled.abs() >= 1023.5 && step + 1 < BYTES.len() {
        scaled /= 1024.0;
        step += 1;
    }
    let number = if step == 0 { format!("{scaled:.0}") } else { digits(scaled) };
    format!("{number} {}", BYTES[step])
}

/// At most 8 characters.
pub(super) fn bytes(value: Option<f64>) -> String {
    known(value, of_bytes)
}

/// At most 10 characters.
pub(super) fn bytes_rate(value: Option<f64>) -> String {
    known(value, |value| format!("{}/s", of_bytes(value)))
}

/// With its sign, which counts here.
pub(super) fn growth(value: Option<f64>) -> String {
    known(value, |value| match value {
        0.0 => "=".into(),
        value => format!("{}{}", if value > 0.0 { "+" } else { "" }, of_bytes(value)),
    })
}

/// CPUs in use.
pub(super) fn cores(value: Option<f64>) -> String {
    known(value, |value| if value == 0.0 { "0".into() } else { digits(value) })
}

/// In whole per cent.
pub(super) fn share(value: Option<f64>) -> String {
    known(value, |value| match value * 100.0 {
        percent if percent > 0.0 && percent < 0.5 => "<1 %".into(),
        percent => format!("{percent:.0} %"),
    })
}

/// In per cent with its fractions: small ones matter.
pub(super) fn fine_share(value: Option<f64>) -> String {
    known(value, |value| format!("{} %", digits(value * 100.0)))
}

/// Whole numbers.
pub(super) fn count(value: Option<f64>) -> String {
    known(value, |value| format!("{value:.0}"))
}

/// So many a second.
pub(super) fn rate(value: Option<f64>) -> String {
    known(value, |value| match value {
        value if value > 0.0 && value < 0.005 => "<0.01/s".into(),
        value if value >= 99_950.0 => format!("{:.0}k/s", value / 1e3),
        value => format!("{}/s", digits(value)),
    })
}

/// A time that requests take.
pub(super) fn seconds(value: Option<f64>) -> String {
    known(value, |value| match value {
        value if value < 1e-3 => format!("{} us", digits(value * 1e6)),
        value if value < 1.0 => format!("{} ms", digits(value * 1e3)),
        value => format!("{} s", digits(value)),
    })
}

/// `[||||      ]  42 %` in so many columns; `!` behind what is full.
pub(super) fn bar(value: Option<f64>, width: usize) -> String {
    let inner = width.saturating_sub(8);
    let Some(part) = value.filter(|part| part.is_finite()) else { return format!("{UNKNOWN:>width$}") };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // 0 to the width
    let full = (part.clamp(0.0, 1.0) * inner as f64).round() as usize;
    let mark = if part >= FULL { "!" } else { " " };
    format!("[{}{}]{:>5}{mark}", "|".repeat(full), " ".repeat(inner - full), share(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_their_columns() {
        for (value, text) in [
            (0.0, "0 B"),
            (1023.0, "1023 B"),
            (1024.0, "1.00 KiB"),
            (15.26 * 1024.0, "15.3 KiB"),
            (1023.7 * 1024.0, "1.00 MiB"),
            (999.0 * 1024.0 * 1024.0, "999 MiB"),
            (1e18, "888 PiB"),
        ] {
            assert_eq!(bytes(Some(value)), text);
        }
        for exponent in 0..60 {
            let value = Some(2f64.powi(exponent) * 1.37);
            assert!(bytes(value).len() <= 8 && bytes_rate(value).len() <= 10, "{value:?}");
        }
        assert_eq!(
            (growth(Some(-2048.0)), growth(Some(0.0)), growth(None)),
            ("-2.00 KiB".into(), "=".into(), "-".into())
        );
        assert_eq!(
            (share(Some(0.001)), share(Some(1.0)), share(Some(f64::NAN))),
            ("<1 %".into(), "100 %".into(), "-".into())
        );
        assert_eq!(
            (rate(Some(0.001)), rate(Some(1e6)), rate(Some(3.0))),
            ("<0.01/s".into(), "1000k/s".into(), "3.00/s".into())
        );
        assert_eq!(
            (seconds(Some(3e-4)), seconds(Some(0.0123)), cores(Some(1.5))),
            ("300 us".into(), "12.3 ms".into(), "1.50".into())
        );
        assert_eq!(
            (bar(Some(0.5), 18), bar(Some(0.95), 18)),
            ("[|||||     ] 50 % ".into(), "[||||||||||] 95 %!".into())
        );
        assert_eq!(bar(None, 9), "        -");
    }
}
