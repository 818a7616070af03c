//! A session of ONNX Runtime on the execution provider, in Rust:
//!
//! ```text
//! session RUNTIME PROVIDER MODEL [KEY=VALUE ...]
//! ```
//!
//! RUNTIME is ONNX Runtime's library, PROVIDER is libonnxruntime_providers_hipdnn_rs.so, MODEL a network with one input of
//! floats and fixed extents, KEY an option of the provider. Prints the first output, a value a line.

use std::error::Error;
use std::process::ExitCode;

use ort::session::Session;
use ort::value::Tensor;

/// Name of the provider, before its devices and its options.
const PROVIDER: &str = "HipDnnRsExecutionProvider";

fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [runtime, provider, model, settings @ ..] = words else {
        return Err("expected RUNTIME PROVIDER MODEL [KEY=VALUE ...]".into());
    };
    let mut options = Vec::new();
    for word in settings {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("expected KEY=VALUE, got {word}"))?;
        options.push((format!("{PROVIDER}.{key}"), value.to_owned()));
    }

    let env = ort::init_from(runtime)?.with_name("session").build()?;
    env.register_ep_library("hipdnn_rs", provider)?;
    // A session has one of several GPUs.
    let device = env.devices().find(|device| device.ep().is_ok_and(|name| name == PROVIDER));
    let device = device.ok_or("the provider offers no device here")?;
    let mut session = Session::builder(&env)?.with_devices([device], Some(&options))?.commit_from_file(model)?;

    let shape = session.inputs()[0].dtype().tensor_shape().ok_or("expected a tensor as input")?.to_vec();
    let count = shape.iter().product::<i64>();
    let values: Vec<f32> = (0..count).map(|i| (i % 7) as f32 - 3.0).collect();
    let outputs = session.run(ort::inputs![Tensor::from_array((shape, values))?])?;
    let (_, result) = outputs[0].try_extract_tensor::<f32>()?;
    for value in result {
        println!("{value}");
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}
