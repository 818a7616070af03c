// Convolutions by the real MIOpen, all directions, types and layouts, on the emulated device.
#include "miopen_case.h"

#include "../include/hipemu_control.h"

#include <filesystem>
#include <atomic>
#include <fstream>
#include <thread>
#include <unistd.h>

namespace {
hipemu_counters counters()
{
    hipemu_counters all;
    hipemu_get_counters(&all, sizeof all);
    return all;
}

// The names of the functions called while `body` ran, by the trace.
std::vector<std::string> called(const std::function<void()>& body)
{
    std::string path = (std::filesystem::temp_directory_path() / ("hipemu-trace-" + std::to_string(getpid()))).string();
    EXPECT(hipemu_trace(path.c_str()) == 0);
    body();
    EXPECT(hipemu_trace(nullptr) == 0);
    std::vector<std::string> names;
    std::ifstream file(path);
    for(std::string line; std::getline(file, line);)
    {
        const std::string key = "\"call\":\"";
        size_t at             = line.find(key);
        if(at == std::string::npos) continue;
        at += key.size();
        names.push_back(line.substr(at, line.find('"', at) - at));
    }
    unlink(path.c_str());
    return names;
}
} // namespace

int main()
{
    // The assembly of the Winograd solvers, and of CDNA's implicit products, is not in Debian's package.
    setenv("MIOPEN_DEBUG_CONV_WINOGRAD", "0", 1);
    setenv("MIOPEN_DEBUG_CONV_IMPLICIT_GEMM", "0", 1);
    miopenHandle_t handle = nullptr;
    check::test("create a handle", [&] { MIOPEN(miopenCreate(&handle)); });
    if(!handle) return check::result();

    struct Shape { int n, c, h, w, k, r, s, pad, stride, dilation, groups; };
    const Shape shapes[] = {
        {1, 4, 8, 8, 8, 3, 3, 1, 1, 1, 1}, // plain
        {2, 4, 7, 9, 4, 3, 2, 0, 1, 1, 1}, // uneven
        {1, 4, 8, 8, 4, 1, 1, 0, 1, 1, 1}, // pointwise
        {1, 4, 9, 9, 6, 3, 3, 1, 2, 1, 2}, // stride and groups
        {1, 4, 9, 9, 4, 3, 3, 2, 1, 2, 4}, // dilation and depthwise
    };
    for(auto direction : {Direction::Forward, Direction::Backward, Direction::Weights})
        for(auto type : {miopenFloat, miopenHalf, miopenBFloat16})
            for(auto layout : {Layout::ChannelsFirst, Layout::ChannelsLast})
                for(auto& f : shapes)
                {
                    Problem p{type, direction, layout, f.n, f.c, f.h, f.w, f.k, f.r, f.s, f.pad, f.stride, f.dilation, f.groups};
                    check::test(p.name(), [&] {
                        Case one(p);
                        one.launch(handle, p.naive_solver());
                        one.compare();
                    });
                }
    check::test("a run of a compiled solution sets the device, launches and nothing else", [&] {
        Case one(Problem{});
        one.compile(handle, 85);
        one.launch(handle, 85);
        auto names = called([&] { one.launch(handle, 85); });
        std::string all;
        for(auto& name : names) all += " " + name;
        if(all != " hipSetDevice hipExtModuleLaunchKernel") check::fail("called%s", all.c_str());
        one.compare();
    });
    check::test("a run of a compiled solution can be captured", [&] {
        hipStream_t stream;
        hipGraph_t graph;
        hipGraphExec_t exec;
        miopenHandle_t own;
        HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
        MIOPEN(miopenCreateWithStream(&own, stream));
        {
            Case one(Problem{});
            one.compile(own, 85);
            HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
            one.launch(own, 85);
            HIP(hipStreamEndCapture(stream, &graph));
            size_t nodes;
            HIP(hipGraphGetNodes(graph, nullptr, &nodes));
            EXPECT(nodes == 1);
            HIP(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
            HIP(hipGraphLaunch(exec, stream));
            HIP(hipStreamSynchronize(stream));
            one.compare();
        }
        HIP(hipGraphExecDestroy(exec));
        HIP(hipGraphDestroy(graph));
        MIOPEN(miopenDestroy(own));
        HIP(hipStreamDestroy(stream));
    });
    check::test("what was captured runs on other buffers without MIOpen", [&] {
        hipStream_t stream;
        hipGraph_t graph;
        hipGraphNode_t node;
        hipKernelNodeParams params;
        miopenHandle_t own;
        HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
        MIOPEN(miopenCreateWithStream(&own, stream));
        {
            Case one(Problem{}), two(Problem{});
            one.compile(own, 85);
            HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
            one.launch(own, 85);
            HIP(hipStreamEndCapture(stream, &graph));
            size_t count = 1;
            HIP(hipGraphGetNodes(graph, &node, &count));
            HIP(hipGraphKernelNodeGetParams(node, &params));
            EXPECT(params.kernelParams == nullptr && params.extra != nullptr);
            size_t bytes = *(size_t*)params.extra[3];
            EXPECT(bytes % 8 == 0);
            std::vector<void*> words(bytes / 8);
            memcpy(words.data(), params.extra[1], bytes);
            int replaced = 0;
            for(auto& word : words)
                for(auto [from, to] : {std::pair{&one.x, &two.x}, std::pair{&one.weights, &two.weights}, std::pair{&one.y, &two.y}})
                    if(word == from->device)
                    {
                        word = to->device;
                        replaced++;
                        break;
                    }
            EXPECT(replaced == 3);
            void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, words.data(), HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HIP_LAUNCH_PARAM_END};
            HIP(hipModuleLaunchKernel((hipFunction_t)params.func, params.gridDim.x, params.gridDim.y, params.gridDim.z, params.blockDim.x,
                                      params.blockDim.y, params.blockDim.z, params.sharedMemBytes, stream, nullptr, extra));
            HIP(hipStreamSynchronize(stream));
            two.compare();
        }
        HIP(hipGraphDestroy(graph));
        MIOPEN(miopenDestroy(own));
        HIP(hipStreamDestroy(stream));
    });
    check::test("a compile while capturing is refused", [&] {
        hipStream_t stream;
        hipGraph_t graph;
        miopenHandle_t own;
        HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
        MIOPEN(miopenCreateWithStream(&own, stream));
        {
            Case one(Problem{});
            HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
            // The handle has not loaded the kernel yet.
            miopenStatus_t status = miopenConvolutionForwardCompileSolution(own, one.weights.descriptor, one.x.descriptor, one.convolution,
                                                                            one.y.descriptor, 85);
            EXPECT(status != miopenStatusSuccess);
            HIP_GIVES(hipErrorStreamCaptureInvalidated, hipStreamEndCapture(stream, &graph));
        }
        MIOPEN(miopenDestroy(own));
        HIP(hipStreamDestroy(stream));
    });
    check::test("a run on a delayed stream is not done at the return", [&] {
        hipStream_t stream;
        miopenHandle_t own;
        HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
        MIOPEN(miopenCreateWithStream(&own, stream));
        {
            Case one(Problem{});
            one.compile(own, 85);
            hipemu_hold_streams(1);
            one.launch(own, 85);
            hipError_t pending = hipStreamQuery(stream);
            hipemu_hold_streams(0);
            EXPECT(pending == hipErrorNotReady);
            HIP(hipStreamSynchronize(stream));
            one.compare();
        }
        MIOPEN(miopenDestroy(own));
        HIP(hipStreamDestroy(stream));
    });
    check::test("8 threads with own handles on delayed streams", [&] {
        hipemu_set_delay(2000, 11);
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for(int t = 0; t < 8; t++)
            threads.emplace_back([&, t] {
                try
                {
                    hipStream_t stream;
                    miopenHandle_t own;
                    HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
                    MIOPEN(miopenCreateWithStream(&own, stream));
                    Problem p;
                    p.direction = Direction(t % 3);
                    p.h         = 6 + t;
                    {
                        Case one(p);
                        for(int i = 0; i < 3; i++) one.launch(own, p.naive_solver());
                        HIP(hipStreamSynchronize(stream));
                        one.compare();
                    }
                    MIOPEN(miopenDestroy(own));
                    HIP(hipStreamDestroy(stream));
                }
                catch(const std::exception& problem)
                {
                    fprintf(stderr, "thread %d: %s\n", t, problem.what());
                    wrong++;
                }
            });
        for(auto& thread : threads) thread.join();
        hipemu_set_delay(0, 1);
        EXPECT(wrong == 0);
    });
    check::test("a search runs on delayed streams", [&] {
        hipemu_set_delay(500, 5);
        Case one(Problem{});
        size_t bytes;
        MIOPEN(miopenConvolutionForwardGetWorkSpaceSize(handle, one.weights.descriptor, one.x.descriptor, one.convolution, one.y.descriptor, &bytes));
        void* workspace = nullptr;
        if(bytes) HIP(hipMalloc(&workspace, bytes));
        miopenConvAlgoPerf_t results[4];
        int found = 0;
        MIOPEN(miopenFindConvolutionForwardAlgorithm(handle, one.x.descriptor, one.x.device, one.weights.descriptor, one.weights.device, one.convolution,
                                                     one.y.descriptor, one.y.device, 4, &found, results, workspace, bytes, false));
        EXPECT(found > 0);
        float alpha = 1, beta = 0;
        MIOPEN(miopenConvolutionForward(handle, &alpha, one.x.descriptor, one.x.device, one.weights.descriptor, one.weights.device, one.convolution,
                                        results[0].fwd_algo, &beta, one.y.descriptor, one.y.device, workspace, bytes));
        HIP(hipDeviceSynchronize());
        one.compare();
        HIP(hipFree(workspace));
        hipemu_set_delay(0, 1);
    });
    check::test("a kernel that fails is told at the next wait", [&] {
        Case one(Problem{});
        one.launch(handle, 85);
        HIP(hipDeviceSynchronize());
        hipemu_fail_call("kernel", 1, hipErrorLaunchFailure);
        one.launch(handle, 85);
        HIP_GIVES(hipErrorLaunchFailure, hipStreamSynchronize(nullptr));
    });
    check::test("a launch that fails is a status", [&] {
        Case one(Problem{});
        one.compile(handle, 85);
        hipemu_fail_call("hipExtModuleLaunchKernel", 1, hipErrorLaunchFailure);
        miopenStatus_t status = miopenConvolutionForwardImmediate(handle, one.weights.descriptor, one.weights.device, one.x.descriptor, one.x.device,
                                                                  one.convolution, one.y.descriptor, one.y.device, nullptr, 0, 85);
        EXPECT(status != miopenStatusSuccess);
        one.launch(handle, 85);
        one.compare();
    });
    check::test("a search that finds no memory is a status, and the handle still works", [&] {
        Case one(Problem{});
        hipemu_fail_call("hipModuleLoadData", 1, hipErrorOutOfMemory);
        hipemu_fail_call("hipModuleLoad", 1, hipErrorOutOfMemory);
        miopenHandle_t own;
        MIOPEN(miopenCreate(&own));
        miopenStatus_t status = miopenConvolutionForwardCompileSolution(own, one.weights.descriptor, one.x.descriptor, one.convolution, one.y.descriptor, 85);
        hipemu_fail_clear();
        EXPECT(status != miopenStatusSuccess);
        one.launch(own, 85);
        one.compare();
        MIOPEN(miopenDestroy(own));
    });
    check::test("destroy the handle", [&] { MIOPEN(miopenDestroy(handle)); });
    check::test("nothing is left", [&] {
        HIP(hipDeviceSynchronize());
        auto c = counters();
        EXPECT(c.live_streams == 0);
        EXPECT(c.live_events == 0);
        EXPECT(c.live_allocations == 0);
        EXPECT(c.live_modules == 0);
        EXPECT(c.violations == 0);
    });
    return check::result();
}
