use super::*;

fn table() -> TableModel {
    TableModel {
        features: 3,
        features_hash: "sha256:00".into(),
        buckets: vec![
            FeatureBucket { feature: 0, boundaries: vec![0.0, 1.0, 4.0] },
            FeatureBucket { feature: 2, boundaries: vec![-1.5] },
        ],
        entries: vec![
            TableEntry { key: vec![2, 0], kernel: -7, score: 0.5 },
            TableEntry { key: vec![0, 0], kernel: 9, score: -3.0 },
        ],
        architectures: vec!["gfx942".into(), "x86_64".into()],
        version: "1".into(),
    }
}

fn trees() -> GbdtModel {
    let split = |feature, equal_left, missing_left, children| GbdtNode::Split {
        feature,
        threshold: 1.0,
        equal_left,
        missing_left,
        children,
    };
    let one = GbdtTree(vec![split(0, true, false, [1, 2]), GbdtNode::Leaf(10.0), GbdtNode::Leaf(20.0)]);
    let other = GbdtTree(vec![
        split(1, false, true, [2, 1]),
        GbdtNode::Leaf(1.0),
        split(0, true, true, [4, 3]),
        GbdtNode::Leaf(3.0),
        GbdtNode::Leaf(2.0),
    ]);
    GbdtModel {
        trees: vec![one, other],
        features: 2,
        features_hash: "sha256:11".into(),
        base_score: 100.0,
        architectures: vec!["gfx90a".into()],
        version: "2".into(),
    }
}

#[test]
fn models_round_trip() {
    assert_eq!(TableModel::from_bytes(&table().to_bytes()), Ok(table()));
    assert_eq!(TableModel::from_bytes(&TableModel::default().to_bytes()), Ok(TableModel::default()));
    assert_eq!(GbdtModel::from_bytes(&trees().to_bytes()), Ok(trees()));
}

#[test]
fn buckets_begin_at_their_boundaries() {
    let bucket = &table().buckets[0];
    for (value, want) in [(-5.0, 0), (0.0, 0), (0.99, 0), (1.0, 1), (3.9, 1), (4.0, 2), (1e300, 2), (f64::NAN, 0)] {
        assert_eq!(bucket.of(value), want, "{value}");
    }
}

#[test]
fn trees_are_walked_by_the_published_rule() {
    let model = trees();
    let missing = f64::NAN;
    // Below, equal to and above the threshold, and missing: the first tree is 10 or 20, the second 1, 2 or 3.
    for (features, want) in [
        ([0.0, 2.0], 100.0 + 10.0 + 1.0),
        ([0.0, 0.0], 100.0 + 10.0 + 2.0),
        ([1.0, 1.0], 100.0 + 10.0 + 1.0),
        ([2.0, 0.0], 100.0 + 20.0 + 3.0),
        ([missing, missing], 100.0 + 20.0 + 2.0),
    ] {
        assert_eq!(model.score(&features), Some(want), "{features:?}");
    }
    assert_eq!(model.score(&[0.0]), None);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let refused = |change: &dyn Fn(&mut TableModel), why: &str| {
        let mut changed = table();
        change(&mut changed);
        let error = TableModel::from_bytes(&changed.to_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&|model| model.features = 2, "a feature below 2");
    refused(&|model| model.buckets[0].boundaries.swap(0, 1), "ascending numbers");
    refused(&|model| model.buckets[0].boundaries[1] = 0.0, "ascending numbers");
    refused(&|model| model.buckets[0].boundaries[2] = f64::INFINITY, "finite number");
    refused(&|model| model.entries[0].key[0] = 3, "a bucket below 3");
    refused(&|model| model.entries[0].key.truncate(1), "a key of 2 buckets");
    refused(&|model| model.entries[0].score = f64::NAN, "finite number");
    refused(&|model| model.features = 1 << 20, "at most 256 features");
    let refused = |change: &dyn Fn(&mut GbdtModel), why: &str| {
        let mut changed = trees();
        change(&mut changed);
        let error = GbdtModel::from_bytes(&changed.to_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    let set = |model: &mut GbdtModel, to: [u32; 2]| {
        if let GbdtNode::Split { children, .. } = &mut model.trees[0].0[0] {
            *children = to;
        }
    };
    for to in [[0, 1], [1, 1], [1, 3], [1, u32::MAX]] {
        refused(&|model| set(model, to), "a child of its own below 3");
    }
    refused(&|model| model.features = 1, "a feature below 1");
    refused(&|model| model.trees[1].0[3] = GbdtNode::Leaf(f64::NAN), "finite number");
    refused(&|model| model.trees[1].0.clear(), "lists of equal length");
    let (table, trees) = (table().to_bytes(), trees().to_bytes());
    assert!(TableModel::from_bytes(&trees).is_err() && GbdtModel::from_bytes(&table).is_err(), "the other kind");
    let unnamed = [&table[..4], &[0; 4], &table[8..]].concat();
    let error = TableModel::from_bytes(&unnamed).unwrap_err().to_string();
    assert!(error.contains("a file with identifier TABL"), "{error}");
}

/// As many features as a model may have, and nodes that all its trees may have together.
#[test]
fn limits_are_whole() {
    let widest = TableModel { features: MAX_FEATURES as u32, ..table() };
    assert_eq!(TableModel::from_bytes(&widest.to_bytes()), Ok(widest));
    let bytes = trees().to_bytes();
    let trees: Vec<_> = root::<fb::GbdtModel>(&bytes).unwrap().trees().into_iter().flatten().collect();
    for (mut room, fits) in [(8, true), (7, false)] {
        let read: Result<Vec<_>, _> = trees.iter().map(|tree| tree_of(tree, 2, &mut room)).collect();
        assert_eq!(read.is_ok(), fits, "{read:?}");
    }
}

/// What a mutated file is decoded to can be computed with.
#[test]
fn mutated_files_are_refused_or_harmless() {
    let seed = 1;
    let mut random = fastrand::Rng::with_seed(seed);
    let (table, trees) = (table().to_bytes(), trees().to_bytes());
    let (mut taken, mut refused) = (0, 0);
    for round in 0..20_000 {
        let mut bytes = if round % 2 == 0 { table.clone() } else { trees.clone() };
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..4) {
                0 => bytes[at] ^= 1 << random.u8(..8),
                1 => bytes[at] = random.u8(..),
                2 => bytes[at] = [0, 0x7f, 0x80, 0xff][random.usize(..4)],
                _ => bytes.truncate(at.max(1)),
            }
        }
        let decoded = match round % 2 {
            0 => TableModel::from_bytes(&bytes).map(|model| {
                let in_range = |entry: &TableEntry| {
                    entry.key.iter().zip(&model.buckets).all(|(at, bucket)| (*at as usize) < bucket.boundaries.len())
                };
                model.entries.iter().all(in_range)
            }),
            _ => GbdtModel::from_bytes(&bytes).map(|model| model.score(&vec![0.5; model.features as usize]).is_some()),
        };
        match decoded {
            Ok(fine) => {
                assert!(fine, "seed {seed}, round {round}");
                taken += 1;
            }
            Err(_) => refused += 1,
        }
    }
    // The identifier, offsets and lengths are most of the bytes; scores and thresholds may be any finite number.
    assert!(taken > 100 && refused > 100, "seed {seed}: {taken} taken, {refused} refused");
}
