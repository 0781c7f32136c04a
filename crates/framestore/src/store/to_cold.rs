// SPDX-License-Identifier: Apache-2.0
//! What a cold file is given of a part, whoever makes it: its series with all their names, and its gaps.

use onlooker_series::series::Form;

use super::names::{Named, PartOf};
use crate::cold::{self, GapData, SeriesData};
use crate::damage::StoreError;
use crate::types::Gap;

/// Pushes the series of a part, or of a line, whose columns these are, from the row's column `first` on. Returns the
/// columns of the row that have spots; [`usize::MAX`] stands for a text.
pub(crate) fn push_series(
    writer: &mut cold::Writer,
    named: &Named,
    times_ns: &[u64],
    columns: &[&[u64]],
    first: usize,
) -> Result<Vec<cold::Piece>, StoreError> {
    // A text is a label, and counts as 1.
    let (texts, mut all) = (vec![0; times_ns.len()], Vec::new());
    for series in &named.series {
        let labels: Vec<_> = series.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let (at, is_text) = (series.at - first, series.form == Form::Text);
        let text = [&texts[..]];
        let words = if is_text { &text[..] } else { &columns[at..at + series.form.words()] };
        let pieces = writer.push_told(&SeriesData { series, labels: &labels, times_ns, words })?;
        let column = |column: usize| if is_text { usize::MAX } else { series.at + column };
        all.extend(pieces.into_iter().map(|(at, spot)| (column(at), spot)));
    }
    Ok(all)
}

/// What is told of a gap of a part between two times, both included, if it concerns the part.
pub(crate) fn told(part: &PartOf, gap: &Gap, (first_ns, last_ns): (u64, u64)) -> Option<GapData> {
    let region = match gap.of {
        // All regions of a host's agent are one track.
        None if part.source == 0 && !part.is_table => "",
        Some(number) if !part.is_table && number != part.number => return None,
        _ => &part.region,
    };
    let (from_ns, to_ns) = (gap.from_ns.max(first_ns), gap.to_ns.min(last_ns));
    let (instance, region, reason) = (part.instance.clone(), region.to_owned(), gap.reason.clone());
    Some(GapData { instance, region, from_ns, to_ns, reason })
}
