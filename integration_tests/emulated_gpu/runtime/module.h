// Code objects: loading them and finding their kernels.
#pragma once
#include <map>
#include <vector>

#include "common.h"
#include "msgpack.h"

namespace hipemu {
struct Module;
struct Function
{
    Module* module = nullptr;
    std::string name;
    const uint8_t* descriptor = nullptr; // 64 bytes
    struct Argument { uint32_t offset, size; std::string kind; };
    std::vector<Argument> arguments; // as the metadata lists them, hidden ones too
    uint32_t argument_bytes = 0;
};
struct Module
{
    int device     = 0;
    uint8_t* image = nullptr;
    size_t size    = 0;
    std::map<std::string, std::pair<uint64_t, uint64_t>> symbols; // name: offset, size
    std::map<std::string, std::unique_ptr<Function>> functions;
    Val metadata;

    Module() = default;
    Module(const Module&) = delete;
    ~Module();
    // Null when there is no such kernel.
    Function* find(const std::string& name);
};

// Takes an ELF image, or an offload bundle of several, compressed or not.
std::shared_ptr<Module> load_code_object(const void* data, int device, std::string& why);
} // namespace hipemu
