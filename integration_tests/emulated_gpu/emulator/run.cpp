// Runs a dispatch: work-groups over threads, waves of a group in turn between barriers.
//
// Environment:
//   GFXEMU_THREADS  work-groups run on this many threads   (default 1)
//   GFXEMU_TRACE    print each instruction as it is executed (first wave only)
//   GFXEMU_STATS    print executed instruction counts per dispatch
//   GFXEMU_SAMPLE   run this many work-groups of a dispatch, spread over the grid, and no more: results are then wrong
//   GFXEMU_COUNTS   file to append what each dispatch executed to: a line of JSON
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "decode.h"

namespace gfxemu {
namespace {
struct Program // decoded instructions of one loaded code object
{
    const u8* image;
    u64 size;
    std::vector<std::atomic<Inst*>> at;
    Program(const u8* p, u64 n) : image(p), size(n), at(n / 4) {}
};
std::shared_ptr<Program> program(const hipemu_dispatch* d)
{
    // Never destroyed: kernels may still run while the process exits.
    static auto* mu  = new std::mutex;
    static auto* all = new std::map<const u8*, std::shared_ptr<Program>>;
    std::lock_guard<std::mutex> lk(*mu);
    auto& p = (*all)[d->image];
    if(!p || p->size != d->image_size) p = std::make_shared<Program>(d->image, d->image_size);
    return p;
}

struct Run // one dispatch in progress
{
    const hipemu_dispatch* d;
    std::shared_ptr<Program> program;
    bool trace;
    std::atomic<u64> executed{0}, next{0};
    std::atomic<bool> stop{false};
    std::mutex mu;
    std::string message; // of the first failure
    int result = HIPEMU_OK;
    u64 total = 0, sampled = 0; // work-groups, and how many of them run
    std::vector<std::atomic<u64>> counts; // executions by place in the code; empty where nobody asks

    void failed(int code, const char* what)
    {
        std::lock_guard<std::mutex> lk(mu);
        if(result == HIPEMU_OK)
        {
            result  = code;
            message = what;
        }
        stop = true;
    }
};

// With M0's index added to the places of the operands that it is for.
void run_indexed(Wave& w, const Inst& plain)
{
    Inst i          = plain;
    const u32 index = w.s[M0] & 255, which = w.s[M0] >> 12 & 15;
    if(i.plain) fail("DPP or SDWA with an index");
    for(int k = 0; k < i.n && k < 4; k++)
        if(i.o[k].k == Operand::V && which >> (k ? k - 1 : 3) & 1) i.o[k].idx += index;
    i.h(w, i);
}

void run_wave(Wave& w, Run& run, bool trace)
{
    Program& p = *run.program;
    u64 n      = 0;
    while(w.state == Running)
    {
        u64 off = w.pc - p.image;
        if(off + 4 > p.size) fail("the program counter left the code object");
        Inst* i = p.at[off / 4].load(std::memory_order_acquire);
        if(!i || memcmp(i->bytes, w.pc, i->size))
        {
            i = decode(run.d, w.pc);
            p.at[off / 4].store(i, std::memory_order_release);
        }
        w.next = w.pc + i->size;
        if(!run.counts.empty()) run.counts[off / 4].fetch_add(1, std::memory_order_relaxed);
        if(trace) fprintf(stderr, "[gfxemu] %6llx exec %0*llx %s\n", (unsigned long long)off, (int)w.lanes / 4, (unsigned long long)w.exec(), i->text.c_str());
        auto where = [&](const std::exception& e) {
            char at[32];
            snprintf(at, sizeof at, " [at 0x%llx: ", (unsigned long long)off);
            return e.what() + std::string(at) + i->text + "]";
        };
        try
        {
            if(w.indexed && i->text[0] == 'v') run_indexed(w, *i);
            else i->h(w, *i);
        }
        catch(BadAddress& e) { throw BadAddress(where(e)); }
        catch(std::exception& e) { fail(where(e)); }
        w.pc = w.next;
        n++;
        // A kernel that waits for something that never comes must not hang when another group failed.
        if((n & 0xffff) == 0 && run.stop) break;
    }
    run.executed += n;
}

// How many vector registers the kernel descriptor gives a wave.
struct Registers
{
    u32 vector, accumulation;
    explicit Registers(const hipemu_dispatch* d)
    {
        u32 resources1, resources3;
        memcpy(&resources1, d->descriptor + 48, 4);
        memcpy(&resources3, d->descriptor + 44, 4);
        const u32 all = 8 * ((resources1 & 63) + 1);
        // One file on gfx90a and gfx942: those for accumulation follow at an offset.
        const u32 offset = strcmp(d->isa, "gfx90a") == 0 || strcmp(d->isa, "gfx942") == 0 ? 4 * ((resources3 & 63) + 1) : all;
        vector           = std::min<u32>(std::min(all, offset), ACCUMULATION);
        accumulation     = std::min<u32>(all - std::min(all, offset), SELECTED - ACCUMULATION);
    }
};

void run_group(Run& run, u32 gx, u32 gy, u32 gz, bool trace)
{
    const hipemu_dispatch* d = run.d;
    Group g;
    g.d = d;
    g.lds.assign(d->lds_bytes, 0);
    u32 id[3] = {gx, gy, gz}, b[3];
    for(int k = 0; k < 3; k++) b[k] = std::min(d->block[k], d->grid[k] - id[k] * d->block[k]);
    u32 items = b[0] * b[1] * b[2], lanes = d->wave_size, nw = (items + lanes - 1) / lanes;
    u32 ss = (d->scratch_bytes + 15) / 16 * 16;
    std::vector<u8> scr(u64(ss) * lanes * nw);
    // Kept by the thread: a wave is 130 KB, of which a kernel uses little.
    static thread_local std::vector<std::unique_ptr<Wave>> ws;
    while(ws.size() < nw) ws.push_back(std::make_unique<Wave>());
    const Registers registers(d);
    for(u32 k = 0; k < nw; k++)
    {
        Wave& w = *ws[k];
        memset(w.v, 0, registers.vector * sizeof w.v[0]);
        memset(w.v[ACCUMULATION], 0, registers.accumulation * sizeof w.v[0]);
        memset(w.s, 0, sizeof w.s);
        w.lanes   = lanes;
        w.gfx9    = strncmp(d->isa, "gfx9", 4) == 0;
        w.indexed = false;
        w.state   = Running;
        w.g = &g;
        w.scratch = scr.data() + u64(ss) * lanes * k;
        w.scratch_size = ss;
        w.pc = (const u8*)d->entry;
        u32 n = std::min(lanes, items - lanes * k);
        w.set_mask(EXEC, n == 64 ? ~0ull : (1ull << n) - 1);
        for(u32 l = 0; l < n; l++)
        {
            u32 t = lanes * k + l;
            w.v[0][l] = t % b[0] | (t / b[0] % b[1]) << 10 | (t / b[0] / b[1]) << 20;
        }
        u32 s = 0;
        for(; s < d->n_user_sgpr; s++) w.s[s] = d->user_sgpr[s];
        for(int a = 0; a < 3; a++)
            if(d->sys_sgpr >> a & 1) w.s[s++] = id[a];
    }
    for(bool more = true; more && !run.stop;)
    {
        more = false;
        for(u32 k = 0; k < nw; k++)
            if(ws[k]->state == Running) run_wave(*ws[k], run, trace && k == 0);
        for(u32 k = 0; k < nw; k++)
            if(ws[k]->state == AtBarrier)
            {
                ws[k]->state = Running;
                more         = true;
            }
    }
}

void work(Run& run)
{
    const u32* groups = run.d->groups;
    try
    {
        for(u64 n, k; !run.stop && (n = run.next++) < run.sampled;)
        {
            k = n * run.total / run.sampled;
            run_group(run, k % groups[0], k / groups[0] % groups[1], k / groups[0] / groups[1], run.trace && k == 0);
        }
    }
    catch(BadAddress& e) { run.failed(HIPEMU_BAD_ADDRESS, e.what()); }
    catch(std::exception& e) { run.failed(HIPEMU_FAILED, e.what()); }
}

// One line: {"kernel":…,"groups":…,"sampled":…,"waves":…,"instructions":{"v_add_f32":12,…}}, waves of one work-group.
void write_counts(const Run& run, const char* path)
{
    std::map<std::string, u64> by_name;
    for(size_t place = 0; place < run.counts.size(); place++)
        if(const u64 n = run.counts[place])
        {
            const std::string& text = run.program->at[place].load()->text;
            by_name[text.substr(0, text.find_first_of(" \t"))] += n;
        }
    const hipemu_dispatch* d = run.d;
    const u64 waves          = (u64(d->block[0]) * d->block[1] * d->block[2] + d->wave_size - 1) / d->wave_size;
    std::string line = std::string("{\"kernel\":\"") + d->kernel + "\",\"groups\":" + std::to_string(run.total) + ",\"sampled\":" + std::to_string(run.sampled) +
                       ",\"waves\":" + std::to_string(waves) + ",\"instructions\":{";
    for(auto& [name, n] : by_name) line += (line.back() == '{' ? "\"" : ",\"") + name + "\":" + std::to_string(n);
    line += "}}\n";
    static std::mutex mu;
    std::lock_guard<std::mutex> lk(mu);
    if(FILE* file = fopen(path, "a"))
    {
        fputs(line.c_str(), file);
        fclose(file);
    }
    else fail(std::string("can't write ") + path);
}
} // namespace
} // namespace gfxemu

extern "C" __attribute__((visibility("default"))) int hipemu_run(const hipemu_dispatch* d, char* err, size_t cap)
{
    using namespace gfxemu;
    try
    {
        if(d->version != HIPEMU_DISPATCH_VERSION) fail("the runtime speaks another version of the interface");
        if(d->wave_size != 32 && d->wave_size != 64) fail("expected waves of 32 or 64 lanes, got " + std::to_string(d->wave_size));
        prepare_decoder(d->isa);
        Run run{d, program(d), getenv("GFXEMU_TRACE") != nullptr};
        const u64 total    = u64(d->groups[0]) * d->groups[1] * d->groups[2];
        const char* sample = getenv("GFXEMU_SAMPLE");
        const char* counts = getenv("GFXEMU_COUNTS");
        run.total          = total;
        run.sampled        = sample ? std::min<u64>(std::max(1, atoi(sample)), total) : total;
        if(counts) run.counts = std::vector<std::atomic<u64>>(d->image_size / 4);
        const char* threads   = getenv("GFXEMU_THREADS");
        const u64 n_threads   = std::min<u64>(threads ? std::max(1, atoi(threads)) : 1, total);
        std::vector<std::thread> others;
        for(u64 t = 1; t < n_threads; t++) others.emplace_back([&] { work(run); });
        work(run);
        for(auto& t : others) t.join();
        if(getenv("GFXEMU_STATS"))
            fprintf(stderr, "[gfxemu] %s: %llu work-groups, %llu wave instructions\n", d->kernel, (unsigned long long)total,
                    (unsigned long long)run.executed.load());
        if(counts) write_counts(run, counts);
        if(run.result) snprintf(err, cap, "%s", run.message.c_str());
        return run.result;
    }
    catch(std::exception& e)
    {
        snprintf(err, cap, "%s", e.what());
        return HIPEMU_FAILED;
    }
}
