// SPDX-License-Identifier: Apache-2.0
//! Defining from another thread than the catalogue's: readers know it at once, and the catalogue's owner is sent it as items, to be written.
//!
//! Nobody waits for a disk here. Cost: a lock and some look-ups a track or line; the content of a part that is new is hashed once more.

use std::sync::{Arc, PoisonError, RwLock};

use super::item::{Item, Pairs};
use super::known::Known;
use super::{HostId, TrackKey, text_key};
use crate::damage::Damage;
use crate::layout::Layout;
use crate::types::{Line, TrackId};

/// What a track is.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Name of the host.
    pub host: String,
    /// Labels of the host: of all its series.
    pub common: Vec<(String, String)>,
    /// Whose regions they are: 0 the agent's, `u64::MAX` the controller's own, else one region by its identity word.
    pub source: u64,
    /// Labels of the region.
    pub region: Vec<(String, String)>,
    /// What its rows are made of.
    pub layout: Arc<Layout>,
    /// Texts of infos: number of the part, of the series in it, text.
    pub texts: Vec<(u32, u32, String)>,
}

/// Enters tracks and lines.
#[derive(Clone)]
pub struct Definer(Arc<RwLock<Known>>);

/// Enters, and keeps what was new.
struct Entering<'a> {
    known: &'a mut Known,
    items: Vec<u8>,
}

impl Entering<'_> {
    fn enter(&mut self, item: &Item<'_>) -> Result<(), Damage> {
        if self.known.enter(item)? {
            item.encode(&mut self.items);
        }
        Ok(())
    }
}

impl Definer {
    pub(super) fn new(known: Arc<RwLock<Known>>) -> Self {
        Self(known)
    }

    fn entering<T>(&self, enter: impl FnOnce(&mut Entering<'_>) -> Result<T, Damage>) -> Result<(T, Vec<u8>), Damage> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut entering = Entering { known: &mut known, items: Vec::new() };
        let entered = enter(&mut entering)?;
        Ok((entered, entering.items))
    }

    /// The track of this description, and the items that are new with it; its first row is of `since_ns` (UTC).
    ///
    /// # Errors
    /// [`Damage`]: something in it is too large. What was entered before that is forgotten with the next start.
    pub fn track(&self, description: &Description, since_ns: u64) -> Result<(TrackId, Vec<u8>), Damage> {
        let Description { host: name, common, source, region, layout, texts } = description;
        self.entering(|all| {
            for placed in layout.parts() {
                if all.known.part(placed.id).is_none() {
                    let (id, content) = placed.part.content();
                    all.enter(&Item::Part { id, content: &content })?;
                }
            }
            let parts = layout.parts().iter().map(|placed| placed.id).collect();
            all.enter(&Item::Layout { id: layout.id(), is_table: layout.is_table(), parts })?;
            let labels = Pairs::new(common);
            let host = match all.known.find_host(name, &labels) {
                Some(host) => host,
                None => {
                    let number = HostId(all.known.next.host);
                    all.enter(&Item::Host { number, name, labels })?;
                    number
                }
            };
            let texts = texts.iter().map(|(part, series, text)| (text_key(*part, *series), text.clone()));
            let (labels, texts) = (region.clone(), texts.collect());
            let key = TrackKey { host, source: *source, labels, texts, layout: layout.id() };
            if let Some(track) = all.known.find_track(&key) {
                *all.known.uses.entry(track).or_default() += 1;
                return Ok(track);
            }
            let number = all.known.next_track();
            *all.known.uses.entry(number).or_default() += 1;
            let (labels, texts) = (Pairs::new(&key.labels), Pairs::new(&key.texts));
            let (source, layout, created_ns) = (*source, layout.id(), since_ns);
            all.enter(&Item::Track { number, host, source, created_ns, layout, labels, texts })?;
            Ok(number)
        })
    }

    /// The line of a table with these labels and texts (number of the series, text), and the items that are new with
    /// it; its first row is of `since_ns` (UTC).
    ///
    /// # Errors
    /// [`Damage`]: the track is no table, or something is too large.
    pub fn line(
        &self,
        track: TrackId,
        labels: &[(String, String)],
        texts: &[(u32, String)],
        since_ns: u64,
    ) -> Result<(Line, Vec<u8>), Damage> {
        let texts: Vec<_> = texts.iter().map(|(series, text)| (text_key(0, *series), text.clone())).collect();
        let (labels, texts) = (Pairs::new(labels), Pairs::new(&texts));
        self.entering(|all| {
            if let Some(line) = all.known.find_line(track, &labels, &texts) {
                return Ok(line);
            }
            let line = all.known.next_line(track);
            all.enter(&Item::Line { track, line, since_ns, labels, texts })?;
            Ok(line)
        })
    }
}
