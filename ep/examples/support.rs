//! Prints the provider's part of `SUPPORT.md`: `cargo xtask support` writes it.

fn main() {
    print!("{}", onnxruntime_providers_hipdnn_rs::support::support_markdown());
}
