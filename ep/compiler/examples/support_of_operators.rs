//! Prints the provider's part of `SUPPORT.md`: `cargo xtask support` writes it.

fn main() {
    print!("{}", hipdnn_ep_compiler::support::support_markdown());
}
