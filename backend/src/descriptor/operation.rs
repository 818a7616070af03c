//! Operation descriptors. They all have the same shape, so one table has the attributes of each.
//!
//! Reductions, resampling, forward normalizations, attention and block scales are left out: a graph with one of those
//! comes serialized.

use std::collections::BTreeMap;
use std::sync::Arc;

use hipdnn_schemas as wire;
use hipdnn_schemas::{ConvMode, DataType, PointwiseMode, TensorUid};
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType, DescriptorType, OperationType};

use super::staged::Staged;
use super::{Object, Tensor, required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::enums;
use crate::error::{Error, Result};

/// Element type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tensor,
    Tensors,
    Int64,
    Int64s,
    Float,
    DataType,
    ConvMode,
    PointwiseMode,
    Text,
    Bytes,
}

/// The value of an attribute.
#[derive(Clone)]
enum Value {
    Tensor(Arc<Tensor>),
    Tensors(Vec<Arc<Tensor>>),
    Int64(i64),
    Int64s(Vec<i64>),
    Float(f32),
    DataType(DataType),
    ConvMode(ConvMode),
    PointwiseMode(PointwiseMode),
    Text(String),
    Bytes(Vec<u8>),
}

type Values = BTreeMap<AttributeName, Value>;

/// The tensors of a graph by uid.
pub(super) type Tensors = std::collections::HashMap<TensorUid, Arc<Tensor>>;

fn tensor(object: Object) -> Result<Arc<Tensor>> {
    let tensor = object.tensor()?;
    tensor.referred()?;
    Ok(tensor)
}

impl Kind {
    fn parse(self, elements: Elements<'_>) -> Result<Value> {
        Ok(match self {
            Kind::Tensor => Value::Tensor(tensor(elements.descriptor()?)?),
            Kind::Tensors => Value::Tensors(elements.descriptors()?.into_iter().map(tensor).collect::<Result<_>>()?),
            Kind::Int64 => Value::Int64(elements.int64()?),
            Kind::Int64s => Value::Int64s(elements.int64s()?),
            // Frontends were seen with either type.
            Kind::Float if elements.kind() == AttributeType::DOUBLE => Value::Float(elements.double()? as f32),
            Kind::Float => Value::Float(elements.float()?),
            Kind::DataType => Value::DataType(enums::data_type(elements.enumerator(AttributeType::DATA_TYPE)?)?),
            // An early frontend sent the wire format's number as an integer.
            Kind::ConvMode if elements.kind() == AttributeType::INT64 => {
                let number = elements.int64()?;
                let mode = i8::try_from(number).ok().and_then(ConvMode::from_wire);
                let mode = mode.filter(|mode| *mode != ConvMode::Unset);
                let unknown = || Error::bad_param(format!("no convolution mode has wire number {number}"));
                Value::ConvMode(mode.ok_or_else(unknown)?)
            }
            Kind::ConvMode => Value::ConvMode(enums::conv_mode(elements.enumerator(AttributeType::CONVOLUTION_MODE)?)?),
            Kind::PointwiseMode => {
                Value::PointwiseMode(enums::pointwise_mode(elements.enumerator(AttributeType::POINTWISE_MODE)?)?)
            }
            Kind::Text => Value::Text(elements.text()?),
            Kind::Bytes => Value::Bytes(elements.bytes()?),
        })
    }

    /// Answers for an attribute that is not set.
    fn answer_unset(self, output: Output<'_>) -> Result<()> {
        match self {
            Kind::Tensor => output.optional_descriptor(None),
            Kind::Tensors => output.descriptors(&[], false),
            Kind::Int64 => output.optional::<i64>(AttributeType::INT64, None),
            Kind::Int64s => output.vector::<i64>(AttributeType::INT64, &[]),
            Kind::Float => output.optional::<f32>(AttributeType::FLOAT, None),
            Kind::DataType => output.optional::<i32>(AttributeType::DATA_TYPE, None),
            Kind::ConvMode => output.optional::<i32>(AttributeType::CONVOLUTION_MODE, None),
            Kind::PointwiseMode => output.optional::<i32>(AttributeType::POINTWISE_MODE, None),
            Kind::Text => output.text(""),
            Kind::Bytes => output.vector::<u8>(AttributeType::CHAR, &[]),
        }
    }
}

impl Value {
    fn answer(&self, output: Output<'_>) -> Result<()> {
        match self {
            Value::Tensor(tensor) => output.optional_descriptor(Some(Object::Tensor(Arc::clone(tensor)))),
            Value::Tensors(tensors) => {
                let objects: Vec<Object> = tensors.iter().map(|tensor| Object::Tensor(Arc::clone(tensor))).collect();
                output.descriptors(&objects, false)
            }
            Value::Int64(value) => output.scalar(AttributeType::INT64, *value),
            Value::Int64s(values) => output.vector(AttributeType::INT64, values),
            Value::Float(value) if output.kind() == AttributeType::DOUBLE => {
                output.scalar(AttributeType::DOUBLE, f64::from(*value))
            }
            Value::Float(value) => output.scalar(AttributeType::FLOAT, *value),
            Value::DataType(value) => output.optional(AttributeType::DATA_TYPE, enums::c_data_type(*value)),
            Value::ConvMode(value) => output.optional(AttributeType::CONVOLUTION_MODE, enums::c_conv_mode(*value)),
            Value::PointwiseMode(value) => {
                output.optional(AttributeType::POINTWISE_MODE, enums::c_pointwise_mode(*value))
            }
            Value::Text(value) => output.text(value),
            Value::Bytes(value) => output.vector(AttributeType::CHAR, value),
        }
    }
}

/// A field of the wire format's operations as an attribute.
trait Field: Sized {
    const KIND: Kind;
    const REQUIRED: bool;

    /// The field for a value that is set or not; `None` if a required value is missing.
    fn lower(value: Option<&Value>) -> Option<Self>;

    /// The attribute's value, if it is set.
    fn raise(self, tensors: &Tensors) -> Result<Option<Value>>;
}

fn find(tensors: &Tensors, uid: TensorUid) -> Result<Arc<Tensor>> {
    let found = tensors.get(&uid).cloned();
    found.ok_or_else(|| Error::bad_param(format!("tensor {uid} is named by a node, but is not in the graph")))
}

fn uid(tensor: &Tensor) -> TensorUid {
    tensor.referred().expect("only finalised tensors are taken").def.uid
}

impl Field for TensorUid {
    const KIND: Kind = Kind::Tensor;
    const REQUIRED: bool = true;

    fn lower(value: Option<&Value>) -> Option<Self> {
        if let Some(Value::Tensor(tensor)) = value { Some(uid(tensor)) } else { None }
    }

    fn raise(self, tensors: &Tensors) -> Result<Option<Value>> {
        find(tensors, self).map(|tensor| Some(Value::Tensor(tensor)))
    }
}

impl Field for Vec<TensorUid> {
    const KIND: Kind = Kind::Tensors;
    const REQUIRED: bool = false;

    fn lower(value: Option<&Value>) -> Option<Self> {
        match value {
            Some(Value::Tensors(tensors)) => Some(tensors.iter().map(|tensor| uid(tensor)).collect()),
            _ => Some(Vec::new()),
        }
    }

    fn raise(self, tensors: &Tensors) -> Result<Option<Value>> {
        if self.is_empty() {
            return Ok(None);
        }
        self.into_iter().map(|uid| find(tensors, uid)).collect::<Result<_>>().map(|found| Some(Value::Tensors(found)))
    }
}

macro_rules! plain_fields {
    ($($type:ty: $variant:ident, $required:literal;)*) => { $(
        impl Field for $type {
            const KIND: Kind = Kind::$variant;
            const REQUIRED: bool = $required;

            fn lower(value: Option<&Value>) -> Option<Self> {
                if let Some(Value::$variant(value)) = value { Some(value.clone()) } else { None }
            }

            fn raise(self, _: &Tensors) -> Result<Option<Value>> {
                Ok(Some(Value::$variant(self)))
            }
        }
    )* };
}

plain_fields! {
    i64: Int64, true;
    Vec<i64>: Int64s, true;
    f32: Float, true;
    ConvMode: ConvMode, true;
    PointwiseMode: PointwiseMode, true;
    String: Text, true;
}

/// Opaque data of a custom operation may be left out.
impl Field for Vec<u8> {
    const KIND: Kind = Kind::Bytes;
    const REQUIRED: bool = false;

    fn lower(value: Option<&Value>) -> Option<Self> {
        if let Some(Value::Bytes(bytes)) = value { Some(bytes.clone()) } else { Some(Vec::new()) }
    }

    fn raise(self, _: &Tensors) -> Result<Option<Value>> {
        Ok((!self.is_empty()).then_some(Value::Bytes(self)))
    }
}

impl<T: Field> Field for Option<T> {
    const KIND: Kind = T::KIND;
    const REQUIRED: bool = false;

    fn lower(value: Option<&Value>) -> Option<Self> {
        match value {
            Some(value) => T::lower(Some(value)).map(Some),
            None => Some(None),
        }
    }

    fn raise(self, tensors: &Tensors) -> Result<Option<Value>> {
        match self {
            Some(field) => field.raise(tensors),
            None => Ok(None),
        }
    }
}

fn lower<T: Field>(values: &Values, name: AttributeName) -> Result<T> {
    required(T::lower(values.get(&name)), name)
}

fn raise<T: Field + Clone>(field: &T, name: AttributeName, tensors: &Tensors, values: &mut Values) -> Result<()> {
    if let Some(value) = field.clone().raise(tensors)? {
        values.insert(name, value);
    }
    Ok(())
}

struct Attribute {
    name: AttributeName,
    kind: Kind,
    required: bool,
}

/// One kind of operation.
struct Table {
    descriptor: DescriptorType,
    operation: OperationType,
    /// The compute type's attribute, and true if it must be set.
    compute: Option<(AttributeName, bool)>,
    attributes: &'static [Attribute],
    lower: fn(&Values) -> Result<wire::Operation>,
    /// `None` if the operation is another one.
    raise: fn(&wire::Operation, &Tensors, &mut Values) -> Option<Result<()>>,
}

macro_rules! operations {
    ($($variant:ident: $descriptor:ident, $operation:ident, compute($compute:expr) {
        $($field:ident: $type:ty = $name:ident,)*
        $([$nested:ident: $Nested:ident] { $($member:ident: $mtype:ty = $mname:ident,)* })?
    })*) => {
        static TABLES: &[Table] = &[$(Table {
            descriptor: DescriptorType::$descriptor,
            operation: OperationType::$operation,
            compute: $compute,
            attributes: &[
                $(Attribute {
                    name: AttributeName::$name,
                    kind: <$type as Field>::KIND,
                    required: <$type as Field>::REQUIRED,
                },)*
                $($(Attribute {
                    name: AttributeName::$mname,
                    kind: <$mtype as Field>::KIND,
                    required: <$mtype as Field>::REQUIRED,
                },)*)?
            ],
            lower: |values| Ok(wire::Operation::$variant(wire::$variant {
                $($field: lower::<$type>(values, AttributeName::$name)?,)*
                $($nested: wire::$Nested { $($member: lower::<$mtype>(values, AttributeName::$mname)?,)* },)?
            })),
            raise: |operation, tensors, values| {
                let wire::Operation::$variant(operation) = operation else { return None };
                let mut all = || -> Result<()> {
                    $(raise::<$type>(&operation.$field, AttributeName::$name, tensors, values)?;)*
                    $($(raise::<$mtype>(&operation.$nested.$member, AttributeName::$mname, tensors, values)?;)*)?
                    Ok(())
                };
                Some(all())
            },
        }),*];
    };
}

operations! {
    ConvolutionFwd: OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CONVOLUTION_FORWARD_EXT,
    compute(Some((AttributeName::CONVOLUTION_COMP_TYPE, true))) {
        x: TensorUid = OPERATION_CONVOLUTION_FORWARD_X,
        w: TensorUid = OPERATION_CONVOLUTION_FORWARD_W,
        y: TensorUid = OPERATION_CONVOLUTION_FORWARD_Y,
        [convolution: Convolution] {
            pre_padding: Vec<i64> = CONVOLUTION_PRE_PADDINGS,
            post_padding: Vec<i64> = CONVOLUTION_POST_PADDINGS,
            stride: Vec<i64> = CONVOLUTION_FILTER_STRIDES,
            dilation: Vec<i64> = CONVOLUTION_DILATIONS,
            mode: ConvMode = CONVOLUTION_CONV_MODE,
        }
    }
    ConvolutionBwd: OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CONVOLUTION_BACKWARD_DATA_EXT,
    compute(Some((AttributeName::CONVOLUTION_COMP_TYPE, true))) {
        dy: TensorUid = OPERATION_CONVOLUTION_BWD_DATA_DY,
        w: TensorUid = OPERATION_CONVOLUTION_BWD_DATA_W,
        dx: TensorUid = OPERATION_CONVOLUTION_BWD_DATA_DX,
        [convolution: Convolution] {
            pre_padding: Vec<i64> = CONVOLUTION_PRE_PADDINGS,
            post_padding: Vec<i64> = CONVOLUTION_POST_PADDINGS,
            stride: Vec<i64> = CONVOLUTION_FILTER_STRIDES,
            dilation: Vec<i64> = CONVOLUTION_DILATIONS,
            mode: ConvMode = CONVOLUTION_CONV_MODE,
        }
    }
    ConvolutionWrw: OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CONVOLUTION_BACKWARD_WEIGHTS_EXT,
    compute(Some((AttributeName::CONVOLUTION_COMP_TYPE, true))) {
        x: TensorUid = OPERATION_CONVOLUTION_BWD_FILTER_X,
        dy: TensorUid = OPERATION_CONVOLUTION_BWD_FILTER_DY,
        dw: TensorUid = OPERATION_CONVOLUTION_BWD_FILTER_DW,
        [convolution: Convolution] {
            pre_padding: Vec<i64> = CONVOLUTION_PRE_PADDINGS,
            post_padding: Vec<i64> = CONVOLUTION_POST_PADDINGS,
            stride: Vec<i64> = CONVOLUTION_FILTER_STRIDES,
            dilation: Vec<i64> = CONVOLUTION_DILATIONS,
            mode: ConvMode = CONVOLUTION_CONV_MODE,
        }
    }
    Pointwise: OPERATION_POINTWISE_DESCRIPTOR, POINTWISE_EXT,
    compute(Some((AttributeName::POINTWISE_MATH_PREC, false))) {
        mode: PointwiseMode = POINTWISE_MODE,
        in_0: TensorUid = OPERATION_POINTWISE_IN_0_EXT,
        in_1: Option<TensorUid> = OPERATION_POINTWISE_IN_1_EXT,
        in_2: Option<TensorUid> = OPERATION_POINTWISE_IN_2_EXT,
        out_0: TensorUid = OPERATION_POINTWISE_OUT_0_EXT,
        relu_lower_clip: Option<f32> = POINTWISE_RELU_LOWER_CLIP,
        relu_upper_clip: Option<f32> = POINTWISE_RELU_UPPER_CLIP,
        relu_lower_clip_slope: Option<f32> = POINTWISE_RELU_LOWER_CLIP_SLOPE,
        axis: Option<i64> = POINTWISE_AXIS,
        swish_beta: Option<f32> = POINTWISE_SWISH_BETA,
        elu_alpha: Option<f32> = POINTWISE_ELU_ALPHA,
        softplus_beta: Option<f32> = POINTWISE_SOFTPLUS_BETA,
    }
    Matmul: OPERATION_MATMUL_DESCRIPTOR, MATMUL_EXT, compute(Some((AttributeName::MATMUL_COMP_TYPE, false))) {
        a: TensorUid = OPERATION_MATMUL_ADESC,
        b: TensorUid = OPERATION_MATMUL_BDESC,
        c: TensorUid = OPERATION_MATMUL_CDESC,
    }
    BatchnormInference: OPERATION_BATCHNORM_INFERENCE_DESCRIPTOR_EXT, BATCHNORM_INFERENCE_EXT,
    compute(Some((AttributeName::BATCHNORM_INF_COMP_TYPE_EXT, false))) {
        x: TensorUid = OPERATION_BATCHNORM_INFERENCE_X_EXT,
        mean: TensorUid = OPERATION_BATCHNORM_INFERENCE_MEAN_EXT,
        inv_variance: TensorUid = OPERATION_BATCHNORM_INFERENCE_INV_VARIANCE_EXT,
        scale: TensorUid = OPERATION_BATCHNORM_INFERENCE_SCALE_EXT,
        bias: TensorUid = OPERATION_BATCHNORM_INFERENCE_BIAS_EXT,
        y: TensorUid = OPERATION_BATCHNORM_INFERENCE_Y_EXT,
    }
    BatchnormInferenceVarianceExt: OPERATION_BATCHNORM_INFERENCE_VARIANCE_DESCRIPTOR_EXT, BATCHNORM_INFERENCE_VARIANCE_EXT,
    compute(Some((AttributeName::BATCHNORM_INF_VAR_COMP_TYPE_EXT, false))) {
        x: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_X_EXT,
        mean: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_MEAN_EXT,
        variance: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_VARIANCE_EXT,
        scale: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_SCALE_EXT,
        bias: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_BIAS_EXT,
        y: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_Y_EXT,
        epsilon: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_EPSILON_EXT,
    }
    BatchnormBackward: OPERATION_BATCHNORM_BACKWARD_DESCRIPTOR_EXT, BATCHNORM_BACKWARD_EXT,
    compute(Some((AttributeName::BATCHNORM_BACKWARD_COMP_TYPE_EXT, false))) {
        dy: TensorUid = OPERATION_BATCHNORM_BACKWARD_DY_EXT,
        x: TensorUid = OPERATION_BATCHNORM_BACKWARD_X_EXT,
        mean: Option<TensorUid> = OPERATION_BATCHNORM_BACKWARD_MEAN_EXT,
        inv_variance: Option<TensorUid> = OPERATION_BATCHNORM_BACKWARD_INV_VARIANCE_EXT,
        scale: TensorUid = OPERATION_BATCHNORM_BACKWARD_SCALE_EXT,
        peer_stats: Vec<TensorUid> = OPERATION_BATCHNORM_BACKWARD_PEER_STATS_EXT,
        dx: TensorUid = OPERATION_BATCHNORM_BACKWARD_DX_EXT,
        dscale: TensorUid = OPERATION_BATCHNORM_BACKWARD_DSCALE_EXT,
        dbias: TensorUid = OPERATION_BATCHNORM_BACKWARD_DBIAS_EXT,
    }
    Batchnorm: OPERATION_BATCHNORM_DESCRIPTOR_EXT, BATCHNORM_EXT,
    compute(Some((AttributeName::BATCHNORM_COMP_TYPE_EXT, false))) {
        x: TensorUid = OPERATION_BATCHNORM_X_EXT,
        scale: TensorUid = OPERATION_BATCHNORM_SCALE_EXT,
        bias: TensorUid = OPERATION_BATCHNORM_BIAS_EXT,
        epsilon: TensorUid = OPERATION_BATCHNORM_EPSILON_EXT,
        peer_stats: Vec<TensorUid> = OPERATION_BATCHNORM_PEER_STATS_EXT,
        prev_running_mean: Option<TensorUid> = OPERATION_BATCHNORM_PREV_RUNNING_MEAN_EXT,
        prev_running_variance: Option<TensorUid> = OPERATION_BATCHNORM_PREV_RUNNING_VARIANCE_EXT,
        momentum: Option<TensorUid> = OPERATION_BATCHNORM_MOMENTUM_EXT,
        y: TensorUid = OPERATION_BATCHNORM_Y_EXT,
        mean: Option<TensorUid> = OPERATION_BATCHNORM_MEAN_EXT,
        inv_variance: Option<TensorUid> = OPERATION_BATCHNORM_INV_VARIANCE_EXT,
        next_running_mean: Option<TensorUid> = OPERATION_BATCHNORM_NEXT_RUNNING_MEAN_EXT,
        next_running_variance: Option<TensorUid> = OPERATION_BATCHNORM_NEXT_RUNNING_VARIANCE_EXT,
    }
    RmsNormBackward: OPERATION_RMSNORM_BACKWARD_DESCRIPTOR_EXT, RMSNORM_BACKWARD_EXT,
    compute(Some((AttributeName::RMSNORM_BACKWARD_COMP_TYPE_EXT, false))) {
        dy: TensorUid = OPERATION_RMSNORM_BACKWARD_DY_EXT,
        x: TensorUid = OPERATION_RMSNORM_BACKWARD_X_EXT,
        scale: TensorUid = OPERATION_RMSNORM_BACKWARD_SCALE_EXT,
        inv_rms: TensorUid = OPERATION_RMSNORM_BACKWARD_INV_RMS_EXT,
        dx: TensorUid = OPERATION_RMSNORM_BACKWARD_DX_EXT,
        dscale: TensorUid = OPERATION_RMSNORM_BACKWARD_DSCALE_EXT,
        dbias: Option<TensorUid> = OPERATION_RMSNORM_BACKWARD_DBIAS_EXT,
    }
    LayernormBackward: OPERATION_LAYERNORM_BACKWARD_DESCRIPTOR_EXT, LAYERNORM_BACKWARD_EXT,
    compute(Some((AttributeName::LAYERNORM_BACKWARD_COMP_TYPE_EXT, false))) {
        dy: TensorUid = OPERATION_LAYERNORM_BACKWARD_DY_EXT,
        x: TensorUid = OPERATION_LAYERNORM_BACKWARD_X_EXT,
        scale: TensorUid = OPERATION_LAYERNORM_BACKWARD_SCALE_EXT,
        mean: Option<TensorUid> = OPERATION_LAYERNORM_BACKWARD_MEAN_EXT,
        inv_variance: Option<TensorUid> = OPERATION_LAYERNORM_BACKWARD_INV_VARIANCE_EXT,
        epsilon: Option<TensorUid> = OPERATION_LAYERNORM_BACKWARD_EPSILON_EXT,
        dx: TensorUid = OPERATION_LAYERNORM_BACKWARD_DX_EXT,
        dscale: TensorUid = OPERATION_LAYERNORM_BACKWARD_DSCALE_EXT,
        dbias: Option<TensorUid> = OPERATION_LAYERNORM_BACKWARD_DBIAS_EXT,
        normalized_dim_count: i64 = LAYERNORM_BACKWARD_NORMALIZED_DIM_COUNT_EXT,
    }
    CustomOp: OPERATION_CUSTOM_OP_DESCRIPTOR_EXT, CUSTOM_OP_EXT,
    compute(Some((AttributeName::CUSTOM_OP_COMP_TYPE_EXT, false))) {
        custom_op_id: String = OPERATION_CUSTOM_OP_ID_EXT,
        inputs: Vec<TensorUid> = OPERATION_CUSTOM_OP_INPUTS_EXT,
        outputs: Vec<TensorUid> = OPERATION_CUSTOM_OP_OUTPUTS_EXT,
        data: Vec<u8> = OPERATION_CUSTOM_OP_DATA_EXT,
    }
}

#[derive(Clone, Default)]
struct Draft {
    name: String,
    values: Values,
}

/// Finalized operation.
pub(super) struct FinishedOperation {
    pub(super) node: wire::Node,
    values: Values,
}

impl FinishedOperation {
    /// The operands as descriptors, inputs before outputs, in the wire format's order.
    pub(super) fn tensors(&self) -> Vec<Arc<Tensor>> {
        let own: Tensors = self
            .values
            .values()
            .flat_map(|value| match value {
                Value::Tensor(tensor) => std::slice::from_ref(tensor),
                Value::Tensors(tensors) => tensors.as_slice(),
                _ => &[],
            })
            .map(|tensor| (uid(tensor), Arc::clone(tensor)))
            .collect();
        let operation = &self.node.operation;
        operation.inputs().into_iter().chain(operation.outputs()).map(|uid| Arc::clone(&own[&uid])).collect()
    }

    /// Two operands that are different tensors under one uid.
    pub(super) fn clash(&self) -> Option<TensorUid> {
        let mut seen = Tensors::new();
        for value in self.values.values() {
            let tensors = match value {
                Value::Tensor(tensor) => std::slice::from_ref(tensor),
                Value::Tensors(tensors) => tensors.as_slice(),
                _ => &[],
            };
            for tensor in tensors {
                let first = seen.entry(uid(tensor)).or_insert_with(|| Arc::clone(tensor));
                if !Arc::ptr_eq(first, tensor) {
                    return Some(uid(tensor));
                }
            }
        }
        None
    }
}

/// An operation descriptor of any kind.
pub(crate) struct Operation {
    table: &'static Table,
    stage: Staged<Draft, FinishedOperation>,
}

impl Operation {
    /// An empty operation, if descriptors of this type are operations that we serve.
    pub(super) fn new(descriptor: DescriptorType) -> Option<Operation> {
        let table = TABLES.iter().find(|table| table.descriptor == descriptor)?;
        Some(Operation { table, stage: Staged::default() })
    }

    /// The operation of a node whose tensors are given.
    pub(super) fn from_node(node: &wire::Node, tensors: &Tensors) -> Result<Operation> {
        for table in TABLES {
            let mut values = Values::new();
            let Some(outcome) = (table.raise)(&node.operation, tensors, &mut values) else { continue };
            outcome?;
            if let (Some((name, _)), true) = (table.compute, node.compute_data_type != DataType::Unset) {
                values.insert(name, Value::DataType(node.compute_data_type));
            }
            let finished = FinishedOperation { node: node.clone(), values };
            return Ok(Operation { table, stage: Staged::finished_from(finished) });
        }
        Err(Error::not_supported(format!("nodes of kind {} have no descriptors here", node.operation.kind())))
    }

    pub(super) fn referred(&self) -> Result<&FinishedOperation> {
        self.stage.referred("operation")
    }

    fn attribute(&self, name: AttributeName) -> Result<Kind> {
        if self.table.compute.is_some_and(|(compute, _)| compute == name) {
            return Ok(Kind::DataType);
        }
        let found = self.table.attributes.iter().find(|attribute| attribute.name == name);
        found.map(|attribute| attribute.kind).ok_or_else(|| unhandled(name))
    }

    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.stage.edit()?;
        if name == AttributeName::OPERATION_NAME_EXT {
            draft.name = elements.text()?;
            return Ok(());
        }
        let value = self.attribute(name)?.parse(elements)?;
        draft.values.insert(name, value);
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        let finished = self.stage.read()?;
        match name {
            AttributeName::OPERATION_NAME_EXT => output.text(&finished.node.name),
            AttributeName::OPERATION_TYPE_EXT => {
                output.scalar(AttributeType::OPERATION_TYPE_EXT, self.table.operation.0)
            }
            _ => {
                let kind = self.attribute(name)?;
                match finished.values.get(&name) {
                    Some(value) => value.answer(output),
                    None => kind.answer_unset(output),
                }
            }
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        if self.stage.finished().is_some() {
            return Ok(());
        }
        let Draft { name, values } = self.stage.draft().clone();
        let mandatory = self.table.attributes.iter().filter(|attribute| attribute.required);
        for attribute in mandatory
            .map(|attribute| attribute.name)
            .chain(self.table.compute.filter(|(_, required)| *required).map(|(name, _)| name))
        {
            required(values.get(&attribute), attribute)?;
        }
        let operation = (self.table.lower)(&values)?;
        let compute_data_type = match self.table.compute.and_then(|(name, _)| values.get(&name)) {
            Some(Value::DataType(data_type)) => *data_type,
            _ => DataType::Unset,
        };
        let node = wire::Node { name, compute_data_type, operation };
        self.stage.finish(FinishedOperation { node, values })
    }
}
