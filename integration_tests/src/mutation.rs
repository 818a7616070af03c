//! Mutations of stored plans: damaged, cut off, of other plugins and versions, and changed with a checksum that is right.
//!
//! The format is the plugin's own: eight bytes of magic, fields behind their lengths in eight bytes, and a checksum of 16.
//! The first fields are stamp, engine, platform, graph, configuration and description; behind them are triples of a kind, a
//! key and a value, which may be code.

use fastrand::Rng;
use hipdnn_schemas::{Graph, GraphDef, Tensor};

use crate::tensor::AlignedBytes;

const MAGIC: usize = 8;
const CHECKSUM: usize = 16;

/// Number of fields before the triples.
const HEAD: usize = 6;

/// Position of the graph.
const GRAPH: usize = 3;

/// Maximum memory that an execution is given, in bytes.
const MAX_MEMORY: usize = 64 << 20;

/// The tensors that an execution of a stored plan that was taken reads and writes: those of its own graph, which a mutation
/// may have changed. `None` if they are too large to be tried.
///
/// # Panics
/// If the bytes are no stored plan, or its graph is none: then it must not have been taken.
pub fn tensors(stored: &[u8]) -> Option<Vec<Tensor>> {
    let bytes = &fields(stored)[GRAPH];
    let mut aligned = AlignedBytes::filled(bytes.len(), 0);
    aligned.as_mut_slice().copy_from_slice(bytes);
    let def = GraphDef::from_bytes(aligned.as_slice()).expect("a plan that is taken has a graph");
    let graph = Graph::new(def).expect("a plan that is taken has a right graph");
    let own = graph.tensors().iter().filter(|tensor| !tensor.is_virtual() && tensor.value().is_none());
    let own: Vec<Tensor> = own.cloned().collect();
    let bytes = own.iter().try_fold(0usize, |sum, tensor| sum.checked_add(tensor.span_bytes()));
    bytes.filter(|bytes| *bytes <= MAX_MEMORY).map(|_| own)
}

/// The fields of a stored plan.
///
/// # Panics
/// If the bytes are no stored plan.
pub fn fields(stored: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = &stored[MAGIC..stored.len() - CHECKSUM];
    let mut fields = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<8>() {
        let length = usize::try_from(u64::from_le_bytes(*length)).expect("a length");
        let (field, after) = after.split_at(length);
        fields.push(field.to_vec());
        rest = after;
    }
    fields
}

/// A stored plan of these fields, with its checksum.
pub fn assembled(stored: &[u8], fields: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = stored[..MAGIC].to_vec();
    for field in fields {
        bytes.extend((field.len() as u64).to_le_bytes());
        bytes.extend(field);
    }
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for byte in &bytes {
        hash = (hash ^ u128::from(*byte)).wrapping_mul((1 << 88) + 0x13b);
    }
    bytes.extend(hash.to_le_bytes());
    bytes
}

/// A mutation of a stored plan.
#[derive(Debug)]
pub struct Mutation {
    /// What was done, for messages.
    pub what: String,
    /// The bytes, which differ from the plan's.
    pub bytes: Vec<u8>,
    /// True if the checksum does not fit, so that no plan may come of it.
    pub is_damaged: bool,
}

/// A mutation by these numbers. Code keeps its bytes where the checksum fits: stored plans are code, and a checksum that fits is
/// the word of whoever wrote it.
pub fn mutated(random: &mut Rng, stored: &[u8]) -> Mutation {
    loop {
        let mutation = if random.u8(..3) == 0 { rewritten(random, stored) } else { damaged(random, stored) };
        if mutation.bytes != stored {
            return mutation;
        }
    }
}

fn damaged(random: &mut Rng, stored: &[u8]) -> Mutation {
    let mut bytes = stored.to_vec();
    let what = change(random, &mut bytes);
    Mutation { what, bytes, is_damaged: true }
}

fn rewritten(random: &mut Rng, stored: &[u8]) -> Mutation {
    let mut fields = fields(stored);
    let what = match random.u8(..8) {
        0 => {
            let at = random.usize(..fields.len());
            fields.remove(at);
            format!("without field {at}")
        }
        1 => {
            let (at, other) = (random.usize(..HEAD), random.usize(..HEAD));
            fields.swap(at, other);
            format!("field {at} for {other}")
        }
        2 => {
            let at = random.usize(..=fields.len());
            fields.insert(at, vec![random.u8(..); random.usize(..40)]);
            format!("another field {at}")
        }
        _ => {
            let at = random.usize(..HEAD);
            format!("field {at}: {}", change(random, &mut fields[at]))
        }
    };
    Mutation { what, bytes: assembled(stored, &fields), is_damaged: false }
}

/// Changes bytes in one to three places.
fn change(random: &mut Rng, bytes: &mut Vec<u8>) -> String {
    let mut said = Vec::new();
    for _ in 0..random.usize(1..=3) {
        let at = random.usize(..bytes.len().max(1));
        let word = at & !7;
        match random.u8(..7) {
            0 => {
                bytes.truncate(at);
                said.push(format!("cut at {at}"));
            }
            1 => {
                let piece: Vec<u8> = (0..random.usize(1..24)).map(|_| random.u8(..)).collect();
                said.push(format!("{} more bytes at {at}", piece.len()));
                let at = at.min(bytes.len());
                bytes.splice(at..at, piece);
            }
            2 => {
                let end = (at + random.usize(1..24)).min(bytes.len());
                said.push(format!("without bytes {at} to {end}"));
                bytes.drain(at.min(end)..end);
            }
            // A length, an offset, an extent.
            3 if word + 8 <= bytes.len() => {
                let value = match random.u8(..4) {
                    0 => u64::MAX,
                    1 => 1 << random.u8(..64),
                    2 => random.u64(..),
                    _ => random.u64(..64),
                };
                said.push(format!("{value:#x} at {word}"));
                bytes[word..word + 8].copy_from_slice(&value.to_le_bytes());
            }
            _ if at < bytes.len() => {
                let bits = random.u8(1..);
                said.push(format!("byte {at} by {bits:#x}"));
                bytes[at] ^= bits;
            }
            _ => bytes.push(random.u8(..)),
        }
    }
    said.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_apart_and_together() {
        let parts: Vec<Vec<u8>> =
            [&b"1 0.1.0"[..], b"E", b"", b"graph", b"config", b"steps"].map(<[u8]>::to_vec).into();
        let stored = assembled(b"HDNNRSP\n", &parts);
        assert_eq!(fields(&stored), parts);
        let mut random = Rng::with_seed(7);
        let mutations: Vec<Mutation> = (0..500).map(|_| mutated(&mut random, &stored)).collect();
        assert!(mutations.iter().all(|mutation| mutation.bytes != stored));
        let fitting = mutations.iter().filter(|mutation| !mutation.is_damaged).count();
        assert!((100..300).contains(&fitting), "{fitting}");
        let again: Vec<Vec<u8>> = mutations
            .iter()
            .filter(|mutation| !mutation.is_damaged)
            .map(|mutation| assembled(&mutation.bytes, &fields(&mutation.bytes)))
            .collect();
        assert!(mutations.iter().filter(|mutation| !mutation.is_damaged).map(|m| &m.bytes).eq(&again));
    }
}
