#include "module.h"

#include <cstdlib>
#include <dlfcn.h>
#include <elf.h>
#include <fstream>
#include <sys/mman.h>

#include "memory.h"

namespace hipemu {
namespace {
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
            if(target == Settings::get().arch || target.substr(0, target.find(':')) == Settings::get().arch)
                return p + off;
        }
        seen += " " + id;
    }
    why = "no code object for " + Settings::get().arch + " in bundle:" + seen;
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
} // namespace

std::shared_ptr<Module> load_code_object(const void* data, int device, std::string& why)
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
    auto m    = std::make_shared<Module>();
    m->device = device;
    m->size  = (end + 4095 + 4096) / 4096 * 4096;
    m->image = (uint8_t*)mmap(nullptr, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if(m->image == MAP_FAILED)
    {
        m->image = nullptr;
        why      = "mmap";
        return nullptr;
    }
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
                    m->metadata = mp.parse();
                }
                q = ds + (nh->n_descsz + 3) / 4 * 4;
            }
        }
    }
    adopt(m->image, m->size, Kind::Code, device);
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
                m->symbols[str + st[k].st_name] = {st[k].st_value, st[k].st_size};
    }
    if(const std::string& dir = Settings::get().dump; !dir.empty())
    {
        static std::atomic<int> n{0};
        std::string fn = dir + "/co" + std::to_string(n++) + ".elf";
        std::ofstream(fn, std::ios::binary).write((const char*)p, file_end);
        message(1, "dumped %s", fn.c_str());
    }
    return m;
}

Module::~Module()
{
    if(!image) return;
    forget(image, Kind::Code);
    munmap(image, size);
}

Function* Module::find(const std::string& name)
{
    auto known = functions.find(name);
    if(known != functions.end()) return known->second.get();
    auto symbol = symbols.find(name + ".kd");
    if(symbol == symbols.end()) return nullptr;
    auto function        = std::make_unique<Function>();
    function->module     = this;
    function->name       = name;
    function->descriptor = image + symbol->second.first;
    if(auto kernels = metadata.get("amdhsa.kernels"))
        for(auto& kernel : kernels->a)
        {
            if(kernel.str(".symbol") != name + ".kd" && kernel.str(".name") != name) continue;
            function->argument_bytes = kernel.num(".kernarg_segment_size");
            if(auto arguments = kernel.get(".args"))
                for(auto& a : arguments->a)
                    function->arguments.push_back({(uint32_t)a.num(".offset"), (uint32_t)a.num(".size"), a.str(".value_kind")});
        }
    return (functions[name] = std::move(function)).get();
}
} // namespace hipemu
