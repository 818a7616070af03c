//! Kernels whose blocks run in groups (CUDA's clusters) or all at once, as many of cuDNN's do. HIP's plain launches have neither, so what a graph
//! tells of such a launch names a function of its own, which is launched that way again.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{PoisonError, RwLock};

use cudarc::driver::sys::{self, CUclusterSchedulingPolicy, CUfunction, CUlaunchAttribute, CUlaunchAttributeID};
use hipdnn_sdk_bindings::hip::hipFunction_t;

/// A kernel, and how its blocks are grouped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Grouped {
    pub(super) function: CUfunction,
    pub(super) extents: [u32; 3],
    pub(super) policy: CUclusterSchedulingPolicy,
    /// True if all blocks run at once.
    pub(super) is_cooperative: bool,
}

// SAFETY: the driver's functions belong to no thread.
unsafe impl Send for Grouped {}
// SAFETY: nothing of it changes, and the driver's functions may be launched by several threads at once.
unsafe impl Sync for Grouped {}

/// Those that have been told, by their handles, which are good for as long as the process.
static TOLD: RwLock<BTreeMap<usize, &'static Grouped>> = RwLock::new(BTreeMap::new());

impl Grouped {
    /// The handle of the kernel, the same for the same.
    pub(super) fn handle(self) -> hipFunction_t {
        let mut told = TOLD.write().unwrap_or_else(PoisonError::into_inner);
        let known = told.values().copied().find(|known| **known == self);
        let kept: &'static Grouped = known.unwrap_or_else(|| Box::leak(Box::new(self)));
        let handle: *const Grouped = kept;
        told.insert(handle.addr(), kept);
        handle.cast_mut().cast()
    }

    /// The kernel of a handle, if it is one of these.
    pub(super) fn of(handle: hipFunction_t) -> Option<&'static Grouped> {
        TOLD.read().unwrap_or_else(PoisonError::into_inner).get(&handle.addr()).copied()
    }

    /// Launches it, with the arguments of `config`'s launch.
    ///
    /// # Safety
    /// As for the driver's function: the arguments are the kernel's.
    pub(super) unsafe fn launch(
        &self,
        mut config: sys::CUlaunchConfig,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> sys::CUresult {
        // SAFETY: numbers and addresses, for which zeros are values.
        let mut attributes: [CUlaunchAttribute; 3] = unsafe { std::mem::zeroed() };
        let [x, y, z] = self.extents;
        attributes[0].id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[0].value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        attributes[1].id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
        attributes[1].value.clusterSchedulingPolicyPreference = self.policy;
        attributes[2].id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes[2].value.cooperative = self.is_cooperative.into();
        (config.attrs, config.numAttrs) = (attributes.as_mut_ptr(), attributes.len() as u32);
        // SAFETY: the attributes are there during the call; the rest is the caller's promise.
        unsafe { sys::cuLaunchKernelEx(&config, self.function, parameters, extra) }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;

    use super::*;

    #[test]
    fn the_same_kernel_has_the_same_handle() {
        let grouped = |function: usize, x| Grouped {
            function: without_provenance_mut(function),
            extents: [x, 1, 1],
            policy: CUclusterSchedulingPolicy::CU_CLUSTER_SCHEDULING_POLICY_DEFAULT,
            is_cooperative: false,
        };
        let handles = [(8, 2), (8, 4), (16, 2), (8, 2)].map(|(function, x)| grouped(function, x).handle());
        assert_eq!(handles[0], handles[3]);
        assert!(handles[0] != handles[1] && handles[0] != handles[2]);
        assert_eq!(Grouped::of(handles[1]), Some(&grouped(8, 4)));
        assert_eq!(Grouped::of(without_provenance_mut(8)), None);
    }
}
