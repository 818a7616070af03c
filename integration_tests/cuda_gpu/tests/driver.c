/* A CUDA driver without a GPU: device memory is the host's, copies happen at once, kernels are taken and not run. With it the library
 * can be loaded and called, and kernels compiled, on any machine. Build: cc -shared -fPIC -o libcuda.so driver.c */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK 0
#define INVALID 1
#define NOT_FOUND 500
typedef int (*host_function)(void *);
typedef uint64_t address;

/* What a test asks for: the last launch. */
uint64_t fake_launches;
unsigned fake_grid[3];
unsigned char fake_arguments[4096];
size_t fake_argument_bytes;

int cuInit(unsigned flags) { return flags ? INVALID : OK; }
int cuDriverGetVersion(int *version) { return *version = 13000, OK; }
int cuDeviceGetCount(int *count) { return *count = 1, OK; }
int cuDeviceGet(int *device, int ordinal) { return ordinal ? 101 : (*device = 0, OK); }
int cuDeviceGetName(char *name, int len, int device) { return snprintf(name, len, "no GPU"), OK; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = 1ull << 34, OK; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
  case 1: *value = 1024; break;
  case 10: *value = 32; break;
  case 16: *value = 132; break;
  case 75: *value = 9; break;
  case 76: *value = 0; break;
  default: *value = 65535;
  }
  return OK;
}
static char context;
int cuDevicePrimaryCtxRetain(void **place, int device) { return *place = &context, OK; }
int cuCtxSetCurrent(void *to) { return to == &context ? OK : 201; }
int cuCtxSynchronize(void) { return OK; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, OK; }

int cuMemAlloc_v2(address *place, size_t bytes) {
  void *made = aligned_alloc(256, (bytes + 255) / 256 * 256);
  return made ? (*place = (address)made, OK) : 2;
}
int cuMemFree_v2(address memory) { return free((void *)memory), OK; }
int cuMemHostAlloc(void **place, size_t bytes, unsigned flags) { return cuMemAlloc_v2((address *)place, bytes); }
int cuMemFreeHost(void *memory) { return free(memory), OK; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { return *free_bytes = *total = 1ull << 34, OK; }
int cuMemcpy(address to, address from, size_t bytes) { return memmove((void *)to, (void *)from, bytes), OK; }
int cuMemcpyAsync(address to, address from, size_t bytes, void *stream) { return cuMemcpy(to, from, bytes); }
int cuMemsetD8_v2(address to, unsigned char value, size_t bytes) { return memset((void *)to, value, bytes), OK; }
int cuMemsetD8Async(address to, unsigned char value, size_t bytes, void *stream) { return cuMemsetD8_v2(to, value, bytes); }
int cuPointerGetAttributes(unsigned count, int *attributes, void **places, address pointer) { return OK; }

static char a_stream, an_event, a_module, a_function;
int cuStreamCreate(void **place, unsigned flags) { return *place = &a_stream, OK; }
int cuStreamCreateWithPriority(void **place, unsigned flags, int priority) { return *place = &a_stream, OK; }
int cuStreamDestroy_v2(void *stream) { return OK; }
int cuStreamQuery(void *stream) { return OK; }
int cuStreamSynchronize(void *stream) { return OK; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return OK; }
int cuStreamGetFlags(void *stream, unsigned *flags) { return *flags = 1, OK; }
int cuStreamGetCtx(void *stream, void **place) { return *place = &context, OK; }
int cuStreamIsCapturing(void *stream, int *status) { return *status = 0, OK; }
int cuThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0, OK; }
int cuLaunchHostFunc(void *stream, host_function function, void *data) { return function(data), OK; }
int cuEventCreate(void **place, unsigned flags) { return *place = &an_event, OK; }
int cuEventRecord(void *event, void *stream) { return OK; }
int cuEventDestroy_v2(void *event) { return OK; }
int cuEventSynchronize(void *event) { return OK; }
int cuEventQuery(void *event) { return OK; }
int cuEventElapsedTime_v2(float *milliseconds, void *start, void *stop) { return *milliseconds = 1, OK; }

/* An image is an ELF file. */
int cuModuleLoadData(void **place, const void *image) {
  return memcmp(image, "\177ELF", 4) ? 200 : (*place = &a_module, OK);
}
int cuModuleUnload(void *module) { return OK; }
int cuModuleGetFunction(void **place, void *module, const char *name) {
  return strcmp(name, "no_such_kernel") ? (*place = &a_function, OK) : NOT_FOUND;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared_bytes, void *stream, void **parameters, void **extra) {
  if (!gx || !gy || !gz || bx * by * bz > 1024 || gy > 65535 || gz > 65535) return INVALID;
  ++fake_launches;
  fake_grid[0] = gx, fake_grid[1] = gy, fake_grid[2] = gz;
  if (extra) {
    if (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4]) return INVALID;
    fake_argument_bytes = *(size_t *)extra[3];
    if (fake_argument_bytes > sizeof fake_arguments) return INVALID;
    memcpy(fake_arguments, extra[1], fake_argument_bytes);
  }
  return OK;
}

/* Three nodes of graphs: a library's kernel with three arguments, the same with blocks in groups of two, and a kernel whose arguments were
 * packed. */
char fake_nodes[3];
static const size_t argument_offsets[] = {0, 8, 16}, argument_bytes[] = {8, 4, 8};
struct kernel_node {
  void *function;
  unsigned grid[3], block[3], shared_bytes;
  void **parameters, **extra, *kernel, *context;
};
int cuGraphKernelNodeGetParams_v2(char *node, struct kernel_node *to) {
  static uint64_t first = 0x1122334455667788, third = 7;
  static unsigned second = 5;
  static void *parameters[] = {&first, &second, &third};
  static size_t bytes = 16;
  static void *extra[] = {(void *)1, "packed arguments", (void *)2, &bytes, NULL};
  *to = (struct kernel_node){.grid = {3, 2, 1}, .block = {64, 1, 1}, .shared_bytes = 16, .parameters = parameters, .kernel = &a_function};
  if (node == fake_nodes + 2) to->parameters = NULL, to->extra = extra;
  return OK;
}
int cuGraphKernelNodeGetAttribute(char *node, int attribute, unsigned *value) {
  memset(value, 0, 64);
  if (attribute == 4) value[0] = node == fake_nodes + 1 ? 2 : 1, value[1] = value[2] = 1;
  return OK;
}
int cuKernelGetFunction(void **place, void *kernel) { return *place = kernel, OK; }
int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
  if (function != &a_function || index > 2) return INVALID;
  return *offset = argument_offsets[index], *bytes = argument_bytes[index], OK;
}
int cuGraphMemsetNodeGetParams(char *node, uint64_t *to) {
  return to[0] = 4096, to[1] = 0, to[2] = 7 | 4ull << 32, to[3] = 12, to[4] = 1, OK;
}

/* How many blocks the last launch had in a group. */
unsigned fake_cluster;
struct launch_attribute {
  int id;
  char pad[4];
  unsigned value[16];
};
struct launch {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  struct launch_attribute *attributes;
  unsigned count;
};
int cuLaunchKernelEx(const struct launch *of, void *function, void **parameters, void **extra) {
  if (of->count < 1 || of->attributes[0].id != 4) return INVALID;
  fake_cluster = of->attributes[0].value[0];
  return cuLaunchKernel(function, of->grid[0], of->grid[1], of->grid[2], of->block[0], of->block[1], of->block[2], of->shared_bytes,
                        of->stream, parameters, extra);
}
