// SPDX-License-Identifier: Apache-2.0
//! What stands in the rows of a track: parts, and where each begins.
//!
//! A *part* is what is consistent in itself: a group of a region, or a set of sums, with the names of its series.
//! Thousands of hosts have the same parts, since they run the same programs; a part's id is the hash of its content,
//! and the catalogue has each once. A *layout* is a list of parts; its id follows from theirs. Of labels a part has the
//! series' own only: those of the region and of the host belong to the track, as do the texts of infos, which have no
//! words.
//!
//! ```text
//! row of a layout:   time of part 0, words of part 0, time of part 1, words of part 1, ...
//! ```
//! A part's time (UTC, ns) is when its values were acquired, 0 while it never was. In a row in which a part has nothing
//! new its words are those of the row before, and so is its time: that is how a reader tells. In tables, and where a
//! track has one part, the row's own time is the part's, and there is no word for it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::types::Kind;

/// First 16 bytes of SHA-256 of a content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContentId(pub [u8; 16]);

impl ContentId {
    /// Of these bytes.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        let digest = Sha256::digest(content);
        Self(std::array::from_fn(|at| digest[at]))
    }
}

impl std::fmt::Debug for ContentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Number of the group that events are (`events`): no region has one of this number.
pub(crate) const EVENTS: u32 = u32::MAX;

/// Series that are acquired together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Name of the region.
    pub region: String,
    /// Number of the group in its schema, or of the set of sums.
    pub group: u32,
    /// Its series: labels are their own only, [`Series::at`] counts from the part's first word.
    pub series: Vec<Series>,
}

/// Fewest parts in the pool before it is looked through.
const SWEEP_PARTS: usize = 256;

static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Pool {
    parts: HashMap<ContentId, Weak<Part>>,
    sweep_at: usize,
}

impl Part {
    /// Of these series, in this order: says where the words of each are.
    #[must_use]
    pub fn new(region: &str, group: u32, mut series: Vec<Series>) -> Self {
        let mut at = 0;
        for one in &mut series {
            one.at = at;
            at += one.form.words();
        }
        Self { region: region.to_owned(), group, series }
    }

    /// The one that all have who have this content.
    #[must_use]
    pub fn shared(self) -> (ContentId, Arc<Self>) {
        let (id, _) = self.content();
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pool.parts.get(&id).and_then(Weak::upgrade) {
            return (id, known);
        }
        if pool.parts.len() >= pool.sweep_at {
            pool.parts.retain(|_, part| part.strong_count() > 0);
            pool.sweep_at = (2 * pool.parts.len()).max(SWEEP_PARTS);
        }
        let part = Arc::new(self);
        pool.parts.insert(id, Arc::downgrade(&part));
        (id, part)
    }

    /// Its id and the bytes that it is the hash of: what the catalogue keeps.
    ///
    /// # Panics
    /// Never: texts and finite numbers are JSON.
    #[must_use]
    pub fn content(&self) -> (ContentId, Vec<u8>) {
        let bytes = serde_json::to_vec(self).expect("texts and finite numbers");
        (ContentId::of(&bytes), bytes)
    }

    /// Number of its words.
    #[must_use]
    pub fn width(&self) -> usize {
        self.series.iter().map(|series| series.form.words()).sum()
    }

    /// Kinds of its words.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        self.series.iter().flat_map(|series| std::iter::repeat_n(kind(series), series.form.words()))
    }
}

fn kind(series: &Series) -> Kind {
    match (series.form, series.metric) {
        (Form::Float, _) => Kind::Float,
        (Form::Signed, _) => Kind::Integer { signed: true },
        (Form::Histogram(_), _) | (Form::Unsigned, Metric::Counter) => Kind::Counter,
        // A text has no words.
        (Form::Unsigned | Form::Text, _) => Kind::Integer { signed: false },
    }
}

/// Parts of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    id: ContentId,
    parts: Vec<Placed>,
    kinds: Arc<[Kind]>,
    is_table: bool,
}

/// A part in a layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Its id.
    pub id: ContentId,
    /// What it is.
    pub part: Arc<Part>,
    /// Word of its time; `None`: the row's time is its time.
    pub time: Option<usize>,
    /// Its first word.
    pub at: usize,
}

impl Layout {
    /// Of these parts, in this order. A table has one.
    #[must_use]
    pub fn new(parts: Vec<(ContentId, Arc<Part>)>, is_table: bool) -> Self {
        let mut content = vec![u8::from(is_table)];
        content.extend(parts.iter().flat_map(|(id, _)| id.0));
        let (mut placed, mut kinds) = (Vec::new(), Vec::new());
        let has_times = parts.len() > 1;
        for (id, part) in parts {
            let time = has_times.then_some(kinds.len());
            kinds.extend(time.map(|_| Kind::Integer { signed: false }));
            let at = kinds.len();
            kinds.extend(part.kinds());
            placed.push(Placed { id, part, time, at });
        }
        Self { id: ContentId::of(&content), parts: placed, kinds: kinds.into(), is_table }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> ContentId {
        self.id
    }

    /// Its parts.
    #[must_use]
    pub fn parts(&self) -> &[Placed] {
        &self.parts
    }

    /// Kinds of its words.
    #[must_use]
    pub fn kinds(&self) -> &Arc<[Kind]> {
        &self.kinds
    }

    /// Whether its rows are of many lines, each with labels of its own.
    #[must_use]
    pub fn is_table(&self) -> bool {
        self.is_table
    }

    /// Whether its rows are events, of which no number can say what they were together.
    pub(crate) fn are_events(&self) -> bool {
        self.parts.first().is_some_and(|placed| placed.part.group == EVENTS)
    }
}
