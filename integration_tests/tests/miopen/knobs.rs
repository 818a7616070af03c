//! Each knob does what it says, and refuses what it does not take.

use std::collections::BTreeMap;

use hipdnn_rs_integration_tests::reference::Direction;
use hipdnn_schemas::{DataType, EngineDetails, KnobConstraint, KnobValue};
use hipdnn_sdk_bindings::hipdnn::plugin::{DeviceBuffer, engine_id};

use crate::bench::{Bench, ENGINE, Knobs, Memory, config, control, is_told, plugin, told};
use crate::case::{Case, Layout};
use crate::child::Child;
use crate::harness::{Outcome, Test};
use crate::table::{conv, fused, sample};
use crate::trace::scratch;

/// The role: the environment asks for benchmarks.
pub(crate) const ROLE_FORCED: &str = "is forced to benchmark";

const SEARCH: &str = "hipdnn_rs.gpu.search";
const SEARCH_TIME: &str = "hipdnn_rs.gpu.search_time_ms";
const SOLVERS: &str = "hipdnn_rs.gpu.solvers";
const DENIED: &str = "hipdnn_rs.gpu.solvers_denied";
const STRICT: &str = "hipdnn_rs.gpu.strict_fp32";
const RECORDED: &str = "hipdnn_rs.gpu.recorded_launches";
const BENCHMARKING: &str = "global.benchmarking";
const DETERMINISTIC: &str = "global.deterministic";
const LIMIT: &str = "global.workspace_size_limit";

/// The plain solvers of the three directions, which take every problem.
const NAIVE: [i64; 3] = [85, 86, 87];

fn text(text: &str) -> KnobValue {
    KnobValue::String(text.to_owned())
}

fn plain() -> Case {
    conv("2d 3x3 pad 1", Direction::Forward, DataType::Float, Layout::First)
}

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("the details describe them", details),
        Test::new("bad values are errors", bad_values),
        Test::new("every described bound is taken", bounds),
        Test::new("strict_fp32 keeps floats", strict),
        Test::new("deterministic plans repeat", deterministic),
        Test::new("solvers are allowed and denied", solvers),
        Test::new("the workspace limit", limit),
        Test::new("recorded launches or not, the same bits", recorded),
        Test::new("plans of equal shape and other knobs leave each other alone", side_by_side),
        Test::new("what is missing at an execution is an error", missing_memory),
        Test::new("searches of every kind", searches),
        Test::new("a benchmark times what an immediate choice does not", benchmark_times),
        Test::new("the environment forces benchmarks", || {
            let cache = scratch("cache-forced");
            let _ = std::fs::remove_dir_all(&cache);
            Child::of(ROLE_FORCED)
                .env("HIPDNN_FORCE_BENCHMARKING", "1")
                .env("HIPDNN_RS_CACHE_DIR", &cache)
                .succeeds()?;
            Ok(())
        }),
    ]
}

fn described(bench: &Bench) -> Result<EngineDetails, String> {
    let bytes = bench.handle.details(engine_id(ENGINE), &plain().graph()).map_err(|error| told(&error))?;
    EngineDetails::from_bytes(&bytes).map_err(|error| error.to_string())
}

fn details() -> Outcome {
    let bench = Bench::new(&plugin())?;
    let details = described(&bench)?;
    let knobs: BTreeMap<&str, &KnobValue> =
        details.knobs.iter().map(|knob| (knob.id.as_str(), &knob.default)).collect();
    let (zero, one) = (KnobValue::Int(0), KnobValue::Int(1));
    let wanted = [(BENCHMARKING, &zero), (DETERMINISTIC, &zero), (STRICT, &zero), (RECORDED, &one)];
    for (id, default) in wanted {
        if knobs.get(id) != Some(&default) {
            return Err(format!("{id}: expected {default:?}, got {:?}", knobs.get(id)).into());
        }
    }
    for id in [SEARCH, SEARCH_TIME, SOLVERS, DENIED, LIMIT] {
        if !knobs.contains_key(id) {
            return Err(format!("{id} is not described").into());
        }
    }
    for knob in &details.knobs {
        if knob.description.is_empty() || knob.constraint.is_none() {
            return Err(format!("{} has no description, or says not what it takes", knob.id).into());
        }
    }
    // The defaults written out are the defaults.
    let written: Vec<(&str, KnobValue)> =
        details.knobs.iter().map(|knob| (knob.id.as_str(), knob.default.clone())).collect();
    Ok(bench.run(&plain(), &written)?)
}

fn bad_values() -> Outcome {
    let bench = Bench::new(&plugin())?;
    let bad: [(&str, KnobValue); 14] = [
        (BENCHMARKING, KnobValue::Int(2)),
        (BENCHMARKING, text("yes")),
        (DETERMINISTIC, KnobValue::Int(-1)),
        (DETERMINISTIC, KnobValue::Float(1.0)),
        (LIMIT, KnobValue::Int(-1)),
        (LIMIT, text("all")),
        (SEARCH, text("thorough")),
        (SEARCH, KnobValue::Int(1)),
        (SEARCH_TIME, KnobValue::Int(0)),
        (SOLVERS, text("85,naive")),
        (SOLVERS, text("0")),
        (DENIED, text("-1")),
        (STRICT, KnobValue::Int(7)),
        (RECORDED, text("1")),
    ];
    for (id, value) in bad {
        let knobs = [(id, value.clone())];
        let (config, graph) = (config(&knobs), plain().graph());
        for (what, error) in [
            ("workspace size", bench.handle.workspace_size(&config, &graph).err()),
            ("plan", bench.handle.plan(&config, &graph).err()),
        ] {
            let error = error.ok_or_else(|| format!("{id}={value:?}: the {what} was given"))?;
            is_told(&error)?;
            if !error.message.contains(id) {
                return Err(format!("{id}={value:?}: the text does not name the knob: {}", error.message).into());
            }
        }
    }
    // Knobs of other engines are theirs.
    Ok(bench.run(&plain(), &[("someone.else.s", KnobValue::Int(1))])?)
}

fn bounds() -> Outcome {
    let bench = Bench::new(&plugin())?;
    for knob in described(&bench)?.knobs {
        let values: Vec<KnobValue> = match &knob.constraint {
            // The least limit is no bytes, which the plain convolution keeps to.
            Some(KnobConstraint::Int { min, max, .. }) => vec![KnobValue::Int(*min), KnobValue::Int(*max)],
            Some(KnobConstraint::String { valid, .. }) => valid.iter().map(|word| text(word)).collect(),
            _ => vec![knob.default.clone()],
        };
        for value in values {
            let knobs = [(knob.id.as_str(), value.clone())];
            bench.run(&plain(), &knobs).map_err(|problem| format!("{}={value:?}: {problem}", knob.id))?;
        }
    }
    Ok(())
}

/// With it, what is stored between the nodes of a graph of halves is not rounded to halves.
fn strict() -> Outcome {
    let bench = Bench::new(&plugin())?;
    for data_type in [DataType::Half, DataType::BFloat16, DataType::Float] {
        for (geometry, layout, tail) in [
            ("2d 3x3 pad 1", Layout::First, "bias relu"),
            ("2d groups 2", Layout::Last, "bias residual relu"),
            ("2d asymmetric", Layout::First, "scale bias relu"),
            ("1d 3 pad 1", Layout::First, "subtract, absolute, maximum"),
            ("3d 3x3x3 pad 1", Layout::Last, "bias swish"),
        ] {
            let case = fused(geometry, data_type, layout, tail);
            bench
                .run(&case, &[(STRICT, KnobValue::Int(1))])
                .map_err(|problem| format!("{}: {problem}", case.name()))?;
        }
    }
    Ok(())
}

fn output_of(bench: &Bench, case: &Case, knobs: Knobs) -> Result<Vec<u8>, String> {
    let plan = bench.plan(&case.graph(), knobs)?;
    let mut memory = Memory::new(case, plan.workspace_bytes())?;
    bench.execute(&plan, &memory).map_err(|error| told(&error))?;
    bench.stream.synchronize().map_err(|error| error.to_string())?;
    memory.check(&case.wanted(&case.values(), false))?;
    Ok(memory.results())
}

fn deterministic() -> Outcome {
    let knobs = [(DETERMINISTIC, KnobValue::Int(1))];
    let benches = [Bench::new(&plugin())?, Bench::new(&plugin())?];
    for case in sample() {
        let first = output_of(&benches[0], &case, &knobs).map_err(|problem| format!("{}: {problem}", case.name()))?;
        for bench in &benches {
            if output_of(bench, &case, &knobs)? != first {
                return Err(format!("{}: another plan gives other bits", case.name()).into());
            }
        }
    }
    Ok(())
}

fn solvers() -> Outcome {
    let bench = Bench::new(&plugin())?;
    for (direction, naive) in Direction::ALL.into_iter().zip(NAIVE) {
        let case = conv("2d 3x3 pad 1", direction, DataType::Float, Layout::First);
        bench
            .run(&case, &[(SOLVERS, text(&naive.to_string()))])
            .map_err(|problem| format!("only {naive}: {problem}"))?;
        bench
            .run(&case, &[(SOLVERS, text(&format!("{naive},4711"))), (DENIED, text("4712"))])
            .map_err(|problem| format!("{naive} and unknown numbers: {problem}"))?;
        for knobs in [
            vec![(SOLVERS, text("4711"))],
            vec![(SOLVERS, text(&naive.to_string())), (DENIED, text(&naive.to_string()))],
        ] {
            let error = bench.handle.plan(&config(&knobs), &case.graph()).err();
            let error = error.ok_or_else(|| format!("{knobs:?} leave no solver, and yet there is a plan"))?;
            is_told(&error)?;
            if !error.message.contains("solver") {
                return Err(format!("{knobs:?}: the text does not speak of solvers: {}", error.message).into());
            }
        }
        // Without the plain solver another is found, or an error says that none is left.
        match bench.run(&case, &[(DENIED, text(&naive.to_string()))]) {
            Ok(()) => {}
            Err(problem) if problem.contains("solver") => {}
            Err(problem) => return Err(format!("without {naive}: {problem}").into()),
        }
    }
    Ok(())
}

/// With exactly what a plan needs it is built; with one byte less it needs less, or an error says how much is needed.
fn limit() -> Outcome {
    let bench = Bench::new(&plugin())?;
    let mut with_workspace = 0;
    for case in sample() {
        let told_of = |problem: String| format!("{}: {problem}", case.name());
        let graph = case.graph();
        let needed = bench.plan(&graph, &[]).map_err(told_of)?.workspace_bytes();
        let limited = |bytes: usize| [(LIMIT, KnobValue::Int(bytes as i64))];
        let exact = bench.plan(&graph, &limited(needed)).map_err(told_of)?.workspace_bytes();
        if exact > needed {
            return Err(told_of(format!("{exact} bytes with a limit of {needed}")).into());
        }
        bench.run(&case, &limited(needed)).map_err(told_of)?;
        if needed == 0 {
            continue;
        }
        with_workspace += 1;
        match bench.handle.plan(&config(&limited(needed - 1)), &graph) {
            Ok(plan) if plan.workspace_bytes() < needed => {
                drop(plan);
                bench.run(&case, &limited(needed - 1)).map_err(told_of)?;
            }
            Ok(plan) => {
                let bytes = plan.workspace_bytes();
                return Err(told_of(format!("{bytes} bytes with a limit of {}", needed - 1)).into());
            }
            Err(error) => {
                is_told(&error).map_err(told_of)?;
                for part in [LIMIT.to_owned(), needed.to_string()] {
                    if !error.message.contains(&part) {
                        return Err(told_of(format!("the text lacks {part}: {}", error.message)).into());
                    }
                }
            }
        }
    }
    if with_workspace == 0 { Err("no case needs a workspace".into()) } else { Ok(()) }
}

fn recorded() -> Outcome {
    let bench = Bench::new(&plugin())?;
    for case in sample() {
        let [with, without] = [1, 0].map(|value| output_of(&bench, &case, &[(RECORDED, KnobValue::Int(value))]));
        if with? != without? {
            return Err(format!("{}: the bits differ", case.name()).into());
        }
    }
    Ok(())
}

/// Plans of one problem, alive together and executed in turn: none takes over what another was built with.
fn side_by_side() -> Outcome {
    let bench = Bench::new(&plugin())?;
    for case in sample() {
        let told_of = |problem: String| format!("{}: {problem}", case.name());
        let knobs: [Vec<(&str, KnobValue)>; 5] = [
            vec![],
            vec![(RECORDED, KnobValue::Int(0))],
            vec![(DETERMINISTIC, KnobValue::Int(1))],
            vec![(SOLVERS, text("85,86,87"))],
            vec![(BENCHMARKING, KnobValue::Int(1))],
        ];
        let plans = knobs.iter().map(|knobs| bench.plan(&case.graph(), knobs));
        let plans = plans.collect::<Result<Vec<_>, _>>().map_err(told_of)?;
        let memory = plans.iter().map(|plan| Memory::new(&case, plan.workspace_bytes()));
        let mut memory = memory.collect::<Result<Vec<_>, _>>().map_err(told_of)?;
        let wanted = case.wanted(&case.values(), false);
        for _ in 0..2 {
            for (plan, memory) in plans.iter().zip(&mut memory) {
                memory.reset(0xff)?;
                bench.execute(plan, memory).map_err(|error| told_of(told(&error)))?;
            }
            bench.stream.synchronize().map_err(|error| error.to_string())?;
            memory.iter_mut().try_for_each(|memory| memory.check(&wanted)).map_err(told_of)?;
        }
    }
    Ok(())
}

/// A buffer that is not there, or null, or no workspace where one is needed: an error, and nothing is launched.
fn missing_memory() -> Outcome {
    let bench = Bench::new(&plugin())?;
    for case in sample() {
        let told_of = |problem: String| format!("{}: {problem}", case.name());
        let plan = bench.plan(&case.graph(), &[]).map_err(told_of)?;
        let mut memory = Memory::new(&case, plan.workspace_bytes())?;
        let all = memory.buffers();
        let before = control().counters().launches;
        let refused = |workspace, buffers: &[DeviceBuffer]| {
            // SAFETY: what is there was made for the plan; the ABI has the plugin look for what is not.
            unsafe { plan.execute_with(&bench.handle, workspace, buffers) }.err()
        };
        for left_out in 0..all.len() {
            let mut some = all.clone();
            let gone = some.remove(left_out);
            let mut nulled = all.clone();
            nulled[left_out].ptr = std::ptr::null_mut();
            for buffers in [some, nulled] {
                let error = refused(memory.workspace(), &buffers);
                let error = error.ok_or_else(|| told_of(format!("ran without tensor {}", gone.uid)))?;
                is_told(&error)?;
                if !error.message.contains(&gone.uid.to_string()) {
                    return Err(
                        told_of(format!("the text does not name tensor {}: {}", gone.uid, error.message)).into()
                    );
                }
            }
        }
        if plan.workspace_bytes() > 0 {
            let error =
                refused(std::ptr::null_mut(), &all).ok_or_else(|| told_of("ran without workspace".to_owned()))?;
            is_told(&error)?;
        }
        if control().counters().launches != before {
            return Err(told_of("something was launched".to_owned()).into());
        }
        bench.execute(&plan, &memory).map_err(|error| told_of(told(&error)))?;
        bench.stream.synchronize().map_err(|error| error.to_string())?;
        memory.check(&case.wanted(&case.values(), false)).map_err(told_of)?;
    }
    Ok(())
}

fn searches() -> Outcome {
    let bench = Bench::new(&plugin())?;
    for word in ["immediate", "benchmark", "tune"] {
        for (direction, layout) in Direction::ALL.into_iter().zip([Layout::First, Layout::Last, Layout::First]) {
            let case = conv("2d 3x3", direction, DataType::Half, layout);
            for time in [1, 2000] {
                let knobs = [(SEARCH, text(word)), (SEARCH_TIME, KnobValue::Int(time))];
                bench.run(&case, &knobs).map_err(|problem| format!("{word}, {time} ms, {}: {problem}", case.name()))?;
            }
        }
    }
    let case = fused("2d asymmetric", DataType::Float, Layout::First, "bias residual relu");
    Ok(bench.run(&case, &[(BENCHMARKING, KnobValue::Int(1))])?)
}

/// Number of times that were taken while a plan of a problem that nobody has asked for was built.
fn timings(bench: &Bench, case: &Case, knobs: Knobs) -> Result<u64, String> {
    let before = control().call_count(c"hipEventElapsedTime");
    bench.run(case, knobs)?;
    Ok(control().call_count(c"hipEventElapsedTime") - before)
}

fn benchmark_times() -> Outcome {
    let bench = Bench::new(&plugin())?;
    let case = conv("2d 3x3 dilation 2", Direction::Forward, DataType::Float, Layout::First);
    let immediate = timings(&bench, &case, &[])?;
    let benchmark = timings(&bench, &case, &[(BENCHMARKING, KnobValue::Int(1))])?;
    if immediate != 0 || benchmark == 0 {
        return Err(format!("{immediate} times taken for an immediate choice, {benchmark} by a benchmark").into());
    }
    Ok(())
}

/// The role.
pub(crate) fn forced() -> Result<(), String> {
    let bench = Bench::new(&plugin())?;
    if timings(&bench, &plain(), &[])? == 0 {
        return Err("no time was taken".to_owned());
    }
    Ok(())
}
