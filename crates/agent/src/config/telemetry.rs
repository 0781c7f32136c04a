// SPDX-License-Identifier: Apache-2.0
//! `[kernel.telemetry]`: which tables telemetry reports may write to, and whose reports. Off unless there are both.

use std::collections::BTreeSet;
use std::fmt;

use onlooker_dta::Geometry;
use onlooker_dta::append::{List, MAX_BATCH};
use onlooker_dta::increment::Counters;
use onlooker_dta::key_write::{CheckBytes, Table as KeyWrite};
use onlooker_region::control::TABLE_PART_BYTES;
use onlooker_wire::dta::{MAX_PAYLOAD_BYTES, PORT};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::refused::Refused;
use crate::prefix::Prefix;
use crate::units::{Size, Span};

/// Tables' numbers are below this.
const MAX_NUMBER: u16 = 1023;
const MAX_MEMORY: u64 = 16 * TABLE_PART_BYTES;
/// Memory is mapped by pages.
const MIN_MEMORY: u64 = 4096;

/// The kernel translator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// UDP port of reports.
    pub port: u16,
    /// Sources that may report; empty: nobody.
    pub allow: Vec<Prefix>,
    /// Reports a second that one source address may send.
    pub source_reports_per_s: u32,
    /// How long an entry of a list waits for others of its batch.
    pub wait: Span,
    /// What reports may write to.
    pub tables: Vec<Table>,
}

/// What a table is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Primitive {
    /// The newest value of each key.
    KeyWrite,
    /// A list of events.
    Append,
    /// A count for each key.
    KeyIncrement,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// By which users ask for it.
    pub name: String,
    /// By which reports name it.
    pub number: u16,
    /// What it is for.
    pub primitive: Primitive,
    /// The most that it takes: it has as many places, a power of two, as fit.
    pub memory: Size,
    /// What a report must carry to write to it.
    pub access_key: AccessKey,
    /// Bytes of a value or an entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<u8>,
    /// Bytes by which a key is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_bytes: Option<u8>,
    /// Entries that are written together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u8>,
    /// How long counts are added to before they begin at zero again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Span>,
}

/// Eight hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AccessKey(pub u32);

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessKey(..)")
    }
}

impl Serialize for AccessKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:08x}", self.0))
    }
}

impl<'de> Deserialize<'de> for AccessKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let key = u32::from_str_radix(&text, 16).ok().filter(|key| text.len() == 8 && *key != 0);
        let key =
            key.ok_or("an access key is eight hexadecimal digits, not all zero: make one with `openssl rand -hex 4`");
        key.map(Self).map_err(D::Error::custom)
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            port: PORT,
            allow: Vec::new(),
            source_reports_per_s: 1_000_000,
            wait: Span::from_ms(10),
            tables: Vec::new(),
        }
    }
}

impl Table {
    /// What it is like, with a seed for its keys' hash. `None`: no table is like that.
    #[must_use]
    pub fn geometry(&self, seed: [u8; 16]) -> Option<Geometry> {
        let payload_bytes = self.payload_bytes.unwrap_or(0);
        let geometry = match self.primitive {
            Primitive::KeyWrite => {
                let check = if self.check_bytes == Some(8) { CheckBytes::Eight } else { CheckBytes::Four };
                Geometry::KeyWrite(KeyWrite { seed, slots_log2: 0, payload_bytes, check })
            }
            Primitive::Append => {
                let batch = self.batch.unwrap_or(16);
                Geometry::Append(List { entry_bytes: payload_bytes, batch, batches_log2: 0 })
            }
            Primitive::KeyIncrement => Geometry::KeyIncrement(Counters { seed, slots_log2: 0 }),
        };
        geometry.within(self.memory.as_bytes())
    }

    /// How long an epoch of its counters is.
    #[must_use]
    pub fn epoch(&self) -> Span {
        self.epoch.unwrap_or(Span::from_s(60))
    }

    fn check(&self) -> Result<(), (String, &'static str)> {
        let refuse = |key: &str, value: &dyn fmt::Display, message| {
            Err((format!("{} with {key} = {value}", self.name), message))
        };
        if onlooker_region::schema::check_name(&self.name).is_err() {
            return refuse("name", &self.name, "must have a name of letters, digits and _");
        }
        if self.number > MAX_NUMBER {
            return refuse("number", &self.number, "must have a number of 0 to 1023");
        }
        let memory = self.memory.as_bytes();
        if !(MIN_MEMORY..=MAX_MEMORY).contains(&memory) {
            return refuse("memory", &self.memory, "must have 4KiB to 16GiB of memory");
        }
        let is_counters = self.primitive == Primitive::KeyIncrement;
        match self.payload_bytes.map(usize::from) {
            Some(1..=MAX_PAYLOAD_BYTES) if !is_counters => {}
            None if is_counters => {}
            None => return refuse("payload_bytes", &"nothing", "must say how many bytes a report brings, 1 to 64"),
            Some(_) if is_counters => {
                return refuse("payload_bytes", &"any", "must not: what is counted has 8 bytes");
            }
            Some(bytes) => return refuse("payload_bytes", &bytes, "must have payloads of 1 to 64 bytes"),
        }
        if let Some(bytes) = self.check_bytes
            && (self.primitive != Primitive::KeyWrite || ![4, 8].contains(&bytes))
        {
            return refuse("check_bytes", &bytes, "must be 4 or 8, and for key-write only");
        }
        if let Some(batch) = self.batch
            && (self.primitive != Primitive::Append || !(1..=MAX_BATCH).contains(&batch))
        {
            return refuse("batch", &batch, "must be 1 to 64, and for append only");
        }
        if let Some(epoch) = self.epoch
            && (!is_counters || !(Span::from_s(1)..=Span::from_s(30 * 24 * 3600)).contains(&epoch))
        {
            return refuse("epoch", &epoch, "must be 1s to 30d, and for key-increment only");
        }
        Ok(())
    }
}

impl Telemetry {
    /// Whether anybody may report anything.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.allow.is_empty() && !self.tables.is_empty()
    }

    /// Beside a kernel responder, which has these ports.
    pub(super) fn check(&self, has_responder: bool, taken: &[u16]) -> Result<(), Refused> {
        let refuse = |key, value: &dyn ToString, message| Err((key, value.to_string(), message));
        if !self.is_on() && self.allow.is_empty() && self.tables.is_empty() {
            return Ok(());
        }
        if !has_responder {
            let advice = "need the kernel responder, in whose memory they lie: name its devices in [kernel] devices";
            return refuse("kernel.telemetry.tables", &self.tables.len(), advice);
        }
        if self.port == 0 || taken.contains(&self.port) {
            return refuse("kernel.telemetry.port", &self.port, "must be 1 to 65535, and not where READs go");
        }
        if self.allow.len() > 1024 {
            return refuse("kernel.telemetry.allow", &self.allow.len(), "must be at most 1024 prefixes: join some");
        }
        if self.source_reports_per_s == 0 || self.source_reports_per_s > 1_000_000_000 {
            let advice = "must be 1 to 1000000000; to take nothing, empty kernel.telemetry.allow";
            return refuse("kernel.telemetry.source_reports_per_s", &self.source_reports_per_s, advice);
        }
        if !(Span::from_ns(100_000)..=Span::from_s(60)).contains(&self.wait) {
            return refuse("kernel.telemetry.wait", &self.wait, "must be 100us to 1min");
        }
        let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        for table in &self.tables {
            if let Err((what, message)) = table.check() {
                return refuse("kernel.telemetry.tables", &what, message);
            }
            if !names.insert(&table.name) || !numbers.insert(table.number) {
                let what = format!("{}, number {}", table.name, table.number);
                return refuse("kernel.telemetry.tables", &what, "has a name or number that another one has, too");
            }
            if table.geometry([0; 16]).is_none() {
                let what = format!("{} with memory = {}", table.name, table.memory);
                return refuse(
                    "kernel.telemetry.tables",
                    &what,
                    "must have more memory: a batch and the next, at least",
                );
            }
        }
        Ok(())
    }

    /// What is allowed but probably not meant.
    pub(super) fn warnings(&self) -> Vec<String> {
        if self.is_on() || (self.allow.is_empty() && self.tables.is_empty()) {
            return Vec::new();
        }
        let lacks = if self.allow.is_empty() { "allow is empty" } else { "there are no tables" };
        vec![format!("[kernel.telemetry] takes no reports: {lacks}")]
    }
}
