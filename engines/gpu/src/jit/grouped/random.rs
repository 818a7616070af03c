//! Random work over groups.

use hipdnn_engine_kernel::emit::grouped::testing::LEN;
use hipdnn_engine_kernel::emit::testing::Random;

use super::*;

#[test]
fn random_work_computes_its_definition() {
    let Some(bench) = bench("random_work_computes_its_definition") else { return };
    let count = std::env::var("HIPDNN_RS_RANDOM_KERNELS").map_or(12, |count| count.parse().unwrap());
    for seed in 0..count {
        let work = Random::new(seed).grouped();
        let reads: Vec<_> = (0..work.reads.len()).map(|t| small(LEN, t)).collect();
        let lens = vec![LEN; work.writes.len()];
        check(&bench, &format!("seed {seed}: {work:?}"), &work, &several(seed as usize), &reads, &lens, EXACT);
    }
}
