//! Both gradients against loops in f64.

use half::{bf16, f16};
use hipdnn_schemas::{
    ConvMode, Convolution, ConvolutionBwd, ConvolutionWrw, DataType, GraphBuilder, Operation, Tensor, TensorDef,
    TensorUid,
};

use crate::applicability::{self};
use crate::work::Work;
use hipdnn_cpu_threads::Pool;

struct Case {
    what: &'static str,
    x: &'static [i64],
    w: &'static [i64],
    change: fn(&mut Convolution),
}

const fn case(what: &'static str, x: &'static [i64], w: &'static [i64], change: fn(&mut Convolution)) -> Case {
    Case { what, x, w, change }
}

const CASES: &[Case] = &[
    case("plain", &[2, 5, 9, 11], &[6, 5, 3, 3], |_| {}),
    case("padded", &[2, 5, 9, 11], &[6, 5, 3, 3], |c| (c.pre_padding, c.post_padding) = (vec![1; 2], vec![1; 2])),
    case("asymmetric", &[1, 3, 7, 8], &[4, 3, 3, 2], |c| {
        (c.pre_padding, c.post_padding) = (vec![2, 0], vec![0, 3]);
    }),
    case("padded by more than the filter", &[1, 2, 4, 5], &[3, 2, 2, 1], |c| {
        (c.pre_padding, c.post_padding) = (vec![3, 2], vec![1, 4]);
    }),
    case("strided", &[2, 3, 12, 13], &[4, 3, 3, 3], |c| {
        (c.stride, c.pre_padding, c.post_padding) = (vec![2, 3], vec![1; 2], vec![1; 2]);
    }),
    case("stride beyond the filter", &[1, 3, 12, 13], &[4, 3, 1, 2], |c| c.stride = vec![3, 5]),
    case("dilated", &[1, 3, 12, 13], &[4, 3, 3, 2], |c| c.dilation = vec![2, 3]),
    case("strided and dilated", &[1, 3, 17, 19], &[4, 3, 3, 4], |c| {
        (c.stride, c.dilation, c.pre_padding, c.post_padding) = (vec![2, 4], vec![2, 3], vec![2, 1], vec![0, 2]);
    }),
    case("stride 6, dilation 4", &[1, 2, 1, 40], &[2, 2, 1, 5], |c| {
        (c.stride, c.dilation, c.pre_padding) = (vec![1, 6], vec![1, 4], vec![0, 5]);
    }),
    case("groups", &[2, 6, 7, 8], &[9, 2, 3, 3], |c| (c.pre_padding, c.post_padding) = (vec![1; 2], vec![1; 2])),
    case("depthwise", &[2, 7, 9, 9], &[7, 1, 3, 3], |c| c.pre_padding = vec![1; 2]),
    case("depthwise, multiplied, strided", &[1, 4, 9, 10], &[12, 1, 3, 3], |c| c.stride = vec![2; 2]),
    case("mirrored", &[1, 3, 9, 10], &[4, 3, 3, 2], |c| c.mode = ConvMode::Convolution),
    case("mirrored, strided, in groups", &[1, 4, 9, 10], &[4, 2, 3, 4], |c| {
        (c.mode, c.stride, c.dilation) = (ConvMode::Convolution, vec![2, 3], vec![1, 2]);
    }),
    case("1-D", &[2, 3, 50], &[4, 3, 5], |c| (c.stride, c.pre_padding) = (vec![2], vec![3])),
    case("3-D", &[1, 2, 5, 6, 7], &[3, 2, 2, 3, 2], |c| {
        (c.stride, c.dilation, c.pre_padding, c.post_padding) =
            (vec![2, 1, 2], vec![1, 2, 1], vec![1, 0, 1], vec![0, 2, 1]);
    }),
    case("one by one", &[3, 40, 5, 5], &[33, 40, 1, 1], |_| {}),
    case("an image of one place", &[5, 8, 1, 1], &[6, 8, 3, 3], |c| {
        (c.pre_padding, c.post_padding) = (vec![1; 2], vec![1; 2]);
    }),
    case("strided by the filter", &[2, 5, 8, 9], &[6, 5, 2, 3], |c| c.stride = vec![2, 3]),
    case("strided by the filter, mirrored", &[1, 3, 6, 84], &[4, 3, 3, 2], |c| {
        (c.mode, c.stride) = (ConvMode::Convolution, vec![3, 2]);
    }),
    case("strided by the filter, one channel of many", &[1, 1, 36, 38], &[33, 1, 2, 2], |c| c.stride = vec![2; 2]),
    case("strided by the filter, 3-D", &[2, 3, 4, 6, 10], &[5, 3, 2, 1, 2], |c| c.stride = vec![2, 1, 2]),
    case("strided by the filter, long lines", &[1, 3, 4, 450], &[7, 3, 2, 3], |c| c.stride = vec![2, 3]),
    case("strided by the filter, five and six", &[1, 3, 10, 66], &[4, 3, 5, 6], |c| c.stride = vec![5, 6]),
    case("strided by the filter, eight and nine", &[1, 2, 9, 80], &[4, 2, 9, 8], |c| c.stride = vec![9, 8]),
    case("strided by the filter, nine", &[1, 2, 4, 81], &[4, 2, 2, 9], |c| c.stride = vec![2, 9]),
    case("strided by the filter, padded behind", &[2, 3, 8, 12], &[4, 3, 2, 2], |c| {
        (c.stride, c.post_padding) = (vec![2; 2], vec![1; 2]);
    }),
    case("strided by the filter, dilated nowhere", &[1, 3, 8, 12], &[4, 3, 1, 2], |c| {
        (c.stride, c.dilation) = (vec![1, 2], vec![3, 1]);
    }),
    case("strided by the filter, long sums", &[1, 1, 4, 6], &[2100, 1, 2, 2], |c| c.stride = vec![2; 2]),
    case("strided by the filter, 1-D", &[2, 40, 60], &[300, 40, 4], |c| c.stride = vec![4]),
    case("many places", &[2, 3, 40, 41], &[5, 3, 3, 3], |c| c.pre_padding = vec![1; 2]),
];

#[derive(Clone, Copy, Debug)]
enum Lie {
    Packed,
    ChannelsLast,
    Apart,
    /// Packed lines, with gaps between lines.
    Lines,
}

/// A tensor's memory, with the offset of each element in logical order.
struct Memory {
    tensor: Tensor,
    bytes: Vec<u64>,
}

impl Memory {
    fn new(tensor: &Tensor) -> Memory {
        Memory { tensor: tensor.clone(), bytes: vec![u64::MAX; tensor.span_bytes().div_ceil(8)] }
    }

    fn offset(&self, at: &[usize]) -> usize {
        at.iter().zip(self.tensor.strides()).map(|(i, s)| i * s).sum()
    }

    fn get(&self, at: &[usize]) -> f64 {
        let (base, offset) = (self.bytes.as_ptr(), self.offset(at));
        // SAFETY: the element is within the span.
        unsafe {
            match self.tensor.data_type() {
                DataType::Float => f64::from(base.cast::<f32>().add(offset).read()),
                DataType::Half => base.cast::<f16>().add(offset).read().to_f64(),
                _ => base.cast::<bf16>().add(offset).read().to_f64(),
            }
        }
    }

    fn put(&mut self, at: &[usize], value: f64) {
        let offset = self.offset(at);
        let base = self.bytes.as_mut_ptr();
        // SAFETY: the element is within the span, and the bytes are borrowed exclusively.
        unsafe {
            match self.tensor.data_type() {
                DataType::Float => base.cast::<f32>().add(offset).write(value as f32),
                DataType::Half => base.cast::<f16>().add(offset).write(f16::from_f64(value)),
                _ => base.cast::<bf16>().add(offset).write(bf16::from_f64(value)),
            }
        }
    }

    /// Every place, in logical order.
    fn places(&self) -> Vec<Vec<usize>> {
        places(self.tensor.dims())
    }

    /// Checks that nothing but elements was written, given that all bits were set before.
    fn check_gaps(&self, what: &str) {
        let size = self.tensor.data_type().bits().unwrap() as usize / 8;
        let mut owned = vec![false; self.bytes.len() * 8];
        for at in self.places() {
            let first = self.offset(&at) * size;
            owned[first..first + size].fill(true);
        }
        for (i, owned) in owned.iter().enumerate() {
            // SAFETY: the byte is in the vector.
            let byte = unsafe { self.bytes.as_ptr().cast::<u8>().add(i).read() };
            assert!(*owned || byte == 0xff, "{what}: byte {i} between the elements was written");
        }
    }
}

fn places(dims: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for extent in dims {
        all = all.into_iter().flat_map(|at: Vec<usize>| (0..*extent).map(move |i| [&at[..], &[i]].concat())).collect();
    }
    all
}

fn unit(data_type: DataType) -> f64 {
    match data_type {
        DataType::Float => 2f64.powi(-24),
        DataType::Half => 2f64.powi(-11),
        _ => 2f64.powi(-8),
    }
}

/// Calls `f(place of x, place of w, place of dy)` for each place of dy and each tap inside of the image.
fn for_products(
    x: &[usize],
    w: &[usize],
    y: &[usize],
    c: &Convolution,
    mut f: impl FnMut(&[usize], &[usize], &[usize]),
) {
    let (group_in, group_out) = (w[1], w[0] / (x[1] / w[1]));
    for at_y in places(y) {
        for at_w in places(&w[1..]) {
            let channel = at_y[1] / group_out * group_in + at_w[0];
            let mut at_x = vec![at_y[0], channel];
            for axis in 0..x.len() - 2 {
                let tap = match c.mode {
                    ConvMode::Convolution => w[2 + axis] - 1 - at_w[1 + axis],
                    _ => at_w[1 + axis],
                };
                let place = (at_y[2 + axis] as i64) * c.stride[axis] + tap as i64 * c.dilation[axis];
                match usize::try_from(place - c.pre_padding[axis]) {
                    Ok(place) if place < x[2 + axis] => at_x.push(place),
                    _ => break,
                }
            }
            if at_x.len() == x.len() {
                f(&at_x, &[&[at_y[1]], &at_w[..]].concat(), &at_y);
            }
        }
    }
}

fn run(case: &Case, types: [DataType; 3], lie: Lie, weights: bool, threads: usize) {
    let spatial = case.x.len() - 2;
    let mut convolution = Convolution::new(spatial);
    (case.change)(&mut convolution);
    let mut y = vec![case.x[0], case.w[0]];
    y.extend((0..spatial).map(|i| convolution.output_extent(i, case.x[2 + i], case.w[2 + i]).unwrap()));
    let mut graph = GraphBuilder::new("gradient").compute(DataType::Float);
    for (uid, (dims, data_type)) in [case.x, case.w, &y].into_iter().zip(types).enumerate() {
        let tensor = TensorDef::new(uid as i64, data_type, dims);
        graph.tensor(match lie {
            Lie::Packed => tensor,
            Lie::ChannelsLast => tensor.channels_last(),
            Lie::Lines => {
                let last = tensor.strides.len() - 1;
                let gaps: Vec<i64> = (0..=last).map(|i| if i < last { tensor.strides[i] * 3 } else { 1 }).collect();
                tensor.strided(&gaps)
            }
            Lie::Apart => {
                let strides: Vec<i64> = tensor.strides.iter().map(|s| s * 2).collect();
                tensor.strided(&strides)
            }
        });
    }
    let [x, w, dy] = [0, 1, 2].map(TensorUid);
    graph.node(
        "",
        match weights {
            true => Operation::ConvolutionWrw(ConvolutionWrw { x, dy, dw: w, convolution: convolution.clone() }),
            false => Operation::ConvolutionBwd(ConvolutionBwd { dy, w, dx: x, convolution: convolution.clone() }),
        },
    );
    let graph = graph.build().unwrap();
    let mut memory = [x, w, dy].map(|uid| Memory::new(graph.tensor(uid)));
    let out = usize::from(weights);
    let mut random = fastrand::Rng::with_seed(17);
    for (_, memory) in memory.iter_mut().enumerate().filter(|(i, _)| *i != out) {
        for at in memory.places() {
            memory.put(&at, f64::from(2.0 * random.f32() - 1.0));
        }
    }
    let dims = [0, 1, 2].map(|i| memory[i].tensor.dims().to_vec());
    let mut want = vec![(0f64, 0f64, 0u32); memory[out].bytes.len() * 4];
    for_products(&dims[0], &dims[1], &dims[2], &convolution, |at_x, at_w, at_y| {
        let (a, to) = match weights {
            true => (memory[0].get(at_x), memory[1].offset(at_w)),
            false => (memory[1].get(at_w), memory[0].offset(at_x)),
        };
        let product = a * memory[2].get(at_y);
        let sum = &mut want[to];
        *sum = (sum.0 + product, sum.1 + product.abs(), sum.2 + 1);
    });
    let works = applicability::lower(&graph).unwrap();
    let [Work::Node(work)] = &works[..] else { panic!("one node") };
    let kernel = work.recipe.kernel(threads);
    let mut scratch = hipdnn_cpu_simd::scratch::AlignedBuffer::new(kernel.scratch_bytes().div_ceil(4));
    scratch.fill(f32::NAN);
    let address = |uid: &Option<TensorUid>| memory[uid.unwrap().0 as usize].bytes.as_ptr().cast::<u8>();
    let inputs: Vec<*const u8> = work.inputs.iter().map(address).collect();
    let result = memory[out].bytes.as_ptr().cast_mut().cast::<u8>();
    // SAFETY: the tests' own memory, as large as the tensors' spans.
    unsafe { kernel.run(&Pool::new(3), &inputs, &[result], scratch.as_mut_ptr().cast()) };
    let what = format!("{}, {} of {types:?} {lie:?}, {threads} threads", case.what, ["data", "weights"][out]);
    for at in memory[out].places() {
        let (got, (value, magnitude, count)) = (memory[out].get(&at), want[memory[out].offset(&at)]);
        // A sum of n products in any order is within (n + 1)·u·Σ|a·b|, then rounded to the result's type, whose smallest
        // numbers are 2⁻²⁴ apart for f16.
        let error = f64::from(count + 1) * 2f64.powi(-24) * magnitude * 1.01;
        let bound = error + unit(types[out]) * (value.abs() + error) + 2f64.powi(-25);
        assert!((got - value).abs() <= bound, "{what} at {at:?}: expected {value} within {bound:e}, got {got}");
    }
    memory[out].check_gaps(&what);
}

#[test]
fn gradients_are_what_loops_give() {
    use DataType::{BFloat16, Float, Half};
    for case in CASES {
        for lie in [Lie::Packed, Lie::ChannelsLast, Lie::Apart, Lie::Lines] {
            for weights in [false, true] {
                run(case, [Float; 3], lie, weights, 2);
            }
        }
        for (i, types) in [[Half; 3], [BFloat16; 3], [Half, Float, Half], [Float, BFloat16, Half]].iter().enumerate() {
            run(case, *types, [Lie::Packed, Lie::ChannelsLast][i % 2], false, 1);
            run(case, *types, [Lie::ChannelsLast, Lie::Packed][i % 2], true, 3);
        }
    }
}
