//! Work that a stream was given while it captured, as nodes of a graph of HIP.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_sdk_bindings::hip::{
    hipError_t, hipGraph_t, hipGraphNode_t, hipGraphNodeType, hipKernelNodeParams, hipMemcpy3DParms, hipMemcpyKind,
    hipMemsetParams, hipStreamCaptureMode,
};

use super::{Function, Gpu, Stream, hip_error};

/// Bytes of arguments that a kernel may have: what fits into HIP's own limit.
pub const MOST_ARGUMENT_BYTES: usize = 4096;

/// The first HIP that tells a captured copy's parameters: 7.0.
const FIRST_WITH_COPIES: i32 = 70_000_000;

/// One piece of captured work.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A kernel's launch.
    Kernel(KernelNode),
    /// Memory set to a value.
    Fill(FillNode),
    /// A copy on the device.
    Copy(CopyNode),
}

/// A kernel's launch.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelNode {
    /// The kernel.
    pub function: Function,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of shared memory beside what the kernel declares.
    pub shared_bytes: u32,
    /// The packed arguments.
    pub arguments: Vec<u8>,
}

/// Memory set to a value.
#[derive(Clone, Debug, PartialEq)]
pub struct FillNode {
    /// Device address of the first value.
    pub address: u64,
    /// The value, in the lowest bytes.
    pub value: u32,
    /// Bytes of the value: 1, 2 or 4.
    pub width: usize,
    /// Number of values.
    pub count: usize,
}

/// A copy on the device.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyNode {
    /// Device address of the source.
    pub from: u64,
    /// Device address of the destination.
    pub to: u64,
    /// Number of bytes.
    pub bytes: usize,
}

/// Reason for work that was not taken down: either something failed, or it is of a kind that can't be repeated.
#[derive(Debug)]
pub enum CaptureError {
    /// A call failed. The stream may be unusable.
    Failed(Error),
    /// The captured work can't be repeated, for this reason.
    Refused(String),
    /// Somebody else's call ended the capture: HIP forbids some calls to all threads while any stream captures.
    Interrupted(Error),
}

impl From<Error> for CaptureError {
    fn from(error: Error) -> CaptureError {
        CaptureError::Failed(error)
    }
}

struct Graph {
    gpu: &'static Gpu,
    raw: hipGraph_t,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: a capture made it, and nobody has it any more.
        let status = unsafe { (self.gpu.hip.hipGraphDestroy)(self.raw) };
        self.gpu.log_hip(status, "hipGraphDestroy");
    }
}

impl Stream {
    /// Takes down what `work` has the stream do; none of it runs. The pieces come in an order that heeds all edges.
    pub(crate) fn capture(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Vec<Node>, CaptureError> {
        let gpu = self.gpu();
        // Relaxed: others may do what they like meanwhile, and `work` too.
        let mode = hipStreamCaptureMode::hipStreamCaptureModeRelaxed;
        // SAFETY: the stream is alive.
        let status = unsafe { (gpu.hip.hipStreamBeginCapture)(self.raw(), mode) };
        gpu.check_hip(status, "hipStreamBeginCapture")?;
        let worked = work();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the stream is alive; a place for one handle.
        let status = unsafe { (gpu.hip.hipStreamEndCapture)(self.raw(), &mut raw) };
        let graph = (!raw.is_null()).then_some(Graph { gpu, raw });
        if status == hipError_t::hipErrorStreamCaptureInvalidated {
            // What failed in `work` failed for that, if anything did.
            return Err(CaptureError::Interrupted(hip_error(status, "hipStreamEndCapture")));
        }
        worked?;
        gpu.check_hip(status, "hipStreamEndCapture")?;
        match graph {
            Some(graph) => graph.nodes(),
            None => Err(CaptureError::Refused("hipStreamEndCapture gave no graph".to_string())),
        }
    }
}

impl Graph {
    fn nodes(&self) -> Result<Vec<Node>, CaptureError> {
        let gpu = self.gpu;
        let mut count = 0;
        // SAFETY: the graph is alive; without a list HIP gives the number.
        let status = unsafe { (gpu.hip.hipGraphGetNodes)(self.raw, std::ptr::null_mut(), &mut count) };
        gpu.check_hip(status, "hipGraphGetNodes")?;
        let mut handles: Vec<hipGraphNode_t> = vec![std::ptr::null_mut(); count];
        if count > 0 {
            // SAFETY: the list has `count` places.
            let status = unsafe { (gpu.hip.hipGraphGetNodes)(self.raw, handles.as_mut_ptr(), &mut count) };
            gpu.check_hip(status, "hipGraphGetNodes")?;
            handles.truncate(count);
        }
        let edges = if count > 1 { self.edges()? } else { Vec::new() };
        let order = in_order(&handles, &edges).ok_or_else(|| refused("its edges make no order"))?;
        let mut nodes = Vec::new();
        for handle in order {
            nodes.extend(self.node(handle)?);
        }
        Ok(nodes)
    }

    fn edges(&self) -> Result<Vec<(hipGraphNode_t, hipGraphNode_t)>, Error> {
        let (gpu, null) = (self.gpu, std::ptr::null_mut());
        let mut count = 0;
        // SAFETY: the graph is alive; without lists HIP gives the number.
        let status = unsafe { (gpu.hip.hipGraphGetEdges)(self.raw, null, null, &mut count) };
        gpu.check_hip(status, "hipGraphGetEdges")?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let [mut from, mut to]: [Vec<hipGraphNode_t>; 2] = [vec![null.cast(); count], vec![null.cast(); count]];
        // SAFETY: both lists have `count` places.
        let status = unsafe { (gpu.hip.hipGraphGetEdges)(self.raw, from.as_mut_ptr(), to.as_mut_ptr(), &mut count) };
        gpu.check_hip(status, "hipGraphGetEdges")?;
        Ok(from.into_iter().zip(to).take(count).collect())
    }

    /// The node as we know it; none for one that does nothing.
    fn node(&self, node: hipGraphNode_t) -> Result<Option<Node>, CaptureError> {
        let gpu = self.gpu;
        let mut kind = hipGraphNodeType::hipGraphNodeTypeEmpty;
        // SAFETY: the node's graph is alive; a place for one number.
        let status = unsafe { (gpu.hip.hipGraphNodeGetType)(node, &mut kind) };
        gpu.check_hip(status, "hipGraphNodeGetType")?;
        match kind {
            hipGraphNodeType::hipGraphNodeTypeKernel => {
                // Zeros where a runtime leaves something out.
                let mut params = MaybeUninit::<hipKernelNodeParams>::zeroed();
                // SAFETY: a place for the node's parameters.
                let status = unsafe { (gpu.hip.hipGraphKernelNodeGetParams)(node, params.as_mut_ptr()) };
                gpu.check_hip(status, "hipGraphKernelNodeGetParams")?;
                // SAFETY: all zeros is a value of this struct of numbers and addresses, and HIP filled it.
                let params = unsafe { params.assume_init() };
                // SAFETY: HIP's list for a node whose graph is alive.
                Ok(Some(Node::Kernel(unsafe { kernel(&params) }?)))
            }
            hipGraphNodeType::hipGraphNodeTypeMemset => {
                let mut params = MaybeUninit::<hipMemsetParams>::zeroed();
                // SAFETY: a place for the parameters of a memset, which the node is.
                let status = unsafe { (gpu.hip.hipGraphMemsetNodeGetParams)(node, params.as_mut_ptr()) };
                gpu.check_hip(status, "hipGraphMemsetNodeGetParams")?;
                // SAFETY: all zeros is a value of this struct of numbers and an address, and HIP filled it.
                Ok(Some(Node::Fill(fill(&unsafe { params.assume_init() })?)))
            }
            hipGraphNodeType::hipGraphNodeTypeMemcpy => {
                // Before, HIP did not tell of what was copied by plain addresses.
                if gpu.hip_version() < FIRST_WITH_COPIES {
                    let text = format!("HIP {} does not tell what a copy copies", gpu.hip_version());
                    return Err(CaptureError::Failed(Error::new(ErrorKind::Device, text)));
                }
                let mut params = MaybeUninit::<hipMemcpy3DParms>::zeroed();
                // SAFETY: a place for the parameters of a copy, which the node is.
                let status = unsafe { (gpu.hip.hipGraphMemcpyNodeGetParams)(node, params.as_mut_ptr()) };
                gpu.check_hip(status, "hipGraphMemcpyNodeGetParams")?;
                // SAFETY: all zeros is a value of this struct of numbers and addresses, and HIP filled it.
                Ok(Some(Node::Copy(copy(&unsafe { params.assume_init() })?)))
            }
            hipGraphNodeType::hipGraphNodeTypeEmpty => Ok(None),
            other => Err(refused(&format!("a node of type {other} can't be repeated"))),
        }
    }
}

fn refused(reason: &str) -> CaptureError {
    CaptureError::Refused(reason.to_string())
}

/// Codes of the list by which packed arguments are passed: pairs of code and value, up to the end.
mod launch_param {
    pub(super) const BUFFER_POINTER: usize = 1;
    pub(super) const BUFFER_SIZE: usize = 2;
    pub(super) const END: usize = 3;
}

/// # Safety
/// The list of packed arguments is one that HIP takes, or null.
unsafe fn kernel(params: &hipKernelNodeParams) -> Result<KernelNode, CaptureError> {
    if params.func.is_null() || params.extra.is_null() {
        return Err(refused("a kernel was launched without packed arguments"));
    }
    let [mut buffer, mut size]: [*mut c_void; 2] = [std::ptr::null_mut(); 2];
    let mut at = params.extra;
    loop {
        // SAFETY: the list goes on until its end was met.
        let code = unsafe { *at };
        // SAFETY: every code but the end has a value behind it.
        let value = || unsafe { *at.add(1) };
        match code as usize {
            launch_param::BUFFER_POINTER => buffer = value(),
            launch_param::BUFFER_SIZE => size = value(),
            launch_param::END => break,
            other => return Err(refused(&format!("a kernel was launched with an option {other} that is not known"))),
        }
        // SAFETY: this code is not the end, so its value and another code are behind it.
        at = unsafe { at.add(2) };
    }
    if size.is_null() {
        return Err(refused("a kernel was launched with arguments of unknown size"));
    }
    // SAFETY: HIP's list names the place of a number here.
    let size = unsafe { *size.cast::<usize>() };
    if size > MOST_ARGUMENT_BYTES || (size > 0 && buffer.is_null()) {
        return Err(refused(&format!("a kernel has {size} bytes of arguments; {MOST_ARGUMENT_BYTES} can be repeated")));
    }
    let arguments = match size {
        0 => Vec::new(),
        // SAFETY: HIP's list names `size` bytes there.
        _ => unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), size) }.to_vec(),
    };
    let [grid, block] = [params.gridDim, params.blockDim].map(|extent| [extent.x, extent.y, extent.z]);
    let function = Function(params.func.cast());
    Ok(KernelNode { function, grid, block, shared_bytes: params.sharedMemBytes, arguments })
}

fn fill(params: &hipMemsetParams) -> Result<FillNode, CaptureError> {
    let width = params.elementSize as usize;
    if !matches!(width, 1 | 2 | 4) || params.height != 1 {
        return Err(refused(&format!("memory set in {} rows of {width}-byte values", params.height)));
    }
    Ok(FillNode { address: params.dst as u64, value: params.value, width, count: params.width })
}

fn copy(params: &hipMemcpy3DParms) -> Result<CopyNode, CaptureError> {
    let hipMemcpy3DParms { srcArray, srcPos, srcPtr, dstArray, dstPos, dstPtr, extent, kind } = params;
    let positions = [srcPos.x, srcPos.y, srcPos.z, dstPos.x, dstPos.y, dstPos.z];
    let on_device = matches!(*kind, hipMemcpyKind::hipMemcpyDeviceToDevice | hipMemcpyKind::hipMemcpyDefault);
    let flat = srcArray.is_null() && dstArray.is_null() && positions == [0; 6];
    if !on_device || !flat || extent.height > 1 || extent.depth > 1 {
        return Err(refused("a copy that is not one piece of device memory"));
    }
    Ok(CopyNode { from: srcPtr.ptr as u64, to: dstPtr.ptr as u64, bytes: extent.width })
}

/// The nodes in their own order where that heeds the edges, else in the first one that does.
fn in_order<T: Copy + PartialEq>(nodes: &[T], edges: &[(T, T)]) -> Option<Vec<T>> {
    let mut left = nodes.to_vec();
    let mut order: Vec<T> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let free = |node: &T| edges.iter().all(|(from, to)| to != node || order.contains(from));
        let next = left.iter().position(free)?;
        order.push(left.remove(next));
    }
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_keep_their_order_unless_an_edge_forbids_it() {
        for (nodes, edges, want) in [
            (vec![1, 2, 3], vec![], Some(vec![1, 2, 3])),
            (vec![1, 2, 3], vec![(1, 2), (2, 3)], Some(vec![1, 2, 3])),
            (vec![3, 2, 1], vec![(1, 2), (2, 3)], Some(vec![1, 2, 3])),
            (vec![1, 2, 3, 4], vec![(3, 1), (4, 2)], Some(vec![3, 1, 4, 2])),
            (vec![1, 2], vec![(1, 2), (2, 1)], None),
            // An edge from a node that is not listed can't be heeded.
            (vec![1], vec![(9, 1)], None),
        ] {
            assert_eq!(in_order(&nodes, &edges), want, "{nodes:?} {edges:?}");
        }
    }

    #[test]
    fn packed_arguments_are_read_from_the_launch_list() {
        let words = [7u64, 9];
        let list = |size: &usize| {
            [
                launch_param::BUFFER_SIZE as *mut c_void,
                std::ptr::from_ref(size).cast_mut().cast(),
                launch_param::BUFFER_POINTER as *mut c_void,
                words.as_ptr().cast_mut().cast(),
                launch_param::END as *mut c_void,
            ]
        };
        let mut params = MaybeUninit::<hipKernelNodeParams>::zeroed();
        // SAFETY: numbers and addresses, for which zeros are values.
        let params = unsafe { params.assume_init_mut() };
        let mut function = 0u8;
        // SAFETY: without a list nothing is read.
        assert!(unsafe { kernel(params) }.is_err(), "no function, no list");
        params.func = (&raw mut function).cast();
        let mut good = list(&16);
        params.extra = good.as_mut_ptr();
        // SAFETY: the list is whole.
        let node = unsafe { kernel(params) }.expect("packed arguments");
        assert_eq!(node.arguments, words.map(u64::to_ne_bytes).concat());
        let mut long = list(&(MOST_ARGUMENT_BYTES + 1));
        params.extra = long.as_mut_ptr();
        // SAFETY: the list is whole; the size, which is too large, is looked at before the bytes.
        assert!(unsafe { kernel(params) }.is_err(), "too many bytes");
        let mut unknown = [17 as *mut c_void, std::ptr::null_mut(), launch_param::END as *mut c_void];
        params.extra = unknown.as_mut_ptr();
        // SAFETY: the list is whole.
        assert!(unsafe { kernel(params) }.is_err(), "an unknown option");
    }
}
