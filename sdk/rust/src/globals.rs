// SPDX-License-Identifier: Apache-2.0
//! Metrics in globals: `SHOP.requests.inc()` is one locked addition on an address that the linker knows.
//!
//! All words of one [`crate::globals!`] stand in one static of whole pages. Before `main` (or before `dlopen` returns) a function in `.init_array` moves
//! those pages, at the same addresses, into shared memory, while no second thread can have seen them; [`crate::start`] has them published as a foreign
//! region. Zero bytes of the program file, eight system calls of its start.

use crate::histogram::HistogramWords;
use crate::placement::{Base, Place, Statics};
use crate::publish;
use crate::region::{Description, Inner};
use crate::sdk::SDK;
use crate::switch::{Class, Plan};
use crate::words::{self, Counter, Gauge, Number, UpDown, Word};
use onlooker_region::histogram::Shape;
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::schema::{self, Field, Group, Kind, Metric, Schema, Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a field of globals can be: a word, an array of words, a histogram.
#[doc(hidden)]
pub trait GlobalField: Sync + 'static {
    const ZERO: Self;
    const SHAPE: GlobalShape;
}

/// What the schema says of such a field.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct GlobalShape {
    metric: Metric,
    kind: Type,
    adds: bool,
    /// Elements of an array, 0: not one.
    count: u32,
    /// Words altogether.
    words: usize,
    histogram: Option<Shape>,
}

const fn one<W: Word>() -> GlobalShape {
    GlobalShape { metric: W::METRIC, kind: W::TYPE, adds: W::ADDS, count: 0, words: 1, histogram: None }
}

impl GlobalField for Counter {
    const ZERO: Self = words::counter();
    const SHAPE: GlobalShape = one::<Self>();
}

impl GlobalField for UpDown {
    const ZERO: Self = words::updown();
    const SHAPE: GlobalShape = one::<Self>();
}

impl<T: Number> GlobalField for Gauge<T> {
    const ZERO: Self = words::gauge();
    const SHAPE: GlobalShape = one::<Self>();
}

impl<W: Word + GlobalField, const N: usize> GlobalField for [W; N] {
    const ZERO: Self = [const { W::ZERO }; N];
    #[allow(clippy::cast_possible_truncation)] // an array of 2^32 words is not linked, and refused by the schema
    const SHAPE: GlobalShape = GlobalShape { count: N as u32, words: N, ..W::SHAPE };
}

impl<const G: u8, const N: u8, const SLOTS: usize> GlobalField for HistogramWords<G, N, SLOTS> {
    const ZERO: Self = Self::new();
    const SHAPE: GlobalShape = GlobalShape {
        metric: Metric::Histogram,
        kind: Type::U64,
        adds: true,
        count: 0,
        words: SLOTS,
        histogram: Some(Self::SHAPE),
    };
}

/// A field as the macro describes it.
#[doc(hidden)]
#[derive(Debug)]
pub struct GlobalInfo {
    pub name: &'static str,
    pub help: &'static [&'static str],
    pub unit: &'static str,
    pub scale: f64,
    pub array_label: &'static str,
    pub labels: &'static [(&'static str, &'static str)],
    pub offset: usize,
    pub shape: GlobalShape,
}

/// All that the macro says of one static.
#[doc(hidden)]
#[derive(Debug)]
pub struct Node {
    base: Base,
    name: &'static str,
    fields: &'static [GlobalInfo],
}

impl Node {
    #[must_use]
    pub const fn new<T: Statics>(statics: &'static T, name: &'static str, fields: &'static [GlobalInfo]) -> Self {
        Self { base: Base::of(statics), name, fields }
    }

    fn schema(&self) -> Schema {
        let fields = self.fields.iter().map(|info| {
            let shape = &info.shape;
            let mut field =
                Field::new(info.name, shape.metric, shape.kind, u32::try_from(info.offset).unwrap_or(u32::MAX));
            field.help = info.help.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
            field.unit = info.unit.into();
            field.scale = info.scale;
            field.labels = info.labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            field.histogram = shape.histogram;
            if shape.count > 0 {
                let label = info.array_label.into();
                field.array = Some(schema::Array { label, count: shape.count, stride: 8, values: None });
            }
            field
        });
        let blocks = u32::try_from(self.base.bytes() / BLOCK_BYTES).unwrap_or(u32::MAX);
        Schema { name: self.name.into(), groups: vec![Group::new(Kind::Foreign, blocks, fields.collect())] }
    }

    fn plan(&self) -> Plan {
        let spans = self.fields.iter().map(|info| {
            let first = info.offset / 8;
            (first..first + info.shape.words, if info.shape.adds { Class::Adds } else { Class::Sets })
        });
        Plan { spans: spans.collect(), plain: 0..0, guarded: 0..0 }
    }
}

/// Called by the macro's code before `main`, or during `dlopen`. Does not unwind.
#[doc(hidden)]
pub fn register(node: &'static Node) {
    let schema = node.schema();
    let checked = schema::check_name(node.name).map_err(|rule| rule.to_string());
    if let Err(error) = checked.and_then(|()| schema.check().map_err(|error| error.to_string())) {
        SDK.error(format!("globals `{}` are not published: {error}; see docs/format/schema.md", node.name));
        return;
    }
    let plan = node.plan();
    match Place::of_statics(&node.base, plan.spans.iter().flat_map(|(span, _)| span.clone())) {
        Ok((place, second)) => {
            let name = node.name.to_string();
            let labels = BTreeMap::new();
            let description = Description { name, instance: String::new(), labels, schema, plan, tables: Vec::new() };
            if !publish::add_globals(&Arc::new(Inner::new(description, place, Some(second)))) {
                SDK.error(format!("globals `{}` are not published: another region has this name", node.name));
            }
        }
        Err(error) => SDK.error(format!("globals `{}` are not published: {error}", node.name)),
    }
}

/// Type of a histogram in [`crate::globals!`]: grouping power and max power.
#[macro_export]
macro_rules! histogram {
    ($g:literal, $n:literal) => {
        $crate::HistogramWords<$g, $n, { $crate::histogram_slots($g, $n) }>
    };
}

/// Metrics in a static of their own pages.
///
/// ```
/// use onlooker_sdk::{Counter, Gauge, UpDown, histogram};
///
/// onlooker_sdk::globals! {
///     /// What the shop counts.
///     pub static SHOP: Shop = "shop_globals" {
///         /// Requests served.
///         requests: Counter = "shop_requests_total", unit "requests", labels { "shard": "3" };
///         /// Requests in flight.
///         in_flight: UpDown = "shop_in_flight";
///         /// Temperature of the till.
///         temperature: Gauge<f64> = "shop_temperature_celsius", unit "celsius";
///         /// Jobs done.
///         jobs: [Counter; 4] = "shop_jobs_total", per "worker";
///         /// Time to serve.
///         latency: histogram!(3, 40) = "shop_latency_seconds", unit "seconds", scale 1e-9;
///     }
/// }
/// onlooker_sdk::start();
/// SHOP.requests.inc();
/// SHOP.jobs[2].add(7);
/// SHOP.latency.record(12_345);
/// assert_eq!(SHOP.requests.value(), 1);
/// ```
///
/// The text after `=` is the region's name, unique in the process; documentation becomes help. After a metric's name, in this order and each optional:
/// `unit`, `scale` (exported value = stored value * scale), `per` (label that tells an array's elements apart; required for arrays), `labels`.
#[macro_export]
macro_rules! globals {
    ($(
        $(#[$about:meta])*
        $visible:vis static $NAME:ident: $Type:ident = $region:literal {
            $(
                $(#[doc = $help:literal])*
                $field:ident: $kind:ty = $metric:literal
                    $(, unit $unit:literal)?
                    $(, scale $scale:literal)?
                    $(, per $array:literal)?
                    $(, labels { $($label:literal: $value:literal),* $(,)? })?;
            )+
        }
    )+) => {$(
        $(#[$about])*
        #[allow(missing_docs)]
        #[repr(C, align(4096))]
        $visible struct $Type {
            $(
                $(#[doc = $help])*
                pub $field: $kind,
            )+
        }

        $(#[$about])*
        $visible static $NAME: $Type = $Type { $($field: <$kind as $crate::__private::GlobalField>::ZERO,)+ };

        const _: () = {
            // SAFETY: `repr(C, align(4096))` above makes address and size multiples of 4096; every field is a `GlobalField`, that is words.
            unsafe impl $crate::__private::Statics for $Type {}
            static FIELDS: &[$crate::__private::GlobalInfo] = &[$(
                $crate::__private::GlobalInfo {
                    name: $metric,
                    help: &[$($help),*],
                    unit: concat!($($unit)?),
                    scale: 1.0 $(* $scale)?,
                    array_label: concat!($($array)?),
                    labels: &[$($(($label, $value)),*)?],
                    offset: core::mem::offset_of!($Type, $field),
                    shape: <$kind as $crate::__private::GlobalField>::SHAPE,
                },
            )+];
            static NODE: $crate::__private::Node = $crate::__private::Node::new(&$NAME, $region, FIELDS);
            extern "C" fn register() {
                $crate::__private::register(&NODE);
            }
            // SAFETY: run once by the dynamic linker, as a function without arguments; it needs nothing that `main` would set up.
            #[used]
            #[unsafe(link_section = ".init_array")]
            static REGISTER: extern "C" fn() = register;
        };
    )+};
}
