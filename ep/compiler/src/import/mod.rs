//! Import of ONNX nodes into the IR, at concrete extents.
//!
//! [`operators`] gives a row for each operator: domain, name, and the function that imports it. A family of operators
//! is a file. What a function declines, it declines with a reason; nothing of a declined node stays in the function.

mod activation;
mod arithmetic;
mod attention;
mod cast;
pub mod content;
mod convolution;
pub mod fold;
mod indexing;
mod loss;
mod matmul;
mod movement;
mod normalization;
mod pooling;
mod quantization;
mod reduction;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use hipdnn_schemas::{DataType, Extents, Operation, Pointwise, PointwiseMode, TensorValue};
use hipdnn_sdk_bindings::ort::ElementType;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use crate::ir::{Function, Op, Source, ValueId};
use crate::model::{Attribute, Extent, Model, Node, ValueIndex};
use crate::rewrite;
use fold::Folded;

/// Reason why a node is left to another provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined(pub String);

/// A declined node with its reason.
pub fn declined<T>(reason: impl Into<String>) -> Result<T, Declined> {
    Err(Declined(reason.into()))
}

/// Imports one node.
type Import = fn(&mut Importer<'_>) -> Result<(), Declined>;

/// A row of the table of operators.
#[derive(Clone, Copy)]
pub struct Operator {
    /// Domain; empty for ONNX's own.
    pub domain: &'static str,
    /// Operator.
    pub name: &'static str,
    import: Import,
    /// Arithmetic intensity.
    pub work: Work,
    /// Support by GPU engines.
    pub gpu: OnGpu,
}

impl Operator {
    /// The same, with less than all of it on GPUs.
    const fn on_gpu(self, gpu: OnGpu) -> Operator {
        Operator { gpu, ..self }
    }
}

/// Support by GPU engines of an operator that the CPU engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnGpu {
    /// As much.
    Whole,
    /// Products whose one factor is no batch of matrices.
    OneBatch,
    /// Nothing, since it is computed by this.
    Without(&'static str),
}

/// Arithmetic intensity of an operator: work for each element that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Nothing: data is moved, named or shaped.
    None,
    /// A few operations, as element-wise functions.
    Light,
    /// Sums over many elements: convolutions, products, pooling, normalizations, reductions.
    Heavy,
}

/// The families' rows.
const FAMILIES: &[&[Operator]] = &[
    activation::OPERATORS,
    arithmetic::OPERATORS,
    attention::OPERATORS,
    cast::OPERATORS,
    convolution::OPERATORS,
    indexing::OPERATORS,
    loss::OPERATORS,
    matmul::OPERATORS,
    movement::OPERATORS,
    normalization::OPERATORS,
    pooling::OPERATORS,
    quantization::OPERATORS,
    reduction::OPERATORS,
    shape::OPERATORS,
];

/// A row of an element-wise operator.
const fn computes(name: &'static str, import: Import) -> Operator {
    Operator { domain: "", name, import, work: Work::Light, gpu: OnGpu::Whole }
}

/// A row of an operator that sums over many elements.
const fn sums(name: &'static str, import: Import) -> Operator {
    Operator { domain: "", name, import, work: Work::Heavy, gpu: OnGpu::Whole }
}

/// A row of an operator that only moves data.
const fn moves(name: &'static str, import: Import) -> Operator {
    Operator { domain: "", name, import, work: Work::None, gpu: OnGpu::Whole }
}

/// A row of an operator of ONNX Runtime's own domain.
const fn microsoft(name: &'static str, import: Import) -> Operator {
    Operator { domain: "com.microsoft", name, import, work: Work::Light, gpu: OnGpu::Whole }
}

/// Every row.
pub fn operators() -> impl Iterator<Item = &'static Operator> {
    FAMILIES.iter().copied().flatten()
}

/// The row of a node's operator.
pub fn operator(node: &Node) -> Option<&'static Operator> {
    static ROWS: LazyLock<FxHashMap<(&str, &str), &Operator>> =
        LazyLock::new(|| operators().map(|row| ((row.domain, row.name), row)).collect());
    ROWS.get(&(node.domain.as_str(), node.op_type.as_str())).copied()
}

/// An ONNX value's counterpart in the function.
#[derive(Clone, Debug)]
enum Bound {
    Tensor(ValueId),
    /// Folded: known when the program is built, as shapes and values computed of them.
    Folded(Folded),
}

/// Imports nodes of a model into a function.
pub struct Importer<'m> {
    model: &'m Model,
    function: Function,
    bound: FxHashMap<ValueIndex, Bound>,
    /// The node in work.
    current: usize,
    /// True if results have the extents that the model declares. In runs ONNX Runtime's own may have others.
    declared: bool,
}

/// Element type of hipDNN for one of ONNX.
pub fn data_type(element: ElementType) -> Result<DataType, Declined> {
    Ok(match element {
        ElementType::FLOAT => DataType::Float,
        ElementType::FLOAT16 => DataType::Half,
        ElementType::BFLOAT16 => DataType::BFloat16,
        ElementType::DOUBLE => DataType::Double,
        ElementType::INT64 => DataType::Int64,
        ElementType::INT32 => DataType::Int32,
        ElementType::INT8 => DataType::Int8,
        ElementType::UINT8 => DataType::UInt8,
        ElementType::BOOL => DataType::Boolean,
        other => return declined(format!("tensors of type {other} have no hipDNN type")),
    })
}

/// True if a type is one of the floating-point types that operators compute in.
pub fn is_float(data_type: DataType) -> bool {
    matches!(data_type, DataType::Float | DataType::Half | DataType::BFloat16 | DataType::Double)
}

/// True if a type is one of numbers without a fraction.
pub fn is_whole(data_type: DataType) -> bool {
    matches!(data_type, DataType::Int64 | DataType::Int32 | DataType::Int8 | DataType::UInt8)
}

/// Most dimensions of a tensor of hipDNN.
pub const MAX_RANK: usize = 8;

impl<'m> Importer<'m> {
    /// An importer whose function has the model's name and no inputs yet.
    pub fn new(model: &'m Model) -> Importer<'m> {
        let function = Function { name: model.name.clone(), ..Function::default() };
        Importer { model, function, bound: FxHashMap::default(), current: 0, declared: true }
    }

    /// An importer that goes by the extents of a run, whatever is declared.
    pub fn of_run(model: &'m Model) -> Importer<'m> {
        Importer { declared: false, ..Importer::new(model) }
    }

    /// Declares a run-time input.
    ///
    /// # Errors
    /// If the value's type is none that hipDNN has, or it has too many dimensions.
    pub fn bind_input(&mut self, value: ValueIndex, number: usize, dims: &[i64]) -> Result<(), Declined> {
        let element = self.model.values[value].element;
        let Some(element) = element else { return declined("its input is no tensor") };
        let data_type = data_type(element)?;
        if dims.len() > MAX_RANK {
            return declined(format!("expected at most {MAX_RANK} dimensions, got {}", dims.len()));
        }
        let id = self.function.source(Source::Input(number), data_type, dims);
        if let Some(token) = self.model.values[value].constant.as_ref().and_then(|constant| constant.token) {
            self.function.promise(id, token);
        }
        self.bound.insert(value, Bound::Tensor(id));
        Ok(())
    }

    /// Imports a node whose inputs are bound, and binds its outputs.
    ///
    /// # Errors
    /// The reason why the node is declined; the function is then as it was before.
    pub fn import(&mut self, node: usize) -> Result<(), Declined> {
        self.current = node;
        let Some(row) = operator(self.node()) else {
            return declined(format!("the operator {} is not imported", self.qualified_name()));
        };
        let (values, buffers, ops) = (self.function.values.len(), self.function.buffers.len(), self.function.ops.len());
        let imported = match self.fold() {
            Ok(Some(())) => Ok(()),
            Ok(None) => (row.import)(self),
            Err(declined) => Err(declined),
        };
        let imported = imported
            .and_then(|()| self.node().outputs.iter().flatten().try_for_each(|output| self.check_output(*output)));
        if imported.is_err() {
            for output in self.model.nodes[node].outputs.iter().flatten() {
                self.bound.remove(output);
            }
            self.function.values.truncate(values);
            self.function.buffers.truncate(buffers);
            self.function.ops.truncate(ops);
        }
        imported
    }

    /// True if an output is there, of the type and extents that the model says.
    fn check_output(&self, output: ValueIndex) -> Result<(), Declined> {
        let value = &self.model.values[output];
        let (found, dims) = match self.bound.get(&output) {
            Some(Bound::Tensor(id)) => (self.data_type(*id), self.dims(*id)),
            Some(Bound::Folded(folded)) => (folded.data_type, folded.dims.as_slice().into()),
            None => return declined(format!("its output {} is not computed", value.name)),
        };
        if let Some(element) = value.element
            && data_type(element)? != found
        {
            return declined(format!("its output {} is of type {element}, and {found} is computed", value.name));
        }
        let fits = |shape: &Vec<Extent>| {
            shape.len() == dims.len()
                && shape.iter().zip(&dims).all(|(extent, found)| match extent {
                    Extent::Known(extent) => extent == found,
                    Extent::Symbol(_) => true,
                })
        };
        match &value.shape {
            Some(shape) if self.declared && !fits(shape) => declined(format!(
                "its output {} is declared otherwise: expected extents {shape:?}, got {dims:?}",
                value.name
            )),
            _ => Ok(()),
        }
    }

    /// Extents and type that a bound value has.
    pub fn bound_dims(&self, value: ValueIndex) -> Option<Vec<i64>> {
        Some(match self.bound.get(&value)? {
            Bound::Tensor(id) => self.function.value(*id).dims.to_vec(),
            Bound::Folded(folded) => folded.dims.clone(),
        })
    }

    /// The node in work.
    fn node(&self) -> &'m Node {
        &self.model.nodes[self.current]
    }

    fn qualified_name(&self) -> String {
        let node = self.node();
        if node.domain.is_empty() { node.op_type.clone() } else { format!("{}.{}", node.domain, node.op_type) }
    }

    /// Operator set version that the operator's definition dates from.
    fn since(&self) -> i32 {
        self.node().since_version
    }

    // Inputs and outputs.

    /// True if input `index` is there.
    fn has_input(&self, index: usize) -> bool {
        self.node().inputs.get(index).is_some_and(Option::is_some)
    }

    fn has_output(&self, index: usize) -> bool {
        self.node().outputs.get(index).is_some_and(Option::is_some)
    }

    fn input_index(&self, index: usize) -> Result<ValueIndex, Declined> {
        match self.node().inputs.get(index) {
            Some(Some(value)) => Ok(*value),
            _ => declined(format!("its input {index} is missing")),
        }
    }

    fn bound(&self, index: usize) -> Result<&Bound, Declined> {
        let value = self.input_index(index)?;
        let name = &self.model.values[value].name;
        self.bound.get(&value).ok_or_else(|| Declined(format!("the extents of its input {name} are not known")))
    }

    /// Input `index` as a tensor.
    fn input(&mut self, index: usize) -> Result<ValueId, Declined> {
        match self.bound(index)? {
            Bound::Tensor(id) => Ok(*id),
            Bound::Folded(folded) => {
                let folded = folded.clone();
                let source = Source::Constant(folded.bytes().into());
                Ok(self.function.source(source, folded.data_type, &folded.dims))
            }
        }
    }

    /// Input `index` as a tensor of a floating-point type.
    fn float_input(&mut self, index: usize) -> Result<ValueId, Declined> {
        let id = self.input(index)?;
        let data_type = self.data_type(id);
        if is_float(data_type) {
            return Ok(id);
        }
        declined(format!("its input {index} is of another type: expected a floating-point type, got {data_type}"))
    }

    /// Input `index` as a tensor of numbers, whole or not.
    fn number_input(&mut self, index: usize) -> Result<ValueId, Declined> {
        let id = self.input(index)?;
        let data_type = self.data_type(id);
        if is_float(data_type) || is_whole(data_type) {
            return Ok(id);
        }
        declined(format!("its input {index} is of another type: expected numbers, got {data_type}"))
    }

    /// True if input `index` is one number that may be known when the program is built.
    fn is_single(&self, index: usize) -> Result<bool, Declined> {
        let value = self.input_index(index)?;
        let dims = match (self.bound.get(&value), &self.model.values[value].constant) {
            (Some(Bound::Folded(folded)), _) => &folded.dims,
            (_, Some(constant)) => &constant.dims,
            _ => return Ok(false),
        };
        Ok(dims.iter().product::<i64>() == 1)
    }

    /// Content of input `index`, if it is known when the program is built.
    fn folded(&self, index: usize) -> Result<Option<Folded>, Declined> {
        let value = self.input_index(index)?;
        if let Some(Bound::Folded(folded)) = self.bound.get(&value) {
            return Ok(Some(folded.clone()));
        }
        let value = &self.model.values[value];
        let (Some(constant), Some(element)) = (&value.constant, value.element) else { return Ok(None) };
        Ok(constant.bytes.as_ref().and_then(|bytes| Folded::of_bytes(element, &constant.dims, bytes)))
    }

    /// Integers of input `index`, known when the program is built.
    fn ints(&self, index: usize) -> Result<Vec<i64>, Declined> {
        let folded = self.folded(index)?.and_then(|folded| folded.ints());
        folded.ok_or_else(|| self.not_constant(index))
    }

    /// Numbers of input `index`, known when the program is built.
    fn floats(&self, index: usize) -> Result<Vec<f64>, Declined> {
        let folded = self.folded(index)?.map(|folded| folded.floats());
        folded.ok_or_else(|| self.not_constant(index))
    }

    fn not_constant(&self, index: usize) -> Declined {
        let name = self.input_index(index).map_or("", |value| &self.model.values[value].name);
        Declined(format!("its input {name} has to be known before the model runs"))
    }

    /// Binds output `index` to a value of the extents that it has.
    fn output(&mut self, index: usize, id: ValueId) {
        if let Some(Some(value)) = self.node().outputs.get(index) {
            self.bound.insert(*value, Bound::Tensor(id));
        }
    }

    fn output_folded(&mut self, index: usize, folded: Folded) {
        if let Some(Some(value)) = self.node().outputs.get(index) {
            self.bound.insert(*value, Bound::Folded(folded));
        }
    }

    // Attributes.

    fn attribute(&self, name: &str) -> Option<&'m Attribute> {
        self.node().attributes.get(name)
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        match self.attribute(name) {
            Some(Attribute::Int(value)) => *value,
            _ => default,
        }
    }

    fn ints_of(&self, name: &str) -> Option<Vec<i64>> {
        match self.attribute(name) {
            Some(Attribute::Ints(values)) => Some(values.clone()),
            _ => None,
        }
    }

    fn float(&self, name: &str, default: f32) -> f32 {
        match self.attribute(name) {
            Some(Attribute::Float(value)) => *value,
            _ => default,
        }
    }

    fn text(&self, name: &str) -> &'m str {
        match self.attribute(name) {
            Some(Attribute::String(value)) => value,
            _ => "",
        }
    }

    /// A dimension of a tensor of `rank` dimensions, counted from the end where negative.
    fn axis(&self, axis: i64, rank: usize) -> Result<usize, Declined> {
        let from_start = if axis < 0 { axis + rank as i64 } else { axis };
        match usize::try_from(from_start) {
            Ok(from_start) if from_start < rank => Ok(from_start),
            _ => declined(format!("axis {axis} is outside of a tensor of {rank} dimensions")),
        }
    }

    // Values.

    fn dims(&self, id: ValueId) -> Extents {
        self.function.value(id).dims.clone()
    }

    fn rank(&self, id: ValueId) -> usize {
        self.function.value(id).dims.len()
    }

    fn data_type(&self, id: ValueId) -> DataType {
        self.function.value(id).data_type
    }

    /// A scalar fixed in the graph, in `f32`.
    fn scalar(&mut self, value: f32, rank: usize) -> ValueId {
        self.function.scalar(TensorValue::Float32(value), DataType::Float, rank)
    }

    /// A scalar fixed in the graph, in a type that holds the numbers of `data_type`.
    fn number(&mut self, value: f64, data_type: DataType, rank: usize) -> ValueId {
        match data_type {
            DataType::Double => self.function.scalar(TensorValue::Float64(value), DataType::Double, rank),
            DataType::Int64 => self.function.scalar(TensorValue::Int64(value as i64), DataType::Int64, rank),
            DataType::Int32 | DataType::Int8 | DataType::UInt8 => {
                self.function.scalar(TensorValue::Int32(value as i32), DataType::Int32, rank)
            }
            _ => self.scalar(value as f32, rank),
        }
    }

    /// A constant tensor.
    fn constant(&mut self, folded: &Folded) -> ValueId {
        self.function.source(Source::Constant(folded.bytes().into()), folded.data_type, &folded.dims)
    }

    /// The numbers from 0 to `extent - 1` along `axis` of a constant of `rank` dimensions.
    fn indices(&mut self, axis: usize, extent: i64, rank: usize, data_type: DataType) -> ValueId {
        let mut dims = vec![1; rank];
        dims[axis] = extent;
        self.constant(&Folded::whole(data_type, dims, (0..extent).collect()))
    }

    /// Adds an operation with one result of that type and those extents. A result without elements is not computed.
    fn emit(
        &mut self,
        data_type: DataType,
        dims: &[i64],
        operation: impl FnOnce(ValueId) -> Operation,
    ) -> Result<ValueId, Declined> {
        if dims.len() > MAX_RANK {
            return declined(format!("expected at most {MAX_RANK} dimensions, got {}", dims.len()));
        }
        if let Some(extent) = dims.iter().find(|extent| **extent > i64::from(i32::MAX)) {
            return declined(format!("expected extents of at most {}, got {extent}", i32::MAX));
        }
        let id = self.function.result(data_type, dims);
        if dims.contains(&0) {
            return Ok(id);
        }
        let operation = operation(id);
        let compute = self.compute_type(&operation)?;
        self.function.push(Op { operation, compute, node: self.current });
        Ok(id)
    }

    /// The type to compute an operation in: whole numbers among themselves, `f64` where anything is, else `f32`.
    fn compute_type(&self, operation: &Operation) -> Result<DataType, Declined> {
        let mut types: SmallVec<[DataType; 8]> = SmallVec::new();
        for operand in operation.inputs() {
            let operand = self.function.value(ValueId::of(operand));
            if operand.elements() == 0 {
                return declined("an operand has no elements, and the result has some");
            }
            types.push(operand.data_type);
        }
        types.extend(operation.outputs().into_iter().map(|uid| self.data_type(ValueId::of(uid))));
        let pointwise = matches!(operation, Operation::Pointwise(_));
        let all = |accepts: fn(DataType) -> bool| types.iter().all(|data_type| accepts(*data_type));
        Ok(if types.contains(&DataType::Double) {
            DataType::Double
        } else if all(is_whole) {
            if types.contains(&DataType::Int64) && pointwise { DataType::Int64 } else { DataType::Int32 }
        } else {
            DataType::Float
        })
    }

    /// A tensor of one number: the value of sums and products without terms.
    fn filled(&mut self, data_type: DataType, dims: &[i64], number: f32) -> Result<ValueId, Declined> {
        let number = self.scalar(number, dims.len());
        self.emit(data_type, dims, |y| {
            Operation::Pointwise(Pointwise::unary(PointwiseMode::Identity, number.uid(), y.uid()))
        })
    }

    /// A function of each element.
    fn unary(&mut self, pointwise: Pointwise, x: ValueId) -> Result<ValueId, Declined> {
        let (data_type, dims) = (self.data_type(x), self.dims(x));
        self.emit(data_type, &dims, |y| Operation::Pointwise(Pointwise { in_0: x.uid(), out_0: y.uid(), ..pointwise }))
    }

    /// A function of each element, without parameters.
    fn apply(&mut self, mode: PointwiseMode, x: ValueId) -> Result<ValueId, Declined> {
        self.unary(Pointwise::unary(mode, x.uid(), x.uid()), x)
    }

    /// A function of two elements, broadcast as ONNX does; the result has the type of `a`.
    fn binary(&mut self, mode: PointwiseMode, a: ValueId, b: ValueId) -> Result<ValueId, Declined> {
        let data_type = self.common_type(a, b)?;
        self.binary_to(mode, a, b, data_type)
    }

    /// The type of two operands, scalars fixed in the graph not counted.
    fn common_type(&self, a: ValueId, b: ValueId) -> Result<DataType, Declined> {
        match (self.function.value(a).scalar, self.function.value(b).scalar) {
            (Some(_), Some(_)) => Ok(self.data_type(a)),
            (Some(_), None) => Ok(self.data_type(b)),
            (None, Some(_)) => Ok(self.data_type(a)),
            (None, None) if self.data_type(a) == self.data_type(b) => Ok(self.data_type(a)),
            (None, None) => {
                declined(format!("its operands are of types {} and {}", self.data_type(a), self.data_type(b)))
            }
        }
    }

    /// A function of two elements, broadcast as ONNX does, to that type.
    fn binary_to(&mut self, mode: PointwiseMode, a: ValueId, b: ValueId, to: DataType) -> Result<ValueId, Declined> {
        // Truth is a number of few digits to hipDNN: of whole numbers of 64 bits it is found among those.
        if to == DataType::Boolean && [a, b].iter().any(|id| self.data_type(*id) == DataType::Int64) {
            let truth = self.binary_to(mode, a, b, DataType::Int32)?;
            return self.converted(truth, to);
        }
        let dims = broadcast(&self.dims(a), &self.dims(b))?;
        let (a, b) = (self.ranked(a, dims.len()), self.ranked(b, dims.len()));
        self.emit(to, &dims, |y| Operation::Pointwise(Pointwise::binary(mode, a.uid(), b.uid(), y.uid())))
    }

    /// A function of each element and a number.
    fn with_number(&mut self, mode: PointwiseMode, x: ValueId, number: f32) -> Result<ValueId, Declined> {
        let (rank, data_type) = (self.rank(x), self.data_type(x));
        let number = self.number(f64::from(number), data_type, rank);
        self.binary_to(mode, x, number, data_type)
    }

    /// The value with dimensions of extent 1 in front, so that there are `rank`.
    fn ranked(&mut self, id: ValueId, rank: usize) -> ValueId {
        let dims = self.dims(id);
        if dims.len() == rank {
            return id;
        }
        let mut ranked: Extents = smallvec![1; rank - dims.len()];
        ranked.extend(dims);
        self.reshape(id, &ranked)
    }

    fn reshape(&mut self, id: ValueId, dims: &[i64]) -> ValueId {
        self.function.reshape(id, dims, self.current)
    }

    /// The value where no two indices name the same element, as engines want operands that they read more than once.
    fn apart(&mut self, id: ValueId) -> ValueId {
        if self.function.value(id).overlaps() { self.function.copy(id, self.current) } else { id }
    }

    /// Input `index` as a scalar fixed in the graph, if its content is one known number; as a tensor otherwise.
    fn operand(&mut self, index: usize) -> Result<ValueId, Declined> {
        self.typed_operand(index).map(|(id, _)| id)
    }

    /// As [`Importer::operand`], with the type that it has in the model.
    fn typed_operand(&mut self, index: usize) -> Result<(ValueId, DataType), Declined> {
        if self.is_single(index)?
            && let Some(folded) = self.folded(index)?
            && (is_float(folded.data_type) || is_whole(folded.data_type))
            && let [number] = folded.floats()[..]
            // f64 does not hold every whole number of 64 bits.
            && number.abs() < 9e15
        {
            return Ok((self.number(number, folded.data_type, folded.dims.len()), folded.data_type));
        }
        let id = self.input(index)?;
        Ok((id, self.data_type(id)))
    }

    /// Inputs as [`Importer::operand`] gives them, the first one as a tensor if all would be scalars; all of one type.
    fn operands<const COUNT: usize>(
        &mut self,
        indices: [usize; COUNT],
        accepts: fn(DataType) -> bool,
    ) -> Result<([ValueId; COUNT], DataType), Declined> {
        let mut ids = [ValueId(0); COUNT];
        let mut data_type = None;
        for (id, index) in ids.iter_mut().zip(indices) {
            let own;
            (*id, own) = self.typed_operand(index)?;
            if !accepts(own) {
                return declined(format!("its input {index} is of type {own}, which the operator is not imported for"));
            }
            if *data_type.get_or_insert(own) != own {
                return declined(format!("its inputs are of types {own} and {}", data_type.unwrap_or(own)));
            }
        }
        if ids.iter().all(|id| self.function.value(*id).scalar.is_some()) {
            ids[0] = self.input(indices[0])?;
        }
        Ok((ids, data_type.expect("an operator has operands")))
    }

    /// Ends the import: hands out `outputs` in their order, and rewrites operations into their canonical forms.
    ///
    /// # Errors
    /// If a value is not bound.
    pub fn finish(mut self, outputs: &[ValueIndex]) -> Result<Function, Declined> {
        for output in outputs {
            let id = match self.bound.get(output) {
                Some(Bound::Tensor(id)) => *id,
                Some(Bound::Folded(folded)) => {
                    let source = Source::Constant(folded.bytes().into());
                    let folded = folded.clone();
                    self.function.source(source, folded.data_type, &folded.dims)
                }
                None => return declined(format!("the output {} is not computed", self.model.values[*output].name)),
            };
            self.function.output(id, self.current);
        }
        rewrite::canonicalize(&mut self.function);
        Ok(self.function)
    }
}

/// The extents that two broadcast to.
fn broadcast(a: &[i64], b: &[i64]) -> Result<Extents, Declined> {
    let rank = a.len().max(b.len());
    let extent = |dims: &[i64], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |own| dims[own]);
    (0..rank)
        .map(|axis| match (extent(a, axis), extent(b, axis)) {
            (one, other) if one == other => Ok(one),
            (1, other) => Ok(other),
            (one, 1) => Ok(one),
            (one, other) => declined(format!("extents {one} and {other} of dimension {axis} do not broadcast")),
        })
        .collect()
}

/// Extents of the model's free symbols in a run, or assumed ones.
pub struct Assumption {
    known: HashMap<String, i64>,
    /// Extents of values whose rank only the weights tell that they meet.
    images: HashMap<ValueIndex, Vec<i64>>,
    /// Extents assumed for a symbol of the first dimension, and of others.
    defaults: [i64; 2],
}

impl Assumption {
    /// Extents that stand for symbols of the first dimension and of others.
    ///
    /// Channels and columns that constant weights are for are those of the weights.
    pub fn new(defaults: [i64; 2], model: &Model) -> Assumption {
        let (mut known, mut images) = (HashMap::new(), HashMap::new());
        for node in &model.nodes {
            let operand = |index: usize| node.inputs.get(index).copied().flatten();
            let (Some(input), Some(weights)) = (operand(0), operand(1)) else { continue };
            let Some(constant) = &model.values[weights].constant else { continue };
            let shape = &model.values[input].shape;
            let group = match node.attributes.get("group") {
                Some(Attribute::Int(group)) => *group,
                _ => 1,
            };
            let wanted = match (node.op_type.as_str(), constant.dims.as_slice()) {
                ("Conv", [_, channels, ..]) => channels.checked_mul(group).map(|channels| (1, channels)),
                ("ConvTranspose", [channels, ..]) | ("BatchNormalization", [channels]) => Some((1, *channels)),
                ("MatMul", [.., rows, _]) => {
                    shape.as_ref().and_then(|shape| shape.len().checked_sub(1)).map(|last| (last, *rows))
                }
                _ => None,
            };
            match (wanted, shape) {
                (Some((axis, extent)), Some(shape)) => {
                    if let Some(Extent::Symbol(name)) = shape.get(axis) {
                        known.insert(name.clone(), extent);
                    }
                }
                (Some((1, channels)), None) if constant.dims.len() >= 3 => {
                    let mut dims = vec![defaults[1]; constant.dims.len()];
                    dims[..2].copy_from_slice(&[defaults[0], channels]);
                    images.insert(input, dims);
                }
                _ => {}
            }
        }
        Assumption { known, images, defaults }
    }

    /// The extents of a value, assumed where they are free; `None` if not even the rank is known.
    pub fn dims(&mut self, model: &Model, value: ValueIndex) -> Option<Vec<i64>> {
        let image = self.images.get(&value);
        let value = &model.values[value];
        if let Some(constant) = &value.constant {
            return Some(constant.dims.clone());
        }
        let Some(shape) = value.shape.as_ref() else { return image.cloned() };
        Some(
            shape
                .iter()
                .enumerate()
                .map(|(axis, extent)| match extent {
                    Extent::Known(extent) => *extent,
                    Extent::Symbol(name) => {
                        *self.known.entry(name.clone()).or_insert(self.defaults[usize::from(axis > 0)])
                    }
                })
                .collect(),
        )
    }
}

/// The values that leave a set of nodes: outputs of the graph, and operands of nodes outside.
pub fn escaping(model: &Model, nodes: &HashSet<usize>) -> Vec<ValueIndex> {
    let mut read_outside = HashSet::new();
    for (index, node) in model.nodes.iter().enumerate() {
        if !nodes.contains(&index) {
            read_outside.extend(node.inputs.iter().flatten().copied());
        }
    }
    let mut members: Vec<usize> = nodes.iter().copied().collect();
    members.sort_unstable();
    let outputs = members.iter().flat_map(|node| model.nodes[*node].outputs.iter().flatten().copied());
    outputs.filter(|value| model.values[*value].is_output || read_outside.contains(value)).collect()
}

/// The values that a set of nodes reads and none of it writes, each once, in order of first use.
pub fn entering(model: &Model, nodes: &HashSet<usize>) -> Vec<ValueIndex> {
    let written: HashSet<ValueIndex> =
        nodes.iter().flat_map(|node| model.nodes[*node].outputs.iter().flatten().copied()).collect();
    let mut members: Vec<usize> = nodes.iter().copied().collect();
    members.sort_unstable();
    let mut seen = HashSet::new();
    let reads = members.iter().flat_map(|node| model.nodes[*node].inputs.iter().flatten().copied());
    reads.filter(|value| !written.contains(value) && seen.insert(*value)).collect()
}

/// Shared bytes, for constants.
pub type Bytes = Arc<[u8]>;

/// The function of a whole model for run-time inputs of these extents, in the model's order.
///
/// # Errors
/// The node that cannot be imported, with the reason.
pub fn import_model(model: &Model, dims: &[&[i64]]) -> Result<Function, String> {
    let mut importer = Importer::of_run(model);
    let at = |place: &str, Declined(reason)| format!("{place}: {reason}");
    for (number, value) in model.inputs.iter().enumerate() {
        importer
            .bind_input(*value, number, dims[number])
            .map_err(|declined| at(&model.values[*value].name, declined))?;
    }
    for (index, node) in model.nodes.iter().enumerate() {
        importer.import(index).map_err(|declined| at(&format!("{} ({})", node.label, node.op_type), declined))?;
    }
    importer.finish(&model.outputs).map_err(|declined| at("the outputs", declined))
}
