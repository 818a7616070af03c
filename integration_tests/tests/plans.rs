//! Plans that are stored by one process and run by another, through the backend: the CPU engine's.
//!
//! The test plays the other processes itself, started again with a role.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path};
use hipdnn_rs_integration_tests::backend::{BackendError, Client, Descriptor, Handle};
use hipdnn_rs_integration_tests::mutation::{self, mutated};
use hipdnn_rs_integration_tests::tensor::{AlignedBytes, HostTensor};
use hipdnn_schemas::{
    BatchnormInference, Convolution, DataType, GraphBuilder, Operation, Pointwise, PointwiseMode,
    SerializedExecutionPlan, TensorDef,
};
use hipdnn_sdk_bindings::hipdnn::backend::{
    AttributeName as Name, AttributeType as Type, DescriptorType as Kind, Status,
};

/// Variable with the task of a process.
const ROLE: &str = "HIPDNN_RS_TEST_PLANS";

/// The directory that the processes share.
const PLACE: &str = "HIPDNN_RS_TEST_PLACE";

/// A graph with its tensors; the last one is its output.
struct Case {
    name: &'static str,
    graph: Vec<u8>,
    tensors: Vec<HostTensor>,
}

impl Case {
    fn new(name: &'static str, graph: GraphBuilder, tensors: &[TensorDef]) -> Case {
        let (output, inputs) = tensors.split_last().expect("a graph has an output");
        let mut tensors: Vec<_> =
            inputs.iter().map(|def| HostTensor::random(def, def.uid.0.unsigned_abs() + 7)).collect();
        tensors.push(HostTensor::blank(output));
        Case { name, graph: graph.build().expect("a right graph").def().to_bytes(), tensors }
    }

    fn output(&self) -> &[u8] {
        self.tensors.last().expect("a graph has an output").bytes()
    }

    /// The bits that a plan computes.
    fn run(&mut self, handle: &Handle, plan: &Descriptor) -> Vec<u8> {
        let output = self.tensors.last_mut().expect("a graph has an output");
        *output = HostTensor::blank(&output.def().clone());
        let bytes = plan.number(Name::EXECUTION_PLAN_WORKSPACE_SIZE).expect("a size");
        let mut workspace = AlignedBytes::filled(usize::try_from(bytes).expect("not negative"), 0xff);
        let pack = handle.client().descriptor(Kind::VARIANT_PACK_DESCRIPTOR).expect("a variant pack");
        let buffers: Vec<_> = self.tensors.iter_mut().map(HostTensor::buffer).collect();
        let uids: Vec<i64> = buffers.iter().map(|buffer| buffer.uid).collect();
        let pointers: Vec<_> = buffers.iter().map(|buffer| buffer.ptr).collect();
        pack.set(Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, &uids).expect("uids");
        pack.set(Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, &pointers).expect("pointers");
        pack.set(Name::VARIANT_PACK_WORKSPACE, Type::VOID_PTR, &[workspace.as_mut_ptr()]).expect("a workspace");
        pack.finalize().expect("the pack is complete");
        // SAFETY: the pack's pointers are those of tensors that this case keeps, and of a workspace of the plan's size.
        unsafe { handle.execute(plan, &pack) }.unwrap_or_else(|error| panic!("{}: {error:?}", self.name));
        self.output().to_vec()
    }
}

/// Executes a plan that was taken after a mutation, on memory for the tensors of its own graph: it may compute something
/// else, or say why not, but it writes nothing outside. `None` where the tensors are too large to be tried.
fn tried(handle: &Handle, plan: &Descriptor, payload: &[u8]) -> Option<Result<(), BackendError>> {
    let tensors = mutation::tensors(payload)?;
    let mut memory: Vec<(i64, AlignedBytes)> =
        tensors.iter().map(|tensor| (tensor.uid().0, AlignedBytes::filled(tensor.span_bytes(), 0x3c))).collect();
    let bytes = plan.number(Name::EXECUTION_PLAN_WORKSPACE_SIZE).expect("a size");
    let mut workspace = AlignedBytes::filled(usize::try_from(bytes).expect("not negative"), 0xff);
    let pack = handle.client().descriptor(Kind::VARIANT_PACK_DESCRIPTOR).expect("a variant pack");
    let uids: Vec<i64> = memory.iter().map(|(uid, _)| *uid).collect();
    let pointers: Vec<_> = memory.iter_mut().map(|(_, bytes)| bytes.as_mut_ptr()).collect();
    pack.set(Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, &uids).expect("uids");
    pack.set(Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, &pointers).expect("pointers");
    pack.set(Name::VARIANT_PACK_WORKSPACE, Type::VOID_PTR, &[workspace.as_mut_ptr()]).expect("a workspace");
    pack.finalize().expect("the pack is complete");
    // SAFETY: the pack has memory for each tensor of the plan's graph, as large as that says, and a workspace of the
    // plan's size.
    let result = unsafe { handle.execute(plan, &pack) };
    assert!(workspace.guards_hold(), "written outside the workspace");
    for (uid, bytes) in &memory {
        assert!(bytes.guards_hold(), "written outside tensor {uid}");
    }
    Some(result)
}

fn tensor(uid: i64, dims: &[i64]) -> TensorDef {
    TensorDef::new(uid, DataType::Float, dims)
}

/// Convolutions by several algorithms with what follows them, and steps of other kinds.
fn cases() -> Vec<Case> {
    let convolution = |name, x: [i64; 4], w: [i64; 4], y: [i64; 4], convolution: Convolution| {
        let mut graph = GraphBuilder::new(name).compute(DataType::Float);
        let defs = [tensor(1, &x), tensor(-2, &w), tensor(3, &[1, y[1], 1, 1]), tensor(40, &y)];
        let [x, w, b, out] = defs.clone().map(|def| graph.tensor(def));
        let [c, s] = [100, 101].map(|uid| graph.tensor(tensor(uid, &y).intermediate()));
        graph.convolution_fwd(x, w, c, convolution);
        graph.pointwise(Pointwise::binary(PointwiseMode::Add, c, b, s));
        graph.pointwise(Pointwise::unary(PointwiseMode::GeluFwd, s, out));
        Case::new(name, graph, &defs)
    };
    let same = || Convolution { pre_padding: vec![1, 1], post_padding: vec![1, 1], ..Convolution::new(2) };
    let statistics = {
        let mut graph = GraphBuilder::new("normalization").compute(DataType::Float);
        let channels = [1, 6, 1, 1];
        let mut defs = vec![tensor(1, &[2, 6, 5, 7])];
        defs.extend((2..6).map(|uid| tensor(uid, &channels)));
        defs.push(tensor(6, &[2, 6, 5, 7]));
        let uids: Vec<_> = defs.iter().map(|def| graph.tensor(def.clone())).collect();
        let [x, mean, inv_variance, scale, bias, y] = uids[..] else { unreachable!("six tensors") };
        graph.node("", Operation::BatchnormInference(BatchnormInference { x, mean, inv_variance, scale, bias, y }));
        Case::new("normalization", graph, &defs)
    };
    vec![
        convolution("3x3", [2, 16, 14, 14], [16, 16, 3, 3], [2, 16, 14, 14], same()),
        convolution("1x1", [1, 24, 9, 9], [40, 24, 1, 1], [1, 40, 9, 9], Convolution::new(2)),
        convolution("depthwise", [1, 12, 10, 11], [12, 1, 3, 3], [1, 12, 10, 11], same()),
        statistics,
    ]
}

fn place() -> PathBuf {
    PathBuf::from(std::env::var_os(PLACE).expect("a role has a place"))
}

/// A handle of a backend of this process's own.
fn handle(place: &Path) -> Handle {
    let prefix = place.join(format!("installed-{}", std::process::id()));
    let client: Arc<Client> = Client::installed(&prefix, &[library_path(Artifact::Plugin)]);
    client.handle().expect("a handle")
}

/// Builds and runs every case, and leaves plan and result behind.
fn stores() {
    let place = place();
    let handle = handle(&place);
    for mut case in cases() {
        let graph = handle.client().graph_from_bytes(&case.graph).expect("a graph");
        handle.finalize_graph(&graph).expect("the graph is right");
        let configurations = handle.configurations(&graph).expect("engines");
        let configuration = configurations.last().expect("the CPU engine takes it");
        configuration.finalize().expect("the configuration is right");
        let plan = handle.client().descriptor(Kind::EXECUTION_PLAN_DESCRIPTOR).expect("a plan");
        plan.set(Name::EXECUTION_PLAN_ENGINE_CONFIG, Type::BACKEND_DESCRIPTOR, &[configuration.raw()]).expect("set");
        plan.finalize().expect("the plan is built");
        let result = case.run(&handle, &plan);
        std::fs::write(place.join(format!("{}.plan", case.name)), plan.stored_plan().expect("stored"))
            .expect("written");
        std::fs::write(place.join(format!("{}.result", case.name)), result).expect("written");
    }
}

/// Runs what another process has left behind.
fn runs() {
    let place = place();
    let handle = handle(&place);
    for mut case in cases() {
        let read = |what: &str| std::fs::read(place.join(format!("{}.{what}", case.name))).expect("it was left behind");
        let (stored, wanted) = (read("plan"), read("result"));
        let plan = handle.restored(&stored).unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        assert!(case.run(&handle, &plan) == wanted, "{}: another process's plan gives other bits", case.name);
        assert_eq!(plan.stored_plan().expect("stored again"), stored, "{}: it is stored as it was", case.name);
    }
}

/// Is refused what another process has left behind, for a reason that it writes to standard output.
fn is_refused() {
    let place = place();
    let handle = handle(&place);
    for case in cases() {
        let stored = std::fs::read(place.join(format!("{}.plan", case.name))).expect("it was left behind");
        let error = handle.restored(&stored).err().expect("it is refused");
        println!("refused: {}", error.message);
    }
}

/// An empty directory for the processes of a test.
fn scratch(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).expect("the scratch directory is writable");
    place
}

/// This program's first test in a role.
fn process(role: &str, place: &Path, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["plans_travel_between_processes", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(PLACE, place).env("HIPDNN_RS_CPU_ENGINE", "on").env_remove("HIPDNN_PLUGIN_DIR");
    command.envs(environment.iter().copied());
    let output = command.output().expect("this program starts again");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "the process that {role}: {}\n{said}", output.status);
    output
}

#[test]
fn plans_travel_between_processes() {
    match std::env::var(ROLE).as_deref() {
        Ok("stores") => return stores(),
        Ok("runs") => return runs(),
        Ok("is refused") => return is_refused(),
        Ok("meets damage") => return meets_damage(),
        Ok("meets mutations") => return meets_mutations(),
        Ok(other) => panic!("there is no role {other:?}"),
        Err(_) => {}
    }
    let place = scratch("plans");
    process("stores", &place, &[("HIPDNN_RS_CPU_THREADS", "2")]);
    process("runs", &place, &[]);
    // What the environment said when the plan was built is in the plan.
    process("runs", &place, &[("HIPDNN_RS_CPU_THREADS", "1")]);
    let reasons = |environment: &[(&str, &str)], want: &str| {
        let output = process("is refused", &place, environment);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let reasons: Vec<&str> = said.lines().filter(|line| line.contains("refused: ")).collect();
        assert_eq!(reasons.len(), cases().len(), "{said}");
        assert!(reasons.iter().all(|reason| reason.contains(want)), "expected {want:?}, got {reasons:#?}");
    };
    if !built_for_the_slowest(&place) {
        reasons(&[("HIPDNN_RS_CPU_ISA", "portable")], "portable\", got one for");
    }
    reasons(&[("HIPDNN_RS_CPU_ENGINE", "off")], "the CPU engine is switched off");
}

/// True if the machine that the plans were stored on has no vector instructions that kernels are written for.
fn built_for_the_slowest(place: &Path) -> bool {
    let stored = std::fs::read(place.join("3x3.plan")).expect("it was left behind");
    let payload = SerializedExecutionPlan::from_bytes(&stored).expect("a container").plugin_payload;
    payload.windows(8).any(|window| window == b"portable")
}

#[test]
fn damaged_plans_are_refused() {
    let place = scratch("damaged-plans");
    process("stores", &place, &[]);
    process("meets damage", &place, &[]);
}

/// Number of mutations of stored plans.
const MUTATIONS: u64 = 100_000;

#[test]
fn mutated_plans_are_refused_or_harmless() {
    let place = scratch("mutated-plans");
    process("stores", &place, &[]);
    process("meets mutations", &place, &[]);
}

/// Stored plans that are changed by chance, of their payload or of the container around it: none ends the process, none
/// with a wrong checksum is taken, and what is taken is executed and writes nothing outside. `HIPDNN_RS_TEST_MUTATIONS` sets how many, `HIPDNN_RS_TEST_SEED` the seed.
fn meets_mutations() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: no number")))
    };
    let (count, seed) = (number("HIPDNN_RS_TEST_MUTATIONS", MUTATIONS), number("HIPDNN_RS_TEST_SEED", 15));
    let place = place();
    let handle = handle(&place);
    let whole: Vec<(Vec<u8>, SerializedExecutionPlan)> = cases()
        .iter()
        .map(|case| {
            let stored = std::fs::read(place.join(format!("{}.plan", case.name))).expect("it was left behind");
            let plan = SerializedExecutionPlan::from_bytes(&stored).expect("a container");
            (stored, plan)
        })
        .collect();
    let told = |error: &BackendError, index: u64, what: &str| {
        let is_told = error.status != Status::SUCCESS && !error.message.trim().is_empty();
        assert!(is_told, "mutation {index} of seed {seed}, {what}: {error:?}");
    };
    let (mut taken, mut refused, mut executed) = (0, 0, 0);
    for index in 0..count {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(index));
        let (stored, plan) = &whole[random.usize(..whole.len())];
        let (bytes, payload, what, may_be_taken) = if random.u8(..4) == 0 {
            // The container's checksum is the payload's: what is beside that may change.
            let mut bytes = stored.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            bytes.truncate(if random.u8(..3) == 0 { random.usize(..bytes.len()) } else { bytes.len() });
            (bytes, plan.plugin_payload.clone(), "the container".to_owned(), true)
        } else {
            let mutation = mutated(&mut random, &plan.plugin_payload);
            let changed = SerializedExecutionPlan { plugin_payload: mutation.bytes.clone(), ..plan.clone() };
            (changed.to_bytes(), mutation.bytes, mutation.what, !mutation.is_damaged)
        };
        match handle.restored(&bytes) {
            Ok(plan) => {
                taken += 1;
                assert!(may_be_taken, "mutation {index} of seed {seed} is taken: {what}");
                match tried(&handle, &plan, &payload) {
                    Some(Ok(())) => executed += 1,
                    Some(Err(error)) => told(&error, index, &what),
                    None => {}
                }
            }
            Err(error) => {
                refused += 1;
                told(&error, index, &what);
            }
        }
    }
    println!("{count} mutations: {refused} refused, {taken} taken, {executed} of these executed");
    assert!(taken < count / 4, "{taken} of {count} mutations are taken");
    assert!(executed > taken / 2, "{executed} of {taken} plans that are taken are executed");
}

/// Containers with damage, a byte at a time, and payloads of other plugins and times.
fn meets_damage() {
    let place = place();
    let handle = handle(&place);
    let stored = std::fs::read(place.join("1x1.plan")).expect("it was left behind");
    let whole = SerializedExecutionPlan::from_bytes(&stored).expect("a container");
    let refused = |bytes: &[u8]| -> Option<BackendError> { handle.restored(bytes).err() };
    for at in 0..stored.len() {
        let cut = refused(&stored[..at]).unwrap_or_else(|| panic!("the first {at} bytes are taken"));
        assert_ne!(cut.status, Status::SUCCESS);
    }
    for at in 0..whole.plugin_payload.len() {
        let mut damaged = whole.clone();
        damaged.plugin_payload[at] ^= 0x10;
        let error = refused(&damaged.to_bytes()).unwrap_or_else(|| panic!("payload with another byte {at} is taken"));
        assert_eq!(error.status, Status::PLUGIN_ERROR, "{}", error.message);
        assert!(error.message.contains("expected") && error.message.contains("got"), "{}", error.message);
    }
    // The container has no checksum: what is not refused has to be a plan that can be executed and destroyed.
    let mut taken = 0;
    for at in 0..stored.len() {
        let mut damaged = stored.clone();
        damaged[at] ^= 0x04;
        if let Ok(plan) = handle.restored(&damaged) {
            taken += 1;
            tried(&handle, &plan, &whole.plugin_payload).expect("the tensors are small").unwrap_or_else(|error| {
                assert!(!error.message.trim().is_empty(), "byte {at}: {error:?}");
            });
        }
    }
    assert!(taken < stored.len() / 4, "{taken} of {} damaged containers are taken", stored.len());
    type Change = fn(&mut SerializedExecutionPlan);
    let changes: [(&str, Change, &str); 3] = [
        (
            "another plugin's payload",
            |plan| plan.plugin_payload = b"another plugin's".to_vec(),
            "that this plugin stored",
        ),
        (
            "another version's",
            |plan| {
                let version = env!("CARGO_PKG_VERSION").as_bytes();
                let payload = &mut plan.plugin_payload;
                let at = payload.windows(version.len()).position(|window| window == version).expect("a version");
                payload[at] = b'9';
            },
            "expected a stored plan of version",
        ),
        ("an engine that is not there", |plan| plan.engine_id ^= 1, ""),
    ];
    for (what, change, want) in changes {
        let mut changed = whole.clone();
        change(&mut changed);
        let error = refused(&changed.to_bytes()).unwrap_or_else(|| panic!("{what} is taken"));
        assert!(error.message.contains(want), "{what}: {}", error.message);
    }
}
