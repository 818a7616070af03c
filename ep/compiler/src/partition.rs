//! Partitions: sets of nodes that become one program each, as large as the nodes between them allow.

use std::collections::HashMap;

use crate::model::{Model, ValueIndex};

/// Convex partitions of the nodes for which `taken` holds, in an order of execution; nodes ascending.
///
/// A node belongs to the partition that is numbered by the most changes from taken to other nodes and back on a way to it.
/// So no way leads out of a partition and back into it.
pub fn partitions(model: &Model, taken: &[bool]) -> Vec<Vec<usize>> {
    let mut producers: HashMap<ValueIndex, usize> = HashMap::new();
    for (index, node) in model.nodes.iter().enumerate() {
        producers.extend(node.outputs.iter().flatten().map(|value| (*value, index)));
    }
    // The first partition that a node can be in, or that what depends on it can be in.
    let mut numbers = vec![0usize; model.nodes.len()];
    let mut partitions: Vec<Vec<usize>> = Vec::new();
    for (index, node) in model.nodes.iter().enumerate() {
        let mut number = 0;
        for producer in node.inputs.iter().flatten().filter_map(|value| producers.get(value)) {
            let leaves = taken[*producer] && !taken[index];
            number = number.max(numbers[*producer] + usize::from(leaves));
        }
        numbers[index] = number;
        if taken[index] {
            if partitions.len() <= number {
                partitions.resize(number + 1, Vec::new());
            }
            partitions[number].push(index);
        }
    }
    partitions.retain(|partition| !partition.is_empty());
    partitions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Node;

    /// A model of nodes that each write the value of their own number and read these.
    fn model(reads: &[&[usize]]) -> Model {
        let nodes = reads.iter().enumerate().map(|(index, reads)| Node {
            inputs: reads.iter().map(|value| Some(*value)).collect(),
            outputs: vec![Some(index)],
            ..Node::default()
        });
        Model { nodes: nodes.collect(), ..Model::default() }
    }

    #[test]
    fn no_way_leads_out_and_back() {
        // 0 → 1 → 2 → 3, 0 → 3, 4 alone.
        let chain = model(&[&[], &[0], &[1], &[2, 0], &[]]);
        for (taken, want) in [
            ([true, true, true, true, true], vec![vec![0, 1, 2, 3, 4]]),
            ([true, false, true, true, true], vec![vec![0, 4], vec![2, 3]]),
            ([true, true, false, true, true], vec![vec![0, 1, 4], vec![3]]),
            ([false, true, true, false, false], vec![vec![1, 2]]),
            ([false; 5], vec![]),
        ] {
            assert_eq!(partitions(&chain, &taken), want, "{taken:?}");
        }
    }

    #[test]
    fn partitions_are_convex_in_random_graphs() {
        let mut state = 3u64;
        let mut random = |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        for _ in 0..300 {
            let count = 2 + random(20);
            let reads: Vec<Vec<usize>> = (0..count)
                .map(|node| (0..random(4)).filter(|_| node > 0).map(|_| random(node.max(1))).collect())
                .collect();
            let reads: Vec<&[usize]> = reads.iter().map(Vec::as_slice).collect();
            let model = model(&reads);
            let taken: Vec<bool> = (0..count).map(|_| random(4) > 0).collect();
            let partitions = partitions(&model, &taken);
            assert_eq!(partitions.iter().map(Vec::len).sum::<usize>(), taken.iter().filter(|taken| **taken).count());
            for partition in &partitions {
                // What depends on the partition through a node outside of it.
                let mut tainted = vec![false; count];
                for node in 0..count {
                    let inside = partition.contains(&node);
                    let below = reads[node].iter().any(|read| tainted[*read] || (!inside && partition.contains(read)));
                    tainted[node] = below;
                    assert!(
                        !(inside && below),
                        "node {node} of {partition:?} depends on it through others: {reads:?} {taken:?}"
                    );
                }
            }
        }
    }
}
