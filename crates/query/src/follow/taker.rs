// SPDX-License-Identifier: Apache-2.0
//! Whoever is handed samples of series.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use onlooker_series::series::Series;

/// Who takes samples.
pub trait Taker {
    /// What it wants to know of a series beside its key.
    type About: Clone;

    /// What a series is called: by equal keys series are the same. `None`: it is not wanted. Called once, when the series
    /// comes up.
    fn name(&mut self, labels: BTreeMap<String, String>, series: &Series) -> Option<(Box<[u8]>, Self::About)>;

    /// Takes samples (ns since 1970, value; [`STALE`](onlooker_promql::source::STALE) is an end) of a series, later than
    /// all before.
    fn take(
        &mut self,
        key: &[u8],
        about: &Self::About,
        samples: &mut dyn Iterator<Item = (i64, f64)>,
    ) -> ControlFlow<()>;
}

/// Who takes nothing: samples that somebody was handed before tell what follows them.
pub(super) struct Nobody<A>(pub(super) PhantomData<A>);

impl<A: Clone> Taker for Nobody<A> {
    type About = A;

    fn name(&mut self, _: BTreeMap<String, String>, _: &Series) -> Option<(Box<[u8]>, A)> {
        None
    }

    fn take(&mut self, _: &[u8], _: &A, _: &mut dyn Iterator<Item = (i64, f64)>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
