// SPDX-License-Identifier: Apache-2.0
//! How many connections there may be at once, in all and of one source, so that one source cannot take all places. No I/O.
//!
//! Taken by the main thread, given back by the connection threads. Cost: a lock at the begin and the end of a connection; one table entry for each source
//! that has a place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlooker_bootstrap::source;

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// All are taken.
    All,
    /// This source has its share.
    Source,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// All places.
#[derive(Debug)]
pub struct Places {
    most: usize,
    most_of_source: usize,
    taken: Mutex<Taken>,
}

/// A taken place; free again when dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    source: IpAddr,
}

impl Places {
    /// So many in all, and for one source ([`source`]).
    #[must_use]
    pub fn new(most: usize, most_of_source: usize) -> Arc<Self> {
        Arc::new(Self { most, most_of_source, taken: Mutex::default() })
    }

    /// A place for a connection from `address`.
    ///
    /// # Errors
    /// There is none.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Result<Place, Full> {
        let source = source(address);
        let mut taken = self.lock();
        if taken.by_source.get(&source).is_some_and(|count| *count >= self.most_of_source) {
            return Err(Full::Source);
        }
        if taken.all >= self.most {
            return Err(Full::All);
        }
        taken.all += 1;
        *taken.by_source.entry(source).or_default() += 1;
        Ok(Place { places: self.clone(), source })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all -= 1;
        if let Some(count) = taken.by_source.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                taken.by_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_gets_its_share_and_all_get_what_there_is() {
        let places = Places::new(5, 2);
        let take = |address: &str| places.take(address.parse().unwrap());
        let first = take("10.0.0.1").unwrap();
        let _second = take("::ffff:10.0.0.1").unwrap();
        assert_eq!(take("10.0.0.1").unwrap_err(), Full::Source);
        let _of_a_net = [take("2001:db8::1").unwrap(), take("2001:db8::ffff:1").unwrap()];
        assert_eq!(take("2001:db8::3").unwrap_err(), Full::Source, "one /64 is one source");
        let other = take("2001:db8:0:1::3").unwrap();
        assert_eq!(take("10.0.0.2").unwrap_err(), Full::All);
        drop(first);
        drop(other);
        let _again = take("10.0.0.1").unwrap();
        assert_eq!(take("10.0.0.1").unwrap_err(), Full::Source);
        assert_eq!(places.lock().by_source.len(), 2, "only those who have a place are remembered");
    }
}
