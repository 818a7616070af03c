//! Links the libraries that systems with glibc before 2.34 have beside libc. A linker on a newer system finds nothing
//! to take from them, and would leave them out.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" && target("ARCH") == "x86_64" {
        let libraries = "--no-as-needed,-l:libdl.so.2,-l:libpthread.so.0,-l:libm.so.6";
        println!("cargo::rustc-cdylib-link-arg=-Wl,--push-state,{libraries},--pop-state");
    }
}
