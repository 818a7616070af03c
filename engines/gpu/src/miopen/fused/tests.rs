//! Fused kernels: questions to MIOpen, which are asked once, and plans where it says yes.

use hipdnn_engine_kernel::convolution::DataType;

use super::*;
use crate::context::{Context, Contexts};
use crate::device::Device;
use crate::hip::{DeviceMemory, Queue, Stream, gpu};
use crate::testing::skip;

fn problem() -> ConvolutionProblem {
    let shape = |dims: &[usize]| TensorShape::packed(DataType::Float, dims);
    ConvolutionProblem {
        direction: Direction::Forward,
        x: shape(&[1, 4, 16, 16]),
        w: shape(&[8, 4, 3, 3]),
        y: shape(&[1, 8, 16, 16]),
        padding: vec![1, 1],
        stride: vec![1, 1],
        dilation: vec![1, 1],
        groups: 1,
        deterministic: false,
    }
}

#[test]
fn activations_are_miopens() {
    for (activation, values) in [
        (Activation::Relu, [0.0, 0.0, 3.0]),
        (Activation::ClippedRelu { upper: 2.0 }, [0.0, 0.0, 2.0]),
        (Activation::LeakyRelu { slope: 0.5 }, [-1.0, 0.0, 3.0]),
        (Activation::Clamp { lower: -1.0, upper: 2.5 }, [-1.0, 0.0, 2.5]),
        (Activation::Abs, [2.0, 0.0, 3.0]),
        (Activation::Tanh, [(-2f64).tanh(), 0.0, 3f64.tanh()]),
        (Activation::Elu { alpha: 2.0 }, [2.0 * ((-2f64).exp() - 1.0), 0.0, 3.0]),
        (Activation::Logistic, [1.0 / (1.0 + 2f64.exp()), 0.5, 1.0 / (1.0 + (-3f64).exp())]),
    ] {
        let got = [-2.0, 0.0, 3.0].map(|value| activation.of(value));
        assert!(got.iter().zip(values).all(|(got, want)| (got - want).abs() < 1e-12), "{activation:?}: {got:?}");
    }
}

#[test]
fn what_does_not_compile_is_asked_once() {
    let Ok(_) = gpu().inspect_err(|reason| skip(reason)) else { return };
    let context = Contexts::get().current().expect("a device");
    let problem = problem();
    let epilogue = Epilogue { bias: true, activation: Some(Activation::Relu) };
    let ask = || prepare_fused(context.miopen().unwrap(), &problem, &epilogue, &Policy::default(), &Store::disabled());
    match ask().expect("an answer") {
        Some(prepared) => assert!(prepared.is_recorded(), "{}", prepared.describe()),
        None => {
            let choices = context.miopen().unwrap().memo().choices.lock().expect("nobody panicked").clone();
            let refused = |choice: &Choice| matches!(choice.verdict, Verdict::Refused(_));
            assert!(choices.values().any(refused), "{choices:?}");
            assert!(ask().expect("an answer").is_none());
        }
    }
    // What it can't promise is not asked.
    let deterministic = ConvolutionProblem { deterministic: true, ..problem.clone() };
    let answer =
        prepare_fused(context.miopen().unwrap(), &deterministic, &epilogue, &Policy::default(), &Store::disabled());
    assert!(answer.expect("an answer").is_none());
}

/// Stands in for MIOpen where it has a fused kernel: plans compile, and running one is a convolution, an addition and a
/// ReLU by MIOpen's other calls, and a fill of the workspace.
mod stand_in {
    use std::ffi::{c_int, c_void};
    use std::sync::Mutex;

    use hipdnn_sdk_bindings::hip::hipError_t;
    use hipdnn_sdk_bindings::miopen::*;

    use crate::hip::{Gpu, gpu};
    use crate::miopen::library::Library;

    /// Descriptors and addresses that the calls before left.
    #[derive(Default)]
    pub(crate) struct Given {
        convolution: usize,
        w: usize,
        w_at: usize,
        bias_at: usize,
        /// The kernel forgets the bias.
        pub(crate) broken: bool,
    }

    pub(crate) static GIVEN: Mutex<Given> =
        Mutex::new(Given { convolution: 0, w: 0, w_at: 0, bias_at: 0, broken: false });

    pub(crate) const WORKSPACE: usize = 512;

    const GOOD: miopenStatus_t = miopenStatus_t::miopenStatusSuccess;

    unsafe extern "C" fn compile(_: miopenHandle_t, _: miopenFusionPlanDescriptor_t) -> miopenStatus_t {
        GOOD
    }

    unsafe extern "C" fn workspace(
        _: miopenHandle_t,
        _: miopenFusionPlanDescriptor_t,
        bytes: *mut usize,
        _: miopenConvFwdAlgorithm_t,
    ) -> miopenStatus_t {
        // SAFETY: the caller's place.
        unsafe { *bytes = WORKSPACE };
        GOOD
    }

    unsafe extern "C" fn convolution(
        plan: miopenFusionPlanDescriptor_t,
        place: *mut miopenFusionOpDescriptor_t,
        convolution: miopenConvolutionDescriptor_t,
        w: miopenTensorDescriptor_t,
    ) -> miopenStatus_t {
        let mut given = GIVEN.lock().unwrap();
        (given.convolution, given.w) = (convolution as usize, w as usize);
        // SAFETY: the caller's arguments.
        unsafe {
            (Library::new(gpu().unwrap()).unwrap().functions.miopenCreateOpConvForward)(plan, place, convolution, w)
        }
    }

    unsafe extern "C" fn convolution_arguments(
        _: miopenOperatorArgs_t,
        _: miopenFusionOpDescriptor_t,
        _: *const c_void,
        _: *const c_void,
        w: *const c_void,
    ) -> miopenStatus_t {
        GIVEN.lock().unwrap().w_at = w as usize;
        GOOD
    }

    unsafe extern "C" fn bias_arguments(
        _: miopenOperatorArgs_t,
        _: miopenFusionOpDescriptor_t,
        _: *const c_void,
        _: *const c_void,
        bias: *const c_void,
    ) -> miopenStatus_t {
        GIVEN.lock().unwrap().bias_at = bias as usize;
        GOOD
    }

    unsafe extern "C" fn execute(
        handle: miopenHandle_t,
        _: miopenFusionPlanDescriptor_t,
        dx: miopenTensorDescriptor_t,
        x: *const c_void,
        dy: miopenTensorDescriptor_t,
        y: *mut c_void,
        _: miopenOperatorArgs_t,
        workspace: *mut c_void,
        bytes: usize,
    ) -> miopenStatus_t {
        let Library { gpu: Gpu { hip, .. }, functions: miopen, .. } = Library::new(gpu().unwrap()).unwrap();
        let given = GIVEN.lock().unwrap();
        let (one, zero) = (1f32, 0f32);
        let (one, zero): (*const c_void, *const c_void) = ((&raw const one).cast(), (&raw const zero).cast());
        let channels: [c_int; 4] = [1, 8, 1, 1];
        let mut stream = std::ptr::null_mut();
        let (mut bias, mut relu) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: handles and descriptors of the caller and of this function, addresses of the caller.
        unsafe {
            let statuses = [
                (miopen.miopenGetStream)(handle, &mut stream),
                (miopen.miopenCreateTensorDescriptor)(&mut bias),
                (miopen.miopenSet4dTensorDescriptor)(
                    bias,
                    miopenDataType_t::miopenFloat,
                    channels[0],
                    channels[1],
                    channels[2],
                    channels[3],
                ),
                (miopen.miopenCreateActivationDescriptor)(&mut relu),
                (miopen.miopenSetActivationDescriptor)(
                    relu,
                    miopenActivationMode_t::miopenActivationRELU,
                    0.0,
                    0.0,
                    0.0,
                ),
                (miopen.miopenConvolutionForwardImmediate)(
                    handle,
                    given.w as miopenTensorDescriptor_t,
                    given.w_at as *const c_void,
                    dx,
                    x,
                    given.convolution as miopenConvolutionDescriptor_t,
                    dy,
                    y,
                    std::ptr::null_mut(),
                    0,
                    85,
                ),
                (miopen.miopenOpTensor)(
                    handle,
                    miopenTensorOp_t::miopenTensorOpAdd,
                    one,
                    dy,
                    y,
                    if given.broken { zero } else { one },
                    bias,
                    given.bias_at as *const c_void,
                    zero,
                    dy,
                    y,
                ),
                (miopen.miopenActivationForward)(handle, relu, one, dy, y, zero, dy, y),
                (miopen.miopenDestroyActivationDescriptor)(relu),
                (miopen.miopenDestroyTensorDescriptor)(bias),
            ];
            let filled = (hip.hipMemsetAsync)(workspace, 0, bytes, stream);
            match statuses.into_iter().find(|status| *status != GOOD) {
                Some(status) => status,
                None if filled != hipError_t::hipSuccess => miopenStatus_t::miopenStatusInternalError,
                None => GOOD,
            }
        }
    }

    /// MIOpen with these calls in place of its own. The tests' process keeps them.
    pub(crate) fn library() -> Result<Library, &'static str> {
        let library = Library::new(gpu()?)?;
        let mut miopen = *library.functions;
        miopen.miopenCompileFusionPlan = compile;
        miopen.miopenFusionPlanGetWorkSpaceSize = workspace;
        miopen.miopenCreateOpConvForward = convolution;
        miopen.miopenSetOpArgsConvForward = convolution_arguments;
        miopen.miopenSetOpArgsBiasForward = bias_arguments;
        miopen.miopenExecuteFusionPlan_v2 = Some(execute);
        Ok(Library { functions: Box::leak(Box::new(miopen)), ..library })
    }
}

#[test]
fn a_fused_kernel_is_recorded_if_it_is_right() {
    let Ok(library) = stand_in::library().inspect_err(|reason| skip(reason)) else { return };
    let gpu = library.gpu;
    let problem = problem();
    let epilogue = Epilogue { bias: true, activation: Some(Activation::Relu) };
    let context = || Context::new(Device::new(gpu, gpu.current_device().unwrap()).unwrap(), Ok(library));
    let prepare = |context: &Context, policy: &Policy| {
        prepare_fused(context.miopen().unwrap(), &problem, &epilogue, policy, &Store::disabled()).expect("an answer")
    };
    let own = context();
    let policy = Policy::default();
    for again in [false, true] {
        let prepared = prepare(&own, &policy).expect("a fused kernel");
        assert!(prepared.is_recorded() && prepared.workspace_bytes() == stand_in::WORKSPACE, "again: {again}");
        assert!(prepared.describe().contains("recorded in 4 piece(s)"), "{}", prepared.describe());
    }
    let tight = Policy { workspace_limit: Some(stand_in::WORKSPACE - 1), ..policy.clone() };
    assert!(prepare(&own, &tight).is_none(), "more workspace than the limit");

    // Repeated with addresses of its own: x is 1 and w 1/4, so inside the image the convolution is 9.
    let prepared = prepare(&own, &policy).expect("a fused kernel");
    let stream = Stream::new(gpu).unwrap();
    let memory = |values: Vec<f32>| {
        let bytes: Vec<u8> = values.into_iter().flat_map(f32::to_ne_bytes).collect();
        let memory = DeviceMemory::new(gpu, bytes.len()).unwrap();
        memory.write(0, &bytes, &stream).unwrap();
        memory
    };
    let x = memory(vec![1.0; problem.x.elements()]);
    let w = memory(vec![0.25; problem.w.elements()]);
    let bias = memory((0..8).map(|k| k as f32 * -3.0).collect());
    let y = memory(vec![f32::NAN; problem.y.elements()]);
    let workspace = memory(vec![f32::NAN; stand_in::WORKSPACE / 4]);
    let raw = stream.raw().cast();
    // SAFETY: buffers of the problem's sizes and of the plan's workspace, waited for below.
    let launched = unsafe {
        let (x, w, y, workspace) = (x.address(), w.address(), y.address(), workspace.address());
        let without = prepared.launch(raw, x, w, y, workspace).expect_err("there is no bias");
        assert!(without.to_string().contains("expected an address of bias"), "{without}");
        prepared.launch_with_bias(&mut Queue::new(raw), x, w, bias.address(), y, workspace)
    };
    launched.unwrap();
    let mut bytes = vec![0; y.bytes()];
    y.read(0, &mut bytes, &stream).unwrap();
    for channel in 0..8 {
        let middle = (channel * 256 + 100) * 4;
        let got = f32::from_ne_bytes(bytes[middle..middle + 4].try_into().unwrap());
        assert_eq!(got, (9.0 - 3.0 * channel as f32).max(0.0), "channel {channel}");
    }

    // A kernel that computes something else is not used; the next process asks again.
    stand_in::GIVEN.lock().unwrap().broken = true;
    assert!(prepare(&context(), &policy).is_none(), "the bias is forgotten");
    stand_in::GIVEN.lock().unwrap().broken = false;
}
