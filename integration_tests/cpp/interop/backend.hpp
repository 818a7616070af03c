// hipDNN's backend functions as its clients declare them; their numbers are in a header that `cargo xtask interop`
// makes of sdk-bindings/tests/hipdnn_numbers.txt.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "hipdnn_numbers.h"

struct hipdnnHandle;
struct HipdnnBackendDescriptor;
using hipdnnHandle_t = hipdnnHandle*;
using hipdnnBackendDescriptor_t = HipdnnBackendDescriptor*;

extern "C"
{
    hipdnnStatus_t hipdnnCreate(hipdnnHandle_t*);
    hipdnnStatus_t hipdnnDestroy(hipdnnHandle_t);
    hipdnnStatus_t hipdnnSetStream(hipdnnHandle_t, void*);
    hipdnnStatus_t hipdnnBackendCreateDescriptor(hipdnnBackendDescriptorType_t, hipdnnBackendDescriptor_t*);
    hipdnnStatus_t hipdnnBackendDestroyDescriptor(hipdnnBackendDescriptor_t);
    hipdnnStatus_t hipdnnBackendFinalize(hipdnnBackendDescriptor_t);
    hipdnnStatus_t hipdnnBackendExecute(hipdnnHandle_t, hipdnnBackendDescriptor_t plan, hipdnnBackendDescriptor_t pack);
    hipdnnStatus_t hipdnnBackendGetAttribute(hipdnnBackendDescriptor_t, hipdnnBackendAttributeName_t,
                                             hipdnnBackendAttributeType_t, int64_t requested, int64_t* count,
                                             void* elements);
    hipdnnStatus_t hipdnnBackendSetAttribute(hipdnnBackendDescriptor_t, hipdnnBackendAttributeName_t,
                                             hipdnnBackendAttributeType_t, int64_t count, const void* elements);
    void hipdnnGetLastErrorString(char*, size_t);
    hipdnnStatus_t hipdnnBackendCreateAndDeserializeGraph_ext(hipdnnBackendDescriptor_t*, const uint8_t*, size_t);
    hipdnnStatus_t hipdnnBackendGetSerializedBinaryGraph_ext(hipdnnBackendDescriptor_t, size_t, size_t*, uint8_t*);
    hipdnnStatus_t hipdnnBackendGetSerializedJsonGraph_ext(hipdnnBackendDescriptor_t, size_t, size_t*, char*);
    hipdnnStatus_t hipdnnBackendCreateAndDeserializeJsonGraph_ext(hipdnnBackendDescriptor_t*, const char*, size_t);
    hipdnnStatus_t hipdnnBackendGetSerializedExecutionPlan_ext(hipdnnBackendDescriptor_t, size_t, size_t*, uint8_t*);
    hipdnnStatus_t hipdnnBackendCreateAndDeserializeExecutionPlan_ext(hipdnnHandle_t, hipdnnBackendDescriptor_t*,
                                                                      const uint8_t*, size_t);
    hipdnnStatus_t hipdnnBackendGetSerializedBinaryGraphAndPlan_ext(hipdnnBackendDescriptor_t graph,
                                                                    hipdnnBackendDescriptor_t plan, size_t, size_t*,
                                                                    uint8_t*);
    hipdnnStatus_t hipdnnBackendGetSerializedBinaryContents_ext(const uint8_t*, size_t, int*);
    hipdnnStatus_t hipdnnBackendWriteEngineRankingResults_ext(hipdnnHandle_t, hipdnnBackendDescriptor_t, const int64_t*,
                                                              size_t, int*);
    hipdnnStatus_t hipdnnGetEngineCount_ext(hipdnnHandle_t, size_t*);
    hipdnnStatus_t hipdnnGetEngineInfo_ext(hipdnnHandle_t, size_t, int64_t* id, char* name, size_t*, char* plugin,
                                           size_t*, char* version, size_t*, char* type, size_t*);
    hipdnnStatus_t hipdnnGetEngineNameById_ext(hipdnnHandle_t, int64_t, char*, size_t*);
}

// The text of this thread's last error.
inline std::string last_error()
{
    char text[2048] = {};
    hipdnnGetLastErrorString(text, sizeof text);
    return text;
}

// hipDNN's id of a name: FNV-1a of 64 bits.
inline int64_t id_of(const char* name)
{
    uint64_t hash = 14695981039346656037ull;
    for(; *name; name++)
    {
        hash ^= uint8_t(*name);
        hash *= 1099511628211ull;
    }
    return int64_t(hash);
}
