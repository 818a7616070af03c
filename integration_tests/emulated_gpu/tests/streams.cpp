// Streams run later and in order; events, waits and the default stream order them against each other.
#include "kernels.h"

#include <atomic>
#include <thread>

int main()
{
    Kernels k;

    check::test("work runs after the call, in order", [&] {
        Buffer b(100, 1);
        Stream s;
        {
            Held held;
            launch(k.add, b, 2, s);
            launch(k.scale, b, 5, s);
            launch(k.add, b, 1, s);
            HIP_GIVES(hipErrorNotReady, hipStreamQuery(s));
            EXPECT(hipGetLastError() == hipSuccess); // "not ready" is no error
        }
        HIP(hipStreamSynchronize(s));
        HIP(hipStreamQuery(s));
        b.expect(16);
    });
    check::test("a wait while streams are held is refused, not endless", [&] {
        Buffer b(10);
        Stream s;
        auto before = counters().violations;
        {
            Held held;
            launch(k.add, b, 1, s);
            HIP_GIVES(hipErrorLaunchTimeOut, hipStreamSynchronize(s));
            HIP_GIVES(hipErrorLaunchTimeOut, hipDeviceSynchronize());
        }
        EXPECT(counters().violations == before + 2);
        HIP(hipStreamSynchronize(s));
        b.expect(1);
    });
    check::test("without an event two streams have no order", [&] {
        // The second stream is not slowed down by the first: one that forgot to wait reads the old value.
        Buffer b(64, 1), copy(64, 0);
        Stream slow, fast;
        std::atomic<bool> go{false};
        HIP(hipLaunchHostFunc(slow, [](void* flag) { while(!*(std::atomic<bool>*)flag) std::this_thread::yield(); }, &go));
        launch(k.add, b, 1, slow);
        HIP(hipMemcpyAsync(copy.p, b.p, 64 * 4, hipMemcpyDeviceToDevice, fast));
        HIP(hipStreamSynchronize(fast));
        go = true;
        HIP(hipStreamSynchronize(slow));
        copy.expect(1);
        b.expect(2);
    });
    check::test("a stream waits for an event of another", [&] {
        Buffer b(64, 1), copy(64, 0);
        Stream slow, fast;
        Event e(hipEventDisableTiming);
        std::atomic<bool> go{false};
        HIP(hipLaunchHostFunc(slow, [](void* flag) { while(!*(std::atomic<bool>*)flag) std::this_thread::yield(); }, &go));
        launch(k.add, b, 1, slow);
        HIP(hipEventRecord(e, slow));
        HIP_GIVES(hipErrorNotReady, hipEventQuery(e));
        HIP(hipStreamWaitEvent(fast, e, 0));
        HIP(hipMemcpyAsync(copy.p, b.p, 64 * 4, hipMemcpyDeviceToDevice, fast));
        HIP_GIVES(hipErrorNotReady, hipStreamQuery(fast));
        go = true;
        HIP(hipEventSynchronize(e));
        HIP(hipEventQuery(e));
        HIP(hipStreamSynchronize(fast));
        copy.expect(2);
    });
    check::test("an event recorded again is waited for as it was at the call", [&] {
        Stream a, b;
        Event e;
        HIP(hipEventRecord(e, a));
        HIP(hipStreamSynchronize(a));
        std::atomic<bool> go{false};
        HIP(hipStreamWaitEvent(b, e, 0));
        HIP(hipLaunchHostFunc(a, [](void* flag) { while(!*(std::atomic<bool>*)flag) std::this_thread::yield(); }, &go));
        HIP(hipEventRecord(e, a));
        HIP(hipStreamSynchronize(b)); // would hang if it waited for the second record
        go = true;
        HIP(hipEventSynchronize(e));
    });
    check::test("an event never recorded holds nobody", [&] {
        Stream s;
        Event e;
        HIP(hipStreamWaitEvent(s, e, 0));
        HIP(hipStreamSynchronize(s));
        HIP(hipEventQuery(e));
        HIP(hipEventSynchronize(e));
    });
    check::test("times between events", [&] {
        Stream s;
        Event a, b, untimed(hipEventDisableTiming);
        float ms;
        HIP_GIVES(hipErrorInvalidHandle, hipEventElapsedTime(&ms, a, b)); // never recorded
        HIP(hipEventRecord(a, s));
        HIP(hipEventRecord(b, s));
        HIP(hipEventRecord(untimed, s));
        HIP(hipStreamSynchronize(s));
        HIP(hipEventElapsedTime(&ms, a, b));
        EXPECT(ms > 0);
        HIP_GIVES(hipErrorInvalidHandle, hipEventElapsedTime(&ms, a, untimed));
    });
    check::test("the default stream waits for blocking streams and they for it", [&] {
        Buffer b(64, 1);
        Stream blocking(hipStreamDefault);
        {
            Held held;
            launch(k.add, b, 1, blocking);   // 2
            launch(k.scale, b, 3, nullptr);  // 6
            launch(k.add, b, 1, blocking);   // 7
        }
        HIP(hipStreamSynchronize(blocking));
        b.expect(7);
    });
    check::test("the default stream does not wait for a non-blocking stream", [&] {
        Buffer b(64, 1), other(64, 1);
        Stream s;
        std::atomic<bool> go{false};
        HIP(hipLaunchHostFunc(s, [](void* flag) { while(!*(std::atomic<bool>*)flag) std::this_thread::yield(); }, &go));
        launch(k.add, b, 1, s);
        launch(k.add, other, 1, nullptr);
        HIP(hipStreamSynchronize(nullptr)); // would hang
        go = true;
        HIP(hipStreamSynchronize(s));
        b.expect(2);
        other.expect(2);
    });
    check::test("freeing waits for the device", [&] {
        Stream s;
        auto* b = new Buffer(64, 1);
        Buffer copy(64, 0);
        hipemu_set_delay(20000, 7);
        launch(k.add, *b, 1, s);
        HIP(hipMemcpyAsync(copy.p, b->p, 64 * 4, hipMemcpyDeviceToDevice, s));
        delete b;
        hipemu_set_delay(0, 1);
        HIP(hipStreamQuery(s));
        copy.expect(2);
    });
    check::test("a destroyed stream still does its work", [&] {
        Buffer b(64, 1);
        Event e;
        {
            Held held;
            Stream s;
            launch(k.add, b, 4, s);
            HIP(hipEventRecord(e, s));
        }
        HIP(hipEventSynchronize(e));
        b.expect(5);
    });
    check::test("pageable memory is read at the call of an asynchronous copy", [&] {
        Buffer b(64, 0);
        Stream s;
        std::vector<float> values(64, 3);
        {
            Held held;
            HIP(hipMemcpyAsync(b.p, values.data(), 64 * 4, hipMemcpyHostToDevice, s));
            std::fill(values.begin(), values.end(), 9.f);
        }
        HIP(hipStreamSynchronize(s));
        b.expect(3);
    });
    check::test("pinned memory is read when the copy runs", [&] {
        Buffer b(64, 0);
        Stream s;
        float* values;
        HIP(hipHostMalloc((void**)&values, 64 * 4, 0));
        std::fill(values, values + 64, 3.f);
        {
            Held held;
            HIP(hipMemcpyAsync(b.p, values, 64 * 4, hipMemcpyHostToDevice, s));
            std::fill(values, values + 64, 9.f);
        }
        HIP(hipStreamSynchronize(s));
        b.expect(9);
        HIP(hipHostFree(values));
    });
    check::test("stale handles are refused", [&] {
        hipStream_t s;
        hipEvent_t e;
        HIP(hipStreamCreate(&s));
        HIP(hipEventCreate(&e));
        HIP(hipStreamDestroy(s));
        HIP(hipEventDestroy(e));
        HIP_GIVES(hipErrorInvalidHandle, hipStreamSynchronize(s));
        HIP_GIVES(hipErrorInvalidHandle, hipStreamDestroy(s));
        HIP_GIVES(hipErrorInvalidHandle, hipEventRecord(e, nullptr));
        HIP_GIVES(hipErrorInvalidHandle, hipEventDestroy(e));
        EXPECT(hipGetLastError() == hipErrorInvalidHandle);
        EXPECT(hipGetLastError() == hipSuccess);
    });
    check::test("kernels queued when their module goes still run", [&] {
        Kernels own = k;
        own.load();
        Buffer b(64, 1);
        Stream s;
        {
            Held held;
            launch(own.add, b, 1, s);
            HIP(hipModuleUnload(own.module));
            HIP_GIVES(hipErrorInvalidHandle, try_launch(own.add, b, 1, s));
        }
        HIP(hipStreamSynchronize(s));
        b.expect(2);
    });
    check::test("many threads, a stream each, with random delays", [&] {
        hipemu_set_delay(300, 3);
        std::vector<std::thread> threads;
        std::atomic<int> wrong{0};
        for(int t = 0; t < 8; t++)
            threads.emplace_back([&, t] {
                try
                {
                    Stream s;
                    Buffer b(128, 0);
                    for(int i = 0; i < 20; i++) launch(k.add, b, float(t), s);
                    HIP(hipStreamSynchronize(s));
                    b.expect(20.f * t);
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
    check::test("a pipeline over two streams gives the same with any delays", [&] {
        for(uint64_t seed = 1; seed <= 10; seed++)
        {
            hipemu_set_delay(500, seed);
            Buffer b(64, 1);
            Stream first, second;
            Event done;
            for(int i = 0; i < 5; i++)
            {
                launch(k.add, b, 1, first);
                HIP(hipEventRecord(done, first));
                HIP(hipStreamWaitEvent(second, done, 0));
                launch(k.scale, b, 2, second);
                HIP(hipEventRecord(done, second));
                HIP(hipStreamWaitEvent(first, done, 0));
            }
            HIP(hipStreamSynchronize(second));
            b.expect(94); // x -> 2(x + 1), five times from 1
        }
        hipemu_set_delay(0, 1);
    });
    return check::result();
}
