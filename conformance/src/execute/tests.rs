use hipdnn_schemas::*;

use super::*;

fn values(results: &Results, uid: TensorUid) -> Vec<f64> {
    results[&uid].data.iter().map(|number| number.value).collect()
}
