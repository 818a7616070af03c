//! hipDNN's C enumerations, against the table of its numbers in `hipdnn_numbers.txt`.

use std::collections::{BTreeMap, BTreeSet};

use hipdnn_sdk_bindings::hipdnn::backend::*;

/// Number by name.
type Numbers = BTreeMap<String, i32>;

/// The table, by enumeration.
fn published() -> BTreeMap<String, Numbers> {
    let mut all = BTreeMap::<String, Numbers>::new();
    for line in include_str!("hipdnn_numbers.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let [enumeration, name, number] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let numbers = all.entry(enumeration.to_string()).or_default();
        assert_eq!(numbers.insert(name.to_string(), number.parse().unwrap()), None, "{line}");
    }
    all
}

/// The bindings, by the C name of the enumeration.
fn bound() -> BTreeMap<&'static str, Numbers> {
    let mut all = BTreeMap::new();
    macro_rules! collect {
        ($($c_name:ident: $name:ident;)*) => { $(
            let numbers: Numbers = $name::ALL.iter().map(|value| (value.name().unwrap().to_string(), value.0)).collect();
            assert_eq!(numbers.len(), $name::ALL.len(), "two values of {} have one name", stringify!($name));
            all.insert(stringify!($c_name), numbers);
        )* };
    }
    collect! {
        hipdnnAttentionImplementation_t: AttentionImplementation;
        hipdnnBackendAttributeName_t: AttributeName;
        hipdnnBackendAttributeType_t: AttributeType;
        hipdnnBackendBehaviorNote_t: BehaviorNote;
        hipdnnBackendDescriptorType_t: DescriptorType;
        hipdnnBackendHeurMode_t: HeurMode;
        hipdnnConvolutionMode_t: ConvolutionMode;
        hipdnnDataType_t: DataType;
        hipdnnDiagonalAlignment_t: DiagonalAlignment;
        hipdnnMoeGroupedMatmulMode_t: MoeGroupedMatmulMode;
        hipdnnNormFwdPhase_t: NormFwdPhase;
        hipdnnOperationType_ext_t: OperationType;
        hipdnnPaddingMode_t: PaddingMode;
        hipdnnPointwiseMode_t: PointwiseMode;
        hipdnnReduceTensorOp_t: ReduceTensorOp;
        hipdnnResampleMode_t: ResampleMode;
        hipdnnStatus_t: Status;
    }
    all
}

#[test]
fn every_number_and_name_is_hipdnns() {
    let (published, bound) = (published(), bound());
    let enumerations: BTreeSet<&str> = published.keys().map(String::as_str).collect();
    assert_eq!(enumerations, bound.keys().copied().collect());
    for (enumeration, ours) in &bound {
        let theirs = &published[*enumeration];
        let differing: Vec<_> = theirs
            .keys()
            .chain(ours.keys())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|name| (name, theirs.get(name), ours.get(name)))
            .filter(|(_, theirs, ours)| theirs != ours)
            .collect();
        assert!(differing.is_empty(), "{enumeration}: name, hipDNN's number, ours: {differing:?}");
    }
}

/// Each enumeration has as many lines as the table says: none is lost where two changes of it meet.
#[test]
fn the_table_is_whole() {
    let counts: BTreeMap<String, usize> =
        published().into_iter().map(|(name, numbers)| (name, numbers.len())).collect();
    let said: BTreeMap<String, usize> = include_str!("hipdnn_numbers.txt")
        .lines()
        .filter_map(|line| line.strip_prefix("# ")?.split_once(" of "))
        .filter_map(|(count, name)| Some((name.to_string(), count.parse().ok()?)))
        .collect();
    assert_eq!(counts, said);
    assert_eq!(counts.len(), 17);
}
