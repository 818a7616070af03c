//! Numbers of a kernel's code that its speed depends on.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::code::{Instruction, Kernel};

/// Columns of the table behind graph, kernel and architecture.
pub(crate) const COLUMNS: &str = "vgprs,sgprs,spills,scratch,lds,waves,instructions,loads,stores,hot,hot_f64,hot_slow,divisions,barriers,invalidations";

/// Numbers of one kernel on one architecture, of its code as it stands there and not as it runs. Hot are the instructions of innermost
/// loops, or all where there is no loop.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) vgprs: u64,
    pub(crate) sgprs: u64,
    pub(crate) spills: u64,
    pub(crate) scratch: u64,
    pub(crate) lds: u64,
    /// Waves that a SIMD holds, by registers and LDS.
    pub(crate) waves: u64,
    pub(crate) instructions: usize,
    /// Accesses of global memory by their bits.
    pub(crate) loads: BTreeMap<u32, usize>,
    pub(crate) stores: BTreeMap<u32, usize>,
    pub(crate) hot: usize,
    /// Arithmetic in `f64` and conversions to and from it.
    pub(crate) hot_f64: usize,
    /// Transcendental functions and 32-bit products, a quarter as fast as others or less.
    pub(crate) hot_slow: usize,
    /// Divisions by IEEE 754.
    pub(crate) divisions: usize,
    pub(crate) barriers: usize,
    /// Invalidations of a cache.
    pub(crate) invalidations: usize,
}

impl Counts {
    pub(crate) fn of(architecture: &str, kernel: &Kernel) -> Counts {
        let code: Vec<_> = kernel.instructions.iter().filter(|one| !is_filler(&one.mnemonic)).collect();
        let hot = hot(&code);
        let count = |of: &[&Instruction], test: fn(&str) -> bool| of.iter().filter(|one| test(&one.mnemonic)).count();
        let accesses = |of: &[&Instruction], kind: &str| {
            let mut by_bits = BTreeMap::new();
            for bits in of.iter().filter_map(|one| bits(&one.mnemonic, kind)) {
                *by_bits.entry(bits).or_default() += 1;
            }
            by_bits
        };
        Counts {
            vgprs: kernel.vgprs,
            sgprs: kernel.sgprs,
            spills: kernel.spills,
            scratch: kernel.scratch,
            lds: kernel.lds,
            waves: waves(architecture, kernel),
            instructions: code.len(),
            loads: accesses(&code, "load"),
            stores: accesses(&code, "store"),
            hot: hot.len(),
            hot_f64: count(&hot, is_f64),
            hot_slow: count(&hot, is_slow),
            divisions: count(&code, |name| name.starts_with("v_div_fixup")),
            barriers: count(&code, |name| matches!(name, "s_barrier" | "s_barrier_wait")),
            invalidations: count(&code, is_invalidation),
        }
    }

    /// The row of the table behind graph, kernel and architecture.
    pub(crate) fn row(&self) -> String {
        let Counts { vgprs, sgprs, spills, scratch, lds, waves, instructions, hot, .. } = self;
        let (loads, stores) = (listed(&self.loads), listed(&self.stores));
        let Counts { hot_f64, hot_slow, divisions, barriers, invalidations, .. } = self;
        format!(
            "{vgprs},{sgprs},{spills},{scratch},{lds},{waves},{instructions},{loads},{stores},{hot},{hot_f64},{hot_slow},\
             {divisions},{barriers},{invalidations}"
        )
    }
}

/// `16:4 64:1`: four accesses of 16 bits, one of 64.
fn listed(accesses: &BTreeMap<u32, usize>) -> String {
    accesses.iter().fold(String::new(), |mut text, (bits, count)| {
        let space = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{space}{bits}:{count}");
        text
    })
}

/// Instructions that fill the place behind a kernel, or order others.
pub(crate) fn is_filler(name: &str) -> bool {
    ["s_code_end", "s_nop", "s_delay_alu", "s_clause", "s_wait"].iter().any(|beginning| name.starts_with(beginning))
}

/// Bits that an access of global memory moves a lane; `kind` is `load` or `store`.
fn bits(name: &str, kind: &str) -> Option<u32> {
    let rest = ["global_", "flat_", "buffer_"].iter().find_map(|space| name.strip_prefix(space))?;
    let width = rest.strip_prefix(kind)?.strip_prefix('_')?;
    let widths = [
        (&["b128", "dwordx4"][..], 128),
        (&["b96", "dwordx3"], 96),
        (&["b64", "dwordx2"], 64),
        (&["b32", "dword"], 32),
        (&["b16", "d16_b16", "d16_hi_b16", "u16", "i16", "ushort", "sshort", "short", "short_d16"], 16),
        (&["b8", "u8", "i8", "ubyte", "sbyte", "byte", "d16_u8", "d16_i8"], 8),
    ];
    let found = widths.iter().find(|(names, _)| names.contains(&width)).map(|(_, bits)| *bits);
    Some(found.unwrap_or_else(|| if width.contains("short") { 16 } else { 8 }))
}

pub(crate) fn is_f64(name: &str) -> bool {
    name.starts_with("v_") && name.contains("_f64")
}

pub(crate) fn is_slow(name: &str) -> bool {
    let beginnings = [
        "v_exp_",
        "v_log_",
        "v_rcp_",
        "v_rsq_",
        "v_sqrt_",
        "v_sin_",
        "v_cos_",
        "v_mul_hi_",
        "v_mul_lo_",
        "v_mad_u64",
        "v_mad_i64",
    ];
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}

fn is_invalidation(name: &str) -> bool {
    matches!(
        name,
        "buffer_gl0_inv" | "buffer_gl1_inv" | "buffer_inv" | "buffer_wbinvl1" | "buffer_wbinvl1_vol" | "global_inv"
    )
}

/// Instructions of innermost loops; all if there is no loop. A loop reaches from the target of a branch backward to the branch.
fn hot<'a>(code: &[&'a Instruction]) -> Vec<&'a Instruction> {
    let loops: Vec<(u64, u64)> =
        code.iter().filter_map(|one| Some((target(one)?, one.address))).filter(|(to, from)| to <= from).collect();
    let is_innermost = |&&(to, from): &&(u64, u64)| {
        !loops.iter().any(|&(inner, end)| (inner, end) != (to, from) && to <= inner && end <= from)
    };
    let innermost: Vec<_> = loops.iter().filter(is_innermost).collect();
    let is_hot = |one: &&&Instruction| innermost.iter().any(|(to, from)| (*to..=*from).contains(&one.address));
    match innermost.is_empty() {
        true => code.to_vec(),
        false => code.iter().filter(is_hot).copied().collect(),
    }
}

/// Address that a branch goes to: a signed number of four bytes each from the instruction behind it, printed without its sign.
fn target(branch: &Instruction) -> Option<u64> {
    if !branch.mnemonic.starts_with("s_branch") && !branch.mnemonic.starts_with("s_cbranch") {
        return None;
    }
    let distance = branch.operands.split_whitespace().next()?.parse::<i32>().ok()? as i16;
    (branch.address + 4).checked_add_signed(4 * i64::from(distance))
}

/// Waves that a SIMD holds: limited by the registers of a lane and by the LDS of a work-group.
///
/// gfx9 has 512 registers a lane, given out in eights; a compute unit has 4 SIMDs and 64 KiB of LDS. gfx11 and gfx12 as
/// compiled for their pairs of compute units: 1536 registers in twenty-fours, 4 SIMDs and 128 KiB.
fn waves(architecture: &str, kernel: &Kernel) -> u64 {
    let (registers, granule, lds) = match architecture.starts_with("gfx9") {
        true => (512, 8, 64 << 10),
        false => (1536, 24, 128 << 10),
    };
    let by_registers = registers / kernel.vgprs.max(1).next_multiple_of(granule);
    let group = kernel.threads.div_ceil(kernel.wave.max(1));
    let by_lds = (lds / kernel.lds.max(1)).saturating_mul(group) / 4;
    most_waves(architecture).min(by_registers).min(by_lds)
}

/// The most waves that a SIMD of an architecture holds.
pub(crate) fn most_waves(architecture: &str) -> u64 {
    if architecture.starts_with("gfx9") { 8 } else { 16 }
}
