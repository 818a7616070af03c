//! Measurements by features, and what they say of graphs that nobody measured.
//!
//! The form is hipDNN's table of buckets: each feature's bucket is its code, or its size in steps of a quarter of a
//! power of 2. An entry's number is that of a [configuration](crate::engine::Configuration::number), and its score is
//! estimated over measured seconds: how many times as fast as the [cost model](crate::cost) says.
//!
//! A graph's estimate is corrected by the entries of the configuration that are nearest to it: those with equal codes
//! and at most [`RADIUS`] away, of these the [`NEIGHBORS`] nearest, by the mean of their scores' logarithms with
//! weights `1 / (¼ + distance²)`. The distance is Euclidean over sizes with the features' weights.

use std::collections::BTreeMap;

use hipdnn_schemas::{FeatureBucket, TableEntry, TableModel};

use crate::cost::VERSION;
use crate::features::{self, COUNT, FEATURES};

/// Buckets of a factor of 2.
const STEPS: f64 = 4.0;

/// Number of buckets of a size: up to 2⁶⁰.
const SIZES: u32 = 60 * STEPS as u32 + 1;

/// Number of buckets of a code.
const CODES: u32 = 65;

/// Largest distance of a measurement that counts, in powers of 2.
pub const RADIUS: f64 = 3.0;

/// Largest number of measurements that count.
pub const NEIGHBORS: usize = 4;

/// Largest number of entries: the oldest make room.
pub const MOST_ENTRIES: usize = 8192;

/// Scores outside of it are no measurement: a model is not wrong by a million.
const SCORES: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// Bucket of each feature.
pub type Key = [u32; COUNT];

/// Measurements on one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The oldest first.
    entries: Vec<(Key, i64, f64)>,
}

/// What nearby measurements say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nearby {
    /// How many times as fast as the cost model says.
    pub score: f64,
    /// Number of measurements.
    pub count: usize,
    /// Distance of the nearest one, in powers of 2.
    pub distance: f64,
}

/// The buckets of features.
pub fn key(features: &[f64; COUNT]) -> Key {
    let buckets = buckets();
    std::array::from_fn(|at| buckets[at].of(features[at]))
}

fn buckets() -> Vec<FeatureBucket> {
    let boundaries = |feature: &features::Feature| match feature.is_code {
        true => (0..CODES).map(f64::from).collect(),
        false => (0..SIZES).map(|at| f64::from(at) / STEPS).collect(),
    };
    let bucket = |(at, feature)| FeatureBucket { feature: at, boundaries: boundaries(feature) };
    (0..).zip(&FEATURES).map(bucket).collect()
}

/// Distance of two graphs in powers of 2; `None` if they are of different kinds.
fn distance(one: &Key, other: &Key) -> Option<f64> {
    let mut sum = 0.0;
    for ((a, b), feature) in one.iter().zip(other).zip(&FEATURES) {
        match feature.is_code {
            true if a != b => return None,
            true => {}
            false => sum += feature.weight * ((f64::from(*a) - f64::from(*b)) / STEPS).powi(2),
        }
    }
    Some(sum.sqrt())
}

impl Table {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keeps a measurement in place of an earlier one of the same features and configuration. One that is no
    /// measurement is left.
    pub fn record(&mut self, key: Key, configuration: i64, score: f64) {
        if !SCORES.contains(&score) {
            return;
        }
        self.entries.retain(|(its, number, _)| !(*its == key && *number == configuration));
        self.entries.push((key, configuration, score));
        let surplus = self.entries.len().saturating_sub(MOST_ENTRIES);
        self.entries.drain(..surplus);
    }

    /// What measurements of the configuration say of a graph; `None` if there is none of its like.
    pub fn nearby(&self, key: &Key, configuration: i64) -> Option<Nearby> {
        let of_it = self.entries.iter().filter(|(_, number, _)| *number == configuration);
        let mut near: Vec<(f64, f64)> = of_it
            .filter_map(|(its, _, score)| Some((distance(key, its).filter(|distance| *distance <= RADIUS)?, *score)))
            .collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        near.truncate(NEIGHBORS);
        let distance = near.first()?.0;
        let (mut sum, mut weights) = (0.0, 0.0);
        for (distance, score) in &near {
            let weight = 1.0 / (0.25 + distance * distance);
            sum += weight * score.ln();
            weights += weight;
        }
        Some(Nearby { score: (sum / weights).exp(), count: near.len(), distance })
    }

    /// Number of configurations that were measured, with the number of their entries.
    pub fn counts(&self) -> BTreeMap<i64, usize> {
        let mut counts = BTreeMap::new();
        self.entries.iter().for_each(|(_, number, _)| *counts.entry(*number).or_insert(0) += 1);
        counts
    }

    /// As hipDNN's table.
    pub fn to_model(&self, architecture: &str) -> TableModel {
        let entry =
            |(key, kernel, score): &(Key, i64, f64)| TableEntry { key: key.to_vec(), kernel: *kernel, score: *score };
        TableModel {
            features: COUNT as u32,
            features_hash: features::hash(),
            buckets: buckets(),
            entries: self.entries.iter().map(entry).collect(),
            architectures: vec![architecture.to_owned()],
            version: VERSION.to_owned(),
        }
    }

    /// The measurements of hipDNN's table.
    ///
    /// # Errors
    /// If it is of other features, another model or another architecture.
    pub fn from_model(model: &TableModel, architecture: &str) -> Result<Table, String> {
        if model.features_hash != features::hash() {
            return Err(format!("expected features with hash {}, got {:?}", features::hash(), model.features_hash));
        }
        if !model.architectures.iter().any(|its| its == architecture) {
            return Err(format!("expected measurements of {architecture}, got those of {:?}", model.architectures));
        }
        if model.buckets != buckets() {
            return Err("expected this version's buckets, got others".to_owned());
        }
        let mut table = Table::default();
        for TableEntry { key, kernel, score } in &model.entries {
            let key =
                Key::try_from(key.as_slice()).map_err(|_| format!("expected {COUNT} buckets, got {}", key.len()))?;
            if !SCORES.contains(score) {
                return Err(format!("expected a score of {SCORES:?}, got {score}"));
            }
            table.entries.push((key, *kernel, *score));
        }
        let surplus = table.entries.len().saturating_sub(MOST_ENTRIES);
        table.entries.drain(..surplus);
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn key_of(graph: &hipdnn_schemas::Graph) -> Key {
        key(&features::of(graph))
    }

    #[test]
    fn the_nearest_of_a_kind_decide() {
        let (near, far) = (samples::convolution(1, 64, 64, 3, 28, &[]), samples::convolution(1, 64, 64, 3, 14, &[]));
        let mut table = Table::default();
        table.record(key_of(&near), 5, 2.0);
        table.record(key_of(&far), 5, 0.5);
        table.record(key_of(&samples::matmul(1, 64, 64, 64)), 5, 100.0);
        let exact = table.nearby(&key_of(&near), 5).unwrap();
        assert_eq!((exact.count, exact.distance), (2, 0.0));
        assert!((1.4..2.0).contains(&exact.score), "{exact:?}");
        let between = table.nearby(&key_of(&samples::convolution(1, 64, 64, 3, 24, &[])), 5).unwrap();
        assert!(between.score > 1.0 && between.distance > 0.0, "{between:?}");
        assert_eq!(table.nearby(&key_of(&near), 6), None, "another configuration");
        assert_eq!(table.nearby(&key_of(&samples::convolution(1, 64, 64, 3, 448, &[])), 5), None, "too far");
        assert_eq!(table.nearby(&key_of(&samples::softmax(8, 8)), 5), None, "another kind");
    }

    #[test]
    fn measurements_replace_earlier_ones_and_room_is_bounded() {
        let mut table = Table::default();
        let key = key_of(&samples::softmax(8, 8));
        for score in [3.0, 1.0, f64::NAN, 0.0, -1.0, 1e9] {
            table.record(key, 1, score);
        }
        assert_eq!(table.entries, [(key, 1, 1.0)]);
        (0..MOST_ENTRIES as i64 + 10).for_each(|number| table.record(key, number, 1.0));
        assert_eq!(table.len(), MOST_ENTRIES);
        assert_eq!(table.nearby(&key, 1), None, "the oldest made room");
    }

    #[test]
    fn tables_of_others_are_refused() {
        let mut table = Table::default();
        table.record(key_of(&samples::softmax(8, 8)), 1, 2.0);
        let model = table.to_model("gfx942");
        assert_eq!(Table::from_model(&model, "gfx942"), Ok(table));
        let refused = |change: &dyn Fn(&mut TableModel), why: &str| {
            let mut changed = model.clone();
            change(&mut changed);
            let error = Table::from_model(&changed, "gfx942").unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        refused(&|model| model.features_hash.clear(), "expected features");
        refused(&|model| model.architectures = vec!["gfx90a".into()], "measurements of gfx942");
        refused(&|model| model.buckets[4].boundaries[1] = 0.3, "buckets");
        refused(&|model| model.entries[0].score = -1.0, "a score");
    }
}
