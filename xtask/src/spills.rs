//! `cargo xtask spills`: the loops of outer products in the CPU engine's machine code that keep vectors on the stack.
//!
//! A microkernel's sums are to stay in registers over its whole loop. Whether they do is decided by the compiler, and told by no
//! result: a loop that stores a vector to the stack for every few multiply-adds takes up to twice its time, on CPUs of one instruction
//! set. The release library is disassembled by `objdump`. An **outer product** is an innermost loop with a broadcast for every one to
//! four multiply-adds of whole vectors.

use std::collections::HashMap;
use std::process::Command;

use crate::summary::{Outcome, Summary};
use crate::{Result, process, workspace};

/// Instruction sets, by a part of their functions' names, and which share of their outer products may spill at most: sixteen registers
/// are few for tiles of twelve sums, thirty-two are enough for all.
const SETS: [(&str, f64); 2] = [("enter_avx512", 0.02), ("enter_avx2", 0.1)];
/// Fewest outer products of a set: with fewer of them they were not found.
const FEWEST: usize = 50;
/// Most vectors of a tile, that is multiply-adds for each broadcast.
const MOST_VECTORS: usize = 4;
/// Fewest multiply-adds of a loop that counts.
const FEWEST_SUMS: usize = 8;

/// Instruction counts of a loop.
#[derive(Debug, PartialEq)]
struct Loop {
    address: u64,
    instructions: usize,
    multiply_adds: usize,
    broadcasts: usize,
    /// Stores of vectors to the stack.
    spills: usize,
}

impl Loop {
    fn is_outer_product(&self) -> bool {
        self.multiply_adds >= FEWEST_SUMS
            && self.broadcasts > 0
            && self.multiply_adds.is_multiple_of(self.broadcasts)
            && self.multiply_adds / self.broadcasts <= MOST_VECTORS
    }
}

struct Instruction<'a> {
    address: u64,
    mnemonic: &'a str,
    operands: &'a str,
}

/// Prints the outer products that spill, and how many there are of each instruction set.
///
/// # Errors
/// If there is no `objdump`, or a set has too few outer products or too many that spill.
pub(crate) fn run() -> Result<()> {
    workspace::build_release()?;
    check()
}

/// Checks the library that is built, and counts the outcome in `summary`.
pub(crate) fn test(summary: &mut Summary) -> Result<()> {
    let outcome = match Command::new("objdump").arg("--version").output() {
        Ok(_) if !cfg!(target_arch = "x86_64") => Outcome::Skipped("the CPU is no x86-64 one".to_owned()),
        Ok(_) => Outcome::of(check()),
        Err(problem) => Outcome::Skipped(format!("objdump (Debian's binutils) does not run: {problem}")),
    };
    summary.record("spills of microkernels", outcome);
    Ok(())
}

fn check() -> Result<()> {
    let library = workspace::release().join("libhipdnn_rs_plugin.so");
    let output = process::capture(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(&library))?;
    if !output.status.success() {
        return Err(format!("objdump: {}", process::tail(&output.stderr, 3)).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut problems = Vec::new();
    for (set, most) in SETS {
        let loops = functions(&text, set).into_iter().flat_map(|function| innermost(&function));
        let products: Vec<Loop> = loops.filter(Loop::is_outer_product).collect();
        let spilling: Vec<&Loop> = products.iter().filter(|product| product.spills > 0).collect();
        println!("{set}: {} of {} outer products spill", spilling.len(), products.len());
        for product in &spilling {
            let Loop { address, instructions, multiply_adds, spills, .. } = product;
            println!("  {address:x}: {spills} spills, {multiply_adds} multiply-adds, {instructions} instructions");
        }
        if products.len() < FEWEST {
            problems.push(format!("{set}: expected {FEWEST} outer products or more, got {}", products.len()));
        } else if spilling.len() as f64 > most * products.len() as f64 {
            let (spilling, all, most) = (spilling.len(), products.len(), most * products.len() as f64);
            problems
                .push(format!("{set}: expected at most {most:.0} of {all} outer products to spill, got {spilling}"));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ").into()) }
}

/// The instructions of each function whose name has `part`.
fn functions<'a>(text: &'a str, part: &str) -> Vec<Vec<Instruction<'a>>> {
    let mut all = Vec::new();
    let mut wanted = false;
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(">:") {
            wanted = name.contains(part);
            if wanted {
                all.push(Vec::new());
            }
        } else if wanted && let (Some(instruction), Some(function)) = (instruction(line), all.last_mut()) {
            function.push(instruction);
        }
    }
    all
}

/// A line of a disassembly: address, colon, tabulator, mnemonic, operands.
fn instruction(line: &str) -> Option<Instruction<'_>> {
    let (address, code) = line.split_once(":\t")?;
    let address = u64::from_str_radix(address.trim(), 16).ok()?;
    let (mnemonic, operands) = code.trim().split_once(' ').unwrap_or((code.trim(), ""));
    Some(Instruction { address, mnemonic, operands: operands.trim() })
}

/// Innermost loops of a function: what lies between a jump back and where it goes.
fn innermost(function: &[Instruction<'_>]) -> Vec<Loop> {
    let places: HashMap<u64, usize> = function.iter().enumerate().map(|(i, one)| (one.address, i)).collect();
    let back = |(end, one): (usize, &Instruction<'_>)| {
        let target = one.operands.split_whitespace().next()?;
        let begin = *places.get(&u64::from_str_radix(target, 16).ok()?)?;
        (one.mnemonic.starts_with('j') && begin <= end).then_some((begin, end))
    };
    let loops: Vec<(usize, usize)> = function.iter().enumerate().filter_map(back).collect();
    let inner = loops.iter().filter(|(begin, end)| {
        !loops.iter().any(|(from, to)| (from, to) != (begin, end) && from >= begin && to <= end)
    });
    inner.map(|(begin, end)| count(&function[*begin..=*end])).collect()
}

fn count(instructions: &[Instruction<'_>]) -> Loop {
    let is_vector = |operand: &str| operand.contains("%ymm") || operand.contains("%zmm");
    let is_sum = |one: &&Instruction<'_>| {
        one.mnemonic.starts_with("vfmadd") && one.mnemonic.ends_with("ps") && is_vector(one.operands)
    };
    let is_broadcast =
        |one: &&Instruction<'_>| one.mnemonic == "vbroadcastss" || is_sum(one) && one.operands.contains("{1to");
    let is_spill = |one: &&Instruction<'_>| {
        let ends = one.operands.split_once(',');
        one.mnemonic.starts_with("vmov")
            && ends.is_some_and(|(from, to)| is_vector(from) && !from.contains('(') && to.ends_with("(%rsp)"))
    };
    Loop {
        address: instructions.first().map_or(0, |one| one.address),
        instructions: instructions.len(),
        multiply_adds: instructions.iter().filter(is_sum).count(),
        broadcasts: instructions.iter().filter(is_broadcast).count(),
        spills: instructions.iter().filter(is_spill).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function with a loop around one of two steps, and a store behind it, then one of another set.
    const TEXT: &str = "
0000000000001000 <_ZN3isa3x865Entry12enter_avx51217h0E>:
    1000:\tvxorps %xmm0,%xmm0,%xmm0
    1004:\tmov    %rdi,%rax
    1010:\tvmovups (%rdx),%zmm1
    1014:\tvbroadcastss (%rcx),%zmm2
    1018:\tvfmadd231ps %zmm1,%zmm2,%zmm3
    101c:\tvmovups %zmm3,0x40(%rsp)
    1020:\tvfmadd231ps (%rcx){1to16},%zmm1,%zmm4
    1024:\tcmp    %rax,%rcx
    1028:\tjne    1010 <_ZN3isa3x865Entry12enter_avx51217h0E+0x10>
    102c:\tvmovups %zmm3,0x80(%rsp)
    1030:\tjb     1004 <_ZN3isa3x865Entry12enter_avx51217h0E+0x4>
    1034:\tjmp    2000 <_ZN4elsewhereE>
    1038:\tret

0000000000001100 <_ZN3isa3x865Entry10enter_avx217h0E>:
    1100:\tvmovups (%rsp),%ymm1
    1104:\tje     1100 <_ZN3isa3x865Entry10enter_avx217h0E>
";

    #[test]
    fn loops_are_found_and_counted() {
        let found: Vec<Loop> =
            functions(TEXT, "enter_avx512").iter().flat_map(|function| innermost(function)).collect();
        let wanted = Loop { address: 0x1010, instructions: 7, multiply_adds: 2, broadcasts: 2, spills: 1 };
        assert_eq!(found, [wanted]);
        let found: Vec<Loop> = functions(TEXT, "enter_avx2").iter().flat_map(|function| innermost(function)).collect();
        let wanted = Loop { address: 0x1100, instructions: 2, multiply_adds: 0, broadcasts: 0, spills: 0 };
        assert_eq!(found, [wanted]);
    }

    #[test]
    fn outer_products_have_a_broadcast_for_a_few_sums() {
        let of = |multiply_adds, broadcasts| {
            Loop { address: 0, instructions: 0, multiply_adds, broadcasts, spills: 0 }.is_outer_product()
        };
        assert!(of(28, 14) && of(48, 12) && of(8, 8));
        assert!(!of(28, 0) && !of(30, 6) && !of(9, 2) && !of(4, 4));
    }
}
