// SPDX-License-Identifier: Apache-2.0
//! What Prometheus' text has of an entity beside its values, once for all entities of a kind.
//!
//! In a line like `node_cpu_seconds_total{cpu="0",instance="web-3",mode="idle"} 7` the host's labels are the same in
//! all lines of the host, those of a program's region or of a table's row in all lines of the entity, and everything
//! else in the lines of all hosts. So a [`Template`] has the lines with places for two sets of labels, and equal
//! templates are one ([`Template::shared`]): ten thousand hosts of a kind have one of each group, and all rows of all
//! their tables another. What differs is a [`LabelSet`] of the host and one of the entity, and the row of values.
//!
//! Made once when an entity comes, by whoever shows the fleet; read by `/metrics`. Cost: a line is three copies of text
//! and a number, some 50 ns, no allocation; a histogram allocates.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use onlooker_region::columns::Value;
use onlooker_region::schema::Metric;

use crate::exposition::{push_label, push_value, samples};
use crate::series::{Form, Series};
use crate::text::Text;

/// Fewest templates in the pool before it is looked through.
const SWEEP_TEMPLATES: usize = 1024;

static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Pool {
    templates: HashSet<Arc<Template>>,
    sweep_at: usize,
}

impl Pool {
    fn take(&mut self, template: Template) -> Arc<Template> {
        if let Some(known) = self.templates.get(&template) {
            return known.clone();
        }
        if self.templates.len() >= self.sweep_at {
            self.templates.retain(|template| Arc::strong_count(template) > 1);
            self.sweep_at = (2 * self.templates.len()).max(SWEEP_TEMPLATES);
        }
        let template = Arc::new(template);
        self.templates.insert(template.clone());
        template
    }
}

/// Some labels as the text has them, one after the other with commas between, so that neighbours are one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSet {
    text: Box<str>,
    /// Where each begins and ends.
    places: Box<[(u32, u32)]>,
}

impl LabelSet {
    /// Labels in the order of their names.
    ///
    /// # Panics
    /// Where their text has 4 GiB.
    pub fn new<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (mut text, mut places) = (String::new(), Vec::new());
        for (name, value) in labels {
            if !text.is_empty() {
                text.push(',');
            }
            let from = text.len();
            push_label(&mut text, name, value);
            places.push((short(from), short(text.len())));
        }
        Self { text: text.into(), places: places.into() }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// All of them, with commas between.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// For a template to write.
    #[must_use]
    pub fn view(&self) -> LabelView<'_> {
        LabelView { text: &self.text, places: &self.places }
    }
}

/// A label set where it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct LabelView<'a> {
    text: &'a str,
    places: &'a [(u32, u32)],
}

impl<'a> LabelView<'a> {
    fn run(&self, (first, last): (u32, u32)) -> &'a str {
        let ends = self.places.get(first as usize).zip(self.places.get(last as usize));
        ends.and_then(|((from, _), (_, to))| self.text.get(*from as usize..*to as usize)).unwrap_or_default()
    }
}

/// Label sets of many, in memory that is read from front to back.
#[derive(Debug, Default)]
pub struct LabelSets {
    text: String,
    places: Vec<(u32, u32)>,
    /// Where each set's text and places end.
    ends: Vec<(usize, usize)>,
}

impl LabelSets {
    /// Adds one behind the others.
    pub fn push(&mut self, set: &LabelSet) {
        self.text.push_str(&set.text);
        self.places.extend_from_slice(&set.places);
        self.ends.push((self.text.len(), self.places.len()));
    }

    /// One of them, by its number.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    #[inline]
    pub fn get(&self, number: usize) -> LabelView<'_> {
        let (text, places) = number.checked_sub(1).map_or((0, 0), |before| self.ends[before]);
        let (text_end, places_end) = self.ends[number];
        LabelView { text: &self.text[text..text_end], places: &self.places[places..places_end] }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Memory, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text.capacity() + size_of::<(u32, u32)>() * self.places.capacity() + 16 * self.ends.capacity()
    }
}

/// A part of a line before its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// The template's own text, from here to there.
    Text(u32, u32),
    /// Labels of the host, from this one to that one.
    Host(u32, u32),
    /// Labels of the entity.
    Entity(u32, u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// Number of its series in the entity.
    series: usize,
    pieces: Range<usize>,
    form: Form,
    /// Bits of the scale.
    scale: u64,
    at: usize,
}

/// Lines of one metric, which stand together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Name of the metric.
    pub name: Text,
    /// Its type.
    pub metric: Metric,
    /// Its help: of the first series.
    pub help: Text,
    lines: Range<usize>,
}

/// The lines of an entity, but for values and labels that others have, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: Box<str>,
    pieces: Box<[Piece]>,
    lines: Box<[Line]>,
    families: Box<[Family]>,
    words: usize,
}

impl Hash for Template {
    /// What differs in anything else almost always differs in its text.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
        self.lines.len().hash(state);
    }
}

fn short(length: usize) -> u32 {
    u32::try_from(length).expect("a text of labels has less than 4 GiB")
}

impl Template {
    /// Of an entity's series; `host` are the labels that all series of the host have, in the order of their names. With
    /// the labels of the entity.
    #[must_use]
    pub fn new(series: &[Series], host: &[(&str, &str)]) -> (Self, LabelSet) {
        let entity = common(series, host);
        let mut families: Vec<(Family, Vec<usize>)> = Vec::new();
        let mut by_name: HashMap<(&str, Metric), usize> = HashMap::new();
        for (number, one) in series.iter().enumerate() {
            let family = *by_name.entry((&*one.name, one.metric)).or_insert_with(|| {
                let (name, help) = (one.name.clone(), one.help.clone());
                families.push((Family { name, metric: one.metric, help, lines: 0..0 }, Vec::new()));
                families.len() - 1
            });
            families[family].1.push(number);
        }
        let mut maker = Maker { host, entity: &entity, text: String::new(), pieces: Vec::new() };
        let mut lines = Vec::with_capacity(series.len());
        for (family, members) in &mut families {
            let first = lines.len();
            lines.extend(members.iter().map(|number| maker.line(*number, &series[*number])));
            family.lines = first..lines.len();
        }
        let words = series.iter().map(|one| one.at + one.form.words()).max().unwrap_or(0);
        let template = Self {
            text: maker.text.into(),
            pieces: maker.pieces.into(),
            lines: lines.into(),
            families: families.into_iter().map(|(family, _)| family).collect(),
            words,
        };
        (template, LabelSet::new(entity))
    }

    /// The one that is equal to this one and that others have already.
    #[must_use]
    pub fn shared(self) -> Arc<Self> {
        POOL.lock().unwrap_or_else(PoisonError::into_inner).take(self)
    }

    /// Metrics in the order of their first series.
    #[must_use]
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// Words of a row.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words
    }

    /// How many of a family's series are not among the `hidden` ones, of which there is one for each series of the
    /// entity.
    #[must_use]
    pub fn visible(&self, family: &Family, hidden: Option<&[bool]>) -> usize {
        self.lines[family.lines.clone()].iter().filter(|line| !is_hidden(line, hidden)).count()
    }

    /// Of each of a family's series that are not among the `hidden` ones: the pieces of its name and labels that are the
    /// template's own.
    pub fn own_texts<'a>(
        &'a self,
        family: &Family,
        hidden: Option<&'a [bool]>,
    ) -> impl Iterator<Item = impl Iterator<Item = &'a str>> {
        let lines = self.lines[family.lines.clone()].iter().filter(move |line| !is_hidden(line, hidden));
        lines.map(|line| {
            self.pieces[line.pieces.clone()].iter().filter_map(|piece| match *piece {
                Piece::Text(from, to) => Some(&self.text[from as usize..to as usize]),
                Piece::Host(..) | Piece::Entity(..) => None,
            })
        })
    }

    /// Appends the lines of a family that are not hidden; what the row has no words for is left out.
    #[inline]
    pub fn write(
        &self,
        family: &Family,
        hidden: Option<&[bool]>,
        (host, entity): (LabelView<'_>, LabelView<'_>),
        row: &[u64],
        out: &mut String,
    ) {
        for line in &self.lines[family.lines.clone()] {
            if is_hidden(line, hidden) {
                continue;
            }
            let words = row.get(line.at..line.at + line.form.words()).unwrap_or_default();
            let value = match (line.form, words) {
                (Form::Text, _) => Value::U64(1),
                (Form::Unsigned, [word]) => Value::U64(*word),
                (Form::Signed, [word]) => Value::I64(word.cast_signed()),
                (Form::Float, [word]) => Value::F64(f64::from_bits(*word)),
                (Form::Histogram(shape), [buckets @ .., sum]) => {
                    let value = Value::Histogram { buckets: buckets.to_vec(), shape, sum: *sum };
                    let mut front = String::new();
                    self.front(line, host, entity, &mut front);
                    samples(out, &family.name, &front[family.name.len()..], &value, f64::from_bits(line.scale));
                    continue;
                }
                _ => continue,
            };
            self.front(line, host, entity, out);
            out.push(' ');
            // An info is 1, whatever its scale.
            let scale = if line.form == Form::Text { 1.0 } else { f64::from_bits(line.scale) };
            push_value(out, &value, scale);
            out.push('\n');
        }
    }

    /// Name and labels.
    #[inline]
    fn front(&self, line: &Line, host: LabelView<'_>, entity: LabelView<'_>, out: &mut String) {
        for piece in &self.pieces[line.pieces.clone()] {
            out.push_str(match *piece {
                Piece::Text(from, to) => &self.text[from as usize..to as usize],
                Piece::Host(first, last) => host.run((first, last)),
                Piece::Entity(first, last) => entity.run((first, last)),
            });
        }
    }
}

fn is_hidden(line: &Line, hidden: Option<&[bool]>) -> bool {
    hidden.is_some_and(|hidden| hidden.get(line.series).copied().unwrap_or(false))
}

/// Labels that all series have and that are not the host's.
fn common<'a>(series: &'a [Series], host: &[(&str, &str)]) -> Vec<(&'a str, &'a str)> {
    let Some(first) = series.first() else { return Vec::new() };
    let mut common: Vec<_> = first.labels.iter().filter(|label| !host.contains(label)).collect();
    for pair in series.windows(2).filter(|pair| pair[0].labels != pair[1].labels) {
        common.retain(|(name, value)| pair[1].labels.get(name) == Some(value));
    }
    common
}

/// What becomes a template.
struct Maker<'a> {
    host: &'a [(&'a str, &'a str)],
    entity: &'a [(&'a str, &'a str)],
    text: String,
    pieces: Vec<Piece>,
}

impl Maker<'_> {
    fn line(&mut self, number: usize, series: &Series) -> Line {
        let first = self.pieces.len();
        self.literal(first, |text| text.push_str(&series.name));
        let mut is_first = true;
        for label in series.labels.iter() {
            let of = |set: &[(&str, &str)]| set.iter().position(|other| *other == label).map(short);
            let (host, entity) = (of(self.host), of(self.entity));
            let before = self.pieces.last_mut();
            match (host, entity, before) {
                // Its neighbour in the set is its neighbour here: the comma between them is the set's.
                (Some(at), _, Some(Piece::Host(_, last))) if *last + 1 == at => *last = at,
                (None, Some(at), Some(Piece::Entity(_, last))) if *last + 1 == at => *last = at,
                _ => {
                    let mark = if is_first { '{' } else { ',' };
                    self.literal(first, |text| text.push(mark));
                    match (host, entity) {
                        (Some(at), _) => self.pieces.push(Piece::Host(at, at)),
                        (None, Some(at)) => self.pieces.push(Piece::Entity(at, at)),
                        (None, None) => self.literal(first, |text| push_label(text, label.0, label.1)),
                    }
                }
            }
            is_first = false;
        }
        if !is_first {
            self.literal(first, |text| text.push('}'));
        }
        let pieces = first..self.pieces.len();
        Line { series: number, pieces, form: series.form, scale: series.scale.to_bits(), at: series.at }
    }

    /// Writes text of the line whose first piece is `first`: it joins the text before it.
    fn literal(&mut self, first: usize, write: impl FnOnce(&mut String)) {
        let from = short(self.text.len());
        write(&mut self.text);
        let to = short(self.text.len());
        match self.pieces[first..].last_mut() {
            Some(Piece::Text(_, end)) if *end == from => *end = to,
            _ => self.pieces.push(Piece::Text(from, to)),
        }
    }
}

#[cfg(test)]
mod tests;
