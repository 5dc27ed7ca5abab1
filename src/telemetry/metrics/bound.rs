//! Series that are found without their labels: the SDK copies and hashes those for each
//! measurement, which costs more than to add a number.
//!
//! A series is bound when it first counts something, because a bound one is exported, with zero.

use std::{collections::HashMap, hash::Hash, time::Duration};

use opentelemetry::{
    KeyValue,
    metrics::{BoundCounter, BoundHistogram, Counter, Histogram},
};
use parking_lot::RwLock;

/// A series of a counter.
#[derive(Debug)]
pub(super) struct CounterSeries<T>(Option<BoundCounter<T>>);

/// A series of a histogram.
#[derive(Debug)]
pub(super) struct HistogramSeries<T>(Option<BoundHistogram<T>>);

/// A histogram of seconds whose series are known by a key; there must be few keys.
#[derive(Debug)]
pub(super) struct BoundSeconds<K> {
    histogram: Histogram<f64>,
    series: RwLock<HashMap<K, BoundHistogram<f64>>>,
}

// === impl CounterSeries ===

impl<T> Default for CounterSeries<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> CounterSeries<T> {
    /// Adds to the series that has these labels; they are always the same.
    pub(super) fn add<L: AsRef<[KeyValue]>>(
        &mut self,
        counter: &Counter<T>,
        amount: T,
        labels: impl FnOnce() -> L,
    ) {
        self.0
            .get_or_insert_with(|| counter.bind(labels().as_ref()))
            .add(amount);
    }
}

// === impl HistogramSeries ===

impl<T> Default for HistogramSeries<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> HistogramSeries<T> {
    /// Records in the series that has these labels; they are always the same.
    pub(super) fn record<L: AsRef<[KeyValue]>>(
        &mut self,
        histogram: &Histogram<T>,
        value: T,
        labels: impl FnOnce() -> L,
    ) {
        self.0
            .get_or_insert_with(|| histogram.bind(labels().as_ref()))
            .record(value);
    }
}

// === impl BoundSeconds ===

impl<K: Eq + Hash> BoundSeconds<K> {
    pub(super) fn new(histogram: Histogram<f64>) -> Self {
        Self {
            histogram,
            series: RwLock::default(),
        }
    }

    /// Records in the series of this key, which has these labels.
    pub(super) fn record(&self, key: K, took: Duration, labels: impl FnOnce(&K) -> Vec<KeyValue>) {
        let seconds = took.as_secs_f64();
        if let Some(series) = self.series.read().get(&key) {
            return series.record(seconds);
        }
        let series = self.histogram.bind(&labels(&key));
        series.record(seconds);
        self.series.write().insert(key, series);
    }
}
