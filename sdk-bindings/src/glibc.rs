//! Functions of glibc in the versions of 2.28, so that libraries built on any machine load on systems that old.
//!
//! A linker binds to the newest version of a function that the building machine's glibc has. Many have a new version for
//! one reason only: in 2.34 they moved from libdl and libpthread into libc. [`glibc_2_28`](crate::glibc_2_28) gives a
//! library its own hidden functions of these names, which jump to the older versions; glibc keeps those for old programs.

/// Defines the functions; to be named once, in the root of a shared library's crate.
///
/// Each is a section of its own, which the linker leaves out where nothing refers to it, and weak, so that programs may
/// link several such libraries statically. On other systems than glibc's on x86-64 the macro defines nothing.
#[macro_export]
macro_rules! glibc_2_28 {
    () => {
        #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
        mod glibc_2_28 {
            // Of 2.29: they no longer set errno through a wrapper. The values are the same.
            $crate::glibc_2_28!(@versions "2.2.5"
                "exp" "exp2" "log" "log2" "pow");
            // Of 2.32 to 2.34: they moved into libc.
            $crate::glibc_2_28!(@versions "2.2.5"
                "dladdr" "dlclose" "dlerror" "dlopen" "dlsym"
                "pthread_attr_getguardsize" "pthread_attr_getstack" "pthread_attr_setguardsize"
                "pthread_attr_setstacksize" "pthread_create" "pthread_detach" "pthread_getattr_np" "pthread_join"
                "pthread_key_create" "pthread_key_delete" "pthread_kill" "pthread_once" "pthread_rwlock_rdlock"
                "pthread_rwlock_unlock" "pthread_rwlock_wrlock" "pthread_setspecific" "pthread_sigmask" "sem_init"
                "sem_post" "sem_wait");
            $crate::glibc_2_28!(@versions "2.3.4"
                "pthread_getaffinity_np" "pthread_setaffinity_np");
            $crate::glibc_2_28!(@versions "2.12" "pthread_getname_np" "pthread_setname_np");
            // Of 2.33: before, they were inline functions around others that take the version of the structure, 1, first.
            $crate::glibc_2_28!(@function "fstat64", ["__fxstat64@GLIBC_2.2.5"],
                ["mov rdx, rsi", "mov esi, edi", "mov edi, 1", "jmp fstat64_hipdnn_old@PLT",]);
            $crate::glibc_2_28!(@function "lstat64", ["__lxstat64@GLIBC_2.2.5"],
                ["mov rdx, rsi", "mov rsi, rdi", "mov edi, 1", "jmp lstat64_hipdnn_old@PLT",]);
            $crate::glibc_2_28!(@function "stat64", ["__xstat64@GLIBC_2.2.5"],
                ["mov rdx, rsi", "mov rsi, rdi", "mov edi, 1", "jmp stat64_hipdnn_old@PLT",]);
            $crate::glibc_2_28!(@function "fstatat64", ["__fxstatat64@GLIBC_2.4"],
                ["mov r8d, ecx", "mov rcx, rdx", "mov rdx, rsi", "mov esi, edi", "mov edi, 1",
                "jmp fstatat64_hipdnn_old@PLT",]);
            // Of 2.30: before, callers made the system call themselves.
            $crate::glibc_2_28!(@function "gettid", ["syscall@GLIBC_2.2.5"],
                ["mov edi, 186", "xor eax, eax", "jmp gettid_hipdnn_old@PLT",]);
        }
    };
    (@versions $version:literal $($symbol:literal)*) => {
        $($crate::glibc_2_28!(@function $symbol, [$symbol, "@GLIBC_", $version],
            [concat!("jmp ", $symbol, "_hipdnn_old@PLT"),]);)*
    };
    (@function $symbol:literal, [$($old:literal),*], [$($instructions:tt)*]) => {
        ::std::arch::global_asm!(
            concat!(".pushsection .text.glibc_2_28.", $symbol, ",\"ax\",@progbits"),
            concat!(".symver ", $symbol, "_hipdnn_old, ", $($old),*),
            concat!(".weak ", $symbol),
            concat!(".hidden ", $symbol),
            concat!(".type ", $symbol, ", @function"),
            concat!($symbol, ":"),
            $($instructions)*
            concat!(".size ", $symbol, ", . - ", $symbol),
            ".popsection",
        );
    };
}
