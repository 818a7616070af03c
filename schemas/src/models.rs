//! Models that rank configurations of engines, as files: hipDNN's table of buckets and its trees (RFC 0019,
//! `table_model.fbs` and `gbdt_model.fbs`). A decoded one has been checked: what is computed with it stays within its
//! lists.

use flatbuffers::FlatBufferBuilder;

use crate::GraphError;
use crate::generated as fb;
use crate::read::{limit, root};
use crate::write::{finish, tables};

/// File identifiers of the two.
const TABLE: &str = "TABL";
const TREES: &str = "HGBM";

/// Limits of what is decoded, so that a small hostile file can't take much memory or time.
const MAX_FEATURES: usize = 256;
const MAX_BOUNDARIES: usize = 1 << 12;
const MAX_ENTRIES: usize = 1 << 15;
const MAX_TREES: usize = 1 << 12;
const MAX_TREE_NODES: usize = 1 << 20;
const MAX_ARCHITECTURES: usize = 1 << 8;

/// How a feature becomes a bucket's number.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureBucket {
    /// Position of the feature.
    pub feature: u32,
    /// Lower ends of the buckets, ascending and finite; at least one.
    pub boundaries: Vec<f64>,
}

impl FeatureBucket {
    /// The last bucket whose lower end is not above the value, or the first.
    pub fn of(&self, value: f64) -> u32 {
        let above = self.boundaries.partition_point(|boundary| *boundary <= value);
        above.saturating_sub(1) as u32
    }
}

/// A row of a [`TableModel`].
#[derive(Clone, Debug, PartialEq)]
pub struct TableEntry {
    /// A bucket of each of the model's features.
    pub key: Vec<u32>,
    /// Number of the ranked thing.
    pub kernel: i64,
    /// Higher is better; finite.
    pub score: f64,
}

/// Scores by buckets of features.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableModel {
    /// Number of features.
    pub features: u32,
    /// Hash of what the features are.
    pub features_hash: String,
    /// The features that count, with their buckets.
    pub buckets: Vec<FeatureBucket>,
    /// Rows.
    pub entries: Vec<TableEntry>,
    /// Architectures of the devices that were measured.
    pub architectures: Vec<String>,
    /// Version of the model.
    pub version: String,
}

fn wrong(reason: String) -> GraphError {
    GraphError::Malformed(reason)
}

fn identified(bytes: &[u8], identifier: &str) -> Result<(), GraphError> {
    if bytes.get(4..8) == Some(identifier.as_bytes()) {
        return Ok(());
    }
    Err(wrong(format!("expected a file with identifier {identifier}, got none or another")))
}

fn finite(what: &str, value: f64) -> Result<f64, GraphError> {
    if value.is_finite() { Ok(value) } else { Err(wrong(format!("{what}: expected a finite number, got {value}"))) }
}

fn bounded(what: &str, count: usize, most: usize) -> Result<(), GraphError> {
    limit(what, count, most).map_err(GraphError::Malformed)
}

impl TableModel {
    /// Verifies, decodes and checks a file.
    ///
    /// # Errors
    /// If the bytes are no table, or one whose parts don't fit each other.
    pub fn from_bytes(bytes: &[u8]) -> Result<TableModel, GraphError> {
        identified(bytes, TABLE)?;
        let table = root::<fb::TableModel>(bytes)?;
        let (buckets, entries) = (table.buckets(), table.entries());
        bounded("features", table.num_features() as usize, MAX_FEATURES)?;
        bounded("buckets", buckets.map_or(0, |list| list.len()), MAX_FEATURES)?;
        bounded("entries", entries.map_or(0, |list| list.len()), MAX_ENTRIES)?;
        let architectures = table.training_arches();
        bounded("architectures", architectures.map_or(0, |list| list.len()), MAX_ARCHITECTURES)?;
        let buckets: Vec<FeatureBucket> = buckets
            .into_iter()
            .flatten()
            .map(|bucket| bucket_of(&bucket, table.num_features()))
            .collect::<Result<_, _>>()?;
        let entries = entries.into_iter().flatten().map(|entry| entry_of(&entry, &buckets));
        Ok(TableModel {
            features: table.num_features(),
            features_hash: table.features_hash().unwrap_or_default().to_owned(),
            entries: entries.collect::<Result<_, _>>()?,
            architectures: architectures.into_iter().flatten().map(str::to_owned).collect(),
            version: table.model_version().unwrap_or_default().to_owned(),
            buckets,
        })
    }

    /// As a FlatBuffer with hipDNN's file identifier.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fbb = FlatBufferBuilder::new();
        let buckets: Vec<_> = self
            .buckets
            .iter()
            .map(|bucket| {
                let boundaries = Some(fbb.create_vector(&bucket.boundaries));
                let args = fb::FeatureBucketArgs { feature_index: bucket.feature, boundaries };
                fb::FeatureBucket::create(&mut fbb, &args)
            })
            .collect();
        let entries: Vec<_> = self
            .entries
            .iter()
            .map(|entry| {
                let bucket_key = Some(fbb.create_vector(&entry.key));
                let args = fb::TableEntryArgs { bucket_key, kernel_id: entry.kernel, score: entry.score };
                fb::TableEntry::create(&mut fbb, &args)
            })
            .collect();
        let architectures: Vec<_> = self.architectures.iter().map(|name| fbb.create_string(name)).collect();
        let args = fb::TableModelArgs {
            num_features: self.features,
            features_hash: Some(fbb.create_string(&self.features_hash)),
            buckets: tables(&mut fbb, &buckets),
            entries: tables(&mut fbb, &entries),
            training_arches: Some(fbb.create_vector(&architectures)),
            model_version: Some(fbb.create_string(&self.version)),
        };
        let table = fb::TableModel::create(&mut fbb, &args);
        finish(fbb, table, Some(TABLE))
    }
}

fn bucket_of(bucket: &fb::FeatureBucket<'_>, features: u32) -> Result<FeatureBucket, GraphError> {
    let feature = bucket.feature_index();
    if feature >= features {
        return Err(wrong(format!("expected a feature below {features}, got {feature}")));
    }
    let what = format!("boundaries of feature {feature}");
    let list = bucket.boundaries();
    bounded(&what, list.map_or(0, |list| list.len()), MAX_BOUNDARIES)?;
    let boundaries: Vec<f64> =
        list.into_iter().flatten().map(|value| finite(&what, value)).collect::<Result<_, _>>()?;
    if boundaries.is_empty() || !boundaries.is_sorted_by(|a, b| a < b) {
        return Err(wrong(format!("{what}: expected ascending numbers, got {} in another order", boundaries.len())));
    }
    Ok(FeatureBucket { feature, boundaries })
}

fn entry_of(entry: &fb::TableEntry<'_>, buckets: &[FeatureBucket]) -> Result<TableEntry, GraphError> {
    let list = entry.bucket_key();
    let got = list.map_or(0, |list| list.len());
    if got != buckets.len() {
        return Err(wrong(format!("expected a key of {} buckets, got {got}", buckets.len())));
    }
    let key: Vec<u32> = list.into_iter().flatten().collect();
    for (at, bucket) in key.iter().zip(buckets) {
        if *at as usize >= bucket.boundaries.len() {
            let (feature, most) = (bucket.feature, bucket.boundaries.len());
            return Err(wrong(format!("feature {feature}: expected a bucket below {most}, got {at}")));
        }
    }
    Ok(TableEntry { key, kernel: entry.kernel_id(), score: finite("score", entry.score())? })
}

/// A node of a [`GbdtTree`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GbdtNode {
    /// The tree's value.
    Leaf(f64),
    /// A comparison of a feature with a threshold.
    Split {
        /// Position of the feature.
        feature: u32,
        /// The threshold; no NaN.
        threshold: f64,
        /// True if a feature that is equal to it goes left.
        equal_left: bool,
        /// True if a feature that is missing (NaN) goes left.
        missing_left: bool,
        /// Positions of the children in the tree.
        children: [u32; 2],
    },
}

/// A decision tree: its root is the first node, and no node is reached on two ways.
#[derive(Clone, Debug, PartialEq)]
pub struct GbdtTree(pub Vec<GbdtNode>);

/// A sum of decision trees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GbdtModel {
    /// The trees.
    pub trees: Vec<GbdtTree>,
    /// Number of features.
    pub features: u32,
    /// Hash of what the features are.
    pub features_hash: String,
    /// Value of no tree.
    pub base_score: f64,
    /// Architectures of the devices that were measured; of older files, none.
    pub architectures: Vec<String>,
    /// Version of the model.
    pub version: String,
}

impl GbdtModel {
    /// Verifies, decodes and checks a file.
    ///
    /// # Errors
    /// If the bytes are no trees, or ones with features or children that are not there.
    pub fn from_bytes(bytes: &[u8]) -> Result<GbdtModel, GraphError> {
        identified(bytes, TREES)?;
        let model = root::<fb::GbdtModel>(bytes)?;
        let features = u32::try_from(model.num_features()).unwrap_or(u32::MAX);
        bounded("features", features as usize, MAX_FEATURES)?;
        let (trees, architectures) = (model.trees(), model.training_arches());
        bounded("trees", trees.map_or(0, |list| list.len()), MAX_TREES)?;
        bounded("architectures", architectures.map_or(0, |list| list.len()), MAX_ARCHITECTURES)?;
        let mut room = MAX_TREE_NODES;
        let trees = trees.into_iter().flatten().map(|tree| tree_of(&tree, features, &mut room));
        Ok(GbdtModel {
            trees: trees.collect::<Result<_, _>>()?,
            features,
            features_hash: model.features_hash().unwrap_or_default().to_owned(),
            base_score: finite("base_score", model.base_score())?,
            architectures: architectures.into_iter().flatten().map(str::to_owned).collect(),
            version: model.model_version().unwrap_or_default().to_owned(),
        })
    }

    /// As a FlatBuffer with hipDNN's file identifier.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fbb = FlatBufferBuilder::new();
        let trees: Vec<_> = self.trees.iter().map(|tree| tree.write(&mut fbb)).collect();
        let architectures: Vec<_> = self.architectures.iter().map(|name| fbb.create_string(name)).collect();
        let args = fb::GbdtModelArgs {
            trees: tables(&mut fbb, &trees),
            num_features: self.features as i32,
            features_hash: Some(fbb.create_string(&self.features_hash)),
            base_score: self.base_score,
            training_arches: Some(fbb.create_vector(&architectures)),
            model_version: Some(fbb.create_string(&self.version)),
            ..Default::default()
        };
        let model = fb::GbdtModel::create(&mut fbb, &args);
        finish(fbb, model, Some(TREES))
    }

    /// Sum of what the trees say of these features, of which those that are missing are NaN; `None` if their number is
    /// wrong. The learning rate is in the leaves already.
    pub fn score(&self, features: &[f64]) -> Option<f64> {
        (features.len() == self.features as usize)
            .then(|| self.base_score + self.trees.iter().map(|tree| tree.value(features)).sum::<f64>())
    }
}

impl GbdtTree {
    /// Value of the leaf that the features lead to.
    fn value(&self, features: &[f64]) -> f64 {
        let mut at = 0;
        loop {
            match self.0[at] {
                GbdtNode::Leaf(value) => return value,
                GbdtNode::Split { feature, threshold, equal_left, missing_left, children } => {
                    let value = features[feature as usize];
                    let left = match value.partial_cmp(&threshold) {
                        None => missing_left,
                        Some(std::cmp::Ordering::Equal) => equal_left,
                        Some(order) => order.is_lt(),
                    };
                    at = children[usize::from(!left)] as usize;
                }
            }
        }
    }

    fn write<'a>(&self, fbb: &mut FlatBufferBuilder<'a>) -> flatbuffers::WIPOffset<fb::GbdtTree<'a>> {
        let child = |side: usize| {
            let of = move |node: &GbdtNode| match node {
                GbdtNode::Leaf(_) => -1,
                GbdtNode::Split { children, .. } => children[side] as i32,
            };
            self.0.iter().map(of).collect::<Vec<i32>>()
        };
        let split = |node: &GbdtNode| match *node {
            GbdtNode::Leaf(value) => (0, 0.0, value, false, true),
            GbdtNode::Split { feature, threshold, equal_left, missing_left, .. } => {
                (feature as i32, threshold, 0.0, missing_left, equal_left)
            }
        };
        let nodes: Vec<_> = self.0.iter().map(split).collect();
        let args = fb::GbdtTreeArgs {
            feature_indices: Some(fbb.create_vector(&nodes.iter().map(|node| node.0).collect::<Vec<_>>())),
            thresholds: Some(fbb.create_vector(&nodes.iter().map(|node| node.1).collect::<Vec<_>>())),
            left_children: Some(fbb.create_vector(&child(0))),
            right_children: Some(fbb.create_vector(&child(1))),
            leaf_values: Some(fbb.create_vector(&nodes.iter().map(|node| node.2).collect::<Vec<_>>())),
            default_left: Some(fbb.create_vector(&nodes.iter().map(|node| node.3).collect::<Vec<_>>())),
            decision_lte: Some(fbb.create_vector(&nodes.iter().map(|node| node.4).collect::<Vec<_>>())),
        };
        fb::GbdtTree::create(fbb, &args)
    }
}

/// A tree with its lists checked; it takes its nodes from `room`.
fn tree_of(tree: &fb::GbdtTree<'_>, features: u32, room: &mut usize) -> Result<GbdtTree, GraphError> {
    let lengths = [
        tree.feature_indices().map_or(0, |list| list.len()),
        tree.thresholds().map_or(0, |list| list.len()),
        tree.left_children().map_or(0, |list| list.len()),
        tree.right_children().map_or(0, |list| list.len()),
        tree.leaf_values().map_or(0, |list| list.len()),
    ];
    let count = lengths[0];
    bounded("nodes of trees", count, *room)?;
    *room -= count;
    let fits = |length: usize| length == 0 || length == count;
    let optional = [tree.default_left().map_or(0, |list| list.len()), tree.decision_lte().map_or(0, |list| list.len())];
    if count == 0 || lengths != [count; 5] || !optional.iter().all(|length| fits(*length)) {
        return Err(wrong(format!("expected a tree with lists of equal length, got {lengths:?} and {optional:?}")));
    }
    let (Some(indices), Some(thresholds), Some(left), Some(right), Some(leaves)) =
        (tree.feature_indices(), tree.thresholds(), tree.left_children(), tree.right_children(), tree.leaf_values())
    else {
        return Err(wrong("expected a tree with all its lists".to_owned()));
    };
    let flag = |list: Option<flatbuffers::Vector<'_, bool>>, at: usize, absent: bool| {
        list.filter(|list| !list.is_empty()).map_or(absent, |list| list.get(at))
    };
    let mut entered = vec![false; count];
    entered[0] = true;
    let mut nodes = Vec::with_capacity(count);
    for at in 0..count {
        if left.get(at) == -1 && right.get(at) == -1 {
            nodes.push(GbdtNode::Leaf(finite("leaf", leaves.get(at))?));
            continue;
        }
        // Children that nothing else leads to: from the root there is one way to each node, and so no circle.
        let mut child = |child: i32| match usize::try_from(child) {
            Ok(to) if to < count && !std::mem::replace(&mut entered[to], true) => Ok(to as u32),
            _ => Err(wrong(format!("node {at}: expected a child of its own below {count}, got {child}"))),
        };
        let children = [child(left.get(at))?, child(right.get(at))?];
        let feature = u32::try_from(indices.get(at)).ok().filter(|feature| *feature < features);
        let Some(feature) = feature else {
            return Err(wrong(format!("node {at}: expected a feature below {features}, got {}", indices.get(at))));
        };
        nodes.push(GbdtNode::Split {
            feature,
            threshold: finite("threshold", thresholds.get(at))?,
            equal_left: flag(tree.decision_lte(), at, true),
            missing_left: flag(tree.default_left(), at, false),
            children,
        });
    }
    Ok(GbdtTree(nodes))
}

#[cfg(test)]
mod tests;
