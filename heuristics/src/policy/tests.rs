use super::*;
use hipdnn_heuristics_model::{features, samples, table};
use hipdnn_schemas::EngineConfig;

const CPU: &str = "HIPDNN_RS_CPU_ENGINE";

fn host() -> DeviceProperties {
    DeviceProperties {
        device_id: HOST,
        multi_processor_count: 2,
        total_global_mem: 0,
        architecture_name: "x86_64".into(),
    }
}

fn request(policy: Policy, graph: &Graph, engines: &[&str]) -> Request {
    let mut request = Request::new(policy);
    request.set_engines(&engines.iter().map(|name| engine_id(name)).collect::<Vec<_>>());
    request.set_graph(&graph.def().to_bytes()).unwrap();
    request
}

fn nothing(_: i64) -> Option<f64> {
    None
}

/// Asks for the host; whether the policy ranks.
fn finalize(
    request: &mut Request,
    metric: Option<&str>,
    predicted: &dyn Fn(i64) -> Option<f64>,
) -> Result<bool, Error> {
    let Some(mut order) = request.rank(&host(), metric)? else { return Ok(false) };
    predict(&mut order, predicted);
    request.answer(order, &host());
    Ok(true)
}

#[test]
fn names_are_hashed_to_ids() {
    for policy in Policy::ALL {
        assert_eq!(Policy::find(policy.id()), Ok(policy));
    }
    assert!(Policy::find(1).is_err());
}

#[test]
fn what_is_missing_is_told() {
    let graph = samples::chain(64, &["relu"]);
    let mut bare = Request::new(Policy::CostModel);
    let status = |request: &mut Request| finalize(request, None, &nothing).unwrap_err().status;
    assert_eq!(status(&mut bare).0, 6, "no graph");
    assert!(bare.set_graph(b"no graph").is_err());
    assert_eq!(bare.sorted().unwrap_err().status.0, 6);
    bare.set_graph(&graph.def().to_bytes()).unwrap();
    assert_eq!(status(&mut bare).0, 6, "no candidates");
    bare.set_engines(&[]);
    assert_eq!(finalize(&mut bare, None, &nothing), Ok(false), "an empty list of them");
    let mut full = request(Policy::CostModel, &graph, &[CPU]);
    assert_eq!(finalize(&mut full, Some("watts"), &nothing), Ok(false), "a metric that says nothing of time");
    assert_eq!(finalize(&mut full, Some("tflops"), &nothing), Ok(true));
    assert_eq!(full.sorted(), Ok(vec![engine_id(CPU)]));
    let trace = full.trace(engine_id(CPU)).unwrap().to_str().unwrap();
    assert!(trace.contains(r#""basis":"cost model""#) && trace.contains(r#""predicted_time_ms":"#), "{trace}");
    full.set_engines(&[1]);
    assert_eq!(full.sorted().unwrap_err().status.0, 6, "other candidates");
}

#[test]
fn predictions_of_engines_take_the_place_of_estimates() {
    let mut asked = request(Policy::CostModel, &samples::bottleneck(1, 64, 28), &[CPU, "OTHER", "MORE"]);
    let other = |engine| (engine == engine_id("OTHER")).then_some(1e-9);
    assert_eq!(finalize(&mut asked, Some("time"), &other), Ok(true));
    assert_eq!(asked.sorted(), Ok(["OTHER", CPU, "MORE"].map(engine_id).to_vec()));
}

/// What is measured is found below the folder of the environment, and only there.
#[test]
fn measurements_are_read_from_the_cache_folder() {
    let folder = std::env::temp_dir().join(format!("hipdnn-rs-policy-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    // SAFETY: no other test of this binary reads or sets variables.
    unsafe { std::env::set_var("HIPDNN_CACHE_DIR", &folder) };
    let graph = samples::softmax(64, 64);
    let mut asked = request(Policy::Measured, &graph, &["OTHER", CPU]);
    assert_eq!(finalize(&mut asked, None, &nothing), Ok(false), "nothing was measured");
    let device = Device::of(&host());
    let mut measured = table::Table::default();
    let key = table::key(&features::of(&graph));
    measured.record(key, engine_id("OTHER"), 1e4);
    measured.record(key, engine_id(CPU), 1.0);
    store::write(&store::folder().unwrap(), &device, &measured).unwrap();
    assert_eq!(finalize(&mut asked, None, &nothing), Ok(true));
    assert_eq!(
        asked.sorted(),
        Ok(["OTHER", CPU].map(engine_id).to_vec()),
        "by the model it would be the other way round"
    );
    assert!(asked.trace(engine_id("OTHER")).unwrap().to_str().unwrap().contains("measured nearby"));
    assert_eq!(asked.config(engine_id("OTHER")).unwrap_err().status.0, 5, "without settings");
    assert_eq!(asked.config(3).unwrap_err().status.0, 1, "no engine of the answer");
    // A setting that was faster is lent as a configuration.
    let engine = engine_id(CPU);
    let setting = Configuration::all(engine).remove(1);
    measured.record(key, setting.number(), 2.0);
    store::write(&store::folder().unwrap(), &device, &measured).unwrap();
    assert_eq!(finalize(&mut asked, None, &nothing), Ok(true));
    let (address, size) = asked.config(engine).unwrap();
    assert_eq!(address.addr() % 16, 0);
    // SAFETY: the request lends so many bytes there and is not changed meanwhile.
    let config = EngineConfig::from_bytes(unsafe { std::slice::from_raw_parts(address, size) }).unwrap();
    assert_eq!((config.engine_id, config.knobs), (engine, setting.knobs));
    // SAFETY: no other test of this binary reads or sets variables.
    unsafe { std::env::set_var("HIPDNN_DISABLE_CACHE", "1") };
    assert_eq!(finalize(&mut asked, None, &nothing), Ok(false), "switched off");
    let _ = std::fs::remove_dir_all(&folder);
}
