// SPDX-License-Identifier: Apache-2.0
//! A store that is only read, as long as nobody else writes to it.

use std::sync::{Arc, Mutex, RwLock};

use super::open::Replayed;
use super::{Figures, Shared, Store};
use crate::damage::StoreError;
use crate::framing::files::Lock;
use crate::warm::Level;
use crate::{catalogue, gaps, wal, warm};

/// Opens the store that is locked, to read it. Nothing is written; what a controller that was killed has left in its
/// ring is not in it.
///
/// # Errors
/// [`StoreError`]. Damage is none: what is lost is not there.
pub fn open_to_read(lock: &Arc<Lock>) -> Result<Store, StoreError> {
    let dir = lock.dir();
    let known = Arc::new(RwLock::new(catalogue::look::read(dir)?.0));
    let chunks = warm::look::reader(dir)?;
    let mut replayed = Replayed::new(known.clone(), chunks.clone());
    wal::look::replay(&wal::look::hold(dir)?, |source, entry| replayed.take(source, entry))?;
    let (rows, gaps) = (Mutex::new(replayed.rows), Arc::new(Mutex::new(gaps::read(dir)?)));
    let figures = Figures::default();
    figures.oldest_ns.store(chunks.oldest_ns(Level::Raw).unwrap_or(0), std::sync::atomic::Ordering::Relaxed);
    Ok(Store(Arc::new(Shared { known, chunks, rows, gaps, figures })))
}
