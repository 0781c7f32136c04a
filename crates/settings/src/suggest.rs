// SPDX-License-Identifier: Apache-2.0
//! Turns serde's "unknown field" into a sentence with the nearest known key.

/// The message of a deserialiser, with unknown keys and values explained. Other messages stay as they are.
///
/// serde words these two messages in one place (`serde::de::Error::unknown_field` and `unknown_variant`), with names in backticks.
#[must_use]
pub fn explain(message: &str) -> String {
    let message = message.trim_end();
    let what = if message.starts_with("unknown field `") {
        "key"
    } else if message.starts_with("unknown variant `") {
        "value"
    } else {
        return message.replace('\n', " ");
    };
    let mut quoted = message.split('`').skip(1).step_by(2);
    let Some(wrong) = quoted.next() else { return message.to_owned() };
    let known: Vec<&str> = quoted.collect();
    let list = known.join(", ");
    match nearest(wrong, &known) {
        Some(key) => format!("unknown {what} `{wrong}`: did you mean `{key}`? (known: {list})"),
        None => format!("unknown {what} `{wrong}` (known: {list})"),
    }
}

/// The known name that takes the fewest edits, if it is near enough to be a typing error.
fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let (edits, key) = known.iter().map(|key| (strsim::damerau_levenshtein(wrong, key), *key)).min()?;
    (edits <= 2.max(key.len() / 3)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_key_gets_no_suggestion() {
        assert_eq!(
            explain("unknown field `colour`, expected `listen` or `tls`"),
            "unknown key `colour` (known: listen, tls)"
        );
    }

    #[test]
    fn other_messages_pass() {
        assert_eq!(explain("invalid type: integer"), "invalid type: integer");
    }
}
