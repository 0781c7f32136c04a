// SPDX-License-Identifier: Apache-2.0
//! Samples of series in, bodies of requests out.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::family::Family;
use crate::naming::Pairs;
use crate::remote_write::Symbols;
use crate::{line_protocol, remote_write};

/// How a target wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// Prometheus remote write 1.0.
    #[serde(rename = "prometheus")]
    RemoteWrite1,
    /// Prometheus remote write 2.0.
    #[serde(rename = "prometheus2")]
    RemoteWrite2,
    /// InfluxDB's line protocol.
    #[serde(rename = "influxdb")]
    LineProtocol,
}

impl Protocol {
    /// Headers of a request with such a body.
    #[must_use]
    pub fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::RemoteWrite1 => &[
                ("Content-Type", "application/x-protobuf"),
                ("Content-Encoding", "snappy"),
                ("X-Prometheus-Remote-Write-Version", "0.1.0"),
            ],
            Self::RemoteWrite2 => &[
                ("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
                ("Content-Encoding", "snappy"),
                ("X-Prometheus-Remote-Write-Version", "2.0.0"),
            ],
            Self::LineProtocol => &[("Content-Type", "text/plain; charset=utf-8"), ("Content-Encoding", "gzip")],
        }
    }

    /// The least distance of two samples of a series that it can tell apart, ns.
    #[must_use]
    pub fn resolution_ns(self) -> u64 {
        if self == Self::LineProtocol { 1 } else { 1_000_000 }
    }

    /// What a series is called, as [`Encoder::push`] wants it.
    #[must_use]
    pub fn key(self, pairs: &Pairs) -> Box<[u8]> {
        match self {
            Self::RemoteWrite1 | Self::RemoteWrite2 => remote_write::labels(pairs),
            Self::LineProtocol => line_protocol::prefix(pairs),
        }
    }
}

/// A request's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// As it is sent.
    pub bytes: Vec<u8>,
    /// Samples in it, markers of ends among them.
    pub samples: u64,
    /// Before it was packed.
    plain: Vec<u8>,
    /// Of each series of 1.0 where it ends there, and its samples.
    ends: Vec<(usize, u64)>,
}

impl Body {
    /// The same series, each in a body of its own; none where there is one only, and with protocols whose targets take
    /// the rest of what they refuse a part of.
    #[must_use]
    pub fn apart(&self) -> Vec<Self> {
        if self.ends.len() < 2 {
            return Vec::new();
        }
        let mut from = 0;
        let each = self.ends.iter().map(|(end, samples)| {
            let series = self.plain[std::mem::replace(&mut from, *end)..*end].to_vec();
            Self { bytes: snappy(&series), samples: *samples, plain: Vec::new(), ends: Vec::new() }
        });
        each.collect()
    }
}

fn snappy(plain: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(plain).expect("a body is far below the 4 GiB of a block")
}

/// Collects what goes into the next body.
#[derive(Debug)]
pub struct Encoder {
    protocol: Protocol,
    out: Vec<u8>,
    /// Of each series of 1.0 where it ends in `out`, and its samples.
    ends: Vec<(usize, u64)>,
    /// What 1.0 tells of metrics in this body.
    metadata: Vec<u8>,
    scratch: Vec<u8>,
    symbols: Symbols,
    /// Metrics that 1.0 has told of.
    told: HashSet<Arc<str>>,
    samples: u64,
    left: u64,
}

impl Encoder {
    /// One with nothing in it.
    #[must_use]
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            out: Vec::new(),
            ends: Vec::new(),
            metadata: Vec::new(),
            scratch: Vec::new(),
            symbols: Symbols::default(),
            told: HashSet::new(),
            samples: 0,
            left: 0,
        }
    }

    /// What it makes.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Bytes of the body before it is packed, without what is told of metrics: that depends on what was told before, and
    /// what is sent again is to be cut as it was.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.out.len() + self.symbols.bytes()
    }

    /// Samples that the protocol could not say, since the start.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Appends samples (ns since 1970, value) of a series, in the order of their times.
    pub fn push(&mut self, key: &[u8], family: &Family, samples: impl Iterator<Item = (i64, f64)>) {
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return;
        }
        let Self { out, ends, metadata, scratch, symbols, .. } = self;
        let written = match self.protocol {
            Protocol::RemoteWrite1 => {
                if !self.told.contains(&family.name) {
                    self.told.insert(family.name.clone());
                    remote_write::push_metadata(metadata, family);
                }
                let written = remote_write::push_1(out, scratch, key, samples);
                ends.push((out.len(), written));
                written
            }
            Protocol::RemoteWrite2 => remote_write::push_2(out, symbols, key, family, samples),
            Protocol::LineProtocol => {
                let (written, left) = line_protocol::push(out, key, samples);
                self.left += left;
                written
            }
        };
        self.samples += written;
    }

    /// What was pushed since the last one, packed; `None`: nothing was.
    pub fn finish(&mut self) -> Option<Body> {
        let mut plain = match self.protocol {
            Protocol::RemoteWrite2 => self.symbols.finish(&self.out),
            _ => std::mem::take(&mut self.out),
        };
        self.out.clear();
        plain.append(&mut self.metadata);
        let (samples, ends) = (std::mem::take(&mut self.samples), std::mem::take(&mut self.ends));
        if samples == 0 {
            return None;
        }
        let bytes = match self.protocol {
            Protocol::LineProtocol => {
                let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
                let packed = packer.write_all(&plain).and_then(|()| packer.finish());
                packed.expect("memory takes everything")
            }
            _ => snappy(&plain),
        };
        Some(Body { bytes, samples, plain, ends })
    }
}
