// What HIP's compiler has built in and the generated kernels use, in terms of what NVRTC has. No header of CUDA is included.

#define __asm__ asm
#define amdgpu_flat_work_group_size(least, most) launch_bounds(most)
#define __builtin_amdgcn_workgroup_id_x() blockIdx.x
#define __builtin_amdgcn_workitem_id_x() threadIdx.x
#define __builtin_amdgcn_wavefrontsize() 32
// Barriers order memory by themselves.
#define __builtin_amdgcn_fence(...)
#define __builtin_amdgcn_s_barrier() __syncthreads()
// Lanes of a warp run in step only where they wait for each other, as here. The address is that of a lane's word.
#define __builtin_amdgcn_ds_bpermute(address, value) __shfl_sync(~0u, value, (address) >> 2)

#define __builtin_inf() __longlong_as_double(0x7ff0000000000000LL)
#define __builtin_isinf(x) isinf(x)
#define __builtin_fabs(x) fabs(x)
#define __builtin_fmaxf(x, y) fmaxf(x, y)
#define __builtin_fminf(x, y) fminf(x, y)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)

#define HIP_OVERFLOW(name, by_wrapping, is_over)                                         \
  static __device__ __forceinline__ bool name(long x, long y, long* result) {           \
    const long r = (long)((unsigned long)x by_wrapping(unsigned long) y);               \
    *result = r;                                                                        \
    return is_over;                                                                     \
  }
HIP_OVERFLOW(hip_add_overflow, +, ((x ^ r) & (y ^ r)) < 0)
HIP_OVERFLOW(hip_sub_overflow, -, ((x ^ y) & (x ^ r)) < 0)
HIP_OVERFLOW(hip_mul_overflow, *, __mul64hi(x, y) != r >> 63)
#define __builtin_add_overflow(x, y, result) hip_add_overflow(x, y, result)
#define __builtin_sub_overflow(x, y, result) hip_sub_overflow(x, y, result)
#define __builtin_mul_overflow(x, y, result) hip_mul_overflow(x, y, result)

#define HIP_MATH(name)                                                                                              \
  extern "C" __device__ __forceinline__ float __ocml_##name##_f32(float x) { return name##f(x); }                   \
  extern "C" __device__ __forceinline__ double __ocml_##name##_f64(double x) { return name(x); }
HIP_MATH(ceil) HIP_MATH(erf) HIP_MATH(erfc) HIP_MATH(exp) HIP_MATH(expm1) HIP_MATH(fabs) HIP_MATH(floor) HIP_MATH(log)
HIP_MATH(log1p) HIP_MATH(rint) HIP_MATH(sin) HIP_MATH(sqrt) HIP_MATH(tan) HIP_MATH(tanh)
extern "C" __device__ __forceinline__ float __ocml_fma_f32(float x, float y, float z) { return fmaf(x, y, z); }
extern "C" __device__ __forceinline__ double __ocml_fma_f64(double x, double y, double z) { return fma(x, y, z); }

// The device's own functions, which are within a unit of the last place.
static __device__ __forceinline__ float hip_rcp(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
static __device__ __forceinline__ float hip_exp2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#define __builtin_amdgcn_rcpf(x) hip_rcp(x)
#define __builtin_amdgcn_exp2f(x) hip_exp2(x)

// Half precision: conversions, each rounded once.
struct hip_half {
  unsigned short bits;
  hip_half() = default;
  __device__ __forceinline__ hip_half(float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v)); }
  __device__ __forceinline__ hip_half(double v) { asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(v)); }
  __device__ __forceinline__ hip_half(int v) { asm("cvt.rn.f16.s32 %0, %1;" : "=h"(bits) : "r"(v)); }
  __device__ __forceinline__ hip_half(long v) { asm("cvt.rn.f16.s64 %0, %1;" : "=h"(bits) : "l"(v)); }
  __device__ __forceinline__ operator float() const {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
  }
};
#define _Float16 hip_half

// Neighboring elements. HIP's vectors may lie anywhere; NVIDIA's are accessed whole only at multiples of their size, so others go element by
// element. Where all tensors begin at multiples of the widest access, what is at a distance of such multiples needs no look at its address.
template <int bytes> struct hip_word;
template <> struct hip_word<1> { typedef unsigned char type; };
template <> struct hip_word<2> { typedef unsigned short type; };
template <> struct hip_word<4> { typedef unsigned type; };
template <> struct hip_word<8> { typedef uint2 type; };
template <> struct hip_word<16> { typedef uint4 type; };
template <class T, int n> struct hip_elements { union { T v[n]; }; };
template <class T> struct hip_elements<T, 2> { union { T v[2]; struct { T x, y; }; }; };
template <class T> struct hip_elements<T, 4> { union { T v[4]; struct { T x, y, z, w; }; }; };
template <class T, int n, int distance, bool is_at_whole> struct hip_vector_at : hip_elements<T, n> {
  static const int bytes = n * sizeof(T), step = bytes < 16 ? bytes : 16;
  typedef typename hip_word<step>::type word;
  static __device__ __forceinline__ bool is_whole(const void* at) {
    return (is_at_whole && distance % step == 0) || (unsigned long)at % step == 0;
  }
  hip_vector_at() = default;
  template <class... Values> __device__ __forceinline__ hip_vector_at(T first, T second, Values... values) {
    const T all[] = {first, second, T(values)...};
    for (int i = 0; i < n; ++i) this->v[i] = all[i];
  }
  __device__ __forceinline__ hip_vector_at(const hip_vector_at& from) {
    if (is_whole(&from)) {
      for (int i = 0; i < bytes / step; ++i) {
        const word one = ((const word*)&from)[i];
        memcpy((char*)this->v + i * step, &one, step);
      }
    } else {
      for (int i = 0; i < n; ++i) this->v[i] = from.v[i];
    }
  }
  __device__ __forceinline__ hip_vector_at& operator=(const hip_vector_at& from) {
    if (is_whole(this)) {
      for (int i = 0; i < bytes / step; ++i) {
        word one;
        memcpy(&one, (const char*)from.v + i * step, step);
        ((word*)this)[i] = one;
      }
    } else {
      for (int i = 0; i < n; ++i) this->v[i] = from.v[i];
    }
    return *this;
  }
  __device__ __forceinline__ T operator[](int i) const { return this->v[i]; }
  __device__ __forceinline__ T& operator[](int i) { return this->v[i]; }
};
template <class T, int n> using hip_vector = hip_vector_at<T, n, 1, false>;
