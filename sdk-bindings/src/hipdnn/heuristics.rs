//! The C ABI between hipDNN's backend and a heuristics plugin, whose policies rank engines: hipDNN's
//! `HeuristicsPluginApi.h` in version 0.1.0. Functions of any plugin are those of [`plugin`](super::plugin).

use std::ffi::{c_char, c_void};

use super::plugin::{ConstData, PluginStatus};

/// Major version of the ABI: plugins of another one are not loaded.
pub const MAJOR_VERSION: u32 = 0;

/// Version of the ABI that these declarations are of.
pub const VERSION: &str = "0.1.0";

/// Pointee of `hipdnnHeuristicHandle_t`.
#[repr(C)]
pub struct HeuristicHandle {
    _opaque: [u8; 0],
}

/// Pointee of `hipdnnHeuristicPolicyDescriptor_t`.
#[repr(C)]
pub struct PolicyDescriptor {
    _opaque: [u8; 0],
}

/// `hipdnnHeuristicHandle_t`: a plugin's state for one hipDNN handle.
pub type HeuristicHandlePtr = *mut HeuristicHandle;

/// `hipdnnHeuristicPolicyDescriptor_t`: a policy that is asked once.
pub type PolicyDescriptorPtr = *mut PolicyDescriptor;

c_enum! {
    /// `hipdnnEnginePredictionKind_t`.
    PredictionKind, "HIPDNN_ENGINE_PREDICTION_" {
        ENGINE = 0,
        CONFIGURATION = 1,
    }
}

/// Version of [`HostCallbacks`].
pub const HOST_CALLBACKS_VERSION: u32 = 2;

/// Type of [`HostCallbacks::get_prediction`].
pub type GetPrediction = unsafe extern "C" fn(
    context: *mut c_void,
    engine_id: i64,
    kind: PredictionKind,
    prediction: *mut ConstData,
) -> PluginStatus;

/// `hipdnnHeuristicHostCallbacks_t`: what a host lends a policy for the length of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostCallbacks {
    /// [`HOST_CALLBACKS_VERSION`].
    pub version: u32,
    /// Size of this structure, in bytes.
    pub struct_size: usize,
    /// First argument of the callbacks.
    pub context: *mut c_void,
    /// Lends a serialized prediction of one of the candidates; null in hosts that have none.
    pub get_prediction: Option<GetPrediction>,
    /// Name of the metric by which is ranked.
    pub ranking_metric: *const c_char,
}

/// Declares the type of each exported function.
macro_rules! functions {
    ($($(#[$meta:meta])* $name:ident: fn($($arg:ident: $type:ty),* $(,)?);)*) => {
        $($(#[$meta])* pub type $name = unsafe extern "C" fn($($arg: $type),*) -> PluginStatus;)*
    };
}

functions! {
    /// `hipdnnHeuristicPluginGetAllPolicyIds`
    GetAllPolicyIds: fn(ids: *mut i64, max: u32, count: *mut u32);
    /// `hipdnnHeuristicPluginGetPolicyName`
    GetPolicyName: fn(policy_id: i64, name: *mut *const c_char);
    /// `hipdnnHeuristicHandleCreate`
    HandleCreate: fn(handle: *mut HeuristicHandlePtr);
    /// `hipdnnHeuristicHandleDestroy`
    HandleDestroy: fn(handle: HeuristicHandlePtr);
    /// `hipdnnHeuristicHandleSetDeviceProperties`
    HandleSetDeviceProperties: fn(handle: HeuristicHandlePtr, properties: *const ConstData);
    /// `hipdnnHeuristicPolicyDescriptorCreate`
    PolicyDescriptorCreate: fn(handle: HeuristicHandlePtr, policy_id: i64, policy: *mut PolicyDescriptorPtr);
    /// `hipdnnHeuristicPolicyDescriptorDestroy`
    PolicyDescriptorDestroy: fn(policy: PolicyDescriptorPtr);
    /// `hipdnnHeuristicPolicySetEngineIds`
    PolicySetEngineIds: fn(policy: PolicyDescriptorPtr, ids: *const i64, count: usize);
    /// `hipdnnHeuristicPolicySetSerializedGraph`
    PolicySetSerializedGraph: fn(policy: PolicyDescriptorPtr, graph: *const ConstData);
    /// `hipdnnHeuristicPolicyFinalize`: `applied` is 1 if the policy ranks, 0 if it declines.
    PolicyFinalize: fn(policy: PolicyDescriptorPtr, applied: *mut i32);
    /// `hipdnnHeuristicPolicyFinalizeWithHost`, optional
    PolicyFinalizeWithHost: fn(policy: PolicyDescriptorPtr, host: *const HostCallbacks, applied: *mut i32);
    /// `hipdnnHeuristicPolicyGetSortedEngineIds`: `count` is the room for ids before, and their number after the call; null
    /// `ids` ask for the number.
    PolicyGetSortedEngineIds: fn(policy: PolicyDescriptorPtr, ids: *mut i64, count: *mut usize);
    /// `hipdnnHeuristicPolicyGetEngineConfig`, optional: the configuration that was ranked, which the policy owns.
    PolicyGetEngineConfig: fn(policy: PolicyDescriptorPtr, engine_id: i64, config: *mut ConstData);
    /// `hipdnnHeuristicPolicyGetTrace`, optional: JSON that says how an engine came to its place, which the policy owns.
    PolicyGetTrace: fn(policy: PolicyDescriptorPtr, engine_id: i64, trace: *mut *const c_char);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_layout_is_that_of_the_c_header() {
        let places = [
            offset_of!(HostCallbacks, version),
            offset_of!(HostCallbacks, struct_size),
            offset_of!(HostCallbacks, context),
            offset_of!(HostCallbacks, get_prediction),
            offset_of!(HostCallbacks, ranking_metric),
            size_of::<HostCallbacks>(),
        ];
        assert_eq!(places, [0, 8, 16, 24, 32, 40]);
        assert_eq!(size_of::<PredictionKind>(), 4);
    }
}
