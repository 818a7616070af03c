use super::*;
use crate::device::HOST;
use crate::{samples, table};
use hipdnn_schemas::{DeviceProperties, GbdtNode, GbdtTree};
use std::os::unix::fs::PermissionsExt as _;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let root = std::env::temp_dir().join(format!("hipdnn-rs-measured-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        Scratch(root)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn device(architecture: &str) -> Device {
    let device_id = if architecture == "x86_64" { HOST } else { 0 };
    let architecture_name = architecture.to_owned();
    Device::of(&DeviceProperties { device_id, multi_processor_count: 4, total_global_mem: 0, architecture_name })
}

fn measured() -> Table {
    let mut table = Table::default();
    for (number, graph) in (0..).zip(samples::all()) {
        table.record(table::key(&features::of(&graph)), number % 3, 1.5);
    }
    table
}

fn some_trees() -> GbdtModel {
    GbdtModel {
        trees: vec![GbdtTree(vec![GbdtNode::Leaf(1.0)])],
        features: TREE_FEATURES as u32,
        features_hash: features::hash(),
        ..GbdtModel::default()
    }
}

#[test]
fn what_is_written_is_read() {
    let scratch = Scratch::new("round");
    let device = device("gfx942");
    assert!(read(&scratch.0, &device).passed_over.is_empty(), "nothing there is no failure");
    write(&scratch.0, &device, &measured()).unwrap();
    let folder = scratch.0.join(&device.name);
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(folder.join(TABLE)).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing unfinished is left");
    fs::write(folder.join(TREES), some_trees().to_bytes()).unwrap();
    let known = read(&scratch.0, &device);
    assert_eq!((known.table, known.trees, known.passed_over), (measured(), Some(some_trees()), vec![]));
}

/// Several who tune at a time, as processes do: each opens the files for itself.
#[test]
fn no_update_is_lost() {
    let (writers, rounds) = (4, 16);
    let scratch = Scratch::new("updates");
    let device = device("gfx942");
    let key = table::key(&features::of(&samples::softmax(8, 8)));
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (scratch, device) = (&scratch, &device);
            scope.spawn(move || {
                for round in 0..rounds {
                    update(&scratch.0, device, |table| table.record(key, writer * rounds + round, 1.0)).unwrap();
                }
            });
        }
    });
    assert_eq!(read(&scratch.0, &device).table.len() as i64, writers * rounds);
    let table = scratch.0.join(&device.name).join(TABLE);
    fs::write(&table, "damaged").unwrap();
    let refused = update(&scratch.0, &device, |_| panic!("what can't be read is not changed")).unwrap_err();
    assert!(refused.to_string().contains("move the file away"), "{refused}");
    assert_eq!(fs::read(table).unwrap(), b"damaged");
}

#[test]
fn what_is_not_to_be_trusted_is_passed_over() {
    let scratch = Scratch::new("trust");
    let device = device("gfx942");
    write(&scratch.0, &device, &measured()).unwrap();
    let folder = scratch.0.join(&device.name);
    let reason = || read(&scratch.0, &device).passed_over.join("; ");
    for (mode, taken) in [(0o700, true), (0o755, true), (0o720, false), (0o702, false), (0o777, false)] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(reason().is_empty(), taken, "{mode:o}: {}", reason());
        assert_eq!(write(&scratch.0, &device, &measured()).is_ok(), taken, "{mode:o}");
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let refused = |what: &str, bytes: &[u8], why: &str| {
        fs::write(folder.join(TABLE), bytes).unwrap();
        let known = read(&scratch.0, &device);
        assert!(known.table.is_empty(), "{what}");
        assert!(known.passed_over.join("; ").contains(why), "{what}: {:?}", known.passed_over);
        assert!(known.unread, "{what}: measurements are there, and not to be written over");
    };
    let good = measured().to_model("gfx942").to_bytes();
    for (mode, taken) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false)] {
        fs::set_permissions(folder.join(TABLE), fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(reason().is_empty(), taken, "file of mode {mode:o}: {}", reason());
    }
    fs::set_permissions(folder.join(TABLE), fs::Permissions::from_mode(0o600)).unwrap();
    refused("empty", b"", "identifier");
    refused("cut", &good[..good.len() / 2], "");
    refused("another architecture's", &measured().to_model("gfx90a").to_bytes(), "measurements of gfx942");
    let mut newer = measured().to_model("gfx942");
    newer.features_hash = "sha256:ff".into();
    refused("a newer version's", &newer.to_bytes(), "features with hash");
    refused("too large", &vec![0; LARGEST as usize + 1], "at most");
    fs::remove_file(folder.join(TABLE)).unwrap();
    let elsewhere = scratch.0.join("elsewhere");
    fs::write(&elsewhere, &good).unwrap();
    std::os::unix::fs::symlink(&elsewhere, folder.join(TABLE)).unwrap();
    assert!(!reason().is_empty(), "a link");
    fs::remove_file(folder.join(TABLE)).unwrap();
    fs::create_dir(folder.join(TABLE)).unwrap();
    assert!(!reason().is_empty(), "a folder");
    let mut others = some_trees();
    others.features = 3;
    fs::write(folder.join(TREES), others.to_bytes()).unwrap();
    assert!(reason().contains("15 features"), "{}", reason());
}

/// Whatever a file has become, graphs are ranked: by it, if it is a table still, else without it.
#[test]
fn mutated_files_never_hurt() {
    let scratch = Scratch::new("mutated");
    let device = device("gfx942");
    write(&scratch.0, &device, &measured()).unwrap();
    let file = scratch.0.join(&device.name).join(TABLE);
    let good = fs::read(&file).unwrap();
    let seed = 1;
    let mut random = fastrand::Rng::with_seed(seed);
    let graph = samples::softmax(128, 128);
    let model = crate::cost::Model { device: device.clone(), host: self::device("x86_64") };
    let candidates = [hipdnn_sdk_bindings::hipdnn::plugin::engine_id("MIOPEN_ENGINE"), 0, 1, 2];
    let mut refused = 0;
    for round in 0..1000 {
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            bytes[at] = if random.bool() { random.u8(..) } else { bytes[at] ^ (1 << random.u8(..8)) };
        }
        if random.u8(..8) == 0 {
            bytes.truncate(random.usize(..bytes.len()));
        }
        fs::write(&file, &bytes).unwrap();
        let known = read(&scratch.0, &device);
        refused += usize::from(!known.passed_over.is_empty());
        if let Some(order) = crate::ranking::by_measurements(&model, &known, &graph, &candidates) {
            let mut ids: Vec<i64> = order.iter().map(|estimate| estimate.configuration.engine).collect();
            ids.sort_unstable();
            let mut wanted = candidates;
            wanted.sort_unstable();
            assert_eq!(ids, wanted, "seed {seed}, round {round}");
            assert!(order.iter().all(|estimate| estimate.seconds.is_finite()), "seed {seed}, round {round}");
        }
    }
    assert!(refused > 100, "seed {seed}: {refused} refused");
}
