//! cuDNN's graphs: a forward convolution with what follows it, and the engines that compute them. They are what a search has to choose from;
//! the calls of `cudnn.rs` leave the choice to cuDNN.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::rc::Rc;

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type, cudnnBackendDescriptor_t as Raw,
    cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t, cudnnConvolutionMode_t, cudnnDataType_t,
    cudnnPointwiseMode_t,
};
use hipdnn_sdk_bindings::miopen::miopenStatus_t;

use super::Result;
use super::cudnn::check;
use super::solution::{Addresses, Problem};

/// Epilogue of a convolution, in one call with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Follower {
    Nothing,
    Bias,
    /// A bias, and max(0, v).
    BiasRelu,
}

/// The most of cuDNN's proposals that are looked at, best first by its own guess.
pub(super) const MOST: usize = 8;

/// Numerical notes of engines that are left out: those that round inputs or partial sums, transform, or give other bits each time.
const REFUSED_NOTES: std::ops::RangeInclusive<u32> = 1..=8;

/// One of cuDNN's descriptors, with those that it refers to.
struct Descriptor(Raw, Vec<Rc<Descriptor>>);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and nobody has it any more. There is nobody to tell an error.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}

impl Descriptor {
    fn new(kind: Kind) -> Result<Descriptor> {
        let mut raw = null_mut();
        // SAFETY: a place for one descriptor.
        check(unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut raw) })?;
        Ok(Descriptor(raw, Vec::new()))
    }

    /// Sets an attribute, whose elements are of the type that cuDNN has for `kind`.
    fn with<T>(self, name: Name, kind: Type, values: &[T]) -> Result<Descriptor> {
        let count = values.len() as i64;
        // SAFETY: the descriptor is alive; so many elements of what the attribute has, which each call here names with its type.
        check(unsafe { sys::cudnnBackendSetAttribute(self.0, name, kind, count, values.as_ptr().cast()) })?;
        Ok(self)
    }

    /// Sets an attribute to other descriptors, which stay with it.
    fn with_parts(mut self, name: Name, parts: &[&Rc<Descriptor>]) -> Result<Descriptor> {
        self.1.extend(parts.iter().map(|part| Rc::clone(part)));
        let raw: Vec<Raw> = parts.iter().map(|part| part.0).collect();
        self.with(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw)
    }

    fn finished(self) -> Result<Rc<Descriptor>> {
        // SAFETY: the descriptor is alive.
        check(unsafe { sys::cudnnBackendFinalize(self.0) })?;
        Ok(Rc::new(self))
    }

    /// Reads an attribute of up to so many elements.
    fn get<T: Copy>(&self, name: Name, kind: Type, mut values: Vec<T>) -> Result<Vec<T>> {
        let mut count = 0;
        let (most, list) = (values.len() as i64, values.as_mut_ptr().cast());
        // SAFETY: the descriptor is alive; places for so many elements of the attribute's type, which each call here names.
        check(unsafe { sys::cudnnBackendGetAttribute(self.0, name, kind, most, &mut count, list) })?;
        values.truncate(usize::try_from(count).unwrap_or(0));
        Ok(values)
    }
}

/// Numbers that a plan knows its tensors by.
const X: i64 = 1;
const W: i64 = 2;
const Y: i64 = 3;
const BIAS: i64 = 4;
/// Virtual tensor between operations, in no memory.
const BETWEEN: [i64; 2] = [5, 6];

/// Bytes that all addresses are multiples of: the engine asks for 4 at least, cuDNN's fast kernels want 16.
const ALIGNMENT: usize = 16;

fn tensor(
    uid: i64,
    data_type: cudnnDataType_t,
    dims: &[usize],
    strides: &[usize],
    is_between: bool,
) -> Result<Rc<Descriptor>> {
    let [dims, strides] = [dims, strides].map(|list| list.iter().map(|value| *value as i64).collect::<Vec<_>>());
    let made = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[data_type])?
        .with(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, Type::CUDNN_TYPE_INT64, &dims)?
        .with(Name::CUDNN_ATTR_TENSOR_STRIDES, Type::CUDNN_TYPE_INT64, &strides)?
        .with(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, Type::CUDNN_TYPE_INT64, &[uid])?
        .with(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Type::CUDNN_TYPE_INT64, &[ALIGNMENT as i64])?;
    made.with(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, Type::CUDNN_TYPE_BOOLEAN, &[is_between])?.finished()
}

fn convolution(
    problem: &Problem<'_>,
    x: &Rc<Descriptor>,
    w: &Rc<Descriptor>,
    y: &Rc<Descriptor>,
) -> Result<Rc<Descriptor>> {
    let c = problem.convolution;
    let [padding, stride, dilation] =
        [&c.padding, &c.stride, &c.dilation].map(|list| list.iter().map(|value| i64::from(*value)).collect::<Vec<_>>());
    let (float, mode) = (cudnnDataType_t::CUDNN_DATA_FLOAT, cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION);
    let described = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[float])?
        .with(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, Type::CUDNN_TYPE_CONVOLUTION_MODE, &[mode])?
        .with(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, Type::CUDNN_TYPE_INT64, &[padding.len() as i64])?
        .with(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, Type::CUDNN_TYPE_INT64, &dilation)?
        .with(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Type::CUDNN_TYPE_INT64, &stride)?
        .with(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Type::CUDNN_TYPE_INT64, &padding)?
        .with(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Type::CUDNN_TYPE_INT64, &padding)?
        .finished()?;
    Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)?
        .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, &[x])?
        .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &[w])?
        .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, &[y])?
        .with_parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &[&described])?
        .with(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, Type::CUDNN_TYPE_FLOAT, &[1f32])?
        .with(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, Type::CUDNN_TYPE_FLOAT, &[0f32])?
        .finished()
}

/// A function of each element of `x`, and of `b` if there is one.
fn pointwise(
    mode: cudnnPointwiseMode_t,
    x: &Rc<Descriptor>,
    b: Option<&Rc<Descriptor>>,
    y: &Rc<Descriptor>,
) -> Result<Rc<Descriptor>> {
    let described = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_POINTWISE_MODE, Type::CUDNN_TYPE_POINTWISE_MODE, &[mode])?
        .with(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, Type::CUDNN_TYPE_DATA_TYPE, &[cudnnDataType_t::CUDNN_DATA_FLOAT])?
        .finished()?;
    let mut operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
        .with_parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&described])?
        .with_parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[x])?;
    if let Some(b) = b {
        operation = operation.with_parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[b])?;
    }
    operation.with_parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[y])?.finished()
}

/// The operations as cuDNN's graph. The tensors' strides are taken as they are.
fn graph(
    handle: sys::cudnnHandle_t,
    problem: &Problem<'_>,
    data_type: cudnnDataType_t,
    follower: Follower,
) -> Result<Rc<Descriptor>> {
    let of =
        |uid, tensor_of: &super::descriptor::Tensor| tensor(uid, data_type, &tensor_of.dims, &tensor_of.strides, false);
    let (x, w, y) = (of(X, problem.x)?, of(W, problem.w)?, of(Y, problem.y)?);
    let between = |uid| tensor(uid, cudnnDataType_t::CUDNN_DATA_FLOAT, &problem.y.dims, &problem.y.strides, true);
    let bias = || {
        let mut dims = vec![1; problem.y.dims.len()];
        dims[1] = problem.y.dims[1];
        let strides: Vec<usize> = (0..dims.len()).map(|axis| if axis == 1 { 1 } else { dims[1] }).collect();
        tensor(BIAS, data_type, &dims, &strides, false)
    };
    let operations = match follower {
        Follower::Nothing => vec![convolution(problem, &x, &w, &y)?],
        Follower::Bias => {
            let first = between(BETWEEN[0])?;
            let add = pointwise(cudnnPointwiseMode_t::CUDNN_POINTWISE_ADD, &first, Some(&bias()?), &y)?;
            vec![convolution(problem, &x, &w, &first)?, add]
        }
        Follower::BiasRelu => {
            let (first, second) = (between(BETWEEN[0])?, between(BETWEEN[1])?);
            let add = pointwise(cudnnPointwiseMode_t::CUDNN_POINTWISE_ADD, &first, Some(&bias()?), &second)?;
            let relu = pointwise(cudnnPointwiseMode_t::CUDNN_POINTWISE_RELU_FWD, &second, None, &y)?;
            vec![convolution(problem, &x, &w, &first)?, add, relu]
        }
    };
    Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
        .with_parts(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations.iter().collect::<Vec<_>>())?
        .with(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle])?
        .finished()
}

/// The proposals for a graph, best first by cuDNN's guess.
fn proposals(graph: &Rc<Descriptor>) -> Result<Vec<Rc<Descriptor>>> {
    let mode = cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_A;
    let heuristics = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .with_parts(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph])?
        .with(Name::CUDNN_ATTR_ENGINEHEUR_MODE, Type::CUDNN_TYPE_HEUR_MODE, &[mode])?
        .finished()?;
    // cuDNN fills descriptors that are there.
    let made: Vec<Descriptor> =
        (0..MOST).map(|_| Descriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)).collect::<Result<_>>()?;
    let raw = made.iter().map(|descriptor| descriptor.0).collect();
    let filled = heuristics.get(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, raw)?;
    Ok(made.into_iter().take(filled.len()).map(Rc::new).collect())
}

/// True if a proposal's engine rounds once and gives the same bits each time.
fn is_exact(proposal: &Descriptor) -> Result<bool> {
    let engine = Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    let name = Name::CUDNN_ATTR_ENGINECFG_ENGINE;
    proposal.get(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, vec![engine.0])?;
    let name = Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE;
    let notes = engine.get(name, Type::CUDNN_TYPE_NUMERICAL_NOTE, vec![0u32; 16])?;
    Ok(!notes.iter().any(|note| REFUSED_NOTES.contains(note)))
}

/// A proposal that is compiled.
pub(super) struct Plan {
    compiled: Rc<Descriptor>,
    pub(super) workspace: usize,
    has_bias: bool,
}

impl Plan {
    fn new(handle: sys::cudnnHandle_t, proposal: &Rc<Descriptor>, follower: Follower) -> Result<Plan> {
        if !is_exact(proposal)? {
            return Err(miopenStatus_t::miopenStatusNotImplemented);
        }
        let compiled = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
            .with_parts(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[proposal])?
            .with(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle])?
            .finished()?;
        let name = Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE;
        let bytes = compiled.get(name, Type::CUDNN_TYPE_INT64, vec![0i64])?;
        let workspace = bytes.first().and_then(|bytes| usize::try_from(*bytes).ok());
        let workspace = workspace.ok_or(miopenStatus_t::miopenStatusInternalError)?;
        Ok(Plan { compiled, workspace, has_bias: follower != Follower::Nothing })
    }

    /// # Safety
    /// The handle is cuDNN's and alive, the addresses are of device memory as large as the tensors and [`Plan::workspace`], and the bias has
    /// an element for each channel of y where the plan has one.
    pub(super) unsafe fn run(&self, handle: sys::cudnnHandle_t, at: &Addresses, bias: *mut c_void) -> Result {
        let (mut uids, mut places) = (vec![X, W, Y], vec![at.x, at.w, at.y]);
        if self.has_bias {
            uids.push(BIAS);
            places.push(bias);
        }
        if places.iter().any(|place| !place.addr().is_multiple_of(ALIGNMENT)) {
            return Err(miopenStatus_t::miopenStatusNotImplemented);
        }
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Type::CUDNN_TYPE_INT64, &uids)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Type::CUDNN_TYPE_VOID_PTR, &places)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, Type::CUDNN_TYPE_VOID_PTR, &[at.workspace])?
            .finished()?;
        // SAFETY: plan and pack are alive; the rest is the caller's promise.
        check(unsafe { sys::cudnnBackendExecute(handle, self.compiled.0, pack.0) })
    }
}

/// A graph's proposals, with the graph that they are of.
#[derive(Default)]
struct Proposals {
    list: Vec<Rc<Descriptor>>,
    _graph: Option<Rc<Descriptor>>,
}

/// The plans of a handle, by what they compute and the number of the proposal; none where it can't be had.
#[derive(Default)]
pub(super) struct Plans {
    proposals: HashMap<String, Rc<Proposals>>,
    plans: HashMap<(String, usize), Option<Rc<Plan>>>,
}

impl Plans {
    /// The plan of that number.
    ///
    /// # Errors
    /// If cuDNN has none, or none that rounds once.
    pub(super) fn plan(
        &mut self,
        handle: sys::cudnnHandle_t,
        problem: &Problem<'_>,
        data_type: cudnnDataType_t,
        follower: Follower,
        number: usize,
    ) -> Result<Rc<Plan>> {
        let key = format!("{problem:?} {follower:?}");
        let proposals = match self.proposals.get(&key) {
            Some(known) => Rc::clone(known),
            None => {
                let found = graph(handle, problem, data_type, follower)
                    .and_then(|graph| Ok(Proposals { list: proposals(&graph)?, _graph: Some(graph) }));
                let found = Rc::new(found.unwrap_or_default());
                self.proposals.insert(key.clone(), Rc::clone(&found));
                found
            }
        };
        let made = self.plans.entry((key, number)).or_insert_with(|| {
            let plan = Plan::new(handle, proposals.list.get(number)?, follower);
            plan.ok().map(Rc::new)
        });
        made.clone().ok_or(miopenStatus_t::miopenStatusNotImplemented)
    }
}
