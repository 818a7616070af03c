//! Kernels on the host: what their text computes, without a device.
//!
//! The machine's C++ compiler builds the text, in which `device.hpp` stands for what HIP's compiler has built in, and
//! the kernels run thread by thread. Tests pass over themselves where there is no C++ compiler.

mod elementwise;
mod groups;

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::grouped::testing::evaluate;
use super::grouped::{Choice, Grouped};
use super::testing::{decode, decoded, encode, encoded, ulp};
use super::{Element, KernelSource, arguments};

/// Tolerance of results: within so many units in the last place, of a value that is at least so large.
#[derive(Clone, Copy)]
struct Near {
    units: f64,
    scale: f64,
}

const EXACT: Near = Near { units: 0.0, scale: 0.0 };

/// A launch, and what its kernel leaves in the buffers that it writes.
struct Launch {
    what: String,
    source: KernelSource,
    wave: u64,
    buffers: Vec<Vec<u8>>,
    /// Elements and wanted values of the buffers, behind those that are only read.
    writes: Vec<(Element, Vec<f64>)>,
    near: Near,
}

/// Launches that are built and run together.
#[derive(Default)]
struct Launches {
    launches: Vec<Launch>,
}

/// As they are after they have been written as that type.
fn kept_as(element: Element, values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| decode(element, &encode(element, *value))).collect()
}

impl Launches {
    /// Adds a work on these values, in different ways, on devices of both kinds of waves. The buffers that it writes
    /// have these lengths.
    fn add(&mut self, what: &str, work: &Grouped, choices: &[Choice], reads: &[Vec<f64>], lens: &[usize], near: Near) {
        let reads: Vec<_> = reads.iter().zip(&work.reads).map(|(values, element)| kept_as(*element, values)).collect();
        // Places that nothing is written to keep this.
        let before: Vec<_> =
            lens.iter().zip(&work.writes).map(|(len, element)| kept_as(*element, &vec![1.0; *len])).collect();
        let want = evaluate(work, &reads, &before, &[]);
        for (n, choice) in choices.iter().enumerate() {
            let source = work.source_with(*choice).unwrap_or_else(|error| panic!("{what}: {error}"));
            let all = reads.iter().zip(&work.reads).chain(before.iter().zip(&work.writes));
            self.launches.push(Launch {
                what: format!("{what}, {choice:?}"),
                source: source.expect("there is something to do"),
                wave: if (n + self.launches.len()).is_multiple_of(2) { 32 } else { 64 },
                buffers: all.map(|(values, element)| encoded(*element, values)).collect(),
                writes: work.writes.iter().copied().zip(want.iter().cloned()).collect(),
                near,
            });
        }
    }

    /// Runs the launches, and compares all that they write.
    fn check(&self) {
        let Some(output) = self.run() else { return };
        let mut output = &output[..];
        for launch in &self.launches {
            for (b, buffer) in launch.buffers.iter().enumerate() {
                let (got, rest) = output.split_at(buffer.len());
                output = rest;
                let what = &launch.what;
                let Some(t) = b.checked_sub(launch.buffers.len() - launch.writes.len()) else {
                    assert_eq!(got, buffer, "{what}: tensor {b} is only read");
                    continue;
                };
                let (element, want) = &launch.writes[t];
                for (i, (got, want)) in decoded(*element, got).iter().zip(kept_as(*element, want)).enumerate() {
                    // What is computed has many more digits than the shorter types.
                    let Near { units, scale } = launch.near;
                    let (units, scale) = if element.bytes() == 2 { (units.min(1.0), 0.01) } else { (units, scale) };
                    let near = (got - want).abs() <= units * ulp(*element, want.abs().max(scale));
                    let same = *got == want || (got.is_nan() && want.is_nan()) || near;
                    let text = &launch.source.text;
                    assert!(same, "{what}: element {i} of tensor {t}: expected {want:e}, got {got:e}:\n{text}");
                }
            }
        }
    }

    /// Contents of the buffers of all launches afterwards; `None` where there is no compiler.
    fn run(&self) -> Option<Vec<u8>> {
        let mut texts: Vec<&str> = self.launches.iter().map(|launch| &launch.source.text[..]).collect();
        texts.sort_unstable();
        texts.dedup();
        let program = Program::build(&texts)?;
        let mut input = Vec::new();
        let number = |input: &mut Vec<u8>, value: usize| input.extend((value as u64).to_le_bytes());
        number(&mut input, self.launches.len());
        for Launch { source, wave, buffers, .. } in &self.launches {
            let kernel = texts.binary_search(&&source.text[..]).expect("all texts are there");
            let (blocks, threads) = (source.blocks as usize, source.threads as usize);
            for value in [kernel, blocks, threads, *wave as usize, source.arguments.len()] {
                number(&mut input, value);
            }
            input.extend(&source.arguments);
            assert_eq!(source.pointers, buffers.len(), "a buffer for each pointer");
            number(&mut input, buffers.len());
            for buffer in buffers {
                number(&mut input, buffer.len());
                input.extend(buffer);
            }
        }
        let what = |number: usize| {
            let launch = &self.launches[number];
            format!("{}:\n{}", launch.what, launch.source.text)
        };
        Some(program.run(&input, &what))
    }
}

/// Kernels that were built, in a folder of their own.
struct Program {
    folder: PathBuf,
}

impl Drop for Program {
    fn drop(&mut self) {
        // What is left behind in a folder for such things harms nobody.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Program {
    /// Builds kernels; `None`, with a line that says so, where there is no compiler.
    fn build(texts: &[&str]) -> Option<Program> {
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let test = std::thread::current().name().unwrap_or("kernels").replace("::", "-");
        let folder = std::env::temp_dir().join(format!("hipdnn-rs-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for what is built");
        let program = Program { folder };
        let mut text = include_str!("host/device.hpp").to_owned();
        for (k, kernel) in texts.iter().enumerate() {
            let kernel = kernel
                .replace(arguments::VECTORS, "")
                .replace("extern \"C\" __attribute__((global", "static __attribute__((global");
            text += &format!("namespace kernel{k} {{\n{kernel}");
            text +=
                "void run(const char* given) {\n  Arguments a;\n  memcpy(&a, given, sizeof a);\n  kernel(a);\n}\n}\n";
            for name in ["DEVICE", "EACH", "LEAST", "LOCAL", "MATH", "MOST"] {
                text += &format!("#undef {name}\n");
            }
        }
        let list: Vec<String> =
            (0..texts.len()).map(|k| format!("{{kernel{k}::run, sizeof(kernel{k}::Arguments)}}")).collect();
        text += &format!("const host::Kernel kernels[] = {{{}}};\n", list.join(", "));
        text += "int main() { return host::launches(kernels); }\n";
        let source = program.folder.join("kernels.cpp");
        std::fs::write(&source, &text).expect("text is written");
        let mut command = Command::new(&compiler);
        command.args(["-std=c++17", "-w", "-ffp-contract=off", "-o"]).arg(program.folder.join("kernels")).arg(source);
        let output = match command.output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("skipped: {}: no C++ compiler", compiler.display());
                return None;
            }
            output => output.expect("the compiler runs"),
        };
        assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
        Some(program)
    }

    /// Output of the program; `what` says what a launch was that failed.
    fn run(&self, input: &[u8], what: &dyn Fn(usize) -> String) -> Vec<u8> {
        let mut command = Command::new(self.folder.join("kernels"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        let output = std::thread::scope(|scope| {
            // It ends early where a launch fails.
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output().expect("the program ends")
        });
        if !output.status.success() {
            let lines = String::from_utf8_lossy(&output.stderr);
            let last = lines.lines().rev().find_map(|line| line.strip_prefix("launch ")?.parse().ok());
            panic!("{}: {}: {}", output.status, lines.lines().last().unwrap_or(""), last.map_or(String::new(), what));
        }
        output.stdout
    }
}

/// Small whole numbers, of which sums are exact.
fn small(len: usize, seed: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * (2 * seed + 3) * 7 + i / 11 + seed) % 15) as f64 - 7.0).collect()
}

/// Numbers between -2 and 2 without a pattern.
fn mixed(len: usize, seed: u64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| f64::from(4.0 * random.f32() - 2.0)).collect()
}
