//! Variant packs: the addresses of one execution.

use std::collections::HashSet;
use std::ffi::c_void;

use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

use super::staged::Staged;
use super::unhandled;
use crate::abi::pointer::{Elements, Output};
use crate::error::{Error, Result};
use crate::plugins::resources::Overrides;

/// Addresses are kept as numbers: they are handed on, never followed.
#[derive(Clone, Default)]
struct Draft {
    uids: Vec<i64>,
    addresses: Vec<usize>,
    workspace: usize,
    override_uids: Vec<i64>,
    override_lengths: Vec<i64>,
    override_shapes: Vec<i64>,
    override_strides: Vec<i64>,
}

/// Finalized variant pack: the buffers as the plugin receives them.
pub(crate) struct FinishedPack {
    draft: Draft,
    buffers: Vec<DeviceBuffer>,
    /// Bitwise OR of all addresses.
    address_bits: usize,
    overrides: Option<Overrides>,
}

// SAFETY: the addresses in `buffers` are handed on, never followed here.
unsafe impl Send for FinishedPack {}
// SAFETY: nothing in it changes through a shared reference, and addresses are not followed here.
unsafe impl Sync for FinishedPack {}

impl FinishedPack {
    fn new(draft: Draft, overrides: Option<Overrides>) -> FinishedPack {
        let addresses = draft.uids.iter().zip(&draft.addresses);
        FinishedPack {
            buffers: addresses.map(|(&uid, &address)| DeviceBuffer { uid, ptr: address as *mut c_void }).collect(),
            address_bits: draft.addresses.iter().fold(0, |bits, address| bits | address),
            draft,
            overrides,
        }
    }

    /// Bitwise OR of all addresses: a multiple of a power of two if each address is one.
    pub(super) fn address_bits(&self) -> usize {
        self.address_bits
    }

    pub(super) fn buffers(&self) -> &[DeviceBuffer] {
        &self.buffers
    }

    pub(super) fn workspace(&self) -> *mut c_void {
        self.draft.workspace as *mut c_void
    }

    pub(super) fn overrides(&self) -> Option<&Overrides> {
        self.overrides.as_ref()
    }
}

/// `HIPDNN_BACKEND_VARIANT_PACK_DESCRIPTOR`.
#[derive(Default)]
pub(crate) struct VariantPack(Staged<Draft, FinishedPack>);

impl VariantPack {
    /// The pack, for executing.
    pub(super) fn finished(&self) -> Option<&FinishedPack> {
        self.0.finished()
    }

    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.0.edit()?;
        match name {
            AttributeName::VARIANT_PACK_UNIQUE_IDS => draft.uids = elements.int64s_or_none()?,
            AttributeName::VARIANT_PACK_DATA_POINTERS => draft.addresses = elements.addresses()?,
            AttributeName::VARIANT_PACK_WORKSPACE => draft.workspace = elements.address()?,
            AttributeName::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT => draft.override_uids = elements.int64s_or_none()?,
            AttributeName::VARIANT_PACK_OVERRIDE_SHAPES_EXT => draft.override_shapes = elements.int64s_or_none()?,
            AttributeName::VARIANT_PACK_OVERRIDE_STRIDES_EXT => draft.override_strides = elements.int64s_or_none()?,
            AttributeName::VARIANT_PACK_OVERRIDE_LENGTHS_EXT => draft.override_lengths = elements.int64s_or_none()?,
            _ => return Err(unhandled(name)),
        }
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        let draft = &self.0.read()?.draft;
        match name {
            AttributeName::VARIANT_PACK_UNIQUE_IDS => output.vector(AttributeType::INT64, &draft.uids),
            AttributeName::VARIANT_PACK_DATA_POINTERS => {
                output.vector_without_query(AttributeType::VOID_PTR, &draft.addresses)
            }
            AttributeName::VARIANT_PACK_WORKSPACE => output.strict_scalar(AttributeType::VOID_PTR, draft.workspace),
            AttributeName::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT => {
                output.vector(AttributeType::INT64, &draft.override_uids)
            }
            AttributeName::VARIANT_PACK_OVERRIDE_SHAPES_EXT => {
                output.vector(AttributeType::INT64, &draft.override_shapes)
            }
            AttributeName::VARIANT_PACK_OVERRIDE_STRIDES_EXT => {
                output.vector(AttributeType::INT64, &draft.override_strides)
            }
            AttributeName::VARIANT_PACK_OVERRIDE_LENGTHS_EXT => {
                output.vector(AttributeType::INT64, &draft.override_lengths)
            }
            _ => Err(unhandled(name)),
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        if self.0.finished().is_some() {
            return Ok(());
        }
        let draft = self.0.draft().clone();
        if draft.uids.len() != draft.addresses.len() {
            return Err(Error::bad_param(format!(
                "expected as many uids as data pointers, got {} and {}",
                draft.uids.len(),
                draft.addresses.len()
            )));
        }
        if draft.uids.is_empty() {
            return Err(Error::bad_param("the variant pack is empty"));
        }
        let overrides = overrides(&draft)?;
        self.0.finish(FinishedPack::new(draft, overrides))
    }
}

fn overrides(draft: &Draft) -> Result<Option<Overrides>> {
    let Draft { override_uids, override_lengths, override_shapes, override_strides, .. } = draft;
    if override_uids.len() != override_lengths.len() {
        return Err(Error::bad_param(format!(
            "expected a length for each of {} overrides, got {}",
            override_uids.len(),
            override_lengths.len()
        )));
    }
    let mut lengths = Vec::with_capacity(override_lengths.len());
    let mut total = 0usize;
    for &length in override_lengths {
        let wanted = u32::try_from(length).ok().filter(|length| *length > 0);
        let length = wanted.ok_or_else(|| Error::bad_param(format!("an override has {length} dimensions")))?;
        lengths.push(length);
        total += length as usize;
    }
    if override_shapes.len() != total || override_strides.len() != total {
        return Err(Error::bad_param(format!(
            "expected {total} overridden extents and strides, got {} and {}",
            override_shapes.len(),
            override_strides.len()
        )));
    }
    let mut seen = HashSet::new();
    for uid in override_uids {
        if !seen.insert(uid) {
            return Err(Error::bad_param(format!("tensor {uid} is overridden twice")));
        }
        if !draft.uids.contains(uid) {
            return Err(Error::bad_param(format!("tensor {uid} is overridden, but has no data pointer")));
        }
    }
    Ok((!override_uids.is_empty()).then(|| Overrides {
        uids: override_uids.clone(),
        lengths,
        shapes: override_shapes.clone(),
        strides: override_strides.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn override_lists_must_agree() {
        let base = Draft { uids: vec![1, 2], ..Draft::default() };
        type Case<'a> = (&'a str, &'a [i64], &'a [i64], &'a [i64], &'a [i64], Option<bool>);
        #[rustfmt::skip]
        let cases: &[Case] = &[
            ("none", &[], &[], &[], &[], Some(false)),
            ("one", &[1], &[2], &[3, 4], &[4, 1], Some(true)),
            ("two", &[2, 1], &[1, 2], &[5, 3, 4], &[1, 4, 1], Some(true)),
            ("no length", &[1], &[], &[], &[], None),
            ("length 0", &[1], &[0], &[], &[], None),
            ("negative length", &[1], &[-1], &[], &[], None),
            ("too few extents", &[1], &[2], &[3], &[4, 1], None),
            ("too many strides", &[1], &[2], &[3, 4], &[4, 1, 1], None),
            ("twice", &[1, 1], &[1, 1], &[3, 3], &[1, 1], None),
            ("not in the pack", &[9], &[1], &[3], &[1], None),
        ];
        for (what, uids, lengths, shapes, strides, want) in cases {
            let draft = Draft {
                override_uids: uids.to_vec(),
                override_lengths: lengths.to_vec(),
                override_shapes: shapes.to_vec(),
                override_strides: strides.to_vec(),
                ..base.clone()
            };
            assert_eq!(overrides(&draft).ok().map(|overrides| overrides.is_some()), *want, "{what}");
        }
    }
}
