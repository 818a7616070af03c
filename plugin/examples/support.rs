//! Prints `SUPPORT.md`: `cargo xtask support` writes it.

fn main() {
    print!("{}", hipdnn_rs_plugin::support::support_markdown());
}
