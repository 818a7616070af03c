// Stand-in for librocblas: the functions that libMIOpen imports. Matrix products answer "not implemented",
// so MIOpen's GEMM solvers fail cleanly; the real library with its kernels is 300 MB.
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
enum { SUCCESS = 0, NOT_IMPLEMENTED = 2 };
int handle; // its address is the only handle there is
} // namespace

EXPORT int rocblas_create_handle(void** out)
{
    *out = &handle;
    return SUCCESS;
}
EXPORT int rocblas_destroy_handle(void*) { return SUCCESS; }
EXPORT int rocblas_set_stream(void*, void*) { return SUCCESS; }
EXPORT int rocblas_get_atomics_mode(void*, int* mode)
{
    *mode = 0;
    return SUCCESS;
}
EXPORT int rocblas_set_atomics_mode(void*, int) { return SUCCESS; }
EXPORT int rocblas_gemm_ex() { return NOT_IMPLEMENTED; }
EXPORT int rocblas_gemm_strided_batched_ex() { return NOT_IMPLEMENTED; }
EXPORT int rocblas_gemm_ex3() { return NOT_IMPLEMENTED; } // imported up to ROCm 6
EXPORT int rocblas_gemm_strided_batched_ex3() { return NOT_IMPLEMENTED; }
EXPORT int rocblas_sgemv() { return NOT_IMPLEMENTED; }
