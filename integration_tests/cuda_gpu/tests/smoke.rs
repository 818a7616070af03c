//! The library's calls on a driver without a GPU (`driver.c`): the functions that HIP's clients need are there, and reach the driver as
//! they should.

mod library;

use std::ffi::{CStr, c_void};
use std::process::Command;
use std::ptr::null_mut;

use hipdnn_sdk_bindings::hip::{
    self, HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END, hipError_t,
    hipMemcpyKind,
};
use hipdnn_sdk_bindings::hiprtc::{self, hiprtcResult};
use hipdnn_sdk_bindings::library::Library;
use hipdnn_sdk_bindings::miopen::{self, miopenDataType_t, miopenStatus_t};

/// The driver, loaded under the name by which the library opens it.
fn driver() -> Option<Library> {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/driver.c");
    let file = directory.join("libcuda.so");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let arguments = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so", "-o"];
    match Command::new(compiler).args(arguments).arg(&file).arg(source).status() {
        Ok(status) => assert!(status.success(), "the driver compiles"),
        Err(problem) => {
            println!("skipped: no C compiler: {problem}");
            return None;
        }
    }
    // SAFETY: the file is ours and has no initializers.
    Some(unsafe { Library::open("the driver", [file]) }.expect("the driver opens"))
}

#[test]
fn hips_clients_reach_the_driver() {
    let Some(driver) = driver() else { return };
    let library = library::open();
    // SAFETY: the library's functions of these names have HIP's signatures.
    let hip = unsafe { hip::Functions::load(&library) }.expect("all required functions of HIP");
    // SAFETY: each call gets the places and handles that HIP's functions of these names want.
    unsafe {
        let mut count = 0;
        assert_eq!((hip.hipGetDeviceCount)(&mut count), hipError_t::hipSuccess);
        assert_eq!(count, 1);
        assert_eq!((hip.hipSetDevice)(1), hipError_t::hipErrorInvalidDevice);
        assert_eq!((hip.hipGetLastError)(), hipError_t::hipErrorInvalidDevice);
        let properties = hip.device_properties(0).expect("properties");
        assert!(properties.arch().starts_with("sm_90:prelude-"), "{}", properties.arch());
        assert_eq!((properties.name().as_str(), properties.known.multiProcessorCount), ("no GPU", 132));

        let (mut memory, sent, mut back) = (null_mut(), [1u8, 2, 3, 4], [0u8; 4]);
        assert_eq!((hip.hipMalloc)(&mut memory, 4), hipError_t::hipSuccess);
        let kind = hipMemcpyKind::hipMemcpyDefault;
        assert_eq!((hip.hipMemcpy)(memory, sent.as_ptr().cast(), 4, kind), hipError_t::hipSuccess);
        assert_eq!((hip.hipMemset)(memory, 7, 1), hipError_t::hipSuccess);
        assert_eq!((hip.hipMemcpy)(back.as_mut_ptr().cast(), memory, 4, kind), hipError_t::hipSuccess);
        assert_eq!(back, [7, 2, 3, 4]);
        assert_eq!((hip.hipFree)(memory), hipError_t::hipSuccess);
        assert_eq!((hip.hipFree)(null_mut()), hipError_t::hipSuccess);

        let (mut module, mut function, mut stream) = (null_mut(), null_mut(), null_mut());
        assert_eq!((hip.hipModuleLoadData)(&mut module, c"not ELF".as_ptr().cast()), hipError_t::hipErrorInvalidImage);
        assert_eq!((hip.hipModuleLoadData)(&mut module, c"\x7fELF".as_ptr().cast()), hipError_t::hipSuccess);
        assert_eq!(
            (hip.hipModuleGetFunction)(&mut function, module, c"no_such_kernel".as_ptr()),
            hipError_t::hipErrorNotFound
        );
        assert_eq!((hip.hipModuleGetFunction)(&mut function, module, c"kernel".as_ptr()), hipError_t::hipSuccess);
        assert_eq!((hip.hipStreamCreateWithFlags)(&mut stream, 1), hipError_t::hipSuccess);
        let mut ordinal = -1;
        assert_eq!((hip.hipStreamGetDevice)(stream, &mut ordinal), hipError_t::hipSuccess);
        assert_eq!(ordinal, 0);

        let (arguments, mut bytes) = (*b"packed arguments", 16usize);
        let mut extra: [*mut c_void; 5] = [
            HIP_LAUNCH_PARAM_BUFFER_POINTER,
            arguments.as_ptr().cast_mut().cast(),
            HIP_LAUNCH_PARAM_BUFFER_SIZE,
            (&raw mut bytes).cast(),
            HIP_LAUNCH_PARAM_END,
        ];
        let (none, list) = (null_mut(), extra.as_mut_ptr());
        assert_eq!(
            (hip.hipModuleLaunchKernel)(function, 3, 2, 1, 64, 1, 1, 0, stream, none, list),
            hipError_t::hipSuccess
        );
        assert_eq!(launched(&driver), (1, [3, 2, 1], b"packed arguments".to_vec()));
        // This one takes threads in place of blocks.
        let launch = hip.hipExtModuleLaunchKernel;
        let (start, stop) = (null_mut(), null_mut());
        assert_eq!(
            launch(function, 130, 1, 1, 64, 1, 1, 0, stream, none, list, start, stop, 0),
            hipError_t::hipSuccess
        );
        assert_eq!(launched(&driver), (2, [3, 1, 1], b"packed arguments".to_vec()));
    }
    nodes_are_told(&hip, &driver);
    compiles_or_says_why(&library);
    convolutions_are_offered(&library);
    fusion_plans_want_cudnn(&library);
}

/// How many launches there were, and grid and arguments of the last.
fn launched(driver: &Library) -> (u64, [u32; 3], Vec<u8>) {
    // SAFETY: these are the driver's variables of these types, which no other thread changes now.
    unsafe {
        let launches: *const u64 = driver.symbol(c"fake_launches").expect("a variable");
        let grid: *const [u32; 3] = driver.symbol(c"fake_grid").expect("a variable");
        let bytes: *const usize = driver.symbol(c"fake_argument_bytes").expect("a variable");
        let arguments: *const u8 = driver.symbol(c"fake_arguments").expect("a variable");
        (*launches, *grid, std::slice::from_raw_parts(arguments, *bytes).to_vec())
    }
}

/// The packed arguments of a node that was told.
///
/// # Safety
/// The list is of packed arguments, as HIP tells them.
unsafe fn arguments(kernel: &hip::hipKernelNodeParams) -> Vec<u8> {
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(kernel.extra, 5) };
    let tags = [HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END];
    assert_eq!([list[0], list[2], list[4]], tags);
    // SAFETY: behind the tags are the address of the bytes, and that of their number.
    unsafe { std::slice::from_raw_parts(list[1].cast::<u8>(), *list[3].cast::<usize>()) }.to_vec()
}

/// What a captured kernel got comes back as HIP tells it: packed, however it was passed.
fn nodes_are_told(hip: &hip::Functions, driver: &Library) {
    // SAFETY: the driver's variable is there for as long as the driver.
    let nodes: *mut u8 = unsafe { driver.symbol(c"fake_nodes") }.expect("a variable");
    let [plain, grouped, packed]: [hip::hipGraphNode_t; 3] = [0, 1, 2].map(|index| nodes.wrapping_add(index).cast());
    // SAFETY: numbers and addresses, for which zeros are values.
    let (mut kernel, mut fill): (hip::hipKernelNodeParams, hip::hipMemsetParams) = unsafe { std::mem::zeroed() };
    // SAFETY: the nodes are the driver's, and the places are of what is asked for; the list is HIP's of packed arguments.
    unsafe {
        assert_eq!((hip.hipGraphKernelNodeGetParams)(packed, &mut kernel), hipError_t::hipSuccess);
        assert_eq!(arguments(&kernel), b"packed arguments");
        // The function of a launch in groups launches in groups again.
        assert_eq!((hip.hipGraphKernelNodeGetParams)(grouped, &mut kernel), hipError_t::hipSuccess);
        let (function, none) = (kernel.func, null_mut());
        assert_eq!(
            (hip.hipModuleLaunchKernel)(function.cast(), 4, 2, 1, 64, 1, 1, 0, null_mut(), none, kernel.extra),
            hipError_t::hipSuccess
        );
        let clusters: *const u32 = driver.symbol(c"fake_cluster").expect("a variable");
        assert_eq!((*clusters, launched(driver).1), (2, [4, 2, 1]));
        assert_eq!((hip.hipGraphKernelNodeGetParams)(plain, &mut kernel), hipError_t::hipSuccess);
        assert_ne!(kernel.func, function);
        assert_eq!((kernel.gridDim.x, kernel.gridDim.y, kernel.blockDim.x), (3, 2, 64));
        assert!(!kernel.func.is_null() && kernel.sharedMemBytes == 16);
        assert_eq!(arguments(&kernel), [0x1122_3344_5566_7788u64, 5, 7].map(u64::to_ne_bytes).concat());
        assert_eq!((hip.hipGraphMemsetNodeGetParams)(plain, &mut fill), hipError_t::hipSuccess);
        assert_eq!((fill.dst as usize, fill.value, fill.elementSize, fill.width, fill.height), (4096, 7, 4, 12, 1));
    }
}

/// A kernel of HIP's compiles where NVRTC is; elsewhere the log says that it is not there.
fn compiles_or_says_why(library: &Library) {
    const TEXT: &CStr = c"typedef float V __attribute__((ext_vector_type(4), aligned(4)));
extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(64, 64))) void kernel(V* x, _Float16* y) {
  const unsigned i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  x[i] = V{x[i].x, 1.0f, 2.0f, float(y[i])};
}";
    // SAFETY: the library's functions of these names have hiprtc's signatures.
    let rtc = unsafe { hiprtc::Functions::load(library) }.expect("all required functions of hiprtc");
    let mut program = null_mut();
    // SAFETY: each call gets the places, texts and handles that hiprtc's functions of these names want.
    unsafe {
        let created = (rtc.hiprtcCreateProgram)(
            &mut program,
            TEXT.as_ptr(),
            c"kernel.hip".as_ptr(),
            0,
            std::ptr::null(),
            std::ptr::null(),
        );
        assert_eq!(created, hiprtcResult::HIPRTC_SUCCESS);
        let options = [c"--offload-arch=sm_90".as_ptr(), c"-O3".as_ptr()];
        let compiled = (rtc.hiprtcCompileProgram)(program, 2, options.as_ptr());
        let mut bytes = 0;
        assert_eq!((rtc.hiprtcGetProgramLogSize)(program, &mut bytes), hiprtcResult::HIPRTC_SUCCESS);
        let mut log = vec![0u8; bytes];
        assert_eq!((rtc.hiprtcGetProgramLog)(program, log.as_mut_ptr().cast()), hiprtcResult::HIPRTC_SUCCESS);
        let log = CStr::from_bytes_until_nul(&log).expect("a text").to_string_lossy();
        if compiled == hiprtcResult::HIPRTC_SUCCESS {
            assert_eq!((rtc.hiprtcGetCodeSize)(program, &mut bytes), hiprtcResult::HIPRTC_SUCCESS);
            let mut code = vec![0u8; bytes];
            assert_eq!((rtc.hiprtcGetCode)(program, code.as_mut_ptr().cast()), hiprtcResult::HIPRTC_SUCCESS);
            assert_eq!(code[..4], *b"\x7fELF");
        } else {
            println!("kernels are not compiled: {log}");
            assert_eq!(log, "NVRTC (libnvrtc.so) can't be opened");
        }
        assert_eq!((rtc.hiprtcDestroyProgram)(&mut program), hiprtcResult::HIPRTC_SUCCESS);
        assert!(program.is_null());
    }
}

/// Where cuDNN is not there, the plain kernel is the one solution, under MIOpen's number of its own.
fn convolutions_are_offered(library: &Library) {
    const NAIVE_FORWARD: u64 = 85;
    // SAFETY: the library's functions of these names have MIOpen's signatures.
    let miopen = unsafe { miopen::Functions::load(library) }.expect("all required functions of MIOpen");
    let good = miopenStatus_t::miopenStatusSuccess;
    // SAFETY: each call gets the places, lists and handles that MIOpen's functions of these names want.
    unsafe {
        let (mut handle, mut convolution) = (null_mut(), null_mut());
        assert_eq!((miopen.miopenCreateWithStream)(&mut handle, null_mut()), good);
        let tensor = |dims: [usize; 4]| {
            let mut made = null_mut();
            assert_eq!((miopen.miopenCreateTensorDescriptor)(&mut made), good);
            let [_, c, h, w] = dims;
            let (strides, float) = ([c * h * w, h * w, w, 1], miopenDataType_t::miopenFloat);
            assert_eq!((miopen.miopenSetTensorDescriptorV2)(made, float, 4, dims.as_ptr(), strides.as_ptr()), good);
            made
        };
        let (x, w, y) = (tensor([1, 4, 8, 8]), tensor([6, 2, 3, 3]), tensor([1, 6, 8, 8]));
        assert_eq!((miopen.miopenCreateConvolutionDescriptor)(&mut convolution), good);
        let (ones, mode) = ([1i32; 2], miopen::miopenConvolutionMode_t::miopenConvolution);
        let initialize = miopen.miopenInitConvolutionNdDescriptor;
        assert_eq!(initialize(convolution, 2, ones.as_ptr(), ones.as_ptr(), ones.as_ptr(), mode), good);
        let (mut count, mut solutions) = (0, [miopen::miopenConvSolution_t::default(); 8]);
        let mut ask = || {
            let list = solutions.as_mut_ptr();
            (miopen.miopenConvolutionForwardGetSolution)(handle, w, x, convolution, y, 8, &mut count, list)
        };
        assert_eq!(ask(), miopenStatus_t::miopenStatusBadParm, "two groups of two channels, described as one of two");
        assert_eq!((miopen.miopenSetConvolutionGroupCount)(convolution, 2), good);
        assert_eq!(ask(), good);
        let offered: Vec<u64> = solutions[..count].iter().map(|solution| solution.solution_id).collect();
        assert_eq!(offered.last(), Some(&NAIVE_FORWARD), "{offered:?}");
        let mut bytes = 77;
        let size = miopen.miopenConvolutionForwardGetSolutionWorkspaceSize;
        assert_eq!(size(handle, w, x, convolution, y, NAIVE_FORWARD, &mut bytes), good);
        assert_eq!(bytes, 0);
        let of_another_direction = size(handle, w, x, convolution, y, NAIVE_FORWARD + 1, &mut bytes);
        assert_eq!(of_another_direction, miopenStatus_t::miopenStatusBadParm);
        for made in [x, w, y] {
            assert_eq!((miopen.miopenDestroyTensorDescriptor)(made), good);
        }
        assert_eq!((miopen.miopenDestroyConvolutionDescriptor)(convolution), good);
        assert_eq!((miopen.miopenDestroy)(handle), good);
    }
}

/// A convolution with bias and ReLU is cuDNN's: without it the plan does not compile, and the engine computes the parts.
fn fusion_plans_want_cudnn(library: &Library) {
    // SAFETY: the library's functions of these names have MIOpen's signatures.
    let miopen = unsafe { miopen::Functions::load(library) }.expect("all required functions of MIOpen");
    assert!(miopen.miopenExecuteFusionPlan_v2.is_some());
    let good = miopenStatus_t::miopenStatusSuccess;
    // SAFETY: each call gets the places, lists and handles that MIOpen's functions of these names want.
    unsafe {
        let (mut handle, mut convolution, mut plan) = (null_mut(), null_mut(), null_mut());
        assert_eq!((miopen.miopenCreateWithStream)(&mut handle, null_mut()), good);
        let tensor = |dims: [i32; 4]| {
            let mut made = null_mut();
            assert_eq!((miopen.miopenCreateTensorDescriptor)(&mut made), good);
            let ([n, c, h, w], half) = (dims, miopenDataType_t::miopenHalf);
            assert_eq!((miopen.miopenSet4dTensorDescriptor)(made, half, n, c, h, w), good);
            made
        };
        let (x, w, bias) = (tensor([1, 8, 6, 6]), tensor([16, 8, 1, 1]), tensor([1, 16, 1, 1]));
        assert_eq!((miopen.miopenCreateConvolutionDescriptor)(&mut convolution), good);
        let vertical = miopen::miopenFusionDirection_t::miopenVerticalFusion;
        assert_eq!((miopen.miopenCreateFusionPlan)(&mut plan, vertical, x), good);
        let [mut first, mut second, mut third] = [null_mut(); 3];
        assert_eq!((miopen.miopenCreateOpConvForward)(plan, &mut first, convolution, w), good);
        assert_eq!((miopen.miopenCreateOpBiasForward)(plan, &mut second, bias), good);
        let compiled = (miopen.miopenCompileFusionPlan)(handle, plan);
        assert!(
            [good, miopenStatus_t::miopenStatusNotImplemented].contains(&compiled),
            "cuDNN has it where it is: {compiled}"
        );
        let relu = miopen::miopenActivationMode_t::miopenActivationRELU;
        assert_eq!((miopen.miopenCreateOpActivationForward)(plan, &mut third, relu), good);
        assert_eq!((miopen.miopenCreateOpActivationForward)(plan, &mut third, relu), good);
        assert_eq!((miopen.miopenCompileFusionPlan)(handle, plan), miopenStatus_t::miopenStatusUnsupportedOp, "twice");
        assert!(first != second && second != third);
        assert_eq!((miopen.miopenDestroyFusionPlan)(plan), good);
        for made in [x, w, bias] {
            assert_eq!((miopen.miopenDestroyTensorDescriptor)(made), good);
        }
        assert_eq!((miopen.miopenDestroyConvolutionDescriptor)(convolution), good);
        assert_eq!((miopen.miopenDestroy)(handle), good);
    }
}
