//! Mutations of graphs, configurations and JSON: of bytes, and of what they mean.

use hipdnn_schemas::*;

use crate::random::Random;

/// Numbers at which programs tend to go wrong.
const INTERESTING: &[i64] = &[
    0,
    1,
    -1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    17,
    31,
    32,
    63,
    64,
    127,
    128,
    -128,
    255,
    256,
    32767,
    32768,
    65535,
    65536,
    0x7fff_ffff,
    0x8000_0000,
    -0x8000_0000,
    0xffff_ffff,
    1 << 32,
    (1 << 47) - 1,
    1 << 47,
    1 << 62,
    i64::MAX,
    i64::MIN,
    i64::MAX - 1,
    i64::MIN + 1,
];

fn interesting(random: &mut Random, near: i64) -> i64 {
    match random.below(4) {
        0 => near.wrapping_add(random.range(-3, 3)),
        1 => random.range(0, 9),
        _ => random.pick(INTERESTING),
    }
}

/// Changes bytes in one to four places. `other` lends pieces.
pub(crate) fn bytes(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            bytes.extend_from_slice(other);
        }
        let len = bytes.len();
        let at = random.below(len.max(1));
        let word = at & !3;
        match random.below(12) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            // An offset, a length, or half of an extent, a little off or far off.
            3 | 4 if word + 4 <= len => {
                let old = u32::from_le_bytes(bytes[word..word + 4].try_into().expect("four bytes"));
                let new = interesting(random, old.into()) as u32;
                bytes[word..word + 4].copy_from_slice(&new.to_le_bytes());
            }
            5 if word + 8 <= len => {
                let old = i64::from_le_bytes(bytes[word..word + 8].try_into().expect("eight bytes"));
                bytes[word..word + 8].copy_from_slice(&interesting(random, old).to_le_bytes());
            }
            // A slot of a vtable.
            6 if (at & !1) + 2 <= len => {
                let value = random.range(0, 40) as u16 & !1;
                bytes[at & !1..(at & !1) + 2].copy_from_slice(&value.to_le_bytes());
            }
            // Two words change places.
            7 if len >= 8 => {
                let a = random.below(len / 4) * 4;
                let b = random.below(len / 4) * 4;
                for i in 0..4 {
                    bytes.swap(a + i, b + i);
                }
            }
            // A piece is copied over, put in, or cut out.
            8 => {
                let piece = piece(random, other);
                let end = (at + piece.len()).min(len);
                bytes[at..end].copy_from_slice(&piece[..end - at]);
            }
            9 => {
                let piece = piece(random, other);
                bytes.splice(word..word, piece);
            }
            10 => {
                let end = (at + 1 + random.below(16)).min(len);
                bytes.drain(at..end);
            }
            _ => bytes.truncate(at),
        }
    }
}

fn piece(random: &mut Random, of: &[u8]) -> Vec<u8> {
    if of.is_empty() {
        return vec![0xff; 4];
    }
    let from = random.below(of.len());
    let to = (from + 1 + random.below(64)).min(of.len());
    of[from..to].to_vec()
}

/// Changes what a graph says in one to three places.
pub(crate) fn graph(random: &mut Random, def: &mut GraphDef, other: &GraphDef) {
    for _ in 0..1 + random.below(3) {
        match random.below(10) {
            0..=4 => tensor(random, def),
            5..=8 => node(random, def, other),
            _ => whole(random, def, other),
        }
    }
}

fn any_type(random: &mut Random) -> DataType {
    random.pick(DataType::ALL)
}

fn any_uid(random: &mut Random, def: &GraphDef) -> TensorUid {
    if def.tensors.is_empty() || random.once_in(8) {
        return TensorUid(interesting(random, 0));
    }
    def.tensors[random.below(def.tensors.len())].uid
}

fn any_float(random: &mut Random) -> f32 {
    random.pick(&[0.0, -0.0, 1.0, -1.0, 0.1, 6.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-40])
}

fn tensor(random: &mut Random, def: &mut GraphDef) {
    if def.tensors.is_empty() {
        return;
    }
    let index = random.below(def.tensors.len());
    let uid = any_uid(random, def);
    let tensor = &mut def.tensors[index];
    let rank = tensor.dims.len();
    let axis = random.below(rank.max(1));
    match random.below(16) {
        0 | 1 if rank > 0 => tensor.dims[axis] = interesting(random, tensor.dims[axis]),
        2 | 3 if axis < tensor.strides.len() => tensor.strides[axis] = interesting(random, tensor.strides[axis]),
        4 => tensor.strides = packed_strides(&tensor.dims),
        5 => tensor.strides = channels_last_strides(&tensor.dims),
        6 if axis < tensor.strides.len() => tensor.strides.rotate_left(axis),
        7 => tensor.data_type = any_type(random),
        8 => tensor.is_virtual = !tensor.is_virtual,
        9 => {
            tensor.value = Some(match random.below(8) {
                0 => TensorValue::Float32(any_float(random)),
                1 => TensorValue::Float16(any_float(random)),
                2 => TensorValue::BFloat16(any_float(random)),
                3 => TensorValue::Float8(random.next() as u8),
                4 => TensorValue::Int32(random.next() as i32),
                5 => TensorValue::Float64(f64::from(any_float(random))),
                6 => TensorValue::Int64(random.next() as i64),
                _ => TensorValue::Bool(random.once_in(2)),
            });
        }
        10 => tensor.is_runtime_pass_by_value = !tensor.is_runtime_pass_by_value,
        11 => tensor.ragged = Some(Ragged { offset: uid, multiplier: interesting(random, 1) }),
        12 => tensor.alignment = interesting(random, tensor.alignment),
        13 => tensor.uid = uid,
        14 => {
            tensor.dims.push(random.range(1, 2));
            tensor.strides.push(1);
        }
        _ => {
            tensor.dims.pop();
            tensor.strides.pop();
        }
    }
}

fn list(random: &mut Random, list: &mut Vec<i64>) {
    let at = random.below(list.len().max(1));
    match random.below(6) {
        0 => list.push(interesting(random, 1)),
        1 => drop(list.pop()),
        _ if at < list.len() => list[at] = interesting(random, list[at]),
        _ => {}
    }
}

fn node(random: &mut Random, def: &mut GraphDef, other: &GraphDef) {
    if def.nodes.is_empty() {
        return;
    }
    let index = random.below(def.nodes.len());
    let uid = any_uid(random, def);
    match random.below(8) {
        0 => {
            let second = random.below(def.nodes.len());
            def.nodes.swap(index, second);
        }
        1 => def.nodes.push(def.nodes[index].clone()),
        2 => drop(def.nodes.remove(index)),
        3 => def.nodes[index].compute_data_type = any_type(random),
        4 if !other.nodes.is_empty() => {
            let foreign = other.nodes[random.below(other.nodes.len())].clone();
            def.nodes.insert(index, foreign);
        }
        _ => operation(random, &mut def.nodes[index].operation, uid),
    }
}

fn geometry(random: &mut Random, c: &mut Convolution) {
    match random.below(5) {
        0 => list(random, &mut c.pre_padding),
        1 => list(random, &mut c.post_padding),
        2 => list(random, &mut c.stride),
        3 => list(random, &mut c.dilation),
        _ => c.mode = random.pick(ConvMode::ALL),
    }
}

fn operation(random: &mut Random, operation: &mut Operation, uid: TensorUid) {
    let which = random.below(4);
    match operation {
        Operation::ConvolutionFwd(c) => match which {
            0 => c.x = uid,
            1 => c.w = uid,
            2 => c.y = uid,
            _ => geometry(random, &mut c.convolution),
        },
        Operation::ConvolutionBwd(c) => match which {
            0 => c.dy = uid,
            1 => c.dx = uid,
            _ => geometry(random, &mut c.convolution),
        },
        Operation::ConvolutionWrw(c) => match which {
            0 => c.dw = uid,
            1 => c.x = uid,
            _ => geometry(random, &mut c.convolution),
        },
        Operation::Pointwise(p) => match random.below(12) {
            0 => p.in_0 = uid,
            1 => p.in_1 = random.once_in(2).then_some(uid),
            2 => p.in_2 = random.once_in(2).then_some(uid),
            3 => p.out_0 = uid,
            4 => p.axis = Some(interesting(random, 1)),
            5 => p.relu_lower_clip = Some(any_float(random)),
            6 => p.relu_upper_clip = Some(any_float(random)),
            7 => p.relu_lower_clip_slope = Some(any_float(random)),
            8 => p.swish_beta = Some(any_float(random)),
            9 => p.elu_alpha = Some(any_float(random)),
            10 => p.softplus_beta = Some(any_float(random)),
            _ => p.mode = random.pick(PointwiseMode::ALL),
        },
        Operation::Matmul(m) => match which {
            0 => m.a = uid,
            1 => m.b = uid,
            _ => m.c = uid,
        },
        Operation::Batchnorm(n) => n.peer_stats.push(uid),
        Operation::BatchnormBackward(n) => n.peer_stats.push(uid),
        Operation::Layernorm(n) => n.normalized_dim_count = interesting(random, n.normalized_dim_count),
        Operation::LayernormBackward(n) => n.normalized_dim_count = interesting(random, n.normalized_dim_count),
        Operation::Reduction(r) => match which {
            0 => r.input = uid,
            1 => r.output = uid,
            _ => r.mode = random.pick(ReductionMode::ALL),
        },
        Operation::ResampleFwd(r) => match which {
            0 => list(random, &mut r.window),
            1 => list(random, &mut r.stride),
            2 => list(random, &mut r.pre_padding),
            _ => r.resample_mode = random.pick(ResampleMode::ALL),
        },
        Operation::ResampleBwd(r) => match which {
            0 => list(random, &mut r.window),
            1 => list(random, &mut r.stride),
            _ => r.index = Some(uid),
        },
        Operation::BlockScaleDequantize(b) => b.block_size.push(interesting(random, 1) as i32),
        Operation::BlockScaleQuantize(b) => match which {
            0 => b.axis = Some(interesting(random, 1)),
            _ => b.block_size = interesting(random, 1) as i32,
        },
        Operation::Sdpa(s) => match which {
            0 => s.q = uid,
            1 => s.page_table_k = Some(uid),
            2 => s.max_seq_len_kv = Some(interesting(random, 1) as i32),
            _ => s.left_bound = Some(interesting(random, 0)),
        },
        Operation::CustomOp(c) => match which {
            0 => c.inputs.push(uid),
            1 => c.outputs.push(uid),
            2 => c.custom_op_id.clear(),
            _ => c.data.push(random.next() as u8),
        },
        Operation::MoeGroupedMatmul(m) => m.top_k = interesting(random, 1) as i32,
        _ => {}
    }
}

fn whole(random: &mut Random, def: &mut GraphDef, other: &GraphDef) {
    match random.below(8) {
        0 => def.compute_data_type = any_type(random),
        1 => def.io_data_type = any_type(random),
        2 => def.intermediate_data_type = any_type(random),
        3 => def.is_override_shape_enabled = !def.is_override_shape_enabled,
        4 => def.preferred_engine_id = Some(interesting(random, 0)),
        5 => {
            let part = |random: &mut Random| interesting(random, 1) as u32;
            let (major, minor, patch) = (part(random), part(random), part(random));
            def.min_required_engine_api_version = Some(EngineApiVersion { major, minor, patch });
        }
        6 => def.tensors.extend(other.tensors.iter().cloned()),
        _ if !def.tensors.is_empty() => {
            let index = random.below(def.tensors.len());
            def.tensors.remove(index);
        }
        _ => {}
    }
}

/// The knobs of the CPU engine, as its details give them, and names that look like them.
const KNOBS: &[&str] = &[
    "hipdnn_rs.cpu.threads",
    "hipdnn_rs.cpu.winograd",
    "hipdnn_rs.cpu.layout",
    "hipdnn_rs.constants",
    "global.deterministic",
    "global.workspace_size_limit",
    "global.benchmarking",
    "hipdnn_rs.cpu.nothing",
    "",
];

/// A configuration that an engine must take.
pub(crate) fn config(random: &mut Random, engine_id: i64, def: &GraphDef) -> EngineConfig {
    let mut config = EngineConfig { engine_id, knobs: Vec::new() };
    if random.once_in(3) {
        config.knobs.push(("hipdnn_rs.cpu.threads".into(), KnobValue::Int(random.range(1, 2))));
    }
    if random.once_in(4) {
        config.knobs.push(("hipdnn_rs.cpu.winograd".into(), KnobValue::Int(random.range(0, 1))));
    }
    if random.once_in(2) {
        config.knobs.push(("hipdnn_rs.cpu.layout".into(), KnobValue::Int(random.range(0, 1))));
    }
    if random.once_in(4) {
        config.knobs.push(("global.deterministic".into(), KnobValue::Int(random.range(0, 1))));
    }
    if random.once_in(2) {
        config.knobs.push(("hipdnn_rs.constants".into(), KnobValue::String(kept_promise(def))));
    }
    config
}

/// Promises the weights to be constant. Runs give every tensor the same bytes, as far as it spans, so a token of the
/// span keeps the promise that equal tokens mean equal bytes.
fn kept_promise(def: &GraphDef) -> String {
    let mut promises = std::collections::BTreeMap::new();
    for node in &def.nodes {
        if let Operation::ConvolutionFwd(convolution) = &node.operation
            && let Some(w) = def.tensors.iter().find(|tensor| tensor.uid == convolution.w)
        {
            let last: i128 = w.dims.iter().zip(&w.strides).map(|(d, s)| i128::from(*d) * i128::from(*s)).sum();
            promises.insert(w.uid, format!("{}={}-{}", w.uid, w.data_type, last.unsigned_abs()));
        }
    }
    promises.into_values().collect::<Vec<_>>().join(",")
}

/// Promises that mean nothing, or that are not kept.
fn constants(random: &mut Random, def: &GraphDef) -> String {
    let count = random.below(3);
    let entries = (0..count).map(|_| format!("{}={}", any_uid(random, def), random.pick(&["a", "b", "c.1-x"])));
    entries.collect::<Vec<_>>().join(",")
}

/// Changes what a configuration says.
pub(crate) fn wrong_config(random: &mut Random, config: &mut EngineConfig, def: &GraphDef) {
    for _ in 0..1 + random.below(2) {
        let value = match random.below(5) {
            0 => KnobValue::Int(interesting(random, 0)),
            1 => KnobValue::Float(any_float(random).into()),
            2 => KnobValue::String(constants(random, def)),
            3 => {
                let mut text = constants(random, def).into_bytes();
                bytes(random, &mut text, b"=,1=a,-9223372036854775808=zzz,99999999999999999999=q,\x00\xff= ,,==");
                KnobValue::String(String::from_utf8_lossy(&text).into_owned())
            }
            _ => KnobValue::String("x".repeat(random.pick(&[0, 1, 64, 65, 4096, 100_000]))),
        };
        match random.below(6) {
            0 => config.engine_id = interesting(random, config.engine_id),
            _ => config.knobs.push((random.pick(KNOBS).to_string(), value)),
        }
    }
}

/// Changes tokens of a JSON text, or its bytes.
pub(crate) fn json(random: &mut Random, text: &str, other: &str) -> Vec<u8> {
    if random.once_in(4) {
        let mut text = text.as_bytes().to_vec();
        bytes(random, &mut text, other.as_bytes());
        return text;
    }
    let mut tokens = tokens(text);
    for _ in 0..1 + random.below(3) {
        if tokens.is_empty() {
            break;
        }
        let at = random.below(tokens.len());
        match random.below(8) {
            0 => drop(tokens.remove(at)),
            1 => tokens.insert(at, tokens[at]),
            2 => {
                let second = random.below(tokens.len());
                tokens.swap(at, second);
            }
            3 => tokens.truncate(at),
            // A number or a word in the place of one.
            _ => {
                let scalars: Vec<usize> = (0..tokens.len()).filter(|i| !"{}[]:,".contains(tokens[*i])).collect();
                if scalars.is_empty() {
                    break;
                }
                let at = scalars[random.below(scalars.len())];
                let is_number = tokens[at].starts_with(|c: char| c == '-' || c.is_ascii_digit());
                // Mostly one of the same kind, or nothing would get past the reader.
                let scalars = if is_number && !random.once_in(4) { &SCALARS[..NUMBERS] } else { SCALARS };
                tokens[at] = random.pick(scalars);
            }
        }
    }
    tokens.concat().into_bytes()
}

/// Number of [`SCALARS`] that are integers of 64 bits.
const NUMBERS: usize = 12;

const SCALARS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "-1",
    "16",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967296",
    "2147483648",
    "1.5",
    "-0",
    "1e3",
    "1e400",
    "9223372036854775808",
    "18446744073709551616",
    "null",
    "true",
    "false",
    "\"\"",
    "\"float\"",
    "\"half\"",
    "\"unset\"",
    "\"relu_fwd\"",
    "\"add\"",
    "\"CROSS_CORRELATION\"",
    "\"CONVOLUTION\"",
    "\"PointwiseAttributes\"",
    "\"ConvolutionFwdAttributes\"",
    "\"Float32Value\"",
    "\"value\"",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "\"uid\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "[1,1]",
    "[3,3,3]",
];

fn tokens(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let from = at;
        at += 1;
        match bytes[from] {
            b'"' => {
                while at < bytes.len() && bytes[at] != b'"' {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
                at = (at + 1).min(bytes.len());
            }
            b'{' | b'}' | b'[' | b']' | b':' | b',' => {}
            _ => {
                while at < bytes.len() && !b"\"{}[]:,".contains(&bytes[at]) {
                    at += 1;
                }
            }
        }
        // Names of the corpus are ASCII, so every cut is between characters.
        tokens.push(&text[from..at]);
    }
    tokens
}
