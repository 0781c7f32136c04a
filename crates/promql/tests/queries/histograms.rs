// SPDX-License-Identifier: Apache-2.0
//! Native histograms of scripts: how they are written, what classic ones become, and how near results must be.

use std::collections::BTreeMap;
use std::sync::Arc;

use onlooker_promql::histogram::{Buckets, Hint, Histogram, Scale};
use onlooker_promql::labels::{BUCKET, Labels, NAME};

use crate::memory::Sample;
use crate::script::{Item, is_near, repeats};

/// `{{schema:1 sum:5 ...}}`, and what follows it: the histogram, and whether it says what is known of its counter.
fn histogram(text: &str) -> Result<((Histogram, bool), &str), String> {
    let inner = text.strip_prefix("{{").ok_or("no histogram")?;
    let end = inner.find("}}").ok_or("a histogram that does not end")?;
    let (mut fields, rest) = (inner[..end].trim(), &inner[end + 2..]);
    let mut all: BTreeMap<&str, &str> = BTreeMap::new();
    while !fields.is_empty() {
        let (name, after) = fields.split_once(':').ok_or("a field without a value")?;
        let len = if after.starts_with('[') { after.find(']').map(|end| end + 1) } else { after.find(' ') };
        let (value, after) = after.split_at(len.unwrap_or(after.len()));
        all.insert(name, value);
        fields = after.trim_start();
    }
    let number = |name: &str| -> Result<f64, String> {
        all.get(name).map_or(Ok(0.0), |text| text.parse().map_err(|_| format!("no number: {text}")))
    };
    let whole = |name: &str| -> Result<i32, String> {
        all.get(name).map_or(Ok(0), |text| text.parse().map_err(|_| format!("no number: {text}")))
    };
    let list = |name: &str| -> Result<Vec<f64>, String> {
        let text = all.get(name).map_or("", |text| text.trim_matches(['[', ']']));
        let numbers = text.split_whitespace().map(|text| text.parse().map_err(|_| format!("no number: {text}")));
        numbers.collect()
    };
    let buckets =
        |counts: &str, offset: &str| -> Result<Buckets, String> { Ok((whole(offset)?..).zip(list(counts)?).collect()) };
    let scale = match whole("schema")? {
        -53 => Scale::Custom(list("custom_values")?.into()),
        schema => Scale::Exponential {
            schema: i8::try_from(schema).map_err(|_| "no such schema")?,
            zero_threshold: number("z_bucket_w")?,
        },
    };
    let hint = match all.get("counter_reset_hint").copied() {
        Some("reset") => Hint::Reset,
        Some("not_reset") => Hint::NotReset,
        Some("gauge") => Hint::Gauge,
        _ => Hint::Unknown,
    };
    let mut histogram = Histogram {
        count: number("count")?,
        sum: number("sum")?,
        zero_count: number("z_bucket")?,
        positive: buckets("buckets", "offset")?,
        negative: buckets("n_buckets", "n_offset")?,
        hint,
        ..Histogram::empty(scale)
    };
    histogram.compact();
    Ok(((histogram, all.contains_key("counter_reset_hint")), rest))
}

/// One histogram or several, each so much more or less than the one before, and what follows them.
pub(crate) fn items(text: &str) -> Result<(Vec<Item>, &str), String> {
    let ((mut own, mut says_hint), mut rest) = histogram(text)?;
    let mut items = vec![(own.clone(), says_hint)];
    let step = match rest.chars().next() {
        Some(sign @ ('+' | '-')) => {
            let ((step, says), after) = histogram(&rest[1..])?;
            (rest, says_hint) = (after, says);
            items[0].1 = says;
            Some((step, if sign == '+' { 1.0 } else { -1.0 }))
        }
        _ => None,
    };
    for _ in 0..repeats(&mut rest)?.unwrap_or(0) {
        if let Some((step, times)) = &step {
            own = own.plus(step, *times).ok_or("these histograms cannot be added")?;
        }
        items.push((own.clone(), says_hint));
    }
    let items = items.into_iter().map(|(histogram, says_hint)| Item::Histogram(Arc::new(histogram), says_hint));
    Ok((items.collect(), rest))
}

/// A classic histogram at one time.
#[derive(Default)]
struct Classic {
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
}

impl Classic {
    fn converted(mut self) -> Option<Histogram> {
        self.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count = self.count.or(self.buckets.last().map(|(_, count)| *count))?;
        let bounds: Arc<[f64]> =
            self.buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect();
        if bounds.len() == self.buckets.len() {
            self.buckets.push((f64::INFINITY, count));
        }
        let mut before = 0.0;
        let counts = self.buckets.iter().map(|(_, count)| count - std::mem::replace(&mut before, *count));
        let mut histogram =
            Histogram { positive: (0..).zip(counts).collect(), ..Histogram::empty(Scale::Custom(bounds)) };
        (histogram.count, histogram.sum) = (count, self.sum);
        histogram.compact();
        Some(histogram)
    }
}

/// Native histograms with custom bounds, of all classic ones.
pub(crate) fn converted(series: &[(Labels, Vec<(i64, Sample)>)]) -> Vec<(Labels, Vec<(i64, Sample)>)> {
    let mut all: BTreeMap<Labels, BTreeMap<i64, Classic>> = BTreeMap::new();
    for (labels, samples) in series {
        let Some((base, kind)) = labels.name().rsplit_once('_') else { continue };
        let bound: f64 = labels.get(BUCKET).parse().unwrap_or(f64::NAN);
        if !matches!(kind, "bucket" | "sum" | "count") || kind == "bucket" && bound.is_nan() {
            continue;
        }
        let own = labels.iter().filter(|(name, _)| *name != NAME && *name != BUCKET);
        let own = Labels::new(own.chain([(NAME, base)]).map(|(name, value)| (name.to_owned(), value.to_owned())));
        let times = all.entry(own).or_default();
        for (time_ns, sample) in samples {
            let Sample::Float(value) = sample else { continue };
            let classic = times.entry(*time_ns).or_default();
            match kind {
                "bucket" => classic.buckets.push((bound, *value)),
                "sum" => classic.sum = *value,
                _ => classic.count = Some(*value),
            }
        }
    }
    let converted =
        |(time_ns, classic): (i64, Classic)| Some((time_ns, Sample::Histogram(Arc::new(classic.converted()?))));
    all.into_iter().map(|(labels, times)| (labels, times.into_iter().filter_map(converted).collect())).collect()
}

/// As near as promqltest wants it; whether they say the same of their counters where `with_hint`.
pub(crate) fn is_like(found: &Histogram, wanted: &Histogram, with_hint: bool) -> bool {
    let all =
        |a: &Buckets, b: &Buckets| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && is_near(a.1, b.1));
    found.scale == wanted.scale
        && is_near(found.count, wanted.count)
        && is_near(found.sum, wanted.sum)
        && is_near(found.zero_count, wanted.zero_count)
        && all(&found.positive, &wanted.positive)
        && all(&found.negative, &wanted.negative)
        && (!with_hint || found.hint == wanted.hint)
}

/// What Prometheus's store says of a counter, from the sample before: that it was reset only if the sample says so.
pub(crate) fn hint(before: Option<&Histogram>, own: &Histogram) -> Hint {
    let falls = |a: &Buckets, b: &Buckets| {
        b.iter().any(|(number, count)| a.iter().find(|(own, _)| own == number).is_none_or(|(_, own)| own < count))
    };
    let goes_on = |before: &Histogram| {
        before.hint != Hint::Gauge
            && own.scale == before.scale
            && own.count >= before.count
            && own.zero_count >= before.zero_count
            && !falls(&own.positive, &before.positive)
            && !falls(&own.negative, &before.negative)
    };
    match before {
        _ if matches!(own.hint, Hint::Gauge | Hint::Reset) => own.hint,
        Some(before) if goes_on(before) => Hint::NotReset,
        _ => Hint::Unknown,
    }
}
