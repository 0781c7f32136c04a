// SPDX-License-Identifier: Apache-2.0
//! The words that a program changes: one aligned 8-byte word each, one relaxed atomic instruction per change.
//!
//! They stand in globals ([`crate::globals!`]) or in the memory of a region ([`crate::Handle`]). Separate types, so that an operation that a
//! switch of memory could lose does not exist: what is added to is never set, what is set is never added to.

use bytemuck::TransparentWrapper;
use onlooker_region::schema::{Metric, Type};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) mod sealed {
    /// Only this crate says what a word can be.
    pub trait Sealed {}
}
use sealed::Sealed;

/// A kind of word. Implemented by [`Counter`], [`UpDown`] and [`Gauge`].
pub trait Word: Sealed + TransparentWrapper<AtomicU64> + Send + Sync + 'static {
    /// What it is to Prometheus.
    #[doc(hidden)]
    const METRIC: Metric;
    /// How it is stored.
    #[doc(hidden)]
    const TYPE: Type;
    /// Changed by additions (true) or by stores.
    #[doc(hidden)]
    const ADDS: bool;
}

/// A number that a word can hold: `u64`, `i64`, `f64`.
pub trait Number: Sealed + Copy + Default + fmt::Debug + Send + Sync + 'static {
    /// How it is stored.
    #[doc(hidden)]
    const TYPE: Type;
    /// As a word.
    #[doc(hidden)]
    fn to_word(self) -> u64;
    /// From a word.
    #[doc(hidden)]
    fn from_word(word: u64) -> Self;
    /// The sum; whole numbers wrap, as atomic additions do.
    #[doc(hidden)]
    #[must_use]
    fn plus(self, other: Self) -> Self;
}

impl Sealed for u64 {}
impl Number for u64 {
    const TYPE: Type = Type::U64;
    fn to_word(self) -> u64 {
        self
    }
    fn from_word(word: u64) -> Self {
        word
    }
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

impl Sealed for i64 {}
impl Number for i64 {
    const TYPE: Type = Type::I64;
    fn to_word(self) -> u64 {
        self.cast_unsigned()
    }
    fn from_word(word: u64) -> Self {
        word.cast_signed()
    }
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

impl Sealed for f64 {}
impl Number for f64 {
    const TYPE: Type = Type::F64;
    fn to_word(self) -> u64 {
        self.to_bits()
    }
    fn from_word(word: u64) -> Self {
        Self::from_bits(word)
    }
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

/// Only grows. A switch of memory loses none of its additions.
#[derive(TransparentWrapper)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds 1.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Its value now.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Sealed for Counter {}
impl Word for Counter {
    const METRIC: Metric = Metric::Counter;
    const TYPE: Type = Type::U64;
    const ADDS: bool = true;
}

/// A gauge that is changed by adding: requests in flight. A switch of memory loses none of its additions.
#[derive(TransparentWrapper)]
#[repr(transparent)]
pub struct UpDown(AtomicU64);

impl UpDown {
    /// Adds `n`, which may be negative.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n.cast_unsigned(), Relaxed);
    }

    /// Adds 1.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Takes 1 away.
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// Its value now.
    #[inline]
    #[must_use]
    pub fn value(&self) -> i64 {
        self.0.load(Relaxed).cast_signed()
    }
}

impl Sealed for UpDown {}
impl Word for UpDown {
    const METRIC: Metric = Metric::Gauge;
    const TYPE: Type = Type::I64;
    const ADDS: bool = true;
}

/// A gauge that is set.
#[derive(TransparentWrapper)]
#[transparent(AtomicU64)]
#[repr(transparent)]
pub struct Gauge<T>(AtomicU64, PhantomData<T>);

impl<T: Number> Gauge<T> {
    /// Stores `value`.
    #[inline]
    pub fn set(&self, value: T) {
        self.0.store(value.to_word(), Relaxed);
    }

    /// Its value now.
    #[inline]
    #[must_use]
    pub fn value(&self) -> T {
        T::from_word(self.0.load(Relaxed))
    }
}

impl<T> Sealed for Gauge<T> {}
impl<T: Number> Word for Gauge<T> {
    const METRIC: Metric = Metric::Gauge;
    const TYPE: Type = T::TYPE;
    const ADDS: bool = false;
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Counter({})", self.value())
    }
}

impl fmt::Debug for UpDown {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "UpDown({})", self.value())
    }
}

impl<T: Number> fmt::Debug for Gauge<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Gauge({:?})", self.value())
    }
}

/// Constructors in constants, for globals.
pub(crate) const fn counter() -> Counter {
    Counter(AtomicU64::new(0))
}

/// As [`counter`].
pub(crate) const fn updown() -> UpDown {
    UpDown(AtomicU64::new(0))
}

/// As [`counter`]; 0 is the word of 0 in all three types.
pub(crate) const fn gauge<T>() -> Gauge<T> {
    Gauge(AtomicU64::new(0), PhantomData)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_stored_as_the_schema_says() {
        let word = AtomicU64::new(0);
        Gauge::<f64>::wrap_ref(&word).set(-1.5);
        assert_eq!(f64::from_bits(word.load(Relaxed)), -1.5);
        Gauge::<i64>::wrap_ref(&word).set(-3);
        assert_eq!(word.load(Relaxed), u64::MAX - 2);
        UpDown::wrap_ref(&word).add(5);
        assert_eq!(UpDown::wrap_ref(&word).value(), 2);
        Counter::wrap_ref(&word).add(u64::MAX);
        assert_eq!(Counter::wrap_ref(&word).value(), 1, "additions wrap");
    }

    #[test]
    fn a_number_survives_the_word() {
        bolero::check!().with_type::<(u64, i64)>().for_each(|(u, i)| {
            assert_eq!((u64::from_word(u.to_word()), i64::from_word(i.to_word())), (*u, *i));
            assert_eq!(f64::from_word(*u).to_word(), f64::from_bits(*u).to_bits());
        });
    }
}
