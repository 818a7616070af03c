//! Graphs. What a node does is not told: the engine then launches MIOpen's work itself and records none of it.

use std::ffi::{c_char, c_uint, c_ulonglong};
use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUgraphNodeType};
use hipdnn_sdk_bindings::hip::{
    hipError_t, hipGraph_t, hipGraphExec_t, hipGraphNode_t, hipGraphNodeType, hipKernelNodeParams, hipMemcpy3DParms,
    hipMemsetParams, hipStream_t,
};

use crate::status::{check, hip, put};

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

    fn hipGraphKernelNodeGetParams(_node: hipGraphNode_t, _parameters: *mut hipKernelNodeParams) {
        Err(hipError_t::hipErrorNotSupported)
    }

    fn hipGraphMemcpyNodeGetParams(_node: hipGraphNode_t, _parameters: *mut hipMemcpy3DParms) {
        Err(hipError_t::hipErrorNotSupported)
    }

    fn hipGraphMemsetNodeGetParams(_node: hipGraphNode_t, _parameters: *mut hipMemsetParams) {
        Err(hipError_t::hipErrorNotSupported)
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
