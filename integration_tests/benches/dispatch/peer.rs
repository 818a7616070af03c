//! MIOpen called directly: the least that a caller of its own can do, and what AMD's provider does.

use std::error::Error;
use std::ffi::c_void;
use std::fmt::Display;
use std::ptr::null_mut;
use std::sync::Mutex;

use hipdnn_rs_integration_tests::emulator::{DeviceMemory, Hip, Stream};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;
use hipdnn_sdk_bindings::miopen::*;

use crate::facts::places;
use crate::shape::{B, BIASED, C, H, K, SUMS, W, WEIGHTS, X, Y};

pub(crate) type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn check(call: &str, status: miopenStatus_t) -> Result<()> {
    if status == miopenStatus_t::miopenStatusSuccess { Ok(()) } else { Err(format!("{call}: {status}").into()) }
}

/// Calls a function of the table and checks its status.
macro_rules! call {
    ($peer:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: descriptors, handle and memory live in the peer, which is borrowed; places for results are locals.
        check(stringify!($function), unsafe { ($peer.miopen.functions.$function)($($argument),*) })
    };
}

const FLOAT: miopenDataType_t = miopenDataType_t::miopenFloat;
const ONE: f32 = 1.0;
const ZERO: f32 = 0.0;

fn number(value: &f32) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

/// A convolution with bias and ReLU as MIOpen's caller sees it, in NCHW and float.
pub(crate) struct Peer {
    miopen: MiOpen,
    handle: miopenHandle_t,
    x: miopenTensorDescriptor_t,
    w: miopenTensorDescriptor_t,
    y: miopenTensorDescriptor_t,
    bias: miopenTensorDescriptor_t,
    convolution: miopenConvolutionDescriptor_t,
    activation: miopenActivationDescriptor_t,
    pub(crate) memory: Memory,
    workspace: Option<DeviceMemory>,
    find: Option<miopenSolution_t>,
    algorithm: Mutex<Option<miopenConvFwdAlgorithm_t>>,
}

/// The buffers of both sides.
pub(crate) struct Memory {
    pub(crate) x: DeviceMemory,
    pub(crate) w: DeviceMemory,
    pub(crate) b: DeviceMemory,
    pub(crate) sums: DeviceMemory,
    pub(crate) biased: DeviceMemory,
    pub(crate) y: DeviceMemory,
}

impl Memory {
    fn new(hip: &'static Hip) -> Result<Memory> {
        let floats = |count: usize| -> Result<DeviceMemory> {
            let memory = hip.memory(count * 4)?;
            // Not all zero, so that a result says something.
            let bytes: Vec<u8> = (0..count).flat_map(|i| ((i % 7) as f32 - 3.0).to_le_bytes()).collect();
            memory.upload(0, &bytes)?;
            Ok(memory)
        };
        let image = H * W;
        Ok(Memory {
            x: floats(C * image)?,
            w: floats(K * C * 9)?,
            b: floats(K)?,
            sums: floats(K * image)?,
            biased: floats(K * image)?,
            y: floats(K * image)?,
        })
    }

    /// As a variant pack.
    pub(crate) fn buffers(&self) -> Vec<DeviceBuffer> {
        [(X, &self.x), (WEIGHTS, &self.w), (B, &self.b), (SUMS, &self.sums), (BIASED, &self.biased), (Y, &self.y)]
            .map(|(uid, memory)| DeviceBuffer { uid, ptr: memory.address().cast() })
            .to_vec()
    }
}

impl Peer {
    /// Opens the MIOpen that the engine opens too, on a stream.
    pub(crate) fn new(hip: &'static Hip, stream: &Stream) -> Result<Peer> {
        // SAFETY: MIOpen's own names and places; loading it is what every user of it does.
        let miopen = unsafe { MiOpen::open(places()) }?;
        let mut peer = Peer {
            miopen,
            handle: null_mut(),
            x: null_mut(),
            w: null_mut(),
            y: null_mut(),
            bias: null_mut(),
            convolution: null_mut(),
            activation: null_mut(),
            memory: Memory::new(hip)?,
            workspace: None,
            find: None,
            algorithm: Mutex::new(None),
        };
        call!(peer, miopenCreateWithStream(&mut peer.handle, stream.raw().cast()))?;
        peer.x = peer.tensor([1, C, H, W])?;
        peer.w = peer.tensor([K, C, 3, 3])?;
        peer.y = peer.tensor([1, K, H, W])?;
        peer.bias = peer.tensor([1, K, 1, 1])?;
        call!(peer, miopenCreateConvolutionDescriptor(&mut peer.convolution))?;
        let [pad, one] = [[1; 2]; 2];
        let mode = miopenConvolutionMode_t::miopenConvolution;
        let (padding, stride, dilation) = (pad.as_ptr(), one.as_ptr(), one.as_ptr());
        call!(
            peer,
            miopenInitConvolutionNdDescriptor(
                peer.convolution,
                2,
                padding.cast_mut(),
                stride.cast_mut(),
                dilation.cast_mut(),
                mode
            )
        )?;
        call!(peer, miopenCreateActivationDescriptor(&mut peer.activation))?;
        let relu = miopenActivationMode_t::miopenActivationRELU;
        call!(peer, miopenSetActivationDescriptor(peer.activation, relu, 0.0, 0.0, 0.0))?;
        Ok(peer)
    }

    fn tensor(&self, dims: [usize; 4]) -> Result<miopenTensorDescriptor_t> {
        let mut descriptor = null_mut();
        call!(self, miopenCreateTensorDescriptor(&mut descriptor))?;
        let strides = [dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1];
        call!(self, miopenSetTensorDescriptorV2(descriptor, FLOAT, 4, dims.as_ptr(), strides.as_ptr()))?;
        Ok(descriptor)
    }

    /// The first solution of MIOpen's list that compiles and runs, made ready.
    pub(crate) fn solution(&mut self, hip: &'static Hip, stream: &Stream) -> Result<u64> {
        let mut solutions = [EMPTY_SOLUTION; 64];
        let mut count = 0;
        let (list, most) = (solutions.as_mut_ptr(), solutions.len());
        call!(
            self,
            miopenConvolutionForwardGetSolution(
                self.handle,
                self.w,
                self.x,
                self.convolution,
                self.y,
                most,
                &mut count,
                list
            )
        )?;
        let mut refused = String::new();
        for solution in &solutions[..count] {
            let id = solution.solution_id;
            self.workspace = Some(hip.memory(solution.workspace_size)?);
            let compiled = call!(
                self,
                miopenConvolutionForwardCompileSolution(self.handle, self.w, self.x, self.convolution, self.y, id)
            );
            let ran = compiled.and_then(|()| self.immediate(id, &self.memory.sums));
            match ran.and_then(|()| Ok(stream.synchronize()?)) {
                Ok(()) => return Ok(id),
                Err(error) => note(&mut refused, id, &error),
            }
        }
        Err(format!("none of MIOpen's {count} solutions runs: {refused}").into())
    }

    /// Finds a Find-2.0 solution of this solver, if MIOpen gives one.
    pub(crate) fn find(&mut self, solver: u64) -> Result<bool> {
        let mut problem = null_mut();
        let forward = miopenProblemDirection_t::miopenProblemDirectionForward;
        call!(self, miopenCreateConvProblem(&mut problem, self.convolution, forward))?;
        for (id, tensor) in [
            (miopenTensorArgumentId_t::miopenTensorConvolutionX, self.x),
            (miopenTensorArgumentId_t::miopenTensorConvolutionW, self.w),
            (miopenTensorArgumentId_t::miopenTensorConvolutionY, self.y),
        ] {
            call!(self, miopenSetProblemTensorDescriptor(problem, id, tensor))?;
        }
        let mut solutions = [null_mut(); 16];
        let mut count = 0;
        call!(
            self,
            miopenFindSolutions(self.handle, problem, null_mut(), solutions.as_mut_ptr(), &mut count, solutions.len())
        )?;
        for solution in &solutions[..count] {
            let mut id = 0;
            call!(self, miopenGetSolutionSolverId(*solution, &mut id))?;
            if id == solver {
                self.find = Some(*solution);
            }
        }
        Ok(self.find.is_some())
    }

    fn workspace(&self) -> (*mut c_void, usize) {
        match &self.workspace {
            Some(memory) if memory.bytes() > 0 => (memory.address().cast(), memory.bytes()),
            _ => (null_mut(), 0),
        }
    }

    /// `miopenConvolutionForwardImmediate`.
    pub(crate) fn immediate(&self, solution: u64, y: &DeviceMemory) -> Result<()> {
        let (workspace, bytes) = self.workspace();
        call!(
            self,
            miopenConvolutionForwardImmediate(
                self.handle,
                self.w,
                self.memory.w.address().cast(),
                self.x,
                self.memory.x.address().cast(),
                self.convolution,
                self.y,
                y.address().cast(),
                workspace,
                bytes,
                solution
            )
        )
    }

    /// `miopenRunSolution`, the leanest of MIOpen's calls.
    pub(crate) fn run(&self, y: &DeviceMemory) -> Result<()> {
        let argument = |id, memory: &DeviceMemory| miopenTensorArgument_t {
            id,
            descriptor: null_mut(),
            buffer: memory.address().cast(),
        };
        let arguments = [
            argument(miopenTensorArgumentId_t::miopenTensorConvolutionX, &self.memory.x),
            argument(miopenTensorArgumentId_t::miopenTensorConvolutionW, &self.memory.w),
            argument(miopenTensorArgumentId_t::miopenTensorConvolutionY, y),
        ];
        let (workspace, bytes) = self.workspace();
        let solution = self.find.ok_or("no solution was found")?;
        call!(self, miopenRunSolution(self.handle, solution, 3, arguments.as_ptr(), workspace, bytes))
    }

    fn add_bias(&self, from: &DeviceMemory, bias: &DeviceMemory, to: &DeviceMemory) -> Result<()> {
        let add = miopenTensorOp_t::miopenTensorOpAdd;
        let (from, bias, to) = (from.address().cast(), bias.address().cast(), to.address().cast());
        let (one, zero) = (number(&ONE), number(&ZERO));
        call!(self, miopenOpTensor(self.handle, add, one, self.y, from, one, self.bias, bias, zero, self.y, to))
    }

    fn relu(&self, from: &DeviceMemory, to: &DeviceMemory) -> Result<()> {
        let (from, to) = (from.address().cast(), to.address().cast());
        let (one, zero) = (number(&ONE), number(&ZERO));
        call!(self, miopenActivationForward(self.handle, self.activation, one, self.y, from, zero, self.y, to))
    }

    /// The leanest sequence of MIOpen's calls for convolution, bias and ReLU: in place behind the convolution.
    pub(crate) fn run_fused(&self) -> Result<()> {
        let y = &self.memory.y;
        self.run(y)?;
        self.add_bias(y, &self.memory.b, y)?;
        self.relu(y, y)
    }

    /// Calls of AMD's provider for an execution of a convolution: it looks each buffer up by uid, reads, sets and
    /// restores the tuning policy, takes the plan's mutex, finds an algorithm the first time, and calls the interface by
    /// algorithm, which looks for a kernel by a text of the problem.
    pub(crate) fn provider_convolution(&self, buffers: &[DeviceBuffer]) -> Result<()> {
        let [x, w, y] = [lookup(buffers, X)?, lookup(buffers, WEIGHTS)?, lookup(buffers, SUMS)?];
        let (workspace, bytes) = self.workspace();
        let policies = self.miopen.functions.miopenGetTuningPolicy.zip(self.miopen.functions.miopenSetTuningPolicy);
        let mut before = miopenTuningPolicy_t::miopenTuningPolicyNone;
        if let Some((get, set)) = policies {
            // SAFETY: the handle lives in the peer, and the place is a local.
            check("miopenGetTuningPolicy", unsafe { get(self.handle, &mut before) })?;
            // SAFETY: the handle lives in the peer; the policy is a number.
            let status = unsafe { set(self.handle, miopenTuningPolicy_t::miopenTuningPolicyNone) };
            check("miopenSetTuningPolicy", status)?;
        }
        let algorithm = {
            let mut algorithm = self.algorithm.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            match *algorithm {
                Some(algorithm) => algorithm,
                None => *algorithm.insert(self.find_algorithm(x, w, y, workspace, bytes)?),
            }
        };
        call!(
            self,
            miopenConvolutionForward(
                self.handle,
                number(&ONE),
                self.x,
                x.cast_const(),
                self.w,
                w.cast_const(),
                self.convolution,
                algorithm,
                number(&ZERO),
                self.y,
                y,
                workspace,
                bytes
            )
        )?;
        if let Some((_, set)) = policies {
            // SAFETY: the handle lives in the peer; the policy is the one that was read.
            check("miopenSetTuningPolicy", unsafe { set(self.handle, before) })?;
        }
        Ok(())
    }

    fn find_algorithm(
        &self,
        x: *mut c_void,
        w: *mut c_void,
        y: *mut c_void,
        workspace: *mut c_void,
        bytes: usize,
    ) -> Result<miopenConvFwdAlgorithm_t> {
        // SAFETY: a struct of numbers, for which zero is a value.
        let mut found: miopenConvAlgoPerf_t = unsafe { std::mem::zeroed() };
        let mut count = 0;
        call!(
            self,
            miopenFindConvolutionForwardAlgorithm(
                self.handle,
                self.x,
                x.cast_const(),
                self.w,
                w.cast_const(),
                self.convolution,
                self.y,
                y,
                1,
                &mut count,
                &mut found,
                workspace,
                bytes,
                false
            )
        )?;
        if count < 1 {
            return Err("miopenFindConvolutionForwardAlgorithm found none".into());
        }
        // SAFETY: a forward search fills the forward member of the union.
        Ok(unsafe { found.__bindgen_anon_1.fwd_algo })
    }

    /// Calls of a client of AMD's provider for convolution, bias and ReLU where MIOpen has no fused kernel: the
    /// provider's plans for the convolution, the sum and the activation one after the other, each with its own buffers.
    pub(crate) fn provider_fused(&self, buffers: &[DeviceBuffer]) -> Result<()> {
        self.provider_convolution(buffers)?;
        for uid in [SUMS, B, BIASED] {
            std::hint::black_box(lookup(buffers, uid)?);
        }
        self.add_bias(&self.memory.sums, &self.memory.b, &self.memory.biased)?;
        for uid in [BIASED, Y] {
            std::hint::black_box(lookup(buffers, uid)?);
        }
        self.relu(&self.memory.biased, &self.memory.y)
    }

    /// Questions of AMD's provider before it has a plan: the solutions for applicability, for the details and for the
    /// plan
    /// twice, and the workspace for the details and for the plan. The memory for it comes from the client.
    pub(crate) fn provider_prepare(&mut self, hip: &'static Hip) -> Result<()> {
        let mut bytes = 0;
        for workspace in [false, true, false, true] {
            let mut count = 0;
            call!(
                self,
                miopenConvolutionForwardGetSolutionCount(
                    self.handle,
                    self.w,
                    self.x,
                    self.convolution,
                    self.y,
                    &mut count
                )
            )?;
            if workspace {
                call!(
                    self,
                    miopenConvolutionForwardGetWorkSpaceSize(
                        self.handle,
                        self.w,
                        self.x,
                        self.convolution,
                        self.y,
                        &mut bytes
                    )
                )?;
            }
        }
        self.workspace = Some(hip.memory(bytes)?);
        Ok(())
    }
}

const EMPTY_SOLUTION: miopenConvSolution_t = miopenConvSolution_t {
    time: 0.0,
    workspace_size: 0,
    solution_id: 0,
    algorithm: miopenConvAlgorithm_t::miopenConvolutionAlgoGEMM,
};

fn note(refused: &mut String, id: u64, error: &impl Display) {
    use std::fmt::Write;
    let _ = write!(refused, "{}{id} ({error})", if refused.is_empty() { "" } else { ", " });
}

/// Linear search, as the provider does it.
fn lookup(buffers: &[DeviceBuffer], uid: i64) -> Result<*mut c_void> {
    let found = buffers.iter().find(|buffer| buffer.uid == uid);
    found.map(|buffer| buffer.ptr).ok_or_else(|| format!("no buffer for tensor {uid}").into())
}

impl Drop for Peer {
    fn drop(&mut self) {
        let functions = &self.miopen.functions;
        // SAFETY: all of it was made by these functions, once, and nothing uses it any more.
        unsafe {
            if let Some(solution) = self.find {
                (functions.miopenDestroySolution)(solution);
            }
            (functions.miopenDestroyActivationDescriptor)(self.activation);
            (functions.miopenDestroyConvolutionDescriptor)(self.convolution);
            for tensor in [self.x, self.w, self.y, self.bias] {
                (functions.miopenDestroyTensorDescriptor)(tensor);
            }
            (functions.miopenDestroy)(self.handle);
        }
    }
}
