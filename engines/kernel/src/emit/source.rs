//! Source of an element-wise kernel and the arguments of a launch.
//!
//! The text depends on the program, the types, the number of loops and on which strides are zero or one; extents,
//! strides, offsets and scalars are arguments. So one code object serves many shapes.

use super::arguments::{self, Arguments, quotient};
use super::element::Element;
use super::layout::{Axis, Loops};
use super::program::{ComputeType, Text, literal};

/// Number of threads of a block.
pub(super) const BLOCK: u32 = 256;

/// Name of the kernel function.
pub(super) const FUNCTION: &std::ffi::CStr = c"elementwise";

/// Checked and simplified work of a kernel.
pub(super) struct Work<'a> {
    pub(super) loops: &'a Loops,
    pub(super) inputs: &'a [Slot],
    pub(super) output: Element,
    pub(super) program: Text,
    /// Statements of the program.
    pub(super) statements: &'a str,
    /// Slot that is written.
    pub(super) result: usize,
    pub(super) values: Values,
    /// Forces 64-bit indices even where 32 bits are enough.
    pub(super) wide: bool,
}

/// Source of a slot that is filled before the program runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Slot {
    /// Element of a tensor, at the place of that number in the loops.
    Tensor { place: usize, element: Element },
    /// Offset of that place itself.
    Index { place: usize },
    /// Argument of the kernel.
    Scalar(f64),
    /// Constant in the source.
    Literal(f64),
}

/// Representation of values in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Numbers of a compute type.
    Computed(ComputeType),
    /// Uninterpreted bytes of that number, which are only moved.
    Bytes(usize),
}

/// Kernel in C, and the arguments of one launch of it.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) text: String,
    pub(super) arguments: Arguments,
    /// Number of threads to launch.
    pub(super) threads: u64,
}

/// Source builder. Arguments and text grow together: the text reads exactly the fields that the arguments hold.
struct Writer<'a> {
    work: &'a Work<'a>,
    arguments: Arguments,
    /// Statements before the computation of values.
    body: String,
    /// Statements that load contiguous elements for all lanes at once, and those that load one for lane `k`.
    together: String,
    single: String,
    lanes: u64,
    wide: bool,
}

impl Source {
    /// Source of the kernel. No extent is 0, and the caller has checked that elements and reach do not overflow.
    pub(super) fn new(work: &Work<'_>) -> Source {
        let elements = work.loops.elements().expect("the caller counted them");
        let reach = work.loops.reach().expect("the caller counted it");
        let lanes = lanes(work);
        let inner = *work.loops.extents.last().expect("there is one loop at least");
        let rows = elements / inner;
        let items = rows * inner.div_ceil(lanes);
        // Indices, their sums with a block, and offsets are then below 2³¹.
        let far = reach.max(rows.saturating_mul(inner.next_multiple_of(lanes))).max(windows(work.loops)) >= 1 << 30;
        let wide = far || work.wide;
        // A grid has fewer threads than 2³², and so many are enough for any device: each takes several items then.
        let threads = if wide { items.min(1 << 22).next_multiple_of(u64::from(BLOCK)) } else { items };
        let mut writer = Writer {
            work,
            arguments: Arguments::default(),
            body: String::new(),
            together: String::new(),
            single: String::new(),
            lanes,
            wide,
        };
        writer.write(items, threads);
        Source { text: writer.text(), arguments: writer.arguments, threads }
    }
}

/// Number of elements that a thread computes: several where they are contiguous in the output.
fn lanes(work: &Work<'_>) -> u64 {
    let inner = work.loops.extents.last().expect("there is one loop at least");
    let side_by_side = work.loops.output.axes.last().is_some_and(|axis| axis.stride == 1);
    let narrow = match work.values {
        Values::Computed(ComputeType::F64 | ComputeType::I64) | Values::Bytes(8) => false,
        Values::Computed(ComputeType::F32) | Values::Bytes(_) => true,
    };
    if side_by_side && narrow && *inner >= 32 { 4 } else { 1 }
}

/// Largest number in any window.
fn windows(loops: &Loops) -> u64 {
    let windows = loops.inputs.iter().flat_map(|place| &place.axes).filter_map(|axis| axis.window);
    windows.map(|window| window.begin.unsigned_abs().max(window.extent).max(window.step)).max().unwrap_or(0)
}

impl Writer<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.body += &format!("    {line}\n");
    }

    /// Appends an argument of the index type.
    fn index(&mut self, name: &str, value: i64) {
        self.arguments.index(self.wide, name, value);
    }

    /// Appends an argument of the type of the values.
    fn real(&mut self, name: &str, value: f64) -> usize {
        match self.work.values {
            Values::Computed(compute_type) => self.arguments.real(compute_type, name, value),
            Values::Bytes(_) => unreachable!("what is moved has no scalars"),
        }
    }

    fn write(&mut self, items: u64, threads: u64) {
        let work = self.work;
        for (i, slot) in work.inputs.iter().enumerate() {
            if let Slot::Tensor { element, .. } = slot {
                self.arguments.pointer(&format!("const {}", self.memory_type(*element)), &format!("x{i}"));
            }
        }
        self.arguments.pointer(self.memory_type(work.output), "y");
        self.index("items", items as i64);
        if self.wide {
            self.index("threads", threads as i64);
        }
        self.indices();
        for (i, slot) in work.inputs.iter().enumerate() {
            match *slot {
                Slot::Tensor { place, element } => self.load(i, place, element),
                Slot::Index { place } => {
                    self.offset(&format!("x{i}"), place);
                    self.index(&format!("x{i}_offset"), work.loops.inputs[place].offset);
                }
                Slot::Scalar(value) => {
                    let offset = self.real(&format!("s{i}"), value);
                    self.arguments.scalars.push(offset);
                }
                Slot::Literal(_) => {}
            }
        }
        if !self.together.is_empty() {
            // One branch for all of them, so that they are under way at the same time.
            let (together, single) = (std::mem::take(&mut self.together), std::mem::take(&mut self.single));
            self.line(format_args!("if (all) {{{together} }}"));
            self.line(format_args!("else EACH if (first + k < a.inner) {{{single} }}"));
        }
        for (i, value) in work.program.scalars.iter().enumerate() {
            self.real(&format!("p{i}"), f64::from(*value));
        }
        self.strided("y", &work.loops.output.axes);
        self.arguments.finish();
    }

    fn memory_type(&self, element: Element) -> &'static str {
        match self.work.values {
            Values::Bytes(1) => "unsigned char",
            Values::Bytes(2) => "unsigned short",
            Values::Bytes(4) => "unsigned",
            Values::Bytes(_) => "unsigned long",
            Values::Computed(_) => element.c_type(),
        }
    }

    /// Emits the indices of the loops from the number of the item; the innermost is that of the first lane.
    fn indices(&mut self) {
        let extents = &self.work.loops.extents;
        let (last, lanes) = (extents.len() - 1, self.lanes);
        self.line(format_args!("count n = item;"));
        for d in (1..=last).rev() {
            let extent = if d == last { extents[d].div_ceil(lanes) } else { extents[d] };
            self.arguments.divisor(self.wide, &format!("d{d}"), extent);
            self.line(format_args!("const count q{d} = {};", quotient(self.wide, "n", &format!("d{d}"))));
            self.line(format_args!("const count i{d} = n - q{d} * a.d{d};"));
            self.line(format_args!("n = q{d};"));
        }
        self.line(format_args!("const count i0 = n;"));
        if lanes > 1 {
            self.index("inner", extents[last] as i64);
            self.line(format_args!("const index first = index(i{last}) * {lanes};"));
            self.line(format_args!("const bool all = first + {lanes} <= a.inner;"));
        }
    }

    /// C expression of the index of a loop, for the first lane.
    fn loop_index(&self, d: usize) -> String {
        match self.lanes {
            2.. if d + 1 == self.work.loops.extents.len() => "first".to_owned(),
            _ => format!("index(i{d})"),
        }
    }

    /// Declares `<name>_at`, the offset for the first lane.
    fn strided(&mut self, name: &str, axes: &[Axis]) {
        let mut terms = Vec::new();
        for (d, axis) in axes.iter().enumerate() {
            let at = self.loop_index(d);
            match axis.stride {
                0 => {}
                1 if self.lanes > 1 && d + 1 == axes.len() => terms.push(at),
                stride => {
                    self.index(&format!("{name}_s{d}"), stride);
                    terms.push(format!("{at} * a.{name}_s{d}"));
                }
            }
        }
        let sum = if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") };
        self.line(format_args!("const index {name}_at = {sum};"));
    }

    /// Declares `<name>_at`, the offset of an input for the first lane, where no axis has a window.
    fn offset(&mut self, name: &str, place: usize) {
        let loops = self.work.loops;
        self.strided(name, &loops.inputs[place].axes);
    }

    /// Declares `v<slot>`, the values of an input for each lane, as they are in memory.
    fn load(&mut self, slot: usize, place: usize, element: Element) {
        let work = self.work;
        let axes = &work.loops.inputs[place].axes;
        let (name, lanes) = (format!("x{slot}"), self.lanes);
        let memory = self.memory_type(element);
        let last = axes.last().expect("there is one loop at least");
        if axes.iter().any(|axis| axis.window.is_some()) {
            return self.load_windowed(slot, axes, memory);
        }
        self.offset(&name, place);
        match (lanes, last.stride) {
            (1, _) => self.line(format_args!("const {memory} v{slot}[1] = {{a.{name}[{name}_at]}};")),
            (_, 0) => {
                self.line(format_args!("const {memory} w{slot} = a.{name}[{name}_at];"));
                self.line(format_args!("const {memory} v{slot}[4] = {{w{slot}, w{slot}, w{slot}, w{slot}}};"));
            }
            (_, 1) => {
                self.line(format_args!("{memory} v{slot}[4] = {{}};"));
                self.together += &format!(" load4(v{slot}, a.{name} + {name}_at);");
                self.single += &format!(" v{slot}[k] = a.{name}[{name}_at + k];");
            }
            (_, _) => {
                let step = format!("a.{name}_s{}", axes.len() - 1);
                self.line(format_args!("{memory} v{slot}[4] = {{}};"));
                self.line(format_args!("EACH if (first + k < a.inner) v{slot}[k] = a.{name}[{name}_at + k * {step}];"));
            }
        }
    }

    fn load_windowed(&mut self, slot: usize, axes: &[Axis], memory: &str) {
        let (name, lanes) = (format!("x{slot}"), self.lanes);
        let inner = axes.len() - 1;
        let mut lines = Vec::new();
        for (d, axis) in axes.iter().enumerate() {
            let mut i = self.loop_index(d);
            if lanes > 1 && d == inner {
                i = "(first + k)".to_owned();
            }
            if let Some(window) = axis.window {
                self.index(&format!("{name}_b{d}"), window.begin);
                self.index(&format!("{name}_e{d}"), window.extent.min(i64::MAX as u64) as i64);
                lines.push(format!("index j{d} = {i} - a.{name}_b{d};"));
                if window.step > 1 {
                    self.index(&format!("{name}_t{d}"), window.step.min(i64::MAX as u64) as i64);
                    lines.push(format!("inside = inside && j{d} % a.{name}_t{d} == 0;"));
                    // A negative index may become 0 here; the rest of it has been asked for already.
                    lines.push(format!("j{d} = j{d} < 0 ? -1 : j{d} / a.{name}_t{d};"));
                }
                lines.push(format!("inside = inside && count(j{d}) < count(a.{name}_e{d});"));
                i = format!("j{d}");
            }
            if axis.stride != 0 {
                self.index(&format!("{name}_s{d}"), axis.stride);
                lines.push(format!("at += {i} * a.{name}_s{d};"));
            }
        }
        self.line(format_args!("{memory} v{slot}[{lanes}] = {{}};"));
        self.line(format_args!("EACH {{"));
        let within = if lanes > 1 { "first + k < a.inner" } else { "true" };
        self.line(format_args!("  bool inside = {within};"));
        self.line(format_args!("  index at = 0;"));
        for line in lines {
            self.line(format_args!("  {line}"));
        }
        self.line(format_args!("  if (inside) v{slot}[k] = a.{name}[at];"));
        self.line(format_args!("}}"));
    }

    /// Statement that fills `t<slot>` for lane `k`.
    fn value(&self, slot: usize) -> String {
        let value = match self.work.inputs[slot] {
            Slot::Tensor { .. } if matches!(self.work.values, Values::Bytes(_)) => format!("v{slot}[k]"),
            Slot::Tensor { element, .. } => format!("widen_{}(v{slot}[k])", element.suffix()),
            Slot::Index { place } => {
                let axes = &self.work.loops.inputs[place].axes;
                let (inner, stride) = (axes.len() - 1, axes[axes.len() - 1].stride);
                let lane = match (self.lanes, stride) {
                    (1, _) | (_, 0) => String::new(),
                    (_, 1) => " + k".to_owned(),
                    _ => format!(" + k * a.x{slot}_s{inner}"),
                };
                format!("real(x{slot}_at + a.x{slot}_offset{lane})")
            }
            Slot::Scalar(_) => format!("a.s{slot}"),
            Slot::Literal(value) => match self.work.values {
                Values::Computed(compute_type) => literal(compute_type, value),
                Values::Bytes(_) => unreachable!("what is moved comes from a tensor"),
            },
        };
        let real = self.real_type();
        format!("    const {real} t{slot} = {value};\n")
    }

    fn real_type(&self) -> &'static str {
        match self.work.values {
            Values::Bytes(_) => self.memory_type(self.work.output),
            _ => "real",
        }
    }

    fn text(&self) -> String {
        let work = self.work;
        let lanes = self.lanes;
        let memory = self.memory_type(work.output);
        let mut text = arguments::DEVICE.to_owned();
        text += arguments::index_types(self.wide);
        if matches!(work.values, Values::Computed(_)) {
            text += &work.program.prelude();
        }
        if !self.wide && work.loops.extents.len() > 1 {
            text += arguments::MULHI;
        }
        if lanes > 1 {
            text += arguments::FOUR;
        }
        text += &format!("#define EACH _Pragma(\"unroll\") for (int k = 0; k < {lanes}; ++k)\n");
        text += &format!("struct Arguments {{\n{}}};\n", self.arguments.declarations);
        text += "extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(1, 256)))\n";
        text += "void elementwise(const Arguments a) {\n";
        let thread = format!("count(__builtin_amdgcn_workgroup_id_x()) * {BLOCK} + __builtin_amdgcn_workitem_id_x()");
        if self.wide {
            text += &format!("  for (count item = {thread}; item < count(a.items); item += a.threads) {{\n");
        } else {
            text += &format!("  const count item = {thread};\n  if (item < count(a.items)) {{\n");
        }
        text += &self.body;
        text += &format!("    {memory} r[{lanes}];\n    EACH {{\n");
        for slot in 0..work.inputs.len() {
            text += &self.value(slot);
        }
        if matches!(work.values, Values::Computed(_)) {
            text += work.statements;
        }
        let result = work.result;
        text += &match work.values {
            Values::Bytes(_) => format!("    r[k] = t{result};\n"),
            _ => format!("    r[k] = narrow_{}(t{result});\n", work.output.suffix()),
        };
        text += "    }\n";
        if lanes > 1 {
            text += "    if (all) store4(a.y + y_at, r);\n";
            text += "    else EACH if (first + k < a.inner) a.y[y_at + k] = r[k];\n";
        } else {
            text += "    a.y[y_at] = r[0];\n";
        }
        text += "  }\n}\n";
        text
    }
}
