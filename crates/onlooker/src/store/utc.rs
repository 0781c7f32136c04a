// SPDX-License-Identifier: Apache-2.0
//! Times as people write and read them, in UTC.

use onlooker_framestore::cold;

/// `2026-11-24 10:00:00`.
pub(super) fn text(ns: u64) -> String {
    let short = cold::utc(ns / 1_000_000_000);
    let part = |from: usize, to: usize| short.get(from..to).unwrap_or_default();
    let (date, time) = ([part(0, 4), part(4, 6), part(6, 8)], [part(9, 11), part(11, 13), part(13, 15)]);
    format!("{} {}", date.join("-"), time.join(":"))
}

/// Seconds since 1970 of `2026-11-24`, `2026-11-24T10:00Z`, `2026-11-24 10:00:30`, or of such a number itself.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        "a time in UTC is expected, as 2026-11-24, 2026-11-24T10:30 or 2026-11-24T10:30:15Z, or seconds since 1970"
            .to_owned()
    };
    if text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() > 8 {
        return text.parse().map_err(|_| wrong());
    }
    let bare = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = bare.split_once(['T', ' ']).unwrap_or((bare, ""));
    let (date, time) = (date.replace('-', ""), time.replace(':', ""));
    cold::second(&format!("{date}T{time:0<6}Z")).filter(|_| matches!(time.len(), 0 | 4 | 6)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (given, second) in [
            ("2026-11-24", 1_795_478_400),
            ("20261124", 1_795_478_400),
            ("2026-11-24T10:30", 1_795_516_200),
            ("2026-11-24T10:30Z", 1_795_516_200),
            ("2026-11-24 10:30:15", 1_795_516_215),
            ("20261124T103015Z", 1_795_516_215),
            ("1795516215", 1_795_516_215),
        ] {
            assert_eq!(parse(given), Ok(second), "{given}");
        }
        assert_eq!(text(1_795_516_215_999_999_999), "2026-11-24 10:30:15");
        for given in ["", "now", "2026-13-24", "2026-11-24T10", "2026-11-24T1030150", "2026-11-24T25:00", "-5", "1 2"] {
            assert!(parse(given).unwrap_err().contains("2026-11-24T10:30"), "{given}");
        }
        bolero::check!().with_type::<u32>().for_each(|second| {
            assert_eq!(parse(&text(u64::from(*second) * 1_000_000_000)), Ok((*second).into()));
        });
        bolero::check!().with_type::<String>().for_each(|given| drop(parse(given)));
    }
}
