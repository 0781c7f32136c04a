// SPDX-License-Identifier: Apache-2.0
//! Schemas that the sessions of a process have in common.
//!
//! Thousands of hosts run the same programs, so most of what their directories name is known already. A schema's id is
//! the hash of its text: what one host has given is what any other would give. So it is READ once, parsed and compiled
//! once, and all sessions that were [given](crate::Session::share) the cache have the same [`Plan`].
//!
//! Hosts are not trusted. A schema gets in only after its text was found to hash to its id, so no host can put another
//! text in a schema's place. The cache itself keeps nothing: a plan goes with the last session, or frame, that has it.
//! What a session may have is bounded as if nothing were shared ([`Limits`](crate::Limits)). What a host learns is
//! whether the text of an id that it names is READ, so whether another one has it.
//!
//! Cost: a lock and a look-up for each schema that is new to a session; nothing while a directory stays as it is.

use onlooker_region::columns::Plan;
use onlooker_region::{Schema, SchemaId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// So many names may stand here before it is looked whose plans have gone.
const MIN_SWEEP: usize = 64;

/// The cache. Shared by reference count, and by threads.
#[derive(Debug, Default)]
pub struct SchemaCache {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<SchemaId, Kept>,
    /// Length at which what has gone is swept out.
    sweep_at: usize,
}

#[derive(Debug)]
struct Kept {
    plan: Weak<Plan>,
    /// Length of its text.
    bytes: u64,
}

impl SchemaCache {
    /// Number of schemas that are in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.known().by_id.values().filter(|kept| kept.plan.strong_count() > 0).count()
    }

    /// The schema of an id, if anybody has it, and the length of its text.
    pub(crate) fn find(&self, id: SchemaId) -> Option<(Arc<Plan>, u64)> {
        let known = self.known();
        let kept = known.by_id.get(&id)?;
        Some((kept.plan.upgrade()?, kept.bytes))
    }

    /// Takes a schema whose text, of so many bytes, was found to hash to its id. Gives the one that all have.
    pub(crate) fn enter(&self, id: SchemaId, bytes: u64, schema: Schema) -> Arc<Plan> {
        let made = Arc::new(Plan::new(schema));
        let mut known = self.known();
        // Another session may have been quicker.
        if let Some(plan) = known.by_id.get(&id).and_then(|kept| kept.plan.upgrade()) {
            return plan;
        }
        if known.by_id.len() >= known.sweep_at {
            known.by_id.retain(|_, kept| kept.plan.strong_count() > 0);
            known.sweep_at = (known.by_id.len() * 2).max(MIN_SWEEP);
        }
        known.by_id.insert(id, Kept { plan: Arc::downgrade(&made), bytes });
        made
    }

    /// No step leaves it half-done, so a thread that died with it has done no harm.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(number: usize) -> (SchemaId, u64, Schema) {
        let group = r#"{"kind":"plain","blocks":1,"fields":[{"name":"a","metric":"gauge","type":"u64"}]}"#;
        let schema = Schema::parse(&format!(r#"{{"name":"t{number}","groups":[{group}]}}"#)).unwrap();
        let text = schema.canonical();
        (SchemaId::of(&text), text.len() as u64, schema)
    }

    #[test]
    fn all_have_the_same_one_for_as_long_as_anybody_has_it() {
        let cache = SchemaCache::default();
        let (id, bytes, first) = schema(1);
        assert!(cache.find(id).is_none());
        let one = cache.enter(id, bytes, first.clone());
        let other = cache.enter(id, bytes, first.clone());
        let (found, found_bytes) = cache.find(id).unwrap();
        assert!(Arc::ptr_eq(&one, &other) && Arc::ptr_eq(&one, &found));
        assert_eq!((found_bytes, cache.in_use()), (bytes, 1));
        drop((one, other));
        assert_eq!(cache.in_use(), 1);
        drop(found);
        assert!(cache.find(id).is_none() && cache.in_use() == 0);
        // And begins anew.
        let again = cache.enter(id, bytes, first);
        assert!(Arc::ptr_eq(&again, &cache.find(id).unwrap().0));
    }

    #[test]
    fn what_has_gone_takes_no_room() {
        let cache = SchemaCache::default();
        let stays: Vec<_> = (0..100).map(schema).map(|(id, bytes, schema)| cache.enter(id, bytes, schema)).collect();
        for (id, bytes, schema) in (100..2_000).map(schema) {
            drop(cache.enter(id, bytes, schema));
            assert!(cache.known().by_id.len() <= 2 * stays.len() + MIN_SWEEP);
        }
        assert_eq!(cache.in_use(), stays.len());
    }
}
