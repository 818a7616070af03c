/* What hipdnn-rs's engine plugin has beyond hipDNN's plugin ABI, for clients of any backend.
 *
 * A client finds the plugin's file with hipdnnGetLoadedEnginePluginPaths_ext, opens it once more with
 * dlopen(path, RTLD_NOW | RTLD_NOLOAD), and looks up the one exported function. Plugins without it are others'. The table
 * is valid as long as the plugin is loaded, which the client's own dlopen sees to. */
#ifndef HIPDNN_RS_EXTENSION_H
#define HIPDNN_RS_EXTENSION_H

#include <stddef.h>
#include <stdint.h>

#include "hipdnn_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A client's parallel-for.
 *
 * `run` calls body(data, item) once for every item from 0 to items - 1, and returns when all calls have returned: 0, or
 * anything else if it left items out; the engine then does what is left on the calling thread.
 *
 * - Items may run in any order, on any threads, all of them on the calling thread as well: no item waits for one that has not
 *   begun. An execution calls run for each loop of its first step that has any, and once for all steps behind that: the first
 *   item to begin then does the execution's work, and the others help until it is done.
 * - `items` is at most the number of threads that the plan was built for (knob hipdnn_rs.cpu.threads). It says how many
 *   threads are of use and asks for none; results do not depend on how many there are.
 * - `body` never unwinds. `run` must not throw. Neither may call body after run has returned.
 * - An item does not call the lender, and waits for no lock that is held around a call of run: run may do other work of the
 *   client, other executions included, while it waits. */
typedef struct {
    int (*run)(void* context, size_t items, void (*body)(void* data, size_t item), void* data); /* NULL lends nothing */
    void* context;
} hipdnnRsParallelFor_t;

/* The contents behind a token of the knob hipdnn_rs.constants: the tensor as it lies in memory, aligned for its elements. */
typedef struct {
    const char* token;
    const void* data;
    size_t size; /* in bytes */
} hipdnnRsConstant_t;

typedef struct {
    const hipdnnRsConstant_t* constants;
    size_t count;
} hipdnnRsConstants_t;

/* The memory that the tensors of a handle are in. */
typedef enum {
    HIPDNN_RS_MEMORY_UNSPECIFIED = 0, /* engines go by whether the process has a GPU, and HIPDNN_RS_CPU_ENGINE */
    HIPDNN_RS_MEMORY_HOST = 1,        /* memory of the CPU: HIPDNN_RS_CPU_ENGINE alone takes graphs */
    HIPDNN_RS_MEMORY_DEVICE = 2       /* memory of the GPU of the handle's stream: engines for GPUs alone take graphs */
} hipdnnRsMemoryKind_t;

/* The launches of several executions. */
typedef struct hipdnnRsRecording* hipdnnRsRecording_t;

typedef struct {
    /* The version that the plugin has; a version has what older ones have, at the same places. */
    uint32_t version;

    /* Since version 1. Lends `lent` to executions on HIPDNN_RS_CPU_ENGINE by the calling thread, until something else is lent;
     * NULL lends nothing. Such an execution works on the calling thread and in what `run` calls, and nowhere else; it
     * allocates nothing. `*before`, if not NULL, gets what was lent before, for the client to lend again:
     *
     *     hipdnnRsParallelFor_t mine = {run, pool}, before;
     *     extension->lend_parallel_for(&mine, &before);
     *     status = hipdnnBackendExecute(handle, plan, pack);
     *     extension->lend_parallel_for(&before, NULL);
     *
     * The last line must be reached on every way out: the engine calls `run` as long as it is lent. Where nothing is
     * lent, the engine works on threads of its own; with the knob hipdnn_rs.cpu.pool of 0 a plan starts none. */
    hipdnnPluginStatus_t (*lend_parallel_for)(const hipdnnRsParallelFor_t* lent, hipdnnRsParallelFor_t* before);

    /* Since version 1. Lends plan builds on HIPDNN_RS_CPU_ENGINE by the calling thread the contents of constants, until others are
     * lent; NULL lends none. A plan whose knob hipdnn_rs.constants names their tokens is built with these tensors in the
     * form that its kernels read, made on threads that end before the build does; executions find them there. The engine
     * keeps no address: `lent` and what it points to stay as they are only until the plans are built and others are lent.
     * What is not lent, or is smaller than its tensor, is prepared at the first execution. `*before` as above.
     *
     * A token stands for these bytes in the whole process from then on: who lends bytes of another token spoils the
     * results of every plan that names it. */
    hipdnnPluginStatus_t (*lend_constants)(const hipdnnRsConstants_t* lent, hipdnnRsConstants_t* before);

    /* Since version 2. Says in which memory the tensors of handles are that the calling thread makes from now on; it is
     * HIPDNN_RS_MEMORY_UNSPECIFIED until then. A handle keeps what it was made with. `*before`, if not NULL, gets what was
     * said before, for the client to say again when it has made its handles. */
    hipdnnPluginStatus_t (*set_handle_memory)(hipdnnRsMemoryKind_t memory, hipdnnRsMemoryKind_t* before);

    /* Since version 3. Says in which directory engines keep chosen solvers and compiled kernels between processes, for handles that
     * the calling thread makes from now on: a path, "off" for nothing, or NULL for what HIPDNN_RS_CACHE_DIR says, as it is until
     * then. A handle keeps what it was made with; the text is copied. What the process has in memory already is not written
     * again. `*before`, if not NULL, gets what was said before, which stays valid as long as the plugin is loaded. */
    hipdnnPluginStatus_t (*set_handle_cache)(const char* directory, const char** before);

    /* Since version 4. Executions of several plans on the same tensors again, by one call. From begin_recording on, executions on
     * HIPDNN_RS_GPU_ENGINE by the calling thread are recorded beside being run, until end_recording. `*executions` gets their
     * number, by which a client sees whether another engine or plugin had some; `*recording` what replays them in their order,
     * or NULL if there was none, or if one failed, did work that is no launch, or read a number from host memory:
     *
     *     extension->begin_recording();
     *     for (i = 0; i < count; i++) status[i] = hipdnnBackendExecute(handle, plans[i], packs[i]);
     *     extension->end_recording(&executions, &recording);
     *
     * To begin again drops what was recorded. */
    hipdnnPluginStatus_t (*begin_recording)(void);
    hipdnnPluginStatus_t (*end_recording)(size_t* executions, hipdnnRsRecording_t* recording);

    /* Since version 4. Enqueues the recorded launches on a stream (hipStream_t) of the plans' device, with the addresses that they
     * were recorded with: tensors and workspaces are there still, and the plans live. Any thread may replay, several at once.
     * Where a launch fails, those before it are enqueued, `*execution`, if not NULL, gets the number of its execution from 0, and
     * hipdnnPluginGetLastErrorString has the reason. */
    hipdnnPluginStatus_t (*replay)(hipdnnRsRecording_t recording, void* stream, size_t* execution);

    /* Since version 4. Destroys a recording: before its plans are destroyed. */
    hipdnnPluginStatus_t (*destroy_recording)(hipdnnRsRecording_t recording);
} hipdnnRsExtension_t;

/* The newest version that this header knows. */
#define HIPDNN_RS_EXTENSION_VERSION 4

/* Gives the table, of at least this version: HIPDNN_PLUGIN_STATUS_NOT_APPLICABLE where the plugin is older. */
hipdnnPluginStatus_t hipdnnRsGetExtension(uint32_t version, const hipdnnRsExtension_t** extension);

#ifdef __cplusplus
}
#endif
#endif
