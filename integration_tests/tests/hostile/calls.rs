//! Sequences of calls to the backend: the right ones, with some left out, doubled, out of order, or with other arguments.

use std::ffi::c_void;
use std::ptr::null_mut;

use hipdnn_schemas::{Convolution, DataType, GraphBuilder, Pointwise, PointwiseMode, TensorDef};
use hipdnn_sdk_bindings::hipdnn::backend::{
    AttributeName as Name, AttributeType as Type, DescriptorPtr, DescriptorType as Kind, HandlePtr, Status,
};

use crate::api::BackendApi;
use crate::guarded::{Guarded, Place};
use crate::random::Random;
use crate::stages::Stages;

/// No element of any attribute is larger.
const ELEMENT_BYTES: usize = 16;

/// More elements are never passed.
const ELEMENTS: usize = 40;

/// Enough for every tensor that these sequences can describe: five dimensions of up to 9.
const TENSOR_BYTES: usize = 1 << 20;

/// A handle and what the sequences of calls use.
pub(crate) struct Calls {
    api: BackendApi,
    handle: HandlePtr,
    elements: Guarded,
    memory: Guarded,
    graph: Vec<u8>,
    engine_id: i64,
}

/// The descriptors of one sequence.
#[derive(Default)]
struct Descriptors {
    live: Vec<DescriptorPtr>,
    destroyed: Vec<DescriptorPtr>,
}

impl Descriptors {
    /// Mostly a live one.
    fn any(&self, random: &mut Random) -> DescriptorPtr {
        match random.below(30) {
            0 => null_mut(),
            1 => std::ptr::without_provenance_mut(random.next() as usize),
            2 if !self.destroyed.is_empty() => random.pick(&self.destroyed),
            _ if !self.live.is_empty() => random.pick(&self.live),
            _ => null_mut(),
        }
    }
}

impl Calls {
    pub(crate) fn new(api: BackendApi, engine_id: i64) -> Calls {
        let mut handle = null_mut();
        // SAFETY: `handle` is valid for the call.
        assert_eq!(unsafe { (api.create)(&mut handle) }, Status::SUCCESS);
        let mut graph = GraphBuilder::new("calls").compute(DataType::Float);
        let x = graph.tensor(TensorDef::new(1, DataType::Float, &[1, 2, 4, 4]));
        let w = graph.tensor(TensorDef::new(2, DataType::Float, &[2, 2, 3, 3]));
        let c = graph.tensor(TensorDef::new(3, DataType::Float, &[1, 2, 2, 2]).intermediate());
        let y = graph.tensor(TensorDef::new(4, DataType::Float, &[1, 2, 2, 2]));
        graph.convolution_fwd(x, w, c, Convolution::new(2));
        graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, c, y));
        let graph = graph.build().expect("a right graph").def().to_bytes();
        let elements = Guarded::new(ELEMENTS * ELEMENT_BYTES);
        Calls { api, handle, elements, memory: Guarded::new(TENSOR_BYTES), graph, engine_id }
    }

    /// One sequence: statuses may be any; what counts is that each call gives one.
    pub(crate) fn sequence(&mut self, random: &mut Random, stages: &mut Stages) -> Result<(), String> {
        stages.reach("calls: sequence");
        let mut d = Descriptors::default();
        if random.once_in(2) {
            self.build_from_bytes(random, &mut d);
        } else {
            self.build_from_descriptors(random, &mut d);
        }
        self.plan_and_execute(random, &mut d, stages);
        for _ in 0..random.below(12) {
            self.any_call(random, &mut d);
        }
        for descriptor in std::mem::take(&mut d.live) {
            // SAFETY: a descriptor of ours.
            let status = unsafe { (self.api.destroy_descriptor)(descriptor) };
            if status != Status::SUCCESS {
                return Err(format!("destroying a descriptor: {status}"));
            }
        }
        Ok(())
    }

    /// Sometimes something else happens first, and sometimes the step does not.
    fn step(&mut self, random: &mut Random, d: &mut Descriptors) -> bool {
        if random.once_in(12) {
            self.any_call(random, d);
        }
        !random.once_in(25)
    }

    fn new_descriptor(&mut self, d: &mut Descriptors, kind: Kind) -> DescriptorPtr {
        let mut descriptor = null_mut();
        // SAFETY: `descriptor` is valid for the call.
        if unsafe { (self.api.create_descriptor)(kind, &mut descriptor) } == Status::SUCCESS {
            d.live.push(descriptor);
        }
        descriptor
    }

    fn finalize(&mut self, random: &mut Random, d: &mut Descriptors, descriptor: DescriptorPtr) -> bool {
        // SAFETY: any number may be passed for a descriptor: that the backend tells is what is tested.
        self.step(random, d) && unsafe { (self.api.finalize)(descriptor) } == Status::SUCCESS
    }

    /// Sets an attribute to these elements, or sometimes to others.
    fn set(
        &mut self,
        random: &mut Random,
        d: &mut Descriptors,
        descriptor: DescriptorPtr,
        name: Name,
        kind: Type,
        elements: &[u64],
    ) {
        if !self.step(random, d) {
            return;
        }
        let (mut kind, mut elements) = (kind, elements.to_vec());
        if random.once_in(20) {
            kind = random.pick(Type::ALL);
            elements = self.any_elements(random, d, kind);
        }
        let width = width(kind);
        let bytes: Vec<u8> =
            elements.iter().flat_map(|e| [e.to_le_bytes(), [0; 8]].concat()[..width].to_vec()).collect();
        let mut count = elements.len() as i64;
        if random.once_in(40) {
            count = random.pick(&[-1, 0, i64::MIN, count.saturating_sub(1)]);
        }
        let put = self.elements.put(bytes.len(), Place::Back(1), if bytes.is_empty() { &[0] } else { &bytes });
        let address = if random.once_in(60) { null_mut() } else { self.elements.address(put) };
        // SAFETY: there are `count` elements of this type, or fewer are said to be there, or none.
        unsafe { (self.api.set_attribute)(descriptor, name, kind, count, address.cast_const()) };
    }

    fn set_text(&mut self, random: &mut Random, d: &mut Descriptors, at: DescriptorPtr, name: Name, text: &str) {
        let elements: Vec<u64> = text.bytes().map(u64::from).collect();
        self.set(random, d, at, name, Type::CHAR, &elements);
    }

    fn any_elements(&mut self, random: &mut Random, d: &Descriptors, kind: Type) -> Vec<u64> {
        let count = random.pick(&[0, 1, 1, 1, 2, 3, 4, 5, ELEMENTS]);
        let memory = self.memory_address(random);
        (0..count)
            .map(|_| match kind {
                Type::HANDLE => self.handle as u64,
                Type::BACKEND_DESCRIPTOR => d.any(random) as u64,
                // Only memory that every tensor fits in may become a tensor's.
                Type::VOID_PTR => memory,
                // Small numbers, which may become extents and strides of tensors that are run.
                _ => random.pick(&[0, 1, 2, 3, 4, 9, u64::MAX]),
            })
            .collect()
    }

    fn memory_address(&mut self, random: &mut Random) -> u64 {
        let put = self.memory.put(TENSOR_BYTES, Place::Front, &[0]);
        if random.once_in(30) { 0 } else { self.memory.address(put) as u64 }
    }

    fn build_from_bytes(&mut self, random: &mut Random, d: &mut Descriptors) {
        let mut descriptor = null_mut();
        // SAFETY: the bytes are readable, `descriptor` is valid for the call.
        let status = unsafe { (self.api.deserialize_graph)(&mut descriptor, self.graph.as_ptr(), self.graph.len()) };
        assert_eq!(status, Status::SUCCESS, "the graph is right");
        d.live.push(descriptor);
        let handle = [self.handle as u64];
        self.set(random, d, descriptor, Name::OPERATIONGRAPH_HANDLE, Type::HANDLE, &handle);
        self.finalize(random, d, descriptor);
    }

    /// A convolution, from its tensors up.
    fn build_from_descriptors(&mut self, random: &mut Random, d: &mut Descriptors) {
        let shapes: [&[u64]; 3] = [&[1, 2, 4, 4], &[2, 2, 3, 3], &[1, 2, 2, 2]];
        let mut tensors = Vec::new();
        for (uid, dims) in shapes.into_iter().enumerate() {
            let tensor = self.new_descriptor(d, Kind::TENSOR_DESCRIPTOR);
            let strides: Vec<u64> = (0..dims.len()).map(|i| dims[i + 1..].iter().product()).collect();
            let uid = [uid as u64 + 1];
            self.set(random, d, tensor, Name::TENSOR_UNIQUE_ID, Type::INT64, &uid);
            self.set(random, d, tensor, Name::TENSOR_DATA_TYPE, Type::DATA_TYPE, &[0]);
            self.set(random, d, tensor, Name::TENSOR_DIMENSIONS, Type::INT64, dims);
            self.set(random, d, tensor, Name::TENSOR_STRIDES, Type::INT64, &strides);
            if random.once_in(4) {
                self.set_text(random, d, tensor, Name::TENSOR_NAME_EXT, "tensor");
            }
            self.finalize(random, d, tensor);
            tensors.push(tensor as u64);
        }
        let conv = self.new_descriptor(d, Kind::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
        for (name, tensor) in [
            (Name::OPERATION_CONVOLUTION_FORWARD_X, tensors[0]),
            (Name::OPERATION_CONVOLUTION_FORWARD_W, tensors[1]),
            (Name::OPERATION_CONVOLUTION_FORWARD_Y, tensors[2]),
        ] {
            self.set(random, d, conv, name, Type::BACKEND_DESCRIPTOR, &[tensor]);
        }
        for (name, entry) in [
            (Name::CONVOLUTION_PRE_PADDINGS, 0),
            (Name::CONVOLUTION_POST_PADDINGS, 0),
            (Name::CONVOLUTION_FILTER_STRIDES, 1),
            (Name::CONVOLUTION_DILATIONS, 1),
        ] {
            self.set(random, d, conv, name, Type::INT64, &[entry; 2]);
        }
        self.set(random, d, conv, Name::CONVOLUTION_CONV_MODE, Type::CONVOLUTION_MODE, &[1]);
        self.set(random, d, conv, Name::CONVOLUTION_COMP_TYPE, Type::DATA_TYPE, &[0]);
        self.finalize(random, d, conv);
        let graph = self.new_descriptor(d, Kind::OPERATIONGRAPH_DESCRIPTOR);
        self.set(random, d, graph, Name::OPERATIONGRAPH_OPS, Type::BACKEND_DESCRIPTOR, &[conv as u64]);
        let handle = [self.handle as u64];
        self.set(random, d, graph, Name::OPERATIONGRAPH_HANDLE, Type::HANDLE, &handle);
        if random.once_in(3) {
            self.set_text(random, d, graph, Name::OPERATIONGRAPH_NAME_EXT, "graph");
        }
        self.finalize(random, d, graph);
    }

    /// The way from the last descriptor, which should be a graph, to an execution.
    fn plan_and_execute(&mut self, random: &mut Random, d: &mut Descriptors, stages: &mut Stages) {
        let Some(&graph) = d.live.last() else { return };
        let engine = self.new_descriptor(d, Kind::ENGINE_DESCRIPTOR);
        self.set(random, d, engine, Name::ENGINE_OPERATION_GRAPH, Type::BACKEND_DESCRIPTOR, &[graph as u64]);
        let id = [self.engine_id as u64];
        self.set(random, d, engine, Name::ENGINE_GLOBAL_INDEX, Type::INT64, &id);
        self.finalize(random, d, engine);
        let config = self.new_descriptor(d, Kind::ENGINECFG_DESCRIPTOR);
        self.set(random, d, config, Name::ENGINECFG_ENGINE, Type::BACKEND_DESCRIPTOR, &[engine as u64]);
        if random.once_in(3) {
            let knob = self.new_descriptor(d, Kind::KNOB_CHOICE_DESCRIPTOR);
            self.set_text(random, d, knob, Name::KNOB_CHOICE_KNOB_TYPE, "hipdnn_rs.cpu.threads");
            self.set(random, d, knob, Name::KNOB_CHOICE_KNOB_VALUE, Type::INT64, &[1]);
            self.finalize(random, d, knob);
            self.set(random, d, config, Name::ENGINECFG_KNOB_CHOICES, Type::BACKEND_DESCRIPTOR, &[knob as u64]);
        }
        self.finalize(random, d, config);
        let plan = self.new_descriptor(d, Kind::EXECUTION_PLAN_DESCRIPTOR);
        self.set(random, d, plan, Name::EXECUTION_PLAN_ENGINE_CONFIG, Type::BACKEND_DESCRIPTOR, &[config as u64]);
        if self.finalize(random, d, plan) {
            stages.reach("calls: plan");
        }
        let memory = self.memory_address(random);
        let pack = self.new_descriptor(d, Kind::VARIANT_PACK_DESCRIPTOR);
        self.set(random, d, pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, &[1, 2, 3, 4]);
        self.set(random, d, pack, Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, &[memory; 4]);
        self.set(random, d, pack, Name::VARIANT_PACK_WORKSPACE, Type::VOID_PTR, &[memory]);
        self.finalize(random, d, pack);
        // SAFETY: every pointer in a pack is null or has memory for every tensor that these sequences describe.
        if unsafe { (self.api.execute)(self.handle, plan, pack) } == Status::SUCCESS {
            stages.reach("calls: executed");
        }
    }

    fn any_call(&mut self, random: &mut Random, d: &mut Descriptors) {
        let at = d.any(random);
        match random.below(10) {
            0 => drop(self.new_descriptor(d, Kind(random.range(-1, 40) as i32))),
            1 => {
                // SAFETY: any number may be passed for a descriptor.
                if unsafe { (self.api.destroy_descriptor)(at) } == Status::SUCCESS {
                    d.live.retain(|descriptor| *descriptor != at);
                    d.destroyed.push(at);
                }
            }
            // SAFETY: any number may be passed for a descriptor to finalize.
            2 => drop(unsafe { (self.api.finalize)(at) }),
            3 | 4 => {
                let (name, kind) = (random.pick(Name::ALL), random.pick(Type::ALL));
                let elements = self.any_elements(random, d, kind);
                let width = width(kind);
                let wide = elements.iter().flat_map(|e| [e.to_le_bytes(), [0; 8]].concat()[..width].to_vec());
                let bytes: Vec<u8> = wide.collect();
                let put = self.elements.put(bytes.len(), Place::Back(1), if bytes.is_empty() { &[0] } else { &bytes });
                let address = self.elements.address(put).cast_const();
                // SAFETY: there are as many elements as we say.
                unsafe { (self.api.set_attribute)(at, name, kind, elements.len() as i64, address) };
            }
            5..=7 => self.any_read(random, d, at),
            8 => {
                let mut size = 0;
                // SAFETY: a query of the size writes nothing else.
                unsafe {
                    (self.api.serialize_graph)(at, 0, &mut size, null_mut());
                    (self.api.serialize_json)(at, 0, &mut size, null_mut());
                }
            }
            _ => {
                let (plan, pack) = (d.any(random), d.any(random));
                // SAFETY: every pointer in a pack is null or has memory for every tensor that these sequences describe.
                unsafe { (self.api.execute)(self.handle, plan, pack) };
            }
        }
    }

    fn any_read(&mut self, random: &mut Random, d: &mut Descriptors, at: DescriptorPtr) {
        let (name, kind) = (random.pick(Name::ALL), random.pick(Type::ALL));
        let requested = random.pick(&[-1, 0, 1, 1, 2, 7, ELEMENTS as i64]);
        let bytes = requested.max(0) as usize * width(kind);
        // Descriptors that are to be filled in are live ones; elsewhere the places are empty.
        let filled = self.any_elements(random, d, kind).first().copied().unwrap_or_default();
        let content = if kind == Type::BACKEND_DESCRIPTOR { filled.to_le_bytes() } else { [0; 8] };
        let put = self.elements.put(bytes, Place::Back(1), &content);
        let mut count = i64::MIN;
        let place: *mut c_void = if random.once_in(6) { null_mut() } else { self.elements.address(put) };
        let count_place = if random.once_in(6) { null_mut() } else { &raw mut count };
        // SAFETY: there is room for as many elements as are asked for, or the place is null.
        let status = unsafe { (self.api.get_attribute)(at, name, kind, requested, count_place, place) };
        assert!(self.elements.surroundings_untouched(put), "{name}: more than {requested} elements were written");
        if status == Status::SUCCESS && kind == Type::BACKEND_DESCRIPTOR && !place.is_null() {
            // Whatever is new in the places is ours now.
            for element in self.elements.content(put).chunks_exact(8) {
                let token = u64::from_le_bytes(element.try_into().expect("eight bytes"));
                let descriptor: DescriptorPtr = std::ptr::with_exposed_provenance_mut(token as usize);
                if token != filled && !d.live.contains(&descriptor) {
                    d.live.push(descriptor);
                }
            }
        }
    }
}

/// Bytes of an element.
fn width(kind: Type) -> usize {
    match kind {
        Type::CHAR | Type::BOOLEAN => 1,
        Type::HANDLE | Type::INT64 | Type::DOUBLE | Type::VOID_PTR | Type::BACKEND_DESCRIPTOR | Type::FRACTION => 8,
        Type::FLATBUFFER_DATA_STRUCT_EXT => 16,
        // Enumerations and 32-bit numbers.
        _ => 4,
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // SAFETY: the handle is alive.
        let status = unsafe { (self.api.destroy)(self.handle) };
        assert_eq!(status, Status::SUCCESS, "destroying the handle");
    }
}
