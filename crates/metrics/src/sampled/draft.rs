// SPDX-License-Identifier: Apache-2.0
//! A group of this host before and after it has memory: all of it, or what is left where some of it is computed.

use onlooker_region::Schema;
use onlooker_region::block::Identity;
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::map::{Map, sealed_memfd};
use onlooker_region::schema::Acquisition;
use onlooker_responder::clock::boot_time_ns;

use super::scrape::Scrapes;
use super::{Ask, Context, Covered, DeviceKey, Loss, Made, NodeError, Place, Sampler};
use crate::groups::Group;
use crate::procfs::LINE_BYTES;

/// A group that can be sampled as soon as it has memory.
pub struct Draft {
    /// Which.
    pub group: Group,
    /// Its class.
    pub schema: Schema,
    /// What an operator should know of it.
    pub notes: Vec<String>,
    interval_ns: u64,
    sampler: Box<dyn Sampler>,
}

/// A group ready to be sampled.
pub struct Sampled {
    /// Which.
    pub group: Group,
    /// Its class.
    pub schema: Schema,
    pub(crate) place: Place,
    pub(crate) interval_ns: u64,
    /// When it was sampled last; 0: not yet.
    pub(crate) sampled_ns: u64,
    /// When it was made.
    pub(crate) made_ns: u64,
    pub(crate) sampler: Box<dyn Sampler>,
}

impl Draft {
    /// All of a group, or what is left beside `computed` metrics; `None` where nothing is. Sampled every `interval_ns`, or as often as it is worth.
    ///
    /// # Errors
    /// [`NodeError`]: why this host has not got it.
    pub(crate) fn new(
        group: Group,
        interval_ns: u64,
        computed: Option<&Covered>,
        scrapes: &mut Scrapes,
    ) -> Result<Option<Self>, NodeError> {
        let mut buffer = Box::new([0; LINE_BYTES]);
        let mut context = Context::new(&mut buffer, scrapes);
        let Made { mut groups, sampler } = group.make(&Ask { computed }, &mut context)?;
        let notes = context.notes;
        groups.retain(|group| !group.fields.is_empty());
        if groups.is_empty() {
            return if computed.is_some() { Ok(None) } else { Err(NodeError::Nothing) };
        }
        let interval_ns = interval_ns.max(group.shortest_interval().as_ns());
        for group in &mut groups {
            group.acquisition = Acquisition::Sampled;
            group.max_age_ns = interval_ns;
            group.fields.iter_mut().for_each(|field| field.resolution_ns = field.resolution_ns.max(interval_ns));
        }
        let name = if computed.is_some() { group.left_region() } else { group.region().to_owned() };
        let schema = Schema { name, groups };
        schema.check().map_err(|error| NodeError::Schema(error.to_string()))?;
        Ok(Some(Self { group, schema, notes, interval_ns, sampler }))
    }

    /// Region name, which is its class's, too.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.schema.name
    }

    /// Bytes of the region.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.schema.blocks()) * BLOCK_BYTES as u64
    }

    /// Number of its metrics, each column of a table one.
    #[must_use]
    pub fn metrics(&self) -> usize {
        self.schema.groups.iter().map(|group| group.fields.len()).sum()
    }

    /// Whether a sample wants to know which devices have a computed row.
    #[must_use]
    pub fn wants_devices(&self) -> bool {
        self.sampler.wants_devices()
    }

    /// The group with memory of its own.
    ///
    /// # Errors
    /// No memory.
    pub fn alone(self, identity: Identity) -> Result<Sampled, NodeError> {
        let bytes = self.bytes();
        let memory = Map::of(sealed_memfd("onlooker-node", bytes)?, 0, bytes, true)?;
        Ok(self.over(memory, identity))
    }

    /// The group in `memory`, of [`Draft::bytes`]. Blocks but those of tables stay as they are until the first sample.
    #[must_use]
    pub fn over(self, memory: Map, identity: Identity) -> Sampled {
        let Self { group, schema, interval_ns, mut sampler, .. } = self;
        let place = Place::new(memory, identity, &schema);
        let made_ns = boot_time_ns();
        sampler.begin(&place, &schema, made_ns);
        Sampled { group, schema, place, interval_ns, sampled_ns: 0, made_ns, sampler }
    }
}

impl Sampled {
    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &Map {
        &self.place.memory
    }

    /// Its identity.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.place.identity
    }

    /// Takes a sample.
    pub(crate) fn sample(
        &mut self,
        buffer: &mut [u8; LINE_BYTES],
        computed: Option<&[DeviceKey]>,
        scrapes: &mut Scrapes,
    ) -> Loss {
        let mut context = Context { computed, ..Context::new(buffer, scrapes) };
        let read = self.sampler.sample(&self.place, &mut context);
        context.loss.failed += u64::from(read.is_err());
        self.sampled_ns = context.now_ns;
        context.loss
    }
}
