//! Graphs. What a node copies is not told: the engine then launches MIOpen's work itself and records none of it.

use std::cell::RefCell;
use std::ffi::{c_char, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUgraphNode, CUgraphNodeType, CUlaunchAttributeID};
use hipdnn_sdk_bindings::hip::{
    HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END, dim3, hipError_t, hipGraph_t,
    hipGraphExec_t, hipGraphNode_t, hipGraphNodeType, hipKernelNodeParams, hipMemcpy3DParms, hipMemsetParams,
    hipStream_t,
};

use super::grouped::Grouped;
use super::module::CU_LAUNCH_PARAM_END;
use crate::status::{Result, check, hip, put};

hip! {
    fn hipGraphCreate(graph: *mut hipGraph_t, flags: c_uint) { check(sys::cuGraphCreate(graph.cast(), flags)) }

    fn hipGraphDestroy(graph: hipGraph_t) { check(sys::cuGraphDestroy(graph.cast())) }

    fn hipGraphGetNodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize) {
        check(sys::cuGraphGetNodes(graph.cast(), nodes.cast(), count))
    }

    fn hipGraphGetRootNodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize) {
        check(sys::cuGraphGetRootNodes(graph.cast(), nodes.cast(), count))
    }

    fn hipGraphGetEdges(graph: hipGraph_t, from: *mut hipGraphNode_t, to: *mut hipGraphNode_t, count: *mut usize) {
        check(sys::cuGraphGetEdges_v2(graph.cast(), from.cast(), to.cast(), null_mut(), count))
    }

    fn hipGraphNodeGetType(node: hipGraphNode_t, kind: *mut hipGraphNodeType) {
        let mut is = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        check(sys::cuGraphNodeGetType(node.cast(), &mut is))?;
        put(kind, hipGraphNodeType(is as c_uint))
    }

    fn hipGraphKernelNodeGetParams(node: hipGraphNode_t, parameters: *mut hipKernelNodeParams) {
        put(parameters, kernel(node.cast())?)
    }

    fn hipGraphMemcpyNodeGetParams(_node: hipGraphNode_t, _parameters: *mut hipMemcpy3DParms) {
        Err(hipError_t::hipErrorNotSupported)
    }

    fn hipGraphMemsetNodeGetParams(node: hipGraphNode_t, parameters: *mut hipMemsetParams) {
        let mut is: sys::CUDA_MEMSET_NODE_PARAMS = std::mem::zeroed();
        check(sys::cuGraphMemsetNodeGetParams(node.cast(), &mut is))?;
        put(parameters, hipMemsetParams {
            dst: is.dst as *mut c_void, elementSize: is.elementSize, height: is.height, pitch: is.pitch, value: is.value,
            width: is.width,
        })
    }

    fn hipGraphInstantiate(
        executable: *mut hipGraphExec_t, graph: hipGraph_t, _node: *mut hipGraphNode_t, _log: *mut c_char, _bytes: usize,
    ) {
        check(sys::cuGraphInstantiateWithFlags(executable.cast(), graph.cast(), 0))
    }

    fn hipGraphInstantiateWithFlags(executable: *mut hipGraphExec_t, graph: hipGraph_t, flags: c_ulonglong) {
        check(sys::cuGraphInstantiateWithFlags(executable.cast(), graph.cast(), flags))
    }

    fn hipGraphLaunch(executable: hipGraphExec_t, stream: hipStream_t) {
        check(sys::cuGraphLaunch(executable.cast(), stream.cast()))
    }

    fn hipGraphUpload(executable: hipGraphExec_t, stream: hipStream_t) {
        check(sys::cuGraphUpload(executable.cast(), stream.cast()))
    }

    fn hipGraphExecDestroy(executable: hipGraphExec_t) { check(sys::cuGraphExecDestroy(executable.cast())) }
}

/// Packed arguments of a node's kernel, as HIP tells them.
#[derive(Default)]
struct Packed {
    arguments: Vec<u8>,
    bytes: usize,
    list: Vec<*mut c_void>,
}

impl Packed {
    /// The list that names them; it is good for as long as they are.
    fn list(&mut self) -> *mut *mut c_void {
        self.bytes = self.arguments.len();
        self.list = vec![
            HIP_LAUNCH_PARAM_BUFFER_POINTER,
            self.arguments.as_mut_ptr().cast(),
            HIP_LAUNCH_PARAM_BUFFER_SIZE,
            (&raw mut self.bytes).cast(),
            HIP_LAUNCH_PARAM_END,
        ];
        self.list.as_mut_ptr()
    }
}

thread_local! {
    /// The arguments that the thread was told last: they stay until it asks for another node's.
    static TOLD: RefCell<Box<Packed>> = RefCell::default();
}

/// A kernel's node, with its arguments packed.
///
/// # Errors
/// `hipErrorNotSupported` if its arguments are not told.
///
/// # Safety
/// The node is a kernel's, of a graph that is alive.
unsafe fn kernel(node: CUgraphNode) -> Result<hipKernelNodeParams> {
    // SAFETY: numbers and addresses, for which zeros are values.
    let mut is: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    // SAFETY: the node is the caller's promise; a place for its parameters.
    check(unsafe { sys::cuGraphKernelNodeGetParams_v2(node, &mut is) })?;
    if is.func.is_null() {
        // SAFETY: a node without a function of a module has a kernel of a library; a place for one handle.
        check(unsafe { sys::cuKernelGetFunction(&mut is.func, is.kern) })?;
    }
    // SAFETY: the node is the caller's promise.
    let grouped = unsafe { grouped(node, is.func) }?;
    let func = grouped.map_or(is.func.cast(), Grouped::handle);
    let [grid, block] = [[is.gridDimX, is.gridDimY, is.gridDimZ], [is.blockDimX, is.blockDimY, is.blockDimZ]]
        .map(|[x, y, z]| dim3 { x, y, z });
    TOLD.with_borrow_mut(|told| {
        told.arguments = match is.kernelParams.is_null() && !is.extra.is_null() {
            // SAFETY: the driver's list of packed arguments, which lives with the node.
            true => unsafe { packed_before(is.extra) }?,
            // SAFETY: the driver's list of the arguments of this function, which lives with the node.
            false => unsafe { packed(is.func, is.kernelParams) }?,
        };
        Ok(hipKernelNodeParams {
            blockDim: block,
            extra: told.list(),
            func: func.cast(),
            gridDim: grid,
            kernelParams: null_mut(),
            sharedMemBytes: is.sharedMemBytes,
        })
    })
}

/// The kernel of a launch whose blocks run in groups, or all at once.
///
/// # Safety
/// As for [`kernel`].
unsafe fn grouped(node: CUgraphNode, function: sys::CUfunction) -> Result<Option<Grouped>> {
    let ask = |attribute: CUlaunchAttributeID| {
        // SAFETY: numbers and addresses, for which zeros are values.
        let mut value: sys::CUkernelNodeAttrValue = unsafe { std::mem::zeroed() };
        // SAFETY: the node is the caller's promise; a place for one value.
        check(unsafe { sys::cuGraphKernelNodeGetAttribute(node, attribute, &mut value) }).map(|()| value)
    };
    let cluster = ask(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)?;
    let cooperative = ask(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE)?;
    // SAFETY: each is what the driver writes for the attribute, over zeros.
    let (sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z }, cooperative) =
        unsafe { (cluster.clusterDim, cooperative.cooperative) };
    let extents = [x, y, z].map(|extent| extent.max(1));
    if cooperative == 0 && extents == [1; 3] {
        return Ok(None);
    }
    let policy = ask(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)?;
    // SAFETY: what the driver writes for the attribute, over zeros.
    let policy = unsafe { policy.clusterSchedulingPolicyPreference };
    Ok(Some(Grouped { function, extents, policy, is_cooperative: cooperative != 0 }))
}

/// A function's arguments, each at the place where the function expects it.
///
/// # Safety
/// The list has the address of each argument of the function.
unsafe fn packed(function: sys::CUfunction, list: *mut *mut c_void) -> Result<Vec<u8>> {
    let mut arguments = Vec::new();
    for index in 0.. {
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: the function is the driver's; places for two numbers.
        match unsafe { sys::cuFuncGetParamInfo(function, index, &mut offset, &mut bytes) } {
            // There are no more.
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => break,
            other => check(other)?,
        }
        if list.is_null() {
            return Err(hipError_t::hipErrorNotSupported);
        }
        // SAFETY: the function has this argument, so the list has its address, with so many bytes there.
        let argument = unsafe { std::slice::from_raw_parts((*list.add(index)).cast::<u8>(), bytes) };
        arguments.resize(arguments.len().max(offset + bytes), 0);
        arguments[offset..offset + bytes].copy_from_slice(argument);
    }
    Ok(arguments)
}

/// Arguments that were packed when they were passed.
///
/// # Safety
/// The list is the driver's, of tags with values behind them, which ends in its mark.
unsafe fn packed_before(list: *mut *mut c_void) -> Result<Vec<u8>> {
    let (mut at, mut buffer, mut bytes) = (list, null_mut::<c_void>(), 0);
    // SAFETY: the list goes on until its mark was met, and every other tag has a value behind it; those are an address of so many bytes, and
    // that of their number.
    unsafe {
        while *at != CU_LAUNCH_PARAM_END {
            match *at {
                HIP_LAUNCH_PARAM_BUFFER_POINTER => buffer = *at.add(1),
                HIP_LAUNCH_PARAM_BUFFER_SIZE => bytes = *(*at.add(1)).cast::<usize>(),
                _ => return Err(hipError_t::hipErrorNotSupported),
            }
            at = at.add(2);
        }
        match bytes {
            0 => Ok(Vec::new()),
            _ => Ok(std::slice::from_raw_parts(buffer.cast::<u8>(), bytes).to_vec()),
        }
    }
}
