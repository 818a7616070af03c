//! Prints `SUPPORT.md`: `cargo xtask support` writes it.

mod nodes;
mod page;

fn main() {
    print!("{}", page::support_markdown());
}
