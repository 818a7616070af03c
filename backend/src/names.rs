//! Engine names and ids.

pub(crate) use hipdnn_sdk_bindings::hipdnn::plugin::engine_id as id_of;

/// Engines that hipDNN itself knows, for plugins that do not name theirs, in the order in which they are preferred.
const KNOWN: &[&str] = &[
    "HIPDNN_RS_GPU_ENGINE",
    "MIOPEN_ENGINE",
    "HIPBLASLT_ENGINE",
    "HIP_MLOPS_ENGINE",
    "ASM_SDPA_ENGINE",
    "ROCKE_ENGINE",
    "MIOPEN_PLUGIN",
];

/// An engine that gives up speed: it comes after every other one.
const LAST: &str = "MIOPEN_ENGINE_DETERMINISTIC";

/// The name of an engine whose plugin gives none: hipDNN's, or the number.
pub(crate) fn fallback_name(id: i64) -> String {
    match KNOWN.iter().chain([&LAST]).find(|name| id_of(name) == id) {
        Some(name) => (*name).to_string(),
        None => hexadecimal(id),
    }
}

/// An id as hipDNN writes ids.
pub(crate) fn hexadecimal(id: i64) -> String {
    format!("0x{id:016X}")
}

/// Rank in the order of preference: the known engines in their order, then all others, then the slow one.
pub(crate) fn static_rank(id: i64) -> usize {
    if id == id_of(LAST) {
        return KNOWN.len() + 1;
    }
    KNOWN.iter().position(|name| id_of(name) == id).unwrap_or(KNOWN.len())
}

/// The number that `text` writes in decimal or as `0x...`; hexadecimal ones are the id's bit pattern.
pub(crate) fn parse_id(text: &str) -> Option<i64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(|bits| bits as i64),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_unnamed_engines() {
        assert_eq!(fallback_name(1563989756945604898), "MIOPEN_ENGINE");
        assert_eq!(fallback_name(-6748551569128940061), "MIOPEN_ENGINE_DETERMINISTIC");
        assert_eq!(fallback_name(10), "0x000000000000000A");
        assert_eq!(fallback_name(-1), "0xFFFFFFFFFFFFFFFF");
    }

    #[test]
    fn ranks() {
        let order = ["HIPDNN_RS_GPU_ENGINE", "MIOPEN_ENGINE", "HIPBLASLT_ENGINE", "SOMETHING", LAST];
        assert!(order.is_sorted_by_key(|name| static_rank(id_of(name))));
    }

    #[test]
    fn numbers() {
        for (text, want) in
            [("12", Some(12)), ("-3", Some(-3)), ("0xFFFFFFFFFFFFFFFF", Some(-1)), ("0X10", Some(16)), ("abc", None)]
        {
            assert_eq!(parse_id(text), want, "{text}");
        }
    }
}
