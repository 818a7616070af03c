//! Stored plans in the two forms that hipDNN has had, written slot by slot as other writers may write them.

use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};
use hipdnn_schemas::*;

/// The content of a slot of the table, each in a way that some writer has.
#[derive(Clone, Debug)]
enum Slot {
    UInt(u32),
    Long(i64),
    Byte(u8),
    Bytes(Vec<u8>),
    Longs(Vec<i64>),
}

/// A table of these slots. Lists are written before the table in the order given, and fields from its end to its start.
fn table(slots: &[(u16, Slot)]) -> Vec<u8> {
    let mut fbb = FlatBufferBuilder::new();
    let lists: Vec<Option<u32>> = slots
        .iter()
        .map(|(_, slot)| match slot {
            Slot::Bytes(bytes) => Some(fbb.create_vector(bytes).value()),
            Slot::Longs(longs) => Some(fbb.create_vector(longs).value()),
            _ => None,
        })
        .collect();
    let start = fbb.start_table();
    for ((number, slot), list) in slots.iter().zip(lists) {
        let number = 4 + 2 * number;
        match slot {
            Slot::UInt(value) => fbb.push_slot_always(number, *value),
            Slot::Long(value) => fbb.push_slot_always(number, *value),
            Slot::Byte(value) => fbb.push_slot_always(number, *value),
            Slot::Bytes(_) | Slot::Longs(_) => {
                fbb.push_slot_always(number, WIPOffset::<UnionWIPOffset>::new(list.unwrap()));
            }
        }
    }
    let end = fbb.end_table(start);
    fbb.finish(WIPOffset::<UnionWIPOffset>::new(end.value()), None);
    fbb.finished_data().to_vec()
}

/// Slots by number.
type Slots = Vec<(u16, Slot)>;

const ENGINE: i64 = -77;

fn config(engine_id: i64) -> Vec<u8> {
    EngineConfig { engine_id, knobs: vec![("a".into(), KnobValue::Int(1))] }.to_bytes()
}

/// First fields of every plan here.
fn head() -> Slots {
    vec![(0, Slot::UInt(1)), (1, Slot::Long(ENGINE)), (2, Slot::Long(64)), (3, Slot::Longs(vec![5, -6]))]
}

fn with(slots: &[(u16, Slot)]) -> Slots {
    [head(), slots.to_vec()].concat()
}

fn plan() -> SerializedExecutionPlan {
    SerializedExecutionPlan {
        version: 1,
        engine_id: ENGINE,
        workspace_size: 64,
        tensor_uids: vec![TensorUid(5), TensorUid(-6)],
        ..SerializedExecutionPlan::default()
    }
}

/// Every order of the fields that moves some field to every place.
fn rotations(slots: &[(u16, Slot)]) -> impl Iterator<Item = Slots> {
    (0..slots.len()).map(|by| {
        let mut rotated = slots.to_vec();
        rotated.rotate_left(by);
        rotated
    })
}

#[test]
fn the_newest_form_is_read() {
    let payload = || vec![1u8, 2, 3];
    let newest = |payload: Vec<u8>, is_override_shape_enabled, tensor_alignments: &[i64]| SerializedExecutionPlan {
        plugin_payload: payload,
        is_override_shape_enabled,
        tensor_alignments: tensor_alignments.to_vec(),
        ..plan()
    };
    let cases = [
        ("no flag", vec![(4, Slot::Bytes(payload()))], newest(payload(), false, &[])),
        ("flag set", vec![(4, Slot::Bytes(payload())), (5, Slot::Byte(1))], newest(payload(), true, &[])),
        (
            "flag written though not set",
            vec![(4, Slot::Bytes(payload())), (5, Slot::Byte(0))],
            newest(payload(), false, &[]),
        ),
        (
            "alignments",
            vec![(4, Slot::Bytes(payload())), (6, Slot::Longs(vec![16, 256]))],
            newest(payload(), false, &[16, 256]),
        ),
        (
            "alignments and flag",
            vec![(4, Slot::Bytes(payload())), (5, Slot::Byte(1)), (6, Slot::Longs(vec![1, 2]))],
            newest(payload(), true, &[1, 2]),
        ),
        ("a configuration as payload", vec![(4, Slot::Bytes(config(ENGINE)))], newest(config(ENGINE), false, &[])),
        (
            "a configuration as payload, flag set",
            vec![(4, Slot::Bytes(config(ENGINE))), (5, Slot::Byte(1))],
            newest(config(ENGINE), true, &[]),
        ),
        ("slots of a later form", vec![(4, Slot::Bytes(payload())), (7, Slot::Long(9))], newest(payload(), false, &[])),
        ("no payload", vec![], newest(vec![], false, &[])),
    ];
    for (name, slots, want) in cases {
        for slots in rotations(&with(&slots)) {
            assert_eq!(SerializedExecutionPlan::from_bytes(&table(&slots)), Ok(want.clone()), "{name}: {slots:?}");
        }
        assert_eq!(SerializedExecutionPlan::from_bytes(&want.to_bytes()), Ok(want), "{name}, written again");
    }
}

#[test]
fn the_earlier_form_is_read_wherever_its_payload_lies() {
    let mut zeros = 0;
    for filler in 0..300 {
        for configured in [true, false] {
            let mut slots = vec![(5, Slot::Bytes(vec![9, 8]))];
            if configured {
                slots.push((4, Slot::Bytes(config(ENGINE))));
            }
            // Between the payload and the table, so that its offset takes every multiple of 4.
            slots.extend([(3, Slot::Longs((0..filler).collect())), (0, Slot::UInt(1)), (1, Slot::Long(ENGINE))]);
            for slots in [slots.clone(), slots.into_iter().rev().collect()] {
                let bytes = table(&slots);
                let want = SerializedExecutionPlan {
                    version: 1,
                    engine_id: ENGINE,
                    tensor_uids: (0..filler).map(TensorUid).collect(),
                    plugin_payload: vec![9, 8],
                    engine_config: if configured { config(ENGINE) } else { Vec::new() },
                    ..SerializedExecutionPlan::default()
                };
                assert_eq!(SerializedExecutionPlan::from_bytes(&bytes), Ok(want.clone()), "{filler}");
                zeros += usize::from(flag(&bytes) == 0);
                // Written anew it has the newest form, which has no room for the configuration.
                let written = SerializedExecutionPlan::from_bytes(&want.to_bytes()).unwrap();
                assert_eq!(written, SerializedExecutionPlan { engine_config: Vec::new(), ..want });
            }
        }
    }
    assert!(zeros > 0, "some offset looks like a flag that is not set");
}

/// The first byte in slot 5.
fn flag(bytes: &[u8]) -> u8 {
    let table = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let vtable = table.wrapping_add_signed(-(i32::from_le_bytes(bytes[table..table + 4].try_into().unwrap()) as isize));
    bytes[table + usize::from(u16::from_le_bytes(bytes[vtable + 14..vtable + 16].try_into().unwrap()))]
}

#[test]
fn what_is_neither_form_is_refused_with_the_reason() {
    let payload = Slot::Bytes(vec![1, 2, 3]);
    let slot_5 =
        "slot 5 of a plan: expected a flag, or a list of bytes beside a configuration of the plan's engine, got";
    let cases: [(&str, Slots, String); 6] = [
        ("a flag of 2", vec![(4, payload.clone()), (5, Slot::Byte(2))], format!("{slot_5} 2")),
        ("a flag of 255", vec![(4, payload.clone()), (5, Slot::Byte(255))], format!("{slot_5} 255")),
        (
            "another engine's configuration",
            vec![(5, Slot::Bytes(vec![1; 9])), (4, Slot::Bytes(config(ENGINE + 1)))],
            slot_5.to_string(),
        ),
        (
            "both forms at once",
            vec![(5, Slot::Bytes(vec![1; 9])), (4, Slot::Bytes(config(ENGINE))), (6, Slot::Longs(vec![1, 1]))],
            slot_5.to_string(),
        ),
        (
            "an alignment too few",
            vec![(4, payload.clone()), (6, Slot::Longs(vec![16]))],
            "expected an alignment for each of 2 tensors, got 1".into(),
        ),
        (
            "no alignment",
            vec![(4, payload), (6, Slot::Longs(vec![16, 0]))],
            "expected an alignment of at least 1 byte, got 0".into(),
        ),
    ];
    for (name, slots, reason) in cases {
        let error = SerializedExecutionPlan::from_bytes(&table(&with(&slots))).expect_err(name).to_string();
        assert!(error.contains(&reason), "{name}: {error}");
    }
}

#[test]
fn hostile_bytes_give_a_plan_of_their_own_bytes_or_an_error() {
    let newest = [(4, Slot::Bytes(vec![1, 2, 3])), (5, Slot::Byte(1)), (6, Slot::Longs(vec![16, 1]))];
    let earlier = [(4, Slot::Bytes(config(ENGINE))), (5, Slot::Bytes(vec![7; 5]))];
    for slots in [&newest[..], &earlier] {
        let good = table(&with(slots));
        let whole = SerializedExecutionPlan::from_bytes(&good).unwrap();
        for length in 0..good.len() {
            if let Ok(plan) = SerializedExecutionPlan::from_bytes(&good[..length]) {
                assert_ne!(plan, whole, "cut to {length} bytes");
            }
        }
        for at in 0..good.len() {
            for byte in [0, 1, 2, 4, 0x7F, 0x80, 0xFF, good[at] ^ 1, good[at] ^ 0x40] {
                let mut bytes = good.clone();
                bytes[at] = byte;
                let Ok(plan) = SerializedExecutionPlan::from_bytes(&bytes) else { continue };
                let part = |list: &[u8]| list.is_empty() || bytes.windows(list.len()).any(|window| window == list);
                assert!(part(&plan.plugin_payload) && part(&plan.engine_config), "byte {at} as {byte:#x}");
                assert!(
                    plan.engine_config.is_empty()
                        || EngineConfig::from_bytes(&plan.engine_config).unwrap().engine_id == plan.engine_id,
                    "byte {at} as {byte:#x}"
                );
            }
        }
    }
}
