// SPDX-License-Identifier: Apache-2.0
//! The way to a host's memory.

use std::sync::Arc;

use onlooker_flow::{FRAGMENT_BYTES, Limits, Sharing};
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::clock::Wear;
use onlooker_reader::{Pair, SchemaCache, Session};
use onlooker_region::limits::BLOCK_BYTES;

use super::Config;
use super::outside::Added;

/// The way to a host's memory; `P` says where its READs go.
pub(super) struct Link<P> {
    pub(super) told: Bootstrapped,
    pub(super) session: Session,
    /// Who asks and who answers.
    pub(super) pair: Pair,
    pub(super) place: P,
    /// Readings in a row that got no answer.
    pub(super) silences: u32,
    /// Whether any reading has succeeded.
    pub(super) is_proven: bool,
    /// When the session's counters were last told.
    pub(super) counted_ns: u64,
    pub(super) since_ns: u64,
    /// When its clock is asked for again.
    pub(super) wear: Wear,
}

impl<P> Link<P> {
    /// To the host that gave `told`. All links have the same `schemas`.
    pub(super) fn new(
        told: Bootstrapped,
        pair: Pair,
        Added { place, max_read_blocks, mirror }: Added<P>,
        schemas: &Arc<SchemaCache>,
        config: &Config,
        now_ns: u64,
    ) -> Self {
        let longest_bytes = Limits::up_to(config.credit_bytes).longest_read_bytes().min(config.host_credit_bytes);
        let longest_bytes = match config.sharing {
            Sharing::Total => longest_bytes,
            Sharing::Published => longest_bytes.min(u32::try_from(FRAGMENT_BYTES).unwrap_or(u32::MAX)),
        };
        let longest_blocks = u32::try_from(longest_bytes as usize / BLOCK_BYTES).unwrap_or(u32::MAX);
        let max_read_blocks = max_read_blocks.min(longest_blocks).max(1);
        let mut session = Session::new(&told.answer, pair.via, max_read_blocks, config.limits);
        let skip = config.skip.clone();
        session.select(move |entry, _| !skip.contains(&entry.name));
        session.rest();
        session.know_clock(told.relation);
        session.share(schemas);
        if let Some(mirror) = mirror {
            session.mirror(mirror);
        }
        let wear = Wear::default();
        Self { told, session, pair, place, silences: 0, is_proven: false, counted_ns: 0, since_ns: now_ns, wear }
    }
}
