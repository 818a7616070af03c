// What HIP's compiler has built in and generated kernels use, on the host, for tests: the threads of a block are
// fibers that take turns, each until it waits for the others. Memory ends where the process may read no further.

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace host {

[[noreturn]] void fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(2);
}

enum Wait { RUNS, AT_BARRIER, AT_EXCHANGE, AT_END };

const unsigned MOST_THREADS = 1024;
const size_t STACK = 256 << 10;

struct Fiber {
  ucontext_t context;
  jmp_buf place;
  Wait wait;
  // The word that other lanes may ask for, and the one before it, which some have not asked for yet.
  int words[2];
  int turn;
};

Fiber fibers[MOST_THREADS];
jmp_buf scheduler;
unsigned thread, block, threads, wave;
void (*kernel)(const char*);
const char* arguments;

void wait(Wait what) {
  Fiber& own = fibers[thread];
  own.wait = what;
  if (_setjmp(own.place) == 0) _longjmp(scheduler, 1);
}

void begin() {
  kernel(arguments);
  fibers[thread].wait = AT_END;
  _longjmp(scheduler, 1);
}

int from_lane(int address, int value) {
  const unsigned self = thread;
  const int turn = fibers[self].turn;
  fibers[self].words[turn] = value;
  fibers[self].turn = !turn;
  wait(AT_EXCHANGE);
  const unsigned other = self / wave * wave + unsigned(address) / 4 % wave;
  if (other >= threads) fail("expected a lane of the block");
  return fibers[other].words[turn];
}

// Runs all threads of a block from one place where they wait to the next, which has to be the same for all.
void run_block(char* stacks) {
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& fiber = fibers[t];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stacks + t * STACK;
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    fiber.wait = RUNS;
    makecontext(&fiber.context, begin, 0);
  }
  do {
    for (thread = 0; thread < threads; ++thread) {
      // Contexts keep signal masks, which takes a system call: jumps do not.
      if (_setjmp(scheduler) == 0) {
        if (fibers[thread].wait == RUNS) setcontext(&fibers[thread].context);
        _longjmp(fibers[thread].place, 1);
      }
      if (fibers[thread].wait != fibers[0].wait) fail("expected threads that wait in the same place");
    }
  } while (fibers[0].wait != AT_END);
}

unsigned long number() {
  unsigned long value;
  if (fread(&value, sizeof value, 1, stdin) != 1) fail("expected a number");
  return value;
}

void bytes(char* to, size_t count) {
  if (count != 0 && fread(to, count, 1, stdin) != 1) fail("expected bytes");
}

struct Buffer {
  char *first, *address;
  size_t bytes;
};

// Memory at a multiple of sixteen bytes, with what is no number around it and nothing behind that.
Buffer buffer() {
  const size_t bytes = number(), page = sysconf(_SC_PAGESIZE);
  const size_t whole = (bytes + 15) / 16 * 16, pages = (whole + page - 1) / page * page + page;
  char* const all = (char*)mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED || mprotect(all + pages, page, PROT_NONE) != 0) fail("expected memory");
  memset(all, 0xff, pages);
  char* const address = all + pages - whole;
  host::bytes(address, bytes);
  return Buffer{all, address, bytes};
}

struct Kernel {
  void (*run)(const char*);
  size_t bytes;
};

// Launches as the input says: for each the kernel, blocks, threads, lanes of a wave, arguments and buffers, whose
// addresses the arguments begin with. What is in the buffers afterwards is the output.
int launches(const Kernel* kernels) {
  alarm(600);
  char* const stacks = (char*)malloc(MOST_THREADS * STACK);
  for (unsigned long launch = 0, count = number(); launch < count; ++launch) {
    fprintf(stderr, "launch %lu\n", launch);
    const Kernel& own = kernels[number()];
    const unsigned long blocks = number();
    threads = number();
    wave = number();
    const size_t size = number();
    char* const given = (char*)malloc(size + 1);
    bytes(given, size);
    if (size != own.bytes) fail("expected arguments of the structure's size");
    if (threads > MOST_THREADS) fail("expected threads that a block may have");
    const unsigned long buffers = number();
    Buffer* const list = new Buffer[buffers];
    for (unsigned long b = 0; b < buffers; ++b) {
      list[b] = buffer();
      memcpy(given + b * sizeof(char*), &list[b].address, sizeof(char*));
    }
    kernel = own.run;
    arguments = given;
    for (block = 0; block < blocks; ++block) run_block(stacks);
    for (unsigned long b = 0; b < buffers; ++b) {
      const char *first = list[b].first, *end = list[b].address + (list[b].bytes + 15) / 16 * 16;
      for (const char* c = first; c < end; ++c) {
        const bool is_own = c >= list[b].address && c < list[b].address + list[b].bytes;
        if (!is_own && *c != char(0xff)) fail("expected nothing to be written beside a buffer");
      }
      fwrite(list[b].address, 1, list[b].bytes, stdout);
    }
  }
  return fflush(stdout) == 0 ? 0 : 3;
}

}  // namespace host

#define __builtin_amdgcn_workgroup_id_x() host::block
#define __builtin_amdgcn_workitem_id_x() host::thread
#define __builtin_amdgcn_wavefrontsize() host::wave
#define __builtin_amdgcn_fence(...)
#define __builtin_amdgcn_s_barrier() host::wait(host::AT_BARRIER)
#define __builtin_amdgcn_ds_bpermute(address, value) host::from_lane(address, value)
#define __builtin_amdgcn_rcpf(x) (1.0f / (x))
#define __builtin_amdgcn_exp2f(x) exp2f(x)

#define HOST_MATH(name)                                              \
  extern "C" float __ocml_##name##_f32(float x) { return name##f(x); } \
  extern "C" double __ocml_##name##_f64(double x) { return name(x); }
HOST_MATH(ceil) HOST_MATH(erf) HOST_MATH(erfc) HOST_MATH(exp) HOST_MATH(expm1) HOST_MATH(fabs) HOST_MATH(floor)
HOST_MATH(log) HOST_MATH(log1p) HOST_MATH(rint) HOST_MATH(sin) HOST_MATH(sqrt) HOST_MATH(tan) HOST_MATH(tanh)
extern "C" float __ocml_fma_f32(float x, float y, float z) { return fmaf(x, y, z); }
extern "C" double __ocml_fma_f64(double x, double y, double z) { return fma(x, y, z); }

// Vectors where the text says that they are.
template <int N, int A, class T> static inline void load(T* to, const T* from) {
  if (size_t(from) % A != 0) host::fail("expected a load at a multiple of its distance");
  memcpy(to, from, N * sizeof(T));
}
template <int N, int A, class T> static inline void store(T* to, const T* from) {
  if (size_t(to) % A != 0) host::fail("expected a store at a multiple of its distance");
  memcpy(to, from, N * sizeof(T));
}
