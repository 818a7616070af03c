/* A complete hipDNN engine plugin in C, as somebody else would write one: it proves that the backend loads plugins that
 * are not ours. Its one engine runs y = relu(conv(x, w) + b) in fp32 with plain loops and declines everything else. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "hipdnn_rs/hipdnn_plugin.h"

#define ENGINE_NAME "TEST_C_ENGINE"
#define MAX_RANK 4

/* Clients that say how tensors are aligned want 1.3.0. */
#ifndef API_VERSION
#define API_VERSION "1.0.0"
#endif

struct HipdnnEnginePluginHandle {
    hipStream_t stream;
};

struct tensor {
    int64_t uid;
    int64_t dims[MAX_RANK];
    int64_t strides[MAX_RANK];
    int is_virtual;
};

struct HipdnnEnginePluginExecutionContext {
    struct tensor x, w, b, y;
    int64_t pad[2], stride[2], dilation[2];
};

/* Execution contexts that were made and not destroyed: how many plans a client holds. */
static atomic_int living;

int test_plugin_living_contexts(void) {
    return living;
}

static _Thread_local char last_error[256];
static hipdnnCallback_t log_callback;

static hipdnnPluginStatus_t fail(hipdnnPluginStatus_t status, const char* text) {
    strncpy(last_error, text, sizeof last_error - 1);
    return status;
}

/* ---- reading a FlatBuffer by hand; every read is checked against the buffer ---- */

struct bytes {
    const uint8_t* at;
    size_t size;
};

static uint64_t read_le(struct bytes b, size_t offset, size_t width, int* ok) {
    uint64_t value = 0;
    if (offset > b.size || b.size - offset < width) {
        *ok = 0;
        return 0;
    }
    for (size_t i = 0; i < width; i++) value |= (uint64_t)b.at[offset + i] << (8 * i);
    return value;
}

static size_t follow(struct bytes b, size_t offset, int* ok) {
    return offset + (size_t)read_le(b, offset, 4, ok);
}

/* Where the field of that vtable slot lies, or 0 when it is absent. */
static size_t field(struct bytes b, size_t table, unsigned slot, int* ok) {
    size_t vtable = (size_t)((int64_t)table - (int32_t)read_le(b, table, 4, ok));
    if (!*ok || slot + 2 > read_le(b, vtable, 2, ok)) return 0;
    uint64_t offset = read_le(b, vtable + slot, 2, ok);
    return offset == 0 ? 0 : table + offset;
}

static int64_t long_field(struct bytes b, size_t table, unsigned slot, int* ok) {
    size_t at = field(b, table, slot, ok);
    return at == 0 ? 0 : (int64_t)read_le(b, at, 8, ok);
}

static int byte_field(struct bytes b, size_t table, unsigned slot, int* ok) {
    size_t at = field(b, table, slot, ok);
    return at == 0 ? 0 : (int)read_le(b, at, 1, ok);
}

/* Reads at most max longs of a vector; gives its length. */
static size_t longs_field(struct bytes b, size_t table, unsigned slot, int64_t* out, size_t max, int* ok) {
    size_t at = field(b, table, slot, ok);
    if (at == 0) return 0;
    at = follow(b, at, ok);
    size_t count = (size_t)read_le(b, at, 4, ok);
    for (size_t i = 0; i < count && i < max && *ok; i++) out[i] = (int64_t)read_le(b, at + 4 + 8 * i, 8, ok);
    return count;
}

static size_t element(struct bytes b, size_t vector, size_t i, int* ok) {
    return follow(b, vector + 4 + 4 * i, ok);
}

static int find_tensor(struct bytes b, size_t tensors, int64_t uid, struct tensor* out) {
    int ok = 1;
    size_t count = (size_t)read_le(b, tensors, 4, &ok);
    for (size_t i = 0; i < count && ok; i++) {
        size_t table = element(b, tensors, i, &ok);
        if (!ok || long_field(b, table, 4, &ok) != uid) continue;
        out->uid = uid;
        out->is_virtual = byte_field(b, table, 14, &ok);
        return byte_field(b, table, 8, &ok) == 1 /* FLOAT */ &&
               longs_field(b, table, 12, out->dims, MAX_RANK, &ok) == MAX_RANK &&
               longs_field(b, table, 10, out->strides, MAX_RANK, &ok) == MAX_RANK && ok;
    }
    return 0;
}

/* Recognizes conv -> add -> relu and fills the context. */
static int recognize(const hipdnnPluginConstData_t* data, struct HipdnnEnginePluginExecutionContext* context) {
    enum { CONVOLUTION = 5, POINTWISE = 2, ADD = 2, RELU = 34, CROSS_CORRELATION = 2 };
    struct bytes b = {data->ptr, data->size};
    int ok = 1;
    size_t root = follow(b, 0, &ok);
    if (!ok) return 0;
    size_t tensors = field(b, root, 12, &ok), nodes = field(b, root, 14, &ok);
    if (!ok || tensors == 0 || nodes == 0) return 0;
    tensors = follow(b, tensors, &ok);
    nodes = follow(b, nodes, &ok);
    if (!ok || read_le(b, nodes, 4, &ok) != 3) return 0;

    size_t attributes[3];
    static const int wanted[3] = {CONVOLUTION, POINTWISE, POINTWISE};
    for (size_t i = 0; i < 3; i++) {
        size_t node = element(b, nodes, i, &ok);
        size_t at = ok ? field(b, node, 10, &ok) : 0;
        if (!ok || at == 0 || byte_field(b, node, 8, &ok) != wanted[i]) return 0;
        attributes[i] = follow(b, at, &ok);
        if (!ok) return 0;
    }
    size_t conv = attributes[0], add = attributes[1], relu = attributes[2];
    if (byte_field(b, conv, 18, &ok) != CROSS_CORRELATION || byte_field(b, add, 4, &ok) != ADD ||
        byte_field(b, relu, 4, &ok) != RELU)
        return 0;
    int64_t conv_out = long_field(b, conv, 8, &ok), sum = long_field(b, add, 20, &ok);
    if (long_field(b, add, 14, &ok) != conv_out || long_field(b, relu, 14, &ok) != sum) return 0;
    struct tensor middle;
    return find_tensor(b, tensors, long_field(b, conv, 4, &ok), &context->x) &&
           find_tensor(b, tensors, long_field(b, conv, 6, &ok), &context->w) &&
           find_tensor(b, tensors, long_field(b, add, 16, &ok), &context->b) &&
           find_tensor(b, tensors, long_field(b, relu, 20, &ok), &context->y) &&
           find_tensor(b, tensors, conv_out, &middle) && middle.is_virtual &&
           find_tensor(b, tensors, sum, &middle) && middle.is_virtual &&
           longs_field(b, conv, 10, context->pad, 2, &ok) == 2 &&
           longs_field(b, conv, 14, context->stride, 2, &ok) == 2 &&
           longs_field(b, conv, 16, context->dilation, 2, &ok) == 2 &&
           context->x.dims[1] == context->w.dims[1] && ok;
}

/* ---- the ABI ---- */

/* FNV-1a of the engine's name: how hipDNN derives engine ids. */
static int64_t engine_id(void) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char* c = ENGINE_NAME; *c; c++) hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
    return (int64_t)hash;
}

hipdnnPluginStatus_t hipdnnPluginGetName(const char** name) {
    if (!name) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "name is null");
    *name = "test_c_plugin";
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnPluginGetVersion(const char** version) {
    if (!version) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "version is null");
    *version = "0.0.1";
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnPluginGetApiVersion(const char** version) {
    if (!version) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "version is null");
    *version = API_VERSION;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnPluginGetType(hipdnnPluginType_t* type) {
    if (!type) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "type is null");
    *type = HIPDNN_PLUGIN_TYPE_ENGINE;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

void hipdnnPluginGetLastErrorString(const char** error_str) {
    if (error_str) *error_str = last_error;
}

hipdnnPluginStatus_t hipdnnPluginSetLoggingCallback(hipdnnCallback_t callback) {
    if (!callback) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "callback is null");
    log_callback = callback;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetAllEngineIds(int64_t* ids, uint32_t max, uint32_t* count) {
    if (!count) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "num_engines is null");
    if (ids && max > 0) ids[0] = engine_id();
    *count = 1;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetEngineName(int64_t id, const char** name) {
    if (!name) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "name is null");
    if (id != engine_id()) return HIPDNN_PLUGIN_STATUS_NOT_APPLICABLE;
    *name = ENGINE_NAME;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginCreate(hipdnnEnginePluginHandle_t* handle) {
    if (!handle) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "handle is null");
    *handle = calloc(1, sizeof **handle);
    if (!*handle) return fail(HIPDNN_PLUGIN_STATUS_ALLOC_FAILED, "out of memory");
    if (log_callback) log_callback(HIPDNN_SEV_INFO, "test_c_plugin: handle created");
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginDestroy(hipdnnEnginePluginHandle_t handle) {
    if (!handle) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "handle is null");
    free(handle);
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginSetStream(hipdnnEnginePluginHandle_t handle, hipStream_t stream) {
    if (!handle) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "handle is null");
    handle->stream = stream;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetApplicableEngineIds(hipdnnEnginePluginHandle_t handle,
                                                              const hipdnnPluginConstData_t* op_graph, int64_t* ids,
                                                              uint32_t max, uint32_t* count) {
    if (!handle || !op_graph || !count || (!ids && max > 0))
        return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "null argument");
    struct HipdnnEnginePluginExecutionContext context;
    *count = 0;
    if (max > 0 && recognize(op_graph, &context)) {
        ids[0] = engine_id();
        *count = 1;
    }
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetEngineDetails(hipdnnEnginePluginHandle_t handle, int64_t id,
                                                        const hipdnnPluginConstData_t* op_graph,
                                                        hipdnnPluginConstData_t* details) {
    if (!handle || !op_graph || !details) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "null argument");
    if (id != engine_id()) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "unknown engine id");
    /* The smallest EngineDetails: a root offset, a table whose only field is the id, and its vtable. */
    uint8_t* buffer = calloc(1, 32);
    if (!buffer) return fail(HIPDNN_PLUGIN_STATUS_ALLOC_FAILED, "out of memory");
    static const uint8_t head[20] = {12, 0, 0, 0, 0, 0, 6, 0, 12, 0, 4, 0, 6, 0, 0, 0, 0, 0, 0, 0};
    memcpy(buffer, head, sizeof head);
    memcpy(buffer + 16, &id, sizeof id);
    details->ptr = buffer;
    details->size = 24;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginDestroyEngineDetails(hipdnnEnginePluginHandle_t handle,
                                                            hipdnnPluginConstData_t* details) {
    if (!handle || !details) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "null argument");
    free((void*)details->ptr);
    details->ptr = NULL;
    details->size = 0;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetWorkspaceSize(hipdnnEnginePluginHandle_t handle,
                                                        const hipdnnPluginConstData_t* config,
                                                        const hipdnnPluginConstData_t* op_graph, size_t* size) {
    if (!handle || !config || !op_graph || !size) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "null argument");
    *size = 0;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginCreateExecutionContext(hipdnnEnginePluginHandle_t handle,
                                                              const hipdnnPluginConstData_t* config,
                                                              const hipdnnPluginConstData_t* op_graph,
                                                              hipdnnEnginePluginExecutionContext_t* context) {
    if (!handle || !config || !op_graph || !context) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "null argument");
    struct HipdnnEnginePluginExecutionContext* made = malloc(sizeof *made);
    if (!made) return fail(HIPDNN_PLUGIN_STATUS_ALLOC_FAILED, "out of memory");
    if (!recognize(op_graph, made)) {
        free(made);
        return fail(HIPDNN_PLUGIN_STATUS_INVALID_VALUE, "the graph is not conv, add, relu in fp32");
    }
    *context = made;
    living++;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginDestroyExecutionContext(hipdnnEnginePluginHandle_t handle,
                                                               hipdnnEnginePluginExecutionContext_t context) {
    if (!handle || !context) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "null argument");
    free(context);
    living--;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(
    hipdnnEnginePluginHandle_t handle, hipdnnEnginePluginExecutionContext_t context, size_t* size) {
    if (!handle || !context || !size) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "null argument");
    *size = 0;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginExecuteOpGraph(hipdnnEnginePluginHandle_t handle,
                                                      hipdnnEnginePluginExecutionContext_t context, void* workspace,
                                                      const hipdnnPluginDeviceBuffer_t* buffers, uint32_t count) {
    (void)workspace;
    if (!handle || !context || !buffers) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "null argument");
    const struct tensor* tensors[4] = {&context->x, &context->w, &context->b, &context->y};
    float* at[4] = {NULL, NULL, NULL, NULL};
    for (uint32_t i = 0; i < count; i++)
        for (int t = 0; t < 4; t++)
            if (buffers[i].uid == tensors[t]->uid) at[t] = buffers[i].ptr;
    if (!at[0] || !at[1] || !at[2] || !at[3]) return fail(HIPDNN_PLUGIN_STATUS_INVALID_VALUE, "a tensor has no buffer");

    const struct tensor *x = tensors[0], *w = tensors[1], *b = tensors[2], *y = tensors[3];
    for (int64_t n = 0; n < y->dims[0]; n++)
        for (int64_t k = 0; k < y->dims[1]; k++)
            for (int64_t p = 0; p < y->dims[2]; p++)
                for (int64_t q = 0; q < y->dims[3]; q++) {
                    float sum = at[2][k * b->strides[1]];
                    for (int64_t c = 0; c < w->dims[1]; c++)
                        for (int64_t r = 0; r < w->dims[2]; r++)
                            for (int64_t s = 0; s < w->dims[3]; s++) {
                                int64_t i = p * context->stride[0] + r * context->dilation[0] - context->pad[0];
                                int64_t j = q * context->stride[1] + s * context->dilation[1] - context->pad[1];
                                if (i < 0 || i >= x->dims[2] || j < 0 || j >= x->dims[3]) continue;
                                sum += at[0][n * x->strides[0] + c * x->strides[1] + i * x->strides[2] +
                                             j * x->strides[3]] *
                                       at[1][k * w->strides[0] + c * w->strides[1] + r * w->strides[2] +
                                             s * w->strides[3]];
                            }
                    at[3][n * y->strides[0] + k * y->strides[1] + p * y->strides[2] + q * y->strides[3]] =
                        sum > 0.0f ? sum : 0.0f;
                }
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}
