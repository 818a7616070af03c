//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Looks into hipDNN graphs: their content, the engines that take them, the errors and times of their results.
///
/// FILE is a graph as FlatBuffer or in hipDNN's JSON form, as HIPDNN_LOG_GRAPH_DIR and the execution provider's option
/// dump_graphs write them; `-` is standard input.
///
/// Exit codes: 0 is success; 1 that no engine takes the graph or results differ; 2 an error.
#[derive(Debug, Parser)]
#[command(name = "hipdnn-rs", version, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists a file's content: tensors, nodes, readers, bytes; also engine configurations, details and plans
    Inspect(Inspect),
    /// Writes a graph in the other form
    Convert(Convert),
    /// Says which engines take a graph, or why they decline, with knobs, workspace and plan
    Explain(Explain),
    /// Executes a graph on seeded or given tensors; compares two engines, or one with double precision
    Run(Run),
    /// Times a graph on one engine or several, in turn
    Bench(Bench),
    /// Times graphs on all engines that take them: hipDNN's backend ranks these in that order from then on, and the
    /// heuristics plugin learns of graphs like them
    Tune(Tune),
}

#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// The file; `-` is standard input
    pub(crate) file: PathBuf,
    /// Content of the file, if it is not to be guessed
    #[arg(long = "as", value_enum, value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// Write the graph as a drawing for Graphviz
    #[arg(long)]
    pub(crate) dot: bool,
}

/// Content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A graph, as FlatBuffer or JSON
    Graph,
    /// A graph with its plan (hipDNN's HDGP container)
    GraphAndPlan,
    /// A serialized execution plan
    Plan,
    /// An engine configuration: engine and knob settings
    Config,
    /// Engine details: the knobs that an engine offers
    Details,
    /// One knob
    Knob,
}

#[derive(Args, Debug)]
pub(crate) struct Convert {
    /// The graph; `-` is standard input
    pub(crate) file: PathBuf,
    /// The form to write
    #[arg(long, value_enum)]
    pub(crate) to: Form,
    /// Output file; `-` is standard output
    #[arg(short, long)]
    pub(crate) output: PathBuf,
}

/// The forms of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// hipDNN's JSON
    Json,
    /// A bare FlatBuffer
    Binary,
}

/// Plugins to load.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plugins {
    /// An engine plugin, or a directory with plugins; may be repeated [default: HIPDNN_PLUGIN_DIR, beside this program,
    /// a development build, ROCm's]
    #[arg(long = "plugin", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The graph; `-` is standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) plugins: Plugins,
    /// Only this engine
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// A setting for the engines that have the knob; may be repeated
    #[arg(long = "knob", value_name = "NAME=VALUE")]
    pub(crate) knobs: Vec<String>,
    /// Build no plan
    #[arg(long)]
    pub(crate) no_plan: bool,
}

/// Memory of the tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Place {
    /// On the host for engines whose name says CPU, else on the device
    Auto,
    /// In the process's own memory
    Host,
    /// In the memory of the current HIP device
    Device,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The graph; `-` is standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) plugins: Plugins,
    /// The engine, or `reference` for double precision [default: the first that takes the graph]
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// Result to compare with: another engine, or `reference` for double precision with error bounds
    #[arg(long, value_name = "NAME")]
    pub(crate) against: Option<String>,
    /// An input by uid or name, as NumPy file or as bytes in memory; others are seeded; may be repeated
    #[arg(long = "input", value_name = "UID=FILE.npy|.bin")]
    pub(crate) inputs: Vec<String>,
    /// Another choice of seeded inputs
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// A setting for the engines that have the knob; may be repeated
    #[arg(long = "knob", value_name = "NAME=VALUE")]
    pub(crate) knobs: Vec<String>,
    /// Let two engines differ by this share of a tensor's largest magnitude, in place of bounds from the reference
    #[arg(long, value_name = "SHARE")]
    pub(crate) tolerance: Option<f64>,
    /// Write inputs and results to this directory, as NumPy files
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    /// Memory of the tensors
    #[arg(long, value_enum, default_value_t = Place::Auto)]
    pub(crate) memory: Place,
}

#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// The graph; `-` is standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) plugins: Plugins,
    /// An engine; may be repeated [default: all that take the graph]
    #[arg(long = "engine", value_name = "NAME")]
    pub(crate) engines: Vec<String>,
    /// Time of measurement for each engine, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "S")]
    pub(crate) seconds: f64,
    /// A setting for the engines that have the knob; may be repeated
    #[arg(long = "knob", value_name = "NAME=VALUE")]
    pub(crate) knobs: Vec<String>,
    /// Another choice of seeded inputs
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Memory of the tensors
    #[arg(long, value_enum, default_value_t = Place::Auto)]
    pub(crate) memory: Place,
}

#[derive(Args, Debug)]
pub(crate) struct Tune {
    /// The graphs; `-` is standard input
    #[arg(required_unless_present = "report", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Keep nothing: say how far the order of engines, the cost model and what was measured of other graphs are from
    /// the fastest settings, on these graphs or on some made-up layers of networks
    #[arg(long)]
    pub(crate) report: bool,
    /// Time engines as they are, without the settings that are worth a try
    #[arg(long)]
    pub(crate) no_settings: bool,
    #[command(flatten)]
    pub(crate) plugins: Plugins,
    /// hipDNN's backend, or the directory it is in [default: HIPDNN_RS_BACKEND, HIPDNN_BACKEND_LIBRARY_PATH, ROCm's,
    /// beside this program]
    #[arg(long, value_name = "PATH")]
    pub(crate) backend: Option<PathBuf>,
    /// Time of measurement for each engine, in seconds [default: 2, for a report 0.1]
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
    /// Another choice of seeded inputs
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Memory of the tensors
    #[arg(long, value_enum, default_value_t = Place::Auto)]
    pub(crate) memory: Place,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_description_is_sound() {
        Arguments::command().debug_assert();
    }
}
