//! Engines by name and number.

use hipdnn_sdk_bindings::hipdnn::plugin::engine_id;

/// Engines that are known by name, in the order in which hipDNN prefers them.
const KNOWN: [&str; 4] = ["HIPDNN_RS_GPU_ENGINE", "MIOPEN_ENGINE", "HIPBLASLT_ENGINE", "HIPDNN_RS_CPU_ENGINE"];

/// Engine that gives up speed, so it comes after every other one.
const LAST: &str = "MIOPEN_ENGINE_DETERMINISTIC";

/// The engine's name if it is known, else its number.
pub(crate) fn engine_name(id: i64) -> String {
    let known = KNOWN.iter().chain([&LAST]).find(|name| engine_id(name) == id);
    known.map_or_else(|| engine_number(id), |name| (*name).to_string())
}

/// The number of an engine, as hipDNN writes it.
pub(crate) fn engine_number(id: i64) -> String {
    format!("{:#018x}", id.cast_unsigned())
}

/// Rank in hipDNN's order: the known engines in their order, then all others, then the slow one.
pub(crate) fn rank(id: i64) -> usize {
    if id == engine_id(LAST) {
        return KNOWN.len() + 1;
    }
    // The CPU engine has no rank of its own there.
    KNOWN[..3].iter().position(|name| engine_id(name) == id).unwrap_or(KNOWN.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_order() {
        assert_eq!(engine_name(1563989756945604898), "MIOPEN_ENGINE");
        assert_eq!(engine_name(10), "0x000000000000000a");
        assert_eq!(engine_number(-1), "0xffffffffffffffff");
        let order = ["HIPDNN_RS_GPU_ENGINE", "MIOPEN_ENGINE", "HIPBLASLT_ENGINE", "HIPDNN_RS_CPU_ENGINE", LAST];
        assert!(order.is_sorted_by_key(|name| rank(engine_id(name))));
        assert_eq!(rank(engine_id("HIPDNN_RS_CPU_ENGINE")), rank(engine_id("SOMETHING")));
    }
}
