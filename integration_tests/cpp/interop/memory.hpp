// Host memory, or a HIP device's: HIP is found at run time, so that nothing here needs it to compile.
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

class Memory
{
public:
    explicit Memory(bool on_device) : device_(on_device)
    {
        if(!device_) return;
        void* library = nullptr;
        for(const char* name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"})
            if(!library) library = dlopen(name, RTLD_NOW);
        if(!library) die(dlerror());
        find(library, malloc_, "hipMalloc");
        find(library, free_, "hipFree");
        find(library, copy_, "hipMemcpy");
        find(library, synchronize_, "hipDeviceSynchronize");
        find(library, create_, "hipStreamCreate");
        find(library, destroy_, "hipStreamDestroy");
        if(create_(&stream_)) die("hipStreamCreate fails");
    }
    Memory(const Memory&) = delete;
    ~Memory()
    {
        if(device_) destroy_(stream_);
    }

    // The stream to work on; null on the host.
    void* stream() const { return stream_; }

    void* get(size_t bytes) const
    {
        if(bytes == 0) bytes = 1;
        void* address = nullptr;
        if(!device_) address = aligned_alloc(256, (bytes + 255) & ~size_t(255));
        else if(malloc_(&address, bytes)) address = nullptr;
        if(!address) die("no memory");
        return address;
    }
    void put(void* address) const { device_ ? void(free_(address)) : std::free(address); }

    void write(void* to, const void* from, size_t bytes) const
    {
        if(!device_) std::memcpy(to, from, bytes);
        else if(copy_(to, from, bytes, 1)) die("hipMemcpy to the device fails");
    }
    // Waits for what was begun before.
    void read(void* to, const void* from, size_t bytes) const
    {
        if(!device_) std::memcpy(to, from, bytes);
        else if(synchronize_() || copy_(to, from, bytes, 2)) die("hipMemcpy from the device fails");
    }

private:
    [[noreturn]] static void die(const char* why)
    {
        std::fprintf(stderr, "%s\n", why);
        std::exit(2);
    }
    template <class F> static void find(void* library, F& function, const char* name)
    {
        function = reinterpret_cast<F>(dlsym(library, name));
        if(!function) die(name);
    }

    bool device_;
    void* stream_ = nullptr;
    int (*malloc_)(void**, size_t) = nullptr;
    int (*free_)(void*) = nullptr;
    int (*copy_)(void*, const void*, size_t, int) = nullptr;
    int (*synchronize_)() = nullptr;
    int (*create_)(void**) = nullptr;
    int (*destroy_)(void*) = nullptr;
};
