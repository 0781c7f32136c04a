// SPDX-License-Identifier: Apache-2.0
//! Remote write 1.0 as its specification has it, for who is not sure that what was encoded is right.

use prost::Message;

/// A label.
#[derive(Message)]
pub struct Label {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A sample.
#[derive(Message)]
pub struct Sample {
    /// Its value.
    #[prost(double, tag = "1")]
    pub value: f64,
    /// ms since 1970.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

/// Samples of a series.
#[derive(Message)]
pub struct Series {
    /// By their names.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    /// By their times.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
}

/// What a family of metrics is.
#[derive(Message)]
pub struct Metadata {
    /// `MetricMetadata.MetricType`.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// Its name.
    #[prost(string, tag = "2")]
    pub family: String,
    /// What it says.
    #[prost(string, tag = "4")]
    pub help: String,
    /// Of its values.
    #[prost(string, tag = "5")]
    pub unit: String,
}

/// All of a request.
#[derive(Message)]
pub struct WriteRequest {
    /// In any order.
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<Series>,
    /// Of the series' families.
    #[prost(message, repeated, tag = "3")]
    pub metadata: Vec<Metadata>,
}

/// A body without its packing.
#[must_use]
pub fn unpacked(body: &[u8]) -> Vec<u8> {
    snap::raw::Decoder::new().decompress_vec(body).unwrap()
}
