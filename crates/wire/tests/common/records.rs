// SPDX-License-Identifier: Apache-2.0
//! Records of a file that `vectors/generate.py` writes.

use std::collections::BTreeMap;

pub(crate) struct Record<'a>(pub(crate) BTreeMap<&'a str, &'a str>);

impl<'a> Record<'a> {
    pub(crate) fn all(file: &'a str) -> Vec<Self> {
        let body: Vec<&str> = file.lines().filter(|line| !line.starts_with('#')).collect();
        body.split(|line| line.is_empty())
            .filter(|lines| !lines.is_empty())
            .map(|lines| {
                let pairs = lines.iter().map(|line| line.split_once(':').expect("key: value"));
                Self(pairs.map(|(key, value)| (key, value.trim_start())).collect())
            })
            .collect()
    }

    pub(crate) fn text(&self, key: &str) -> &'a str {
        self.0.get(key).unwrap_or_else(|| panic!("no {key} in {:?}", self.0))
    }

    pub(crate) fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(&self, key: &str) -> T {
        self.text(key).parse().unwrap()
    }

    pub(crate) fn bytes(&self, key: &str) -> Vec<u8> {
        hex(self.text(key))
    }
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    assert_eq!(text.len() % 2, 0);
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
