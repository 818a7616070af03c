#include "memory.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <fcntl.h>
#include <map>
#include <set>
#include <shared_mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "call.h"

namespace hipemu {
namespace {
constexpr size_t PAGE = 4096;
// Addresses are reused late, so that a stale pointer is likely to point to nothing.
constexpr size_t ADDRESSES_PER_BYTE = 8;
// Filling more than this with garbage would take longer than it helps.
constexpr size_t POISON_LIMIT = 64 << 20;

struct Pool
{
    uintptr_t view = 0;        // what programs see
    uint8_t* store = nullptr;  // where the bytes are
    size_t span = 0, next = 0;
    size_t used    = 0;
    int file       = -1;
};

struct Memory
{
    std::shared_mutex mutex;
    std::map<uintptr_t, Allocation> allocations;
    std::vector<Pool> pools;
    std::set<std::pair<int, int>> peers;
    uint64_t made = 0;
    // Changes with the set of allocations; kernels remember ranges until then.
    std::atomic<uint64_t> epoch{1};
};

size_t round_up(size_t n) { return (n + PAGE - 1) / PAGE * PAGE; }

struct sigaction previous_handler;

// A host access to device memory: say what it was, then let the process die of it as it would have.
void on_fault(int number, siginfo_t* info, void* context);

Memory& memory()
{
    static auto* all = [] {
        auto* m        = new Memory;
        auto& settings = Settings::get();
        for(int i = 0; i < settings.devices; i++)
        {
            Pool pool;
            pool.span = round_up(settings.memory) * ADDRESSES_PER_BYTE;
            pool.file = memfd_create("hipemu", MFD_CLOEXEC);
            int fixed = ftruncate(pool.file, pool.span);
            void* store = mmap(nullptr, pool.span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, pool.file, 0);
            void* view  = settings.host_access
                              ? mmap(nullptr, pool.span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, pool.file, 0)
                              : mmap(nullptr, pool.span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if(fixed != 0 || store == MAP_FAILED || view == MAP_FAILED)
            {
                message(0, "no address space for the memory of device %d", i);
                abort();
            }
            pool.store = (uint8_t*)store;
            pool.view  = (uintptr_t)view;
            m->pools.push_back(pool);
        }
        if(!settings.host_access)
        {
            // The first call loads a library, which a signal handler must not do.
            void* frame;
            backtrace(&frame, 1);
            struct sigaction action{};
            action.sa_sigaction = on_fault;
            action.sa_flags     = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
            sigemptyset(&action.sa_mask);
            sigaction(SIGSEGV, &action, &previous_handler);
        }
        return m;
    }();
    return *all;
}

// The pool whose addresses these are.
int pool_of(Memory& m, uintptr_t address)
{
    for(size_t i = 0; i < m.pools.size(); i++)
        if(address >= m.pools[i].view && address - m.pools[i].view < m.pools[i].span) return (int)i;
    return -1;
}

std::map<uintptr_t, Allocation>::iterator containing(Memory& m, uintptr_t address)
{
    auto it = m.allocations.upper_bound(address);
    if(it == m.allocations.begin()) return m.allocations.end();
    --it;
    return address - it->first < std::max<size_t>(it->second.bytes, 1) ? it : m.allocations.end();
}

// A free range of addresses with a page before and after that belongs to nobody.
bool find_addresses(Memory& m, Pool& pool, size_t need, size_t& offset)
{
    for(int turn = 0; turn < 2; turn++)
    {
        size_t at = turn == 0 ? pool.next : PAGE;
        at        = std::max(at, PAGE);
        while(at + need + PAGE <= pool.span)
        {
            // The first allocation that ends after the beginning of the range.
            auto it = m.allocations.lower_bound(pool.view + at);
            if(it != m.allocations.begin())
            {
                auto before = std::prev(it);
                size_t end  = before->first >= pool.view ? before->first - pool.view + round_up(before->second.bytes) + PAGE : 0;
                if(end > at)
                {
                    at = end;
                    continue;
                }
            }
            if(it == m.allocations.end() || it->first >= pool.view + at + need + PAGE || it->first >= pool.view + pool.span)
            {
                offset    = at;
                pool.next = at + need + PAGE;
                return true;
            }
            at = it->first - pool.view + round_up(it->second.bytes) + PAGE;
        }
    }
    return false;
}

std::string describe_locked(Memory& m, uintptr_t address)
{
    char text[256];
    auto it = containing(m, address);
    if(it != m.allocations.end())
    {
        auto& a           = it->second;
        const char* kinds[] = {"device memory", "pinned memory", "registered memory", "a code object"};
        snprintf(text, sizeof text, "0x%llx is byte %llu of %llu of %s, allocation %llu, device %d", (unsigned long long)address,
                 (unsigned long long)(address - a.address), (unsigned long long)a.bytes, kinds[(int)a.kind], (unsigned long long)a.number, a.device);
        return text;
    }
    int pool = pool_of(m, address);
    if(pool < 0)
    {
        snprintf(text, sizeof text, "0x%llx is not device memory", (unsigned long long)address);
        return text;
    }
    auto after = m.allocations.upper_bound(address);
    if(after != m.allocations.begin() && pool_of(m, std::prev(after)->first) == pool)
    {
        auto& a = std::prev(after)->second;
        snprintf(text, sizeof text, "0x%llx of device %d is not allocated (%llu bytes past the end of allocation %llu of %llu bytes)",
                 (unsigned long long)address, pool, (unsigned long long)(address - a.address - a.bytes), (unsigned long long)a.number,
                 (unsigned long long)a.bytes);
    }
    else snprintf(text, sizeof text, "0x%llx of device %d is not allocated", (unsigned long long)address, pool);
    return text;
}

void on_fault(int number, siginfo_t* info, void* context)
{
    auto& m      = memory();
    auto address = (uintptr_t)info->si_addr;
    if(info->si_code > 0 && pool_of(m, address) >= 0)
    {
        // The process is about to die: a message that may hang on a lock is no good, one without the lock is.
        bool locked = m.mutex.try_lock_shared();
        std::string what = describe_locked(m, address);
        if(locked) m.mutex.unlock_shared();
        fprintf(stderr, "[hipemu] the host touched device memory: %s; the thread's last HIP call was %s\n", what.c_str(), last_call());
        void* frames[32];
        backtrace_symbols_fd(frames, backtrace(frames, 32), 2);
    }
    if((previous_handler.sa_flags & SA_SIGINFO) && previous_handler.sa_sigaction)
    {
        previous_handler.sa_sigaction(number, info, context);
        return;
    }
    if(previous_handler.sa_handler != SIG_DFL && previous_handler.sa_handler != SIG_IGN)
    {
        previous_handler.sa_handler(number);
        return;
    }
    // The access is repeated on return, and ends the process as it would have.
    signal(number, SIG_DFL);
}

bool overlaps(Memory& m, uintptr_t address, size_t bytes)
{
    auto it = m.allocations.lower_bound(address);
    if(it != m.allocations.end() && it->first < address + bytes) return true;
    return containing(m, address) != m.allocations.end();
}
} // namespace

size_t total_bytes() { return std::min<uint64_t>(switches().memory_limit ? switches().memory_limit.load() : Settings::get().memory, Settings::get().memory); }

size_t used_bytes(int device)
{
    auto& m = memory();
    std::shared_lock<std::shared_mutex> guard(m.mutex);
    return m.pools[device].used;
}

void* allocate(int device, size_t bytes, Kind kind, unsigned flags)
{
    uint64_t single = switches().single_limit;
    if(single && bytes > single) return nullptr;
    auto& m = memory();
    std::unique_lock<std::shared_mutex> guard(m.mutex);
    if(kind == Kind::Pinned)
    {
        void* place = mmap(nullptr, round_up(std::max<size_t>(bytes, 1)), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if(place == MAP_FAILED) return nullptr;
        m.allocations[(uintptr_t)place] = {(uintptr_t)place, bytes, kind, device, ++m.made, flags};
        m.epoch++;
        counts().live_host_allocations++;
        return place;
    }
    Pool& pool = m.pools[device];
    if(bytes > total_bytes() || pool.used + bytes > total_bytes()) return nullptr;
    size_t offset;
    if(!find_addresses(m, pool, round_up(bytes), offset)) return nullptr;
    uintptr_t address = pool.view + offset;
    // All ones are not-a-number in every floating type: memory that nobody wrote shows in the result.
    if(Settings::get().poison) memset(pool.store + offset, 0xff, std::min(bytes, POISON_LIMIT));
    m.allocations[address] = {address, bytes, kind, device, ++m.made, flags};
    pool.used += bytes;
    m.epoch++;
    counts().live_allocations++;
    counts().live_bytes += bytes;
    return (void*)address;
}

bool adopt(void* address, size_t bytes, Kind kind, int device, unsigned flags)
{
    auto& m = memory();
    std::unique_lock<std::shared_mutex> guard(m.mutex);
    if(overlaps(m, (uintptr_t)address, bytes)) return false;
    m.allocations[(uintptr_t)address] = {(uintptr_t)address, bytes, kind, device, ++m.made, flags};
    m.epoch++;
    if(kind == Kind::Registered) counts().live_host_allocations++;
    return true;
}

bool forget(void* address, Kind kind)
{
    auto& m = memory();
    std::unique_lock<std::shared_mutex> guard(m.mutex);
    auto it = m.allocations.find((uintptr_t)address);
    if(it == m.allocations.end() || it->second.kind != kind) return false;
    m.allocations.erase(it);
    m.epoch++;
    if(kind == Kind::Registered) counts().live_host_allocations--;
    return true;
}

bool release(void* address, bool pinned)
{
    auto& m = memory();
    std::unique_lock<std::shared_mutex> guard(m.mutex);
    auto it = m.allocations.find((uintptr_t)address);
    if(it == m.allocations.end() || it->second.kind != (pinned ? Kind::Pinned : Kind::Device)) return false;
    size_t bytes = it->second.bytes;
    if(pinned)
    {
        munmap(address, round_up(std::max<size_t>(bytes, 1)));
        counts().live_host_allocations--;
    }
    else
    {
        Pool& pool = m.pools[it->second.device];
        fallocate(pool.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (uintptr_t)address - pool.view, round_up(bytes));
        pool.used -= bytes;
        counts().live_allocations--;
        counts().live_bytes -= bytes;
    }
    m.allocations.erase(it);
    m.epoch++;
    return true;
}

bool find_allocation(const void* address, Allocation& out)
{
    auto& m = memory();
    std::shared_lock<std::shared_mutex> guard(m.mutex);
    auto it = containing(m, (uintptr_t)address);
    if(it == m.allocations.end()) return false;
    out = it->second;
    return true;
}

Place locate(const void* address, size_t bytes, const char* what)
{
    auto& m = memory();
    std::shared_lock<std::shared_mutex> guard(m.mutex);
    auto a  = (uintptr_t)address;
    auto it = containing(m, a);
    Place place;
    if(it != m.allocations.end())
    {
        auto& found = it->second;
        if(a - found.address + bytes > found.bytes)
        {
            if(found.kind == Kind::Registered)
            {
                place.host = (uint8_t*)a; // only part of it is pinned
                return place;
            }
            counts().violations++;
            message(0, "%s of %zu bytes goes past the end: %s", what, bytes, describe_locked(m, a).c_str());
            return place;
        }
        bool pool       = found.kind == Kind::Device;
        place.on_device = pool || found.kind == Kind::Code;
        place.pinned    = !place.on_device;
        place.device    = found.device;
        place.host      = pool ? m.pools[found.device].store + (a - m.pools[found.device].view) : (uint8_t*)a;
        return place;
    }
    if(pool_of(m, a) >= 0)
    {
        counts().violations++;
        message(0, "%s of %zu bytes: %s", what, bytes, describe_locked(m, a).c_str());
        return place;
    }
    place.host = (uint8_t*)a;
    return place;
}

uint8_t* resolve_for_kernel(const void* context, uint64_t address, uint64_t bytes)
{
    struct Known { uint64_t begin, end; uint8_t* place; };
    thread_local Known known[4];
    thread_local unsigned turn  = 0;
    thread_local uint64_t epoch = 0, execution = 0;
    auto& k = *(const KernelContext*)context;
    auto& m = memory();
    uint64_t now = m.epoch.load(std::memory_order_acquire);
    if(epoch != now || execution != k.id)
    {
        memset(known, 0, sizeof known);
        epoch     = now;
        execution = k.id;
    }
    for(auto& range : known)
        if(address >= range.begin && address + bytes <= range.end) return range.place + (address - range.begin);
    auto remember = [&](uint64_t begin, uint64_t end, uint8_t* place) {
        if(address < begin || address + bytes > end) return (uint8_t*)nullptr;
        known[turn++ % 4] = {begin, end, place};
        return place + (address - begin);
    };
    for(auto& range : k.ranges)
        if(auto* p = remember(range.begin, range.end, (uint8_t*)range.begin)) return p;
    std::shared_lock<std::shared_mutex> guard(m.mutex);
    auto it = containing(m, address);
    if(it == m.allocations.end()) return nullptr;
    auto& a = it->second;
    if(a.kind == Kind::Device)
    {
        if(a.device != k.device && !m.peers.count({k.device, a.device})) return nullptr;
        return remember(a.address, a.address + a.bytes, m.pools[a.device].store + (a.address - m.pools[a.device].view));
    }
    return remember(a.address, a.address + a.bytes, (uint8_t*)a.address);
}

void allow_peer(int device, int peer, bool allowed)
{
    auto& m = memory();
    std::unique_lock<std::shared_mutex> guard(m.mutex);
    if(allowed) m.peers.insert({device, peer});
    else m.peers.erase({device, peer});
    m.epoch++;
}
bool peer_allowed(int device, int peer)
{
    auto& m = memory();
    std::shared_lock<std::shared_mutex> guard(m.mutex);
    return m.peers.count({device, peer}) != 0;
}

std::string describe_address(uintptr_t address)
{
    auto& m = memory();
    std::shared_lock<std::shared_mutex> guard(m.mutex);
    return describe_locked(m, address);
}
} // namespace hipemu
