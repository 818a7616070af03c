// A software replacement for libamdhip64.so.7: one fake AMD GPU, device memory
// is host memory, every stream is synchronous, and a kernel launch is handed to
// an instruction emulator opened at run time (see hipemu_dispatch.h).
//
// Environment:
//   HIPEMU_EMULATOR  path of the emulator library (launches fail without it)
//   HIPEMU_ARCH      gcnArchName to report               (default gfx1100)
//   HIPEMU_CUS       multiprocessor count to report      (default 8)
//   HIPEMU_MEM_MB    device memory to report             (default 4096)
//   HIPEMU_LOG       0 errors, 1 launches, 2 every call  (default 0)
//   HIPEMU_DUMP      directory to write loaded code objects to
//   HIPEMU_NODEVICE  if set, behave as a machine without a GPU
//   HIPEMU_SKIP      if set, launches succeed without running anything
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <elf.h>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "../include/hipemu_dispatch.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {

int env_int(const char* n, int d)
{
    const char* v = getenv(n);
    return v && *v ? atoi(v) : d;
}
int log_level()
{
    static int l = env_int("HIPEMU_LOG", 0);
    return l;
}
void logf(int lvl, const char* fmt, ...)
{
    if(lvl > log_level())
        return;
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "[hipemu] ");
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}
#define TRACE(...) logf(2, __VA_ARGS__)

bool no_device() { return getenv("HIPEMU_NODEVICE") != nullptr; }
const char* arch()
{
    const char* a = getenv("HIPEMU_ARCH");
    return a && *a ? a : "gfx1100";
}

thread_local hipError_t last_error = hipSuccess;
hipError_t ret(hipError_t e)
{
    if(e != hipSuccess)
        last_error = e;
    return e;
}

double now_ms()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

// ---- memory -----------------------------------------------------------------
struct Alloc
{
    size_t size;
    bool host;
};
std::mutex mem_mu;
std::map<uintptr_t, Alloc> allocs;
size_t used_bytes = 0;
std::atomic<uint64_t> mem_epoch{0}; // changes whenever the set of valid ranges does

size_t total_mem() { return size_t(env_int("HIPEMU_MEM_MB", 4096)) << 20; }

void* mem_alloc(size_t n, bool host)
{
    size_t sz = n ? (n + 255) / 256 * 256 : 256;
    {
        std::lock_guard<std::mutex> l(mem_mu);
        if(used_bytes + sz > total_mem())
            return nullptr;
    }
    void* p = aligned_alloc(256, sz);
    if(!p)
        return nullptr;
    std::lock_guard<std::mutex> l(mem_mu);
    allocs[(uintptr_t)p] = {n, host};
    used_bytes += sz;
    mem_epoch++;
    return p;
}
bool mem_free(void* p)
{
    std::lock_guard<std::mutex> l(mem_mu);
    auto it = allocs.find((uintptr_t)p);
    if(it == allocs.end())
        return false;
    used_bytes -= it->second.size ? (it->second.size + 255) / 256 * 256 : 256;
    allocs.erase(it);
    mem_epoch++;
    free(p);
    return true;
}
bool mem_find(const void* p, uintptr_t& base, Alloc& a)
{
    std::lock_guard<std::mutex> l(mem_mu);
    auto it = allocs.upper_bound((uintptr_t)p);
    if(it == allocs.begin())
        return false;
    --it;
    if((uintptr_t)p >= it->first + (it->second.size ? it->second.size : 1))
        return false;
    base = it->first;
    a    = it->second;
    return true;
}

// Ranges other than allocations that a kernel may read: code objects, arguments.
std::map<uintptr_t, size_t> extra_ranges;
void extra_add(const void* p, size_t n)
{
    std::lock_guard<std::mutex> l(mem_mu);
    extra_ranges[(uintptr_t)p] = n;
    mem_epoch++;
}
void extra_del(const void* p)
{
    std::lock_guard<std::mutex> l(mem_mu);
    extra_ranges.erase((uintptr_t)p);
    mem_epoch++;
}
int check_range(uint64_t addr, uint64_t size)
{
    thread_local uint64_t epoch = ~0ull;
    thread_local struct { uint64_t lo, hi; } cache[4];
    thread_local unsigned turn = 0;
    if(epoch != mem_epoch.load(std::memory_order_relaxed))
    {
        memset(cache, 0, sizeof cache);
        epoch = mem_epoch;
    }
    for(auto& c : cache)
        if(addr >= c.lo && addr + size <= c.hi)
            return 0;
    std::lock_guard<std::mutex> l(mem_mu);
    auto hit = [&](uint64_t lo, uint64_t n) {
        if(addr < lo || addr + size > lo + n) return false;
        cache[turn++ % 4] = {lo, lo + n};
        return true;
    };
    auto a = allocs.upper_bound(addr);
    if(a != allocs.begin() && (--a, hit(a->first, a->second.size))) return 0;
    auto e = extra_ranges.upper_bound(addr);
    if(e != extra_ranges.begin() && (--e, hit(e->first, e->second))) return 0;
    return 1;
}

// ---- msgpack (only what the code-object metadata needs) -----------------------
struct Val
{
    enum K { Nil, Int, Str, Arr, Map } k = Nil;
    int64_t i = 0;
    std::string s;
    std::vector<Val> a;
    std::map<std::string, Val> m;
    const Val* get(const char* n) const
    {
        auto it = m.find(n);
        return it == m.end() ? nullptr : &it->second;
    }
    int64_t num(const char* n, int64_t d = 0) const
    {
        auto v = get(n);
        return v && v->k == Int ? v->i : d;
    }
    std::string str(const char* n) const
    {
        auto v = get(n);
        return v ? v->s : std::string();
    }
};
struct MsgPack
{
    const uint8_t* p;
    const uint8_t* e;
    uint64_t be(int n)
    {
        uint64_t v = 0;
        while(n-- && p < e)
            v = v << 8 | *p++;
        return v;
    }
    Val parse(int depth = 0)
    {
        Val v;
        if(p >= e || depth > 32)
            return v;
        uint8_t t = *p++;
        auto str  = [&](size_t n) {
            n   = std::min<size_t>(n, e - p);
            v.k = Val::Str;
            v.s.assign((const char*)p, n);
            p += n;
        };
        auto arr = [&](size_t n) {
            v.k = Val::Arr;
            while(n-- && p < e)
                v.a.push_back(parse(depth + 1));
        };
        auto map = [&](size_t n) {
            v.k = Val::Map;
            while(n-- && p < e)
            {
                Val k  = parse(depth + 1);
                v.m[k.s] = parse(depth + 1);
            }
        };
        auto num = [&](int64_t x) {
            v.k = Val::Int;
            v.i = x;
        };
        if(t < 0x80) num(t);
        else if(t < 0x90) map(t & 15);
        else if(t < 0xa0) arr(t & 15);
        else if(t < 0xc0) str(t & 31);
        else switch(t)
        {
        case 0xc2: num(0); break;
        case 0xc3: num(1); break;
        case 0xc4: str(be(1)); break;
        case 0xc5: str(be(2)); break;
        case 0xc6: str(be(4)); break;
        case 0xcc: num(be(1)); break;
        case 0xcd: num(be(2)); break;
        case 0xce: num(be(4)); break;
        case 0xcf: num(be(8)); break;
        case 0xd0: num((int8_t)be(1)); break;
        case 0xd1: num((int16_t)be(2)); break;
        case 0xd2: num((int32_t)be(4)); break;
        case 0xd3: num(be(8)); break;
        case 0xd9: str(be(1)); break;
        case 0xda: str(be(2)); break;
        case 0xdb: str(be(4)); break;
        case 0xdc: arr(be(2)); break;
        case 0xdd: arr(be(4)); break;
        case 0xde: map(be(2)); break;
        case 0xdf: map(be(4)); break;
        default: if(t >= 0xe0) num((int8_t)t);
        }
        return v;
    }
};

// ---- code objects -------------------------------------------------------------
struct Module;
struct Function
{
    Module* mod = nullptr;
    std::string name;
    const uint8_t* kd = nullptr;
    Val meta;
    // explicit argument layout, for launches that pass an array of pointers
    struct Arg { uint32_t off, size; std::string kind; };
    std::vector<Arg> args;
    uint32_t kernarg_size = 0;
};
struct Module
{
    uint8_t* image = nullptr;
    size_t size    = 0;
    std::map<std::string, std::pair<uint64_t, uint64_t>> syms; // name -> (address, size)
    std::map<std::string, std::unique_ptr<Function>> fns;
    Val meta;
    ~Module()
    {
        if(image)
        {
            extra_del(image);
            munmap(image, size);
        }
    }
};

// Picks the code object for our ISA out of an (uncompressed) clang offload bundle.
const uint8_t* unbundle(const uint8_t* p, std::string& why)
{
    static const char magic[] = "__CLANG_OFFLOAD_BUNDLE__";
    if(memcmp(p, magic, 24) != 0)
        return p;
    uint64_t n;
    memcpy(&n, p + 24, 8);
    const uint8_t* q = p + 32;
    std::string seen;
    for(uint64_t i = 0; i < n; i++)
    {
        uint64_t off, size, idlen;
        memcpy(&off, q, 8);
        memcpy(&size, q + 8, 8);
        memcpy(&idlen, q + 16, 8);
        std::string id((const char*)q + 24, idlen);
        q += 24 + idlen;
        auto pos = id.find("gfx");
        if(pos != std::string::npos && size)
        {
            std::string target = id.substr(pos);
            if(target == arch() || target.substr(0, target.find(':')) == arch())
                return p + off;
        }
        seen += " " + id;
    }
    why = "no code object for " + std::string(arch()) + " in bundle:" + seen;
    return nullptr;
}

// Compressed offload bundles: "CCOB", version, method (1 = zstd), sizes, hash, data.
bool decompress(const uint8_t* p, std::vector<uint8_t>& out, std::string& why)
{
    uint16_t version, method;
    memcpy(&version, p + 4, 2);
    memcpy(&method, p + 6, 2);
    uint64_t total = 0, plain = 0;
    size_t head;
    if(version == 2) { memcpy(&total, p + 8, 4); memcpy(&plain, p + 12, 4); head = 24; }
    else if(version == 3) { memcpy(&total, p + 8, 8); memcpy(&plain, p + 16, 8); head = 32; }
    else { why = "compressed bundle version " + std::to_string(version); return false; }
    if(method != 1) { why = "compressed bundle method " + std::to_string(method); return false; }
    static auto zstd = (size_t(*)(void*, size_t, const void*, size_t))[] {
        void* h = dlopen("libzstd.so.1", RTLD_NOW);
        return h ? dlsym(h, "ZSTD_decompress") : nullptr;
    }();
    if(!zstd) { why = "libzstd.so.1 is not available"; return false; }
    out.resize(plain);
    if(zstd(out.data(), plain, p + head, total - head) != plain) { why = "zstd failed"; return false; }
    return true;
}

std::unique_ptr<Module> load_code_object(const void* data, std::string& why)
{
    const uint8_t* p = (const uint8_t*)data;
    std::vector<uint8_t> plain;
    if(memcmp(p, "CCOB", 4) == 0)
    {
        if(!decompress(p, plain, why))
            return nullptr;
        p = plain.data();
    }
    p = unbundle(p, why);
    if(!p)
        return nullptr;
    if(memcmp(p, "\x7f" "ELF", 4) != 0)
    {
        why = "not an ELF image";
        return nullptr;
    }
    auto eh = (const Elf64_Ehdr*)p;
    if(eh->e_machine != 224)
    {
        why = "ELF machine is not AMDGPU";
        return nullptr;
    }
    auto ph      = (const Elf64_Phdr*)(p + eh->e_phoff);
    uint64_t end = 0, file_end = 0;
    for(int i = 0; i < eh->e_phnum; i++)
    {
        if(ph[i].p_type == PT_LOAD)
            end = std::max(end, ph[i].p_vaddr + ph[i].p_memsz);
        file_end = std::max(file_end, ph[i].p_offset + ph[i].p_filesz);
    }
    if(eh->e_shoff)
        file_end = std::max(file_end, eh->e_shoff + uint64_t(eh->e_shnum) * eh->e_shentsize);
    auto m   = std::make_unique<Module>();
    m->size  = (end + 4095 + 4096) / 4096 * 4096;
    m->image = (uint8_t*)mmap(nullptr, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if(m->image == MAP_FAILED)
    {
        m->image = nullptr;
        why      = "mmap";
        return nullptr;
    }
    extra_add(m->image, m->size);
    for(int i = 0; i < eh->e_phnum; i++)
    {
        if(ph[i].p_type == PT_LOAD)
            memcpy(m->image + ph[i].p_vaddr, p + ph[i].p_offset, ph[i].p_filesz);
        if(ph[i].p_type == PT_NOTE)
        {
            const uint8_t* q = p + ph[i].p_offset;
            const uint8_t* e = q + ph[i].p_filesz;
            while(q + 12 <= e)
            {
                auto nh           = (const Elf64_Nhdr*)q;
                const uint8_t* nm = q + 12;
                const uint8_t* ds = nm + (nh->n_namesz + 3) / 4 * 4;
                if(nh->n_type == 32 && nh->n_namesz == 7 && memcmp(nm, "AMDGPU", 7) == 0)
                {
                    MsgPack mp{ds, ds + nh->n_descsz};
                    m->meta = mp.parse();
                }
                q = ds + (nh->n_descsz + 3) / 4 * 4;
            }
        }
    }
    // dynamic symbols and relocations
    const Elf64_Sym* dsym = nullptr;
    for(int i = 0; i < eh->e_phnum; i++)
    {
        if(ph[i].p_type != PT_DYNAMIC)
            continue;
        const Elf64_Rela* rela = nullptr;
        size_t relasz          = 0;
        for(auto d = (const Elf64_Dyn*)(m->image + ph[i].p_vaddr); d->d_tag != DT_NULL; d++)
        {
            if(d->d_tag == DT_SYMTAB) dsym = (const Elf64_Sym*)(m->image + d->d_un.d_ptr);
            if(d->d_tag == DT_RELA) rela = (const Elf64_Rela*)(m->image + d->d_un.d_ptr);
            if(d->d_tag == DT_RELASZ) relasz = d->d_un.d_val;
        }
        for(size_t k = 0; rela && k < relasz / sizeof(*rela); k++)
        {
            uint8_t* where = m->image + rela[k].r_offset;
            uint64_t s     = 0;
            if(ELF64_R_SYM(rela[k].r_info))
                s = (uint64_t)m->image + dsym[ELF64_R_SYM(rela[k].r_info)].st_value;
            uint64_t v = s + rela[k].r_addend;
            uint32_t v32;
            switch(ELF64_R_TYPE(rela[k].r_info))
            {
            case 1: v32 = v; memcpy(where, &v32, 4); break;         // ABS32_LO
            case 2: v32 = v >> 32; memcpy(where, &v32, 4); break;   // ABS32_HI
            case 3: memcpy(where, &v, 8); break;                    // ABS64
            case 13: v = (uint64_t)m->image + rela[k].r_addend; memcpy(where, &v, 8); break; // RELATIVE64
            default: why = "relocation type " + std::to_string(ELF64_R_TYPE(rela[k].r_info)); return nullptr;
            }
        }
    }
    auto sh = (const Elf64_Shdr*)(p + eh->e_shoff);
    for(int i = 0; eh->e_shoff && i < eh->e_shnum; i++)
    {
        if(sh[i].sh_type != SHT_DYNSYM && sh[i].sh_type != SHT_SYMTAB)
            continue;
        auto st         = (const Elf64_Sym*)(p + sh[i].sh_offset);
        const char* str = (const char*)(p + sh[sh[i].sh_link].sh_offset);
        for(size_t k = 0; k < sh[i].sh_size / sizeof(Elf64_Sym); k++)
            if(st[k].st_shndx != SHN_UNDEF && st[k].st_name)
                m->syms[str + st[k].st_name] = {st[k].st_value, st[k].st_size};
    }
    if(const char* dir = getenv("HIPEMU_DUMP"))
    {
        static int n = 0;
        std::string fn = std::string(dir) + "/co" + std::to_string(n++) + ".elf";
        std::ofstream(fn, std::ios::binary).write((const char*)p, file_end);
        logf(1, "dumped %s", fn.c_str());
    }
    return m;
}

Function* find_function(Module* m, const std::string& name)
{
    auto f = m->fns.find(name);
    if(f != m->fns.end())
        return f->second.get();
    auto s = m->syms.find(name + ".kd");
    if(s == m->syms.end())
        return nullptr;
    auto fn  = std::make_unique<Function>();
    fn->mod  = m;
    fn->name = name;
    fn->kd   = m->image + s->second.first;
    if(auto ks = m->meta.get("amdhsa.kernels"))
        for(auto& k : ks->a)
            if(k.str(".symbol") == name + ".kd" || k.str(".name") == name)
                fn->meta = k;
    fn->kernarg_size = fn->meta.num(".kernarg_segment_size");
    if(auto as = fn->meta.get(".args"))
        for(auto& a : as->a)
            fn->args.push_back({(uint32_t)a.num(".offset"), (uint32_t)a.num(".size"), a.str(".value_kind")});
    auto r = fn.get();
    m->fns[name] = std::move(fn);
    return r;
}

// ---- launch ---------------------------------------------------------------------
hipemu_run_fn emulator()
{
    static hipemu_run_fn fn = []() -> hipemu_run_fn {
        const char* path = getenv("HIPEMU_EMULATOR");
        if(!path)
        {
            logf(0, "HIPEMU_EMULATOR is not set: kernels cannot run");
            return nullptr;
        }
        void* h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if(!h)
        {
            logf(0, "%s", dlerror());
            return nullptr;
        }
        auto f = (hipemu_run_fn)dlsym(h, "hipemu_run");
        if(!f)
            logf(0, "%s has no hipemu_run", path);
        return f;
    }();
    return fn;
}

struct AqlPacket // hsa_kernel_dispatch_packet_t
{
    uint16_t header, setup, wg[3], reserved0;
    uint32_t grid[3], private_size, group_size;
    uint64_t kernel_object, kernarg, reserved2, completion;
};

hipError_t launch(Function* f, const uint32_t grid[3], const uint32_t block[3], uint32_t shared, void** params, void** extra)
{
    if(!f)
        return ret(hipErrorInvalidHandle);
    for(int i = 0; i < 3; i++)
        if(!grid[i] || !block[i])
            return ret(hipErrorInvalidValue);
    uint32_t group_static, private_size;
    int64_t entry_off;
    uint32_t rsrc2;
    uint16_t props;
    memcpy(&group_static, f->kd, 4);
    memcpy(&private_size, f->kd + 4, 4);
    memcpy(&entry_off, f->kd + 16, 8);
    memcpy(&rsrc2, f->kd + 52, 4);
    memcpy(&props, f->kd + 56, 2);

    const void* buf = nullptr;
    size_t n_buf    = 0;
    if(extra)
        for(void** e = extra; *e != HIP_LAUNCH_PARAM_END; e += 2)
        {
            if(*e == HIP_LAUNCH_PARAM_BUFFER_POINTER) buf = e[1];
            else if(*e == HIP_LAUNCH_PARAM_BUFFER_SIZE) n_buf = *(size_t*)e[1];
            else return ret(hipErrorInvalidValue);
        }
    // Hand-written kernels may have no metadata: then the buffer's size counts.
    size_t ka_size = std::max<size_t>(f->kernarg_size, f->args.empty() ? n_buf : 0);
    std::vector<uint64_t> store((ka_size + 256) / 8 + 1, 0);
    uint8_t* ka = (uint8_t*)store.data();
    if(buf)
        memcpy(ka, buf, std::min<size_t>(n_buf, ka_size));
    else if(params)
    {
        size_t i = 0;
        for(auto& a : f->args)
            if(a.kind.compare(0, 7, "hidden_") != 0)
                memcpy(ka + a.off, params[i++], a.size);
    }
    uint32_t groups[3], rem[3];
    for(int i = 0; i < 3; i++)
    {
        groups[i] = (grid[i] + block[i] - 1) / block[i];
        rem[i]    = grid[i] % block[i];
    }
    for(auto& a : f->args)
    {
        auto put = [&](uint64_t v) { memcpy(ka + a.off, &v, a.size); };
        auto& k  = a.kind;
        if(k.compare(0, 7, "hidden_") != 0) continue;
        if(k == "hidden_block_count_x") put(grid[0] / block[0]);
        else if(k == "hidden_block_count_y") put(grid[1] / block[1]);
        else if(k == "hidden_block_count_z") put(grid[2] / block[2]);
        else if(k == "hidden_group_size_x") put(block[0]);
        else if(k == "hidden_group_size_y") put(block[1]);
        else if(k == "hidden_group_size_z") put(block[2]);
        else if(k == "hidden_remainder_x") put(rem[0]);
        else if(k == "hidden_remainder_y") put(rem[1]);
        else if(k == "hidden_remainder_z") put(rem[2]);
        else if(k == "hidden_grid_dims") put(grid[2] > 1 ? 3 : grid[1] > 1 ? 2 : 1);
        else if(k == "hidden_dynamic_lds_size") put(shared);
        else if(k == "hidden_private_base" || k == "hidden_shared_base") put(0);
        else put(0);
    }

    AqlPacket pkt{};
    pkt.setup = 3;
    for(int i = 0; i < 3; i++)
    {
        pkt.wg[i]   = block[i];
        pkt.grid[i] = grid[i];
    }
    pkt.private_size  = private_size;
    pkt.group_size    = group_static + shared;
    pkt.kernel_object = (uint64_t)f->kd;
    pkt.kernarg       = (uint64_t)ka;

    hipemu_dispatch d{};
    d.version    = HIPEMU_DISPATCH_VERSION;
    d.wave_size  = props & 0x400 ? 32 : 64;
    d.isa        = arch();
    d.kernel     = f->name.c_str();
    d.image      = f->mod->image;
    d.image_size = f->mod->size;
    d.entry      = (const uint32_t*)(f->kd + entry_off);
    d.descriptor = f->kd;
    for(int i = 0; i < 3; i++)
    {
        d.grid[i]   = grid[i];
        d.block[i]  = block[i];
        d.groups[i] = groups[i];
    }
    d.lds_bytes     = group_static + shared;
    d.scratch_bytes = private_size;
    uint32_t n      = 0;
    auto push64     = [&](uint64_t v) {
        d.user_sgpr[n++] = (uint32_t)v;
        d.user_sgpr[n++] = (uint32_t)(v >> 32);
    };
    bool pre_gfx11 = strncmp(arch(), "gfx9", 4) == 0 || strncmp(arch(), "gfx10", 5) == 0;
    if(pre_gfx11 && (props & 1)) { push64(0); push64(0); }
    if(props & 2) push64((uint64_t)&pkt);
    static uint64_t fake_queue[64];
    if(props & 4) push64((uint64_t)fake_queue);
    if(props & 8) push64((uint64_t)ka);
    static uint64_t dispatch_id = 0;
    if(props & 16) push64(++dispatch_id);
    if(pre_gfx11 && (props & 32)) push64(0);
    if(props & 64) d.user_sgpr[n++] = private_size;
    d.n_user_sgpr      = (rsrc2 >> 1) & 31;
    d.sys_sgpr         = (rsrc2 >> 7) & 15;
    d.vgpr_workitem_id = (rsrc2 >> 11) & 3;
    d.resolve = [](const void*, uint64_t addr, uint64_t size) { return check_range(addr, size) ? nullptr : (uint8_t*)addr; };
    logf(1, "launch %s grid %ux%ux%u block %ux%ux%u lds %u scratch %u wave%u user_sgprs %u", f->name.c_str(), grid[0], grid[1],
         grid[2], block[0], block[1], block[2], d.lds_bytes, d.scratch_bytes, d.wave_size, d.n_user_sgpr);
    if(getenv("HIPEMU_SKIP"))
        return hipSuccess;
    auto run = emulator();
    if(!run)
        return ret(hipErrorLaunchFailure);
    char err[512] = "";
    double t0     = now_ms();
    extra_add(ka, store.size() * 8);
    extra_add(&pkt, sizeof pkt);
    int rc = run(&d, err, sizeof err);
    extra_del(ka);
    extra_del(&pkt);
    logf(1, "  -> %d in %.3f ms %s", rc, now_ms() - t0, err);
    if(rc)
    {
        logf(0, "kernel %s failed: %d %s", f->name.c_str(), rc, err);
        return ret(hipErrorLaunchFailure);
    }
    return hipSuccess;
}

// ---- fat binaries registered by host code ------------------------------------------
struct FatWrapper
{
    uint32_t magic, version;
    const void* binary;
    void* unused;
};
struct FatBinary
{
    const FatWrapper* w;
    std::unique_ptr<Module> mod;
    bool tried = false;
};
struct HostFn
{
    FatBinary* fb;
    std::string name;
};
std::map<const void*, HostFn>& host_fns()
{
    static auto* m = new std::map<const void*, HostFn>;
    return *m;
}
struct CallConfig
{
    dim3 grid, block;
    size_t shared;
    hipStream_t stream;
};
thread_local std::vector<CallConfig> call_stack;

struct Stream { unsigned flags; int priority; };
struct Event { double t; bool recorded; unsigned flags; };

} // namespace

// ---- device ---------------------------------------------------------------------------
API hipError_t hipInit(unsigned) { return no_device() ? ret(hipErrorNoDevice) : hipSuccess; }
API hipError_t hipGetDeviceCount(int* n)
{
    *n = no_device() ? 0 : 1;
    return no_device() ? ret(hipErrorNoDevice) : hipSuccess;
}
API hipError_t hipGetDevice(int* d)
{
    if(no_device())
        return ret(hipErrorNoDevice);
    *d = 0;
    return hipSuccess;
}
API hipError_t hipSetDevice(int d) { return d == 0 && !no_device() ? hipSuccess : ret(no_device() ? hipErrorNoDevice : hipErrorInvalidDevice); }
API hipError_t hipDeviceSynchronize() { return hipSuccess; }
API hipError_t hipRuntimeGetVersion(int* v) { *v = HIP_VERSION; return hipSuccess; }
API hipError_t hipDriverGetVersion(int* v) { *v = HIP_VERSION; return hipSuccess; }
API hipError_t hipDeviceTotalMem(size_t* n, hipDevice_t) { *n = total_mem(); return hipSuccess; }
API hipError_t hipMemGetInfo(size_t* f, size_t* t)
{
    *t = total_mem();
    *f = *t - used_bytes;
    return hipSuccess;
}
API hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* p, int d)
{
    if(no_device()) return ret(hipErrorNoDevice);
    if(d) return ret(hipErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Software emulated %s", arch());
    snprintf(p->gcnArchName, sizeof p->gcnArchName, "%s", arch());
    p->totalGlobalMem = total_mem();
    p->sharedMemPerBlock = p->maxSharedMemoryPerMultiProcessor = p->sharedMemPerBlockOptin = 65536;
    p->sharedMemPerMultiprocessor = 65536;
    p->regsPerBlock = p->regsPerMultiprocessor = 196608;
    p->warpSize = strncmp(arch(), "gfx9", 4) == 0 ? 64 : 32;
    p->memPitch = 2147483647;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = p->maxThreadsDim[2] = 1024;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65536;
    p->clockRate = p->clockInstructionRate = 2000000;
    p->memoryClockRate = 1000000;
    p->memoryBusWidth = 256;
    p->totalConstMem = 2147483647;
    const char* a = arch() + 3;
    size_t n = strspn(a, "0123456789abcdef");
    p->major = n > 2 ? atoi(std::string(a, n - 2).c_str()) : 9;
    p->minor = n > 2 ? a[n - 2] - '0' : 0;
    p->multiProcessorCount = env_int("HIPEMU_CUS", 8);
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 2;
    p->l2CacheSize = 4 << 20;
    p->concurrentKernels = 1;
    p->canMapHostMemory = 1;
    p->unifiedAddressing = 1;
    p->managedMemory = 1;
    p->cooperativeLaunch = 1;
    p->integrated = 0;
    p->textureAlignment = 256;
    p->surfaceAlignment = 256;
    p->texturePitchAlignment = 256;
    p->pciBusID = 3;
    p->isLargeBar = 1;
    p->asicRevision = 0;
    p->arch.hasGlobalInt32Atomics = p->arch.hasSharedInt32Atomics = p->arch.hasGlobalInt64Atomics = 1;
    p->arch.hasSharedInt64Atomics = p->arch.hasDoubles = p->arch.hasWarpVote = p->arch.hasWarpBallot = 1;
    p->arch.hasWarpShuffle = p->arch.hasSyncThreadsExt = p->arch.has3dGrid = 1;
    return hipSuccess;
}
API hipError_t hipDeviceGetAttribute(int* v, hipDeviceAttribute_t a, int d)
{
    hipDeviceProp_tR0600 p;
    if(auto e = hipGetDevicePropertiesR0600(&p, d)) return e;
    switch((int)a)
    {
    case hipDeviceAttributeMultiprocessorCount: *v = p.multiProcessorCount; break;
    case hipDeviceAttributePhysicalMultiProcessorCount: *v = p.multiProcessorCount; break;
    case hipDeviceAttributeWarpSize: *v = p.warpSize; break;
    case hipDeviceAttributeMaxThreadsPerBlock: *v = 1024; break;
    case hipDeviceAttributeMaxBlockDimX: case hipDeviceAttributeMaxBlockDimY: case hipDeviceAttributeMaxBlockDimZ: *v = 1024; break;
    case hipDeviceAttributeMaxGridDimX: *v = p.maxGridSize[0]; break;
    case hipDeviceAttributeMaxGridDimY: case hipDeviceAttributeMaxGridDimZ: *v = 65536; break;
    case hipDeviceAttributeMaxSharedMemoryPerBlock: case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor: *v = 65536; break;
    case hipDeviceAttributeMaxThreadsPerMultiProcessor: *v = 2048; break;
    case hipDeviceAttributeMaxRegistersPerBlock: case hipDeviceAttributeMaxRegistersPerMultiprocessor: *v = p.regsPerBlock; break;
    case hipDeviceAttributeClockRate: *v = p.clockRate; break;
    case hipDeviceAttributeMemoryClockRate: *v = p.memoryClockRate; break;
    case hipDeviceAttributeMemoryBusWidth: *v = p.memoryBusWidth; break;
    case hipDeviceAttributeL2CacheSize: *v = p.l2CacheSize; break;
    case hipDeviceAttributeComputeCapabilityMajor: *v = p.major; break;
    case hipDeviceAttributeComputeCapabilityMinor: *v = p.minor; break;
    case hipDeviceAttributeMemoryPoolsSupported: *v = 0; break;
    case hipDeviceAttributeCooperativeLaunch: *v = 1; break;
    case hipDeviceAttributeManagedMemory: case hipDeviceAttributeUnifiedAddressing: case hipDeviceAttributeCanMapHostMemory: *v = 1; break;
    default: *v = 0; logf(1, "hipDeviceGetAttribute %d: unknown, 0", (int)a);
    }
    TRACE("hipDeviceGetAttribute %d = %d", (int)a, *v);
    return hipSuccess;
}

// ---- errors -----------------------------------------------------------------------------
API const char* hipGetErrorName(hipError_t e)
{
    switch((int)e)
    {
#define E(x) case x: return #x;
    E(hipSuccess) E(hipErrorInvalidValue) E(hipErrorOutOfMemory) E(hipErrorNotInitialized) E(hipErrorNoDevice)
    E(hipErrorInvalidDevice) E(hipErrorInvalidImage) E(hipErrorInvalidHandle) E(hipErrorNotFound) E(hipErrorNotReady)
    E(hipErrorNoBinaryForGpu) E(hipErrorLaunchFailure) E(hipErrorNotSupported) E(hipErrorFileNotFound)
    E(hipErrorInvalidDeviceFunction) E(hipErrorUnknown)
#undef E
    default: return "hipErrorOther";
    }
}
API const char* hipGetErrorString(hipError_t e) { return hipGetErrorName(e); }
API hipError_t hipGetLastError() { auto e = last_error; last_error = hipSuccess; return e; }
API hipError_t hipExtGetLastError() { return hipGetLastError(); }
API hipError_t hipPeekAtLastError() { return last_error; }

// ---- memory -------------------------------------------------------------------------------
API hipError_t hipMalloc(void** p, size_t n)
{
    if(no_device()) return ret(hipErrorNoDevice);
    if(!n) { *p = nullptr; return hipSuccess; }
    *p = mem_alloc(n, false);
    TRACE("hipMalloc %zu = %p", n, *p);
    return *p ? hipSuccess : ret(hipErrorOutOfMemory);
}
API hipError_t hipHostMalloc(void** p, size_t n, unsigned)
{
    if(no_device()) return ret(hipErrorNoDevice);
    *p = mem_alloc(n, true);
    return *p ? hipSuccess : ret(hipErrorOutOfMemory);
}
API hipError_t hipMallocManaged(void** p, size_t n, unsigned) { return hipMalloc(p, n); }
API hipError_t hipMallocAsync(void** p, size_t n, hipStream_t) { return hipMalloc(p, n); }
API hipError_t hipFree(void* p) { return !p || mem_free(p) ? hipSuccess : ret(hipErrorInvalidValue); }
API hipError_t hipHostFree(void* p) { return hipFree(p); }
API hipError_t hipFreeAsync(void* p, hipStream_t) { return hipFree(p); }
API hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* p, int) { static int x; *p = (hipMemPool_t)&x; return hipSuccess; }
API hipError_t hipMemPoolTrimTo(hipMemPool_t, size_t) { return hipSuccess; }
API hipError_t hipMemcpy(void* d, const void* s, size_t n, hipMemcpyKind) { memmove(d, s, n); return hipSuccess; }
API hipError_t hipMemcpyAsync(void* d, const void* s, size_t n, hipMemcpyKind, hipStream_t) { memmove(d, s, n); return hipSuccess; }
API hipError_t hipMemcpyWithStream(void* d, const void* s, size_t n, hipMemcpyKind, hipStream_t) { memmove(d, s, n); return hipSuccess; }
#if HIP_VERSION_MAJOR < 7
API hipError_t hipMemcpyHtoD(hipDeviceptr_t d, void* s, size_t n)
#else
API hipError_t hipMemcpyHtoD(hipDeviceptr_t d, const void* s, size_t n)
#endif
{ memmove((void*)d, s, n); return hipSuccess; }
API hipError_t hipMemcpyDtoH(void* d, hipDeviceptr_t s, size_t n) { memmove(d, (void*)s, n); return hipSuccess; }
API hipError_t hipMemcpy2D(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, hipMemcpyKind)
{
    for(size_t i = 0; i < h; i++) memmove((char*)d + i * dp, (const char*)s + i * sp, w);
    return hipSuccess;
}
API hipError_t hipMemcpy2DAsync(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, hipMemcpyKind k, hipStream_t)
{
    return hipMemcpy2D(d, dp, s, sp, w, h, k);
}
API hipError_t hipMemset(void* d, int v, size_t n) { memset(d, v, n); return hipSuccess; }
API hipError_t hipMemsetAsync(void* d, int v, size_t n, hipStream_t) { memset(d, v, n); return hipSuccess; }
API hipError_t hipMemPtrGetInfo(void* p, size_t* n)
{
    uintptr_t b; Alloc a;
    if(!mem_find(p, b, a)) return ret(hipErrorInvalidValue);
    *n = a.size;
    return hipSuccess;
}
API hipError_t hipPointerGetAttributes(hipPointerAttribute_t* at, const void* p)
{
    uintptr_t b; Alloc a;
    if(!mem_find(p, b, a)) return ret(hipErrorInvalidValue);
    memset(at, 0, sizeof *at);
    at->type = a.host ? hipMemoryTypeHost : hipMemoryTypeDevice;
    at->devicePointer = (void*)p;
    at->hostPointer = a.host ? (void*)p : nullptr;
    return hipSuccess;
}

// ---- streams and events -----------------------------------------------------------------------
API hipError_t hipStreamCreateWithFlags(hipStream_t* s, unsigned f) { *s = (hipStream_t) new Stream{f, 0}; return no_device() ? ret(hipErrorNoDevice) : hipSuccess; }
API hipError_t hipStreamCreate(hipStream_t* s) { return hipStreamCreateWithFlags(s, 0); }
API hipError_t hipStreamCreateWithPriority(hipStream_t* s, unsigned f, int) { return hipStreamCreateWithFlags(s, f); }
API hipError_t hipStreamDestroy(hipStream_t s) { delete (Stream*)s; return hipSuccess; }
API hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
API hipError_t hipStreamGetFlags(hipStream_t s, unsigned* f) { *f = s ? ((Stream*)s)->flags : 0; return hipSuccess; }
API int hipGetStreamDeviceId(hipStream_t) { return 0; }
API hipError_t hipLaunchHostFunc(hipStream_t, hipHostFn_t fn, void* data) { fn(data); return hipSuccess; }
API hipError_t hipStreamQuery(hipStream_t) { return hipSuccess; }
API hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t, unsigned) { return hipSuccess; }
API hipError_t hipStreamIsCapturing(hipStream_t, hipStreamCaptureStatus* s) { *s = hipStreamCaptureStatusNone; return hipSuccess; }
API hipError_t hipEventCreateWithFlags(hipEvent_t* e, unsigned f) { *e = (hipEvent_t) new Event{0, false, f}; return no_device() ? ret(hipErrorNoDevice) : hipSuccess; }
API hipError_t hipEventCreate(hipEvent_t* e) { return hipEventCreateWithFlags(e, 0); }
API hipError_t hipEventDestroy(hipEvent_t e) { delete (Event*)e; return hipSuccess; }
API hipError_t hipEventRecord(hipEvent_t e, hipStream_t)
{
    if(!e) return ret(hipErrorInvalidHandle);
    ((Event*)e)->t = now_ms();
    ((Event*)e)->recorded = true;
    return hipSuccess;
}
API hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }
API hipError_t hipEventQuery(hipEvent_t) { return hipSuccess; }
API hipError_t hipEventElapsedTime(float* ms, hipEvent_t a, hipEvent_t b)
{
    *ms = float(((Event*)b)->t - ((Event*)a)->t);
    if(*ms <= 0) *ms = 1e-4f;
    return hipSuccess;
}

// ---- modules ------------------------------------------------------------------------------------
API hipError_t hipModuleLoadData(hipModule_t* out, const void* data)
{
    if(no_device()) return ret(hipErrorNoDevice);
    std::string why;
    auto m = load_code_object(data, why);
    if(!m)
    {
        logf(0, "hipModuleLoadData: %s", why.c_str());
        return ret(hipErrorNoBinaryForGpu);
    }
    *out = (hipModule_t)m.release();
    return hipSuccess;
}
API hipError_t hipModuleLoad(hipModule_t* out, const char* file)
{
    std::ifstream f(file, std::ios::binary);
    if(!f) return ret(hipErrorFileNotFound);
    std::string s((std::istreambuf_iterator<char>(f)), {});
    TRACE("hipModuleLoad %s %zu bytes", file, s.size());
    return hipModuleLoadData(out, s.data());
}
API hipError_t hipModuleUnload(hipModule_t m) { delete (Module*)m; return hipSuccess; }
API hipError_t hipModuleGetFunction(hipFunction_t* out, hipModule_t m, const char* name)
{
    auto f = find_function((Module*)m, name);
    TRACE("hipModuleGetFunction %s = %p", name, (void*)f);
    if(!f) return ret(hipErrorNotFound);
    *out = (hipFunction_t)f;
    return hipSuccess;
}
API hipError_t hipModuleGetGlobal(hipDeviceptr_t* p, size_t* n, hipModule_t m, const char* name)
{
    auto M = (Module*)m;
    auto it = M->syms.find(name);
    if(it == M->syms.end()) return ret(hipErrorNotFound);
    if(p) *p = (hipDeviceptr_t)(M->image + it->second.first);
    if(n) *n = it->second.second;
    return hipSuccess;
}
API hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* n, hipFunction_t, int, size_t) { *n = 2; return hipSuccess; }
API hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                     unsigned shared, hipStream_t, void** params, void** extra)
{
    uint32_t g[3] = {gx * bx, gy * by, gz * bz}, b[3] = {bx, by, bz};
    return launch((Function*)f, g, b, shared, params, extra);
}
API hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                                unsigned bz, unsigned shared, hipStream_t s, void** params)
{
    return hipModuleLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, params, nullptr);
}
API hipError_t hipExtModuleLaunchKernel(hipFunction_t f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,
                                        size_t shared, hipStream_t s, void** params, void** extra, hipEvent_t start, hipEvent_t stop,
                                        uint32_t)
{
    uint32_t g[3] = {gx, gy, gz}, b[3] = {bx, by, bz};
    if(start) (void)hipEventRecord(start, s);
    auto r = launch((Function*)f, g, b, shared, params, extra);
    if(stop) (void)hipEventRecord(stop, s);
    return r;
}
API hipError_t hipHccModuleLaunchKernel(hipFunction_t f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,
                                        size_t shared, hipStream_t s, void** params, void** extra, hipEvent_t start, hipEvent_t stop)
{
    return hipExtModuleLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, params, extra, start, stop, 0);
}

// ---- kernels compiled into host programs ----------------------------------------------------------
API void** __hipRegisterFatBinary(const void* data) { return (void**)new FatBinary{(const FatWrapper*)data, nullptr, false}; }
API void __hipUnregisterFatBinary(void**) {}
API void __hipRegisterFunction(void** fb, const void* host, char*, const char* name, unsigned, void*, void*, void*, void*, int*)
{
    host_fns()[host] = {(FatBinary*)fb, name};
}
API void __hipRegisterVar(void**, void*, char*, char*, int, size_t, int, int) {}
API hipError_t __hipPushCallConfiguration(dim3 g, dim3 b, size_t sh, hipStream_t s)
{
    call_stack.push_back({g, b, sh, s});
    return hipSuccess;
}
API hipError_t __hipPopCallConfiguration(dim3* g, dim3* b, size_t* sh, hipStream_t* s)
{
    if(call_stack.empty()) return ret(hipErrorInvalidValue);
    auto c = call_stack.back();
    call_stack.pop_back();
    *g = c.grid; *b = c.block; *sh = c.shared; *s = c.stream;
    return hipSuccess;
}
API hipError_t hipLaunchKernel(const void* host, dim3 g, dim3 b, void** args, size_t shared, hipStream_t)
{
    auto it = host_fns().find(host);
    if(it == host_fns().end()) return ret(hipErrorInvalidDeviceFunction);
    auto fb = it->second.fb;
    if(!fb->tried)
    {
        fb->tried = true;
        std::string why;
        fb->mod = load_code_object(fb->w->binary, why);
        if(!fb->mod) logf(0, "fat binary of %s: %s", it->second.name.c_str(), why.c_str());
    }
    if(!fb->mod) return ret(hipErrorNoBinaryForGpu);
    auto f = find_function(fb->mod.get(), it->second.name);
    if(!f) return ret(hipErrorInvalidDeviceFunction);
    uint32_t G[3] = {g.x * b.x, g.y * b.y, g.z * b.z}, B[3] = {b.x, b.y, b.z};
    return launch(f, G, B, shared, args, nullptr);
}
