//! The wire format's enumerations, against the table of hipDNN's numbers in `hipdnn_numbers.txt`.

use std::collections::BTreeMap;

use hipdnn_schemas::*;

/// Number by enumerator, by enumeration.
fn published() -> BTreeMap<&'static str, BTreeMap<String, i8>> {
    let mut all = BTreeMap::<_, BTreeMap<_, _>>::new();
    for line in include_str!("hipdnn_numbers.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let [enumeration, name, number] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let numbers = all.entry(enumeration).or_default();
        assert_eq!(numbers.insert(name.to_string(), number.parse().unwrap()), None, "{line}");
    }
    all
}

#[test]
fn every_number_is_hipdnns() {
    let published = published();
    let mut compared = Vec::new();
    macro_rules! compare {
        ($($name:ident $({ $($variant:ident = $word:literal),* })?;)*) => { $(
            // Where hipDNN's enumerator is not its JSON name in capitals, and what hipDNN has not.
            let word = |value: $name| match value {
                $($($name::$variant => $word.to_string(),)*)?
                #[allow(unreachable_patterns, reason = "an enumeration may have none of the rest")]
                value => value.json_name().to_uppercase(),
            };
            let ours: BTreeMap<String, i8> =
                $name::ALL.iter().map(|value| (word(*value), value.wire())).filter(|(word, _)| !word.is_empty()).collect();
            assert_eq!(ours, published[stringify!($name)], stringify!($name));
            compared.push(stringify!($name));
        )* };
    }
    compare! {
        AttentionImplementation;
        ConvMode;
        DataType;
        DiagonalAlignment;
        MoeGroupedMatmulMode;
        NormFwdPhase;
        PaddingMode { Unset = "PADDING_NOT_SET" };
        PointwiseMode;
        ReductionMode { Min = "MIN_OP", Max = "MAX_OP" };
        ResampleMode { Bilinear = "", Nearest = "" };
    }
    let kinds: BTreeMap<String, i8> =
        (1..).zip(Operation::KINDS).map(|(number, kind)| (kind.to_string(), number)).collect();
    assert_eq!(kinds, published["NodeAttributes"]);
    compared.push("NodeAttributes");
    compared.sort_unstable();
    assert_eq!(compared, published.keys().copied().collect::<Vec<_>>());
}

/// Each enumeration has as many lines as the table says: none is lost where two changes of it meet.
#[test]
fn the_table_is_whole() {
    let counts: BTreeMap<&str, usize> = published().into_iter().map(|(name, numbers)| (name, numbers.len())).collect();
    let said: BTreeMap<&str, usize> = include_str!("hipdnn_numbers.txt")
        .lines()
        .filter_map(|line| line.strip_prefix("# ")?.split_once(" of "))
        .filter_map(|(count, name)| Some((name, count.parse().ok()?)))
        .collect();
    assert_eq!(counts, said);
    assert_eq!(counts.len(), 11);
}
